"""A change log of another system as a job: the same model as from plain operations, and errors a user can act on."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from pipelines import replay
from pipelines.auditing import audit_run
from pipelines.config import load_config
from pipelines.display import validation_lines
from pipelines.validation import look_at
from raydt.errors import InputError
from raydt.messages import message
from tests.changelogs import SPELLINGS, spelled
from tests.refusals import refused


def changes(n=400, seed=3):
    """Inserts, updates and deletes that all take effect; ids come back."""
    rng, live, found = np.random.default_rng(seed), [], []
    for _ in range(n):
        kind = rng.choice(list("iiud")) if live else "i"
        if kind == "i":
            key = int(rng.choice(np.setdiff1d(np.arange(n), live)))
            live.append(key)
        else:
            key = live[int(rng.integers(len(live)))]
        if kind == "d":
            live.remove(key)
        a, s = float(rng.normal()), str(rng.choice(list("pqr")))
        found.append((str(kind), key, a, s, "yes" if (a > 0) ^ (s == "p") else "no"))
    return found


def run(folder, table, **options):
    pq.write_table(table, folder / "log.parquet", row_group_size=50)
    config = {
        "source": {"kind": "parquet", "path": str(folder / "log.parquet"), "id": "id", "op": "op", **options},
        "stream": {"model": "changelog"},
        "learner": {"kind": "fudyadt"},
        "cluster": {"backend": "in_process", "batch_size": 37},
        "output": {"report": False},
    }
    return replay(config, folder / "run")


def test_every_spelling_gives_the_same_model(tmp_path):
    summaries = {}
    for spelling, options in SPELLINGS.items():
        folder = tmp_path / spelling
        folder.mkdir()
        run(folder, spelled(changes(), spelling), **options)
        summaries[spelling] = json.loads((folder / "run" / "summary.json").read_text())
    names = ("model_digest", "updates", "inserts", "deletes", "active", "refused", "skipped", "metrics", "rebuilds")
    told = {spelling: [summary[name] for name in names] for spelling, summary in summaries.items()}
    assert told["plain"][1] == len(changes())
    assert all(facts == told["plain"] for facts in told.values())
    report = audit_run(tmp_path / "envelope" / "run")
    assert (report.conformance, report.feasibility) == ("holds", "proven")


def test_a_truncate_stops_the_run_before_it(tmp_path):
    log = spelled(changes(50), "debezium")
    more = pa.concat_tables([log, log.slice(0, 1).set_column(0, "op", pa.array(["t"])), log])
    with refused("rows.truncate", InputError, row=50, column="op", value="'t'"):
        run(tmp_path, more)
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (summary["status"], summary["updates"]) == ("failed", 50)


def test_a_snapshot_of_what_is_live_is_refused(tmp_path):
    log = spelled([("i", 1, 0.0, "p", "no"), ("i", 2, 1.0, "q", "yes"), ("i", 1, 0.0, "p", "no")], "envelope")
    with pytest.raises(InputError, match=r"row 2: update 2: .* is live \(id 1\)"):
        run(tmp_path, log, envelope="debezium")


def test_validate_says_how_many_updates_there_are_at_most(tmp_path):
    table = spelled([("i", 1, 0.0, "p", "no"), ("u", 1, 1.0, "q", "yes")], "flink")
    pq.write_table(table, tmp_path / "log.parquet")
    pacsv.write_csv(table, str(tmp_path / "log.csv"))
    for kind, words in (("parquet", "at most 3"), ("csv", message("commands.unknown_length"))):
        source = {"kind": kind, "path": str(tmp_path / f"log.{kind}"), "id": "id", "op": "op"}
        config = load_config({"source": source, "stream": {"model": "changelog"}, "learner": {"kind": "fudyadt"}})
        lines = [line.split(maxsplit=1) for line in validation_lines(look_at(config), "c").splitlines()]
        assert dict(lines)["updates"].strip() == words
