"""Options of the sparse best split, the same names in YAML and Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal, get_args

import numpy as np
from pydantic import Field, model_validator

from raydt.finders.finder import FinderName
from raydt.learners.base import LearnerOptions, Promise

#: ``auto`` keeps a structure where there are so many seen features for each one of a row (docs/sparse-results.md).
STRUCTURE_FROM = 50

#: What ``auto`` goes by: features seen in the warm-up, their ones, and its rows.
MEASURED = ("features", "ones", "rows")

_CRITERION_OF = {"updgini": "gini", "updent": "entropy"}


class BestSplitOptions(LearnerOptions):
    """The best split over sparse binary features, within (1 + alpha) of the optimum after every update (Tatti)."""

    rebuilds: ClassVar[bool] = False
    without_sparse: ClassVar[str] = "kind: fudyadt, or confidence_tree with finder: exact"
    counts: ClassVar[tuple[str, ...]] = ("changes", "moves")
    levels: ClassVar[tuple[str, ...]] = ("buckets",)
    stays: ClassVar[tuple[str, ...]] = (
        "the model itself: a split that was chosen while they were in stays until the next search, and which bucket a "
        "feature lies in, within its limits, depends on the updates before",
    )

    kind: Literal["best_split"] = "best_split"
    finder: Literal["updgini", "updent", "scan", "auto"] = Field(
        "updgini",
        description="updgini, updent: a structure whose time follows the ones of a row; scan: all seen features, "
        "exact; auto: by the sparsity of the warm-up",
    )
    criterion: Literal["gini", "entropy"] | None = Field(
        None, description="What is least of the best split; null: that of the finder, gini of scan and auto"
    )
    alpha: float = Field(0.1, ge=0.01, le=1e3, description="The split is within (1 + alpha) of the optimum")
    query_every: int = Field(1, ge=1, description="Updates of the stream after which the split is searched again")

    @model_validator(mode="after")
    def _consistent(self) -> BestSplitOptions:
        own = _CRITERION_OF.get(self.finder)
        if own is not None and self.criterion not in (None, own):
            other = next(finder for finder, criterion in _CRITERION_OF.items() if criterion == self.criterion)
            raise ValueError(
                f"criterion: {self.criterion} is not that of finder: {self.finder}, which is {own}. Leave criterion "
                f"out, or set finder to {other}, scan or auto"
            )
        return self

    @property
    def entropy(self) -> bool:
        """Whether the criterion is the entropy, and not the Gini index."""
        return (self.criterion or _CRITERION_OF.get(self.finder, "gini")) == "entropy"

    @property
    def takes_sparse(self) -> bool:
        """A finder is over sparse features."""
        return True

    @property
    def needs_sparse(self) -> bool:
        """It has nothing else to look at."""
        return True

    @property
    def takes_dense(self) -> bool:
        """A finder is over sparse features only."""
        return False

    def most_classes(self, *, sparse: bool) -> int:
        """A finder compares two."""
        return 2

    @property
    def needs_warmup(self) -> str:
        """``auto`` chooses by the first rows."""
        return "with finder: auto chooses by how sparse the first rows are" if self.finder == "auto" else ""

    @property
    def structure(self) -> FinderName:
        """The finder with a structure for this criterion."""
        return "updent" if self.entropy else "updgini"

    def chosen(self, seen: int, ones: int, rows: int) -> FinderName:
        """The finder to work with: that of the option, or of ``auto`` after a warm-up.

        Parameters
        ----------
        seen, ones, rows : int
            Of the warm-up: features that are 1 somewhere, all ones, and rows.
        """
        if self.finder != "auto":
            return self.finder
        return self.structure if ones and seen * rows >= STRUCTURE_FROM * ones else "scan"

    def promise(self) -> Promise:
        """Propositions 4.2 and 5.2; a scan is exact."""
        if self.finder == "scan":
            return Promise(True, "a scan looks at every seen feature")
        what = "a scan, if auto chooses one, finds the least; a structure a" if self.finder == "auto" else "it finds a"
        return Promise(True, f"{what} split whose score is at most {1 + self.alpha:g} times the least of all features")

    def size(self, statistics: Mapping[str, int]) -> str:
        """How often the best feature has changed."""
        changes = statistics["changes"]
        return f"{changes:,} change{'s' * (changes != 1)} of the best feature"

    def outcome(self, statistics: Mapping[str, int], name: Callable[[int], str]) -> dict[str, Any]:
        """The split of the last search, the finder and why it was chosen, and what it took.

        ``finder``: its name, and of ``auto`` what the warm-up had: ``features`` seen, their ``ones``, ``rows``.
        ``split``: ``feature`` and its ``name`` (both null where none was seen), ``score``, ``rows`` at the search,
        and those ``with_feature``; null before any search. ``changes``, ``moves``, ``buckets``.
        """
        if "finder" not in statistics:
            return {}
        from raydt.learners.best_split.model import Splits, score_of_split

        number = statistics["finder"]
        chosen: dict[str, Any] = {"name": None if number < 0 else get_args(FinderName)[number]}
        if self.finder == "auto" and number >= 0:
            chosen |= {what: statistics[f"warmup_{what}"] for what in MEASURED}
        split = Splits(*(np.array([statistics[f"split_{column}"]]) for column in Splits._fields))
        feature = statistics["split_feature"]
        found = {
            "feature": None if feature < 0 else feature,
            "name": None if feature < 0 else name(feature),
            "score": score_of_split(self.entropy, split),
            "rows": statistics["split_n"],
            "with_feature": statistics["split_n1"],
        }
        split_found = found if statistics["split_n"] else None
        return {"split": split_found, "finder": chosen, **{count: statistics[count] for count in self.figures}}
