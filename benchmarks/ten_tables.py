"""Ten tables, each from a file to an audited model with a config of at most eight lines.

Six are real (``--data``), four are drawn with times, persons and holes. Each table goes the way of a user: a file, a
config, ``raydt train`` or ``raydt replay``, ``raydt update`` with what is to be deleted or with a change log, and
``raydt audit`` of the new state. Any command that fails, a score below that of the best trivial predictor, or an audit
that does not hold ends the program with an error.

Run: python benchmarks/ten_tables.py [--data FOLDER] [--rows N] [--only clinic words ...] [--configs]
"""

import argparse
import contextlib
import io
import json
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
from harness import DATA, machine

from pipelines.cli import main as raydt

#: Lines that a config may have; rows that are deleted at most, or their persons; the file that configs name.
LINES, DELETED, FILE = 8, 20, "table.parquet"


@dataclass(frozen=True)
class Trial:
    config: str
    command: str = "train"
    make: Callable[[int], pa.Table] | None = None  #: Of a drawn table: so many rows.
    rows: int = 20_000  #: Of a drawn table.
    delete: str = "id"  #: Column of the requests, ``id`` or ``subject``; ``changes``: a change log.
    source: str = ""  #: Column of the table that has what is deleted; else rows have running numbers.


def clinic(n: int) -> pa.Table:
    """Draw visits of persons: a tenth of the numbers is missing, ids are text, and the risk grows with the time."""
    draw = np.random.default_rng(1)
    age, wait, person = draw.integers(1, 95, n), draw.exponential(10, n), draw.integers(0, n // 4 + 1, n)
    missed = draw.random(n) < 1 / (1 + np.exp(2.5 - wait / 8 + age / 60))
    wait = np.where(draw.random(n) < 0.1, np.nan, wait)
    times = np.datetime64("2025-01-01", "s") + np.sort(draw.integers(0, 500_000, n)).astype("timedelta64[m]")
    columns = {"visit": [f"v-{i:06d}" for i in range(n)], "person": [f"person {i}" for i in person], "at": times}
    columns |= {"age": age, "wait": pa.array(wait, from_pandas=True), "missed": np.where(missed, "yes", "no")}
    return pa.table({**columns, "clinic": draw.choice(["north", "south", "west"], n)})


def sensors(n: int) -> pa.Table:
    """Draw measurements of machines with holes, whose loss drifts with the time of year."""
    draw = np.random.default_rng(2)
    minutes = np.sort(draw.integers(0, 400_000, n))
    heat, load = 20 + 8 * np.sin(minutes / 60_000) + draw.normal(size=n), draw.random(n)
    loss = heat * load + 0.5 * draw.normal(size=n)
    holed = pa.array(np.where(draw.random(n) < 0.2, np.nan, heat), from_pandas=True)
    machines = pa.array([None if draw.random() < 0.05 else f"m{i}" for i in draw.integers(0, 9, n)])
    times = np.datetime64("2025-01-01", "s") + minutes.astype("timedelta64[m]")
    return pa.table({"time": times, "machine": machines, "heat": holed, "load": load, "loss": loss})


def accounts(n: int) -> pa.Table:
    """Draw a change log of customers' accounts, with holes: insertions, then some updates and deletions."""
    draw = np.random.default_rng(3)
    key, balance, orders = np.arange(n), draw.normal(100, 80, n), draw.poisson(4, n)
    leaves = np.where((balance < 80) & (orders < 5), "yes", "no")
    late = np.arange(n) >= n - n // 5
    op = np.where(late, draw.choice(["d", "u"], n), "c")
    key = np.where(late, key - n + n // 5, key)
    shown = pa.array(np.where(draw.random(n) < 0.1, np.nan, balance), from_pandas=True)
    people = [f"person {i % 97}" for i in key]
    return pa.table({"op": op, "key": key, "who": people, "balance": shown, "orders": orders, "leaves": leaves})


def words(n: int) -> pa.Table:
    """Draw messages of senders as lists of words: some words make spam likely, and some messages have none."""
    draw = np.random.default_rng(4)
    spam = draw.random(n) < 0.4
    lists = []
    for one in spam:
        chosen = {f"word{i}" for i in draw.integers(0, 300, draw.integers(0, 9))}
        lists.append(sorted(chosen | ({"cheap", "pills"} if one and draw.random() < 0.8 else set())))
    senders = [f"s{i}" for i in draw.integers(0, n // 5 + 1, n)]
    return pa.table({"sender": senders, "text": lists, "spam": np.where(spam, "spam", "ham")})


def config(source: str, *sections: str) -> str:
    """Return the lines of a config: the source, others, and one process."""
    of_source = f"source: {{kind: parquet, path: table.parquet, {source}}}"
    return "\n".join([of_source, *sections, "cluster: {backend: in_process}", ""])


_WINDOW = "stream: {model: time_window, duration: %s, warmup: %d}"
_GBDT, _FOREST = "learner: {kind: gbdt}", "learner: {kind: forest, n_estimators: 10}"
_PERSON: dict[str, Any] = {"delete": "subject"}
_NUMBERS = "learner: {kind: fudyadt, criterion: squared_error}"
_CHANGES = "stream: {model: changelog, warmup: 200}"
TRIALS = {
    "noshow": Trial(
        config("label: y, subject: patient, ts: time, exclude: [scheduled]", _GBDT), **_PERSON, source="patient"
    ),
    "beijing_pm25": Trial(config("label: y, ts: time", _WINDOW % ("60d", 1000), _FOREST), "replay", rows=12_000),
    "adult_train": Trial(config("label: y, positive: '>50K'", _GBDT)),
    "givemesomecredit": Trial(config("label: y", _FOREST)),
    "abalone": Trial(config("label: y", "learner: {kind: gbdt, objective: squared_error}")),
    "w8a": Trial(config("label: y, features: [indices], n_features: 300", _GBDT)),
    "clinic": Trial(
        config("label: missed, id: visit, subject: person, ts: at", "learner: {kind: forest}"),
        make=clinic, **_PERSON, source="person",
    ),
    "sensors": Trial(config("label: loss, ts: time", _WINDOW % ("90d", 200), _NUMBERS), "replay", sensors),
    "accounts": Trial(
        config("label: leaves, id: key, subject: who, op: op", _CHANGES, _GBDT), "replay", accounts, delete="changes"
    ),
    "words": Trial(
        config("label: spam, positive: spam, subject: sender, features: [text]", "learner: {kind: confidence_tree}"),
        make=words, **_PERSON, source="sender",
    ),
}  # fmt: skip


def command(*arguments: object) -> dict[str, Any]:
    """Run a command of raydt and return its result; SystemExit says which command failed, with what it printed."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            raydt([*map(str, arguments), "--json"])
        except SystemExit as ended:
            if ended.code:
                raise SystemExit(f"raydt {' '.join(map(str, arguments))}: {err.getvalue() or out.getvalue()}") from None
    found: dict[str, Any] = json.loads(out.getvalue())
    return found


def table_of(name: str, data: Path, rows: int | None) -> pa.Table | None:
    """Return the rows of a trial, at most so many; None if its file is not there."""
    trial = TRIALS[name]
    if trial.make is not None:
        return trial.make(min(trial.rows, rows or trial.rows))
    if not (data / f"{name}.parquet").is_file():
        return None
    return pq.read_table(data / f"{name}.parquet").slice(0, rows if rows or trial.command == "train" else trial.rows)


def walk(name: str, table: pa.Table, folder: Path) -> list[str]:
    """Take a table all the way in a folder, and return its cells; SystemExit if something is not as it should be."""
    trial, n = TRIALS[name], table.num_rows
    if (lines := trial.config.count("\n")) > LINES:
        raise SystemExit(f"{name}: a config of {lines} lines")
    changes = table.slice(n - n // 10) if trial.delete == "changes" else None
    pq.write_table(table if changes is None else table.slice(0, n - n // 10), folder / FILE)
    (folder / "my.yaml").write_text(trial.config, encoding="utf-8")
    options = ["--set", "output.report=false"]
    run = command(trial.command, folder / "my.yaml", *options, "--out", folder / "run")
    learner = f"{run['learner']}, {trial.command}"
    if changes is not None:
        pq.write_table(changes, folder / "later.parquet")
        receipt = command("update", folder / "run", "--changes", folder / "later.parquet", "--out", folder / "states")
    else:
        last = n - DELETED  # live in every window
        gone = table[trial.source].slice(last) if trial.source else pa.array(range(last, n))
        pacsv.write_csv(pa.table({trial.delete: gone}), folder / "gone.csv")
        receipt = command("update", folder / "run", "--delete", folder / "gone.csv", "--out", folder / "states")
    audit = command("audit", folder / "states")
    what, score, trivial = _score(run)
    if (score >= trivial if what == "mse" else score <= trivial) or audit["conformance"] != "holds":
        raise SystemExit(f"{name}: {what} {score:.3f} beside {trivial:.3f}, audit {audit}")
    seconds = run["seconds"] + ((run["holdout"] or {}).get("seconds") or 0.0)
    told = [f"{what} {score:.3f}", f"{trivial:.3f}", f"{seconds:.2f}"]
    deleted = f"{receipt['deletes']:,}" + (f" of {len(receipt['subjects'])} persons" if receipt["subjects"] else "")
    return [name, f"{n:,} x {len(run['features'])}", learner, str(lines), *told, deleted, audit["feasibility"]]


def _score(run: dict[str, Any]) -> tuple[str, float, float]:
    """Return the name of the score, its value, and that of a constant prediction."""
    metrics, rivals = run["metrics"], run["baselines"]
    if "mse" in metrics:
        return "mse", metrics["mse"], rivals["mean"]
    if metrics.get("auc") is not None:
        return "AUC", metrics["auc"], 0.5
    return "accuracy", metrics["accuracy"], rivals["majority"]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA, help="folder with the real tables")
    parser.add_argument("--rows", type=int, help="rows of each table, at most")
    parser.add_argument("--only", nargs="*", default=list(TRIALS), choices=list(TRIALS), help="these tables")
    parser.add_argument("--configs", action="store_true", help="print the configs, and run nothing")
    given = parser.parse_args(arguments)
    if given.configs:
        for name in given.only:
            print(f"# {name}: raydt {TRIALS[name].command}\n{TRIALS[name].config}")
        return
    print(machine("pyarrow"), f"load {os.getloadavg()[0]:.1f}\n", flush=True)
    head = ["table", "rows x features", "learner", "lines", "score", "trivial", "s", "deleted", "audit"]
    print(f"| {' | '.join(head)} |\n|{'---|' * len(head)}", flush=True)
    for name in given.only:
        table = table_of(name, given.data, given.rows)
        if table is None:
            print(f"| {name} | not in {given.data} |", flush=True)
            continue
        with tempfile.TemporaryDirectory() as folder:
            print(f"| {' | '.join(walk(name, table, Path(folder)))} |", flush=True)


if __name__ == "__main__":
    main()
