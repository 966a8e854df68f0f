"""Training runs, warm-ups that end early, and models that are trimmed."""

from __future__ import annotations

import copy
import gc
import os
import random
import sys
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pipelines
import raydt
from pipelines.auditing import audit_run, verify_run
from pipelines.prediction import predict_file
from pipelines.running import loop
from pipelines.updating import update
from raydt import ExactForestClassifier, ExactForestRegressor
from raydt.arrays.blocks import Compressed
from raydt.errors import ProcessLostError
from raydt.examples.updates import Features, UpdateBatch
from raydt.exchange.messages import injected
from raydt.keyed.groups import digest_of
from raydt.keyed.members import ROUNDS, Awake, apply_all
from raydt.learners.base import NOTHING_DIVIDED, WorkPlan
from raydt.learners.confidence_tree.dynamic_tree import LiveConfidenceTree
from raydt.learners.confidence_tree.options import ConfidenceTreeOptions
from raydt.learners.forest.model import Folded, unfolded
from raydt.sessions.session import InProcessSession
from raydt.sources.base import Rows
from raydt.streams.deletion_log import Changelog
from raydt.streams.windows import places
from tests.cases import CASES, Trial, change_log, every_case, net, one_of_each, place_of
from tests.keyed_runs import KEYS_CASES as KEYS
from tests.keyed_runs import config, files
from tests.keyed_runs import rows_of_cases as rows_of
from tests.nets.test_runs import HOW, Updated, exactly, require_equal, results
from tests.small_tables import examples, table_of, written
from tests.storage_faults import Gone, at
from tests.volume import nightly

# -- trained ---------------------------------------------------------------------------------------------------------
# A training run of every case: its model is that of all rows at once, and its score that of a model of the other
# rows.
#
# The twins: one session that is given all rows in one batch; and a replay of a file that lacks the rows held out,
# whose model predicts a file of these.

ROWS = 150
#: Where a driver is killed.
POINTS = ("driver.recorded", "run.before_compaction", "run.before_summary")


def table() -> pa.Table:
    """Rows with text ids; those held out come last, so that without them categories and classes have the same codes."""
    rows = table_of(examples(ROWS, 5)).drop_columns(["op"])
    return rows.take(pa.array(np.argsort(held(rows), kind="stable")))


def config_of(trial: Trial, folder: Path, rows: pa.Table, **sections: Any) -> dict[str, Any]:
    """A config without a stream, of rows written to ``folder``."""
    folder.mkdir(exist_ok=True)
    pq.write_table(rows, folder / "rows.parquet")
    base: dict[str, Any] = trial.config(folder)
    base["source"] = {"kind": "parquet", "path": str(folder / "rows.parquet"), **trial.columns}
    del base["stream"]
    return {**base, **sections}


def held(rows: pa.Table, share: float = 0.2) -> np.ndarray:
    """Which rows are held out."""
    names, n = np.array(rows["id"].to_pylist(), dtype=np.object_), rows.num_rows
    return places(Rows(np.arange(n), np.empty((n, 0)), np.zeros(n), np.full(n, -1), names=names)) < share


