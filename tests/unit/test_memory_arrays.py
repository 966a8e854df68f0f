"""Arrays that grow: what they hold, and that a former one gives its pages back."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import numpy as np
import pytest

from raydt.arrays import blocks as memory
from raydt.arrays.blocks import empty, extended, grown
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


@pytest.mark.parametrize("looks", range(1, 12))
def test_an_array_whose_extension_is_interrupted_is_as_before(looks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The interrupt comes at each line of the loop in turn."""
    monkeypatch.setattr(memory, "_COPIED", 1 << 20)
    array = empty((400_000,), np.dtype(np.int64))
    array[:] = np.arange(len(array))
    left = looks

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal left
        if frame.f_code is not extended.__code__:
            return None
        if event == "line" and "copied" in frame.f_locals:
            left -= 1
            if not left:
                sys.settrace(None)
                raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:
        with pytest.raises(KeyboardInterrupt):
            extended(array, 500_000)
    finally:
        sys.settrace(None)
    assert np.array_equal(array, np.arange(len(array)))
