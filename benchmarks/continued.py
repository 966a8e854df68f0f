"""Continue training five times, and watch the model: LightGBM's and CatBoost's ``init_model`` beside ``partial_fit``.

The rows of a stream come in six parts, in their order. Each model is trained on the first part and continued with the
next five; at the end half of all rows are deleted: ours forgets them, the others train again. After each step: the
trees of the model, the bytes of its file, accuracy on the rows of the next part (after the last step of the last), and
the time. CatBoost takes part if it is installed.

Run: python benchmarks/continued.py [--set electricity] [--rows 30000]
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from defaults_data import load
from harness import DATA, machine, show
from lightgbm import LGBMClassifier

import raydt

PARTS = 6
#: Threads of each.
THREADS = 2


class Peer:
    """A library that continues by new trees on top of its old model."""

    def __init__(self, new: Callable[[], Any], trees: Callable[[Any], int], save: Callable[[Any, str], Any]) -> None:
        self._new, self._trees, self._save = new, trees, save
        self.model: Any = None

    def learn(self, X: Any, y: Any) -> None:
        """Continue with a part."""
        old, self.model = self.model, self._new()
        self.model.fit(X, y, init_model=old)

    def forget(self, X: Any, y: Any) -> None:
        """Train again on the rows that are left."""
        self.model = self._new()
        self.model.fit(X, y)

    def size(self, folder: str) -> tuple[int, int]:
        """Return trees, and bytes of the file."""
        self._save(self.model, f"{folder}/model")
        return self._trees(self.model), os.path.getsize(f"{folder}/model")

    def predict(self, X: Any) -> Any:
        """Return labels."""
        return np.asarray(self.model.predict(X)).reshape(-1)


class Ours:
    """Boosted trees that are updated in place."""

    def __init__(self) -> None:
        self.model = raydt.OnlineGradientBoostingClassifier(n_jobs=THREADS)

    def learn(self, X: Any, y: Any) -> None:
        """Continue with a part."""
        self.model.partial_fit(X, y)

    def forget(self, X: Any, y: Any) -> None:
        """Delete the older half."""
        live = self.model.live_ids_
        self.model.forget(live[: len(live) - len(y)], digests=False)

    def size(self, folder: str) -> tuple[int, int]:
        """Return trees, and bytes of the folder without examples."""
        self.model.save(f"{folder}/ours")
        return self.model.n_iter_, sum(one.stat().st_size for one in Path(f"{folder}/ours").iterdir())

    def predict(self, X: Any) -> Any:
        """Return labels."""
        return self.model.predict(X)


def contestants() -> dict[str, Callable[[], Any]]:
    """Return the libraries that are here, with 100 trees for each training."""
    found: dict[str, Callable[[], Any]] = {"raydt": Ours}

    def light() -> Peer:
        return Peer(
            lambda: LGBMClassifier(verbose=-1, n_jobs=THREADS),
            lambda model: model.booster_.num_trees(),
            lambda model, file: model.booster_.save_model(file),
        )

    found["LightGBM"] = light
    if importlib.util.find_spec("catboost"):
        from catboost import CatBoostClassifier

        found["CatBoost"] = lambda: Peer(
            lambda: CatBoostClassifier(iterations=100, verbose=0, thread_count=THREADS, allow_writing_files=False),
            lambda model: int(model.tree_count_),
            lambda model, file: model.save_model(file),
        )
    return found


def main() -> None:
    """Print a table for each library."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA, help="folder with the Parquet files")
    parser.add_argument("--set", default="electricity", help="data set")
    parser.add_argument("--rows", type=int, default=30_000)
    given = parser.parse_args()
    X, y = load(given.data, given.set)
    X, y = np.asarray(X[: given.rows], dtype=np.float64), np.asarray(y[: given.rows])
    parts = np.array_split(np.arange(len(y)), PARTS)
    print(machine("lightgbm"), f"load {os.getloadavg()[0]:.1f}")
    for name, make in contestants().items():
        one, lines = make(), []
        with tempfile.TemporaryDirectory() as folder:
            for step, part in enumerate(parts):
                began = time.perf_counter()
                one.learn(X[part], y[part])
                seconds = time.perf_counter() - began
                after = parts[min(step + 1, PARTS - 1)]
                lines.append(_line(f"part {step + 1}", one, folder, X[after], y[after], seconds))
            half = np.arange(len(y) // 2, len(y))
            began = time.perf_counter()
            one.forget(X[half], y[half])
            seconds = time.perf_counter() - began
            lines.append(_line("half deleted", one, folder, X[parts[-1]], y[parts[-1]], seconds))
        show(name, ["after", "trees", "kB", "accuracy on the next part", "s"], lines)


def _line(after: str, one: Any, folder: str, X: Any, y: Any, seconds: float) -> list[str]:
    trees, size = one.size(folder)
    right = float(np.mean(one.predict(X) == y))
    return [after, f"{trees:,}", f"{size / 1000:,.0f}", f"{right:.3f}", f"{seconds:.2f}"]


if __name__ == "__main__":
    main()