@every_case("a training run")
def test_the_model_is_that_of_all_rows_and_the_score_that_of_the_others(trial: Trial, tmp_path: Path) -> None:
    rows, out = table(), held(table())
    run = pipelines.train(config_of(trial, tmp_path, rows), tmp_path / "run")
    summary = run.summary
    whole = {**config_of(trial, tmp_path, rows), "stream": {"model": "incremental", "warmup": ROWS}}
    assert run.digest == pipelines.replay(whole, tmp_path / "whole").digest
    assert (summary["updates"], summary["active"], summary["deletes"]) == (ROWS, ROWS, 0)
    told = summary["holdout"]
    assert (told["share"], told["rows"], told["trained_on"]) == (0.2, out.sum(), ROWS - out.sum())

    rest = config_of(trial, tmp_path / "rest", rows.filter(pa.array(~out)))
    rest["stream"] = {"model": "incremental", "warmup": ROWS}
    twin = pipelines.replay(rest, tmp_path / "twin")
    pq.write_table(rows.filter(pa.array(out)), tmp_path / "held.parquet")
    predict_file(twin.path, tmp_path / "held.parquet", tmp_path / "predicted.parquet")
    predicted = pq.read_table(tmp_path / "predicted.parquet")["prediction"].to_pylist()
    truth = rows.filter(pa.array(out))[trial.columns["label"]].to_pylist()
    others = rows.filter(pa.array(~out))[trial.columns["label"]].to_pylist()
    if trial.reading.regression:
        errors = [(a - b) ** 2 for a, b in zip(truth, predicted, strict=True)]
        assert run.metrics["mse"] == pytest.approx(sum(errors) / len(errors), rel=1e-12)
        mean = sum(others) / len(others)
        assert summary["baselines"] == {"mean": pytest.approx(np.mean([(a - mean) ** 2 for a in truth]), rel=1e-9)}
    else:
        assert run.metrics["accuracy"] == sum(a == b for a, b in zip(truth, predicted, strict=True)) / len(truth)
        counts = {label: others.count(label) for label in others}
        best = {label for label, n in counts.items() if n == max(counts.values())}
        assert summary["baselines"]["majority"] in {truth.count(label) / len(truth) for label in best}


@every_case("a training run", one_of_each)
def test_a_trained_model_is_audited_updated_and_verified(trial: Trial, tmp_path: Path) -> None:
    run = pipelines.train(config_of(trial, tmp_path, table()), tmp_path / "run")
    report = audit_run(run.path)
    assert (report.conformance, report.failures) == ("holds", [])
    if trial.learner.traits(trial.options).retrained:
        assert verify_run(run.path)["equal"]
    pq.write_table(table().slice(0, 9).select(["id"]), tmp_path / "gone.parquet")
    receipt = update(run.path, delete=tmp_path / "gone.parquet", out=tmp_path / "state")
    assert receipt.active == ROWS - 9
    taken = pipelines.resume(run.path, state=tmp_path / "state").summary
    assert (taken["model_digest"], taken["active"], taken["metrics"]) == (
        receipt.digest_after,
        ROWS - 9,
        run.summary["metrics"],
    )
    assert audit_run(run.path).conformance == "holds"


def test_a_sweep_scores_the_rows_held_out(tmp_path: Path) -> None:
    """Settings have the scores of training runs; no alarm and no last label, since a hold-out has no order."""
    rows = pa.table(
        {"a": np.arange(300) % 17, "b": np.arange(300) % 5, "y": np.where(np.arange(300) % 17 > 8, "u", "v")}
    )
    pq.write_table(rows, tmp_path / "rows.parquet")
    config = {
        "source": {"kind": "parquet", "path": str(tmp_path / "rows.parquet")},
        "stream": {"model": "training", "holdout": 0.3},
        "learner": {"kind": "fudyadt"},
        "cluster": {"backend": "in_process"},
        "output": {"report": False},
    }
    grid = ["learner.max_depth=1,9"]
    swept = pipelines.sweep(config, grid, tmp_path / "sweep")
    for row in swept.table.to_pylist():
        one = {**config, "learner": {**config["learner"], "max_depth": row["learner.max_depth"]}}
        run = pipelines.train(one, tmp_path / f"run-{row['setting']}").summary
        assert row["digest"] == run["model_digest"]
        assert {name: row[name] for name in ("accuracy", "f1", "kappa")} == {
            name: run["metrics"][name] for name in ("accuracy", "f1", "kappa")
        }
        assert (row["majority"], row["no_change"]) == (run["baselines"]["majority"], None)
        assert row["predictions"] == run["holdout"]["rows"]
    assert (tmp_path / "sweep" / "sweep.html").exists()


@net(
    "a training run",
    "trial, point",
    product(CASES, POINTS),
    lambda trial, point: one_of_each(trial) and place_of(trial) % len(POINTS) == POINTS.index(point),
)
def test_a_kill_does_not_show(trial: Trial, point: str, tmp_path: Path) -> None:
    config = config_of(trial, tmp_path, table())
    expected = pipelines.train(config, tmp_path / "whole").summary
    with injected(at(1, point=point)), pytest.raises(Gone):
        pipelines.train(config, tmp_path / "run")
    summary = pipelines.resume(tmp_path / "run").summary
    timeless = {**expected["holdout"], "seconds": summary["holdout"]["seconds"]}
    assert summary["holdout"] == timeless
    for key in ("model_digest", "metrics", "baselines", "updates"):
        assert summary[key] == expected[key]


