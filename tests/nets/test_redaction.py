"""With ``output.quote_values: false`` nothing that a command says holds a value of the data, whatever is wrong with it.

Every value of every file is a canary: ids, categories, tokens, classes and numbers, and so are the "names" of a file
whose row of names is missing. Each file is damaged in every way below, for every command that reads it. What a command
was asked to show (an explanation, predictions, classes in a report) is its result and goes to stdout or a file; errors,
warnings and logs go to stderr and ``log.jsonl``. ``validate`` shows nothing but what is wrong, on stdout.

With ``true`` each message below that stands for a kind of value quotes it, so that there is something to withhold.
"""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

import pipelines
from pipelines.cli import main
from pipelines.config import load_config
from pipelines.sweeping.trials import sweep
from pipelines.validation import look_at
from raydt.errors import RaydtError
from raydt.folders.arrays import load_folder, save_folder
from raydt.keyed.packing import packed, unpacked
from raydt.messages import WITHHELD, message
from raydt.sources.files.content import without_flaws
from tests.canaries import TEXT, contents

WORD, DIGITS = "zqxcanary", "503459"
NEEDLES = (WORD.encode(), DIGITS.encode())
HEADER = "key,amount,colour,verdict"

Lines = list[str]


def rows(start: int = 0, n: int = 90) -> Lines:
    return [f"{WORD}k{i},{DIGITS}{i}.5,{WORD}c{i % 3},{WORD}v{i % 2}" for i in range(start, start + n)]


def swapped(lines: Lines, at: int, column: int, value: str) -> Lines:
    cells = lines[at].split(",")
    cells[column] = value
    return [*lines[:at], ",".join(cells), *lines[at + 1 :]]


#: What is done to the lines of a file, the first of which is its header.
DAMAGE: dict[str, Callable[[Lines], Lines]] = {
    "nothing": lambda lines: lines,
    "no header": lambda lines: lines[1:],
    "no header, a repeated value": lambda lines: swapped(lines[1:], 0, 1, lines[1].split(",")[0]),
    "no header, decimal commas": lambda lines: [re.sub(r"(\d)\.5", r"\1;5", line) for line in lines[1:]],
    "another delimiter": lambda lines: [line.replace(",", ";") for line in lines],
    "another delimiter, no header": lambda lines: [line.replace(",", ";") for line in lines[1:]],
    "tabs, no header": lambda lines: [line.replace(",", "\t") for line in lines[1:]],
    "quoted commas": lambda lines: [
        lines[0],
        *(re.sub(r"(\d)\.5", r'"\1,5"', line).replace(f",{DIGITS}", ",") for line in lines[1:]),
    ],
    "quoted commas, no header": lambda lines: [re.sub(rf"({DIGITS}\d*)\.5", r'"\1,5"', line) for line in lines[1:]],
    "a missing column": lambda lines: [lines[0].replace("amount", "amounts"), *lines[1:]],
    "a word among numbers": lambda lines: swapped(lines, 60, 1, f"{WORD}x"),
    "no number": lambda lines: swapped(lines, 60, 1, ""),
    "infinity": lambda lines: swapped(lines, 60, 1, "inf"),
    "an id twice": lambda lines: [*lines, lines[5]],
    "no id": lambda lines: swapped(lines, 60, 0, ""),
    "a short row": lambda lines: [*lines[:60], f"{WORD}k,{DIGITS}", *lines[60:]],
    "a long row": lambda lines: [*lines[:60], f"{lines[3]},{WORD}", *lines[60:]],
    "an open quote": lambda lines: [*lines[:60], f'"{lines[3]}', *lines[60:]],
    "a new class": lambda lines: swapped(lines, 60, 3, f"{WORD}new"),
    "no label": lambda lines: swapped(lines, 60, 3, ""),
    "not UTF-8": lambda lines: swapped(lines, 60, 2, f"{WORD}\udce4"),
    "not UTF-8, no header": lambda lines: swapped(lines[1:], 0, 2, f"{WORD}\udce4"),
    "numbers for classes": lambda lines: [lines[0], *(re.sub(rf"{WORD}v", DIGITS, line) for line in lines[1:])],
    "numbers for ids": lambda lines: [lines[0], *(re.sub(rf"^{WORD}k", DIGITS, line) for line in lines[1:])],
    "one row": lambda lines: lines[:2],
    "no row": lambda lines: lines[:1],
    "only a row": lambda lines: lines[1:2],
}


