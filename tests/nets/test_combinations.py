"""Jobs drawn from all that a config can say, files of a run, and what is served."""

from __future__ import annotations

import functools
import json
import random
import shutil
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, get_args

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

import pipelines
from pipelines import replay, resume
from pipelines.auditing import audit_run, audit_state, verify_run
from pipelines.config import StreamOptions
from pipelines.prediction import explain_row, predict_file
from pipelines.purging import purge
from pipelines.serving.application import Application, Loader, SnapshotReader
from pipelines.updating import apply_changes, update
from raydt.errors import InputError, RaydtError
from raydt.exchange.messages import injected
from raydt.sessions import adaptive_window
from tests import volume
from tests.cases import CASES, Trial, change_log, every_case, one_of_each
from tests.integration import test_resume
from tests.keyed_runs import KEYS_CASES as KEYS
from tests.keyed_runs import config, files
from tests.nets import test_purge
from tests.refusals import refused
from tests.small_tables import derived, examples, table_of, written
from tests.storage_faults import Gone, at

# -- combinations ----------------------------------------------------------------------------------------------------
# Jobs drawn from what a config can say all at once: any number of shards, a kill, a resume, an update, a purge.

#: Of every test run: jobs that nothing refuses, two of which have found a fault. Nightly ones take all.
DAILY = (1, 10, 18, 43, 44, 55)
NIGHTLY = range(80)


@pytest.mark.turns(3)
@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=[] if seed in DAILY else pytest.mark.nightly) for seed in NIGHTLY]
)
def test_a_drawn_job(seed: int, tmp_path: Path) -> None:
    check(seed, tmp_path)


# -- files of a run --------------------------------------------------------------------------------------------------
# A run's later commands read files as the run read those of its source, also where their names say nothing.
#
# Every way to write a table (format, delimiter, compression, ending) is drawn with options that name columns, and
# given to every command that takes a file. The result is that of the format's usual spelling, in which the same run
# is made of the same rows.


class Spelling(NamedTuple):
    """Delimiter and format of files."""

    kind: str
    ending: str
    delimiter: str | None = None

    @property
    def usual(self) -> Spelling:
        """The spelling of the same format in which every command has always read it."""
        return USUAL[self.kind]

    def source(self) -> dict[str, Any]:
        return {"kind": self.kind, **({"delimiter": self.delimiter} if self.delimiter else {})}

    def write(self, folder: Path, name: str, rows: pa.Table) -> Path:
        file = folder / f"{name}{self.ending}"
        codec = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2", ".lz4": "lz4"}.get(file.suffix)
        with pa.CompressedOutputStream(file, codec) if codec else pa.OSFile(str(file), "wb") as sink:
            if self.kind == "csv":
                pacsv.write_csv(rows, sink, pacsv.WriteOptions(delimiter=self.delimiter or ",", quoting_style="needed"))
            elif self.kind == "jsonl":
                sink.write("".join(json.dumps(row) + "\n" for row in rows.to_pylist()).encode())
            elif self.kind == "parquet":
                pq.write_table(rows, sink)
            else:
                feather.write_feather(rows, sink, compression="uncompressed")
        return file


USUAL = {kind: Spelling(kind, f".{kind}") for kind in ("csv", "jsonl", "parquet", "arrow")}
SPELLINGS = [
    *USUAL.values(),
    *(Spelling("csv", ending, sign) for sign in (",", ";", "\t", "|") for ending in (".csv", ".tsv", ".txt", "")),
    *(Spelling("csv", f".csv{ending}", ";") for ending in (".gz", ".bz2", ".zst", ".lz4")),
    *(Spelling(kind, ending) for kind in ("jsonl", "parquet", "arrow") for ending in (".data", "")),
]


