"""FuDyADT for river."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Literal

from raydt.estimators.fudyadt import FullyDynamicTreeClassifier
from raydt.estimators.parameters import documented
from raydt.estimators.river import RiverClassifier


@documented
@dataclass(repr=False, eq=False)
class RiverTreeClassifier(RiverClassifier):
    """A decision tree for river that stays epsilon-feasible while examples are learned and forgotten.

    The first example learned says what the features are: its keys, in the order of their names; strings are
    categories, numbers are numbers. Later examples have exactly these features. None and NaN are missing values; a
    feature of which the first example has none holds numbers, unless ``categorical_features`` names it.

    Notes
    -----
    Without ``smoothing`` by default: an example that comes one at a time often resembles the last ones of its leaf. The
    tree is that of :class:`raydt.FullyDynamicTreeClassifier` on the same stream. Updates by the thousand cost a few
    microseconds there; here one by one, most of it Python, a few times river's own trees;
    ``benchmarks/river_adapter.py`` prints it. Ties of the majority go to the label seen first.

    Examples
    --------
    >>> from raydt import RiverTreeClassifier
    >>> tree = RiverTreeClassifier()
    >>> for hours, weather, y in [(1, "dry", False), (2, "wet", False), (8, "dry", True), (9, "wet", True)]:
    ...     tree.learn_one({"hours": hours, "weather": weather}, y)
    >>> tree.predict_one({"hours": 7, "weather": "wet"})
    True
    >>> tree.forget_one({"hours": 9, "weather": "wet"}, True)
    >>> tree.predict_proba_one({"hours": 7, "weather": "wet"}), tree.audit().feasibility
    ({False: 0.0, True: 1.0}, 'proven')
    """

    estimator = FullyDynamicTreeClassifier

    epsilon: float | Literal["auto"] = "auto"
    alpha: float = 0.02
    beta: float = 0.2
    max_depth: int | None = 20
    min_samples_split: int = 2
    smoothing: float = 0.0
    categorical_features: Sequence[Hashable] | None = None
    schedule: Literal["auto", "certificate", "published"] = "auto"
