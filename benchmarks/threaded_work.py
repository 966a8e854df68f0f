"""Work that ``threads.py`` times, of raydt and of its peers, in groups of lines that share their data and models.

Peers have settings as near as theirs allow, and differ: DecisionTreeClassifier has one thread, its tree takes neither
insertions nor deletions, and it does not keep the rows; RandomForest and ExtraTrees, LightGBM and XGBoost train again
to forget. HoeffdingTreeClassifier learns row by row in Python, has one thread, and cannot forget.
"""

import hashlib
import importlib.util
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
import scipy.sparse

import raydt
from pipelines import replay, sweep
from raydt.learners.gbdt.trainer import ThreadTrainer
from raydt.parallel import limited
from raydt.sources.divided import open_source
from raydt.sources.options import FileOptions

Work = Callable[[int], Any]
Timed = Callable[[int], tuple[float, str | None]]


class Row(NamedTuple):
    name: str
    who: str
    prepare: Callable[[], Timed]  #: Makes what takes a number of threads and returns its seconds and its result.
    alone: bool = False  #: It has one thread.


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
    return hashlib.sha256(b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)).hexdigest()


def timed(work: Work, result: Callable[[Any], str | None] = lambda _: None) -> Timed:
    def run(threads: int) -> tuple[float, str | None]:
        began = time.perf_counter()
        made = work(threads)
        seconds = time.perf_counter() - began
        return seconds, result(made)

    return run


def forgotten(make: Callable[[], Any], ids: Any) -> Timed:
    def run(threads: int) -> tuple[float, str | None]:
        model = make().set_params(n_jobs=threads)
        began = time.perf_counter()
        model.forget(ids, digests=False)
        return time.perf_counter() - began, model.digest()

    return run


def fit(estimator: Any, X: Any, y: Any) -> Timed:
    return timed(lambda n: type(estimator)(**estimator.get_params() | {"n_jobs": n}).fit(X, y), lambda m: m.digest())


def trees_alone(estimator: Any, X: Any, y: Any) -> Timed:
    """Time the training of the trees within a fit, without bins and rows."""

    def run(threads: int) -> tuple[float, str | None]:
        seconds, train = 0.0, ThreadTrainer._train

        def timed_train(trainer: ThreadTrainer, *given: Any) -> None:
            nonlocal seconds
            began = time.perf_counter()
            train(trainer, *given)
            seconds += time.perf_counter() - began

        with mock.patch.object(ThreadTrainer, "_train", timed_train):
            model = type(estimator)(**estimator.get_params() | {"n_jobs": threads}).fit(X, y)
        return seconds, model.digest()

    return run


def replaced(make: Callable[[], Any], ids: Any, X: Any, y: Any) -> Timed:
    """Time one call that deletes rows and inserts as many."""

    def run(threads: int) -> tuple[float, str | None]:
        model = make().set_params(n_jobs=threads)
        began = time.perf_counter()
        model.replace_examples(ids, X, y, new_ids=ids + 2**40, digests=False)
        return time.perf_counter() - began, model.digest()

    return run


def peer(make: Callable[[int], Any], X: Any, y: Any) -> Timed:
    return timed(lambda n: make(n).fit(X, y))


TREE = raydt.FullyDynamicTreeClassifier(max_depth=10, alpha=0.0001, beta=0.01)
FOREST = raydt.ExactForestClassifier(n_estimators=100, sample_share=0.1)


def large_fits(of: Callable[[int], int]) -> Iterator[Row]:
    n = of(1_000_000)
    data, name = cache(lambda: drawn(n, 50)), f"fit {n:,} x 50"
    yield Row(f"{name}, depth 10", "fudyadt", lambda: fit(TREE, *data()))
    yield Row(f"{name}, depth 10", "DecisionTreeClassifier", lambda: peer(decision_tree, *data()), alone=True)
    boosted = raydt.OnlineGradientBoostingClassifier(max_iter=20)
    yield Row(f"trees of {n:,} x 50, 20 iterations", "gbdt", lambda: trees_alone(boosted, *data()))
    yield Row(f"{name}, 20 iterations", "gbdt", lambda: fit(boosted, *data()))
    for who, make in boosting(20):
        yield Row(f"{name}, 20 iterations", who, lambda make=make: peer(make, *data()))


def small_fits(of: Callable[[int], int]) -> Iterator[Row]:
    n = of(105_000)
    data, name = cache(lambda: drawn(n, 10)), f"fit {n:,} x 10, 100 iterations"
    yield Row(name, "gbdt", lambda: fit(raydt.OnlineGradientBoostingClassifier(), *data()))
    for who, make in boosting(100):
        yield Row(name, who, lambda make=make: peer(make, *data()))


