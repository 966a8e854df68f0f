"""Models by key: estimators, members of a run, whole runs, and many models in one call."""

from __future__ import annotations

import copy
import random
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pipelines
from pipelines.auditing import audit_run, audit_state
from pipelines.display import run_lines
from pipelines.prediction import export_model, predict_file
from pipelines.reporting import report_of
from raydt import KeyedClassifier, KeyedRegressor, load_model
from raydt.errors import InputError, ModelFileError, RaydtError
from raydt.examples.updates import DELETE, INSERT, BatchResult, UpdateBatch
from raydt.folders.arrays import load_folder, save_folder
from raydt.keyed.groups import GROUPS, digest_of, digest_of_groups, group_of, in_order
from raydt.keyed.members import KeyedJob, Members, apart, apply_all, digest_all, model_of, state_of
from raydt.keyed.packing import open_keys, packed, unpacked
from raydt.keyed.source import SharedSource
from raydt.learners import learners, traits_of
from raydt.learners.base import NOTHING_DIVIDED
from raydt.sessions.session import InProcessSession
from raydt.sources.divided import open_source
from raydt.sources.options import ArrowFiles
from raydt.streams.base import Tally
from raydt.streams.deletion_log import Changelog, RandomUpdates
from raydt.streams.windows import Incremental, SlidingWindow, TimeWindow
from tests.cases import CASES, Trial, change_log, every_case, net, one_of_each, place_of
from tests.confidence_streams import drawn_options, grown, session_of
from tests.keyed_runs import KEYS_CASES as KEYS
from tests.keyed_runs import config, files
from tests.keyed_runs import rows_of_cases as rows_of
from tests.nets.test_interrupts import Data
from tests.small_tables import Row, derived, examples, random_changes, table_of, written
from tests.strategies import Stream, cuts, fudyadt_options, long_streams, streams
from tests.volume import examples as examples_pool
from tests.volume import nightly

# -- keyed estimators ------------------------------------------------------------------------------------------------
# Models by key are, bit for bit, a separate estimator for each key that is given the rows of this key alone.
#
# The twin is a dictionary of estimators. Random calls over keys that are made to be mixed up; a call that any twin
# refuses must be refused by the whole, and change no key.

#: Keys that look alike, or that a file or a hash may not like: in the life of a model all are text, or all numbers.
TEXTS: tuple[Any, ...] = ("a", "", "1", "a\0", "A", "nan", "k" * 3000, "\ud800", "None", "01")
NUMBERS: tuple[Any, ...] = (0, 1, -1, 2**62, 2**53 + 1, 2**53, -(2**63) + 1, 10, 7)
CALLS = ("partial_fit", "partial_fit", "forget", "replace_examples", "forget_examples", "fit", "bad row")
KeyList = list[Any]


class Twins:
    """An estimator for each key."""

    def __init__(self, data: Data) -> None:
        self.data, self.models, self.next = data, dict[Any, Any](), 0
        fitted = data.estimator()
        self.make = lambda: type(fitted)(**fitted.get_params())
        self.owner: dict[int, Any] = {}  # of each live id

    def each(self, keys: KeyList) -> dict[Any, list[int]]:
        """Rows of each key."""
        rows: dict[Any, list[int]] = {}
        for row, key in enumerate(keys):
            rows.setdefault(key, []).append(row)
        return rows

    def part(self, rows: list[Row], places: list[int]) -> tuple[Any, Any]:
        X, y = self.data.both(rows)
        return X.take(pa.array(places)), [y[place] for place in places]

    def learn(self, how: str, rows: list[Row], keys: KeyList, weights: Any) -> None:
        if how == "fit":
            self.models, self.owner, self.next = {}, {}, 0
        for key, places in self.each(keys).items():
            model = self.models.setdefault(key, self.make())
            ids = [self.next + place for place in places]
            of_key = None if weights is None else [weights[place] for place in places]
            getattr(model, how)(*self.part(rows, places), ids=ids, sample_weight=of_key)
            self.owner |= dict.fromkeys(ids, key)
        self.next += len(rows)

    def forget(self, ids: list[int]) -> None:
        for key in {self.owner[one]: None for one in ids}:
            self.models[key].forget([one for one in ids if self.owner[one] == key])
        for one in ids:
            del self.owner[one]

    def replace(self, ids: list[int], rows: list[Row], keys: KeyList, weights: Any) -> None:
        each, gone = self.each(keys), dict[Any, list[int]]()
        for one in ids:
            gone.setdefault(self.owner.pop(one), []).append(one)
        for key in gone:
            if key not in each:
                self.models[key].forget(gone[key])
        for key, places in each.items():
            new = [self.next + place for place in places]
            of_key = None if weights is None else [weights[place] for place in places]
            if key in self.models:
                part = self.part(rows, places)
                self.models[key].replace_examples(gone.get(key, []), *part, new_ids=new, sample_weight=of_key)
            else:
                self.models[key] = self.make()
                self.models[key].partial_fit(*self.part(rows, places), ids=new, sample_weight=of_key)
            self.owner |= dict.fromkeys(new, key)
        self.next += len(rows)

    def forget_equal(self, rows: list[Row], keys: KeyList) -> None:
        for key, places in self.each(keys).items():
            receipt = self.models[key].forget_examples(*self.part(rows, places))
            for one in receipt.ids.tolist():
                del self.owner[one]


