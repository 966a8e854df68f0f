"""The option ``class_weight`` of learners that take weights."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, Field, field_validator

from raydt.examples.weights import BITS, MOST, UNIT, by_label, out_of_range
from raydt.messages import message


def _is_number(weight: Any) -> bool:
    """Whether float64 has room for a weight, which may be a number of NumPy, too."""
    if isinstance(weight, bool) or not isinstance(weight, int | float | np.integer | np.floating):
        return False
    return bool(abs(weight) <= MOST)


class ClassWeight(BaseModel):
    """Weights of classes."""

    class_weight: Literal["balanced"] | dict[Any, float] | None = Field(
        None,
        description="weights of classes, which multiply those of examples: balanced: n / (K n_c), so that all classes "
        "weigh the same, found once from the warm-up or first training; or a weight for each label, 1 where none is "
        "given; null: 1",
    )

    @field_validator("class_weight", mode="before")
    @classmethod
    def _positive(cls, given: Any) -> Any:
        """Take labels as text, since keys of files are; refuse what is no weight."""
        if given is None or (isinstance(given, str) and given == "balanced"):
            return given
        if not isinstance(given, dict) or not given:
            raise ValueError(message("settings.class_weight"))
        for label, weight in given.items():
            if not _is_number(weight) or out_of_range(np.array([weight], dtype=np.float64)).any():
                shown = {"what": f"the weight of class {label}", "value": weight}
                raise ValueError(message("settings.weight_range", least=1 / UNIT, most=MOST >> BITS, **shown))
        weights = by_label(given)
        if len(dict(weights)) < len(weights):
            raise ValueError(message("settings.repeated_class"))
        return dict(weights)

    @property
    def weights_by_label(self) -> tuple[tuple[str, float], ...]:
        """Weights of classes that are given by label."""
        return by_label(self.class_weight) if isinstance(self.class_weight, dict) else ()
