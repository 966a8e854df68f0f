"""The audit of confidence trees holds on sound states of every rule, and finds each kind of damage."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from raydt.examples.updates import DELETE, INSERT, Features, History, UpdateBatch
from raydt.learners.confidence_tree.learner import LEARNER
from raydt.messages import message
from raydt.sessions.session import InProcessSession
from tests.refusals import findings


def by_the_theorem(
    n: int, noise: float, gone: tuple[int, ...] = (), **settings: Any
) -> tuple[Any, Features, dict[str, Any], Any, History]:
    """Options, features, state, groups and history of a tree on two bits, the first of which is the label.

    Rows that are ``gone`` are deleted in the end.
    """
    rng = np.random.default_rng(1)
    X = rng.integers(0, 2, (n, 2)).astype(float)
    options = LEARNER.Options(confidence="theorem", rival="split", **settings)
    features = Features(("a", "b"), (False, False), 2)
    session = InProcessSession(LEARNER, options, features, 2)
    y, key = (X[:, 0] != (rng.random(n) < noise)).astype(np.int32), np.arange(n)
    op = np.array([INSERT] * n + [DELETE] * len(gone), np.int8)
    session.apply(UpdateBatch(0, op, np.append(key, gone).astype(np.int64), X, y, 2, np.arange(len(op)), 10))
    died = np.full(n, np.iinfo(np.int64).max)
    died[[*gone]] = n + np.arange(len(gone))
    return options, features, *session.state(), History(key, X, y, key, died, 10)


def test_another_past_is_found() -> None:
    """A row that was counted, and is gone, has another label; and one was never there."""
    options, features, state, groups, h = by_the_theorem(6000, 0.0, (20,), delta=0.1)
    y, kept = h.y.copy(), np.delete(np.arange(len(h.y)), 20)
    y[20] = 1 - y[20]
    less = History(h.id[kept], h.X[kept], h.y[kept], h.inserted[kept], h.deleted[kept], h.warmup)
    for history, wrong in ((h, set()), (replace(h, y=y), {"own"}), (less, {"m"})):
        report = LEARNER.audit(options, features, state, history, groups)
        assert {f"audits.record:{name}" for name in wrong} <= findings(report)
        assert report.ok == (not wrong)


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
