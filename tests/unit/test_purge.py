"""What purge does with each kind of file: one that leaves it is caught by the search for canaries."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner

import pipelines
from pipelines import erasing, purging
from pipelines.cli import cli
from pipelines.purging import purge
from raydt.errors import InputError
from tests.canaries import canary, hits
from tests.small_tables import SCHEMA, derived, examples, written


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A finished run with canaries in every kind of file."""
    rows = [{**derived(one), **one} for one in examples(60)]
    row = {**rows[0], **canary()}
    words = [*rows[:40], row, *rows[40:], row, {**row, "op": "delete"}]
    written(tmp_path / "changes.arrow", pa.Table.from_pylist(words, SCHEMA))
    config: dict[str, Any] = {
        "source": {
            "kind": "arrow",
            "path": str(tmp_path / "changes.arrow"),
            "op": "op",
            "id": "id",
            "label": "y_of_three",
        }
        | {"features": ["a", "b", "c", "d"]},
        "stream": {"model": "changelog", "on_error": "skip"},
        "learner": {"kind": "fudyadt"},
        "cluster": {"backend": "in_process"},
        "checkpoint": {"every_updates": 20, "every_seconds": None},
        "output": {"predictions": True},
    }
    folder = Path(pipelines.replay(config, tmp_path / "run").path)
    with (folder / "log.jsonl").open("a") as log:
        log.write(json.dumps({"level": "WARNING", "event": None, "message": f"refused {row['id']}"}) + "\n")
    (folder / "metrics" / ".part-00009.parquet").write_bytes(row["id"].encode())
    return folder


def kinds(run: Path) -> set[str]:
    return {name.split("/")[0] for name in hits(run)}


def test_every_kind_of_file_holds_one_before_and_none_after(run: Path) -> None:
    everywhere = {
        "checkpoints",
        "predictions",
        "quarantine",
        "model",
        "summary.json",
        "report.html",
        "log.jsonl",
        "metrics",
    }
    assert kinds(run) == everywhere
    plan = purge(run, dry_run=True)
    assert kinds(run) == everywhere
    done = purge(run)
    assert hits(run) == {}
    assert {name.split("/")[0] for name in plan["replaced"]} >= everywhere - {"metrics"}
    assert done["digest"] == json.loads((run / "summary.json").read_text())["model_digest"]
    assert (run / "report.html").exists()
    assert not (run / "quarantine").exists()


def leave(*_: Any, **__: Any) -> None:
    """Do nothing."""


MUTANTS: dict[str, tuple[Any, str, Any, set[str]]] = {
    "dictionaries": (purging, "erased_stream", lambda saved, stream: stream, {"checkpoints", "model"}),
    "classes": (purging, "erased_classes", lambda saved: saved.classes, {"checkpoints", "model", "summary.json"}),
    "values of live codes": (erasing, "live_categories", lambda saved: {"d": set(range(9))}, {"checkpoints", "model"}),
    "tables": (purging._Purge, "_live_rows", lambda self, batch: batch, {"predictions"}),
    "model": (purging._Purge, "_write_model", leave, {"model"}),
    "texts": (purging._Purge, "_write_texts", leave, {"summary.json", "report.html", "log.jsonl"}),
    "messages": (purging, "_says_nothing", lambda line: True, {"log.jsonl"}),
    "report": (purging, "report_of", leave, set()),
    "temporary files": (purging._Purge, "_sweep", leave, {"metrics"}),
    "checkpoints": (purging.CheckpointStore, "_prune", leave, {"checkpoints"}),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_purge_that_leaves_a_kind_of_file_is_caught(run: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, attribute, mutant, left = MUTANTS[name]
    monkeypatch.setattr(owner, attribute, mutant)
    purge(run)
    assert kinds(run) >= left
    monkeypatch.undo()
    purge(run)
    assert hits(run) == {}


def test_the_command_says_what_lies_outside(run: Path) -> None:
    result = CliRunner().invoke(cli, ["purge", str(run)], standalone_mode=False)
    assert result.return_value == 0, result.output
    assert "out of reach" in result.output
    assert "as before" in result.output


def test_a_run_that_is_not_complete_is_refused(run: Path) -> None:
    summary = json.loads((run / "summary.json").read_text())
    (run / "summary.json").write_text(json.dumps({**summary, "status": "failed"}))
    with pytest.raises(InputError, match="is failed, not completed"):
        purge(run)
    (run / "summary.json").write_text(json.dumps({**summary, "model_digest": "sha256:0"}))
    with pytest.raises(InputError, match="not the one of the summary"):
        purge(run)