class CombinationsTrial(NamedTuple):
    """A run of rows that are written in one way, and more files of the same table."""

    run: Path
    folder: Path  #: Of the files that a command is given.
    spelling: Spelling
    options: dict[str, Any]
    rows: pa.Table

    def file(self, name: str, rows: pa.Table) -> Path:
        return self.spelling.write(self.folder, name, rows)

    @property
    def ids(self) -> list[Any]:
        return self.rows.column("who").to_pylist()


def table(seed: int) -> tuple[pa.Table, dict[str, Any]]:
    """Rows, the last 20 of them for later, and the options of a source."""
    draw = random.Random(seed)
    n, text_ids = 140, draw.random() < 0.5
    columns: dict[str, list[Any]] = {
        "who": [f"p{i}" if text_ids else 1000 + i for i in range(n)],
        "city": [draw.choice(["Ulm; east", "Rom, west", "Linz", "7"]) for _ in range(n)],
        "size": [round(draw.gauss(0, 1), 2) for _ in range(n)],
        "code": [draw.choice([3, 5, 11]) for _ in range(n)],
    }
    columns["won"] = [
        ("yes" if city == "Linz" or size > 0.5 else draw.choice(["no", "perhaps"]))
        for city, size in zip(columns["city"], columns["size"], strict=True)
    ]
    options: dict[str, Any] = {"id": "who", "label": "won", "categorical": draw.choice([[], ["code"]])}
    if draw.random() < 0.5:
        options["positive"] = "yes"
    if draw.random() < 0.5:
        columns["person"], options["subject"] = [f"s{i % 50}" for i in range(n)], "person"
    if draw.random() < 0.3:
        columns["times"], options["weight"] = [draw.choice([1, 2]) for _ in range(n)], "times"
    if draw.random() < 0.5:
        columns["day"], options["ts"] = [1_700_000_000 + 3600 * i for i in range(n)], "day"
    if draw.random() < 0.4:
        columns["shop"], options["key"] = [draw.choice(["north", "south"]) for _ in range(n)], "shop"
    names = draw.sample(list(columns), len(columns))
    return pa.table({name: columns[name] for name in names}), options


def predicted(trial: CombinationsTrial) -> Any:
    out = trial.folder / "predictions.parquet"
    done = predict_file(trial.run, trial.file("rows", trial.rows), out, overwrite=True)
    return done["unseen"], pq.read_table(out).to_pylist()


def predicted_by_the_model(trial: CombinationsTrial) -> Any:
    out = trial.folder / "predictions.parquet"
    predict_file(trial.run / "model", trial.file("rows", trial.rows), out, id_column="who", overwrite=True)
    return pq.read_table(out).to_pylist()


def explained(trial: CombinationsTrial) -> Any:
    found = explain_row(trial.run, str(trial.file("rows", trial.rows)), 3, key=key_of(trial))
    return found["output"], found["values"]


def deleted(trial: CombinationsTrial) -> Any:
    gone = pa.table({"who": trial.ids[5:9], "reason": ["moved, east", "asked; twice", "", "x"]})
    return update(trial.run, delete=trial.file("gone", gone), dry_run=True).digest_after


def inserted_twice(trial: CombinationsTrial) -> Any:
    """The second state is made of a state that was made by an update."""
    receipts = []
    state = trial.run
    for number, rows in enumerate((trial.rows[120:130], trial.rows[130:])):
        out = trial.folder / f"state{number}"
        receipts.append(update(state, insert=trial.file(f"more{number}", rows), out=out).digest_after)
        state = out
    return receipts, predict_file(state, trial.file("rows", trial.rows), trial.folder / "p.parquet")["rows"]


def changed(trial: CombinationsTrial) -> Any:
    rows = trial.rows[118:124]
    changes = rows.append_column("op", pa.array(["d", "d", "c", "c", "c", "c"]))
    file = trial.file("changes", changes)
    done = apply_changes(trial.run, [str(file)], out=trial.folder / "states", op="op")
    return done.receipt.digest_after, predict_file(trial.folder / "states", file, trial.folder / "p.parquet")["rows"]


