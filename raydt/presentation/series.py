"""Turns the tables of a run into series short enough to draw.

Invariant: merging rows of the metrics table gives what the run would have written with a larger ``metrics_every``:
cumulative columns keep the last value, windowed ones are weighted by their predictions. Nothing is sampled away. A
windowed score that is no mean over predictions is left out.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from raydt.arrays.types import AnyArray, Floats, Ints

#: A table by columns of one length.
Columns: TypeAlias = dict[str, AnyArray]

#: How the names of windowed columns begin.
WINDOWED = "window_"

#: Windowed scores whose value over several windows is the mean of theirs, by predictions.
_MEANS = {f"{WINDOWED}{name}" for name in ("accuracy", "no_change", "majority", "mse", "mae", "mean")}


def merged(metrics: Columns, limit: int) -> Columns:
    """Return at most ``limit`` rows of the metrics table, each covering about equally many rows. O(n) per column."""
    n = len(metrics["seq"])
    if n <= limit:
        return metrics
    return _grouped(metrics, np.arange(1, limit + 1) * n // limit - 1)


def whole_windows(metrics: Columns) -> Columns:
    """Return the table with a last row of less than half an interval merged into the one before it."""
    n = len(metrics.get("seq", ()))
    if n < 3 or not any(_is_short(increments(metrics[name])) for name in ("seq", "predictions") if name in metrics):
        return metrics
    return _grouped(metrics, np.append(np.arange(n - 2), n - 1))


def _is_short(steps: Floats) -> bool:
    return bool(0 < 2 * steps[-1] < steps[-2])


def _grouped(metrics: Columns, last: AnyArray) -> Columns:
    """Return a row for each stretch of rows that ends with one of ``last``."""
    first, limit = np.concatenate([[0], last[:-1] + 1]), len(last)
    predictions = increments(metrics["predictions"])
    weight = np.add.reduceat(predictions, first)
    result: Columns = {}
    for name, column in metrics.items():
        if name in _MEANS:
            sums = np.add.reduceat(np.where(predictions > 0, np.nan_to_num(column) * predictions, 0.0), first)
            result[name] = np.divide(sums, weight, out=np.full(limit, np.nan), where=weight > 0)
        elif not name.startswith(WINDOWED):
            result[name] = column[last]
    return result


def increments(column: AnyArray) -> Floats:
    """Return the amount each row added to a cumulative column; the first row starts from 0."""
    added: Floats = np.diff(column.astype(np.float64), prepend=0.0)
    return added


def per_unit(numerator: AnyArray, denominator: AnyArray) -> Floats:
    """Return the increments of one cumulative column divided by those of another; NaN where the latter stands still."""
    up, down = increments(numerator), increments(denominator)
    rate: Floats = np.divide(up, down, out=np.full(len(up), np.nan), where=down > 0)
    return rate


def size_classes(rows: AnyArray) -> Ints:
    """Return floor(log2(rows)) of each size, and -1 for empty ones, exactly."""
    return np.frexp(rows.astype(np.float64))[1].astype(np.int64) - 1
