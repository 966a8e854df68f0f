"""Models by key of real tables beside one model of all rows: accuracy in all and by key, and where keys lose.

Both predict each row before they learn it, and no row is deleted. The one model has the key as a feature, but for
``electricity``, whose period of the day tells the hour. Only rows that both predict count: a learner that takes a
warm-up predicts none of the first rows of a key.

A key is better or worse where the rows that one of both predicts right and the other wrong are not evenly divided: by
more than two standard deviations (McNemar).

Run: python benchmarks/keyed_real.py [--data FOLDER] [--sets noshow ...] [--learners fudyadt ...]
"""

from __future__ import annotations

import argparse
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from harness import DATA, machine

import pipelines

#: Column of keys of each table, and other options of its source.
SETS: dict[str, tuple[str, dict[str, Any]]] = {
    "noshow": ("neighbourhood", {"exclude": ["patient", "scheduled", "time"]}),
    "kddcup99_10pct": ("service", {}),
    "adult_train": ("occupation", {}),
    "electricity": ("hour", {}),
}
#: Options of learners beside their kind, and rows of a warm-up.
LEARNERS: dict[str, tuple[dict[str, Any], int]] = {
    "fudyadt": ({}, 0),
    "confidence_tree": ({}, 50),
    "forest": ({"n_estimators": 10}, 0),
    "gbdt": ({"max_iter": 20}, 50),
}
#: Bounds of the number of rows of a key, for the table by size.
SIZES = (0, 100, 1_000, 10_000, 1 << 40)


class Compared(NamedTuple):
    """Predictions of the same rows by the models of their keys and by one model."""

    key: npt.NDArray[Any]  #: Shape (n,), as all others: key of each row.
    by_key: npt.NDArray[np.bool_]  #: Whether the model of the key was right.
    one: npt.NDArray[np.bool_]  #: Whether the one model was.


def table_of(name: str, data: Path) -> pa.Table:
    """Read a table, with a column of keys."""
    table = pq.read_table(data / f"{name}.parquet")
    if name == "electricity":
        half_hours = np.round(np.asarray(table["period"], dtype=np.float64) * 47).astype(np.int64)
        table = table.append_column("hour", pa.array(half_hours // 2))
    return table


def compared(name: str, learner: str, data: Path, folder: Path) -> Compared:
    """Run both over a table, and put their predictions of each row side by side."""
    column, more = SETS[name]
    options, warmup = LEARNERS[learner]
    table, path = table_of(name, data), folder / f"{name}.parquet"
    pq.write_table(table, path)
    source = {"kind": "parquet", "path": str(path), "label": "y", **more}
    config: dict[str, Any] = {
        "source": {**source, "key": column},
        "stream": {"model": "incremental", "warmup": warmup},
        "learner": {"kind": learner, **options},
        "cluster": {"backend": "in_process"},
        "checkpoint": {"every_seconds": None},
        "output": {"report": False, "predictions": True},
    }
    by_key = pipelines.replay(config, folder / f"{name} {learner} by key")
    if name == "electricity":
        source["exclude"] = [column]
    one = pipelines.replay({**config, "source": source}, folder / f"{name} {learner} one")

    keys = np.array(table[column].to_pylist())
    right = np.full((2, len(keys)), -1, dtype=np.int8)
    _, codes = np.unique(keys, return_inverse=True)
    rows_of = np.split(np.argsort(codes, kind="stable"), np.cumsum(np.bincount(codes))[:-1])
    place = {keys[rows[0]]: rows for rows in rows_of}
    found = ds.dataset(Path(by_key.path) / "predictions").to_table()
    same = np.array(found["prediction"].to_pylist()) == np.array(found["truth"].to_pylist())
    for key, at, good in zip(found["key"].to_pylist(), found["seq"].to_pylist(), same.tolist(), strict=True):
        right[0, place[key][at]] = good
    found = ds.dataset(Path(one.path) / "predictions").to_table()
    same = np.array(found["prediction"].to_pylist()) == np.array(found["truth"].to_pylist())
    right[1, np.asarray(found["seq"])] = same
    both = (right >= 0).all(axis=0)
    return Compared(keys[both], right[0, both] == 1, right[1, both] == 1)


def shown(share: float) -> str:
    """A share with four digits."""
    return f"{share:.4f}".removeprefix("0")


def verdicts(found: Compared) -> dict[Any, int]:
    """Return 1 for each key whose model is better on its rows than the one model, -1 if it is worse, else 0."""
    result = {}
    for key in np.unique(found.key).tolist():
        mine = found.key == key
        more = int(np.count_nonzero(found.by_key[mine] & ~found.one[mine]))
        less = int(np.count_nonzero(~found.by_key[mine] & found.one[mine]))
        result[key] = int(np.sign(more - less)) if abs(more - less) > 2 * np.sqrt(more + less) else 0
    return result


def print_tables(name: str, learner: str, found: Compared) -> None:
    """Print a line of the first table, then accuracies by the size of keys, and the keys that lose and win most."""
    told = verdicts(found)
    better, worse = (sum(one == sign for one in told.values()) for sign in (1, -1))
    first = [name, SETS[name][0], learner, len(told), f"{len(found.key):,}", shown(found.by_key.mean())]
    print("all |", " | ".join(map(str, [*first, shown(found.one.mean()), f"{better} / {worse}"])), flush=True)
    keys, counts = np.unique(found.key, return_counts=True)
    sizes = dict(zip(keys.tolist(), counts.tolist(), strict=True))
    size = np.array([sizes[key] for key in found.key.tolist()])
    for low, high in pairwise(SIZES):
        mine = (size >= low) & (size < high)
        if mine.any():
            chosen = [key for key, n in sizes.items() if low <= n < high]
            told_of = f"{sum(told[k] == 1 for k in chosen)} / {sum(told[k] == -1 for k in chosen)}"
            shares = [shown(found.by_key[mine].mean()), shown(found.one[mine].mean()), told_of]
            rows = f"{low:,} to {high - 1:,}" if high < SIZES[-1] else f"{low:,} and more"
            print("by size |", " | ".join([name, learner, rows, str(len(chosen)), *shares]), flush=True)
    gains = {key: int(found.by_key[mine].sum()) - int(found.one[mine].sum()) for key, mine in _parts(found)}
    for key in sorted(gains, key=gains.__getitem__)[:3] + sorted(gains, key=gains.__getitem__)[-2:]:
        mine = found.key == key
        line = [name, learner, str(key), f"{sizes[key]:,}", shown(found.by_key[mine].mean())]
        print("key |", " | ".join([*line, shown(found.one[mine].mean()), f"{gains[key]:+}"]), flush=True)


def _parts(found: Compared) -> list[tuple[Any, npt.NDArray[np.bool_]]]:
    return [(key, found.key == key) for key in np.unique(found.key).tolist()]


def main() -> None:
    """Print the tables of what is asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the tables")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--learners", nargs="+", choices=LEARNERS, default=["fudyadt"])
    given = parser.parse_args()
    print(machine())
    print("all | table | key | learner | keys | rows | accuracy by key | of one model | keys better / worse")
    print("by size | table | learner | rows of a key | keys | accuracy by key | of one model | keys better / worse")
    print("key | table | learner | key | rows | accuracy by key | of one model | rows gained")
    for name in given.sets:
        for learner in given.learners:
            with tempfile.TemporaryDirectory(prefix="raydt-keyed-") as folder:
                print_tables(name, learner, compared(name, learner, given.data, Path(folder)))


if __name__ == "__main__":
    main()