def same(keyed: Any, twins: Twins, asked: Any) -> None:
    """Require equal models and predictions."""
    assert list(keyed.models_) == list(twins.models)
    digests = {key: model.digest() for key, model in twins.models.items()}
    assert {key: model.digest() for key, model in keyed.models_.items()} == digests
    assert keyed.digest() == digest_of(digests)
    assert sorted(keyed.live_ids_.tolist()) == sorted(twins.owner)
    keys = [list(twins.models)[row % len(twins.models)] for row in range(asked.num_rows)]
    labels = keyed.predict(asked, keys=keys)
    shares = keyed.predict_proba(asked, keys=keys) if hasattr(keyed, "predict_proba") else None
    for key, places in twins.each(keys).items():
        part, model = asked.take(pa.array(places)), twins.models[key]
        np.testing.assert_array_equal(labels[places], model.predict(part))
        if shares is not None:
            of_key = np.zeros((len(places), len(keyed.classes_)))
            for column, label in enumerate(model.classes_.tolist()):
                of_key[:, keyed.classes_.tolist().index(label)] = model.predict_proba(part)[:, column]
            np.testing.assert_array_equal(shares[places], of_key)


def _steps(keys: tuple[Any, ...]) -> Any:
    """Draw calls, each with keys."""
    of_call = st.lists(st.sampled_from(keys), min_size=1, max_size=9)
    return st.lists(st.tuples(st.sampled_from(CALLS), of_call, st.integers(0, 10**6)), min_size=2, max_size=6)


STEPS = _steps(TEXTS) | _steps(NUMBERS)


class Call:
    """A call of random rows, for the estimator by key and for the twins."""

    def __init__(self, data: Data, name: str, keys: KeyList, drawn: int, live: list[int]) -> None:
        pool = [{**derived(row), **row} for row in examples(60, 11, "xyz"[: max(2, data.trial.case.classes)])]
        self.name, self.keys = name, keys * (1 + drawn % 4)
        self.rows = [pool[(drawn + 7 * i) % len(pool)] for i in range(len(self.keys))]
        self.weights = [row["weight"] for row in self.rows] if data.trial.case.weighted else None
        self.gone = [one for one in live if (one * 31 + drawn) % 4 == 0]
        self.X, self.y = data.both(self.rows)
        self.given: dict[str, Any] = {"keys": self.keys}
        if all(isinstance(key, str) and key != "\ud800" for key in keys):
            self.X, self.given = self.X.append_column("store", pa.array(self.keys)), {}

    def of_keyed(self, e: Any) -> None:
        if self.name == "forget":
            e.forget(self.gone)
        elif self.name == "replace_examples":
            e.replace_examples(self.gone, self.X, self.y, sample_weight=self.weights, **self.given)
        elif self.name == "forget_examples":
            e.forget_examples(self.X, self.y, **self.given)
        elif self.name == "bad row":
            e.partial_fit(self.X, [*self.y[:-1], None], **self.given)
        else:
            getattr(e, self.name)(self.X, self.y, sample_weight=self.weights, **self.given)

    def of_twins(self, t: Twins) -> None:
        if self.name == "forget":
            t.forget(self.gone)
        elif self.name == "replace_examples":
            t.replace(self.gone, self.rows, self.keys, self.weights)
        elif self.name == "forget_examples":
            t.forget_equal(self.rows, self.keys)
        elif self.name == "bad row":
            raise ValueError("refused")
        else:
            t.learn(self.name, self.rows, self.keys, self.weights)


