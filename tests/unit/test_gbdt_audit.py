"""The audit of the online GBDT passes what the twin makes, and finds every single thing that is wrong with it."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raydt.audits.recorded_tree import AuditReport
from raydt.examples.updates import CARRIES_ROW, DELETE, INSERT, UPDATE, Features, History, UpdateBatch
from raydt.learners.gbdt.audit import audit, largest_lack
from raydt.learners.gbdt.options import GBDTOptions
from raydt.learners.gbdt.recompute import RecomputedTree
from tests.oracles.online_gbdt_stream import OnlineGBDTTwin
from tests.refusals import findings
from tests.strategies import Stream, gbdt_options, gbdt_streams
from tests.volume import examples

CATEGORICAL = (False, True, False)
FEATURES = Features(("a", "b", "c"), CATEGORICAL)
WARMUP = 60


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
        assert report.reason.id == "audits.stale"


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


# ---------------------------------------------------------------------- what is wrong is found


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"robustness_tolerance": 0.0}, "audits.tree:split (ranks below 1)"),
        ({"max_leaf_nodes": 3}, "audits.tree_leaves"),
        ({"learning_rate": 0.2}, "audits.tree:node_value"),
        ({"l2_regularization": 0.5}, "audits.tree:node_value"),
        ({"max_bins": 6}, "audits.bins"),
        ({"random_state": 1}, "audits.tree:one-sided split"),
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
    assert expected in findings(report)


def test_where_no_split_gains_anything_none_lacks_a_share_of_it() -> None:
    """A gain of 0 may be computed as slightly less, and another split of the node then beats it."""
    none, zero = np.zeros(2, np.int64), np.zeros(2)
    tree = RecomputedTree(none, none, np.array([1, 0]), np.array([-1e-17, 0.0]), zero)
    assert largest_lack(tree) == 0.0
    assert largest_lack(replace(tree, gain=np.array([1.5, 0.0]), best=np.array([2.0, 0.0]))) == 0.25
