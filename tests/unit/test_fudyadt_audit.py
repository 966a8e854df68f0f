"""The audit of FuDyADT passes what the twin makes, and finds every single thing that is wrong with it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raydt.audits.recorded_tree import AuditReport
from raydt.examples.updates import DELETE, INSERT, UPDATE, Features, History, UpdateBatch
from raydt.learners.base import auto_epsilon, epsilon_bound
from raydt.learners.fudyadt.audit import audit
from raydt.learners.fudyadt.options import FuDyADTOptions
from tests.oracles.feasibility import places, violations
from tests.oracles.fudyadt import (
    TO_LEFT,
    TO_RIGHT,
    UNDECIDED,
    Example,
    FudyadtTwin,
    Node,
    Split,
    twin_with,
)
from tests.refusals import findings
from tests.strategies import Stream, fudyadt_options, streams
from tests.volume import examples

CATEGORICAL = (False, True, False)
FEATURES = Features(("a", "b", "c"), CATEGORICAL)
OPTIONS: dict[str, Any] = {"epsilon": 0.25, "alpha": 0.0, "beta": 0.0, "max_depth": None, "min_samples_split": 2}
CERTIFIED: dict[str, Any] = {"alpha": 0.1, "beta": 0.2}
PROMISED: dict[str, Any] = {**OPTIONS, "epsilon": auto_epsilon(0.5, 0.5, 2), "alpha": 0.5, "beta": 0.5}
WARMUP = 60


def batch(n: int = 400, seed: int = 10) -> UpdateBatch:
    """A stream whose label depends on all three features, with every kind of change after the warm-up."""
    rng = np.random.default_rng(seed)
    live: list[int] = []
    op, key, X, y = [], [], [], []
    for i in range(n):
        kind = INSERT if i < n // 2 else int(rng.choice([INSERT, DELETE, UPDATE], p=[0.35, 0.45, 0.2]))
        x = [rng.integers(12) / 4, rng.integers(4), rng.integers(40) / 8]
        label = int(x[0] > 1.5) + int(x[1] == 2 and x[2] > 2.0) if rng.random() < 0.9 else int(rng.integers(3))
        chosen = i if kind == INSERT else live[int(rng.integers(len(live)))]
        live.append(chosen) if kind == INSERT else kind == DELETE and live.remove(chosen)
        op.append(kind)
        key.append(chosen)
        if kind != DELETE:
            X.append(x)
            y.append(label)
    return UpdateBatch(
        0,
        np.array(op, np.int8),
        np.array(key, np.int64),
        np.array(X, np.float64),
        np.array(y, np.int32),
        3,
        np.full(n, -1),
        warmup=WARMUP,
    )


def run(twin: FudyadtTwin, updates: UpdateBatch | None = None) -> FudyadtTwin:
    assert not twin.process(updates or batch()).refused
    return twin


def twin_for(options: dict[str, Any], kind: type[FudyadtTwin] = FudyadtTwin) -> FudyadtTwin:
    twin = kind(CATEGORICAL, epsilon=0.0)
    twin.__dict__.update(twin_with(CATEGORICAL, options).__dict__)
    return twin


def audited(twin: FudyadtTwin, options: dict[str, Any], history: History | None = None) -> AuditReport:
    return audit(FuDyADTOptions(**options), FEATURES, twin.state(), history or twin.history())


# ---------------------------------------------------------------------- what is right passes


def test_epsilon_at_the_bound_is_not_promised() -> None:
    options = {**PROMISED, "epsilon": float(epsilon_bound(0.5, 0.5, 2)) + 1e-9}
    report = audited(run(twin_for(options)), options)
    assert (report.conformance, report.feasibility) == ("holds", "not_promised")
    assert report.reason.id == "learners.large_epsilon"
    assert round(report.reason.parameters["bound"], 7) == 0.0769231


@examples(120)
@given(st.booleans().flatmap(lambda lacks: streams(missing=lacks)), fudyadt_options())
def test_differential_verdicts_and_measures_equal_brute_force(stream: Stream, options: dict[str, Any]) -> None:
    twin = twin_with(stream.categorical, options)
    for updates in stream.batches([len(stream)]):
        twin.process(updates)
    report = audit(FuDyADTOptions(**options), stream.features, twin.state(), twin.history())
    assert (report.conformance, report.failures) == ("holds", [])
    gaps = [place.best - place.own for place in places(twin) if not place.node.is_leaf]
    assert report.worst["gap"] == pytest.approx(float(max(gaps, default=0)), abs=1e-12)
    if report.feasibility != "not_promised":
        assert violations(twin, options["alpha"], options["beta"]) == []
        assert report.feasibility == "proven"


# ---------------------------------------------------------------------- whatever is wrong is found


class LastOfEqual(FudyadtTwin):
    """Breaks ties of splits the wrong way."""

    def best_split(self, examples: list[Example]) -> Split | None:
        best = super().best_split(examples)
        if best is None:
            return None
        top = self.gain_key(examples, best)
        return [split for split in self.candidates(examples) if self.gain_key(examples, split) == top][-1]

    def gain_key(self, examples: list[Example], split: Split) -> Any:
        left = self.counts([e for e in examples if self.is_left(split, e.x)])
        total = self.counts(examples)
        n, n_left = len(examples), sum(left)
        squares = sum((a * n - n_left * b) ** 2 for a, b in zip(left, total, strict=True))
        return squares / (n_left * (n - n_left))


class FirstSplit(FudyadtTwin):
    """Takes the first split it sees."""

    def best_split(self, examples: list[Example]) -> Split | None:
        return next(self.candidates(examples), None)


class DeafToDeletions(FudyadtTwin):
    """Does not count deletions as updates."""

    def update(self, example: Example, insert: bool, time: int) -> None:
        if insert:
            super().update(example, insert, time)
        else:
            self.path(example.x)[-1].examples.remove(example)


class MissingRight(FudyadtTwin):
    """Tries missing numbers on the right only."""

    def candidates_of(self, j: int, examples: list[Example]) -> Iterator[Split]:
        return (split for split in super().candidates_of(j, examples) if split[2] != TO_LEFT)


class FewerExamples(FudyadtTwin):
    """Decides for the side of fewer examples."""

    def side_of_missing(self, v: Node) -> int:
        return v.missing or TO_LEFT + TO_RIGHT - super().side_of_missing(v)


def with_holes(updates: UpdateBatch, from_row: int) -> UpdateBatch:
    """The same, but that later rows lack numbers: of class 1 more often."""
    X, draw = updates.X.copy(), np.random.default_rng(5)
    lost = draw.random(X.shape) < np.where(updates.y == 1, 0.5, 0.1)[:, None]
    lost[:from_row] = False
    X[lost & ~np.array(CATEGORICAL)] = np.nan
    return replace(updates, X=X)


@pytest.mark.parametrize("options", [OPTIONS, CERTIFIED])
@pytest.mark.parametrize(
    ("kind", "from_row"), [(FudyadtTwin, 0), (FudyadtTwin, 280), (MissingRight, 0), (FewerExamples, 280)]
)
def test_sides_of_missing_numbers_are_checked(kind: type[FudyadtTwin], options: dict[str, Any], from_row: int) -> None:
    twin = run(twin_for(options, kind), with_holes(batch(), from_row))
    report = audited(twin, options)
    if kind is FudyadtTwin:
        assert (report.conformance, report.failures) == ("holds", [])
        assert {v.missing for v in twin.preorder(twin.root)} >= {UNDECIDED, TO_LEFT, TO_RIGHT}
    else:
        assert report.conformance == "violated"
        assert {"audits.node_value:missing", "audits.build_best"} & set(findings(report))


WRONG_ALGORITHMS: list[tuple[type[FudyadtTwin], str]] = [
    (LastOfEqual, "audits.build_best"),
    (FirstSplit, "audits.build_best"),
    (DeafToDeletions, "audits.node_value:c"),
]


@pytest.mark.parametrize(("kind", "finding"), WRONG_ALGORITHMS)
def test_a_wrong_algorithm_is_found(kind: type[FudyadtTwin], finding: str) -> None:
    report = audited(run(twin_for(OPTIONS, kind)), OPTIONS)
    assert report.conformance == "violated"
    assert finding in findings(report)


class InsertionsCounted(FudyadtTwin):
    """Charges a certificate for insertions, too."""

    def gone(self, v: Node) -> int:
        return v.c


class LaterRowsCounted(FudyadtTwin):
    """Charges a certificate for the deletion of a row that came after the BUILD."""

    def update(self, example: Example, insert: bool, time: int) -> None:
        path = self.path(example.x)
        super().update(example, insert, time)
        for v in path:
            v.__dict__.setdefault("deletions", 0)
            v.__dict__["deletions"] += not insert

    def gone(self, v: Node) -> int:
        return int(v.__dict__.get("deletions", 0))


class StaleMass(FudyadtTwin):
    """Keeps m0 when a split is made where one was made before."""

    def build(self, examples: list[Example], depth: int, time: int) -> Node:
        node = super().build(examples, depth, time)
        if depth == 0:
            node.m0 = self.__dict__.setdefault("first", node.m0)
        return node


class UncheckedLeaves(FudyadtTwin):
    """Never looks at a leaf again."""

    def leaf_is_due(self, v: Node, depth: int) -> bool:
        return False


class UncheckedSplits(FudyadtTwin):
    """Never looks at a certificate."""

    def runs_out(self, v: Node) -> bool:
        return False


class UncheckedSizes(FudyadtTwin):
    """Keeps the splits of nodes that became too small or pure."""

    def must_be_leaf(self, v: Node) -> bool:
        return False


WRONG_CERTIFICATES: list[tuple[type[FudyadtTwin], str]] = [
    (InsertionsCounted, "audits.node_value:gone"),
    (LaterRowsCounted, "audits.node_value:gone"),
    (StaleMass, "audits.node_value:m0"),
    (UncheckedLeaves, "audits.overdue"),
    (UncheckedSplits, "audits.certificate"),
    (UncheckedSizes, "audits.due_leaf"),
]


@pytest.mark.parametrize(("kind", "finding"), WRONG_CERTIFICATES)
def test_a_wrong_certificate_is_found(kind: type[FudyadtTwin], finding: str) -> None:
    updates = 300 if kind is StaleMass else 1000  # it rebuilds its root at every update, from some time on
    report = audited(run(twin_for(CERTIFIED, kind), batch(updates)), CERTIFIED)
    assert report.conformance == "violated"
    assert finding in findings(report)


def test_certificates_are_proven_and_used() -> None:
    report = audited(run(twin_for(CERTIFIED), batch(1000)), CERTIFIED)
    assert (report.conformance, report.feasibility, report.failures) == ("holds", "proven", [])
    assert report.reason.id == "audits.certified"
    assert report.reason.parameters["nodes"].startswith("all")
    assert 0 < report.worst["gap"] <= 0.2
    assert 0.5 < report.worst["slack"] <= 1


# ---------------------------------------------------------------------- a promise that is not kept


def test_a_broken_promise_is_a_violation() -> None:
    """Bad splits under an epsilon that promises good ones."""
    report = audited(run(twin_for(PROMISED, FirstSplit)), {**PROMISED, "beta": 0.1, "epsilon": 0.01})
    assert report.feasibility == "violated"
    assert report.reason.id == "audits.gain_gap"
    assert not report.ok


def test_leaves_that_should_be_split_violate() -> None:
    lazy = run(twin_for({**PROMISED, "max_depth": 1}))
    report = audited(lazy, {**PROMISED, "alpha": 0.3, "beta": 0.01, "epsilon": auto_epsilon(0.3, 0.01, 2)})
    assert report.feasibility == "violated"
    assert "audits.leaf_gain" in findings(report)
    assert report.worst["leaf_gini"] >= 0.3
