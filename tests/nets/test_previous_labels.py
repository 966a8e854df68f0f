"""Labels of the rows before as features: a run with ``stream.previous_labels`` is the run of a file that has them.

The twin writes the features into the file, by a loop over its rows. Model, predictions and scores of the two runs are
the same bits, and whoever predicts without the columns gets what the last labels of the run say.
"""

from __future__ import annotations

import functools
import json
import random
from collections import defaultdict
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pipelines
from pipelines.auditing import audit_run
from pipelines.config import load_config
from pipelines.prediction import predict_file
from pipelines.purging import purge
from pipelines.serving.application import Application, Loader, SnapshotReader
from pipelines.updating import update
from pipelines.validation import look_at
from raydt import load_model
from raydt.errors import ConfigError, InputError
from raydt.estimators import estimator_of
from raydt.exchange.messages import injected
from tests.cases import CASES, Trial, every_case, one_of_each
from tests.refusals import refused
from tests.small_tables import examples, spelled, table_of, written
from tests.storage_faults import Gone, at

ROWS = 160
KEYS = ("north", "", "two\nlines")


def takes(trial: Trial) -> bool:
    """Whether the learner has dense features that may be missing."""
    return trial.reading.dense and trial.reading.missing


TAKERS = [trial for trial in CASES if takes(trial)]


def rows_of(trial: Trial, *, bad: bool) -> list[dict[str, Any]]:
    """Rows of several keys whose labels persist now and then; some lack their label."""
    draw, last = random.Random(trial.name), None
    rows = [{**row} for row in table_of(examples(ROWS, 3, "xyz"[: max(2, trial.case.classes)])).to_pylist()]
    label = trial.columns["label"]
    for row in rows:
        row["key"] = draw.choice(KEYS)
        if last is not None and draw.random() < 0.6:
            row[label] = last
        last = row[label]
        if bad and draw.random() < 0.04:
            row[label] = None
    return rows


def with_columns(rows: list[dict[str, Any]], label: str, k: int, *, by_key: bool) -> list[dict[str, Any]]:
    """The rows with the labels of the k good rows before each, the newest first."""
    seen, found = defaultdict[Any, list[Any]](list), []
    for row in rows:
        before = seen[row["key"] if by_key else None]
        names = {f"previous_label_{lag}": before[-lag] if lag <= len(before) else None for lag in range(1, k + 1)}
        found.append({**row, **names})
        if row[label] is not None:
            before.append(row[label])
    return found


def written_rows(path: Path, rows: list[dict[str, Any]], label: str) -> Path:
    """A file of the rows; further columns are of the type of the label."""
    table = table_of(rows).append_column("key", pa.array([row["key"] for row in rows], pa.string()))
    for name in [name for name in rows[0] if name.startswith("previous_label_")]:
        table = table.append_column(name, pa.array([row[name] for row in rows], table.schema.field(label).type))
    return written(path, table)


STREAMS: tuple[dict[str, Any], ...] = (
    {"model": "incremental"},
    {"model": "sliding_window", "window": 60},
    {"model": "adaptive_window"},
    {"model": "time_window", "duration": 700},
    {"model": "random_updates", "insert_probability": 0.7},
)


class Twins:
    """A run with labels of the rows before, of which the run of a file that has them is the twin."""

    def __init__(self, trial: Trial, folder: Path, *, by_key: bool = False) -> None:
        self.trial, self.folder, draw = trial, folder, random.Random(f"{trial.name} {by_key}")
        self.k, self.label = draw.choice((1, 2, 3)), trial.columns["label"]
        skips = draw.random() < 0.5
        self.rows = rows_of(trial, bad=skips)
        self.whole = with_columns(self.rows, self.label, self.k, by_key=by_key)
        self.names = [f"previous_label_{lag}" for lag in range(1, self.k + 1)]
        model = draw.choice(STREAMS)
        stream = {**model, "warmup": min(trial.case.warmup, 60), "on_error": "skip" if skips else "fail"}
        ts = {"ts": "ts"} if model["model"] == "time_window" else {}
        key = {"key": "key"} if by_key else {}
        self.config = self._config("plain", self.rows, {**ts, **key}, {**stream, "previous_labels": self.k})
        columns = {**ts, **key, "features": [*trial.columns["features"], *self.names]}
        self.run = Path(pipelines.replay(self.config, folder / "run").path)
        twin = self._config("twin", self.whole, columns, stream)
        self.twin = Path(pipelines.replay(twin, folder / "twin").path)

    def _config(self, name: str, rows: Any, columns: dict[str, Any], stream: dict[str, Any]) -> dict[str, Any]:
        source = {"kind": "arrow", "path": str(written_rows(self.folder / f"{name}.arrow", rows, self.label))}
        return {
            "source": {**source, **self.trial.columns, **columns},
            "stream": stream,
            "learner": self.trial.section,
            "cluster": {"backend": "in_process", "batch_size": 16, "shards": 2},
            "checkpoint": {"every_updates": 30, "every_seconds": None},
            "output": {"report": False, "predictions": True, "metrics_every": 25},
        }

    def require_equal(self, run: Path) -> None:
        """A run has the results of the twin."""
        assert facts(run) == facts(self.twin)