def purged(trial: CombinationsTrial) -> Any:
    gone = trial.file("gone", pa.table({"who": trial.ids[5:9], "reason": ["a, b", "c; d", "", "e"]}))
    run = trial.folder / "run"
    shutil.copytree(trial.run, run)
    update(run, delete=gone, out=trial.folder / "state")
    purge(trial.folder / "state", ids=gone)
    return predict_file(trial.folder / "state", trial.file("rows", trial.rows), trial.folder / "p.parquet")["rows"]


def logged(trial: CombinationsTrial) -> Any:
    """A deletion log of a replay."""
    log = trial.file("log", pa.table({"who": trial.ids[5:9], "after": [10, 20, 30, None]}))
    return replayed(trial.folder / "again", trial, stream={"model": "deletion_log", "deletion_log": str(log)}).digest


def replayed(folder: Path, trial: CombinationsTrial, stream: dict[str, Any]) -> Any:
    folder.mkdir(parents=True, exist_ok=True)
    path = trial.spelling.write(folder, "train", trial.rows[:120])
    config = {
        "source": {**trial.spelling.source(), "path": str(path), **trial.options},
        "learner": {"kind": "fudyadt"},
        "stream": stream,
        "cluster": {"backend": "in_process"},
        "output": {"report": False},
    }
    return pipelines.replay(config, folder / "run")


def key_of(trial: CombinationsTrial) -> str | None:
    return trial.rows.column("shop")[3].as_py() if "key" in trial.options else None


COMMANDS: dict[str, Callable[[CombinationsTrial], Any]] = {
    "predict": predicted,
    "predict by MODEL": predicted_by_the_model,
    "predict --explain": explained,
    "update --delete": deleted,
    "update --insert, twice": inserted_twice,
    "update --changes": changed,
    "purge --ids": purged,
    "deletion_log": logged,
}


def cases() -> Iterator[Any]:
    for i, spelling in enumerate(SPELLINGS):
        for j, command in enumerate(COMMANDS):
            by_day = (i + j) % len(COMMANDS) == 0 and spelling not in USUAL.values()
            name = f"{spelling.kind}{spelling.ending} {spelling.delimiter!r}, {command}"
            yield pytest.param(spelling, command, id=name, marks=[] if by_day else pytest.mark.nightly)


@pytest.fixture(scope="module")
def run_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Spelling, int], Path]:
    @functools.cache
    def run(spelling: Spelling, seed: int) -> Path:
        rows, options = table(seed)
        folder = tmp_path_factory.mktemp("files")
        trial = CombinationsTrial(folder, folder, spelling, options, rows)
        return Path(replayed(folder, trial, {"model": "incremental"}).path)

    return run


@pytest.mark.turns(8)
@pytest.mark.parametrize(("spelling", "command"), list(cases()))
def test_a_command_reads_what_its_run_has_read(
    spelling: Spelling, command: str, run_of: Callable[[Spelling, int], Path], tmp_path: Path
) -> None:
    seeds = range(3) if volume.nightly else [len(command) % 3]
    for seed in seeds:
        rows, options = table(seed)
        results = []
        for one in (spelling, spelling.usual):
            folder = tmp_path / f"{seed} {len(results)}"
            folder.mkdir()
            results.append(COMMANDS[command](CombinationsTrial(run_of(one, seed), folder, one, options, rows)))
        assert results[0] == results[1], f"seed {seed}, {options}"


@pytest.mark.parametrize("usual", [True, False])
def test_a_list_may_have_the_usual_commas_or_no_delimiter(
    usual: bool, run_of: Callable[[Spelling, int], Path], tmp_path: Path
) -> None:
    spelling = Spelling("csv", ".csv", ";")
    rows, options = table(0)
    trial = CombinationsTrial(run_of(spelling, 0), tmp_path, spelling, options, rows)
    (tmp_path / "gone.csv").write_text(
        "".join(f"{one}{',moved; east' * usual}\n" for one in ("who", *trial.ids[5:9])).replace("moved; east", "why", 1)
    )
    assert update(trial.run, delete=tmp_path / "gone.csv", dry_run=True).digest_after == deleted(trial)


