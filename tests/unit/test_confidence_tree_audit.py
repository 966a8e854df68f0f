"""The audit of confidence trees holds on sound states of every rule, and finds each kind of damage."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from raydt.audits.audit_report import AuditReport
from raydt.examples.features import Features
from raydt.examples.history import History
from raydt.examples.updates import INSERT, UpdateBatch
from raydt.learners.confidence_tree.learner import LEARNER
from raydt.messages import message
from raydt.sessions.session import InProcessSession
from tests.refusals import findings
from tests.unit.confidence_cases import Case, case


def audited(sound: Case, **other: Any) -> AuditReport:
    changed = sound._replace(**other)
    return LEARNER.audit(changed.options, changed.features, changed.state, changed.history, changed.groups)


def changed(arrays: Any, name: str, place: Any, by: Any) -> Any:
    array = arrays[name].copy()
    array[place] = (array[place] + np.array(by)).astype(array.dtype)
    return {**arrays, name: array}


def test_another_past_is_found() -> None:
    """A row that was counted, and is gone, has another label; and one was never there."""
    sound = case("gini")
    first_split, warmup = int(sound.state["split_stamp"].min()), int(sound.state["warmup"][0])
    inserted, deleted = 2 * sound.history.inserted, 2 * sound.history.deleted.astype(float)
    there = (inserted < first_split) & (deleted > max(first_split, 2 * warmup)) & (deleted < 1e9)
    row = int(np.flatnonzero(there)[0])
    y = sound.history.y.copy()
    y[row] = 1 - y[row]
    assert "audits.record:own" in findings(audited(sound, history=replace(sound.history, y=y)))
    kept = np.delete(np.arange(len(y)), row)
    h = sound.history
    less = History(h.id[kept], h.X[kept], h.y[kept], h.inserted[kept], h.deleted[kept], h.warmup)
    assert "audits.record:m" in findings(audited(sound, history=less))


def by_the_theorem(n: int, noise: float, **settings: Any) -> tuple[Any, Features, dict[str, Any], Any, History]:
    """Options, features, state, groups and history of a tree on two bits, the first of which is the label."""
    rng = np.random.default_rng(1)
    X = rng.integers(0, 2, (n, 2)).astype(float)
    options = LEARNER.Options(confidence="theorem", rival="split", **settings)
    features = Features(("a", "b"), (False, False), 2)
    session = InProcessSession(LEARNER, options, features, 2)
    y, key = (X[:, 0] != (rng.random(n) < noise)).astype(np.int32), np.arange(n)
    session.apply(UpdateBatch(0, np.full(n, INSERT, np.int8), key, X, y, 2, key, 10))
    state, groups = session.state()
    return options, features, state, groups, History(key, X, y, key, np.full(n, np.iinfo(np.int64).max), 10)


def test_a_split_by_the_theorem_is_proven_and_a_doubtful_one_is_not() -> None:
    options, features, state, groups, history = by_the_theorem(6000, 0.0, delta=0.1)
    assert state["split_reason"].tolist() == [0]
    report = LEARNER.audit(options, features, state, history, groups)
    assert (report.failures, report.conformance, report.feasibility) == ([], "holds", "proven")
    assert 1 <= report.worst["theorem_lead"] < 1.2
    assert report.reason.id == "learners.proven_splits"
    surer = options.model_copy(update={"delta": 1e-9})
    report = LEARNER.audit(surer, features, state, history, groups)
    assert (report.conformance, report.feasibility) == ("violated", "violated")
    assert "audits.lead" in findings(report)


def test_ties_are_proven_to_be_ties_and_count_in_no_lead() -> None:
    options, features, state, groups, history = by_the_theorem(22_000, 0.03, delta=0.5, tie_threshold=0.2)
    assert state["split_reason"].tolist() == [0, 1, 1]
    report = LEARNER.audit(options, features, state, history, groups)
    assert (report.failures, report.conformance, report.feasibility) == ([], "holds", "proven")
    assert report.reason.id == "learners.proven_ties"
    assert report.reason.parameters["lack"] == 0.4
    assert message("audits.measured_splits", splits="1 split", ties=2) in report.reason
    assert 1 <= report.worst["theorem_lead"] == pytest.approx(report.worst["lead"])
    forged = {**state, "split_reason": np.array([0, 0, 1])}
    report = LEARNER.audit(options, features, forged, history, groups)
    assert (report.conformance, report.feasibility) == ("violated", "violated")


def test_a_tree_without_splits_has_nothing_to_prove() -> None:
    options, features, state, groups, history = by_the_theorem(500, 0.0, delta=0.1)
    report = LEARNER.audit(options, features, state, history, groups)
    assert (report.feasibility, report.worst) == ("proven", {})
    assert report.reason.endswith(message("audits.no_split"))


@pytest.mark.parametrize(
    ("settings", "reason", "limit"),
    [
        ({"delta": "1/t"}, "falling_delta", None),
        ({"tie_threshold": 0.25}, "ties", 0.5),
        ({"tie_threshold": 0.25, "criterion": "kearns_mansour"}, "ties", 0.5),
        ({"tie_threshold": 0.1735, "criterion": "entropy"}, "ties", 0.347),
        ({"max_bins": 1025}, "many_bins", None),
        ({"drift_period": 200}, "restarts", None),
    ],
)
def test_what_is_not_promised(settings: dict[str, Any], reason: str, limit: float | None) -> None:
    promised = {"confidence": "theorem", "rival": "split"}
    less = {"tie_threshold": 0.001, "max_bins": 1}  # below their limits they are promised
    below = {name: value - less[name] if name in less else value for name, value in settings.items()}
    refused = LEARNER.Options(**promised, **settings).promise()
    assert not refused.promised
    assert refused.reason.id == f"learners.{reason}"
    assert refused.reason.parameters.get("limit") == pytest.approx(limit, abs=1e-3)
    assert LEARNER.Options(**promised, **below).promise().promised == bool(less.keys() & settings.keys())