def facts(run: Path) -> dict[str, Any]:
    """Digest, counts and scores of a run, and its predictions."""
    summary = json.loads((run / "summary.json").read_text())
    names = ("model_digest", "updates", "deletes", "metrics", "baselines")
    predictions = pq.read_table(run / "predictions").to_pylist()
    return {**{name: repr(summary.get(name)) for name in names}, "predictions": sorted(map(repr, predictions))}


@functools.cache
def loader() -> Loader:
    """The process that loads, as beside a server; one for all cases."""
    return Loader(quote=True)


def served(place: Path, rows: list[dict[str, Any]]) -> list[Any]:
    """The predictions of a server."""
    reader = SnapshotReader(place)
    reader._loader = loader()
    assert reader.look()
    response = Application(reader).respond("POST", "/predict", None, json.dumps({"rows": rows}).encode())
    assert response.status == 200, response.body
    found = json.loads(response.body)
    assert found.get("last_labels", False) != ("previous_label_1" in rows[0])
    predictions: list[Any] = found["predictions"]
    return predictions


def predicted(place: Path, rows: list[dict[str, Any]], twins: Twins, *columns: str) -> list[Any]:
    """What ``raydt predict`` writes for rows of these columns."""
    file = written_rows(twins.folder / "rows.arrow", rows, twins.label)
    table = pa.ipc.open_file(file).read_all().select([*twins.trial.columns["features"], *columns])
    written(file, table)
    done = predict_file(place, file, twins.folder / "out.parquet", overwrite=True)
    assert done["last_labels"] == (place != twins.twin and not {*twins.names} & {*columns})
    return pq.read_table(twins.folder / "out.parquet").to_pylist()


def questions(twins: Twins, last: Callable[[Any], list[Any]]) -> list[dict[str, Any]]:
    """Rows to predict, with the ``last`` labels of their keys in the columns."""
    rows = table_of(examples(30, 77)).to_pylist()
    draw = random.Random(0)
    for row in rows:
        row["key"] = draw.choice(KEYS)
        row |= dict(zip(twins.names, last(row["key"]), strict=True))
    return rows


def last_labels(twins: Twins, key: str | None = None) -> list[Any]:
    """The last labels of the rows, of a key if one is named, the newest first."""
    known = [row[twins.label] for row in twins.rows if row[twins.label] is not None and key in (None, row["key"])]
    return [known[-lag] if lag <= len(known) else None for lag in range(1, twins.k + 1)]


@every_case("labels of the rows before", among=TAKERS)
def test_a_run_is_that_of_a_file_with_the_labels_before_each_row(trial: Trial, tmp_path: Path) -> None:
    twins = Twins(trial, tmp_path)
    twins.require_equal(twins.run)
    assert audit_run(twins.run).ok
    config, draw = twins.config, random.Random(trial.name)
    config["cluster"] |= {"batch_size": draw.choice((1, 7, 40)), "shards": draw.choice((1, 3))}
    with injected(at(3)), pytest.raises(Gone):
        pipelines.replay(config, tmp_path / "cut")
    pipelines.resume(tmp_path / "cut")
    twins.require_equal(tmp_path / "cut")