def test_a_header_with_neither_delimiter_is_refused(run_of: Callable[[Spelling, int], Path], tmp_path: Path) -> None:
    (tmp_path / "gone.csv").write_text("who|why\n1|x\n")
    with refused("files.no_commas", InputError, delimiter='"|"'):
        update(run_of(Spelling("csv", ".csv", ";"), 0), delete=tmp_path / "gone.csv", dry_run=True)


# -- serving ---------------------------------------------------------------------------------------------------------
# What is served equals ``raydt predict`` in every bit: of a finished run, and of each of its checkpoints, by case.


@functools.cache
def loader() -> Loader:
    """The process that loads, as beside a server; one for all cases."""
    return Loader(quote=True)


def served(place: str | Path) -> Application:
    """What answers for a place."""
    reader = SnapshotReader(place)
    reader._loader = loader()
    assert reader.look()
    return Application(reader)


def asked(application: Application, body: Any, status: int = 200) -> dict[str, Any]:
    """The answer to a body."""
    response = application.respond("POST", "/predict", None, json.dumps(body).encode())
    found: dict[str, Any] = json.loads(response.body)
    assert response.status == status, found
    return found


def rows_of(trial: Trial, n: int = 40) -> list[dict[str, Any]]:
    """Rows for a case; some categories are new."""
    names, draw = trial.columns["features"], random.Random(trial.name)
    rows = [{**derived(row), **row} for row in examples(n, 5)]
    for row in rows:
        if "d" in names and draw.random() < 0.2:
            row["d"] = row["d_or_null"] = draw.choice(["new", "newer"])
    return [{name: row[name] for name in names} for row in rows]


def predicted_serving(place: str | Path, rows: list[dict[str, Any]], folder: Path) -> tuple[list[Any], list[Any]]:
    """Labels and shares that ``raydt predict`` writes."""
    data = folder / "rows.jsonl"
    data.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    out = folder / "predicted.parquet"
    predict_file(place, data, out, overwrite=True)
    table = pq.read_table(out)
    shares = [table[name].to_pylist() for name in table.column_names if name.startswith("p_")]
    return table["prediction"].to_pylist(), [list(row) for row in zip(*shares, strict=True)]


