"""The audit of the online GBDT passes what the twin makes, and finds every single thing that is wrong with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raydt.audits.audit_report import AuditReport
from raydt.examples.features import Features
from raydt.examples.history import History
from raydt.examples.updates import CARRIES_ROW, DELETE, INSERT, UPDATE, UpdateBatch
from raydt.learners.gbdt.audit import audit, largest_lack
from raydt.learners.gbdt.options import GBDTOptions
from raydt.learners.gbdt.recompute import RecomputedTree
from tests.oracles.online_gbdt_stream import OnlineGBDTTwin
from tests.strategies import Stream, gbdt_options, gbdt_streams
from tests.volume import examples

CATEGORICAL = (False, True, False)
FEATURES = Features(("a", "b", "c"), CATEGORICAL)
WARMUP = 60
OBJECTIVES = ("auto", "multiclass", "squared_error")
LIVE = np.iinfo(np.int64).max


def options(objective: str, **others: Any) -> GBDTOptions:
    settings = {"max_iter": 4, "max_leaf_nodes": 5, "max_bins": 8, "candidate_fraction": 0.5, "update_every": 20}
    settings["retrain"] = "never"
    return GBDTOptions(**{**settings, "objective": objective, **others})


def updates(objective: str, n: int = 117, seed: int = 3) -> UpdateBatch:
    """A stream whose label depends on all three features, with NaN, and every kind of change after the warm-up."""
    rng = np.random.default_rng(seed)
    live: list[int] = []
    op, key, X, y = [], [], [], []
    for i in range(n):
        kind = INSERT if i < WARMUP else int(rng.choice([INSERT, DELETE, UPDATE]))
        x = [rng.integers(12) / 4 if rng.random() < 0.9 else np.nan, rng.integers(-1, 4), rng.integers(40) / 8]
        label = int(x[0] > 1.5) + int(x[1] == 2 and x[2] > 2.0)
        chosen = i if kind == INSERT else live[int(rng.integers(len(live)))]
        live.append(chosen) if kind == INSERT else kind == DELETE and live.remove(chosen)
        op.append(kind)
        key.append(chosen)
        if CARRIES_ROW[kind]:
            X.append(x)
            y.append(min(label, 1) if objective == "auto" else label)
    ops = np.array(op, np.int8)
    targets = np.array(y) * 1.7 - 0.3 if objective == "squared_error" else np.array(y, np.int32)
    return UpdateBatch(0, ops, np.array(key), np.array(X, np.float64), targets, 3, np.full(n, -1), warmup=WARMUP)


@cache
def sound(objective: str = "multiclass") -> OnlineGBDTTwin:
    twin = OnlineGBDTTwin(list(CATEGORICAL), options(objective))
    assert twin.process(updates(objective))[2] == []
    assert twin.inserts
    assert twin.deletes  # some wait
    return twin


def audited(
    state: dict[str, Any], history: History | None = None, objective: str = "multiclass", **o: Any
) -> AuditReport:
    return audit(options(objective, **o), FEATURES, state, history or sound(objective).history())


# ---------------------------------------------------------------------- what is right passes


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_sound_model(objective: str) -> None:
    twin = sound(objective)
    report = audited(twin.state(), objective=objective)
    assert (report.conformance, report.feasibility, report.failures) == ("holds", "proven", [])
    assert report.ok
    assert "within derivative_tolerance 0.3 of the present one" in report.reason
    assert report.checked["trees"] == len(twin.model.trees)
    assert report.checked["splits"] > 10  # else the mutations below find nothing to break
    assert report.checked["held"] == len(twin.model.rows)
    assert report.checked["live"] == len(twin.live())
    assert (report.worst["rank"], report.worst["lack"]) == pytest.approx(measured(twin))


def test_old_derivatives_are_measured() -> None:
    twin = OnlineGBDTTwin(list(CATEGORICAL), options("multiclass", derivatives="never"))
    twin.process(updates("multiclass"))
    model = twin.model
    old = [
        abs(row.ledger[m, k] - entry)
        for row in model.rows.values()
        for m in range(4)
        for k, entry in enumerate(model.fresh(row, m))
    ]
    report = audited(twin.state(), twin.history(), derivatives="never")
    assert report.failures == []
    assert report.worst["stale"] == max(old) / 65536 > 0
    assert report.feasibility == "not_promised"
    for kind in ("bounded", "changed_leaves"):
        report = audited(twin.state(), twin.history(), derivatives=kind, derivative_tolerance=0.01)
        assert (report.conformance, report.feasibility) == ("holds", "violated")
        assert "farther from the present ones" in report.reason


def measured(twin: OnlineGBDTTwin) -> tuple[int, float]:
    """The worst rank of a split, and the largest share of the best gain that one lacks."""
    model, rank, lack = twin.model, 0, 0.0
    for place, root in model.trees.items():
        for v in root.preorder():
            if not v.is_leaf:
                gains = model.gains(*place, model.rows_below(v))
                own = gains[v.feature, v.cut]
                rank = max(rank, 1 + sum(gain > own for gain in gains.values()))
                lack = max(
                    lack, (max(gains.values()) - own) / max(gains.values()) if max(gains.values()) > own else 0.0
                )
    return rank, lack


@examples(60)
@given(st.data())
def test_every_model_of_the_twin_is_sound(data: st.DataObject) -> None:
    regression = data.draw(st.booleans())
    stream: Stream = data.draw(gbdt_streams(regression=regression, max_events=15))
    chosen = GBDTOptions(**data.draw(gbdt_options(*(("squared_error",) if regression else ("auto", "multiclass")))))
    twin = OnlineGBDTTwin(list(stream.categorical), chosen)
    for batch in stream.batches([len(stream)]):
        twin.process(batch)
    report = audit(chosen, stream.features, twin.state(), twin.history())
    assert report.failures == []
    assert (report.worst["rank"], report.worst["lack"]) == pytest.approx(measured(twin))


def test_before_the_warm_up_has_ended() -> None:
    twin = OnlineGBDTTwin(list(CATEGORICAL), options("auto"))
    twin.process(replace(updates("auto"), warmup=1000, op=np.zeros(117, np.int8), id=np.arange(117), **rows_of_all()))
    report = audited(twin.state(), twin.history(), "auto")
    assert (report.conformance, report.checked["held"], report.checked["live"]) == ("holds", 0, 117)


def rows_of_all() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {"X": rng.normal(size=(117, 3)), "y": rng.integers(0, 2, 117).astype(np.int32)}


def test_a_model_that_lost_all_its_rows() -> None:
    twin = OnlineGBDTTwin(list(CATEGORICAL), options("auto", l2_regularization=0.0, update_every=1))
    batch = updates("auto", WARMUP)
    twin.process(batch)
    gone = replace(batch, start=WARMUP, op=np.full(WARMUP, DELETE, np.int8), X=batch.X[:0], y=batch.y[:0])
    assert twin.process(gone)[2] == []
    report = audited(twin.state(), twin.history(), "auto", l2_regularization=0.0)
    assert (report.failures, report.checked["held"]) == ([], 0)


def test_without_the_past_bins_are_taken_as_recorded() -> None:
    twin, state = sound(), sound().state()
    full = twin.history()
    place = {int(born): i for i, born in enumerate(full.inserted)}
    at = [place[int(born)] for born in state["born"]]
    now = History(state["id"], full.X[at], state["y"], state["born"], np.full(len(at), LIVE), complete=False)
    report = audited(state, now)
    assert (report.failures, report.conformance) == ([], "holds")
    assert "bins were not checked" in report.reason
    state["node_G"][3] += 1
    assert audited(state, now).conformance == "violated"


# ---------------------------------------------------------------------- what is wrong is found


def a_leaf(state: dict[str, Any]) -> int:
    return int(np.flatnonzero((state["node_feature"] < 0) & (state["node_H"] > 0))[-1])


def a_split(state: dict[str, Any]) -> int:
    return int(np.flatnonzero(state["node_feature"] >= 0)[-1])


def add(name: str, where: Callable[[dict[str, Any]], Any], by: float) -> Callable[[dict[str, Any]], None]:
    def change(state: dict[str, Any]) -> None:
        state[name][where(state)] += by

    return change


def held(state: dict[str, Any]) -> int:
    return int(np.flatnonzero(state["pending"] == 0)[5])


def next_float(state: dict[str, Any]) -> None:
    v = a_leaf(state)
    state["node_value"][v] = np.nextafter(state["node_value"][v], np.inf)


def other_cut(state: dict[str, Any]) -> None:
    v = int(np.flatnonzero(state["node_feature"] == 0)[0])
    state["node_cut"][v] += 1 if state["node_cut"][v] == 0 else -1


def drop_row(state: dict[str, Any]) -> None:
    keep = np.arange(len(state["id"])) != held(state)
    for name in ("id", "y", "born", "pending", "leaf", "ledger"):
        state[name] = state[name][keep]


def twice(state: dict[str, Any]) -> None:
    again = [*range(len(state["id"])), held(state)]
    for name in ("id", "y", "born", "pending", "leaf", "ledger"):
        state[name] = state[name][again]


def add_and_take(state: dict[str, Any]) -> None:
    """Ledger and sums of the first tree, changed so that they fit one another."""
    row = held(state)
    old = int(state["ledger"][row, 0])
    new = old - 7 if old > 60000 else old + 7
    positive = 65536 * int(state["y"][row] == 0)
    v, path = 0, [0]
    while v != state["leaf"][row, 0]:
        right = int(state["node_right"][v])
        v = right if state["leaf"][row, 0] >= right else int(state["node_left"][v])
        path.append(v)
    for entry, sign in ((old, -1), (new, 1)):
        g = abs(positive - entry)
        state["node_G"][path] += sign * (positive - entry)
        state["node_H"][path] += sign * g * (65536 - g)
    state["ledger"][row, 0] = new


def swap_categories(state: dict[str, Any]) -> None:
    ranks = state["bins_ranks"][state["bins_starts"][1] : state["bins_starts"][2]]
    ranks[:] = ranks[::-1].copy()


TAMPERINGS: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "sum of a leaf": (add("node_G", a_leaf, 1), "sums differ"),
    "sum of a split": (add("node_H", a_split, -1), "sums differ"),
    "leaf of a row": (add("leaf", lambda s: (held(s), -1), 1), "not the one it routes to"),
    "ledger entry": (add("ledger", lambda s: (held(s), -1), 1), "sums differ"),
    "ledger entry and sums": (add_and_take, "not that of an empty model"),
    "ledger entry out of range": (lambda s: s["ledger"].__setitem__((held(s), 2), 0), "out of range"),
    "cut": (other_cut, "routes to"),
    "cut beyond the last": (add("node_cut", a_split, 100), "malformed"),
    "feature that is none": (lambda s: s["node_feature"].__setitem__(a_split(s), 3), "malformed"),
    "value": (next_float, "a value is not"),
    "value of a split": (add("node_value", a_split, 1e-300), "a value is not"),
    "child": (add("node_right", a_split, 1), "malformed"),
    "record of a split": (add("node_tried_h", a_split, 2), "could not grow"),
    "boundary": (add("bins_values", lambda s: 0, 0.25), "bins of feature 0"),
    "category": (swap_categories, "bins of feature 1"),
    "NaN that was not seen": (lambda s: s["bins_seen"].__setitem__(0, 0), "bins of feature 0"),
    "part of the bins": (add("bins_starts", lambda s: -1, 1), "malformed"),
    "number of nodes": (add("tree_nodes", lambda s: 0, 1), "malformed"),
    "missing row": (drop_row, "not in the model"),
    "row held twice": (twice, "occur twice"),
    "row nobody knows": (add("born", held, 5000), "not in the history"),
    "id": (add("id", held, 5000), "another id"),
    "label": (lambda s: s["y"].__setitem__(held(s), (s["y"][held(s)] + 1) % 3), "another label"),
    "waiting deletion that is overdue": (add("warmup", lambda s: 0, -3), "wait since an earlier D'"),
    "deleted row that is said to live": (lambda s: s["pending"].__setitem__(s["pending"] == 2, 0), "live in the model"),
    "live row that is said to be deleted": (lambda s: s["pending"].__setitem__(held(s), 2), "deleted in the model"),
    "trees before the end of the warm-up": (add("classes", lambda s: 0, -4), "before the warm-up"),
    "number of classes": (add("classes", lambda s: 0, 2), "malformed"),
    "scale": (add("exponent", lambda s: 0, 1), "begin at"),
}  # fmt: skip


@pytest.mark.parametrize("name", TAMPERINGS)
def test_tampering_is_found(name: str) -> None:
    tamper, expected = TAMPERINGS[name]
    state = sound().state()
    tamper(state)
    report = audited(state)
    assert (report.conformance, report.ok) == ("violated", False)
    assert expected in "\n".join(report.failures)


def test_a_row_of_the_history_that_was_deleted_long_ago_is_found_in_the_model() -> None:
    twin = sound()
    full = twin.history()
    row = held(twin.state())
    at = np.flatnonzero(full.inserted == twin.state()["born"][row])
    deleted = full.deleted.copy()
    deleted[at] = WARMUP + 1
    report = audited(twin.state(), replace(full, deleted=deleted))
    assert "are deleted in the history, and live in the model" in report.failures[0]


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"robustness_tolerance": 0.0}, "ranks below 1"),
        ({"max_leaf_nodes": 3}, "more than 3"),
        ({"learning_rate": 0.2}, "a value is not"),
        ({"l2_regularization": 0.5}, "a value is not"),
        ({"max_bins": 6}, "bins of feature"),
        ({"random_state": 1}, "empty"),
    ],
    ids=str,
)
def test_a_model_of_other_options_is_found(changed: dict[str, Any], expected: str) -> None:
    objective = "multiclass"
    twin = OnlineGBDTTwin(list(CATEGORICAL), options(objective, robustness_tolerance=1.0))
    twin.process(updates(objective))
    assert audited(twin.state(), twin.history(), robustness_tolerance=1.0).ok
    report = audited(twin.state(), twin.history(), **{"robustness_tolerance": 1.0, **changed})
    assert report.conformance == "violated"
    assert expected in "\n".join(report.failures)


def test_another_origin_of_a_regression_is_found() -> None:
    state = sound("squared_error").state()
    state["origin"] = np.nextafter(state["origin"], np.inf)
    assert "begin at" in audited(state, objective="squared_error").failures[0]


def test_where_no_split_gains_anything_none_lacks_a_share_of_it() -> None:
    """A gain of 0 may be computed as slightly less, and another split of the node then beats it."""
    none, zero = np.zeros(2, np.int64), np.zeros(2)
    tree = RecomputedTree(none, none, none, np.array([1, 0]), np.array([-1e-17, 0.0]), zero)
    assert largest_lack(tree) == 0.0
    assert largest_lack(replace(tree, gain=np.array([1.5, 0.0]), best=np.array([2.0, 0.0]))) == 0.25
