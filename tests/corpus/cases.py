"""The corpus of bad input: what is read, what is said, and what is kept.

The ``*.yaml`` files beside this one list the cases. A case names a file of ``files/`` (or ``configs/``), what its
config says besides, the whole message that is expected, and:

========  =========================================================================================================
kept      updates that have taken effect when the run stops; without it no run folder is left behind
skipped   rows and updates passed over under ``stream.on_error: skip``; without it that makes no difference
========  =========================================================================================================

``{files}`` and ``{configs}`` stand for the folders, ``{...}`` for a list of what is known, which grows.
Unless ``like: nothing`` is said, the rows kept are the first ones of the good data, and all of them under ``skip``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
FILES, CONFIGS = HERE / "files", HERE / "configs"
KINDS = {".parquet": "parquet", ".arrow": "arrow", ".arrows": "arrow"}

#: What the good rows of a case are, by its stream.
GOOD = {"incremental": "clean.csv", "changelog": "changelog.csv", "deletion_log": "log.csv"}


@dataclass(frozen=True)
class Case:
    """One entry of the corpus."""

    case: str
    file: str | list[str]
    source: dict[str, Any] = field(default_factory=dict)
    stream: dict[str, Any] = field(default_factory=dict)
    message: str | None = None
    kept: int | None = None
    skipped: int | None = None
    like: str = ""

    def __str__(self) -> str:
        return self.case

    @property
    def good(self) -> str | None:
        """The good data that this is like."""
        return None if self.like == "nothing" else GOOD[self.stream.get("model", "incremental")]

    def config(self, **stream: Any) -> dict[str, Any]:
        """The config of a run on the file."""
        return config_of(self.file, self.source, {**self.stream, **stream})


def config_of(file: str | list[str], source: dict[str, Any], stream: dict[str, Any]) -> dict[str, Any]:
    """A config in this process, whose paths are those of the corpus."""
    names = [file] if isinstance(file, str) else file
    paths = [name if "://" in name else str(FILES / name) for name in names]
    stream = {"model": "incremental", **stream}
    if "deletion_log" in stream:
        stream["deletion_log"] = str(FILES / stream["deletion_log"])
    kind = KINDS.get(Path(names[0]).suffix, "csv")
    return {
        "source": {"kind": kind, "path": paths[0] if isinstance(file, str) else paths, "id": "k", **source},
        "stream": stream,
        "learner": {"kind": "fudyadt", "epsilon": 0, "max_depth": 4},
        "cluster": {"backend": "in_process"},
        "output": {"report": False, "metrics_every": 4},
    }


def load(index: str) -> list[Any]:
    """The entries of one index."""
    return list(yaml.safe_load((HERE / index).read_text(encoding="utf-8")))


def cases() -> list[Case]:
    """All cases of data."""
    indexes = ("csv.yaml", "parquet.yaml", "arrow.yaml", "rows.yaml", "changelogs.yaml", "deletion-logs.yaml")
    return [Case(**entry) for index in (*indexes, "columns.yaml") for entry in load(index)]
