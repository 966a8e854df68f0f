"""Arrays that grow: what they hold, and that a former one gives its pages back."""

from __future__ import annotations

import numpy as np
import pytest

from raydt.arrays.memory import extended, grown
from raydt.trees.records import MEMBER


@pytest.mark.parametrize("grow", [grown, extended])
@pytest.mark.parametrize("length", [0, 5, 3_000, 3_000_000])
def test_new_rows_are_0_behind_the_former_ones(grow: object, length: int) -> None:
    array = grown(np.empty(0, dtype=MEMBER), length)
    array["leaf"] = np.arange(length)
    longer = grow(array, 2 * length + 1)  # type: ignore[operator]
    assert longer["leaf"].tolist() == [*range(length), *[0] * (length + 1)]


def test_an_array_that_was_extended_holds_no_page() -> None:
    array = grown(np.empty(0, dtype=MEMBER), 3_000_000)
    array["leaf"] = 1
    extended(array, 4_000_000)
    assert not array["leaf"].any()
