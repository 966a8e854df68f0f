"""Ours, LightGBM and XGBoost with the same settings, CPU time, and how good a model is."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from gbdt.command import DEFAULT
from gbdt.data import Split

T = TypeVar("T")
Labels = npt.NDArray[Any]

#: 20 leaves, learning rate 0.1, 100 iterations and lambda 1 are our defaults; bins are LightGBM's default.
ITERATIONS, LEAVES, RATE, BINS, L2 = 100, 20, 0.1, 255, 1.0
#: Bins of ours where all its options are default.
OWN_BINS = 1024
#: Sizes of D' as shares of the training rows; 0 is one row.
SIZES = {"1 row": 0.0, "0.1 %": 0.001, "1 %": 0.01}


def size_of(share: float, rows: int) -> int:
    """Rows of D' of a share; at least one."""
    return max(1, round(share * rows))


def ours(split: Split, **options: Any) -> Any:
    """Our estimator, not fitted."""
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
    """One D' of insertions."""
    return model.partial_fit(split.X[rows], split.y[rows], ids=rows)


def delete(model: Any, rows: Any) -> Any:
    """One D' of deletions, without the receipt's digests."""
    return model.forget(rows, digests=False)


def lightgbm(split: Split, rows: Any = slice(None), iterations: int = ITERATIONS, **changed: Any) -> Any:
    """A LightGBM model, binning included, on one thread."""
    import lightgbm as lgb

    parameters = {
        "num_leaves": LEAVES,
        "learning_rate": RATE,
        "max_bin": BINS,
        "min_data_in_leaf": 1,
        "lambda_l2": L2,
        "num_threads": 1,
        "verbosity": -1,
        **_objective(split, "regression", "binary", "multiclass"),
        **changed,
    }
    return lgb.train(parameters, lgb.Dataset(split.X[rows], split.y[rows]), iterations)


def xgboost(split: Split, rows: Any = slice(None), iterations: int = ITERATIONS, **changed: Any) -> Any:
    """An XGBoost hist model, binning included, on one thread."""
    import xgboost as xgb

    parameters = {
        "tree_method": "hist",
        "grow_policy": "lossguide",
        "max_leaves": LEAVES,
        "max_depth": 0,
        "eta": RATE,
        "max_bin": BINS,
        "min_child_weight": 0,
        "lambda": L2,
        "nthread": 1,
        **_objective(split, "reg:squarederror", "binary:logistic", "multi:softprob"),
        **changed,
    }
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
    """Quality of the majority class, or of the mean."""
    y = split.y[rows]
    if split.regression:
        return float(np.mean((split.y_test - y.mean()) ** 2))
    return float(np.mean(split.y_test == np.bincount(y).argmax()))


def agreement(one: Labels, other: Labels) -> float:
    """Share of equal predictions (phi of Definition 3)."""
    return float(np.mean(one == other))


def timed(run: Callable[[], T]) -> tuple[float, T]:
    """CPU seconds of this process, and the result; no garbage is collected meanwhile."""
    gc.disable()
    try:
        began = time.process_time()
        result = run()
        return time.process_time() - began, result
    finally:
        gc.enable()


def median(values: Sequence[float]) -> float:
    """Of what was measured; NaN of nothing."""
    return statistics.median(values) if len(values) else float("nan")


def mean_and_error(values: Sequence[float], scale: float = 1.0, digits: int = 2) -> str:
    """Mean and, of several values, its standard error."""
    found = np.asarray(values, dtype=np.float64) * scale
    if len(found) < 2:
        return f"{found.mean():.{digits}f}"
    return f"{found.mean():.{digits}f} ± {found.std(ddof=1) / np.sqrt(len(found)):.{digits}f}"
