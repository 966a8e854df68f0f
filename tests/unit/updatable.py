"""Small jobs and runs that are updated, commands with their results, and keys that sign."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import pipelines
from pipelines.cli import cli
from tests.cases import open_state

# -- updatable -------------------------------------------------------------------------------------------------------
# A fixed sequence of examples and runs over its beginning, for tests of ``update``.

COLUMNS = ["key", "a", "colour", "y"]


def table(begin: int, end: int, *, text_ids: bool = True) -> pa.Table:
    """Examples ``begin`` to ``end`` of one fixed sequence."""
    rng = np.random.default_rng(1)
    a, colour = np.round(rng.normal(size=2000), 2), rng.integers(0, 3, 2000)
    y = np.where((a > 0) ^ (colour == 1), "yes", np.where(rng.random(2000) < 0.3, "no", "perhaps"))
    key = [f"k{i:04d}" for i in range(2000)] if text_ids else list(range(2000))
    columns = [key, a, np.array(["red", "green", "blue"])[colour], y]
    return pa.table([pa.array(list(c)[begin:end]) for c in columns], names=COLUMNS)


def replayed(folder: Path, **source: Any) -> Path:
    """A run over the first 200 examples."""
    pq.write_table(table(0, 200, text_ids=source.pop("text_ids", True)), folder / "train.parquet")
    stream = source.pop("stream", {"model": "incremental"})
    learner = source.pop("learner", {"kind": "fudyadt", "alpha": 0.02, "beta": 0.02})
    config = {
        "checkpoint": source.pop("checkpoint", {}),
        "source": {"kind": "parquet", "path": str(folder / "train.parquet"), "id": "key", **source},
        "stream": stream,
        "learner": learner,
        "cluster": {"backend": "in_process"},
        "output": {"predictions": True, "report": False},
    }
    return Path(pipelines.replay(config, folder / "run").path)


def ids_file(file: Path, ids: list[Any], name: str = "id") -> Path:
    pacsv.write_csv(pa.table({name: ids}), file)
    return file


def live_names(state: Path) -> set[str]:
    """Ids of the examples of a state, read from its arrays."""
    saved = open_state(state)[0]
    stream = saved.components["stream"]
    names = dict(zip(stream["id_codes"].tolist(), stream["ids"], strict=True)) if "id_codes" in stream else {}
    return {str(names.get(one, one)) for one in saved.arrays["id"].tolist()}


# -- commands --------------------------------------------------------------------------------------------------------
# What a command gives, and a key with which it may sign.


def raydt_command(*arguments: Any) -> tuple[int, Any]:
    """Exit code and result of a command; the error that it ends with is raised."""
    ended = CliRunner().invoke(cli, [*map(str, arguments), "--json"], standalone_mode=False)
    if ended.exception is not None:
        raise ended.exception
    return ended.return_value, json.loads(ended.stdout)


def private_key(path: Path) -> Path:
    """A file with a key of its own, for ``--sign``."""
    pytest.importorskip("cryptography")
    from cryptography.hazmat.primitives import serialization as form
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    path.write_bytes(key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption()))
    return path


# -- small job -------------------------------------------------------------------------------------------------------
# A job that takes no time, for tests of the commands.

JOB = {
    "source": {"kind": "synthetic", "generator": "sea", "n": 500},
    "stream": {"model": "incremental"},
    "learner": {"kind": "fudyadt", "max_depth": 3},
    "cluster": {"backend": "in_process"},
    "output": {"report": False},
}
