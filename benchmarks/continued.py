"""Continue training five times, and watch the model: LightGBM's and CatBoost's ``init_model`` beside ``partial_fit``.

The rows of a stream come in six parts, in their order. Each model is trained on the first part and continued with the
next five; at the end half of all rows are deleted: ours forgets them, the others train again. After each step: the
trees of the model, the bytes of its file, accuracy on the rows of the next part (after the last step of the last), and
the time. Each side has two threads and makes 100 trees for each training. CatBoost takes part if it is installed.

Run: python benchmarks/continued.py [--set electricity] [--rows 30000]
"""

import importlib.util
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from defaults import load
from harness import DATA, arguments, print_machine, show, timed
from lightgbm import LGBMClassifier

import raydt

PARTS, THREADS = 6, 2


class Peer:
    """A library that continues by new trees on top of its old model."""

    def __init__(self, new: Callable[[], Any], trees: Callable[[Any], int], save: Callable[[Any, str], Any]) -> None:
        self._new, self._trees, self._save = new, trees, save
        self.model: Any = None

    def learn(self, X: Any, y: Any) -> None:
        old, self.model = self.model, self._new()
        self.model.fit(X, y, init_model=old)

    def forget(self, X: Any, y: Any) -> None:
        """Train again on the rows that are left."""
        self.model = self._new()
        self.model.fit(X, y)

    def size(self, folder: str) -> tuple[int, int]:
        self._save(self.model, f"{folder}/model")
        return self._trees(self.model), os.path.getsize(f"{folder}/model")


class Ours:
    """Boosted trees that are updated in place; the bytes are those of the folder, without examples."""

    def __init__(self) -> None:
        self.model = raydt.OnlineGradientBoostingClassifier(n_jobs=THREADS)

    def learn(self, X: Any, y: Any) -> None:
        self.model.partial_fit(X, y)

    def forget(self, X: Any, y: Any) -> None:
        """Delete the older half."""
        live = self.model.live_ids_
        self.model.forget(live[: len(live) - len(y)], digests=False)

    def size(self, folder: str) -> tuple[int, int]:
        self.model.save(f"{folder}/ours")
        return self.model.n_iter_, sum(one.stat().st_size for one in Path(f"{folder}/ours").iterdir())


def light() -> Peer:
    def save(model: Any, file: str) -> None:
        model.booster_.save_model(file)

    return Peer(lambda: LGBMClassifier(verbose=-1, n_jobs=THREADS), lambda model: model.booster_.num_trees(), save)


def cat() -> Peer:
    from catboost import CatBoostClassifier

    options = {"iterations": 100, "verbose": 0, "thread_count": THREADS, "allow_writing_files": False}
    new, trees = lambda: CatBoostClassifier(**options), lambda model: int(model.tree_count_)
    return Peer(new, trees, lambda model, file: model.save_model(file))


def watched(one: Peer | Ours, X: Any, y: Any) -> list[list[str]]:
    """Continue a model part by part, then delete half of the rows; return a line after each step."""
    lines: list[list[str]] = []
    parts = np.array_split(np.arange(len(y)), PARTS)
    steps = [(f"part {i + 1}", one.learn, part, parts[min(i + 1, PARTS - 1)]) for i, part in enumerate(parts)]
    steps.append(("half deleted", one.forget, np.arange(len(y) // 2, len(y)), parts[-1]))
    with tempfile.TemporaryDirectory() as folder:
        for after, act, rows, asked in steps:
            seconds, _ = timed(lambda act=act, rows=rows: act(X[rows], y[rows]), perf_counter)  # type: ignore[misc]
            trees, size = one.size(folder)
            right = float(np.mean(np.asarray(one.model.predict(X[asked])).reshape(-1) == y[asked]))
            lines.append([after, f"{trees:,}", f"{size / 1000:,.0f}", f"{right:.3f}", f"{seconds:.2f}"])
    return lines


if __name__ == "__main__":
    given = arguments(__doc__, data=DATA, set="electricity", rows=30_000)
    X, y = load(given.data, given.set)
    X, y = np.asarray(X[: given.rows], dtype=np.float64), np.asarray(y[: given.rows])
    print_machine("lightgbm", "catboost")
    contestants: dict[str, Callable[[], Peer | Ours]] = {"raydt": Ours, "LightGBM": light}
    if importlib.util.find_spec("catboost"):
        contestants["CatBoost"] = cat
    for name, make in contestants.items():
        show(name, ["after", "trees", "kB", "accuracy on the next part", "s"], watched(make(), X, y))
