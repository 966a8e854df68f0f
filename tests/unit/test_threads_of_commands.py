"""``cluster.threads``: in every command the pool uses as many threads as the config says; outcomes are equal."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from pipelines import replay, resume, sweep, update
from pipelines.auditing import audit_run, audit_state, verify_receipts, verify_run
from pipelines.config import load_config
from pipelines.operation import load_yaml
from pipelines.prediction import explain_row, export_model, predict_file
from pipelines.purging import purge
from pipelines.receipts import ReceiptFile
from pipelines.validation import look_at
from raydt import parallel as threads
from raydt.errors import ConfigError
from tests.crews import crew

#: Values of ``cluster.threads``, and what they mean where a process may use four CPUs.
GIVEN = {1: 1, 3: 3, "auto": 4}


def table(n: int, first: int = 0) -> pa.Table:
    """Rows with ids from ``first`` on."""
    X = np.round(np.random.default_rng(first).normal(size=(n, 3)), 1)
    columns = {f"x{j}": X[:, j] for j in range(X.shape[1])}
    return pa.table({"id": np.arange(first, first + n), "y": (X[:, 0] > 0).astype(int), **columns})


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[Any, Path]:
    """A run with each number of threads, over a file of rows that come and go."""
    folder = tmp_path_factory.mktemp("runs")
    pa.csv.write_csv(table(240), folder / "rows.csv")
    config = {
        "source": {"kind": "csv", "path": str(folder / "rows.csv"), "label": "y", "id": "id"},
        "learner": {"kind": "forest", "n_estimators": 4, "sample_share": 0.5},
        "stream": {"model": "sliding_window", "window": 100},
        "output": {"report": False, "predictions": True},
    }
    with crew(None):
        for given in GIVEN:
            replay(config | {"cluster": {"backend": "in_process", "threads": given}}, folder / str(given))
    return {given: folder / str(given) for given in GIVEN}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[int]]:
    """Numbers of threads that the pool was asked for; little work is divided, too."""
    numbers, real = set[int](), threads.threads

    def noted() -> int:
        number = real()
        numbers.add(number)
        return number

    monkeypatch.setattr(threads, "cpus_here", lambda: 4)
    monkeypatch.setattr(threads, "threads", noted)
    with crew(None):
        yield numbers


def resumed(run: Path, folder: Path) -> Any:
    """Go on from the last checkpoint but one."""
    shutil.copytree(run, folder / "run")
    (folder / "run" / "summary.json").unlink()
    return resume(folder / "run").digest


def swept(run: Path, folder: Path) -> Any:
    return sweep(run / "config.yaml", {"learner.max_depth": [1, 2, 3, 4]}, folder / "sweep").table["digest"].to_pylist()


def updated(run: Path, folder: Path) -> Any:
    pq.write_table(table(9, 1000), folder / "new.parquet")
    return update(run, insert=folder / "new.parquet", out=folder / "more").digest_after


def predicted(run: Path, folder: Path) -> Any:
    pq.write_table(table(50, 2000), folder / "rows.parquet")
    predict_file(run, folder / "rows.parquet", folder / "found.parquet")
    return pq.read_table(folder / "found.parquet").to_pydict()


def explained(run: Path, folder: Path) -> Any:
    pq.write_table(table(50, 2000), folder / "rows.parquet")
    return explain_row(run, folder / "rows.parquet", 7)


def exported(run: Path, folder: Path) -> Any:
    export_model(run / "checkpoints", "lightgbm", folder / "model.txt")  # whose model is made first
    return (folder / "model.txt").read_text()


def purged(run: Path, folder: Path) -> Any:
    shutil.copytree(run, folder / "run")
    (folder / "key").write_text("0" * 64)
    receipts = ReceiptFile(str(folder / "receipts"), str(folder / "key"))
    found = purge(folder / "run", receipts=receipts)
    return found["digest"], len(found["replaced"]), found["rewritten"]


def verified(run: Path, folder: Path) -> Any:
    purged(run, folder)
    found = verify_receipts(folder / "receipts", folder / "run")
    started = json.loads((run / "log.jsonl").read_text().splitlines()[0])
    assert found["origin"].pop("run") == started["id"]  # which no two runs share
    return {**found, "head": ""}


COMMANDS: dict[str, Callable[[Path, Path], Any]] = {
    "replay": lambda run, folder: replay(run / "config.yaml", folder / "again").digest,
    "resume": resumed,
    "sweep": swept,
    "validate": lambda run, folder: look_at(load_config(run / "config.yaml")),
    "update": updated,
    "purge": purged,
    "predict": predicted,
    "predict --explain": explained,
    "export": exported,
    "audit": lambda run, folder: audit_run(run).as_dict(),
    "audit a state": lambda run, folder: audit_state(run / "checkpoints").as_dict(),
    "verify": lambda run, folder: verify_run(run),
    "verify a state": lambda run, folder: verify_run(run / "checkpoints"),
    "verify receipts": verified,
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_uses_the_threads_of_its_config(
    command: str, runs: dict[Any, Path], asked: set[int], tmp_path: Path
) -> None:
    found = []
    for given, most in GIVEN.items():
        asked.clear()
        folder = tmp_path / str(given)
        folder.mkdir()
        found.append(COMMANDS[command](runs[given], folder))
        assert asked - {1} == {most} - {1}, given  # a task divides nothing
        assert asked, given
    assert found == [found[0]] * len(GIVEN)


@pytest.mark.parametrize("wrong", [0, -1, 1.5, "many"])
def test_what_is_no_number_of_threads_is_refused(wrong: Any, runs: dict[Any, Path]) -> None:
    config = load_yaml((runs["auto"] / "config.yaml").read_text())
    with pytest.raises(ConfigError):
        load_config(config | {"cluster": {"threads": wrong}})
