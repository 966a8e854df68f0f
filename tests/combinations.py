"""Jobs drawn from what a config can say all at once, each run twice, cut, resumed, audited, updated and purged.

The nets change one thing of a case at a time; faults also lie where two things meet, such as event times and a key
whose only row is bad. ``python -m tests.combinations FIRST COUNT`` takes the seeds from one on, and prints what failed.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines import replay, resume, update
from pipelines.auditing import audit_run, audit_state, verify_run
from pipelines.purging.steps import purge
from raydt.errors import RaydtError
from raydt.exchange.messages import injected
from tests.cases import CASES, Trial, change_log
from tests.small_tables import examples, table_of, written
from tests.storage_faults import Gone, at

#: What two runs of one stream have in common, beside their predictions.
SAME = ("updates", "inserts", "deletes", "predictions", "active", "model_digest", "nodes", "leaves")
KEYS = (("north", "", "two\nlines"), tuple(f"k{i}" for i in range(20)), ("only",))
STREAMS: dict[str, Callable[[random.Random], dict[str, Any]]] = {
    "incremental": lambda draw: {},
    "changelog": lambda draw: {},
    "deletion_log": lambda draw: {},
    "sliding_window": lambda draw: {"window": draw.choice((1, 5, 40, 150))},
    "time_window": lambda draw: {"duration": draw.choice((50, 400, 2000)), "lateness": draw.choice((0, 0, 20))},
    "random_updates": lambda draw: {"insert_probability": draw.choice((0.55, 0.8)), "seed": draw.randrange(50)},
    "batches": lambda draw: {
        "steps": draw.choice(([1.0, 0.5, 1.0], [0.3, 0.1, 0.6, 0.0, 0.2], [20, 10, 30])),
        "removal_order": draw.choice(("fifo", "lifo", "random")),
        "seed": draw.randrange(50),
    },
}


class Job:
    """A drawn job: its ``config``, and ``names`` of the rows, some of which are live at its end."""

    def __init__(self, draw: random.Random, folder: Path) -> None:
        self.trial: Trial = draw.choice(CASES)
        model, n = draw.choice(tuple(STREAMS)), draw.choice((30, 90, 200, 400))
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
        keys, of_id = draw.choice(KEYS), dict[str, dict[str, Any]]()
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


def check(seed: int, folder: Path) -> str:
    """Draw a job, and check it; AssertionError says what failed. Returns the id of the message that refuses it."""
    draw = random.Random(seed)
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
