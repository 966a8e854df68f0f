"""Wall time with one thread and with several, of raydt and of its peers: ``python benchmarks/threads.py``.

``--threads 1 2 16`` on a machine of 16 cores. Contestants take turns in one process; the figure is the median of the
rounds after one that is not counted: five, or as many as end within 30 seconds. Results are compared in every round:
whatever the number of threads, digests, predictions and explanations of raydt are equal, or the program ends.

All lines take about a quarter of an hour on two free cores. ``--only WORD ...`` takes the lines that have one of the
words in name or contestant, such as ``fit``, ``predict``, ``gbdt`` or ``csv``, and prepares no data or model of the
others: less than five minutes for any of these. ``--scale .01`` is a trial run.

``--beside 1`` has another process keep a core busy meanwhile, ``--beside .5`` half of it. Then several threads may take
at most 15 % more time than one, or the program ends with the lines that do.

The column "16, calculated" is not measured: it is Amdahl's law with the serial part that the first two columns show,
and threads of which each does half as much as the first, since they share the memory.

Peers have settings as near as theirs allow, and differ: DecisionTreeClassifier has one thread, its tree takes neither
insertions nor deletions, and it does not keep the rows; RandomForest and ExtraTrees, LightGBM and XGBoost train again
to forget.
"""

import contextlib
import hashlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from harness import arguments, print_machine, progress, show
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier
from sklearn.tree import DecisionTreeClassifier

import raydt
from pipelines import replay, sweep
from raydt.learners.gbdt.shard import Crew
from raydt.parallel import limited
from raydt.sources.divided import open_source
from raydt.sources.options import FileOptions

#: Most time of several threads beside a busy neighbour, in times of one thread's; seconds of a line's rounds.
DEAREST, LONGEST = 1.15, 30.0
#: Who divides work, but for readers of files.
OURS = ("fudyadt", "confidence_tree", "gbdt", "forest")
TREE = raydt.FullyDynamicTreeClassifier(max_depth=10, alpha=0.0001, beta=0.01)
FOREST = raydt.ExactForestClassifier(n_estimators=100, sample_share=0.1)
CLASSIFIERS = {
    "fudyadt": raydt.FullyDynamicTreeClassifier(max_depth=12), "confidence_tree": raydt.ConfidenceTreeClassifier(),
    "gbdt": raydt.OnlineGradientBoostingClassifier(), "forest": FOREST,
}  # fmt: skip
REGRESSORS = {
    "fudyadt, numbers": raydt.FullyDynamicTreeRegressor(max_depth=12),
    "gbdt, numbers": raydt.OnlineGradientBoostingRegressor(),
    "forest, numbers": raydt.ExactForestRegressor(n_estimators=100, sample_share=0.1),
}

#: Takes a number of threads; returns the seconds and the result, which is compared.
Timed = Callable[[int], tuple[float, str | None]]
Sizes = Callable[[int], int]


class Row(NamedTuple):
    name: str
    who: str
    prepare: Callable[[], Timed]
    alone: bool = False  #: It has one thread.


def drawn(n: int, d: int) -> tuple[Any, Any]:
    """Rows of numbers, and two classes that depend on three of them."""
    draw = np.random.default_rng(n + d)
    X = draw.normal(size=(max(n, 100), d))
    return X, (X[:, 0] + X[:, 1] * X[:, 2] + draw.normal(scale=0.5, size=len(X)) > 0).astype(np.int64)


def hashed(*arrays: Any) -> str:
    return hashlib.sha256(b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)).hexdigest()


def timed(work: Callable[[int], Any], result: Callable[[Any], str | None] = lambda _: None) -> Timed:
    def run(threads: int) -> tuple[float, str | None]:
        began = time.perf_counter()
        made = work(threads)
        seconds = time.perf_counter() - began
        return seconds, result(made)

    return run


def changed(make: Callable[[], Any], act: Callable[[Any], object]) -> Timed:
    """Time one call that changes a new model."""

    def run(threads: int) -> tuple[float, str | None]:
        model = make().set_params(n_jobs=threads)
        began = time.perf_counter()
        act(model)
        return time.perf_counter() - began, model.digest()

    return run


def made(estimator: Any, **options: Any) -> Any:
    return type(estimator)(**estimator.get_params() | options)


