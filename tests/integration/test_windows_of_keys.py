"""Hours of many keys in one job with a window of days by event time: each key is as in a run of its rows alone."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import pipelines

NAMES = [f"x{j}" for j in range(10)]
#: Keys, days and days of the window.
SMALL, LARGE = (50, 5, 3), (2_000, 90, 60)
#: Keys of one nightly test.
AT_A_TIME = 250


def rows(keys: int, days: int) -> pa.Table:
    """Every key has a row at every hour; the label tells on which side of a plane of the key's own the row is."""
    draw, hours = np.random.default_rng(5), 24 * days
    X = draw.standard_normal((hours, keys, len(NAMES)))
    side = np.einsum("hkj,kj->hk", X, draw.standard_normal((keys, len(NAMES))))
    began = datetime(2026, 1, 1, tzinfo=timezone.utc)
    times = pa.array([began + timedelta(hours=hour) for hour in range(hours)], pa.timestamp("us", "UTC"))
    return pa.table(
        {
            "time": times.take(pa.array(np.repeat(np.arange(hours), keys))),
            "store": np.tile(np.arange(keys), hours),
            **{name: X[:, :, j].ravel() for j, name in enumerate(NAMES)},
            "y": (side + 0.5 * draw.standard_normal(side.shape) > 0).astype(np.int64).ravel(),
        }
    )


def replayed(table: pa.Table, folder: Path, window: int, key: str | None) -> pipelines.RunResult:
    folder.mkdir()
    pq.write_table(table, folder / "rows.parquet")
    config: dict[str, Any] = {
        "source": {"kind": "parquet", "path": str(folder / "rows.parquet"), "label": "y", "key": key, "ts": "time"},
        "stream": {"model": "time_window", "duration": f"{window}d"},
        "learner": {"kind": "fudyadt"},
        "cluster": {"backend": "in_process"},
        "checkpoint": {"every_seconds": None},
        "output": {"report": False},
    }
    return pipelines.replay(config, folder / "run")


def found_in(run: pipelines.RunResult) -> dict[int, dict[str, Any]]:
    return {row["key"]: row for row in ds.dataset(Path(run.path) / "keys").to_table().to_pylist()}


def require_own_runs(
    whole: pa.Table, of_keys: dict[int, dict[str, Any]], keys: range, window: int, folder: Path
) -> None:
    """Require that what the job says of some keys is what their own runs say."""
    n = int(whole["store"][-1].as_py()) + 1
    for key in keys:
        own = whole.take(pa.array(np.arange(key, whole.num_rows, n))).drop_columns("store")
        alone = replayed(own, folder / str(key), window, None)
        row = of_keys[key]
        assert (row["digest"], row["active"]) == (alone.digest, alone.summary["active"]), key
        assert row["accuracy"] == alone.summary["metrics"]["accuracy"], key


def test_fifty_keys_are_as_alone(tmp_path: Path) -> None:
    keys, days, window = SMALL
    whole = rows(keys, days)
    run = replayed(whole, tmp_path / "whole", window, "store")
    assert run.summary["active"] == keys * 24 * window
    require_own_runs(whole, found_in(run), range(keys), window, tmp_path)


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> tuple[pa.Table, dict[int, dict[str, Any]]]:
    """The large job: its rows, and its table of keys."""
    keys, days, window = LARGE
    whole = rows(keys, days)
    return whole, found_in(replayed(whole, tmp_path_factory.mktemp("windows") / "whole", window, "store"))


@pytest.mark.nightly
@pytest.mark.parametrize("first", range(0, LARGE[0], AT_A_TIME))
def test_two_thousand_keys_are_as_alone(job: Any, first: int, tmp_path: Path) -> None:
    whole, of_keys = job
    require_own_runs(whole, of_keys, range(first, first + AT_A_TIME), LARGE[2], tmp_path)