@every_case("models by key", often=one_of_each)
@pytest.mark.filterwarnings("ignore:.* has never seen")  # a key with few rows has few categories
@pytest.mark.filterwarnings("ignore:.*the weights of .* rows sum to:UserWarning")  # and little weight
@settings(max_examples=2)
@given(steps=STEPS)
def test_a_keys_model_is_that_of_its_rows_alone(trial: Trial, steps: list[tuple[str, KeyList, int]]) -> None:
    if not trial.shipped:
        pytest.skip("a learner of another package may have no estimator")
    data = Data(trial)
    twins = Twins(data)
    keyed: Any = (KeyedClassifier if trial.case.classes else KeyedRegressor)(twins.make(), "store")
    # ``fit`` of a twin refuses weights of classes that its key does not have.
    weighs = trial.options.model_dump().get("class_weight")
    for number, (name, keys, drawn) in enumerate(steps):
        name = "partial_fit" if not number or (name == "fit" and weighs) else name
        call, after = Call(data, name, keys, drawn, sorted(twins.owner)), copy.deepcopy(twins)
        try:
            call.of_twins(after)
        except (RaydtError, ValueError, KeyError):
            before = keyed.__dict__.copy()
            with pytest.raises((RaydtError, ValueError)):
                call.of_keyed(keyed)
            assert keyed.__dict__ == before
        else:
            call.of_keyed(keyed)
            twins = after
        if keyed.__sklearn_is_fitted__():
            same(keyed, twins, data.asked)
    if not keyed.__sklearn_is_fitted__():
        return
    with tempfile.TemporaryDirectory() as folder:
        keyed.save(Path(folder) / "state", with_examples=True)
        keyed.save(Path(folder) / "model")
        state, model = load_model(Path(folder) / "state"), load_model(Path(folder) / "model")
    same(state, twins, data.asked)
    keys = [next(iter(twins.models))] * data.asked.num_rows
    np.testing.assert_array_equal(model.predict(data.asked, keys=keys), keyed.predict(data.asked, keys=keys))
    for one in (state, keyed):
        one.partial_fit(*data.both(data.first[:3]), keys=keys[:3])
    assert state.digest() == keyed.digest()


# -- keyed members ---------------------------------------------------------------------------------------------------
# A key's model, scores and stream are those of a run over the rows of its key alone, however rows arrive.

KEYS_MEMBERS = ["north", "", "7", "two\nlines", "long" * 50]


def models(warmup: int) -> dict[str, Any]:
    return {
        "changelog": Changelog(warmup=warmup, on_error="skip"),
        "incremental": Incremental(warmup=warmup, on_error="skip"),
        "sliding_window": SlidingWindow(warmup=warmup, window=max(12, warmup), on_error="skip"),
        "random_updates": RandomUpdates(warmup=warmup, on_error="skip"),
        "time_window": TimeWindow(duration=15, lateness=4, on_error="skip", warmup=0),
    }


def rows_of_members(trial: Trial, changes: bool, seed: int) -> list[dict[str, Any]]:
    """Rows of several keys among each other; the first ones of each key are inserts."""
    draw = random.Random(seed)
    logs = {}
    for place, key in enumerate(KEYS_MEMBERS):
        log = change_log(90 if nightly else 40, trial.case.warmup, seed * 100 + place)
        if not changes:
            log = [{**row, "id": f"e{i}"} for i, row in enumerate(log) if row["op"] == "insert"]
        logs[key] = [{**row, "key": key, "ts": 2 * i + draw.randrange(6)} for i, row in enumerate(log)]
    mixed = []
    while any(logs.values()):
        key = draw.choice([key for key, log in logs.items() if log])
        mixed.append(logs[key].pop(0))
    return mixed


def write(path: Path, rows: list[dict[str, Any]]) -> str:
    table = table_of(rows)
    keys = pa.array([row["key"] for row in rows], pa.string())
    return str(written(path, table.append_column("key", keys)))


def options(trial: Trial, path: str, changes: bool) -> ArrowFiles:
    columns = {**trial.columns, "op": "op"} if changes else {**trial.columns, "ts": "ts"}
    return ArrowFiles.model_validate({"kind": "arrow", "path": path, "key": "key", **columns})


def alone(trial: Trial, model: Any, source_options: ArrowFiles, size: int) -> dict[str, Any]:
    """Outcome of the rows of one key in a file of their own."""
    source = open_source(source_options, reading=trial.reading)
    stream = model.make(source)
    session = InProcessSession(trial.learner, trial.options, trial.features(source), 1, NOTHING_DIVIDED)
    tally = Tally(stream)
    for batch in stream.batches(size):
        tally.record(batch, session.apply(batch, skip_refused=True), 0.0)
        tally.record_skipped(stream.take_skipped())
    tally.record_skipped(stream.take_skipped())
    session.finish()
    return outcome(session, stream, tally)


def outcome(session: InProcessSession, stream: Any, tally: Tally) -> dict[str, Any]:
    state = stream.state()
    state["source"] = {name: value for name, value in state["source"].items() if name != "keys"}
    counts = tally.state()
    for name in ("seconds", "statistics"):
        counts.pop(name)
    traffic = ("rounds", "bytes_exchanged")
    statistics = {name: count for name, count in session.statistics().items() if name not in traffic}
    return {"digest": session.digest(), "stream": repr(state), "tally": repr(counts), "statistics": statistics}