@every_case("a training run", one_of_each)
def test_a_process_lost_while_a_model_is_scored_does_not_show(
    trial: Trial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, score, calls = config_of(trial, tmp_path, table()), loop.score_holdout, []

    def lost(*given: Any) -> dict[str, Any]:
        calls.append(given)
        if len(calls) == 1:
            raise ProcessLostError("a shard was killed")
        return score(*given)

    expected = pipelines.train(config, tmp_path / "whole").summary
    monkeypatch.setattr(loop, "score_holdout", lost)
    summary = pipelines.train(config, tmp_path / "run").summary
    assert len(calls) == 2
    assert summary["restarts"] == 1
    assert (summary["metrics"], summary["model_digest"]) == (expected["metrics"], expected["model_digest"])


# -- early warmup ----------------------------------------------------------------------------------------------------
# A warm-up ends before the first operation that is no insertion; what comes then is as if it had been so short.
#
# Every learner, in process and in shards, restored anywhere; whole runs that are killed; models by key; rows that the
# shards read for a warm-up that does not last.

#: Longer than any log here.
LONG = 10_000
#: Seeds of a case.
SEEDS = range(4 if nightly else 2)


def first_other(rows: list[dict[str, Any]]) -> int:
    """Return the number of the first row that is no insertion: so long is the warm-up."""
    return next(number for number, row in enumerate(rows) if row["op"] != "insert")


class Learned:
    """Results of a learner on a log, in batches cut at random, whose warm-up is to have ``warmup`` updates."""

    def __init__(self, trial: Trial, source: dict[str, Any], warmup: int, seed: int, shards: int) -> None:
        draw = random.Random(f"{seed} {warmup}")
        #: Of a forest that opens a subtree when somebody looks, what was done depends on how the stream is cut.
        self.lazy = getattr(trial.options, "rebuild", "eager") != "eager"
        stream = Changelog(warmup=warmup, on_error="skip").make(trial.source({"source": source}))
        session = trial.session(stream, shards)
        self.updates: dict[int, Any] = {}
        self.logs: list[tuple[Any, ...]] = []
        while (batch := next(stream.batches(draw.randrange(1, 30)), None)) is not None:
            if draw.random() < 0.15:
                state, groups = session.state()
                session = trial.session(stream, draw.choice((1, 3)))
                session.restore(state, groups)
            result = session.apply(batch, skip_refused=True)
            refused = {one.position: one.reason for one in result.refused}
            for place in range(len(batch)):
                path = None if self.lazy else result.path[place]
                told = batch.op[place], result.predictions[place], path, refused.get(place)
                self.updates[batch.start + place] = repr(told)
            self._note(result.log)
            if draw.random() < 0.15:
                stream.restore(stream.state())
        self.warmup = stream.warmup
        self.statistics = {name: n for name, n in session.statistics().items() if name not in HOW}
        self._note(session.finish())
        self.digest = session.digest()
        self.model = exactly(session.model())

    def _note(self, log: dict[str, Any]) -> None:
        named = [log[name].tolist() for name in sorted(log) if name not in HOW]
        self.logs += map(repr, zip(*named, strict=True))


@every_case("a warm-up that ends early")
def test_a_warmup_that_ends_early_is_a_shorter_one(trial: Trial, tmp_path: Path) -> None:
    for seed in SEEDS:
        draw = random.Random(seed)
        rows = change_log(90, draw.choice((1, 2, 5, 12, 31, 60)), seed)
        if draw.random() < 0.4:  # an insertion that is refused counts, too
            rows.insert(2, rows[0])
        end = first_other(rows)
        path = written(tmp_path / f"{seed}.arrow", table_of(rows))
        source = {"kind": "arrow", "path": str(path), "op": "op", **trial.columns}
        planned = draw.choice((end + 1, end + 5, LONG))
        early = Learned(trial, source, planned, seed, shards=draw.choice((1, 2, 3)))
        short = Learned(trial, source, end, seed, shards=2)
        assert early.warmup == short.warmup == end
        assert early.digest == short.digest, (seed, end)
        assert early.updates == short.updates
        assert early.model == short.model
        if not early.lazy:
            assert early.statistics == short.statistics
            assert sorted(early.logs) == sorted(short.logs)


#: Inserts before the first other operation, in whole runs: no multiple of what metrics are recorded at.
BEFORE = 33


def early(trial: Trial, folder: Path, warmup: int) -> dict[str, Any]:
    """Return the config of a run whose log has so many insertions first."""
    rows = change_log(120, BEFORE)
    base = trial.config(folder, 1)
    base["source"]["path"] = str(written(folder / "rows.arrow", table_of(rows)))
    base["stream"]["warmup"] = warmup
    return base | {"warmup": first_other(rows)}


def run(job: dict[str, Any], folder: Path, **stream: Any) -> pipelines.RunResult:
    job = {name: section for name, section in job.items() if name != "warmup"}
    return pipelines.replay({**job, "stream": {**job["stream"], **stream}}, folder)


def needs_a_model(trial: Trial) -> bool:
    """Return True if every test run takes a case: the first of a learner that has no model before a warm-up."""
    return one_of_each(trial) and bool(trial.learner.traits(trial.options).warmup)


@every_case("a run whose warm-up ends early", often=one_of_each)
def test_a_run_whose_warmup_ends_early(trial: Trial, tmp_path: Path) -> None:
    """Killed within the warm-up, where it ends and later, and resumed; the summary says where it ended."""
    job = early(trial, tmp_path, LONG)
    short = run(job, tmp_path / "short", warmup=job["warmup"])
    whole = run(job, tmp_path / "early")
    assert results(whole) == results(short)
    ended = {"updates": job["warmup"], "warmup": LONG}
    assert ended.items() < whole.summary["early_warmup"].items()
    assert short.summary["early_warmup"] is None
    report = audit_run(whole.path)
    assert (report.conformance, report.failures, report.ok) == ("holds", [], True)
    for moment in (1, 2, 4, 6) if nightly else (2, 4):
        folder = tmp_path / f"killed {moment}"
        with injected(at(moment)), pytest.raises(Gone):
            run(job, folder)
        again = pipelines.resume(folder)
        assert results(again) == results(short)
        assert again.summary["early_warmup"] == whole.summary["early_warmup"]


@every_case("an update within the warm-up", often=needs_a_model)
def test_an_update_ends_the_warmup(trial: Trial, tmp_path: Path) -> None:
    """That of a run that was killed within it, and takes the updates in."""
    (tmp_path / "twin").mkdir()
    updated = Updated(trial, tmp_path, inserts=110, stream={"warmup": LONG})
    assert updated.begin < 110
    run = updated.resume()
    require_equal(updated, run)
    assert run.summary["early_warmup"] is None  # it was asked for
    report = audit_run(run.path)
    assert (report.conformance, report.failures, report.ok) == ("holds", [], True)


@every_case("keys whose warm-ups end early", often=needs_a_model)
def test_each_key_ends_its_own_warmup(trial: Trial, tmp_path: Path) -> None:
    together, own = files(trial, tmp_path)
    long = {"stream": {**config(trial, together)["stream"], "warmup": LONG}}
    result = pipelines.replay({**config(trial, together, key="key"), **long}, tmp_path / "run")
    digests = {}
    for seed, key in enumerate(KEYS):
        end = first_other(change_log(70, trial.case.warmup, seed))
        if not end:
            continue
        short = config(trial, own[key])
        short["stream"]["warmup"] = end
        alone = pipelines.replay(short, tmp_path / f"run {key}")
        digests[key] = alone.digest
        for table in ("predictions", "quarantine"):
            assert repr(rows_of(result.path, table, key)) == repr(rows_of(alone.path, table)), (key, table)
    if len(digests) == len(KEYS):
        assert result.digest == digest_of(digests)
    assert audit_run(result.path).ok


# -- trimmed ---------------------------------------------------------------------------------------------------------
# A model that was trimmed, as one of a key without rows for long, goes on as one that was not; memory alone differs.
#
# Trimmed are also models that wait for a warm-up's end, and those that were just restored.

#: Updates before the first model.
WARMUP = 30
#: The file of a line, and its number.
Line = tuple[str, int]
#: The folder of the package that is interrupted.
OURS = f"{Path(raydt.__file__).parent}{os.sep}"


@every_case("trimmed models", often=one_of_each)
def test_a_trimmed_model_goes_on(trial: Trial, tmp_path: Path) -> None:
    draw = random.Random(trial.name)
    stream = trial.stream(tmp_path, 70)
    plain, trimmed = trial.session(stream, 1), trial.session(stream, 1)
    for batch in stream.batches(9):
        if draw.random() < 0.7:
            trimmed.trim()
            if draw.random() < 0.3:  # a copy is as idle
                trimmed = copy.deepcopy(trimmed)
            same(plain, trimmed)
        if draw.random() < 0.2:
            other = trial.session(stream, 1)
            other.restore(*trimmed.state())
            other.trim()
            trimmed = other
        results = [one.take(copy.deepcopy(batch), skip_refused=True) for one in (plain, trimmed)]
        assert results[0].refused == results[1].refused
        np.testing.assert_array_equal(results[0].predictions, results[1].predictions)
        assert plain.digest() == trimmed.digest()
    trimmed.trim()
    same(plain, trimmed)
    assert plain.finish().keys() == trimmed.finish().keys()
    assert plain.digest() == trimmed.digest()
    assert plain.coordinator.statistics() == trimmed.coordinator.statistics()


@every_case("models that are looked at", often=lambda trial: one_of_each(trial) or trial.name.startswith("forest"))
def test_a_look_changes_nothing(trial: Trial, tmp_path: Path) -> None:
    stream = trial.stream(tmp_path, 70)
    features = trial.features(stream.source)
    plain, seen = (InProcessSession(trial.learner, trial.options, features, 1, WorkPlan()) for _ in range(2))
    for batch in stream.batches(9):
        batch = replace(batch, warmup=WARMUP)
        seen.model()
        seen.coordinator.predict(batch.X, batch.sparse)
        results = [one.take(copy.deepcopy(batch), skip_refused=True) for one in (plain, seen)]
        np.testing.assert_array_equal(results[0].predictions, results[1].predictions)
        assert plain.digest() == seen.digest()


#: Calls that change nothing, of which a model may be trimmed before.
LOOKS: dict[str, Callable[[InProcessSession, UpdateBatch], object]] = {
    "trim": lambda session, batch: session.trim(),
    "group": lambda session, batch: session.group(batch),
    "digest": lambda session, batch: session.digest(),
    "model": lambda session, batch: session.model(),
    "state": lambda session, batch: session.state(),
    "predict": lambda session, batch: session.coordinator.predict(batch.X, batch.sparse),
}


@every_case("looks that are interrupted", often=one_of_each)
# A generator that is dropped is closed; Python reports an interruption of that, and goes on.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_look_that_is_interrupted_changes_nothing(trial: Trial, tmp_path: Path) -> None:
    """Each interrupt comes at a line of ours at which none has come in this look, if one is left."""
    draw = random.Random(trial.name)
    stream = trial.stream(tmp_path, 70)
    features = trial.features(stream.source)
    plain, seen = (InProcessSession(trial.learner, trial.options, features, 1, NOTHING_DIVIDED) for _ in range(2))
    done: dict[str, set[Line]] = {name: set() for name in LOOKS}
    for batch in stream.batches(1):
        batch = replace(batch, warmup=WARMUP)
        for name in draw.choices(list(LOOKS), k=3):
            if draw.random() < 0.5:
                seen.trim()
            passed = list(lines_of(LOOKS[name], copy.deepcopy(seen), batch, None))
            left = [line for line in passed if line not in done[name]] or passed
            if left:
                done[name].add(line := draw.choice(left))
                lines_of(LOOKS[name], seen, batch, line)
        (result,) = apply_all([seen], [copy.deepcopy(batch)], skip_refused=True)
        np.testing.assert_array_equal(result.predictions, plain.apply(batch, skip_refused=True).predictions)
        assert plain.digest() == seen.digest()
    assert sum(map(len, done.values())) > 50


def lines_of(
    look: Callable[..., object], session: InProcessSession, batch: UpdateBatch, last: Line | None
) -> dict[Line, None]:
    """Return the lines of ours that a look passes, in order; it is interrupted at the ``last``."""
    passed: dict[Line, None] = {}

    def trace(frame: FrameType, event: str, _: object) -> Any:
        line = frame.f_code.co_filename, frame.f_lineno
        if OURS not in line[0]:
            return None
        if event == "line":
            passed[line] = None
            if line == last:
                sys.settrace(None)
                raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:
        look(session, batch)
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(None)
    return passed


def same(one: InProcessSession, other: InProcessSession) -> None:
    """Assert that models, states and statistics are equal; nothing of that wakes an idle one for good."""
    (whole, groups), (given, others) = one.state(), other.state()
    assert groups.keys() == others.keys()
    for mine, theirs in [(whole, given), (one.model(), other.model()), *((groups[g], others[g]) for g in groups)]:
        assert mine.keys() == theirs.keys()
        for name in mine:
            if name not in ("leaf", "position", "slot"):
                np.testing.assert_array_equal(mine[name], theirs[name], err_msg=name)
    assert one.coordinator.statistics() == other.coordinator.statistics()


def test_idle_keys_are_told_once() -> None:
    awake = Awake()
    assert awake.use(["a", "b"]) == []
    told = [awake.use(["b"]) for _ in range(2 * ROUNDS)]
    assert told == [["a"] if round_ == ROUNDS - 1 else [] for round_ in range(2 * ROUNDS)]
    assert awake.use(["a"]) == []


def test_an_idle_forest_is_small() -> None:
    rng, rows, columns = np.random.default_rng(0), 1000, 10
    X = rng.normal(size=(rows, columns))
    y = X[:, 0] + 0.5 * rng.normal(size=rows) > 0

    def idle() -> ExactForestClassifier:
        model = ExactForestClassifier(n_estimators=10).fit(X, y)
        model.predict(X[:3])
        model._trim()
        return model

    tracemalloc.start()
    try:
        models, held = [], []
        for _ in range(4):
            models.append(idle())
            gc.collect()
            held.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    of_one = (held[-1] - held[1]) / 2  # the first ones load what is kept for all
    assert of_one - 8 * rows * (columns + 3) < 50 * 1024
    np.testing.assert_array_equal(models[0].predict(X), ExactForestClassifier(n_estimators=10).fit(X, y).predict(X))


@pytest.mark.parametrize("kind", ["classes", "numbers", "weights", "not added up"])
def test_a_folded_forest_has_the_arrays_that_it_was_given(kind: str) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 4)).round(1)
    y = rng.integers(0, 3, 200) if kind == "classes" else rng.normal(size=200)
    weight = rng.uniform(0.5, 2.0, 200).round(2) if kind == "weights" else None
    forest = ExactForestClassifier if kind == "classes" else ExactForestRegressor
    model = forest(n_estimators=5).fit(X, y, sample_weight=weight).session_.model()
    if kind == "not added up":
        model["totals"][0] += 1
    again = unfolded(Folded(model))
    assert list(again) == list(model)
    for name, array in model.items():
        assert again[name].dtype == array.dtype
        np.testing.assert_array_equal(again[name], array, err_msg=name)


def test_a_trim_that_is_broken_off_leaves_room_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_memory(*given: Any) -> None:
        raise MemoryError

    options = ConfidenceTreeOptions(kind="confidence_tree", feature_groups=1)
    live = LiveConfidenceTree(options, Features(("a",), (False,), groups=1))
    live.reserve(10)
    live.store.fill(np.arange(10), np.zeros(10, dtype=np.int32), np.arange(10))
    monkeypatch.setattr(Compressed, "__init__", no_memory)
    with pytest.raises(MemoryError):
        live.trim()
    live.reserve(20)
    assert min(len(live.right), len(live.members)) >= live.store.capacity > 10
