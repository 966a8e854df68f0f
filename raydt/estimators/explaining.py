"""What estimators of trees say about their model: importances, what moved each prediction, and exports."""

from __future__ import annotations

from typing import Any

import numpy as np

from raydt.arrays.sparse import LARGEST_WIDTH
from raydt.arrays.types import Floats
from raydt.errors import InputError
from raydt.estimators.fitted import Fitted
from raydt.examples.features import Features
from raydt.export import FormatName, Interface, build, write
from raydt.export.paths import sentences
from raydt.messages import message
from raydt.trees.shapley import Explanation, explain
from raydt.trees.tree_sum import TreeSum, tree_sum_of


def require_counted(features: Features) -> None:
    """Refuse an answer with an entry for each feature where nobody has said how many sparse ones there are."""
    if features.sparse == LARGEST_WIDTH:
        raise InputError(message("export.unknown_width"))


class SumOfTrees(Fitted):
    """An estimator whose model is one decision tree, or a sum of trees."""

    @property
    def feature_importances_(self) -> Floats:
        """Share of each feature in the impurity that all splits take away, shape (d,); all 0 without a split.

        Impurity is the Gini index, or the variance where labels are numbers, times the live examples of a node; of
        boosting, the loss. It is computed from the counts and sums of the live examples, so that deleted examples take
        no part.
        """
        self._require_fitted()
        require_counted(self._features())
        shares: Floats = self._described().importances()
        return shares

    def explain(self, X: Any) -> Explanation:
        """Shapley values: how much each feature of a row moves its prediction from the mean of the trees.

        Parameters
        ----------
        X : as of ``predict``
            n rows.

        Returns
        -------
        Explanation
            ``values``, shape (n, d, classes), and ``base``, shape (classes,): ``values.sum(axis=1) + base`` is
            ``predict_proba(X)``. Of a regressor shape (n, d) and a number, which add up to ``predict(X)``. Of boosting
            they add up to the scores: of two classes shape (n, d) and a number, the log-odds of the second class; of
            more, a score for each class seen, whose softmax are the shares.

        Raises
        ------
        InputError
            Leaves predict by naive Bayes, which splits do not explain.

        Notes
        -----
        Path-dependent: features that are not known are averaged with the live examples of the trees' nodes. O(nodes x
        distinct features of a path x classes) a row; n x d x classes numbers, also of sparse features.
        """
        rows, sparse = self._rows(X)
        require_counted(self._features())
        trees = self.tree_sum()
        found = explain(trees, rows, **sparse)
        if not len(trees.codes) or trees.link == "logistic":
            return Explanation(found.values[:, :, 0], float(found.base[0]))
        columns = np.argsort(trees.codes)
        return Explanation(found.values[:, :, columns], found.base[columns])

    def explain_path(self, X: Any, tree: int = 0) -> list[list[str]]:
        """The way of each row through one tree, in words: a sentence for each node it passes, then its leaf.

        Parameters
        ----------
        X : as of ``predict``
        tree : int, default 0
            Number of the tree.

        Returns
        -------
        list of list of str
            Such as ``["age <= 30.5 (value 27)", "leaf of 12 examples: no .75, yes .25"]``.
        """
        rows, sparse = self._rows(X)
        return sentences(self.tree_sum(), rows, sparse.get("sparse"), tree, self.interface())

    def export(self, to: FormatName, path: Any = None) -> Any:
        """The model as an object of another library, whose outputs before the link are equal in every bit.

        Parameters
        ----------
        to : {"treelite", "onnx", "lightgbm", "sklearn"}
        path : path, optional
            File to write it to; ``path`` + ``.json`` then says what columns and outputs are.

        Returns
        -------
        treelite.Model, onnx.ModelProto, lightgbm.Booster or sklearn.pipeline.Pipeline

        Raises
        ------
        InputError
            The library is not installed, the format cannot say what the model is, or the file cannot be written.
        """
        trees, interface = self.tree_sum(), self.interface()
        model = build(trees, interface, to)
        if path is not None:
            write(model, trees, interface, to, path)
        return model

    def interface(self) -> Interface:
        """What the columns and outputs of the exported model are."""
        values = {name: dictionary.values for name, dictionary in self._encoder.dictionaries.items()}
        classes = getattr(self, "classes_", np.empty(0)).tolist()
        return Interface.of(self._features(), values, classes, self._traits.reading.by_value)

    def _described(self) -> Any:
        """The predictor with all that its model says of its trees."""
        return self._predictor()

    def tree_sum(self) -> TreeSum:
        """The model as arrays of trees: what explanations and exports are made from."""
        self._require_fitted()
        return tree_sum_of(self._described(), len(getattr(self, "classes_", ())))