@net(
    "models by key",
    "trial, name",
    product(CASES, models(0)),
    lambda trial, name: one_of_each(trial) and (place_of(trial) - list(models(0)).index(name)) % 5 == 0,
)
def test_a_key_is_a_run_of_its_own(trial: Trial, name: str, tmp_path: Path) -> None:
    """Also if all keys are saved and restored on the way, whatever the blocks in which rows are read."""
    if trial.needs_warmup and name == "time_window":
        pytest.skip("the learner needs a warm-up")
    changes, model = name == "changelog", models(trial.case.warmup)[name]
    rows = rows_of_members(trial, changes, seed=3)
    whole = options(trial, write(tmp_path / "all.arrow", rows), changes)
    expected = {}
    for place, key in enumerate(KEYS_MEMBERS):
        own = [row for row in rows if row["key"] == key]
        path = write(tmp_path / f"{place}.arrow", own)
        expected[key] = alone(trial, model, whole.model_copy(update={"path": path, "key": None}), 7)

    source = open_source(whole, reading=trial.reading)
    source._chunk_rows = 13  # type: ignore[attr-defined]
    job = KeyedJob(
        SharedSource(source, trial.reading),  # type: ignore[arg-type]
        trial.learner,
        trial.options,
        trial.features(source),
        model,
        size=5,
    )
    members, blocks, changed = Members(job), 0, set[int]()
    for block in source.rows():
        members.learn(job.shared.split(block))
        blocks += 1
        if blocks % 4 == 0:
            changed.update(members.take_changed())
            groups = [group for group in range(GROUPS) if members.of_group(group)]
            held = [unpacked(packed(*members.states(group))) for group in groups]
            members = Members(replace(job))
            for states in held:
                members.restore(states)
    members.finish()
    assert blocks > 4
    found = {key: outcome(one.session, one.stream, one.tally) for key, one in members.by_key.items()}
    assert found == expected
    digests = {key: entry["digest"] for key, entry in expected.items()}
    assert digest_of(digests) == digest_of_groups(members.digest_of_groups(range(GROUPS)))
    assert changed.union(members.take_changed()) == {group_of(key) for key in KEYS_MEMBERS}


# -- keyed runs ------------------------------------------------------------------------------------------------------
# Runs with a model for each key: predictions, tables, audits and resumes are those of separate runs.


@every_case("runs by key", often=one_of_each, turn=4)
def test_a_key_of_a_whole_run_is_a_run_of_its_own(trial: Trial, tmp_path: Path) -> None:
    whole, own = files(trial, tmp_path)
    result = pipelines.replay(config(trial, whole, key="key"), tmp_path / "run")
    saved = open_keys(f"{result.path}/model")
    assert saved is not None
    assert str(result.summary["keys"]) in run_lines(result.summary, result.path)
    counts = dict.fromkeys(traits_of(trial.options).counts, 0)
    digests, expected = {}, {}
    for key, path in own.items():
        alone = pipelines.replay(config(trial, path), tmp_path / f"run {key}")
        digests[key] = alone.digest
        counts = {name: n + alone.summary[name] for name, n in counts.items()}
        for table in ("predictions", "quarantine", "metrics"):
            assert repr(rows_of(result.path, table, key)) == repr(rows_of(alone.path, table)), (key, table)
        _, components = load_folder(f"{alone.path}/model")
        held, mine = saved.saved(key).arrays, components["arrays"]
        assert {n: array.tobytes() for n, array in held.items()} == {n: array.tobytes() for n, array in mine.items()}
        expected[key] = predict_file(alone.path, own[key], tmp_path / f"{len(expected)}.parquet", on_error="skip")
    assert result.digest == digest_of(digests)
    assert {name: result.summary[name] for name in counts} == counts
    assert result.summary["updates"] == sum(len(change_log(70, trial.case.warmup, seed)) for seed in range(3))
    assert audit_run(result.path).ok
    assert audit_run(result.path, KEYS[0]).ok
    last = max(Path(result.path, "checkpoints").glob("[0-9]*"), key=lambda one: int(one.name))
    assert audit_state(last).ok

    found = predict_file(result.path, whole, tmp_path / "all.parquet", on_error="skip", id_column="key")
    table = pq.read_table(tmp_path / "all.parquet").to_pylist()
    for place, (key, one) in enumerate(expected.items()):
        alone = pq.read_table(tmp_path / f"{place}.parquet").to_pylist()
        mine = [row for row in table if row["key"] == key]
        assert repr([[row[name] for name in alone[0]] for row in mine]) == repr([list(row.values()) for row in alone])
        assert one["rows"] == len(mine)
    assert found["without_model"] == 0


