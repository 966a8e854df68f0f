"""Metrics of classes and targets, with weights, and runs that are scored."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines import replay, train
from raydt.evaluation.classification import Prequential
from raydt.evaluation.regression import PrequentialErrors
from raydt.evaluation.scoring import LEVELS, NO_LEVEL
from raydt.examples.updates import CARRIES_ROW, DELETE, UNIT, UPDATE, UpdateBatch
from raydt.learners import learners
from raydt.sessions.session import InProcessSession, small_stream

# -- metrics ---------------------------------------------------------------------------------------------------------
#
# Prequential metrics against a loop over single examples, and against values worked out by hand.


def feed(metrics, pairs, sizes=None):
    truth = np.array([t for t, _ in pairs], dtype=np.int32)
    prediction = np.array([p for _, p in pairs], dtype=np.int32)
    begin = 0
    for size in sizes or [len(pairs)]:
        metrics.update(truth[begin : begin + size], prediction[begin : begin + size])
        begin += size
    return metrics


class SlowTwin:
    """One example at a time, with dictionaries."""

    def __init__(self):
        self.cells, self.seen, self.last = {}, {}, 0
        self.no_change = self.majority = 0

    def update(self, truth, prediction):
        if prediction >= 0:
            self.cells[truth, prediction] = self.cells.get((truth, prediction), 0) + 1
            self.no_change += truth == self.last
            most = max(self.seen.values(), default=0)
            leader = min((k for k, n in self.seen.items() if n == most), default=0)
            self.majority += truth == leader
        self.last = truth
        self.seen[truth] = self.seen.get(truth, 0) + 1


@given(
    pairs=st.lists(st.tuples(st.integers(0, 4), st.integers(-1, 5)), max_size=60),
    cuts=st.lists(st.integers(0, 20), max_size=10),
)
def test_batches_equal_a_loop_over_examples(pairs, cuts):
    metrics, twin = Prequential(), SlowTwin()
    sizes = [size for size in cuts if size]
    feed(metrics, pairs, [*sizes, max(0, len(pairs) - sum(sizes))])
    for truth, prediction in pairs:
        twin.update(truth, prediction)
    assert {(int(t), int(p)): int(n) for (t, p), n in np.ndenumerate(metrics.confusion) if n} == twin.cells
    hits = metrics.snapshot()
    assert (hits.no_change, hits.majority) == (twin.no_change, twin.majority)
    assert hits.scored == sum(twin.cells.values())
    assert hits.learner == sum(n for (t, p), n in twin.cells.items() if t == p)


def test_nothing_scored_is_nan_not_zero():
    metrics = feed(Prequential(), [(0, -1)])
    assert all(math.isnan(value) for value in metrics.scores().values())
    assert all(math.isnan(share) for share in metrics.baselines().values())


def test_f1_needs_a_positive_class():
    pairs = [(0, 0), (1, 1), (2, 1)]
    assert math.isnan(feed(Prequential(), pairs).scores()["f1"])
    assert feed(Prequential(positive=True), pairs).scores()["f1"] == pytest.approx(2 / 3)
    assert feed(Prequential(), pairs[:2]).scores()["f1"] == 1.0


def test_kappa_does_not_overflow_on_long_streams():
    metrics = feed(Prequential(), [(0, 0)] * 3 + [(1, 1)] * 3 + [(0, 1), (1, 0)])
    for counts in (metrics.counts.hits, metrics.counts.classes):
        counts *= 10**10
    assert metrics.scores()["kappa"] == pytest.approx(0.5)


def test_a_window_is_what_was_scored_since_the_mark_before():
    metrics = feed(Prequential(), [(0, 0), (1, 0)])
    metrics.mark()
    feed(metrics, [(1, 1), (1, 1)])
    metrics.mark()
    rows = metrics.take_rows()
    assert rows["accuracy"].tolist() == [0.5, 0.75]
    assert rows["window_accuracy"].tolist() == [0.5, 1.0]
    assert rows["window_no_change"].tolist() == [0.5, 1.0]
    assert rows["window_majority"].tolist() == [0.5, 0.5]
    assert set(rows) == set(Prequential.columns)
    assert len(metrics.take_rows()["accuracy"]) == 0


# -- regression metrics ----------------------------------------------------------------------------------------------
#
# Prequential errors against a loop over single predictions, however they are cut, and after a restore.

RNG = np.random.default_rng(5)
TRUTH = 1e6 + np.round(RNG.normal(size=200), 2)
PREDICTION = np.where(np.arange(200) < 30, np.nan, TRUTH + RNG.normal(size=200))


def fed(sizes: list[int], evaluation: PrequentialErrors | None = None) -> PrequentialErrors:
    evaluation, begin = evaluation or PrequentialErrors(), 0
    for size in sizes:
        evaluation.update(TRUTH[begin : begin + size], PREDICTION[begin : begin + size])
        begin += size
    return evaluation


def test_scores_equal_a_loop() -> None:
    seen: list[float] = []
    errors, no_change, mean, truths = [], [], [], []
    for truth, prediction in zip(TRUTH.tolist(), PREDICTION.tolist(), strict=True):
        if not math.isnan(prediction):
            errors.append(truth - prediction)
            no_change.append(truth - seen[-1])
            mean.append(truth - math.fsum(seen) / len(seen))
            truths.append(truth)
        seen.append(truth)
    evaluation = fed([200])
    scores, baselines = evaluation.scores(), evaluation.baselines()
    assert list(scores) == ["mse", "rmse", "mae", "r2"]
    assert scores["rmse"] == math.sqrt(scores["mse"])
    assert scores["mse"] == pytest.approx(np.mean(np.square(errors)), rel=1e-12)
    assert scores["mae"] == pytest.approx(np.mean(np.abs(errors)), rel=1e-12)
    assert scores["r2"] == pytest.approx(1 - np.mean(np.square(errors)) / np.var(truths), rel=1e-9)
    assert baselines["no_change"] == pytest.approx(np.mean(np.square(no_change)), rel=1e-12)
    assert baselines["mean"] == pytest.approx(np.mean(np.square(mean)), rel=1e-9)


@pytest.mark.parametrize("size", [1, 7, 64])
def test_no_bit_depends_on_the_cut_or_on_a_restore(size: int) -> None:
    whole, parts = fed([200]), fed([size] * (200 // size) + [200 % size])
    restored = PrequentialErrors()
    restored.restore(fed([90]).state())
    restored.update(TRUTH[90:], PREDICTION[90:])
    for other in (parts, restored):
        assert repr(other.state()) == repr(whole.state())
    assert set(row(whole)) == set(PrequentialErrors.columns)


def row(evaluation: PrequentialErrors) -> dict[str, float]:
    evaluation.mark()
    return {name: float(values[-1]) for name, values in evaluation.take_rows().items()}


def test_a_window_is_summed_by_itself() -> None:
    evaluation = fed([120])
    evaluation.mark()
    evaluation.update(TRUTH[120:], PREDICTION[120:])
    window, error, truth = row(evaluation), (TRUTH - PREDICTION)[120:], TRUTH[120:]
    assert window["window_mse"] == pytest.approx(np.mean(error**2), rel=1e-13)
    assert window["window_rmse"] == pytest.approx(np.sqrt(np.mean(error**2)), rel=1e-13)
    assert window["window_mae"] == pytest.approx(np.mean(np.abs(error)), rel=1e-13)
    assert window["window_r2"] == pytest.approx(1 - np.mean(error**2) / np.var(truth), rel=1e-12)


def test_what_cannot_be_said_is_nan() -> None:
    evaluation = PrequentialErrors()
    assert all(math.isnan(value) for value in {**evaluation.scores(), **evaluation.baselines()}.values())
    evaluation.update(np.array([2.0, 2.0]), np.array([0.0, 2.0]))
    assert evaluation.scores()["mse"] == 2.0
    assert evaluation.baselines() == {"no_change": 2.0, "mean": 2.0}
    assert math.isnan(evaluation.scores()["r2"])


def test_a_state_of_an_earlier_version_gives_the_same_scores() -> None:
    evaluation = fed([90])
    earlier = PrequentialErrors()
    sums, registers = evaluation.state()["sums"], evaluation.state()["registers"]
    n, last, first, total = registers.tolist()
    spread = np.array([last, first, total, *sums[5:].tolist()])
    earlier.restore({"scored": int(sums[0]), "inserted": int(n), "sums": sums[1:5], "registers": spread})
    for one in (evaluation, earlier):
        one.update(TRUTH[90:], PREDICTION[90:])
    assert earlier.scores() == evaluation.scores()
    assert earlier.baselines() == evaluation.baselines()


# -- weighted metrics ------------------------------------------------------------------------------------------------
#
# Metrics that count predictions by the weights of their rows, against those of repeated predictions.

DRAW = np.random.default_rng(3)
N = 400
COUNTS = DRAW.integers(0, 4, N)
#: Scores that do not depend on the order of predictions.
WHOLE = ("accuracy", "f1", "macro_f1", "kappa", "auc")


def test_whole_weights_count_like_repeated_predictions() -> None:
    truth, prediction = (DRAW.integers(0, 2, N).astype(np.int32) for _ in range(2))
    levels = DRAW.integers(0, 4097, N).astype(np.uint16)
    rivals = prediction[::-1].copy(), prediction
    weighted, repeated = Prequential(weighted=True), Prequential()
    for one in (weighted, repeated):
        one.rivals(truth)
    weighted.score(truth, prediction, rivals, levels, weight=(COUNTS * UNIT).astype(np.uint32))
    often = np.repeat(np.arange(N), COUNTS)
    repeated.score(truth[often], prediction[often], (rivals[0][often], rivals[1][often]), levels[often])
    assert {name: weighted.scores()[name] for name in WHOLE} == {name: repeated.scores()[name] for name in WHOLE}
    assert weighted.baselines() == repeated.baselines()
    assert weighted.figures(2)["confusion"] == repeated.figures(2)["confusion"]


def test_whole_weights_count_like_repeated_errors() -> None:
    truth, prediction = DRAW.normal(size=N), DRAW.normal(size=N)
    rivals = prediction[::-1].copy(), prediction
    weighted, repeated = PrequentialErrors(), PrequentialErrors()
    weighted.score(truth, prediction, rivals, weight=(COUNTS * UNIT).astype(np.uint32))
    often = np.repeat(np.arange(N), COUNTS)
    repeated.score(truth[often], prediction[often], (rivals[0][often], rivals[1][often]))
    for name, value in repeated.scores().items():
        assert weighted.scores()[name] == pytest.approx(value, rel=1e-12)


def config(path: Path, weighted: bool, **stream: Any) -> dict[str, Any]:
    return {
        "source": {"kind": "parquet", "path": str(path), "weight": "w"},
        **({"stream": stream} if stream else {}),
        "learner": {"kind": "gbdt", "max_iter": 3, "max_leaf_nodes": 4},
        "cluster": {"backend": "in_process"},
        "output": {"weighted_metrics": weighted, "predictions": True, "report": False},
    }


def test_a_run_weighs_its_metrics_on_request(tmp_path: Path) -> None:
    x, w = DRAW.normal(size=N), DRAW.integers(1, 5, N).astype(np.float64)
    y = np.where(x + DRAW.normal(size=N) > 0, "yes", "no")
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"x": x, "w": w, "y": y}), path)
    accuracy = {}
    for weighted in (False, True):
        run = replay(config(path, weighted, model="incremental", warmup=200), tmp_path / f"run {weighted}")
        accuracy[weighted] = run.summary["metrics"]["accuracy"]
        said = pq.read_table(run.path + "/predictions")
        right = np.array(said["prediction"].to_pylist()) == np.array(said["truth"].to_pylist())
        weights = w[np.array(said["id"].to_pylist())] if weighted else None
        assert accuracy[weighted] == pytest.approx(np.average(right, weights=weights), rel=1e-12)
        trained = train(config(path, weighted), tmp_path / f"trained {weighted}").metrics
        accuracy[weighted] = accuracy[weighted], trained["accuracy"]
    assert accuracy[True][0] != accuracy[False][0]
    assert accuracy[True][1] != accuracy[False][1]


# -- scored runs -----------------------------------------------------------------------------------------------------
#
# Scores of whole runs: delayed labels, alarms, and the scores of class 1 that learners give.

IN_PROCESS = {"backend": "in_process", "shards": 1}


def rows_of(n: int, delay: int) -> list[dict[str, Any]]:
    """A query of each row, and its insert with the label ``delay`` rows later; the concept turns in the middle."""
    draw = np.random.default_rng(3)
    x = draw.random((n, 2)).round(3)
    label = np.where((x[:, 0] > 0.5) ^ (np.arange(n) > n // 2), "yes", "no")
    rows = []
    for i in range(n + delay):
        features = {"a": x[min(i, n - 1), 0], "b": x[min(i, n - 1), 1]}
        if i < n:
            rows.append({"op": "query", "id": i, **features, "label": ""})
        if i >= delay:
            k = i - delay
            rows.append({"op": "insert", "id": k, "a": x[k, 0], "b": x[k, 1], "label": label[k]})
    return rows


def delayed_run(folder: Path, batch_size: int, delayed: bool = True) -> Any:
    rows = rows_of(1500, 40)
    with (folder / "log.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    source = {"kind": "csv", "path": str(folder / "log.csv"), "op": "op", "id": "id", "label": "label"}
    config = {
        "source": source,
        "stream": {"model": "changelog", "delayed_labels": delayed},
        "learner": {"kind": "fudyadt"},
        "cluster": {**IN_PROCESS, "batch_size": batch_size},
        "output": {"predictions": True, "metrics_every": 500, "report": False},
    }
    return replay(config, folder / f"run-{batch_size}-{delayed}")


def test_delayed_labels_are_scored_by_the_query(tmp_path: Path) -> None:
    run = delayed_run(tmp_path, 64)
    table = ds.dataset(f"{run.path}/predictions").to_table().to_pylist()
    asked = {row["id"]: row["prediction"] for row in table if row["truth"] is None}
    inserted = [row for row in table if row["truth"] is not None]
    hits = [row["truth"] == asked[row["id"]] for row in inserted]
    assert run.summary["metrics"]["accuracy"] == np.mean(hits)
    at_once = delayed_run(tmp_path, 64, delayed=False)
    assert at_once.summary["metrics"]["accuracy"] == np.mean([r["truth"] == r["prediction"] for r in inserted])
    assert at_once.summary["model_digest"] == run.summary["model_digest"]
    # Without a delay in between, no-change would have known the label of the row before.
    labels = [row["truth"] for row in inserted]
    known = [labels[k - 41] if k > 40 else run.summary["classes"][0] for k in range(len(labels))]
    assert run.summary["baselines"]["no_change"] == np.mean([a == b for a, b in zip(labels, known, strict=True)])


def test_no_score_and_no_alarm_depends_on_the_batches(tmp_path: Path) -> None:
    runs = [delayed_run(tmp_path, size) for size in (1, 37, 4096)]
    tables = [
        {name: ds.dataset(f"{run.path}/{name}").to_table().to_pydict() for name in ("metrics", "alarms")}
        for run in runs
    ]
    for table in tables:
        del table["metrics"]["seconds"]
    assert repr(tables[0]) == repr(tables[1]) == repr(tables[2])
    alarms = tables[0]["alarms"]
    assert len(alarms["seq"]) == runs[0].summary["metrics"]["alarms"] >= 1
    assert all(after > before for before, after in zip(alarms["error_before"], alarms["error_after"], strict=True))
    assert any(1500 < seq < 2200 for seq in alarms["seq"]), "the concept turns after update 1,540"
    summary = json.loads((Path(runs[0].path) / "summary.json").read_text())
    assert 0.5 < summary["metrics"]["auc"] < 1
    assert tables[0]["metrics"]["auc"][-1] == summary["metrics"]["auc"]


CASES = [
    pytest.param(kind, case, id=f"{kind}, {case.name}")
    for kind, learner in learners().items()
    for case in learner.cases()
    if case.classes == 2
]


@pytest.mark.parametrize(("kind", "case"), CASES)
def test_the_score_of_a_prediction_is_the_share_that_the_model_gives(kind: str, case: Any) -> None:
    """After the warm-up one update at a time, against ``predict_proba`` just before it, without smoothing."""
    learner = learners()[kind]
    features, batch = small_stream(case)
    options = {**case.options, "kind": kind}
    if "smoothing" in learner.Options.model_fields:
        options["smoothing"] = 0
    session = InProcessSession(learner, learner.Options.model_validate(options), features, 1, case.plan)
    traits = learner.traits(learner.Options.model_validate(options))
    row, given = 0, 0
    warmup, starts = case.warmup, [0, *range(max(1, case.warmup), len(batch))]
    for at, stop in zip(starts, [*starts[1:], len(batch)], strict=True):
        carried = int(CARRIES_ROW[batch.op[at:stop]].sum())
        part, rows = slice(at, stop), slice(row, row + carried)
        sparse = None if batch.sparse is None else batch.sparse[np.arange(row, row + carried)]
        one = UpdateBatch(
            *(at, batch.op[part], batch.id[part], batch.X[rows], batch.y[rows], 2, batch.row[part], warmup),
            sparse=sparse,
        )
        row += carried
        more: dict[str, Any] = {} if sparse is None else {"sparse": sparse}
        before = session
        if at and one.op[0] == UPDATE and traits.parts:  # a learner of parts predicts once the old example is deleted
            before = InProcessSession(learner, learner.Options.model_validate(options), features, 1, case.plan)
            before.restore(*session.state())
            none = None if sparse is None else sparse[np.empty(0, np.int64)]
            before.apply(
                UpdateBatch(at, np.array([DELETE], np.int8), one.id, one.X[:0], one.y[:0], 2, one.row, sparse=none)
            )
        before.driver.run(before.coordinator.gather())
        expected = before.coordinator.predict_proba(one.X, 2, **more) if carried and at else None
        result = session.apply(one)
        if result.levels is None or result.levels[0] == NO_LEVEL or expected is None or one.op[0] == DELETE:
            continue
        if session.statistics()["active"] > 1:
            assert int(result.levels[0]) == int(np.floor(expected[0, 1] * LEVELS + 0.5))
            given += 1
    if kind in gives_scores():
        assert given > 20, traits


def gives_scores() -> set[str]:
    """Learners whose predictions have scores, as the documentation says."""
    text = (Path(__file__).parents[2] / "docs/explanation/evaluation.md").read_text()
    sentence = text[text.index("score for every prediction.") : text.index("give such a\nscore")]
    return {kind for kind in learners() if f"`{kind}`" in sentence}
