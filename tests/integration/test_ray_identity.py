"""One model (P1), on Ray: digest, predictions, metrics, log and statistics are those of the run in this process."""

import os
from collections import Counter
from itertools import combinations, product

import numpy as np
import pytest
from pydantic import TypeAdapter

from actors.session import RaySession
from raydt.evaluation.classification import Prequential
from raydt.examples.features import Features
from raydt.examples.updates import CARRIES_ROW, DELETE, DELETE_VALUE, INSERT, QUERY, UPDATE, UpdateBatch
from raydt.learners import learners
from raydt.learners.base import WorkPlan
from raydt.sessions.session import InProcessSession
from raydt.sources.opening import open_source
from raydt.sources.options import SourceOptions
from raydt.streams.options import StreamOptions, make_stream

pytestmark = [pytest.mark.ray, pytest.mark.nightly]

LEARNER = learners()["fudyadt"]
FEATURES = Features(tuple("abcdefg"), (False,) * 6 + (True,), groups=5)
EVENTS = 1500
LARGE = 10**9


def events(seed=5, n=EVENTS):
    """Insertions, deletions by id and by value, updates and queries; ``n`` in all."""
    rng = np.random.default_rng(seed)
    op, ids, rows, labels, live = [], [], [], [], {}
    while len(op) < n:
        code = rng.choice([INSERT, DELETE, DELETE_VALUE, UPDATE, QUERY], p=[0.55, 0.25, 0.05, 0.1, 0.05])
        row = np.round(rng.normal(size=7), 1) + 0.0
        row[6] = rng.integers(5)
        label = int((row[0] * row[1] + row[2] > 0) ^ (row[6] == 3) ^ (rng.random() < 0.1)) + 2 * int(row[3] > 1.2)
        key = len(op)
        if code in (DELETE, DELETE_VALUE, UPDATE):
            if not live:
                continue
            key = list(live)[rng.integers(len(live))]
            if code == DELETE_VALUE:
                row, label = live[key]
                key = next(other for other, (r, c) in live.items() if c == label and (r == row).all())
            del live[key]
        if code in (INSERT, UPDATE):
            live[key] = row, label
        op.append(code)
        ids.append(key)
        if code != DELETE:
            rows.append(row)
            labels.append(label)
    return np.array(op, np.int8), np.array(ids), np.array(rows), np.array(labels, np.int32)


def batches(size, n=EVENTS):
    op, ids, X, y = events(n=n)
    taken = 0
    for start in range(0, n, size):
        part = op[start : start + size]
        stop = taken + int((part != DELETE).sum())
        yield UpdateBatch(
            start, part, ids[start : start + size], X[taken:stop], y[taken:stop], 4, np.arange(start, start + len(part))
        )
        taken = stop


def fudyadt():
    return LEARNER, LEARNER.Options(kind="fudyadt", epsilon=0.6, alpha=0.0, beta=0.0, max_depth=5), FEATURES


def outcome(session, stream):
    """All that must be the same, and the number of rebuilds by place, which need not be."""
    predictions, metrics, log, places = [], Prequential(positive=True), {}, Counter()
    for batch, result in session.process(stream):
        predictions += result.predictions.tolist()
        learned = np.isin(batch.op, (INSERT, UPDATE))
        metrics.update(batch.y[learned[CARRIES_ROW[batch.op]]], result.predictions[learned])
        places.update(result.log.pop("place").tolist())
        for name in result.log.keys() - {"seconds"}:
            log.setdefault(name, []).extend(result.log[name].tolist())
    session.finish()
    statistics = session.statistics()
    same = {
        "digest": session.digest(),
        "predictions": predictions,
        # The AUC needs the scores of class 1, which are not asked for here.
        "metrics": {name: score for name, score in metrics.scores().items() if "auc" not in name},
        "baselines": metrics.snapshot(),
        "log": log,
        "statistics": {name: statistics[name] for name in ("active", "nodes", "leaves", "depth", "rebuilds")},
    }
    return same, places


@pytest.fixture(scope="module")
def expected():
    same, _ = outcome(InProcessSession(*fudyadt()), batches(EVENTS))
    assert same["statistics"]["rebuilds"] > 200
    assert all(np.isfinite(score) for score in same["metrics"].values())
    return same


