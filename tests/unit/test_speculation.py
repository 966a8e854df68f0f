"""The length of the windows in which learners speculate."""

from __future__ import annotations

from raydt.learners.sparse_tree.coordinator import WindowLength


def test_a_window_reaches_as_far_as_the_next_change() -> None:
    length = WindowLength(16, 100, 32)
    lengths = [length.steps]
    for changed in (False, False, False, True, True, True, True, False):
        length.adapt(changed=changed)
        lengths.append(length.steps)
    assert lengths == [32, 64, 100, 100, 50, 25, 16, 16, 32]
