"""The windows of learners that speculate: their length, and that it changes no result."""

from __future__ import annotations

from itertools import pairwise

import pytest

from raydt.batches.window_length import WindowLength
from raydt.learners import learners
from raydt.learners.confidence_tree import coordinator as confidence_tree
from raydt.learners.confidence_tree import dynamic_tree
from raydt.learners.sparse_tree import coordinator as sparse_tree
from raydt.sessions.session import InProcessSession
from raydt.sessions.warmup import small_stream


def test_a_window_reaches_as_far_as_the_next_change() -> None:
    length = WindowLength(16, 100, 32)
    lengths = [length.steps]
    for changed in (False, False, False, True, True, True, True, False):
        length.adapt(changed=changed)
        lengths.append(length.steps)
    assert lengths == [32, 64, 100, 100, 50, 25, 16, 16, 32]


@pytest.mark.parametrize(
    ("kind", "coordinator", "rolls_back"),
    [("sparse_tree", sparse_tree, sparse_tree), ("confidence_tree", confidence_tree, dynamic_tree)],
    ids=("sparse_tree", "confidence_tree"),
)
def test_what_is_rolled_back_is_processed_again_in_full(kind, coordinator, rolls_back, monkeypatch) -> None:
    """A window of one step rolls nothing back; any other has the same digest, predictions and counts of changes."""
    learner = learners()[kind]
    rolled_back = []
    original = rolls_back.roll_back
    for case in learner.cases():
        features, batch = small_stream(case)
        outcomes = []
        for longest in (1, 7, 4096):
            calls: list[int] = []

            def counted(*args, calls=calls):
                calls.append(1)
                original(*args)

            monkeypatch.setattr(rolls_back, "roll_back", counted)
            monkeypatch.setattr(coordinator, "SHORTEST", min(longest, 16), raising=False)
            monkeypatch.setattr(coordinator, "LONGEST", longest)
            options = learner.Options.model_validate({**case.options, "kind": kind})
            session = InProcessSession(learner, options, features, 2)
            result = session.apply(batch)
            session.finish()
            statistics = {
                name: n for name, n in session.statistics().items() if name not in ("rounds", "bytes_exchanged")
            }
            outcomes.append((session.digest(), result.predictions.tolist(), statistics))
            rolled_back.append((longest, len(calls)))
        assert all(a == b for a, b in pairwise(outcomes)), case.name
    calls_of = {longest: sum(n for other, n in rolled_back if other == longest) for longest in (1, 7, 4096)}
    assert calls_of[1] == 0 < calls_of[4096], calls_of