def rows_learned(of: Callable[[int], int]) -> Iterator[Row]:
    """Lines of the confidence tree, whose peer is too slow for as many rows: seconds for 1,000 of them."""
    n, few = of(100_000), of(5_000)
    data = cache(lambda: drawn(n, 20))

    def of_thousand(work: Timed, rows: int) -> Timed:
        def run(threads: int) -> tuple[float, str | None]:
            seconds, result = work(threads)
            return seconds * 1000 / rows, result

        return run

    ours = raydt.ConfidenceTreeClassifier()
    yield Row(f"fit 1,000 of {n:,} x 20", "confidence_tree", lambda: of_thousand(fit(ours, *data()), n))
    if importlib.util.find_spec("river"):
        work = lambda: of_thousand(timed(lambda _: hoeffding_tree(data()[0][:few], data()[1][:few])), few)  # noqa: E731
        yield Row(f"fit 1,000 of {few:,} x 20", "HoeffdingTreeClassifier", work, alone=True)


def updates(of: Callable[[int], int]) -> Iterator[Row]:
    n = of(200_000)
    data = cache(lambda: drawn(n, 50))
    model = raydt.OnlineGradientBoostingClassifier(retrain="never")
    for k in (n // 10, n // 200):
        make = lambda: _fitted(model, *data())  # noqa: E731
        yield Row(f"forget {k:,} of {n:,} x 50", "gbdt", lambda make=make, k=k: forgotten(make, np.arange(k)))
        new = lambda k=k: (part[: k // 2] for part in drawn(k, 50))  # noqa: E731
        name = f"{k:,} updates of {n:,} x 50"
        yield Row(name, "gbdt", lambda make=make, k=k, new=new: replaced(make, np.arange(k // 2), *new()))


def trees(of: Callable[[int], int]) -> Iterator[Row]:
    n = of(100_000)
    data, name = cache(lambda: drawn(n, 20)), f"{n:,} x 20, 100 trees"
    yield Row(f"fit {name}", "forest", lambda: fit(FOREST, *data()))
    for who, made in forests():
        yield Row(f"fit {name}", who, lambda made=made: peer(made, *data()))
    gone = np.arange(n // 100)
    yield Row(f"forget {len(gone):,} of {name}", "forest", lambda: forgotten(lambda: _fitted(FOREST, *data()), gone))


def models(of: Callable[[int], int]) -> Iterator[Row]:
    """Lines of what a model of each learner of dense rows is asked."""
    n, many = of(100_000), of(1_000_000)
    data, asked = cache(lambda: drawn(n, 20)), cache(lambda: drawn(many, 20)[0])
    numbers = cache(lambda: data()[0][:, 0] + data()[0][:, 1] * data()[0][:, 2])
    made = {who: cache(lambda m=model: _fitted(m, *data())) for who, model in CLASSIFIERS.items()}
    made |= {who: cache(lambda m=model: _fitted(m, data()[0], numbers())) for who, model in REGRESSORS.items()}
    for who, model in made.items():
        yield Row(f"predict {many:,} x 20", who, lambda m=model: _asked(m(), "predict", asked()))
    for who, kind in (*boosting(100), *forests()):
        yield Row(f"predict {many:,} x 20", who, lambda kind=kind: _peer_asked(kind(1).fit(*data()), asked()))
    for who, model in made.items():
        few = of(1_000 if who.startswith("forest") else 5_000)
        if who != "confidence_tree":  # its leaves predict by naive Bayes
            yield Row(f"explain {few:,} x 20", who, lambda m=model, k=few: _asked(m(), "explain", asked()[:k]))
    for who, model in made.items():
        yield Row(f"audit {n:,} x 20", who, lambda m=model: _audited(m()))


def sparse_models(of: Callable[[int], int]) -> Iterator[Row]:
    n, many, few = of(100_000), of(1_000_000), of(5_000)
    data, name = cache(lambda: drawn_sparse(many)), "rows of 10 ones"
    for who, model in (("sparse_tree", raydt.SparseDynamicTreeClassifier()), ("best_split", raydt.SparseBestSplit())):
        made = cache(lambda m=model: _fitted(m, *(part[:n] for part in data())))
        yield Row(f"predict {many:,} {name}", who, lambda m=made: _asked(m(), "predict", data()[0]))
        yield Row(f"explain {few:,} {name}", who, lambda m=made: _asked(m(), "explain", data()[0][:few]))
        yield Row(f"audit {n:,} {name}", who, lambda m=made: _audited(m()))


def sweeps(of: Callable[[int], int]) -> Iterator[Row]:
    settings = {"learner.epsilon": [0.05, 0.1, 0.2, 0.3, 0.4, 0.5]}
    n = of(50_000)
    yield Row(f"sweep, 6 settings x {n:,} updates", "fudyadt", lambda: _swept(n, settings))


def files(of: Callable[[int], int]) -> Iterator[Row]:
    n = of(200_000)
    with tempfile.TemporaryDirectory() as folder:

        @cache
        def data() -> Any:
            X, y = drawn(n, 20)
            return pa.table({"y": y, **{f"x{j}": X[:, j] for j in range(X.shape[1])}})

        @cache
        def file(kind: str) -> Path:
            path = Path(folder, f"rows.{kind}")
            (pyarrow.csv.write_csv if kind == "csv" else pyarrow.parquet.write_table)(data(), str(path))
            return path

        for kind in ("csv", "parquet"):
            yield Row(f"read {n:,} x 20", kind, lambda kind=kind: _read(file(kind)))
            yield Row(f"replay {n:,} x 20", kind, lambda kind=kind: _replayed(file(kind)))
        frame = cache(lambda: data().drop_columns("y"))
        model = cache(lambda: _fitted(TREE, frame(), data()["y"].to_numpy()))
        yield Row(f"encode a frame of {n:,} x 20", "fudyadt", lambda: _asked(model(), "predict", frame()))


#: Lines that share their data and models, which are made for the first one that runs, and kept until the last one.
GROUPS = (large_fits, small_fits, rows_learned, updates, trees, models, sparse_models, sweeps, files)


def decision_tree(_: int) -> Any:
    from sklearn.tree import DecisionTreeClassifier

    return DecisionTreeClassifier(max_depth=10, random_state=0)


def hoeffding_tree(X: Any, y: Any) -> Any:
    from river.tree import HoeffdingTreeClassifier

    model = HoeffdingTreeClassifier()
    for x, label in zip(X.tolist(), y.tolist(), strict=True):
        model.learn_one(dict(enumerate(x)), label)
    return model


def boosting(iterations: int) -> Iterator[tuple[str, Callable[[int], Any]]]:
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
    from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier

    same: dict[str, Any] = {"n_estimators": 100, "max_depth": 20, "min_samples_split": 10, "bootstrap": True}
    for kind in (RandomForestClassifier, ExtraTreesClassifier):
        yield kind.__name__, lambda n, kind=kind: kind(max_samples=0.1, n_jobs=n, random_state=0, **same)


CLASSIFIERS = {
    "fudyadt": raydt.FullyDynamicTreeClassifier(max_depth=12),
    "confidence_tree": raydt.ConfidenceTreeClassifier(),
    "gbdt": raydt.OnlineGradientBoostingClassifier(),
    "forest": FOREST,
}
REGRESSORS = {
    "fudyadt, numbers": raydt.FullyDynamicTreeRegressor(max_depth=12),
    "gbdt, numbers": raydt.OnlineGradientBoostingRegressor(),
    "forest, numbers": raydt.ExactForestRegressor(n_estimators=100, sample_share=0.1),
}


def _fitted(estimator: Any, X: Any, y: Any) -> Any:
    return type(estimator)(**estimator.get_params()).fit(X, y)


def _asked(model: Any, method: str, X: Any) -> Timed:
    def bits(found: Any) -> str:
        return hashed(found) if isinstance(found, np.ndarray) else hashed(found.values, np.asarray(found.base))

    return timed(lambda n: getattr(model.set_params(n_jobs=n), method)(X), bits)


def _peer_asked(model: Any, X: Any) -> Timed:
    return timed(lambda n: model.set_params(n_jobs=n).predict(X))


def _audited(model: Any) -> Timed:
    return timed(lambda n: model.set_params(n_jobs=n).audit(), lambda report: str(report.as_dict()))


def _read(file: Path) -> Timed:
    def work(threads: int) -> list[Any]:
        source = open_source(FileOptions(kind=file.suffix[1:], path=str(file), label="y"))
        with limited(threads):
            return [array for chunk in source.rows() for array in (chunk.X, chunk.y, chunk.id)]

    return timed(work, lambda parts: hashed(*parts))


def _replayed(file: Path) -> Timed:
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


def _swept(n: int, settings: dict[str, list[Any]]) -> Timed:
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
