"""Options of FuDyADT, the same names in YAML and Python."""

from __future__ import annotations

from typing import Literal

from pydantic import model_validator

from raydt.learners.base import Promise
from raydt.learners.fully_dynamic import FullyDynamicOptions, epsilon_bound, not_promised


class FuDyADTOptions(FullyDynamicOptions):
    """A fully dynamic decision tree, epsilon-feasible after every update (Bressan, Damay, Sozio, AAAI 2023)."""

    kind: Literal["fudyadt"] = "fudyadt"

    @model_validator(mode="after")
    def _check_epsilon(self) -> FuDyADTOptions:
        self.require_epsilon()
        self.resolved_epsilon()
        return self

    def promise(self) -> Promise:
        """Whether the guarantee holds for these options."""
        epsilon, rest = self.resolved_epsilon(), (self.alpha, self.beta, self.min_samples_split)
        excuse = not_promised(epsilon, *rest)
        if excuse:
            return Promise(False, excuse)
        place = "the largest below" if isinstance(self.epsilon, str) else "below"
        return Promise(
            True,
            f"epsilon {epsilon:.6g} is {place} the bound {float(epsilon_bound(*rest)):.6g} for alpha {self.alpha:g}, "
            f"beta {self.beta:g} and min_samples_split {self.min_samples_split}",
        )
