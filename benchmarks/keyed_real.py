"""Models by key of real tables beside one model of all rows: accuracy in all and by key, and where keys lose.

Both predict each row before they learn it, and no row is deleted. The one model has the key as a feature, but for
``electricity``, whose period of the day tells the hour. Only rows that both predict count: a learner that takes a
warm-up predicts none of the first rows of a key.

A key is better or worse where the rows that one of both predicts right and the other wrong are not evenly divided: by
more than two standard deviations (McNemar).

Run: python benchmarks/keyed_real.py [--data FOLDER] [--sets noshow ...] [--learners fudyadt ...]
"""

import tempfile
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from harness import DATA, arguments, print_machine, show

import pipelines

#: Column of keys of each table, and other options of its source.
SETS: dict[str, tuple[str, dict[str, Any]]] = {
    "noshow": ("neighbourhood", {"exclude": ["patient", "scheduled", "time"]}), "kddcup99_10pct": ("service", {}),
    "adult_train": ("occupation", {}), "electricity": ("hour", {}),
}  # fmt: skip
#: Options of learners beside their kind, and rows of a warm-up.
LEARNERS: dict[str, tuple[dict[str, Any], int]] = {
    "fudyadt": ({}, 0), "confidence_tree": ({}, 50), "forest": ({"n_estimators": 10}, 0),
    "gbdt": ({"max_iter": 20}, 50),
}  # fmt: skip
#: Bounds of the number of rows of a key, for the table by size.
SIZES = (0, 100, 1_000, 10_000, 1 << 40)


class Compared(NamedTuple):
    """Predictions of the same rows by the models of their keys and by one model."""

    key: npt.NDArray[Any]  #: Shape (n,), as all others: key of each row.
    by_key: npt.NDArray[np.bool_]  #: Whether the model of the key was right.
    one: npt.NDArray[np.bool_]  #: Whether the one model was.


def table_of(name: str, data: Path) -> pa.Table:
    table = pq.read_table(data / f"{name}.parquet")
    if name == "electricity":
        half_hours = np.round(np.asarray(table["period"], dtype=np.float64) * 47).astype(np.int64)
        table = table.append_column("hour", pa.array(half_hours // 2))
    return table


def compared(name: str, learner: str, data: Path) -> Compared:
    """Run both over a table, and put their predictions of each row side by side."""
    column, more = SETS[name]
    options, warmup = LEARNERS[learner]
    table = table_of(name, data)
    keys = np.array(table[column].to_pylist())
    right = np.full((2, len(keys)), -1, dtype=np.int8)
    codes = np.unique(keys, return_inverse=True)[1]
    places = np.split(np.argsort(codes, kind="stable"), np.cumsum(np.bincount(codes))[:-1])
    place = {keys[rows[0]]: rows for rows in places}
    with tempfile.TemporaryDirectory(prefix="raydt-keyed-") as folder:
        pq.write_table(table, f"{folder}/{name}.parquet")
        source = {"kind": "parquet", "path": f"{folder}/{name}.parquet", "label": "y", **more}
        for side, own in enumerate(({"key": column}, {"exclude": [column]} if name == "electricity" else {})):
            config = {
                "source": {**source, **own}, "stream": {"model": "incremental", "warmup": warmup},
                "learner": {"kind": learner, **options}, "cluster": {"backend": "in_process"},
                "checkpoint": {"every_seconds": None}, "output": {"report": False, "predictions": True},
            }  # fmt: skip
            run = pipelines.replay(config, Path(folder) / f"{side}")
            found = ds.dataset(Path(run.path) / "predictions").to_table()
            same = np.array(found["prediction"].to_pylist()) == np.array(found["truth"].to_pylist())
            at = found["seq"].to_pylist()
            if not side:  # a row has a number of its own within each key
                at = [place[key][seq] for key, seq in zip(found["key"].to_pylist(), at, strict=True)]
            right[side, at] = same
    both = (right >= 0).all(axis=0)
    return Compared(keys[both], right[0, both] == 1, right[1, both] == 1)


def shown(share: float) -> str:
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


def lines_of(name: str, learner: str, found: Compared) -> tuple[list[str], list[list[str]]]:
    """Return the line of a table, and those by the size of keys."""

    def cells(mine: Any) -> list[str]:
        return [shown(found.by_key[mine].mean()), shown(found.one[mine].mean())]

    told = verdicts(found)
    better, worse = (sum(one == sign for one in told.values()) for sign in (1, -1))
    whole = [name, SETS[name][0], learner, f"{len(told)}", f"{len(found.key):,}", *cells(slice(None))]
    keys, counts = np.unique(found.key, return_counts=True)
    sizes, by_size = dict(zip(keys.tolist(), counts.tolist(), strict=True)), []
    size = np.array([sizes[key] for key in found.key.tolist()])
    for low, high in pairwise(SIZES):
        mine = (size >= low) & (size < high)
        if mine.any():
            chosen = [told[key] for key, n in sizes.items() if low <= n < high]
            rows = f"{low:,} to {high - 1:,}" if high < SIZES[-1] else f"{low:,} and more"
            verdict = f"{chosen.count(1)} / {chosen.count(-1)}"
            by_size.append([name, learner, rows, f"{len(chosen)}", *cells(mine), verdict])
    return [*whole, f"{better} / {worse}"], by_size


if __name__ == "__main__":
    given = arguments(__doc__, data=DATA, sets=list(SETS), learners=["fudyadt"])
    print_machine()
    found = [lines_of(a, b, compared(a, b, given.data)) for a in given.sets for b in given.learners]
    whole, sizes = zip(*found, strict=True)
    both = ["accuracy by key", "of one model"]
    show("All rows", ["table", "key", "learner", "keys", "rows", *both, "keys better / worse"], whole)
    show("By size", ["table", "learner", "rows of a key", "keys", *both, "keys better / worse"], [*chain(*sizes)])