# Shards, batch size, local_work_limit, row cache.
FACTORS = (1, 2, 3), (7, 1000), (0, LARGE), (0, None)
COMBINATIONS = {
    "one shard, everything at the coordinator, tiny batches": (1, 7, LARGE, None),
    "one shard does all": (1, 1000, 0, 0),
    "two shards do all, tiny batches": (2, 7, 0, None),
    "two shards hand out columns": (2, 1000, LARGE, 0),
    "two shards do large rebuilds and hand out what the cache lacks": (2, 1000, 2000, 20_000),
    "three shards hand out columns, tiny batches": (3, 7, LARGE, 0),
    "three shards do all": (3, 1000, 0, None),
    "three shards do large rebuilds, one batch": (3, EVENTS, 2000, 0),
}


def test_combinations_are_pairwise():
    """Every two values of two settings meet in one of the combinations at least."""
    assert len(COMBINATIONS) == 8
    for one, two in combinations(range(len(FACTORS)), 2):
        met = {(values[one], values[two]) for values in COMBINATIONS.values()}
        assert set(product(FACTORS[one], FACTORS[two])) <= met


@pytest.mark.parametrize("name", COMBINATIONS)
def test_same_results_as_in_process(cluster, expected, name):
    shards, size, limit, cache = COMBINATIONS[name]
    session = RaySession(cluster, *fudyadt(), shards=shards, plan=WorkPlan(limit, cache))
    try:
        same, places = outcome(session, batches(size))
        assert same == expected
        assert (places[1] > 0, places[2] > 0) == (limit > 0, limit < LARGE)
        work, held = session.work(), limit == LARGE and cache is None
        assert (session.statistics()["rounds"] > 0) != held
        assert [entry["requests"] > 0 for entry in work] == [not held] * shards
        assert len({entry["pid"] for entry in work} | {os.getpid()}) == shards + 1
        assert sorted(column for entry in work for column in entry["columns"]) == list(range(7))
    finally:
        session.close()


@pytest.mark.data
def test_all_of_electricity(cluster, data_dir):
    """45,312 insertions; some rebuilds on the shards, and a cache for a third of the rows at the coordinator."""

    def source():
        options = {"kind": "parquet", "path": str(data_dir / "electricity.parquet"), "label": "y", "positive": "DOWN"}
        return open_source(TypeAdapter(SourceOptions).validate_python(options))

    def stream():
        return make_stream(TypeAdapter(StreamOptions).validate_python({"model": "incremental"}), source()).batches(4096)

    what = LEARNER, LEARNER.Options(kind="fudyadt", epsilon=0.5, alpha=0, beta=0, max_depth=10), source().features
    expected, _ = outcome(InProcessSession(*what), stream())
    assert len(expected["predictions"]) == expected["statistics"]["active"] == 45_312
    session = RaySession(cluster, *what, shards=2, plan=WorkPlan(40_000, 1_000_000))
    try:
        same, places = outcome(session, stream())
        assert same == expected
        assert places[1] > 0
        assert places[2] > 0
        assert [entry["requests"] > 0 for entry in session.work()] == [True, True]
    finally:
        session.close()


def test_a_state_moves_between_sessions_of_any_kind(cluster, expected):
    stream = list(batches(500))
    first = RaySession(cluster, *fudyadt(), shards=3, plan=WorkPlan(2000, 0))
    try:
        predictions = [result.predictions for _, result in first.process(stream[:2])]
        state = first.state()
    finally:
        first.close()
    second = InProcessSession(*fudyadt())
    second.restore(*state)
    predictions += [result.predictions for _, result in second.process(stream[2:4])]
    third = RaySession(cluster, *fudyadt(), shards=2, plan=WorkPlan(0, None))
    try:
        third.restore(*second.state())
        predictions += [result.predictions for _, result in third.process(stream[4:])]
        assert third.digest() == expected["digest"]
        assert np.concatenate(predictions).tolist() == expected["predictions"]
        model, theirs = third.model(), InProcessSession(*fudyadt())
        theirs.restore(*third.state())
        assert {k: v.tolist() for k, v in model.items()} == {k: v.tolist() for k, v in theirs.model().items()}
    finally:
        third.close()


def test_nothing_after_a_bad_update_takes_effect(cluster):
    stream = list(batches(100, 1000))
    stream[3].id[50] = 10**9  # unknown to a delete, new to an insert
    stream[3].op[50] = DELETE
    ours = InProcessSession(*fudyadt())
    wanted = [(batch.start, result.applied) for batch, result in ours.process(stream)]
    session = RaySession(cluster, *fudyadt(), shards=2)
    try:
        assert [(batch.start, result.applied) for batch, result in session.process(iter(stream))] == wanted
        assert wanted[-1][0] == 300
        assert session.digest() == ours.digest()
        assert session.statistics()["active"] == ours.statistics()["active"]
    finally:
        session.close()
