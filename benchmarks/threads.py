"""Wall time with one thread and with several, of raydt and of its peers: ``python benchmarks/threads.py``.

``--threads 1 2 16`` on a machine of 16 cores. Contestants take turns in one process; the figure is the median of the
rounds after one that is not counted. Results are compared in every round: whatever the number of threads, digests,
predictions and explanations of raydt are equal, or the program ends. ``--scale .01`` is a trial run.

``--beside 1`` has another process keep a core busy meanwhile, ``--beside 2`` two of them. Then several threads may take
at most 15 % more time than one, or the program ends with the lines that do.

The column "16, calculated" is not measured: it is Amdahl's law with the serial part that the first two columns show,
and threads of which each does half as much as the first, since they share the memory.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import scipy.sparse
from measure import machine
from paper.markdown import table

import raydt
from pipelines import replay, sweep
from raydt.parallel.threads import limited
from raydt.sources.opening import open_source
from raydt.sources.options import FileOptions

Work = Callable[[int], Any]
#: Most time of several threads beside a busy neighbour, in times of one thread's.
DEAREST = 1.15
#: Who divides work, but for readers of files.
OURS = ("fudyadt", "confidence_tree", "gbdt", "forest")


class Row(NamedTuple):
    """One line: what is done, by whom. ``work`` takes a number of threads and returns its seconds and its result."""

    name: str
    who: str
    work: Callable[[int], tuple[float, str | None]]


def drawn(n: int, d: int) -> tuple[Any, Any]:
    """Rows of numbers, and two classes that depend on three of them."""
    draw = np.random.default_rng(n + d)
    X = draw.normal(size=(max(n, 100), d))
    return X, (X[:, 0] + X[:, 1] * X[:, 2] + draw.normal(scale=0.5, size=len(X)) > 0).astype(np.int64)


def drawn_sparse(n: int) -> tuple[Any, Any]:
    """Rows with ten of 200 features, and two classes that depend on three of them."""
    draw = np.random.default_rng(n)
    indices = np.sort(draw.random((n, 200), dtype=np.float32).argpartition(10, axis=1)[:, :10], axis=1)
    ones = scipy.sparse.csr_matrix((np.ones(10 * n), indices.ravel(), np.arange(0, 10 * n + 1, 10)), shape=(n, 200))
    return ones, (((indices < 3).any(axis=1)) ^ (draw.random(n) < 0.1)).astype(np.int64)


def hashed(*arrays: Any) -> str:
    """A name of the bits of some arrays."""
    return hashlib.sha256(b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)).hexdigest()


def timed(
    work: Work, result: Callable[[Any], str | None] = lambda _: None
) -> Callable[[int], tuple[float, str | None]]:
    """Time a piece of work, without what names its result."""

    def run(threads: int) -> tuple[float, str | None]:
        began = time.perf_counter()
        made = work(threads)
        seconds = time.perf_counter() - began
        return seconds, result(made)

    return run


def forgotten(make: Callable[[], Any], ids: Any) -> Callable[[int], tuple[float, str | None]]:
    """Time a deletion from a model that is made each time."""

    def run(threads: int) -> tuple[float, str | None]:
        model = make().set_params(n_jobs=threads)
        began = time.perf_counter()
        model.forget(ids, digests=False)
        return time.perf_counter() - began, model.digest()

    return run


def rows(scale: float) -> Iterator[list[Row]]:
    """Lines that share their data, one group after the other."""

    def of(n: int) -> int:
        return max(200, int(n * scale))

    def fit(estimator: Any, X: Any, y: Any) -> Callable[[int], tuple[float, str | None]]:
        return timed(
            lambda n: type(estimator)(**estimator.get_params() | {"n_jobs": n}).fit(X, y), lambda m: m.digest()
        )

    def peer(make: Callable[[int], Any], X: Any, y: Any) -> Callable[[int], tuple[float, str | None]]:
        return timed(lambda n: make(n).fit(X, y))

    X, y = drawn(of(1_000_000), 50)
    tree = raydt.FullyDynamicTreeClassifier(max_depth=10, alpha=0.0001, beta=0.01)
    name = f"fit {len(X):,} x 50"
    group = [Row(f"{name}, depth 10", "fudyadt", fit(tree, X, y))]
    boosted = raydt.OnlineGradientBoostingClassifier(max_iter=20)
    group.append(Row(f"{name}, 20 iterations", "gbdt", fit(boosted, X, y)))
    group += [Row(f"{name}, 20 iterations", who, peer(make, X, y)) for who, make in boosting(20)]
    yield group

    X, y = drawn(of(105_000), 10)
    name = f"fit {len(X):,} x 10, 100 iterations"
    yield [
        Row(name, "gbdt", fit(raydt.OnlineGradientBoostingClassifier(), X, y)),
        *(Row(name, who, peer(make, X, y)) for who, make in boosting(100)),
    ]

    X, y = drawn(of(200_000), 50)
    make = partial(_fitted, raydt.OnlineGradientBoostingClassifier(retrain="never"), X, y)
    yield [
        Row(f"forget {k:,} of {len(X):,} x 50", "gbdt", forgotten(make, np.arange(k)))
        for k in (len(X) // 10, len(X) // 200)
    ]

    X, y = drawn(of(100_000), 20)
    forest = raydt.ExactForestClassifier(n_estimators=100)
    make = partial(_fitted, forest, X, y)
    yield [
        Row(f"fit {len(X):,} x 20, 100 trees", "forest", fit(forest, X, y)),
        *(Row(f"fit {len(X):,} x 20, 100 trees", who, peer(made, X, y)) for who, made in forests()),
        Row(
            f"forget {len(X) // 100:,} of {len(X):,} x 20, 100 trees",
            "forest",
            forgotten(make, np.arange(len(X) // 100)),
        ),
    ]

    many = drawn(of(1_000_000), 20)[0]
    numbers = X[:, 0] + X[:, 1] * X[:, 2]
    trained = [*models(X, y), *regressors(X, numbers)]
    group = [Row(f"predict {len(many):,} x 20", who, _asked(model, "predict", many)) for who, model in trained]
    peers = [(who, made(1).fit(X, y)) for who, made in (*boosting(100), *forests())]
    yield group + [Row(f"predict {len(many):,} x 20", who, _peer_asked(model, many)) for who, model in peers]
    for who, model in trained:
        few = many[: of(1_000 if who.startswith("forest") else 5_000)]
        if who != "confidence_tree":  # its leaves predict by naive Bayes
            yield [Row(f"explain {len(few):,} x 20", who, _asked(model, "explain", few))]
    yield [Row(f"audit {len(X):,} x 20", who, _audited(model)) for who, model in trained]

    ones, labels = drawn_sparse(of(1_000_000))
    first = slice(0, len(X))
    of_sparse = [
        ("sparse_tree", _fitted(raydt.SparseDynamicTreeClassifier(), ones[first], labels[first])),
        ("best_split", _fitted(raydt.SparseBestSplit(), ones[first], labels[first])),
    ]
    for who, model in of_sparse:
        name = f"{ones.shape[0]:,} rows of 10 ones"
        yield [Row(f"predict {name}", who, _asked(model, "predict", ones))]
        yield [Row(f"explain {of(5_000):,} rows of 10 ones", who, _asked(model, "explain", ones[: of(5_000)]))]
        yield [Row(f"audit {len(X):,} rows of 10 ones", who, _audited(model))]

    settings = {"learner.epsilon": [0.05, 0.1, 0.2, 0.3, 0.4, 0.5]}
    yield [Row(f"sweep, 6 settings x {of(50_000):,} updates", "fudyadt", _swept(of(50_000), settings))]
    X, y = drawn(of(200_000), 20)
    with tempfile.TemporaryDirectory() as folder:
        data = pa.table({"y": y, **{f"x{j}": X[:, j] for j in range(X.shape[1])}})
        pyarrow.csv.write_csv(data, f"{folder}/rows.csv")
        pyarrow.parquet.write_table(data, f"{folder}/rows.parquet")
        frame = data.drop_columns("y")
        yield [
            *(Row(f"read {len(X):,} x 20", kind, _read(Path(folder, f"rows.{kind}"))) for kind in ("csv", "parquet")),
            *(
                Row(f"replay {len(X):,} x 20", kind, _replayed(Path(folder, f"rows.{kind}")))
                for kind in ("csv", "parquet")
            ),
            Row(f"encode a frame of {len(X):,} x 20", "fudyadt", _asked(_fitted(tree, frame, y), "predict", frame)),
        ]


def boosting(iterations: int) -> Iterator[tuple[str, Callable[[int], Any]]]:
    """Peers of the GBDT that are installed."""
    same = {"n_estimators": iterations, "learning_rate": 0.1}
    try:
        import lightgbm

        yield "LightGBM", lambda n: lightgbm.LGBMClassifier(num_leaves=20, n_jobs=n, verbose=-1, **same)
    except ImportError:
        pass
    try:
        import xgboost

        grown: dict[str, Any] = {"max_leaves": 20, "grow_policy": "lossguide", "tree_method": "hist"}
        yield "XGBoost", lambda n: xgboost.XGBClassifier(n_jobs=n, **grown, **same)
    except ImportError:
        pass


def forests() -> Iterator[tuple[str, Callable[[int], Any]]]:
    """Peers of the forest."""
    from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier

    same: dict[str, Any] = {"n_estimators": 100, "max_depth": 20, "min_samples_split": 10, "bootstrap": True}
    for kind in (RandomForestClassifier, ExtraTreesClassifier):
        yield kind.__name__, lambda n, kind=kind: kind(max_samples=0.1, n_jobs=n, random_state=0, **same)


def models(X: Any, y: Any) -> Iterator[tuple[str, Any]]:
    """A model of each learner of dense rows."""
    yield "fudyadt", _fitted(raydt.FullyDynamicTreeClassifier(max_depth=12), X, y)
    yield "confidence_tree", _fitted(raydt.ConfidenceTreeClassifier(), X, y)
    yield "gbdt", _fitted(raydt.OnlineGradientBoostingClassifier(), X, y)
    yield "forest", _fitted(raydt.ExactForestClassifier(n_estimators=100), X, y)


def regressors(X: Any, y: Any) -> Iterator[tuple[str, Any]]:
    """A model of each learner of numbers."""
    yield "fudyadt, numbers", _fitted(raydt.FullyDynamicTreeRegressor(max_depth=12), X, y)
    yield "gbdt, numbers", _fitted(raydt.OnlineGradientBoostingRegressor(), X, y)
    yield "forest, numbers", _fitted(raydt.ExactForestRegressor(n_estimators=100), X, y)


def _fitted(estimator: Any, X: Any, y: Any) -> Any:
    return type(estimator)(**estimator.get_params()).fit(X, y)


def _asked(model: Any, method: str, X: Any) -> Callable[[int], tuple[float, str | None]]:
    def bits(found: Any) -> str:
        return hashed(found) if isinstance(found, np.ndarray) else hashed(found.values, np.asarray(found.base))

    return timed(lambda n: getattr(model.set_params(n_jobs=n), method)(X), bits)


def _peer_asked(model: Any, X: Any) -> Callable[[int], tuple[float, str | None]]:
    return timed(lambda n: model.set_params(n_jobs=n).predict(X))


def _audited(model: Any) -> Callable[[int], tuple[float, str | None]]:
    return timed(lambda n: model.set_params(n_jobs=n).audit(), lambda report: str(report.as_dict()))


def _read(file: Path) -> Callable[[int], tuple[float, str | None]]:
    def work(threads: int) -> list[Any]:
        source = open_source(FileOptions(kind=file.suffix[1:], path=str(file), label="y"))
        with limited(threads):
            return [array for chunk in source.rows() for array in (chunk.X, chunk.y, chunk.id)]

    return timed(work, lambda parts: hashed(*parts))


def _replayed(file: Path) -> Callable[[int], tuple[float, str | None]]:
    """A run whose learner costs little, beside its file."""

    def work(threads: int) -> Any:
        config = {
            "source": {"kind": file.suffix[1:], "path": str(file), "label": "y"},
            "learner": {"kind": "fudyadt", "max_depth": 4, "epsilon": 0.5},
            "stream": {"model": "incremental", "warmup": 100},
            "cluster": {"backend": "in_process", "threads": threads},
            "output": {"report": False},
        }
        return replay(config, file.parent / "run", overwrite=True)

    return timed(work, lambda run: str(run.summary["model_digest"]))


def _swept(n: int, settings: dict[str, list[Any]]) -> Callable[[int], tuple[float, str | None]]:
    """A sweep over a window that slides."""

    def work(threads: int) -> Any:
        config = {
            "source": {"kind": "synthetic", "generator": "hyperplane", "n": n},
            "learner": {"kind": "fudyadt"},
            "stream": {"model": "sliding_window", "window": n // 4, "warmup": n // 8},
            "cluster": {"backend": "in_process", "threads": threads},
        }
        with tempfile.TemporaryDirectory() as folder:
            return sweep(config, settings, Path(folder, "sweep"))

    return timed(work, lambda done: str(done.table.select(["digest", "accuracy", "updates"]).to_pylist()))


@contextlib.contextmanager
def neighbours(count: int) -> Iterator[None]:
    """Processes that keep a core each busy."""
    cores = sorted(os.sched_getaffinity(0))
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        for process, core in zip(busy, cores, strict=False):
            os.sched_setaffinity(process.pid, [core])
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def speed(row: Row, threads: list[int], rounds: int) -> tuple[list[str], float]:
    """Measure one line; returns its cells, and the most time of several threads, in times of one thread's.

    SystemExit if results differ.
    """
    seconds: dict[int, list[float]] = {n: [] for n in threads}
    results = set()
    for _ in range(rounds + 1):
        for n in threads:
            taken, result = row.work(n)
            seconds[n].append(taken)
            results.add(result)
    if len(results) > 1:
        raise SystemExit(f"{row.name}, {row.who}: results differ between numbers of threads: {results}")
    median = [statistics.median(seconds[n][1:]) for n in threads]
    cells = [f"{taken:.3f}" for taken in median] + [f"{median[0] / taken:.2f}" for taken in median[1:]]
    serial = (
        min(1.0, max(0.0, (median[1] * threads[1] / median[0] - 1) / (threads[1] - 1))) if len(threads) > 1 else 1.0
    )
    line = [row.name, row.who, *cells, f"{1 / (serial + (1 - serial) / 8):.1f}", f"{os.getloadavg()[0]:.1f}"]
    return line, max(median) / median[0]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="numbers to compare, the first is 1")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, help="share of the rows")
    parser.add_argument("--only", nargs="*", default=[], help="lines whose name or learner has one of these words")
    parser.add_argument("--beside", type=int, default=0, help="processes that keep a core each busy meanwhile")
    asked = parser.parse_args()
    print(machine("lightgbm", "scikit-learn"), flush=True)
    times = [f"{n}, s" for n in asked.threads]
    header = ["work", "by", *times, *(f"{n}, times" for n in asked.threads[1:]), "16, calculated", "load"]
    lines, dear = [], []
    for group in rows(asked.scale):
        for row in group:
            if not asked.only or any(word in f"{row.name} {row.who}" for word in asked.only):
                with neighbours(asked.beside):
                    line, most = speed(row, asked.threads, asked.rounds)
                lines.append(line)
                print(" | ".join(line), flush=True)
                if most > DEAREST and row.who in OURS:
                    dear.append(f"{row.name}, {row.who}: {most:.2f}")
    print(*table(header, lines), sep="\n")
    if asked.beside and dear:
        raise SystemExit("several threads take more than 15 % longer than one: " + "; ".join(dear))


if __name__ == "__main__":
    main()