def test_damage_of_one_key_is_found_and_a_stranger_has_no_prediction(tmp_path: Path) -> None:
    trial = next(one for one in CASES if one.learner.kind == "fudyadt")
    whole, _own = files(trial, tmp_path)
    result = pipelines.replay(config(trial, whole, key="key"), tmp_path / "run")
    strange = pa.ipc.open_file(str(whole)).read_all()
    strange = strange.set_column(strange.schema.get_field_index("key"), "key", pa.array(["nobody"] * len(strange)))
    found = predict_file(
        result.path, written(tmp_path / "new.arrow", strange), tmp_path / "new.parquet", on_error="skip"
    )
    assert found["without_model"] == found["rows"] - found["skipped"]
    assert found["unknown_keys"] == ["nobody"]
    assert pq.read_table(tmp_path / "new.parquet")["prediction"].null_count == found["rows"]
    with pytest.raises(ModelFileError, match="no model for the key"):
        audit_run(result.path, "nobody")
    with pytest.raises(InputError, match="--key"):
        export_model(result.path, "sklearn", tmp_path / "m.skops")

    last = max(Path(result.path, "checkpoints").glob("[0-9]*"), key=lambda one: int(one.name))
    meta, components = load_folder(last)
    name = next(name for name in components if name.startswith("group-"))
    held = unpacked(components[name])
    (key,) = held
    held[key]["coordinator"]["counts"] += 1
    for entry in ("kind", "raydt_version", "format_version"):
        meta.pop(entry)
    save_folder(tmp_path / "damaged", "state", meta, {**components, name: packed(held)})
    report = audit_state(tmp_path / "damaged")
    assert report.conformance == "violated"
    assert f"key {key!r}: " in report.failures[0]


def test_the_report_shows_all_keys_and_one_on_demand(tmp_path: Path) -> None:
    trial = next(one for one in CASES if one.learner.kind == "gbdt")
    whole, _ = files(trial, tmp_path)
    given = config(trial, whole, key="key")
    result = pipelines.replay({**given, "output": {**given["output"], "report": True}}, tmp_path / "run")
    page = Path(result.path, "report.html").read_text()
    rows = ds.dataset(Path(result.path) / "keys").to_table().to_pylist()
    assert [row["key"] for row in rows] == in_order(KEYS)
    assert sum(row["updates"] for row in rows) == result.summary["updates"]
    assert result.digest == digest_of({row["key"]: row["digest"] for row in rows})
    for key in KEYS:
        assert f">{key}</" in page
    where = report_of([result.path], str(tmp_path / "north.html"), "north")
    assert "key north" in Path(where).read_text()
    for arguments in (([result.path], str(tmp_path / "none.html"), "none"), ([result.path], None, "north")):
        with pytest.raises(RaydtError):
            report_of(*arguments)


@every_case("keys with a deletion log", often=lambda trial: trial.learner.kind == "gbdt" and one_of_each(trial))
@pytest.mark.parametrize("seed", range(2))
def test_a_deletion_log_names_no_keys(trial: Trial, seed: int, tmp_path: Path) -> None:
    """Each key has what the log says of its own rows, at the places among these; also resumed on the way."""
    draw = random.Random(seed)
    rows, entries = [], []
    for i, row in enumerate(change_log(260, 260, seed)):
        rows.append({**row, "op": None, "id": f"e{i}", "key": draw.choice(KEYS)})
        if i >= 20 + 6 * trial.case.warmup and draw.random() < 0.5:
            entries.append((draw.randrange(i + 1), i + draw.randrange(4) + 1 if draw.random() < 0.8 else None))
    table = table_of(rows).append_column("key", pa.array([row["key"] for row in rows], pa.string()))
    whole = written(tmp_path / "all.arrow", table)
    log = pa.table({"id": [f"e{one}" for one, _ in entries], "after": pa.array([at for _, at in entries], pa.int64())})
    given = config(trial, whole, key="key")
    del given["source"]["op"]
    given["stream"] |= {"model": "deletion_log", "deletion_log": str(written(tmp_path / "log.arrow", log))}
    result = pipelines.replay(given, tmp_path / "run")
    digests = {}
    for place, key in enumerate(KEYS):
        mine = [i for i, row in enumerate(rows) if row["key"] == key]
        # Of deletions between the same two rows of the key, the first is the one that is due first.
        due = sorted(entries, key=lambda entry: len(rows) if entry[1] is None else entry[1])
        own = [(one, None if at is None else sum(i < at for i in mine)) for one, at in due if one in mine]
        path = written(tmp_path / f"{place}.arrow", table_of([rows[i] for i in mine]))
        after = pa.array([at for _, at in own], pa.int64())
        own_log = written(
            tmp_path / f"log {place}.arrow", pa.table({"id": [f"e{one}" for one, _ in own], "after": after})
        )
        alone = config(trial, path)
        del alone["source"]["op"]
        alone["stream"] |= {"model": "deletion_log", "deletion_log": str(own_log)}
        run = pipelines.replay(alone, tmp_path / f"run {place}")
        digests[key] = run.digest
        for name in ("predictions", "metrics"):
            assert repr(rows_of(result.path, name, key)) == repr(rows_of(run.path, name)), (key, name)
    assert result.digest == digest_of(digests)
    assert result.summary["deletes"] > 0
    assert audit_run(result.path).ok


