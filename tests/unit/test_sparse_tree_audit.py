"""The audit of the sparse fully dynamic tree finds each kind of damage; forged states are refused."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from raydt.examples.history import History, history_of_live
from raydt.learners.sparse_tree.audit import audit
from tests.refusals import findings
from tests.sparse_tree_streams import LEARNER, MixedStream, long_stream, session_of, twin_of

OPTIONS = {"finder_alpha": 0.1, "alpha": 0.0, "beta": 0.03, "feature_groups": 4}
CASES = {"updgini": ("updgini", 0), "updent": ("updent", 0), "mixed": ("updgini", 2)}


@cache
def case(name: str) -> tuple[MixedStream, dict[str, Any], Any, Any, History]:
    """A stream, options, the state and groups after it, and its history."""
    finder, dense = CASES[name]
    stream = long_stream(5, 300, dense)
    options: dict[str, Any] = {**OPTIONS, "finder": finder, **({"epsilon": 0.004, "alpha": 0.1} if dense else {})}
    session, twin = session_of(stream, options, 2), twin_of(stream, options)
    for mine, whole in zip(stream.batches([40]), stream.columns.batches([40]), strict=True):
        session.apply(mine)
        twin.process(whole)
    history = twin.history()
    X = np.ascontiguousarray(history.X[:, :dense])
    return stream, options, *session.state(), replace(history, X=X, sparse=stream.sparse_of(history.X))


def audited(name: str, state: Any = None, groups: Any = None, history: History | None = None) -> Any:
    stream, options, sound, parts, true = case(name)
    fitted = LEARNER.Options(kind="sparse_tree", **options)
    return LEARNER.audit(fitted, stream.features, state or sound, history or true, groups or parts)


@pytest.mark.parametrize("name", CASES)
def test_a_sound_state_holds_and_is_proven(name: str) -> None:
    stream, _, state, groups, _ = case(name)
    report = audited(name)
    assert report.failures == []
    assert (report.conformance, report.feasibility) == ("holds", "proven")
    assert report.checked["entries"] == sum(len(group["node"]) for group in groups.values()) > 100
    assert report.checked["nodes"] == report.checked["counters"] > 5
    assert report.worst["gap"] <= 0.03
    of_live = audited(name, history=history_of_live(state, groups, stream.features))
    assert of_live.ok
    assert of_live.checked["counters"] == 0
    assert of_live.worst == report.worst


def test_a_beaten_split_is_infeasible() -> None:
    stream, options, state, groups, history = case("updgini")
    fitted = LEARNER.Options(kind="sparse_tree", **{**options, "beta": 1e-9, "finder_alpha": 0.01})
    report = audit(fitted, stream.features, state, history, groups)
    assert report.feasibility == "violated"
    assert "audits.score_gap" in findings(report)