def write(path: Path, lines: Lines) -> str:
    path.write_bytes(("\n".join(lines) + "\n").encode("utf-8", "surrogateescape"))
    return str(path)


def config(folder: Path, name: str = "data.csv", **more: Any) -> str:
    sections = {
        "source": {
            "kind": "csv",
            "path": str(folder / name),
            "id": "key",
            "label": "verdict",
            **more.pop("source", {}),
        },
        "stream": {"model": "incremental", **more.pop("stream", {})},
        "learner": {"kind": "fudyadt", **more.pop("learner", {})},
        "cluster": {"backend": "in_process"},
        "output": {"quote_values": False},
        **more,
    }
    path = folder / "config.json"
    path.write_text(json.dumps(sections), encoding="utf-8")
    return str(path)


class Told:
    """Runs commands and keeps where a canary was printed."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys, self.leaks, self.codes = capsys, [], set()

    def run(self, *words: str, case: str = "", stdout: bool = False, run: Path | None = None) -> None:
        self._capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(list(words))
        out, err = self._capsys.readouterr()
        self.codes.add(ended.value.code)
        texts = [err.encode(), *([out.encode()] if stdout else [])]
        if run is not None and run.exists():
            kept = [*run.glob("log.jsonl"), *run.glob("quarantine/*")]
            texts += [part for file in kept for part in contents(file)]
        for said in texts:
            for needle in NEEDLES:
                if needle in said:
                    at = said.index(needle)
                    quote = said[max(0, at - 300) : at + 40].decode(errors="replace")
                    self.leaks.append((case, " ".join(words[:2]), quote))


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str]) -> Told:
    return Told(capsys)


@pytest.mark.turns(6)
@pytest.mark.parametrize("damage", DAMAGE)
def test_what_a_run_says_of_its_source(damage: str, told: Told, tmp_path: Path) -> None:
    write(tmp_path / "data.csv", DAMAGE[damage]([HEADER, *rows()]))
    for number, on_error in enumerate(("error", "skip")):
        job = config(tmp_path, stream={"on_error": on_error})
        told.run("validate", job, case=damage, stdout=True)
        told.run("validate", job, "--json", case=damage, stdout=True)
        told.run(
            "-v", "replay", job, "--out", str(tmp_path / f"run{number}"), case=damage, run=tmp_path / f"run{number}"
        )
    write(tmp_path / "good.csv", [HEADER, *rows(200)])  # the first of two files
    job = config(tmp_path, source={"path": [str(tmp_path / "good.csv"), str(tmp_path / "data.csv")]})
    told.run("validate", job, case=f"second file: {damage}", stdout=True)
    for source in ({"positive": f"not {damage}"}, {"permutation": 3}, {"features": ["amount", "size"]}):
        told.run("validate", config(tmp_path, source=source), case=f"{damage}, {source}", stdout=True)
    assert not told.leaks
    assert told.codes <= {0, 2}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("told")
    write(folder / "data.csv", [HEADER, *rows()])
    with pytest.raises(SystemExit) as ended:
        main(["replay", config(folder), "--out", str(folder / "run")])
    assert ended.value.code == 0
    return folder / "run"


@pytest.mark.turns(6)
@pytest.mark.parametrize("damage", DAMAGE)
def test_what_commands_say_of_their_files(damage: str, run: Path, told: Told, tmp_path: Path) -> None:
    state, data = str(run), write(tmp_path / "data.csv", DAMAGE[damage]([HEADER, *rows(500)]))
    ids = DAMAGE[damage](["id,after,colour,verdict", *rows(3, 80)])
    log = write(tmp_path / "log.csv", [line.split(",")[0] if "," in line else line for line in ids])
    wide = write(tmp_path / "wide.csv", ids)
    out = str(tmp_path / "out.parquet")
    for options in ([], ["--on-error", "skip"], ["--id", "key"]):
        told.run("predict", state, data, "--out", out, "--overwrite", *options, case=damage)
    told.run("predict", state, data, "--explain", "59", case=damage)
    told.run("update", state, "--insert", data, "--dry-run", case=damage)
    for file in (log, wide):
        told.run("update", state, "--delete", file, "--dry-run", case=damage)
        told.run("purge", state, "--ids", file, "--dry-run", case=damage)
        source = {"path": str(run.parent / "data.csv")}
        for on_error in ("error", "skip"):
            stream = {"model": "deletion_log", "deletion_log": file, "on_error": on_error}
            told.run("validate", config(tmp_path, source=source, stream=stream), case=damage, stdout=True)
    assert not told.leaks
    assert told.codes <= {0, 2}


def test_commands_without_files_and_a_sweep(run: Path, told: Told, tmp_path: Path) -> None:
    for words in (
        ["audit"],
        ["report"],
        ["resume"],
        ["verify"],
        ["verify", "--id", NEEDLES[0].decode(), "--subject", NEEDLES[-1].decode()],
        ["export", "--to", "onnx", "--out", str(tmp_path / "m.onnx")],
    ):
        told.run(words[0], str(run), *words[1:], case=words[0], run=run)
    write(tmp_path / "data.csv", DAMAGE["a word among numbers"]([HEADER, *rows()]))
    told.run(
        "sweep", config(tmp_path), "--grid", "learner.max_depth=2,3", "--out", str(tmp_path / "sweep"), case="sweep"
    )
    assert not told.leaks


#: Damage of rows with a column of keys before it.
BY_KEY = ("nothing", "a word among numbers", "an id twice", "no id", "a short row", "no label", "not UTF-8", "no row")


def keyed(lines: Lines) -> Lines:
    """Lines with a column of keys, one of which has a row that no key can be read of."""
    with_keys = [f"store,{lines[0]}", *(f"{WORD}s{i % 3},{line}" for i, line in enumerate(lines[1:]))]
    return [*with_keys[:40], *(f",{line.partition(',')[2]}" for line in with_keys[40:41]), *with_keys[41:]]


@pytest.mark.parametrize("damage", [BY_KEY[0], *(pytest.param(name, marks=pytest.mark.nightly) for name in BY_KEY[1:])])
def test_models_by_key(damage: str, told: Told, tmp_path: Path) -> None:
    write(tmp_path / "data.csv", keyed(DAMAGE[damage]([HEADER, *rows()])))
    log = write(tmp_path / "log.csv", ["id,after", f"{WORD}k3,30", f"{WORD}stranger,50"])
    streams: list[dict[str, Any]] = [{"model": "incremental"}, {"model": "deletion_log", "deletion_log": log}]
    for number, (stream, on_error) in enumerate((one, e) for one in streams for e in ("error", "skip")):
        job = config(tmp_path, source={"key": "store"}, stream={**stream, "on_error": on_error})
        run = tmp_path / f"run{number}"
        told.run("validate", job, case=damage, stdout=True)
        told.run("-v", "replay", job, "--out", str(run), case=damage, run=run)
        told.run("resume", str(run), case=damage, run=run)
    others = write(
        tmp_path / "others.csv", [line.replace(f"{WORD}s1", f"{WORD}other") for line in keyed([HEADER, *rows(500)])]
    )
    out = ["--out", str(tmp_path / "out"), "--overwrite"]
    for words in (
        ["audit", str(run)],
        ["audit", str(run), "--key", f"{WORD}s1"],
        ["audit", str(run), "--key", f"{WORD}none"],
        ["report", str(run), "--key", f"{WORD}none", "--out", str(tmp_path / "report.html")],
        ["export", str(run), "--key", f"{WORD}none", "--to", "treelite", *out],
        ["predict", str(run), others, "--out", str(tmp_path / "out.parquet"), "--overwrite", "--on-error", "skip"],
        ["predict", str(run), others, "--out", str(tmp_path / "out.parquet"), "--overwrite"],
    ):
        told.run(*words, case=damage, run=run)
    for number in sorted((run / "checkpoints").glob("[0-9]*"), key=lambda one: int(one.name))[-1:]:
        damage_keys(number)
        told.run("audit", str(run), "--json", case=f"{damage}, damaged", stdout=True, run=run)
        told.run("audit", str(run), case=f"{damage}, damaged", stdout=True, run=run)
    assert not told.leaks
    assert told.codes <= {0, 2, 3}


def damage_keys(state: Path) -> None:
    """Count one example more in the model of each key."""
    meta, components = load_folder(state)
    for name in [name for name in components if name.startswith("group-")]:
        held = unpacked(components[name])
        for one in held.values():
            one["coordinator"]["counts"] += 1
        components[name] = packed(held)
    for entry in ("kind", "raydt_version", "format_version"):
        meta.pop(entry)
    save_folder(state, "state", meta, components)


#: Further kinds of sources: a config, and the text of a file or its table.
def _table() -> pa.Table:
    return pacsv.read_csv(pa.BufferReader("\n".join([HEADER, *rows()]).encode()))


@pytest.mark.turns(1)
@pytest.mark.parametrize("seed", range(4))
def test_other_sources(seed: int, told: Told, tmp_path: Path) -> None:
    """Parquet whose columns change type, tokens, LIBSVM, change logs, regressions; all values are canaries again."""
    draw = random.Random(seed)
    table = _table()
    for name in ("amount", "colour", "verdict", "key"):
        column = table.column(name)
        odd = [
            pa.array([[value] for value in column.to_pylist()]),
            pa.array([{"u": value} for value in column.to_pylist()]),
            pa.array([str(value).encode() for value in column.to_pylist()]),
            pa.array([int(DIGITS) * 10**13 + i for i in range(len(column))]),
            pa.array([None, *(str(value) for value in column.to_pylist()[1:])]),
            pa.array([float(f"{DIGITS}e300"), *([float("nan")] * (len(column) - 1))]),
        ]
        changed = table.set_column(table.schema.get_field_index(name), name, odd[draw.randrange(len(odd))])
        pq.write_table(changed, tmp_path / "data.parquet")
        for learner in ({"kind": "fudyadt"}, {"kind": "gbdt", "max_iter": 2, "objective": "squared_error"}):
            source = {"kind": "parquet"}
            if "objective" in learner:
                source["label"] = "amount"
            job = config(tmp_path, "data.parquet", source=source, learner=learner)
            told.run("validate", job, case=f"{name} {learner}", stdout=True)
            told.run("replay", job, "--out", str(tmp_path / f"{name}{learner['kind']}"), case=name)
    ops = ["insert", "delete", "update", f"{WORD}op", "query"]
    feed = [f"{draw.choice(ops)},{line}" for line in draw.choices(rows(n=6), k=30)]
    write(tmp_path / "data.csv", [f"op,{HEADER}", *feed])
    for on_error in ("error", "skip"):
        job = config(tmp_path, source={"op": "op"}, stream={"model": "changelog", "on_error": on_error})
        told.run("validate", job, case="changelog", stdout=True)
        told.run("replay", job, "--out", str(tmp_path / on_error), case="changelog", run=tmp_path / on_error)
    pairs = [f"{i % 2} {' '.join(f'{j}:1' for j in sorted(draw.sample(range(9), 3)))}" for i in range(50)]
    pairs.insert(
        30,
        draw.choice([f"{WORD} 1:1", f"1 {WORD}:1", f"1 {DIGITS}:{DIGITS}", f"1 3:1 3:1 {DIGITS}:1", f"{DIGITS} 1:1"]),
    )
    write(tmp_path / "data.svm", pairs)
    tokens = pa.table(
        {"words": [[f"{WORD}t{draw.randrange(30)}" for _ in range(4)] for _ in range(60)], "verdict": [0, 1] * 30}
    )
    pq.write_table(tokens, tmp_path / "tokens.parquet")
    for file, kind, label in (("data.svm", "libsvm", "y"), ("tokens.parquet", "parquet", "verdict")):
        for more in ({}, {"n_features": 9}):
            source = {"kind": kind, "label": label, "id": None, **more}
            job = config(tmp_path, file, source=source, learner={"kind": "best_split"}, stream={"warmup": 10})
            told.run("validate", job, case=file, stdout=True)
            out = tmp_path / f"{kind}{len(more)}"
            told.run("-v", "replay", job, "--out", str(out), case=file, run=out)
    assert not told.leaks


GOOD = "id,a,y\n" + "".join(f"{i},{i}.5,{'yes' if i % 3 else 'no'}\n" for i in range(200))
_TEXT_IDS = "id,a,y,op\n" + "".join(f"n{i},{i}.5,{'yes' if i % 3 else 'no'},insert\n" for i in range(200))
_PAIRS = "".join(f"{i % 2} {i % 5}:1\n" for i in range(200))
_TIMES = "t,a,y\n" + "".join(f"{i},{i}.5,{i % 2}\n" for i in range(200))
_CSV, _LIBSVM = {"kind": "csv", "path": "data.csv", "label": "y"}, {"kind": "libsvm", "path": "data.svm"}
_CHANGES = {**_CSV, "id": "id", "op": "op"}, {"model": "changelog"}
_LOG = {**_CSV, "id": "id"}, {"model": "deletion_log", "deletion_log": "gone.csv"}

#: Source, stream and files of a job with a bad row.
SKIPPED: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, str]]] = {
    "number": ({**_CSV, "id": "id"}, {}, {"data.csv": f"{GOOD}900,{TEXT},no\n"}),
    "length": ({**_CSV, "id": "id"}, {}, {"data.csv": f"{GOOD}900,1.5,no,{TEXT}\n"}),
    "operation": (*_CHANGES, {"data.csv": f"{_TEXT_IDS}n900,1.5,no,{TEXT}\n"}),
    "unknown id": (*_CHANGES, {"data.csv": f"{_TEXT_IDS}{TEXT},1.5,no,delete\n"}),
    "live id": (*_CHANGES, {"data.csv": f"{_TEXT_IDS}{2 * f'{TEXT},1.5,no,insert{chr(10)}'}"}),
    "duplicate id": (
        {**_CSV, "id": "id", "features": ["a"]},
        {"model": "random_updates", "insert_probability": 1.0},
        {"data.csv": f"{_TEXT_IDS}{2 * f'{TEXT},1.5,no,insert{chr(10)}'}"},
    ),
    "late": (
        {**_CSV, "ts": "t"},
        {"model": "time_window", "duration": 10**6},
        {"data.csv": f"{_TIMES}503659,1.5,0\n200,1.5,0\n"},
    ),
    "pair": (_LIBSVM, {}, {"data.svm": f"{_PAIRS}1 {TEXT}:1\n"}),
    "label of pairs": (_LIBSVM, {}, {"data.svm": f"{_PAIRS}{TEXT} 3:1\n"}),
}
#: What is no bad row: the run cannot begin, whatever ``on_error`` says.
REFUSED = {
    "deletion log": (*_LOG, {"data.csv": GOOD, "gone.csv": f"id,after\n3,100\n{TEXT},150\n"}),
    "decimal comma": (_CSV, {}, {"data.csv": "id,a,y\n" + f'1,"1,{int(TEXT[:4], 16)}999",no\n' * 50}),
    "first pair": (_LIBSVM, {}, {"data.svm": f"{TEXT} 3:1\n"}),
}


def job_of(folder: Path, case: str, on_error: str, quote: bool) -> dict[str, Any]:
    source, stream, files = {**SKIPPED, **REFUSED}[case]
    for name, content in files.items():
        (folder / name).write_text(content)
    log = {"deletion_log": str(folder / stream["deletion_log"])} if "deletion_log" in stream else {}
    return {
        "source": {**source, "path": str(folder / source["path"])},
        "stream": {"model": "incremental", "on_error": on_error, **stream, **log},
        "learner": {"kind": "sparse_tree" if source["kind"] == "libsvm" else "fudyadt"},
        "cluster": {"backend": "in_process"},
        "checkpoint": {"every_seconds": None},
        "output": {"quote_values": quote},
    }


def holds(said: bytes) -> bool:
    return any(needle in said for needle in (TEXT[:24].encode(), b"50345999", b"503459"))


def files_with_values(run: Path) -> set[str]:
    """Files of a run, but for its data, that hold a canary."""
    data = {"checkpoints", "model", "config.yaml"}
    files = [file for file in run.rglob("*") if file.is_file() and file.relative_to(run).parts[0] not in data]
    return {file.name for file in files if any(map(holds, contents(file)))}


@pytest.mark.turns(8)
@pytest.mark.parametrize("quote", [True, False])
@pytest.mark.parametrize("case", [*SKIPPED, *REFUSED])
def test_errors_and_files(case: str, quote: bool, tmp_path: Path) -> None:
    if case in SKIPPED:
        run = Path(pipelines.replay(job_of(tmp_path, case, "skip", quote), tmp_path / "skipped").path)
        assert files_with_values(run) >= {"part-00000.parquet"} if quote else not files_with_values(run)
    with pytest.raises(RaydtError) as caught:
        pipelines.replay(job_of(tmp_path, case, "error", quote), tmp_path / "run")
    attributes = f"{caught.value} {caught.value.args} {vars(caught.value)}"
    assert holds(attributes.encode()) is quote, attributes
    assert quote or "(a value)" in str(caught.value)
    if (tmp_path / "run" / "log.jsonl").exists():
        assert (
            files_with_values(tmp_path / "run") >= {"log.jsonl"} if quote else not files_with_values(tmp_path / "run")
        )


def test_validate_and_sweep(tmp_path: Path) -> None:
    (bad,) = look_at(load_config(job_of(tmp_path, "number", "skip", False)))["bad_rows"]
    assert "(a value)" in bad
    assert TEXT not in bad
    sweep(job_of(tmp_path, "unknown id", "error", False), ["learner.max_depth=2,3"], tmp_path / "sweep")
    written = [
        file.read_text() for file in (tmp_path / "sweep").rglob("*") if file.suffix != ".parquet" and file.is_file()
    ]
    assert any("(a value)" in one for one in written)
    assert not any(TEXT in one for one in written)


#: A run whose checkpoints, stream and report fail with errors of other packages, which say a value.
UNEXPECTED = f"""
import pipelines.running.loop as run
import pipelines.running.ending as outcome
from pipelines.cli import main
from raydt.folders.checkpoint import CheckpointStore