# -- keyed pool ------------------------------------------------------------------------------------------------------
# One batch of each of many models: taken together they give what a loop of ``session.apply`` gives.

FUDYADT = learners()["fudyadt"]
#: What is asked of a model, and of many at once.
LOOKS: tuple[tuple[Any, Any], ...] = (
    (InProcessSession.digest, digest_all),
    (model_of, lambda sessions: unpacked_of(apart(sessions, model_of, lambda alike, models: alike.models(models)))),
    (state_of, lambda sessions: unpacked_of(apart(sessions, state_of, lambda alike, models: alike.states(models)))),
)


def unpacked_of(found: tuple[list[dict[str, Any]], dict[str, Any]]) -> list[dict[str, Any]]:
    """What at most ten sessions gave, each apart; the columns of a model begin at its name."""
    own, columns = found
    columns = {path if "/" in path else f"arrays/{path}": column for path, column in columns.items()}
    return list(unpacked(packed(dict(enumerate(own)), columns)).values())


#: What a result and the statistics say about the work, not about the model.
WORK, TRAFFIC = ("seconds", "place"), ("rounds", "bytes_exchanged")


def shown(value: Any) -> Any:
    """A value as something that is equal to another of the same kinds and bits."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, dict):
        return {name: shown(one) for name, one in value.items() if name not in (*WORK, *TRAFFIC)}
    return tuple(map(shown, value)) if isinstance(value, tuple) else value


def assert_same_result(together: BatchResult, alone: BatchResult) -> None:
    """Assert that all is equal but what says how the work was done."""
    for field in fields(BatchResult):
        if field.name not in WORK:
            assert shown(getattr(together, field.name)) == shown(getattr(alone, field.name)), field.name


def assert_same_models(pooled: Sequence[InProcessSession], single: Sequence[InProcessSession]) -> None:
    """Assert that models are equal, digests, models and states, also where one call gives those of all."""
    for ask, ask_all in LOOKS:
        alone = [shown(ask(one)) for one in single]
        assert [shown(one) for one in ask_all(pooled)] == alone
        assert [shown(ask(one)) for one in pooled] == alone


def drive(
    new_session: Callable[[int], InProcessSession],
    batches: Sequence[Iterator[UpdateBatch]],
    skip: bool,
    handover: int = -1,
) -> int:
    """Take the batches of all keys, one of each at a time; at the end delete all. Returns how many were pooled.

    After round ``handover`` new sessions go on from the states, or from copies of the sessions, in turn.
    """
    pooled, single = ([new_session(key) for key in range(len(batches))] for _ in range(2))
    last: list[UpdateBatch | None] = [None] * len(batches)
    left, taken, rounds = list(range(len(batches))), 0, 0
    while left:
        some = [(key, batch) for key in left if (batch := next(batches[key], None)) is not None]
        left = [key for key, _ in some]
        if not some:
            break
        given_ = [batch for _, batch in some]
        groups = [pooled[key].group(batch) for key, batch in some]
        taken += sum(group is not None for group in groups)
        results = apply_all([pooled[key] for key in left], given_, skip)
        for (key, batch), result in zip(some, results, strict=True):
            assert_same_result(result, single[key].apply(batch, skip_refused=skip))
            last[key] = batch
            if result.applied < len(batch):
                left.remove(key)
        if rounds % 3 == 0:
            assert digest_all(pooled) == [other.digest() for other in single]
        if rounds == handover:
            for key, session in enumerate(pooled):
                if key % 2:
                    pooled[key] = copy.deepcopy(session)
                else:
                    pooled[key] = new_session(key)
                    pooled[key].restore(*session.state())
        rounds += 1
    assert_same_models(pooled, single)
    keys = [key for key, batch in enumerate(last) if batch is not None]
    everything = [deletions(single[key], last[key]) for key in keys]
    together = apply_all([pooled[key] for key in keys], everything, skip)
    for key, batch, result in zip(keys, everything, together, strict=True):
        assert_same_result(result, single[key].apply(batch, skip_refused=skip))
    assert_same_models(pooled, single)
    return taken


def deletions(session: InProcessSession, last: UpdateBatch | None) -> UpdateBatch:
    """Delete all examples, the smallest id first."""
    assert last is not None
    store = session.coordinator.store
    ids = np.sort(store.id[store.slots()])
    start = session.coordinator._seq if hasattr(session.coordinator, "_seq") else last.stop
    none = {"op": np.full(len(ids), DELETE, dtype=np.int8), "id": ids, "X": last.X[:0], "y": last.y[:0]}
    sparse = None if last.sparse is None else last.sparse[np.arange(0)]
    weight = None if last.weight is None else last.weight[:0]
    return replace(last, start=start, row=np.full(len(ids), -1), sparse=sparse, weight=weight, **none)


@every_case("many models at once", often=one_of_each)
def test_every_learner(trial: Trial, tmp_path: Path) -> None:
    """Three keys with change logs of their own; warm-ups end inside a batch."""
    draw = random.Random(trial.name)
    logs = []
    for key in range(3):
        changes = random_changes(random.Random(f"key {key}"), 130, trial.case.warmup)
        path = written(tmp_path / f"{key}.arrow", table_of(changes))
        config = trial.config(tmp_path, source={"path": str(path)})
        logs.append(Changelog.model_validate(config["stream"]).make(trial.source(config)))

    def new_session(key: int) -> InProcessSession:
        return InProcessSession(trial.learner, trial.options, trial.features(logs[key].source))

    def batches(key: int) -> Iterator[UpdateBatch]:
        while True:
            batch = next(logs[key].batches(draw.choice((1, 3, 4, 7, 40))), None)
            if batch is None:
                return
            yield batch

    drive(new_session, [batches(key) for key in range(3)], skip=True, handover=5)


@pytest.mark.timeout(900)
@examples_pool(40)
@given(
    st.lists(st.one_of(streams(refusals=True), long_streams(events=160)), min_size=1, max_size=4),
    fudyadt_options(),
    cuts(),
    st.booleans(),
    st.integers(0, 30),
)
def test_fudyadt(drawn: list[Stream], options: dict[str, Any], sizes: list[int], skip: bool, handover: int) -> None:
    drawn = [one for one in drawn if one.categorical == drawn[0].categorical]
    settings = FUDYADT.Options.model_validate({"kind": "fudyadt", **options})

    def new_session(key: int) -> InProcessSession:
        return InProcessSession(FUDYADT, settings, drawn[key].features)

    drive(new_session, [one.batches(sizes) for one in drawn], skip, handover)


@pytest.mark.timeout(900)
@examples_pool(40)
@given(st.integers(0, 2**32 - 1), st.integers(2, 4), cuts(), st.booleans(), st.integers(0, 30))
def test_confidence_tree(seed: int, classes: int, sizes: list[int], skip: bool, handover: int) -> None:
    rng = np.random.default_rng(seed)
    fixed = {"leaf_prediction": "adaptive_inherited"} if rng.random() < 0.5 else {}  # the default
    options = drawn_options(rng, classes, "hoeffding", grace_period=int(rng.choice((4, 15, 40))), **fixed)
    drawn = [grown(seed + key, 200, classes, refusals=True) for key in (0, 0, 1)]
    drive(lambda key: session_of(drawn[key], options, 1), [one.batches(sizes) for one in drawn], skip, handover)


@pytest.mark.parametrize(("kind", "more"), [("fudyadt", {}), ("confidence_tree", {"grace_period": 40})])
def test_batches_of_built_trees_are_taken_together(kind: str, more: dict[str, Any]) -> None:
    """The twin tests would hold for a loop, too."""
    learner, rng = learners()[kind], np.random.default_rng(0)
    options = learner.Options.model_validate({"kind": kind, **more})
    drawn = [window(rng, 120, 30) for _ in range(3)]

    def new_session(key: int) -> InProcessSession:
        return InProcessSession(learner, options, drawn[key].features)

    rounds = -(-len(drawn[0]) // 4)
    assert drive(new_session, [one.batches([4]) for one in drawn], skip=False) > 3 * rounds * 0.75


def test_built_trees_are_looked_at_together() -> None:
    """Of some hundred rows, so that the tree over these has inner nodes; the twin tests would hold for a loop, too."""
    rng = np.random.default_rng(5)
    drawn = [window(rng, rows + 40, rows) for rows in (6, 30, 33, 60, 130, 250)]
    sessions = [InProcessSession(FUDYADT, FUDYADT.Options(kind="fudyadt"), one.features) for one in drawn]
    for session, one in zip(sessions, drawn, strict=True):
        for batch in one.batches([40]):
            apply_all([session], [batch])
    assert all(session.coordinator.alike() is not None for session in sessions)
    alone = [copy.deepcopy(session) for session in sessions]
    assert all(session.coordinator.alike() is None for session in alone)  # a copy lists no arrays
    assert_same_models(sessions, alone)


@pytest.mark.turns(2)
@pytest.mark.parametrize("size", [4, 40])
@pytest.mark.parametrize(
    ("noise", "more"),
    [
        (1.0, {"delta": 1e-9, "tie_threshold": 0.0}),
        (0.5, {"delta": 1e-3, "tie_threshold": 0.36}),
        (0.2, {"delta": 0.6, "tie_threshold": 0.0}),
    ],
    ids=["no split", "ties", "splits"],
)
def test_leaves_are_checked_within_the_call(noise: float, more: dict[str, Any], size: int) -> None:
    """Also several times in a batch, after a split of it, and where one key splits and another does not."""
    learner, rng = learners()["confidence_tree"], np.random.default_rng(3)
    options = learner.Options.model_validate(
        {"kind": "confidence_tree", "rule": "hoeffding", "grace_period": 7, "renew_bins": 0, **more}
    )
    drawn = [window(rng, 700, 120, noise) for _ in range(3)]
    alone = 0

    class Counted(InProcessSession):
        def apply(self, batch: UpdateBatch, *, skip_refused: bool = False) -> BatchResult:
            nonlocal alone
            alone += 1
            return super().apply(batch, skip_refused=skip_refused)

    pooled, single = (
        [kind(learner, options, drawn[0].features) for _ in drawn] for kind in (Counted, InProcessSession)
    )
    for batches in zip(*(one.batches([size]) for one in drawn), strict=True):
        results = apply_all(pooled, batches)
        for result, other, batch in zip(results, single, batches, strict=True):
            assert_same_result(result, other.apply(batch))
    assert_same_models(pooled, single)
    totals = [session.statistics() for session in single]
    checks, splits, ties = (sum(one[name] for one in totals) for name in ("checks", "splits", "ties"))
    assert alone == 3 * -(-115 // size)  # the warm-ups alone go the usual way
    assert checks > splits + 100
    assert (splits > 5) == (more["delta"] > 1e-9)
    assert (ties > 5) == (more["tie_threshold"] > 0)


@pytest.mark.parametrize("kind", ["fudyadt", "confidence_tree"])
def test_a_tolerated_refusal_does_not_end_a_batch(kind: str) -> None:
    learner, drawn = learners()[kind], window(np.random.default_rng(3), 60, 30)
    pooled, single = (InProcessSession(learner, learner.Options(kind=kind), drawn.features) for _ in range(2))
    refused = 0
    for batch in drawn.batches([8]):
        deletes = batch.op == DELETE
        batch = replace(batch, id=np.where(deletes, 10**9, batch.id), tolerated=deletes if deletes.any() else None)
        (result,), other = apply_all([pooled], [batch]), single.apply(batch)
        assert_same_result(result, other)
        assert result.applied == len(batch)
        refused += len(result.refused)
    assert refused > 20
    assert_same_models([pooled], [single])


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_bins_of_rows_whose_making_is_broken_off_are_made_again(
    error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tree that was trimmed finds the bins of its rows again before its batch is taken, which is no change yet."""
    learner, drawn = learners()["confidence_tree"], window(np.random.default_rng(3), 60, 30)
    options = learner.Options(kind="confidence_tree", grace_period=5)
    pooled, single = (InProcessSession(learner, options, drawn.features) for _ in range(2))

    def broken_off(*given: Any) -> None:
        raise error

    for batch in drawn.batches([8]):
        if batch.start > drawn.warmup:
            pooled.trim()
            with monkeypatch.context() as patch:
                patch.setattr("raydt.learners.confidence_tree.shard.encode", broken_off)
                with pytest.raises(error):
                    apply_all([pooled], [batch])
            assert pooled.whole
        (result,) = apply_all([pooled], [batch])
        assert_same_result(result, single.apply(batch))
    assert_same_models([pooled], [single])


def window(rng: np.random.Generator, n: int, rows: int, noise: float = 0.0) -> Stream:
    """A window of the last ``rows`` of ``n`` rows, a share of them with any label."""
    events = [(op, i - rows * (op == DELETE)) for i in range(n) for op in (INSERT, DELETE) if op == INSERT or i >= rows]
    X = rng.normal(size=(n, 3)).round(1)
    label = np.where(rng.random(n) < noise, rng.random(n) < 0.5, X[:, 0] > 0)
    of_rows = tuple(tuple(X[i]) if op == INSERT else None for op, i in events)
    y = tuple(float(label[i]) if op == INSERT else 0.0 for op, i in events)
    op, ids = zip(*events, strict=True)
    return Stream(op, ids, of_rows, y, (False,) * 3, True, warmup=rows - 5)
