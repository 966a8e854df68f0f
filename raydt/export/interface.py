"""What the numbers that go into an exported model, and come out of it, stand for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from raydt.arrays.sparse import LARGEST_WIDTH
from raydt.errors import InputError
from raydt.examples.features import Features
from raydt.learners.tree_sum import TreeSum
from raydt.sources.columns.encoding import number_of

FormatName = Literal["treelite", "onnx", "lightgbm", "sklearn"]

_OUTPUTS = {
    "identity": "shares of the classes",
    "logistic": "log-odds of the class; its share is 1 / (1 + exp(-output))",
    "softmax": "scores of the classes; their softmax are the shares",
}


@dataclass(frozen=True, slots=True)
class Interface:
    """Columns and classes of a model.

    Attributes
    ----------
    features : Features
    categories : mapping of str to mapping
        Of each categorical column, the number that stands for each value; every other value is -1.
    classes : list
        Labels by class code; empty where labels are numbers.
    """

    features: Features
    categories: Mapping[str, Mapping[Any, int]]
    classes: Sequence[Any]

    @classmethod
    def of(
        cls, features: Features, categories: Mapping[str, Sequence[Any]], classes: Sequence[Any], by_value: bool
    ) -> Interface:
        """From the values of each categorical column in the order of their codes.

        Raises
        ------
        InputError
            Nobody has said how many sparse features there are.
        """
        if features.sparse == LARGEST_WIDTH:
            raise InputError(
                "the number of sparse features is not known, and exports and explanations have an entry for each",
                remedy="Set n_features",
            )
        names = [name for name, kind in zip(features.names, features.categorical, strict=True) if kind]
        numbers = {
            name: {value: number_of(value) if by_value else code for code, value in enumerate(categories.get(name, ()))}
            for name in names
        }
        return cls(features, numbers, list(classes))

    def describe(self, trees: TreeSum) -> dict[str, Any]:
        """As JSON values: ``columns`` in the order of the input, ``outputs`` in the order of the output."""
        columns: list[dict[str, Any]] = []
        for described in self.features.describe():
            numbers = self.categories.get(described["name"])
            values = {} if numbers is None else {"values": [[value, number] for value, number in numbers.items()]}
            columns.append(described | values)
        # A model of two classes may have seen one label.
        labels = [self.classes[code] if code < len(self.classes) else None for code in trees.codes.tolist()]
        meaning = _OUTPUTS[trees.link] if labels else "the predicted number"
        return {"columns": columns, "outputs": labels or ["prediction"], "meaning": meaning}
