"""With ``output.quote_values: false`` nothing that a command says holds a value of the data, whatever is wrong with it.

Every value of every file is a canary: ids, categories, tokens, classes and numbers, and so are the "names" of a file
whose row of names is missing. Each file is damaged in every way below, for every command that reads it. What a command
was asked to show (an explanation, predictions, classes in a report) is its result and goes to stdout or a file; errors,
warnings and logs go to stderr and ``log.jsonl``. ``validate`` shows nothing but what is wrong, on stdout.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from pipelines.cli import main
from tests.canaries import contents

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
        for text in texts:
            for needle in NEEDLES:
                if needle in text:
                    at = text.index(needle)
                    self.leaks.append(
                        (case, " ".join(words[:2]), text[max(0, at - 300) : at + 40].decode(errors="replace"))
                    )


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str]) -> Told:
    return Told(capsys)


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


@pytest.mark.parametrize("damage", DAMAGE)
def test_what_commands_say_of_their_files(damage: str, run: Path, told: Told, tmp_path: Path) -> None:
    state, data = str(run), write(tmp_path / "data.csv", DAMAGE[damage]([HEADER, *rows(500)]))
    ids = DAMAGE[damage](["id,after,colour,verdict", *rows(3, 80)])
    log = write(tmp_path / "log.csv", [line.split(",")[0] if "," in line else line for line in ids])
    wide = write(tmp_path / "wide.csv", ids)
    out = str(tmp_path / "out.parquet")
    for options in ([], ["--on-error", "skip"], ["--id", "key"]):
        told.run("predict", state, data, "--out", out, "--overwrite", *options, case=damage)
    told.run("explain", state, data, "--row", "59", case=damage)
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
        ["export", "--to", "onnx", "--out", str(tmp_path / "m.onnx")],
    ):
        told.run(words[0], str(run), *words[1:], case=words[0], run=run)
    write(tmp_path / "data.csv", DAMAGE["a word among numbers"]([HEADER, *rows()]))
    told.run(
        "sweep", config(tmp_path), "--grid", "learner.max_depth=2,3", "--out", str(tmp_path / "sweep"), case="sweep"
    )
    assert not told.leaks


#: Further kinds of sources: a config, and the text of a file or its table.
def _table() -> pa.Table:
    return pacsv.read_csv(pa.BufferReader("\n".join([HEADER, *rows()]).encode()))


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
            told.run(
                "-v",
                "replay",
                job,
                "--out",
                str(tmp_path / f"{kind}{len(more)}"),
                case=file,
                run=tmp_path / f"{kind}{len(more)}",
            )
    assert not told.leaks