def fit(estimator: Any, X: Any, y: Any) -> Timed:
    return timed(lambda n: made(estimator, n_jobs=n).fit(X, y), lambda model: model.digest())


def peer(make: Callable[[int], Any], X: Any, y: Any) -> Timed:
    return timed(lambda n: make(n).fit(X, y))


def trees_alone(estimator: Any, X: Any, y: Any) -> Timed:
    """Time the training of the trees within a fit, without bins and rows."""

    def run(threads: int) -> tuple[float, str | None]:
        seconds, train = 0.0, Crew.train

        def timed_train(crew: Crew, *given: Any) -> None:
            nonlocal seconds
            began = time.perf_counter()
            train(crew, *given)
            seconds += time.perf_counter() - began

        with mock.patch.object(Crew, "train", timed_train):
            model = made(estimator, n_jobs=threads).fit(X, y)
        return seconds, model.digest()

    return run


def large_fits(of: Sizes) -> Iterator[Row]:
    n, boosted = of(1_000_000), raydt.OnlineGradientBoostingClassifier(max_iter=20)
    data, name = cache(lambda: drawn(n, 50)), f"{n:,} x 50"
    yield Row(f"fit {name}, depth 10", "fudyadt", lambda: fit(TREE, *data()))
    tree = lambda _: DecisionTreeClassifier(max_depth=10, random_state=0)  # noqa: E731
    yield Row(f"fit {name}, depth 10", "DecisionTreeClassifier", lambda: peer(tree, *data()), alone=True)
    yield Row(f"trees of {name}, 20 iterations", "gbdt", lambda: trees_alone(boosted, *data()))
    yield Row(f"fit {name}, 20 iterations", "gbdt", lambda: fit(boosted, *data()))
    for who, make in boosting(20):
        yield Row(f"fit {name}, 20 iterations", who, lambda make=make: peer(make, *data()))


def small_fits(of: Sizes) -> Iterator[Row]:
    n = of(105_000)
    data, name = cache(lambda: drawn(n, 10)), f"fit {n:,} x 10, 100 iterations"
    yield Row(name, "gbdt", lambda: fit(raydt.OnlineGradientBoostingClassifier(), *data()))
    for who, make in boosting(100):
        yield Row(name, who, lambda make=make: peer(make, *data()))


