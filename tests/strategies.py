"""Every hypothesis strategy of the tests, but for the streams of best splits (``sparse_streams.py``).

Streams are built to hurt: few distinct values and rows, so that ties, duplicates and empty sides abound; values at
the ends of float64; ids that come back after their deletion; operations that have to be refused.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from raydt.arrays.blocks import SparseRows
from raydt.examples.updates import CARRIES_ROW, DELETE, DELETE_VALUE, INSERT, QUERY, UPDATE, Features, UpdateBatch

#: Float64 values whose order, midpoints and sums are easy to get wrong.
AWKWARD = (
    0.0,
    5e-324,
    -5e-324,
    1e-323,
    2.2250738585072014e-308,
    1.0,
    1.0000000000000002,
    -1.0,
    0.1,
    0.30000000000000004,
)
HUGE = (1.7976931348623157e308, -1.7976931348623157e308, 1.797693134862315e308, 8.98846567431158e307, -4.5e307)
#: Neighbours that only differ beyond float32.
CLOSE = (16777216.0, 16777216.000000004, 16777217.0, 16777216.0000001, 3.0000000000000004, 3.0)


@dataclass(frozen=True)
class Stream:
    """A whole stream of updates, to be cut into batches at will."""

    op: tuple[int, ...]
    id: tuple[int, ...]
    rows: tuple[tuple[float, ...] | None, ...]
    y: tuple[float, ...]
    categorical: tuple[bool, ...]
    classes_known: bool
    warmup: int = 0
    regression: bool = False
    weight: tuple[int, ...] | None = None

    def __len__(self) -> int:
        return len(self.op)

    @property
    def features(self) -> Features:
        return Features(tuple(f"x{j}" for j in range(len(self.categorical))), self.categorical, groups=3)

    def batches(self, sizes: Sequence[int]) -> Iterator[UpdateBatch]:
        """The stream in batches of ``sizes``, repeated from the first when they are used up."""
        start = turn = 0
        while start < len(self):
            stop = min(start + sizes[turn % len(sizes)], len(self))
            yield self.batch(start, stop)
            start, turn = stop, turn + 1

    def batch(self, start: int, stop: int) -> UpdateBatch:
        carries = [i for i in range(start, stop) if self.rows[i] is not None]
        known = self.y if self.classes_known else self.y[:stop]
        return UpdateBatch(
            start=start,
            op=np.array(self.op[start:stop], np.int8),
            id=np.array(self.id[start:stop], np.int64),
            X=np.array([self.rows[i] for i in carries], np.float64).reshape(len(carries), len(self.categorical)),
            y=np.array([self.y[i] for i in carries], np.float64 if self.regression else np.int32),
            n_classes=0 if self.regression else max(2, int(max(known, default=-1)) + 1),
            row=np.arange(start, stop, dtype=np.int64),
            warmup=self.warmup,
            weight=None if self.weight is None else np.array([self.weight[i] for i in carries], np.uint32),
        )


def palettes(categorical: bool) -> st.SearchStrategy[list[float]]:
    """The few values one column takes."""
    if categorical:
        return st.lists(st.integers(0, 6).map(float), min_size=1, max_size=6, unique=True)
    small = st.integers(-2, 3).map(float)
    value = st.one_of(small, small, st.sampled_from(AWKWARD), st.sampled_from(HUGE), st.sampled_from(CLOSE))
    return st.one_of(
        st.lists(value, min_size=3, max_size=8, unique=True), st.lists(value, min_size=1, max_size=2, unique=True)
    )


def missing_value(categorical: bool) -> float:
    """What stands for no value in a column."""
    return -1.0 if categorical else math.nan


@st.composite
def streams(
    draw: st.DrawFn, *, max_events: int = 120, refusals: bool = False, warmup: bool = True, missing: bool = False
) -> Stream:
    """Streams of inserts, deletes (by id and by value), updates and queries.

    ``refusals``: whether unknown ids, live ids and unknown values occur; ``missing``: whether cells may lack a value.
    """
    categorical = tuple(draw(st.lists(st.booleans(), min_size=1, max_size=3)))
    columns = [draw(palettes(kind)) for kind in categorical]
    if missing:  # in about a quarter of the cells of a column, half or two thirds, or in none
        for kind, column in zip(categorical, columns, strict=True):
            column += [missing_value(kind)] * draw(st.sampled_from((0, 1, len(column) // 3 + 1, 2 * len(column))))
    n_classes = draw(st.integers(2, 4))
    grow = draw(st.sampled_from((1, 4, 12)))  # how many inserts there are to one of the other operations
    cells = st.tuples(*(st.sampled_from(column) for column in columns))
    operation = st.sampled_from((INSERT,) * grow + (INSERT, DELETE, DELETE, DELETE_VALUE, UPDATE, QUERY))
    events = draw(
        st.lists(
            st.tuples(operation, st.integers(0, 255), cells, st.integers(0, n_classes - 1)),
            min_size=draw(st.sampled_from((1, max_events // 4, max_events // 2, max_events))),
            max_size=max_events,
        )
    )
    lead = draw(st.integers(1, max(1, min(20, len(events) - 1)))) if warmup and draw(st.booleans()) else 0
    scale, offset = draw(st.sampled_from(((1, 0), (-1, -1), (2**40, -(2**61)))))
    stream = script(events, categorical, lead, refusals)
    return replace(
        stream, id=tuple(i * scale + offset for i in stream.id), classes_known=draw(st.booleans()), warmup=lead
    )


@st.composite
def long_streams(draw: st.DrawFn, *, events: int = 400, missing: bool = False) -> Stream:
    """Streams that grow trees of some depth, drawn from a seed: too long to be shrunk, mostly inserts at first.

    The label follows the first two features, with noise, and their part changes sides halfway. If cells may be
    ``missing``, that depends on the label, too.
    """
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    categorical = tuple(draw(st.lists(st.booleans(), min_size=2, max_size=4)))
    n_classes, distinct = draw(st.integers(2, 4)), draw(st.sampled_from((4, 30)))
    lead = draw(st.sampled_from((0, 0, 1, events // 3)))
    mix = np.array((INSERT, DELETE, DELETE_VALUE, UPDATE, QUERY))
    early, late = (0.85, 0.05, 0.02, 0.05, 0.03), (0.3, 0.35, 0.1, 0.2, 0.05)
    updates = []
    for i in range(events):
        x = rng.integers(0, distinct, len(categorical)).astype(float)
        x[~np.array(categorical)] *= 0.1
        side = int(x[0] > x[1]) if i < events // 2 else int(x[0] <= x[1])
        if missing:
            for j in np.flatnonzero(rng.random(len(x)) < (0.3 if side else 0.1)).tolist():
                x[j] = missing_value(categorical[j])
        label = side if rng.random() < 0.9 else int(rng.integers(n_classes))
        op = int(rng.choice(mix, p=early if i < events // 2 else late))
        updates.append((op, int(rng.integers(256)), tuple(x.tolist()), label))
    return replace(script(updates, categorical, lead, refusals=False), warmup=lead)


def script(
    events: Sequence[tuple[int, int, tuple[float, ...], int]],
    categorical: tuple[bool, ...],
    warmup: int,
    refusals: bool,
) -> Stream:
    """Turn drawn events into a stream that makes sense: ids that are live where they have to be.

    Class codes are given in order of first appearance, as sources do.
    """
    live: dict[int, tuple[int, tuple[float, ...], int]] = {}  # id: when it was inserted, features, label
    dead: list[int] = []
    codes: dict[int, int] = {}
    out: list[tuple[int, int, tuple[float, ...] | None, int]] = []
    fresh = 0
    for index, (drawn, pick, cells, label) in enumerate(events):
        wrong = refusals and pick % 8 == 7
        op, x, key = (INSERT if index < warmup else drawn), cells, 0
        if not live and op != QUERY and not wrong:
            op = INSERT
        y = -1 if op in (DELETE, QUERY) else codes.setdefault(label, len(codes))
        if op == INSERT:
            if wrong and live and index >= warmup:
                key = list(live)[pick % len(live)]
            elif dead and pick % 2:
                key = dead.pop(pick % len(dead))
            else:
                key, fresh = fresh, fresh + 1
            live.setdefault(key, (index, x, y))
        elif op in (DELETE, UPDATE):
            key = -1 - pick if wrong or not live else list(live)[pick % len(live)]
            if key in live and op == DELETE:
                del live[key]
                dead.append(key)
            elif key in live:
                live[key] = (index, x, y)
        elif op == DELETE_VALUE:
            if not wrong and live:
                _, x, y = live[list(live)[pick % len(live)]]
            equal = [(born, k) for k, (born, *example) in live.items() if example == [x, y]]
            if equal:
                _, oldest = min(equal)
                del live[oldest]
                dead.append(oldest)
        out.append((op, key, x if CARRIES_ROW[op] else None, y))
    return Stream(
        op=tuple(event[0] for event in out),
        id=tuple(event[1] for event in out),
        rows=tuple(event[2] for event in out),
        y=tuple(event[3] for event in out),
        categorical=categorical,
        classes_known=True,
        warmup=warmup,
    )


def fudyadt_options(*, certificate: bool | None = None, numbers: bool = False) -> st.SearchStrategy[dict[str, Any]]:
    """Options of FuDyADT that decide the model, of the schedule by certificates, of the published one, or of both.

    With ``numbers`` alpha and beta are shares of the range of the labels squared.
    """
    limits = {
        "max_depth": st.sampled_from((None, None, None, None, 0, 1, 2, 3, 10)),
        "min_samples_split": st.sampled_from((2, 2, 2, 3, 5)),
        # Depths are small, and so is the part of it that counts there.
        "smoothing": st.sampled_from((0.0, 3.0, 300.0, 300.0, 1e4)),
    }
    published = {
        "epsilon": st.sampled_from((0.0, 0.05, 0.1, 0.5, 1.0, 2.0)),
        "alpha": st.sampled_from((0.0, 0.0, 0.1) if numbers else (0.0, 0.0, 0.0, 0.1, 0.5, 1.0)),
        "beta": st.sampled_from((0.0, 0.2) if numbers else (0.0, 0.2, 1.0)),
    }
    certified = {
        "alpha": st.sampled_from((0.001, 0.01, 0.1, 0.3) if numbers else (0.01, 0.1, 0.1, 0.3, 1.0)),
        "beta": st.sampled_from((0.002, 0.01, 0.05, 0.2) if numbers else (0.02, 0.05, 0.1, 0.2, 0.2, 1.0)),
    }
    schedules = {False: st.fixed_dictionaries(published | limits), True: st.fixed_dictionaries(certified | limits)}
    return st.one_of(*schedules.values()) if certificate is None else schedules[certificate]


@st.composite
def gbdt_streams(draw: st.DrawFn, *, regression: bool = False, max_events: int = 30, classes: int = 4) -> Stream:
    """A warm-up of at least two rows, then updates: NaN and unknown categories, classes that come late, numbers."""
    categorical = tuple(draw(st.lists(st.sampled_from((False, False, True)), min_size=1, max_size=4)))
    columns = [draw(palettes(kind)) + draw(st.sampled_from(([], [-1.0 if kind else math.nan]))) for kind in categorical]
    lead = draw(st.one_of(st.integers(2, 40), st.integers(20, 40)))
    cells = st.tuples(*(st.sampled_from(column) for column in columns))
    operation = st.sampled_from((INSERT,) * 4 + (DELETE,) * 3 + (DELETE_VALUE, UPDATE, QUERY))
    labels = draw(st.sampled_from((*range(2, classes + 1), classes))) if not regression else 6
    early = draw(st.sampled_from((labels, max(1, labels - 1), max(1, labels - 2))))
    # The label of a row follows one of its cells, more often than not, so that trees have something to find.
    column, noise = draw(st.integers(0, len(categorical) - 1)), draw(st.sampled_from((1, 4)))
    n = lead + draw(st.integers(0, max_events))
    drawn = draw(
        st.lists(st.tuples(operation, st.integers(0, 255), cells, st.integers(0, 255)), min_size=n, max_size=n)
    )
    events = [
        (op, pick, x, (y if y % noise == 0 else columns[column].index(x[column])) % (early if i < lead else labels))
        for i, (op, pick, x, y) in enumerate(drawn)
    ]
    stream = replace(script(events, categorical, lead, refusals=False), warmup=lead, regression=regression)
    if regression:
        targets = draw(st.lists(st.one_of(st.integers(-3, 3).map(float), st.floats(-1e3, 1e3)), min_size=6, max_size=6))
        stream = replace(stream, y=tuple(math.nan if y < 0 else targets[int(y)] for y in stream.y))
    return draw(weighted(stream)) if draw(st.sampled_from((False, False, True))) else stream


#: Weights in units of 2**-16.
WEIGHTS = (0, 1, 12345, 65536, 65536, 98304, 131072, 2**24)


def weighted(stream: Stream, weights: Sequence[int] = WEIGHTS) -> st.SearchStrategy[Stream]:
    """A stream whose rows have weights in units."""
    drawn = st.lists(st.sampled_from(weights), min_size=len(stream), max_size=len(stream))
    return drawn.map(lambda weight: replace(stream, weight=tuple(weight)))


def gbdt_options(*objectives: str) -> st.SearchStrategy[dict[str, Any]]:
    """Options of the online GBDT that decide the model."""
    return st.fixed_dictionaries(
        {
            "objective": st.sampled_from(objectives),
            "max_iter": st.integers(1, 6),
            "max_leaf_nodes": st.integers(2, 6),
            "learning_rate": st.sampled_from((0.1, 1.0)),
            "l2_regularization": st.sampled_from((0.0, 1.0)),
            "max_bins": st.integers(2, 8),
            "binning": st.sampled_from(("doubling", "quantile")),
            "candidate_fraction": st.sampled_from((0.1, 0.5, 1.0)),
            "robustness_tolerance": st.sampled_from((0.0, 0.1, 0.5, 1.0)),
            "derivatives": st.sampled_from(("bounded", "bounded", "changed_leaves", "retrained", "never")),
            "derivative_tolerance": st.sampled_from((0.0, 0.01, 0.1, 1.0)),
            "update_every": st.sampled_from((1, 2, 3, 7, 100, "auto")),
            "retrain": st.sampled_from(("auto", "auto", "never", "always")),
            "random_state": st.integers(0, 3),
            "class_weight": st.sampled_from((None,) if "squared_error" in objectives else (None, None, "balanced")),
        }
    )


def cuts() -> st.SearchStrategy[list[int]]:
    """Sizes of transport batches."""
    return st.one_of(st.just([1]), st.just([1000]), st.lists(st.integers(1, 9), min_size=1, max_size=6))


def ones(width: int, most: int = 6) -> st.SearchStrategy[list[int]]:
    """One row of binary features: ascending, distinct indices below ``width``."""
    return st.lists(st.integers(0, width - 1), unique=True, max_size=most).map(sorted)


def sparse_rows(lists: Sequence[Sequence[int]], width: int) -> SparseRows:
    """Rows from lists of indices."""
    indices = np.array([index for row in lists for index in row], dtype=np.int32)
    return SparseRows.of_lengths(np.array([len(row) for row in lists], dtype=np.int64), indices, width)