@every_case("labels of the rows before", among=TAKERS)
def test_who_predicts_has_the_last_labels_of_the_run(trial: Trial, tmp_path: Path) -> None:
    twins = Twins(trial, tmp_path)
    rows = questions(twins, lambda key: last_labels(twins))
    newest = max((twins.run / "checkpoints").glob("[0-9]*"), key=lambda place: int(place.name))
    wanted = predicted(twins.twin, rows, twins, *twins.names)
    for place in (twins.run, newest):
        assert predicted(place, rows, twins) == wanted
        assert predicted(place, rows, twins, *twins.names) == wanted
        names = trial.columns["features"]
        asked = [{name: row[name] for name in (*names, *twins.names)} for row in rows]
        found = served(place, [{name: row[name] for name in names} for row in rows])
        assert found == served(place, asked) == [row["prediction"] for row in wanted]
    other = [{**row, **dict.fromkeys(twins.names)} for row in rows]
    assert predicted(twins.run, other, twins, *twins.names) == predicted(twins.twin, other, twins, *twins.names)
    try:
        estimator_of(trial.options)
    except NotImplementedError:
        return
    model, table = load_model(newest), pa.Table.from_pylist(rows, table_of(rows).schema)
    frame = table.select(trial.columns["features"])
    assert model.predict(frame).tolist() == found
    model.save(tmp_path / "saved")
    assert load_model(tmp_path / "saved").predict(frame).tolist() == found
    assert predicted(tmp_path / "saved", rows, twins) == wanted


@every_case("labels of the rows before", among=TAKERS)
def test_nothing_promises_to_erase_a_row_whose_label_others_have(trial: Trial, tmp_path: Path) -> None:
    twins = Twins(trial, tmp_path)
    before = facts(twins.run)
    with refused("updates.previous", ConfigError):
        update(twins.run, delete=[twins.rows[-1]["id"]], out=tmp_path / "state")
    with refused("updates.previous", ConfigError):
        update(twins.run, insert=written_rows(tmp_path / "more.arrow", twins.rows[:3], twins.label), dry_run=True)
    with refused("updates.previous", ConfigError):
        purge(twins.run)
    assert facts(twins.run) == before
    try:
        estimator_of(trial.options)
    except NotImplementedError:
        return
    state = load_model(max((twins.run / "checkpoints").glob("[0-9]*"), key=lambda place: int(place.name)))
    with refused("updates.previous", ConfigError):
        state.forget([state.row_ids_[-1]])
    state.save(tmp_path / "saved", with_examples=True)
    with refused("updates.previous", ConfigError):
        purge(tmp_path / "saved")


@every_case("labels of the rows before", one_of_each, among=TAKERS)
def test_each_key_has_labels_of_its_own(trial: Trial, tmp_path: Path) -> None:
    twins = Twins(trial, tmp_path, by_key=True)
    twins.require_equal(twins.run)
    assert audit_run(twins.run).ok
    twins.config["cluster"]["batch_size"] = 2  # a block has 16 times as many rows
    with injected(at(2)), pytest.raises(Gone):
        pipelines.replay(twins.config, tmp_path / "cut")
    pipelines.resume(tmp_path / "cut")
    twins.require_equal(tmp_path / "cut")
    rows = questions(twins, functools.partial(last_labels, twins))
    wanted = predicted(twins.twin, rows, twins, "key", *twins.names)
    for place in (twins.run, max((twins.run / "checkpoints").glob("[0-9]*"), key=lambda place: int(place.name))):
        assert predicted(place, rows, twins, "key") == wanted
        asked = [{name: row[name] for name in (*trial.columns["features"], "key")} for row in rows]
        assert served(place, asked) == [row["prediction"] for row in wanted]
    with refused("updates.previous", ConfigError):
        purge(twins.run)


@every_case("labels of the rows before", among=[trial for trial in CASES if not takes(trial)])
def test_a_learner_without_such_features_refuses_them(trial: Trial, tmp_path: Path) -> None:
    config = trial.config(tmp_path, stream={"previous_labels": 1})
    with refused("configs.no_previous", ConfigError):
        load_config(config)


CONFIG: dict[str, Any] = {
    "source": {"kind": "arrow", "path": "rows.arrow", "label": "y", "features": ["a", "b", "d"], "id": "id"},
    "stream": {"model": "incremental", "previous_labels": 1},
    "learner": {"kind": "fudyadt"},
    "cluster": {"backend": "in_process"},
    "output": {"report": False},
}