def updates(of: Sizes) -> Iterator[Row]:
    n, model = of(200_000), raydt.OnlineGradientBoostingClassifier(retrain="never")
    data = cache(lambda: drawn(n, 50))

    def replaced(one: Any, ids: Any) -> None:
        X, y = (part[: len(ids)] for part in new(2 * len(ids)))
        one.replace_examples(ids, X, y, new_ids=ids + 2**40, digests=False)

    new = cache(lambda k: drawn(k, 50))
    for k in (n // 10, max(2, n // 200)):
        make = lambda: made(model).fit(*data())  # noqa: E731
        forget = lambda one, k=k: one.forget(np.arange(k), digests=False)  # noqa: E731
        replace = lambda one, k=k: replaced(one, np.arange(k // 2))  # noqa: E731
        yield Row(f"forget {k:,} of {n:,} x 50", "gbdt", lambda make=make, act=forget: changed(make, act))
        yield Row(f"{k:,} updates of {n:,} x 50", "gbdt", lambda make=make, act=replace, k=k: changed(make, act))


def trees(of: Sizes) -> Iterator[Row]:
    n = of(100_000)
    data, name, gone = cache(lambda: drawn(n, 20)), f"{n:,} x 20, 100 trees", np.arange(n // 100)
    yield Row(f"fit {name}", "forest", lambda: fit(FOREST, *data()))
    for who, make in forests():
        yield Row(f"fit {name}", who, lambda make=make: peer(make, *data()))
    forget = lambda model: model.forget(gone, digests=False)  # noqa: E731
    work = lambda: changed(lambda: made(FOREST).fit(*data()), forget)  # noqa: E731
    yield Row(f"forget {len(gone):,} of {name}", "forest", work)


def asked_of(model: Any, method: str, X: Any) -> Timed:
    def bits(found: Any) -> str:
        return hashed(found) if isinstance(found, np.ndarray) else hashed(found.values, np.asarray(found.base))

    return timed(lambda n: getattr(model.set_params(n_jobs=n), method)(X), bits)


def audited(model: Any) -> Timed:
    return timed(lambda n: model.set_params(n_jobs=n).audit(), lambda report: str(report.as_dict()))


def models(of: Sizes) -> Iterator[Row]:
    """Lines of what a model of each learner of dense rows is asked."""
    n, many = of(100_000), of(1_000_000)
    data, asked = cache(lambda: drawn(n, 20)), cache(lambda: drawn(many, 20)[0])
    numbers = cache(lambda: data()[0][:, 0] + data()[0][:, 1] * data()[0][:, 2])
    fitted = {who: cache(lambda m=model: made(m).fit(*data())) for who, model in CLASSIFIERS.items()}
    fitted |= {who: cache(lambda m=model: made(m).fit(data()[0], numbers())) for who, model in REGRESSORS.items()}
    for who, model in fitted.items():
        yield Row(f"predict {many:,} x 20", who, lambda m=model: asked_of(m(), "predict", asked()))
    for who, kind in (*boosting(100), *forests()):

        def predicting(kind: Any = kind) -> Timed:
            model = kind(1).fit(*data())
            return timed(lambda threads: model.set_params(n_jobs=threads).predict(asked()))

        yield Row(f"predict {many:,} x 20", who, predicting)
    for who, model in fitted.items():
        few = of(1_000 if who.startswith("forest") else 5_000)
        if who != "confidence_tree":  # its leaves predict by naive Bayes
            yield Row(f"explain {few:,} x 20", who, lambda m=model, k=few: asked_of(m(), "explain", asked()[:k]))
    for who, model in fitted.items():
        yield Row(f"audit {n:,} x 20", who, lambda m=model: audited(m()))


def sweeps(of: Sizes) -> Iterator[Row]:
    n = of(50_000)

    def work(threads: int) -> Any:
        config = {
            "source": {"kind": "synthetic", "generator": "hyperplane", "n": n},
            "learner": {"kind": "fudyadt"},
            "stream": {"model": "sliding_window", "window": n // 4, "warmup": n // 8},
            "cluster": {"backend": "in_process", "threads": threads},
        }
        with tempfile.TemporaryDirectory() as folder:
            return sweep(config, {"learner.epsilon": [0.05, 0.1, 0.2, 0.3, 0.4, 0.5]}, Path(folder, "sweep"))

    told = lambda done: str(done.table.select(["digest", "accuracy", "updates"]).to_pylist())  # noqa: E731
    yield Row(f"sweep, 6 settings x {n:,} updates", "fudyadt", lambda: timed(work, told))


def files(of: Sizes) -> Iterator[Row]:
    n = of(200_000)
    with tempfile.TemporaryDirectory() as folder:

        @cache
        def data() -> Any:
            X, y = drawn(n, 20)
            return pa.table({"y": y, **{f"x{j}": X[:, j] for j in range(X.shape[1])}})

        @cache
        def file(kind: str) -> str:
            path = f"{folder}/rows.{kind}"
            (pyarrow.csv.write_csv if kind == "csv" else pyarrow.parquet.write_table)(data(), path)
            return path

        def read(kind: str, threads: int) -> list[Any]:
            source = open_source(FileOptions(kind=kind, path=file(kind), label="y"))
            with limited(threads):
                return [array for chunk in source.rows() for array in (chunk.X, chunk.y, chunk.id)]

        def replayed(kind: str, threads: int) -> Any:
            config = {
                "source": {"kind": kind, "path": file(kind), "label": "y"},
                "learner": {"kind": "fudyadt", "max_depth": 4, "epsilon": 0.5},
                "stream": {"model": "incremental", "warmup": 100},
                "cluster": {"backend": "in_process", "threads": threads},
                "output": {"report": False},
            }
            return replay(config, Path(folder, "run"), overwrite=True)

        def prepared(work: Callable[[str, int], Any], kind: str, told: Callable[[Any], str]) -> Timed:
            file(kind)
            return timed(lambda threads: work(kind, threads), told)

        digest = lambda run: str(run.summary["model_digest"])  # noqa: E731
        for kind in ("csv", "parquet"):
            reading = lambda kind=kind: prepared(read, kind, lambda parts: hashed(*parts))  # noqa: E731
            yield Row(f"read {n:,} x 20", kind, reading)
            yield Row(f"replay {n:,} x 20", kind, lambda kind=kind: prepared(replayed, kind, digest))


#: Lines that share their data and models, which are made for the first one that runs, and kept until the last one.
GROUPS = (large_fits, small_fits, updates, trees, models, sweeps, files)


def boosting(iterations: int) -> Iterator[tuple[str, Callable[[int], Any]]]:
    same = {"n_estimators": iterations, "learning_rate": 0.1}
    with contextlib.suppress(ImportError):
        import lightgbm

        yield "LightGBM", lambda n: lightgbm.LGBMClassifier(num_leaves=20, n_jobs=n, verbose=-1, **same)
    with contextlib.suppress(ImportError):
        import xgboost

        grown: dict[str, Any] = {"max_leaves": 20, "grow_policy": "lossguide", "tree_method": "hist"}
        yield "XGBoost", lambda n: xgboost.XGBClassifier(n_jobs=n, **grown, **same)


def forests() -> Iterator[tuple[str, Callable[[int], Any]]]:
    same: dict[str, Any] = {"n_estimators": 100, "max_depth": 20, "min_samples_split": 10, "bootstrap": True}
    for kind in (RandomForestClassifier, ExtraTreesClassifier):
        yield kind.__name__, lambda n, kind=kind: kind(max_samples=0.1, n_jobs=n, random_state=0, **same)


_BUSY = """import sys, time
part = float(sys.argv[1])
while True:
    until = time.perf_counter() + 0.04 * part
    while time.perf_counter() < until:
        pass
    if part < 1:
        time.sleep(0.04 * (1 - part))
"""


@contextlib.contextmanager
def neighbours(cores: float) -> Iterator[None]:
    """Processes that keep a core each busy, the last one for a part of each 40 ms, if ``cores`` is no whole number."""
    parts = [1.0] * int(cores) + [cores % 1] * (cores % 1 > 0)
    busy = [subprocess.Popen([sys.executable, "-c", _BUSY, str(part)]) for part in parts]
    try:
        for process, core in zip(busy, sorted(os.sched_getaffinity(0)), strict=False):
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
    used, began, work = threads[:1] if row.alone else threads, time.monotonic(), row.prepare()
    seconds: dict[int, list[float]] = {n: [] for n in used}
    results = set()
    for done in range(rounds + 1):
        if done > 1 and time.monotonic() - began > LONGEST:
            break
        for n in used:
            taken, result = work(n)
            seconds[n].append(taken)
            results.add(result)
    if len(results) > 1:
        raise SystemExit(f"{row.name}, {row.who}: results differ between numbers of threads: {results}")
    median = [statistics.median(seconds[n][1:]) for n in used]
    missing = ["-"] * (len(threads) - len(used))
    cells = [*(f"{s:.3f}" for s in median), *missing, *(f"{median[0] / s:.2f}" for s in median[1:]), *missing]
    calculated = "-"
    if len(used) > 1:
        serial = min(1.0, max(0.0, (median[1] * used[1] / median[0] - 1) / (used[1] - 1)))
        calculated = f"{1 / (serial + (1 - serial) / 8):.1f}"
    return [row.name, row.who, *cells, calculated, f"{os.getloadavg()[0]:.1f}"], max(median) / median[0]


if __name__ == "__main__":
    given = arguments(__doc__, threads=[1, 2], rounds=5, scale=1.0, only=[], beside=0.0)
    print_machine("lightgbm", "scikit-learn")
    lines, dear = [], []
    for group in GROUPS:
        for row in group(lambda n: max(200, int(n * given.scale))):
            if not given.only or any(word in f"{row.name} {row.who}" for word in given.only):
                with neighbours(given.beside):
                    line, most = speed(row, given.threads, given.rounds)
                lines.append(line)
                progress(" | ".join(line))
                if most > DEAREST and row.who in OURS:
                    dear.append(f"{row.name}, {row.who}: {most:.2f}")
    times = [*(f"{n}, s" for n in given.threads), *(f"{n}, times" for n in given.threads[1:])]
    show("Threads", ["work", "by", *times, "16, calculated", "load"], lines)
    if given.beside and dear:
        raise SystemExit("several threads take more than 15 % longer than one: " + "; ".join(dear))
