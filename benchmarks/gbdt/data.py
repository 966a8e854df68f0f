"""Data sets of the GBDT paper that are at hand, and ours, LightGBM and XGBoost with the same settings.

Optdigits and Pendigits keep the files' own split. The others are mixed and split as the paper's Table 1: Adult without
the rows that have a "?" (45,222, as the paper's 45,173 nearly are) 80/20, one-hot; CreditInfo (GiveMeSomeCredit, NaN as
they are) 70/30; Abalone (sex one-hot) and the white wines of WineQuality two thirds to one. Of Letter the first 16,000
rows are to train on, as its authors say (in the paper any 15,000). Not at hand: SUSY, HIGGS, the whole Covertype, and
the two time series, for which Electricity stands in.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from harness import read

from raydt.sources.divided import open_source
from raydt.sources.options import Sea

Rows, Labels = npt.NDArray[np.int64], npt.NDArray[Any]
#: Seed of the split (all else that is drawn has the seed of its trial); values that predict a series (appendix H).
SPLIT_SEED, LAGS = 7, 15


@dataclass(frozen=True, slots=True)
class Split:
    """Training and test rows: X float64 (n, d), y int64 class codes or, for regression, float64 targets."""

    title: str
    X: npt.NDArray[np.float64]
    y: npt.NDArray[Any]
    X_test: npt.NDArray[np.float64]
    y_test: npt.NDArray[Any]
    regression: bool = False

    def __len__(self) -> int:
        return len(self.X)

    @property
    def classes(self) -> int:
        return 0 if self.regression else int(np.concatenate([self.y, self.y_test]).max()) + 1

    def take(self, rows: Rows) -> Split:
        return replace(self, X=self.X[rows], y=self.y[rows])

    def describe(self) -> str:
        kind = "regression" if self.regression else f"{self.classes} classes"
        return f"{self.title} ({len(self):,} x {self.X.shape[1]}, {kind})"


def columns(table: pa.Table) -> npt.NDArray[np.float64]:
    """All columns but ``y`` as float64, shape (n, d): null is NaN, and a text column is one column per category."""
    found = []
    for name in table.column_names:
        column = table[name]
        if name == "y":
            continue
        if pa.types.is_dictionary(column.type):
            values = np.array(column.cast(pa.string()).to_pylist())
            found += [(values == category).astype(np.float64) for category in np.unique(values)]
        else:
            found.append(column.cast(pa.float64()).to_numpy())
    return np.ascontiguousarray(np.column_stack(found))


def labels(table: pa.Table) -> npt.NDArray[np.int64]:
    column = table["y"]
    column = column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column
    codes: npt.NDArray[np.int64] = np.unique(np.array(column.to_pylist()), return_inverse=True)[1]
    return codes


def _mixed(title: str, table: pa.Table, share: float, regression: bool = False) -> Split:
    X = columns(table)
    y = table["y"].cast(pa.float64()).to_numpy() if regression else labels(table)
    order = np.random.default_rng(SPLIT_SEED).permutation(len(X))
    train, test = np.split(order, [int(share * len(X))])
    return Split(title, X[train], y[train], X[test], y[test], regression)


def _own(title: str, name: str) -> Split:
    train, test = read(f"{name}_train"), read(f"{name}_test")
    return Split(title, columns(train), labels(train), columns(test), labels(test))


def _letter() -> Split:
    whole = _head("Letter", "letter")
    train, test = np.split(np.arange(len(whole)), [16_000])
    return replace(whole.take(train), X_test=whole.X[test], y_test=whole.y[test])


def _adult() -> Split:
    table = pa.concat_tables([read("adult_train"), read("adult_test")]).unify_dictionaries()
    text = [name for name in table.column_names if pa.types.is_dictionary(table[name].type) and name != "y"]
    for name in text:
        table = table.filter(pc.not_equal(table[name].cast(pa.string()), "?"))
    return _mixed("Adult", table, 0.8)


def _series(title: str, name: str) -> Callable[[int], Split]:
    """Rows in file order; a tenth of them, drawn over all, is for testing (appendix H)."""
    return lambda seed: _in_time_order(title, columns(read(name)), labels(read(name)), seed)


def _demand(seed: int) -> Split:
    """The demand of Electricity from its values in the 15 half hours before, as the paper makes its series."""
    series = read("electricity")["nswdemand"].cast(pa.float64()).to_numpy()
    windows = np.lib.stride_tricks.sliding_window_view(series, LAGS + 1)
    return _in_time_order("Electricity demand", windows[:, :-1], windows[:, -1], seed, regression=True)


def _in_time_order(
    title: str, X: npt.NDArray[np.float64], y: npt.NDArray[Any], seed: int, regression: bool = False
) -> Split:
    test = np.zeros(len(X), dtype=np.bool_)
    test[np.random.default_rng(seed).permutation(len(X))[: len(X) // 10]] = True
    return Split(title, np.ascontiguousarray(X[~test]), y[~test].copy(), X[test], y[test], regression)


def _sea() -> Split:
    """The stream of configs/gbdt.yaml: 6,000 rows of SEA with three drifts."""
    source = open_source(Sea(n=6000, drift=3, noise=0.1, seed=7))
    parts = list(source.rows())
    X, y = np.concatenate([part.X for part in parts]), np.concatenate([part.y for part in parts])
    return _whole("SEA of configs/gbdt.yaml", X, y.astype(np.int64))


def _head(title: str, name: str, rows: int | None = None) -> Split:
    table = read(name).slice(0, rows)
    return _whole(title, columns(table), labels(table))


def _whole(title: str, X: npt.NDArray[np.float64], y: npt.NDArray[Any]) -> Split:
    return Split(title, X, y, X[:0], y[:0])


#: All rows in their order, none of them for testing: each is predicted before it is learned.
STREAMS: dict[str, Callable[[], Split]] = {
    "sea": _sea,
    "electricity": lambda: _head("Electricity", "electricity"),
    "covtype": lambda: _head("Covertype head", "covtype_head10k"),
    "poker": lambda: _head("Poker, first 10,000", "poker_lsn", 10_000),
}

#: Rows in time order, with a tenth of them for testing, drawn with a seed.
SERIES: dict[str, Callable[[int], Split]] = {
    "electricity": _series("Electricity", "electricity"), "demand": _demand,
    "covtype": _series("Covertype head", "covtype_head10k"),
}  # fmt: skip

#: By the name of the command line.
SETS: dict[str, Callable[[], Split]] = {
    "adult": _adult, "givemesomecredit": lambda: _mixed("CreditInfo", read("givemesomecredit"), 0.7),
    "optdigits": lambda: _own("Optdigits", "optdigits"), "pendigits": lambda: _own("Pendigits", "pendigits"),
    "letter": _letter,
    "abalone": lambda: _mixed("Abalone", read("abalone"), 2 / 3, regression=True),
    "wine": lambda: _mixed("WineQuality, white", read("wine_quality_white"), 2 / 3, regression=True),
    **{name: partial(series, SPLIT_SEED) for name, series in SERIES.items()},
}  # fmt: skip


def load(name: str) -> Split:
    return SETS[name]()


#: Values of ``derivatives``, the default first; and all options as the estimators have them.
MODES, DEFAULT = ["bounded", "changed_leaves", "retrained", "never"], "default"
#: 20 leaves, learning rate 0.1, 100 iterations and lambda 1 are our defaults; bins are LightGBM's default, and ours.
ITERATIONS, LEAVES, RATE, BINS, L2, OWN_BINS = 100, 20, 0.1, 255, 1.0, 1024
#: Sizes of D' as shares of the training rows; 0 is one row.
SIZES = {"1 row": 0.0, "0.1 %": 0.001, "1 %": 0.01}


def size_of(share: float, rows: int) -> int:
    return max(1, round(share * rows))


def ours(split: Split, **options: Any) -> Any:
    import raydt

    kind = raydt.OnlineGradientBoostingRegressor if split.regression else raydt.OnlineGradientBoostingClassifier
    return kind(**{"max_bins": BINS, **options})


def options_of(mode: str) -> dict[str, Any]:
    """Options of a mode: the defaults of the estimators; or a value of ``derivatives``, and no training in between."""
    return {"max_bins": OWN_BINS} if mode == DEFAULT else {"derivatives": mode, "retrain": "never"}


def fitted(split: Split, rows: Any = None, **options: Any) -> Any:
    """Our estimator trained on ``rows`` (all), whose ids are their numbers."""
    rows = np.arange(len(split)) if rows is None else rows
    return ours(split, **options).fit(split.X[rows], split.y[rows], ids=rows)


def add(model: Any, split: Split, rows: Any) -> Any:
    return model.partial_fit(split.X[rows], split.y[rows], ids=rows)


def delete(model: Any, rows: Any) -> Any:
    return model.forget(rows, digests=False)


def lightgbm(split: Split, rows: Any = slice(None), iterations: int = ITERATIONS, **changed: Any) -> Any:
    import lightgbm as lgb

    parameters = {
        "num_leaves": LEAVES, "learning_rate": RATE, "max_bin": BINS, "min_data_in_leaf": 1, "lambda_l2": L2,
        "num_threads": 1, "verbosity": -1, **_objective(split, "regression", "binary", "multiclass"), **changed,
    }  # fmt: skip
    return lgb.train(parameters, lgb.Dataset(split.X[rows], split.y[rows]), iterations)


def xgboost(split: Split, rows: Any = slice(None), iterations: int = ITERATIONS, **changed: Any) -> Any:
    import xgboost as xgb

    parameters = {
        "tree_method": "hist", "grow_policy": "lossguide", "max_leaves": LEAVES, "max_depth": 0, "eta": RATE,
        "max_bin": BINS, "min_child_weight": 0, "lambda": L2, "nthread": 1,
        **_objective(split, "reg:squarederror", "binary:logistic", "multi:softprob"), **changed,
    }  # fmt: skip
    matrix = xgb.QuantileDMatrix(split.X[rows], split.y[rows], max_bin=BINS, nthread=1)
    return xgb.train(parameters, matrix, iterations)


def _objective(split: Split, regression: str, binary: str, multiclass: str) -> dict[str, Any]:
    if split.classes > 2:
        return {"objective": multiclass, "num_class": split.classes}
    return {"objective": regression if split.regression else binary}


def predicted(model: Any, split: Split, X: npt.NDArray[np.float64] | None = None) -> Labels:
    """Class codes or numbers, of the test rows by default, whatever made the model."""
    X = split.X_test if X is None else X
    values = np.asarray(model.inplace_predict(X) if hasattr(model, "inplace_predict") else model.predict(X))
    if hasattr(model, "partial_fit") or split.regression:
        return values
    codes: Labels = values.argmax(axis=1) if values.ndim == 2 else (values > 0.5).astype(np.int64)
    return codes


def quality(model: Any, split: Split) -> float:
    """Accuracy on the test rows; mean squared error for regression."""
    values = predicted(model, split)
    return float(np.mean((values - split.y_test) ** 2 if split.regression else values == split.y_test))


def trivial(split: Split, rows: Any = slice(None)) -> float:
    y = split.y[rows]
    if split.regression:
        return float(np.mean((split.y_test - y.mean()) ** 2))
    return float(np.mean(split.y_test == np.bincount(y).argmax()))


def timed(run: Callable[[], Any]) -> tuple[float, Any]:
    """CPU seconds of this process, and the result; no garbage is collected meanwhile."""
    gc.disable()
    try:
        began = time.process_time()
        result = run()
        return time.process_time() - began, result
    finally:
        gc.enable()


def median(values: Sequence[float]) -> float:
    return statistics.median(values) if len(values) else float("nan")


def mean_and_error(values: Sequence[float], scale: float = 1.0, digits: int = 2) -> str:
    found = np.asarray(values, dtype=np.float64) * scale
    if len(found) < 2:
        return f"{found.mean():.{digits}f}"
    return f"{found.mean():.{digits}f} ± {found.std(ddof=1) / np.sqrt(len(found)):.{digits}f}"
