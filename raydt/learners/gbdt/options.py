"""Options of the in-place online GBDT, the same names in YAML and Python."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from pydantic import Field, field_validator, model_validator

from raydt.arrays.elementary import Ints
from raydt.learners.base import LearnerOptions, Promise
from raydt.learners.batch_coordinator import ClassWeight
from raydt.messages import message

#: Defaults where labels are numbers: a leaf of a few far labels would be worse than the mean.
_OF_NUMBERS = {"l2_regularization": 10.0}
_TO_INSERT = 1  # ``pending`` of an example that is not in the trees yet (``update``)


class GBDTOptions(LearnerOptions, ClassWeight):
    """Boosted trees, updated in place when examples are inserted and deleted (Lin et al., ICML 2025)."""

    kind: Literal["gbdt"] = "gbdt"
    objective: Literal["auto", "binary", "multiclass", "squared_error"] = Field(
        "auto",
        description="loss to minimise; auto: binary while there are two classes, else multiclass; binary: refuses a "
        "third class; multiclass: a tree for each class, also of two; squared_error: for numeric labels, with "
        "l2_regularization 10 as default",
    )
    max_iter: int = Field(
        100,
        ge=1,
        le=2**20,
        description="boosting iterations; each adds one tree, or one tree per class for three or more (M)",
    )
    max_leaf_nodes: int = Field(20, ge=2, le=2**14, description="largest number of leaves of a tree (J)")
    learning_rate: float = Field(0.1, gt=0, le=1, description="factor applied to the value of every leaf (nu)")
    l2_regularization: float = Field(
        1.0, ge=0, le=1e6, description="added to the sum of second derivatives; larger shrinks leaf values"
    )
    max_bins: int = Field(
        1024,
        ge=2,
        le=2**16 - 1,
        description="largest number of bins of a feature; each training of all trees makes them (B)",
    )
    binning: Literal["doubling", "quantile"] = Field(
        "doubling",
        description="doubling: at most max_bins bins of equal width, the smallest that is 1e-10 times a power of two; "
        "quantile: equal frequency",
    )
    candidate_fraction: float = Field(
        0.1, gt=0, le=1, description="share of the bins drawn as split candidates: ceil(alpha B) per feature (alpha)"
    )
    robustness_tolerance: float = Field(
        0.1,
        ge=0,
        le=1,
        description="a split is kept while it is among the best ceil(sigma alpha B) of its node; smaller retrains more "
        "(sigma)",
    )
    derivatives: Literal["bounded", "changed_leaves", "retrained", "never"] = Field(
        "bounded",
        description="when the derivatives of existing examples are recomputed: bounded: when their score has moved by "
        "more than derivative_tolerance; changed_leaves: whenever it has moved; retrained: if a subtree that holds "
        "them is retrained (the paper's); never",
    )
    derivative_tolerance: float = Field(
        0.3,
        ge=0,
        le=16,
        description="for derivatives: bounded, how far the score of an example may move before its derivatives are "
        "recomputed; in log-odds; for numbers in sixteenths of 2^e, the first power of two that is not below the "
        "largest distance of a label from the mean",
    )
    update_every: int | Literal["auto"] = Field(
        "auto",
        description="updates of the stream that are applied together, as one batch (D'), at least 1; auto: a twentieth "
        "of the rows in the model or, if they are fewer, of the rows that a tree is trained on in the time of a look "
        "at its candidates; at least a two-hundredth of the rows, and 20; without a warm-up at least 100",
    )
    retrain: Literal["auto", "never", "always"] = Field(
        "auto",
        description="when a batch trains all trees again on the live examples, with new bins, instead of updating "
        "them: auto: after an eighth as many inserts and deletes as examples were trained on last, or when an update "
        "would be as much work; never; always",
    )
    random_state: int = Field(0, description="seed of the split candidates; any integer")
    early_stopping: bool = Field(
        False, description="stop the first training when the loss on held-out rows stops improving"
    )
    validation_fraction: float = Field(0.1, gt=0, lt=1, description="share of the warm-up held out for early_stopping")
    n_iter_no_change: int = Field(
        10, ge=1, description="iterations without an improvement of more than tol after which training stops early"
    )
    tol: float = Field(
        1e-7,
        ge=0,
        description="decrease of the loss above which early_stopping counts an improvement; squared errors count in "
        "units of the power of two above the largest distance of a label from the mean",
    )

    @model_validator(mode="before")
    @classmethod
    def _fill_in(cls, given: Any) -> Any:
        """Defaults that depend on the objective."""
        if isinstance(given, dict) and given.get("objective") == "squared_error":
            return {**_OF_NUMBERS, **given}
        return given

    @model_validator(mode="after")
    def _has_classes(self) -> GBDTOptions:
        if self.regression and self.class_weight is not None:
            raise ValueError(message("settings.no_classes"))
        return self

    @field_validator("update_every")
    @classmethod
    def _at_least_one(cls, value: int | str) -> int | str:
        if isinstance(value, int) and value < 1:
            raise ValueError(message("settings.number_or_auto"))
        return value

    def every(self, rows: int, warmup: int, candidates: int | None = None) -> int:
        """Updates of a batch D' that begins with so many rows in the model, and so many candidates of a node.

        The predictions of rows that wait are stale, and a batch costs something whatever its size: a look at the
        candidates of each tree, counted in rows that a tree is trained on (:meth:`.update.Counts.work`), or where all
        rows are fewer, a training. Trainings take eight rows an update (``retrain: auto``), so a twentieth of these
        rows makes that two and a half times as much as the trainings. A large batch is a two-hundredth of the rows:
        the shards of a large model meet at each tree of a batch. Without ``candidates``: the most updates.
        """
        if isinstance(self.update_every, int):
            return self.update_every
        looked_at = rows if candidates is None else (self.max_leaf_nodes - 1) * candidates // 20
        return max(20 if warmup else 100, min(rows, looked_at) // 20, rows // 200)

    def begun(self, state: Mapping[str, Ints]) -> int:
        """Return how many updates came before the present batch D' of a state.

        In a state of format 2 all batches are of one size, which follows the warm-up; but a run that ended has taken
        all updates, and its next batch begins after them.
        """
        if "begun" in state:
            return int(state["begun"][0])
        seq, warmup = int(state["seq"][0]), int(state["warmup"][0])
        every = self.every(warmup, warmup)
        begun = warmup + (seq - warmup) // every * every if seq >= warmup else 0
        return int(np.max(state["born"][state["pending"] != _TO_INSERT] + 1, initial=begun))

    def trains_after(self, examples: int) -> int:
        """Inserts and deletes after which trees that were trained on so many examples are trained again."""
        return {"auto": max(1, examples // 8), "never": 2**62, "always": 1}[self.retrain]

    @property
    def bounded(self) -> bool:
        """True if stored derivatives are those of a score within a tolerance of the present one."""
        return self.derivatives in ("bounded", "changed_leaves")

    @property
    def tolerance(self) -> float:
        """The tolerance of derivatives."""
        return self.derivative_tolerance if self.derivatives == "bounded" else 0.0

    @property
    def unused(self) -> tuple[str, ...]:
        """Keys without effect."""
        tolerance = () if self.derivatives == "bounded" else ("derivative_tolerance",)
        stopping = () if self.early_stopping else ("validation_fraction", "n_iter_no_change", "tol")
        return tolerance + stopping

    @property
    def regression(self) -> bool:
        """True if the labels are numbers."""
        return self.objective == "squared_error"

    @property
    def calibrates(self) -> bool:
        """True if a stream finds a slope of predictions; not where the model is to equal the one trained anew."""
        return self.regression and self.retrain != "always"

    def promise(self) -> Promise:
        """Return the promise about stored derivatives after every batch; the paper bounds nothing after an update."""
        if self.bounded:
            return Promise(True, message("learners.bounded_derivatives", tolerance=self.tolerance))
        return Promise(False, message("learners.old_derivatives", derivatives=self.derivatives))