def fails(*given, **named):
    raise ValueError("{TEXT}")

def feeds_and_fails(*given, feed=run.feed):
    feed(*given)
    fails()

CheckpointStore.write = outcome.publish_report = fails
run.feed = feeds_and_fails
main()
"""


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("quote", "words"),
    [(False, ["-v"]), *(pytest.param(*more, marks=pytest.mark.nightly) for more in ((True, ["-v"]), (False, [])))],
)
def test_unexpected_errors(quote: bool, words: list[str], tmp_path: Path) -> None:
    """They are named, with the place, and their text is in no file and not on the terminal."""
    job = job_of(tmp_path, "number", "skip", quote) | {"checkpoint": {"every_updates": 50}}
    job["cluster"] |= {"batch_size": 10}
    (tmp_path / "config.yaml").write_text(json.dumps(job))
    for command in (["replay", str(tmp_path / "config.yaml"), "--out"], ["resume"]):
        arguments = [sys.executable, "-c", UNEXPECTED, *words, *command, str(tmp_path / "run")]
        ended = subprocess.run(arguments, capture_output=True, check=False)
        assert ended.returncode == 1
        assert holds(ended.stderr) is quote
        assert (b"log.jsonl" in ended.stderr) is not quote
        assert (
            files_with_values(tmp_path / "run") >= {"log.jsonl", "summary.json"}
            if quote
            else not files_with_values(tmp_path / "run")
        )
    records = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert {"run_failed", "checkpoint_failed", "report_failed"} <= {record["event"] for record in records}
    for failed in (record for record in records if record["event"] == "run_failed"):
        assert re.search(r", in feeds_and_fails.*ValueError", failed["traceback"], re.DOTALL)


#: Rows from which a CSV file is known to have numbers in column a.
_NEW = "id,a,y\n" + "".join(f"{1000 + i},{i}.5,no\n" for i in range(200))
#: What is wrong with what a command is given: its words, the text of a file, and what a message quotes.
COMMANDS = {
    "row to insert": ("update PLACE --dry-run --insert FILE", f"{_NEW}900,{TEXT},no\n", TEXT),
    "id to insert": ("update PLACE --dry-run --insert FILE", "id,a,y\n503459,1.5,no\n503459,1.5,no\n", "503459"),
    "id to delete": ("update PLACE --dry-run --delete FILE", "id\n503459\n", "503459"),
    "row to predict": ("predict PLACE FILE --out OUT", f"{_NEW}1,{TEXT},no\n", TEXT),
    "predictions skipped": ("predict PLACE FILE --out OUT --on-error skip", f"{_NEW}1,{TEXT},no\n2,1,no\n", TEXT),
    "row to explain": ("predict PLACE FILE --explain 200", f"{_NEW}1,{TEXT},no\n", TEXT),
    "id to purge": ("purge PLACE --dry-run --ids FILE", "id\n5\n", "id 5"),
}


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, bool], Path]:
    """A run that quotes values, and one that does not; and a state that was made from each."""
    found = {}
    for quote in (True, False):
        folder = tmp_path_factory.mktemp("places")
        job = job_of(folder, "number", "skip", quote)
        found["run", quote] = Path(pipelines.replay(job, folder / "run").path)
        (folder / "gone.csv").write_text("id\n0\n")
        pipelines.update(folder / "run", out=folder / "first", delete=folder / "gone.csv")
        (folder / "gone.csv").write_text("id\n1\n")
        pipelines.update(folder / "first", out=folder / "second", delete=folder / "gone.csv")
        found["state", quote] = folder / "second"
    return found


@pytest.mark.turns(8)
@pytest.mark.parametrize("quote", [True, False])
@pytest.mark.parametrize("place", ["run", "state"])
@pytest.mark.parametrize("name", COMMANDS)
def test_commands_obey_the_run(
    name: str, place: str, quote: bool, places: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words, content, value = COMMANDS[name]
    (tmp_path / "given.csv").write_text(content)
    meant = {"PLACE": places[place, quote], "FILE": tmp_path / "given.csv", "OUT": tmp_path / "out.parquet"}
    with pytest.raises(SystemExit) as ended:
        main([str(meant.get(word, word)) for word in words.split()])
    said = capsys.readouterr().err
    assert ended.value.code == (0 if "skip" in words else 2), said
    assert (value in said) is quote, said
    assert ("(a value)" in said) is not quote, said


def test_an_unexpected_error_of_a_command_is_only_named(
    places: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*given: Any, **named: Any) -> None:
        raise ValueError(TEXT)

    monkeypatch.setattr("pipelines.updating.journal.open_members", fails)
    with pytest.raises(ValueError, match=TEXT):
        main(["update", str(places["run", True]), "--dry-run", "--delete", "gone.csv"])
    with pytest.raises(SystemExit):
        main(["update", str(places["run", False]), "--dry-run", "--delete", "gone.csv"])
    said = capsys.readouterr().err
    assert "ValueError" in said
    assert TEXT not in said


def test_a_word_for_no_label_and_a_code_are_values(tmp_path: Path) -> None:
    job = job_of(tmp_path, "number", "skip", False)
    (tmp_path / "data.csv").write_text(GOOD.replace("yes", "1").replace("no", "0") + "900,1.5,NA\n")
    (bad,) = look_at(load_config(job))["bad_rows"]
    assert message("rows.word_for_nothing", value=WITHHELD, kind="integers").problem in bad
    coded = pa.DictionaryArray.from_arrays(pa.array([0, 50345999]), pa.array(["a"]), safe=False)
    _, flaws = without_flaws(pa.RecordBatch.from_arrays([coded], names=["a"]))
    assert [said.shown(quote=False) for _, said in flaws.values()] == [
        message("rows.code_beyond", value=WITHHELD, size=1)
    ]


def test_validate_says_what_a_deadline_does_not_bound(tmp_path: Path) -> None:
    job = job_of(tmp_path, "number", "skip", True)
    job |= {"checkpoint": {"every_seconds": 60, "max_age": "1h"}, "erasure": {"deadline": "2h"}}
    job["output"]["predictions"] = True
    (warning,) = look_at(load_config(job))["warnings"]
    assert all(place in warning for place in ("predictions/", "quarantine/", "log.jsonl"))
    assert look_at(load_config(job | {"output": {"quote_values": False}}))["warnings"] == []
    assert look_at(load_config(job | {"checkpoint": {}, "erasure": {}}))["warnings"] == []