@every_case("served answers", one_of_each)
def test_answers_equal_predictions_of_the_snapshot_they_name(
    trial: Trial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("raydt.folders.arrays._LARGE", 64)  # nearly every array of a coordinator has a file of its own
    run = pipelines.replay(trial.config(tmp_path, checkpoint={"keep": 9}), tmp_path / "run")
    rows = rows_of(trial)
    states = sorted((Path(run.path) / "checkpoints").glob("[0-9]*"), key=lambda path: int(path.name))
    for place in (Path(run.path), states[0]):
        labels, shares = predicted_serving(place, rows, tmp_path)
        answers = served(place)
        many = asked(answers, {"rows": rows})
        assert many["predictions"] == labels
        assert many.get("probabilities", []) == shares
        columns = {name: [row[name] for row in rows] for name in rows[0]}
        assert asked(answers, {"columns": columns})["predictions"] == labels
        one = asked(answers, rows[-1])
        assert (one["prediction"], one.get("probabilities", [])) == (labels[-1], shares[-1] if shares else [])
        assert one["digest"] == f"sha256:{json.loads((manifest(place)).read_text())['sha256']}"
        assert one["update"] == json.loads(manifest(place).read_text())["meta"]["offset"]


def manifest(place: Path) -> Path:
    """The manifest of a state, or of the model of a run."""
    return next(path for path in (place / "manifest.json", place / "model" / "manifest.json") if path.is_file())


@every_case("served answers by key", lambda trial: trial.learner.kind == "fudyadt" and one_of_each(trial))
def test_rows_name_the_model_of_their_key(trial: Trial, tmp_path: Path) -> None:
    path, _ = files(trial, tmp_path)
    run = pipelines.replay(config(trial, path, key="key"), tmp_path / "run")
    rows = [{**row, "key": [*KEYS, "nobody"][place % 4]} for place, row in enumerate(rows_of(trial))]
    newest = max((Path(run.path) / "checkpoints").glob("[0-9]*"), key=lambda found: int(found.name))
    for place in (Path(run.path), newest):
        labels, shares = predicted_serving(place, rows, tmp_path)
        found = asked(served(place), {"rows": rows})
        assert found["predictions"] == labels
        assert found.get("probabilities", []) == [None if None in row else row for row in shares] or not shares
        assert found["without_model"] == list(range(3, len(rows), 4))


# -- combinations ------------------------------------------------------------------------------------------------------
# Jobs drawn from what a config can say all at once, each run twice, cut, resumed, audited, updated and purged.
#
# The nets change one thing of a case at a time; faults also lie where two things meet, such as event times and a key
# whose only row is bad. ``python -m tests.nets.test_combinations FIRST COUNT`` takes the seeds from one on, and prints
# what failed.


#: What two runs of one stream have in common, beside their predictions.
SAME = ("updates", "inserts", "deletes", "predictions", "active", "model_digest", "nodes", "leaves")
DRAWN_KEYS = (("north", "", "two\nlines"), tuple(f"k{i}" for i in range(20)), ("only",))
STREAMS: dict[str, Callable[[random.Random], dict[str, Any]]] = {
    "incremental": lambda draw: {},
    "changelog": lambda draw: {},
    "deletion_log": lambda draw: {},
    "sliding_window": lambda draw: {"window": draw.choice((1, 5, 40, 150))},
    "adaptive_window": lambda draw: {},
    "time_window": lambda draw: {"duration": draw.choice((50, 400, 2000)), "lateness": draw.choice((0, 0, 20))},
    "random_updates": lambda draw: {"insert_probability": draw.choice((0.55, 0.8)), "seed": draw.randrange(50)},
    "batches": lambda draw: {
        "steps": draw.choice(([1.0, 0.5, 1.0], [0.3, 0.1, 0.6, 0.0, 0.2], [20, 10, 30])),
        "removal_order": draw.choice(("fifo", "lifo", "random")),
        "seed": draw.randrange(50),
    },
}


def test_every_stream_is_drawn_purged_and_resumed() -> None:
    """A stream model that is new to the config is missing in a net until its list has the model."""
    models = {one.model_fields["model"].default for one in get_args(get_args(StreamOptions)[0])} - {"training"}
    assert models == set(STREAMS) == set(test_resume.STREAMS)
    assert models - {"incremental"} == {way.split()[0] for way in test_purge.WAYS}  # which deletes nothing


class Job:
    """A drawn job: its ``config``, and ``names`` of the rows, some of which are live at its end."""

    def __init__(self, draw: random.Random, folder: Path) -> None:
        self.trial: Trial = draw.choice(CASES)
        model, n = draw.choice(tuple(STREAMS)), draw.choice((30, 90, 200, 400))
        #: Labels of the rows before that are features; none where rows are deleted by value, or come out of order.
        self.previous = random.Random(f"previous labels {self.trial.name} {model} {n}").choice((0, 0, 0, 1, 2, 8))
        reading = self.trial.reading
        if model in ("changelog", "deletion_log", "batches") or not (reading.dense and reading.missing):
            self.previous = 0
        ids = draw.choice(("text", "integer", "row" if model != "changelog" else "text"))
        skips = draw.random() < 0.7
        rows = self._rows(draw, model, n)
        numbers = [int(row["id"][1:]) for row in rows]
        self.names = {"text": [row["id"] for row in rows], "integer": numbers, "row": list(range(n))}[ids]
        table = table_of(rows).append_column("key", pa.array([row["key"] for row in rows]))
        table = table.append_column("subject", pa.array([row["subject"] for row in rows]))
        if ids == "integer":
            table = table.set_column(table.schema.get_field_index("id"), "id", pa.array(numbers, pa.int64()))
        if skips and draw.random() < 0.4:
            table = _without_labels(draw, table, self.trial.columns["label"])
        self.config: dict[str, Any] = {
            "source": self._source(draw, model, ids, n, _file_of(draw, table, folder)),
            "stream": {
                "model": model,
                "warmup": draw.choice((0, 1, *[self.trial.case.warmup] * 2, 30, 100)),
                "on_error": "skip" if skips else "error",
                "previous_labels": self.previous,
                **STREAMS[model](draw),
            },
            "learner": self.trial.section,
            "output": {"report": draw.random() < 0.15, "predictions": True, "metrics_every": draw.choice((5, 25, 100))},
        }
        if model == "deletion_log":
            self.config["stream"]["deletion_log"] = self._log(draw, rows, folder)

    def _rows(self, draw: random.Random, model: str, n: int) -> list[dict[str, Any]]:
        """Rows with key and subject, which stay those of an id; event times now and then go back."""
        if model == "changelog":
            rows = change_log(n, draw.choice((0, 5, self.trial.case.warmup)), draw.randrange(1000))
        else:
            rows = examples(n, draw.randrange(1000))
        keys, of_id = draw.choice(DRAWN_KEYS), dict[str, dict[str, Any]]()
        for place, row in enumerate(rows):
            late = draw.choice((5, 50)) if model != "changelog" and draw.random() < 0.05 else 0
            drawn = {"key": draw.choice(keys), "subject": f"p{draw.randrange(12)}"}
            row |= {"ts": max(0, row.get("ts", 10 * place) - late), **of_id.setdefault(row["id"], drawn)}
        return rows

    def _source(self, draw: random.Random, model: str, ids: str, n: int, path: Path) -> dict[str, Any]:
        source = {"path": str(path), **self.trial.columns}
        if ids == "row":
            del source["id"]
        maybe = {"key": ("key", 0.4), "subject": ("subject", 0.4), "limit": (draw.randrange(1, n + 10), 0.2)}
        if model not in ("changelog", "time_window"):
            maybe["permutation"] = draw.randrange(100), 0.15
        maybe["ts"] = "ts", float(model == "time_window") or 0.5
        source |= {name: value for name, (value, chance) in maybe.items() if draw.random() < chance}
        return source | ({"op": "op"} if model == "changelog" else {})

    def _log(self, draw: random.Random, rows: list[dict[str, Any]], folder: Path) -> str:
        by = draw.choice(("id", "subject")) if "subject" in self.config["source"] else "id"
        n = draw.randrange(1, 25)
        columns: dict[str, list[Any]] = {by: draw.choices(self.names if by == "id" else [r[by] for r in rows], k=n)}
        if draw.random() < 0.7:
            columns["after"] = sorted(draw.randrange(len(rows) + 5) for _ in range(n))
        pq.write_table(pa.table(columns), folder / "log.parquet")
        return str(folder / "log.parquet")

    def divided(self, draw: random.Random) -> dict[str, Any]:
        """The config, with the work divided in another way, and other checkpoints."""
        limits = (None, 0, 8 * self.trial.case.plan.local_work_limit)
        cluster = {
            "backend": "in_process",
            "batch_size": draw.choice((1, 2, 7, 16, 100)),
            "shards": draw.choice((1, 2, 3, 4)),
            "memory_limit": draw.choice(limits),
        }
        checkpoint = {"every_updates": draw.choice((7, 30, 100)), "every_seconds": None}
        return {**self.config, "cluster": cluster, "checkpoint": checkpoint}


def _without_labels(draw: random.Random, table: pa.Table, label: str) -> pa.Table:
    """Return the table with some rows that are bad."""
    values, place = table.column(label).to_pylist(), table.schema.get_field_index(label)
    for _ in range(draw.randrange(1, 6)):
        values[draw.randrange(len(values))] = None
    return table.set_column(place, label, pa.array(values, table.schema.field(label).type))


def _file_of(draw: random.Random, table: pa.Table, folder: Path) -> Path:
    if draw.random() < 0.5:
        return written(folder / "rows.arrow", table)
    pq.write_table(table, folder / "rows.parquet", row_group_size=draw.choice((7, 64, 1000)))
    return folder / "rows.parquet"


def _facts(run: Path) -> tuple[dict[str, Any], list[Any]]:
    summary = json.loads((run / "summary.json").read_text())
    place = run / "predictions"
    predictions = sorted(map(repr, pq.read_table(place).to_pylist())) if place.exists() else []
    return {name: summary.get(name) for name in SAME}, predictions


def _outcome(act: Callable[[], Any]) -> tuple[str, Any]:
    """Return the id of the message by which an act refuses, and what it returns or raises."""
    try:
        return "", act()
    except RaydtError as error:
        return error.message.id if error.message else type(error).__name__, error


#: Windows that some hundred rows cut and let grow.
SHORT = {"HORIZONS": (8, 20, 60), "CLOCK": 16, "_SHORTER": 0.5, "_LONGER": 0.3, "_MARGIN": 0.1}


def check(seed: int, folder: Path) -> str:
    """Draw a job, and check it; AssertionError says what failed. Returns the id of the message that refuses it."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in SHORT.items():
            patch.setattr(adaptive_window, name, value)
        return _check(random.Random(seed), folder)


def _check(draw: random.Random, folder: Path) -> str:
    job = Job(draw, folder)
    one, other = job.divided(draw), job.divided(draw)
    refused, _ = _outcome(lambda: replay(one, folder / "one"))
    again, _ = _outcome(lambda: replay(other, folder / "other"))
    assert refused == again, "the same job is refused in another way"
    if refused:
        return refused
    facts = _facts(folder / "one")
    assert facts == _facts(folder / "other"), "divided work"
    try:
        with injected(at(draw.randrange(1, 12))):
            replay(other, folder / "cut")
    except Gone:
        resume(folder / "cut")
        assert facts == _facts(folder / "cut"), "a run that was cut"
    _require_audit(audit_run, folder / "one")
    verdict = _outcome(lambda: verify_run(folder / "one")["equal"])
    assert verdict[0] or verdict[1], "verified"
    gone = list(dict.fromkeys(draw.choices(job.names, k=draw.randrange(1, 8))))
    unknown, _ = _outcome(lambda: update(folder / "one", delete=gone, missing="skip", out=folder / "state"))
    if job.previous:  # labels of deleted rows stay in the rows after them
        assert unknown == _outcome(lambda: purge(folder / "one"))[0] == "updates.previous"
        return unknown
    purge(folder / "one")
    _require_audit(audit_run, folder / "one")
    assert _outcome(lambda: verify_run(folder / "one")["equal"])[0] == verdict[0], "verified once purged"
    if not unknown:
        _require_audit(audit_state, folder / "state")
        purge(folder / "state")
        _require_audit(audit_state, folder / "state")
    return unknown


def _require_audit(audit: Callable[[Path], Any], place: Path) -> None:
    report = audit(place)
    assert report.ok, f"audit of {place.name}: {report}"


def main(first: int, count: int) -> int:
    """Check so many seeds; returns how many failed."""
    failed = 0
    for seed in range(first, first + count):
        with tempfile.TemporaryDirectory() as folder:
            try:
                said = check(seed, Path(folder))
                print(seed, said or "ok", flush=True)
            except Exception:
                failed += 1
                print(seed, "FAILED", Job(random.Random(seed), Path(folder)).config, flush=True)
                traceback.print_exc()
    return failed


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])) > 0)