def changed(**sections: dict[str, Any]) -> dict[str, Any]:
    """The config with sections laid over it."""
    return {name: {**section, **sections.get(name, {})} for name, section in {**sections, **CONFIG}.items()}


@pytest.mark.parametrize(
    ("sections", "said"),
    [
        ({"stream": {"model": "training"}}, "streams.no_previous"),
        ({"stream": {"model": "batches", "steps": [10]}}, "streams.no_previous"),
        ({"stream": {"model": "deletion_log", "deletion_log": "log.csv"}}, "streams.no_previous"),
        ({"checkpoint": {"max_age": "1d"}}, "configs.previous_kept"),
        ({"output": {"receipts": True}}, "configs.previous_kept"),
    ],
)
def test_what_forgets_or_has_no_order_is_refused(sections: dict[str, Any], said: str) -> None:
    with refused(said, ConfigError):
        load_config(changed(**sections))


def rows_that_persist(share: float, *, by_key: bool) -> list[dict[str, Any]]:
    """Rows of which this share has the label of the row before, of the same key or of any."""
    draw, last = random.Random(5), dict[Any, dict[str, Any]]()
    rows = table_of(examples(400, 5)).to_pylist()
    for row in rows:
        row["key"] = draw.choice(KEYS)
        before = last.get(row["key"] if by_key else None)
        if before is not None and draw.random() < share:
            row |= before
        last[row["key"] if by_key else None] = {name: row[name] for name in ("y", "number")}
    return rows


@pytest.mark.parametrize(
    ("share", "by_key", "options", "source", "said"),
    [
        (0.8, False, {}, {}, "streams.strong_last_label"),
        (0.0, False, {}, {}, None),
        (0.8, True, {}, {"key": "key"}, "streams.strong_last_label"),
        (0.8, True, {}, {}, None),
        (0.8, False, {"criterion": "squared_error"}, {"label": "number"}, "streams.strong_last_number"),
        (0.0, False, {"criterion": "squared_error"}, {"label": "number"}, None),
        (0.8, False, {}, {"permutation": 1}, None),
    ],
)
def test_validate_says_when_the_last_label_is_a_strong_baseline(
    share: float,
    by_key: bool,
    options: dict[str, Any],
    source: dict[str, Any],
    said: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    written_rows(tmp_path / "rows.arrow", rows_that_persist(share, by_key=by_key), "y")
    sections = {"source": source, "learner": options, "stream": {"previous_labels": 0, "warmup": 20}}
    found = look_at(load_config(changed(**sections)))
    assert [one.id for one in found["warnings"] if one.id.startswith("streams.strong")] == ([said] if said else [])
    assert not look_at(load_config(changed(**{**sections, "stream": {"warmup": 20}})))["warnings"]
    if said == "streams.strong_last_label" and not source:
        y = [row["y"] for row in rows_that_persist(share, by_key=by_key)]
        right = sum(a == b for a, b in pairwise(y)) / (len(y) - 1)
        most = max(y[1:].count(name) for name in set(y)) / (len(y) - 1)
        (told,) = [one for one in found["warnings"] if one.id == said]
        assert told.parameters == {
            "last": f"{right:.1%}",
            "majority": f"{most:.1%}",
            "rows": f"{len(y) - 1:,}",
            "model": "incremental",
        }


def test_generated_rows_are_refused() -> None:
    source = {"kind": "synthetic", "generator": "sea"}
    with refused("configs.no_previous", ConfigError):
        load_config({**CONFIG, "source": source})


def test_a_column_of_that_name_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [{**row, "key": ""} for row in examples(20)]
    written_rows(tmp_path / "rows.arrow", with_columns(rows, "y", 1, by_key=False), "y")
    with refused("columns.previous", InputError):
        look_at(load_config(CONFIG))


def test_a_deletion_by_value_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path / "rows.arrow", table_of(spelled("+0 +1 +2 ?3 =1 +4")))
    with refused("streams.previous_by_value", InputError):
        pipelines.replay(changed(source={"op": "op"}, stream={"model": "changelog"}), tmp_path / "run")
