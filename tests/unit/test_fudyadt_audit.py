"""The audit of FuDyADT passes what the twin makes, and finds every single thing that is wrong with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from raydt.audits.audit_report import AuditReport
from raydt.examples.features import Features
from raydt.examples.history import History
from raydt.examples.updates import DELETE, INSERT, UPDATE, UpdateBatch
from raydt.learners import learners
from raydt.learners.fudyadt import audit as audit_module
from raydt.learners.fudyadt.audit import audit
from raydt.learners.fudyadt.options import FuDyADTOptions
from raydt.learners.fully_dynamic import auto_epsilon, epsilon_bound
from tests.oracles.feasibility import places, violations
from tests.oracles.fudyadt import Example, FudyadtTwin, Node, twin_with
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


@cache
def sound() -> FudyadtTwin:
    return run(twin_for(OPTIONS))


def audited(twin: FudyadtTwin, options: dict[str, Any], history: History | None = None) -> AuditReport:
    return audit(FuDyADTOptions(**options), FEATURES, twin.state(), history or twin.history())


# ---------------------------------------------------------------------- what is right passes


def test_a_sound_tree_outside_the_theorem() -> None:
    report = audited(sound(), OPTIONS)
    assert (report.conformance, report.feasibility, report.failures) == ("holds", "not_promised", [])
    assert "alpha is 0" in report.reason
    assert report.ok
    nodes = list(places(sound()))
    assert len(nodes) > 20  # else the mutations below find nothing to break
    assert report.checked["nodes"] == report.checked["counters"] == len(nodes)
    assert report.checked["splits"] == report.checked["splits_replayed"] > 10
    gaps = [place.best - place.own for place in nodes if not place.node.is_leaf]
    assert report.worst["gap"] == pytest.approx(float(max(gaps)), abs=1e-12)
    assert report.worst["gap"] > 0
    assert 0 < report.worst["change"] <= 0.25


def test_a_tree_within_the_theorem_is_proven() -> None:
    report = audited(run(twin_for(PROMISED)), PROMISED)
    assert (report.conformance, report.feasibility, report.failures) == ("holds", "proven", [])


def test_epsilon_at_the_bound_is_not_promised() -> None:
    options = {**PROMISED, "epsilon": float(epsilon_bound(0.5, 0.5, 2)) + 1e-9}
    report = audited(run(twin_for(options)), options)
    assert (report.conformance, report.feasibility) == ("holds", "not_promised")
    assert "not below 0.0769231" in report.reason


@examples(120)
@given(streams(), fudyadt_options())
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


def test_a_warm_up_that_goes_on() -> None:
    twin = twin_for(PROMISED)
    twin.process(replace(batch(), warmup=501))
    report = audited(twin, PROMISED)
    assert (report.conformance, report.feasibility) == ("holds", "not_promised")
    twin.finish()
    assert audited(twin, PROMISED).feasibility == "proven"


def test_an_empty_model() -> None:
    report = audited(twin_for(PROMISED), PROMISED)
    assert (report.conformance, report.feasibility) == ("holds", "proven")


def test_without_the_past_only_the_present_is_checked() -> None:
    full = sound().history()
    live = full.deleted == np.iinfo(np.int64).max
    now = History(full.id[live], full.X[live], full.y[live], full.inserted[live], full.deleted[live], complete=False)
    report = audited(sound(), OPTIONS, now)
    assert (report.conformance, report.checked["counters"], report.checked["splits_replayed"]) == ("holds", 0, 0)
    assert "were not checked" in report.reason
    state = sound().state()
    state["counts"][3, 0] += 1
    assert audit(FuDyADTOptions(**OPTIONS), FEATURES, state, now).conformance == "violated"


def test_build_time_splits_are_sampled_above_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_module, "REPLAY_CELLS", 600)
    first, again = audited(sound(), OPTIONS), audited(sound(), OPTIONS)
    assert first == again
    assert 0 < first.checked["splits_replayed"] < first.checked["splits"]
    assert first.conformance == "holds"


# ---------------------------------------------------------------------- whatever is wrong is found

State = dict[str, Any]


def inner(state: State, at: int = 1) -> int:
    """Some internal node."""
    return int(np.flatnonzero(state["feature"] >= 0)[at])


def counter(name: str, by: int, at: int = 1) -> Callable[[State], None]:
    def mutate(state: State) -> None:
        state[name][inner(state, at)] += by

    return mutate


def shift_threshold(state: State) -> None:
    """Routes every live and former example as before, but is not the midpoint."""
    v = int(np.flatnonzero(state["feature"] == 0)[0])
    state["threshold"][v] = np.nextafter(state["threshold"][v], np.inf)


def swap_thresholds(state: State) -> None:
    a, b = np.flatnonzero(state["feature"] == 2)[:2]
    state["threshold"][[a, b]] = state["threshold"][[b, a]]


def move_to_sibling(state: State) -> None:
    state["leaf"][0] = next(v for v in np.flatnonzero(state["feature"] < 0) if v != state["leaf"][0])


def relabel(state: State) -> None:
    state["y"][5] = (state["y"][5] + 1) % 3


def lose_example(state: State) -> None:
    for name in ("id", "y", "born", "leaf"):
        state[name] = state[name][1:]


def keep_deleted(state: State) -> None:
    for name in ("id", "y", "born", "leaf"):
        state[name] = np.append(state[name], state[name][:1])
    state["id"][-1] = 10**6


def forge_birth(state: State) -> None:
    state["born"][7] -= 1


def transfer_count(state: State) -> None:
    """The sizes stay right, the label may change."""
    v = int(np.flatnonzero((state["feature"] < 0) & (state["counts"][:, 0] > 0))[0])
    state["counts"][v] += [-1, 1, 0]


def other_feature(state: State) -> None:
    v = int(np.flatnonzero(state["feature"] == 0)[0])
    state["feature"][v] = 2


def stale_built(state: State) -> None:
    """A rebuilt subtree that claims to be of an update that passed elsewhere."""
    state["built"][inner(state)] -= 2


def other_half(state: State) -> None:
    """Nodes built by the deletion half of an update claim the insertion half."""
    deletion_halves = (state["built"] % 2 == 0) & (state["built"] > 0)
    assert deletion_halves.any()
    state["built"][deletion_halves] += 1


def future_built(state: State) -> None:
    state["built"][inner(state)] = 2 * 10**6 + 1


def children_swapped(state: State) -> None:
    v = inner(state)
    state["left"][v], state["right"][v] = state["right"][v], state["left"][v]


def no_such_feature(state: State) -> None:
    state["feature"][inner(state)] = 3


def cut_off(state: State) -> None:
    """The root becomes a leaf; its subtree hangs in the air."""
    state["feature"][0] = state["left"][0] = state["right"][0] = -1


def half_cut_off(state: State) -> None:
    state["right"][0] = state["left"][0]


MUTATIONS: list[tuple[Callable[[State], None], str]] = [
    (counter("c", 1), "c differs"),
    (counter("c", -1), "c differs"),
    (counter("c", 10**6, 0), "a rebuild is due"),
    (counter("s", 1), "s differs"),
    (counter("s", -1, 3), "s differs"),
    (counter("s", 10**6), "Lemma 3.4"),
    (shift_threshold, "not the best one at BUILD"),
    (swap_thresholds, "leaf of"),
    (other_feature, "not the best one at BUILD"),
    (move_to_sibling, "leaf of 1 examples"),
    (relabel, "label of 1 examples"),
    (lose_example, "1 are missing"),
    (keep_deleted, "1 too many"),
    (forge_birth, "time of insertion of 1 examples"),
    (transfer_count, "class counts differ"),
    (stale_built, "built names an update that did not pass"),
    (other_half, "built names an update that did not pass"),
    (future_built, "differs"),
    (future_built, "a node is older than its parent"),
    (children_swapped, "malformed tree: node"),
    (no_such_feature, "malformed tree: node"),
    (cut_off, "malformed tree: the root reaches 1 of"),
    (half_cut_off, "malformed tree: node 0"),
]


@pytest.mark.parametrize(("mutate", "finding"), MUTATIONS, ids=lambda value: getattr(value, "__name__", value))
def test_a_damaged_state_is_found(mutate: Callable[[State], None], finding: str) -> None:
    state = sound().state()
    mutate(state)
    report = audit(FuDyADTOptions(**OPTIONS), FEATURES, state, sound().history())
    assert report.conformance == "violated"
    assert not report.ok
    assert any(finding in failure for failure in report.failures), report.failures


class LastOfEqual(FudyadtTwin):
    """Breaks ties of splits the wrong way."""

    def best_split(self, examples: list[Example]) -> tuple[int, float] | None:
        best = super().best_split(examples)
        if best is None:
            return None
        top = self.gain_key(examples, best)
        return [split for split in self.candidates(examples) if self.gain_key(examples, split) == top][-1]

    def gain_key(self, examples: list[Example], split: tuple[int, float]) -> Any:
        left = self.counts([e for e in examples if self.is_left(*split, e.x)])
        total = self.counts(examples)
        n, n_left = len(examples), sum(left)
        squares = sum((a * n - n_left * b) ** 2 for a, b in zip(left, total, strict=True))
        return squares / (n_left * (n - n_left))


class FirstSplit(FudyadtTwin):
    """Takes the first split it sees."""

    def best_split(self, examples: list[Example]) -> tuple[int, float] | None:
        return next(self.candidates(examples), None)


class DeafToDeletions(FudyadtTwin):
    """Does not count deletions as updates."""

    def update(self, example: Example, insert: bool, time: int) -> None:
        if insert:
            super().update(example, insert, time)
        else:
            self.path(example.x)[-1].examples.remove(example)


WRONG_ALGORITHMS: list[tuple[type[FudyadtTwin], str]] = [
    (LastOfEqual, "not the best one at BUILD"),
    (FirstSplit, "not the best one at BUILD"),
    (DeafToDeletions, "c differs"),
]


@pytest.mark.parametrize(("kind", "finding"), WRONG_ALGORITHMS)
def test_a_wrong_algorithm_is_found(kind: type[FudyadtTwin], finding: str) -> None:
    report = audited(run(twin_for(OPTIONS, kind)), OPTIONS)
    assert report.conformance == "violated"
    assert any(finding in failure for failure in report.failures), report.failures


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
    (InsertionsCounted, "gone differs"),
    (LaterRowsCounted, "gone differs"),
    (StaleMass, "m0 differs"),
    (UncheckedLeaves, "c > epsilon s at a leaf"),
    (UncheckedSplits, "a certificate has run out"),
    (UncheckedSizes, "a split of too few or pure examples"),
]


@pytest.mark.parametrize(("kind", "finding"), WRONG_CERTIFICATES)
def test_a_wrong_certificate_is_found(kind: type[FudyadtTwin], finding: str) -> None:
    updates = 300 if kind is StaleMass else 1000  # it rebuilds its root at every update, from some time on
    report = audited(run(twin_for(CERTIFIED, kind), batch(updates)), CERTIFIED)
    assert report.conformance == "violated"
    assert any(finding in failure for failure in report.failures), report.failures


def test_certificates_are_proven_and_used() -> None:
    report = audited(run(twin_for(CERTIFIED), batch(1000)), CERTIFIED)
    assert (report.conformance, report.feasibility, report.failures) == ("holds", "proven", [])
    assert report.reason.startswith("no certificate has run out, and all")
    assert 0 < report.worst["gap"] <= 0.2
    assert 0.5 < report.worst["slack"] <= 1


def test_a_state_of_the_published_schedule_is_refused_by_name() -> None:
    state = sound().state()
    groups = {0: {"X": np.zeros((len(state["id"]), 3))}}
    features = Features(("a", "b", "c"), CATEGORICAL, groups=1)
    with pytest.raises(ValueError, match="array 'm0' is missing: an earlier version wrote this state"):
        learners()["fudyadt"].check(FuDyADTOptions(), features, 3, state, groups)
    learners()["fudyadt"].check(FuDyADTOptions(schedule="published"), features, 3, state, groups)
    learners()["fudyadt"].check(FuDyADTOptions(), features, 3, state, None)  # a model that only predicts needs none


WRONG_OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"epsilon": 0.5}, "a rebuild is due"),
    ({"max_depth": 2}, "a leaf where BUILD makes a split"),
    ({"alpha": 0.5}, "a leaf where BUILD makes a split"),
    ({"min_samples_split": 9}, "a leaf where BUILD makes a split"),
]


@pytest.mark.parametrize(("change", "finding"), WRONG_OPTIONS)
def test_a_tree_of_other_options_is_found(change: dict[str, Any], finding: str) -> None:
    report = audited(run(twin_for({**OPTIONS, **change})), OPTIONS)
    assert any(finding in failure for failure in report.failures), report.failures


@pytest.mark.parametrize("change", [{"max_depth": 2}, {"alpha": 0.5}, {"min_samples_split": 9}])
def test_splits_that_the_options_forbid_are_found(change: dict[str, Any]) -> None:
    report = audited(sound(), {**OPTIONS, **change})
    assert any("a split where BUILD makes a leaf" in failure for failure in report.failures), report.failures


def test_an_update_the_model_missed_is_found() -> None:
    """An example that came and went in the source, but never reached the model."""
    full = sound().history()
    ghost = History(
        np.append(full.id, 10**6),
        np.vstack([full.X, full.X[:1]]),
        np.append(full.y, full.y[:1]),
        np.append(full.inserted, 600),
        np.append(full.deleted, 601),
        full.warmup,
    )
    report = audited(sound(), OPTIONS, ghost)
    assert any("c differs" in failure for failure in report.failures), report.failures


# ---------------------------------------------------------------------- a promise that is not kept


def test_a_broken_promise_is_a_violation() -> None:
    """Bad splits under an epsilon that promises good ones."""
    report = audited(run(twin_for(PROMISED, FirstSplit)), {**PROMISED, "beta": 0.1, "epsilon": 0.01})
    assert report.feasibility == "violated"
    assert "lacks more than beta" in report.reason
    assert not report.ok


def test_leaves_that_should_be_split_violate() -> None:
    lazy = run(twin_for({**PROMISED, "max_depth": 1}))
    report = audited(lazy, {**PROMISED, "alpha": 0.3, "beta": 0.01, "epsilon": auto_epsilon(0.3, 0.01, 2)})
    assert report.feasibility == "violated"
    assert any("gains more than beta at a leaf" in failure for failure in report.failures), report.failures
    assert report.worst["leaf_gini"] >= 0.3


def test_splits_of_too_few_examples_violate() -> None:
    report = audited(sound(), {**PROMISED, "min_samples_split": 12, "epsilon": 0.01})
    assert report.feasibility == "violated"
    assert any("a split of too few or pure examples" in failure for failure in report.failures), report.failures
