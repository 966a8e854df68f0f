"""Runs with a model for each key, the runs of the rows of each key alone, and what their tables hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

import pipelines
from raydt.keyed.packing import SavedKeys, open_keys
from tests.cases import CASES, Trial, change_log
from tests.small_tables import table_of, written

# -- keyed runs ------------------------------------------------------------------------------------------------------
# A run with a model for each key, and the runs of the rows of each key alone.

#: Names that are hard to tell apart, or to write.
KEYS = ("north", "", "two\nlines")


def by_day(trial: Trial) -> bool:
    """Whether a case is taken in every test run: the first of all."""
    return trial is CASES[0]


def rows_of(trial: Trial, updates: int = 40, keys: tuple[str, ...] = KEYS) -> list[dict[str, Any]]:
    """A change log for each key, one row of each after another; ids differ between keys."""
    logs = []
    for place, key in enumerate(keys):
        log = change_log(updates, trial.case.warmup, place)
        logs.append([{**row, "id": f"{place} {row['id']}", "key": key} for row in log])
    return [row for rows in zip(*logs, strict=True) for row in rows]


def table(rows: list[dict[str, Any]], width: int = 16, *, numbers: bool = False) -> pa.Table:
    """Rows as a table with their column of keys, and the subjects that some name; ids are ``numbers``, or text."""
    whole = table_of(rows, width).append_column("key", pa.array([row["key"] for row in rows], pa.string()))
    if numbers:
        ids = pa.array([int(row["id"]) for row in rows], pa.int64())
        whole = whole.set_column(whole.schema.get_field_index("id"), "id", ids)
    return whole.append_column(
        "subject", pa.array([row.get("subject", str(row["id"])[-1]) for row in rows], pa.string())
    )


def replayed(
    trial: Trial, folder: Path, rows: list[dict[str, Any]], *, by_key: bool, width: int = 16, **sections: Any
) -> Path:
    """The folder of a run of these rows: a model for each key, or one."""
    folder.mkdir(parents=True)
    config = trial.config(folder, 1, **sections)
    config["source"] |= {"path": str(written(folder / "rows.arrow", table(rows, width))), "subject": "subject"}
    config["source"] |= {"key": "key"} if by_key else {}
    return Path(pipelines.replay(config, folder / "run").path)


def of_keys(place: Path) -> SavedKeys:
    """The state of a run, or one that an update wrote."""
    from pipelines.saved_runs import find_state

    found = open_keys(find_state(place).folder.root)
    assert found is not None
    return found


def what_is_held(saved: Any) -> dict[str, str]:
    """What a state holds of its model, rows and dictionaries, as text."""
    components = {name: saved.components[name] for name in saved.components if name not in ("meta", "recorder", "live")}
    if "scores" in components:  # a window ends with a run, and an update begins one: it says nothing
        components["scores"] = {n: one for n, one in components["scores"].items() if not n.startswith("window")}
    own = {name: saved.meta[name] for name in ("classes", "categories", "next_id", "offset")}
    return {"digest": saved.session().digest(), "meta": repr(own), **{n: _text(one) for n, one in components.items()}}


def _text(values: Any) -> str:
    if isinstance(values, dict):
        return repr({name: _text(values[name]) for name in sorted(values)})
    return repr(values.tolist() if hasattr(values, "tolist") else values)


# -- keyed cases -----------------------------------------------------------------------------------------------------
# Small runs with a model for each key: a change log of several keys, the same rows apart, and tables to compare.

KEYS_CASES = ["north", "south", "7"]


def files(trial: Trial, folder: Path) -> tuple[Path, dict[str, Path]]:
    """A change log of several keys, and one file for each of them."""
    rows: list[dict[str, Any]] = []
    own = {}
    logs = {key: change_log(70, trial.case.warmup, seed) for seed, key in enumerate(KEYS_CASES)}
    for key, log in logs.items():
        own[key] = written(folder / f"{len(own)}.arrow", table_of(log))
    while any(logs.values()):
        for key, log in logs.items():
            rows += [{**row, "key": key} for row in log[:3]]
            del log[:3]
    table = table_of(rows).append_column("key", pa.array([row["key"] for row in rows], pa.string()))
    return written(folder / "all.arrow", table), own


def config(trial: Trial, path: Path, **source: Any) -> dict[str, Any]:
    return {
        "source": {"kind": "arrow", "path": str(path), "op": "op", **trial.columns, **source},
        "stream": {"model": "changelog", "warmup": trial.case.warmup, "on_error": "skip"},
        "learner": trial.section,
        "cluster": {"backend": "in_process", "batch_size": 2},
        "checkpoint": {"every_updates": 40, "every_seconds": None},
        "output": {"report": False, "predictions": True, "metrics_every": 25},
    }


def rows_of_cases(run: str, table: str, key: str | None = None) -> list[dict[str, Any]]:
    """Rows of a table, without the columns that count time or traffic."""
    folder = Path(run) / table
    if not folder.is_dir():
        return []
    found = ds.dataset(folder).to_table().to_pylist()
    left_out = {"seconds", "rounds", "bytes_exchanged", "rebuilt_rows", "key", "source_row", "file", "reason"}
    return [
        {name: value for name, value in row.items() if name not in left_out}
        for row in found
        if key is None or row["key"] == key
    ]
