"""What is given is kept: saved values, labels, times, steps, and updates that are replayed."""

from __future__ import annotations

import datetime
import decimal
import fractions
import random
import tempfile
import uuid
import warnings
from dataclasses import dataclass
from datetime import datetime as datetime_times
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from scipy.sparse import csr_matrix

import pipelines
from pipelines.updating import update
from raydt import FullyDynamicTreeClassifier, load_model
from raydt.encoding.columns import LARGEST_TIME
from raydt.errors import RaydtError
from raydt.estimators import arguments
from raydt.estimators import base as targets
from raydt.estimators.arguments import ids_of
from raydt.evaluation.scoring import NO_LEVEL
from raydt.examples.updates import (
    CARRIES_ROW,
    DELETE,
    DELETE_VALUE,
    INSERT,
    QUERY,
    UPDATE,
    UpdateBatch,
    nothing_admitted,
)
from raydt.learners.batch_coordinator import ADD, LOOK, REMOVE, steps_of
from raydt.messages import text
from raydt.sources.divided import open_source
from raydt.sources.options import ArrowFiles, CsvFiles, ParquetFiles
from raydt.streams.windows import TimeWindow
from tests.unit.test_update_subjects import ESTIMATORS, takes_sparse_rows_only
from tests.volume import examples, spread

# -- saved values ----------------------------------------------------------------------------------------------------
# What an estimator accepts it can also save: labels, categories and names of columns of any kind, drawn at random.
#
# Each call either refuses its values, with one error, or the model that ``save`` writes predicts the same values.

#: Two values of each kind.
PAIRS: dict[str, tuple[Any, Any]] = {
    "text": ("a", "b"),
    "odd text": ("\u2028", "é\n"),
    "text that ends with NUL": ("a\0", "a"),
    "bytes": (b"a", b"b"),
    "truth values": (False, True),
    "integers": (-3, 4),
    "large integers": (2**60 + 1, 2**60 + 2),
    "unsigned integers": (1, 2**64 - 1),
    "huge integers": (1, 2**70),
    "whole numbers": (1.0, 2.0),
    "large whole numbers": (1e300, 2.0**60),
    "fractions": (1.5, 2.5),
    "truth values and integers": (True, 2),
    "complex numbers": (1j, 2j),
    "times": (datetime.datetime(2020, 1, 1), datetime.datetime(2021, 1, 1)),
    "dates": (datetime.date(2020, 1, 1), datetime.date(2021, 1, 1)),
    "lengths of time": (datetime.timedelta(1), datetime.timedelta(2)),
    "decimals": (decimal.Decimal(1), decimal.Decimal(2)),
    "ratios": (fractions.Fraction(1, 2), fractions.Fraction(3, 2)),
    "UUIDs": (uuid.UUID(int=1), uuid.UUID(int=2)),
    "tuples": ((1, 2), (3, 4)),
    "scalars of 64 bits": (np.int64(1), np.int64(2)),
    "scalars of 32 bits": (np.float32(1), np.float32(2)),
    "scalars of text": (np.str_("a"), np.str_("b")),
}
TYPES = ["int8", "uint8", "uint64", "float16", "float32", "longdouble", "datetime64[s]", "timedelta64[s]", "V2", "bool"]
ROWS = 24


def values(draw: random.Random) -> Any:
    """A column of one kind, in one of the forms in which users hold columns."""
    if draw.random() < 0.25:
        return np.tile(np.array([1, 2]), ROWS // 2).astype(draw.choice(TYPES))
    pair = PAIRS[draw.choice(sorted(PAIRS))]
    column = [*pair] * (ROWS // 2)
    form = draw.choice(["list", "array", "objects", "series", "categorical"])
    if form == "list":
        return column
    if form == "array" and not isinstance(pair[0], tuple):
        return np.array(column)
    objects = np.empty(ROWS, dtype=object)
    objects[:] = column
    if form in ("array", "objects"):
        return objects
    return pd.Series(objects, dtype="category" if form == "categorical" else object)


def rows(estimator: Any, draw: random.Random, names: list[Any]) -> Any:
    """Features, one of them perhaps a column of any kind."""
    numbers = np.arange(ROWS)[:, None] // [[1, 2, 3]] % 2 * 1.0
    if takes_sparse_rows_only(estimator):
        return csr_matrix(numbers)
    if not names:
        return numbers
    return pd.DataFrame(numbers, columns=names).assign(kind=values(draw))


def known(labels: Any) -> list[tuple[bool, Any]]:
    """Labels with what tells text from numbers."""
    return [(isinstance(label, str), label) for label in labels.tolist()]


@pytest.mark.turns(3)
@pytest.mark.share
@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda estimator: estimator.__name__)
def test_values_are_refused_or_saved(estimator: Any, tmp_path: Path) -> None:
    for number in spread(range(400), 50):
        draw = random.Random(f"{estimator.__name__} {number}")
        place, model = tmp_path / str(number), estimator()
        if "categorical_features" in model.get_params() and draw.random() < 0.5:
            model.set_params(categorical_features=[draw.choice([0, "kind"])])
        names = draw.choice([[], draw.sample(["a", "b", "é", "\n", "", 0, 1.5, "a b"], 3)])
        accepted = []
        for call in (model.fit, model.partial_fit):
            X, y = rows(estimator, draw, names), values(draw)
            if draw.random() < 0.5:
                y = [draw.randrange(2) for _ in range(ROWS)]
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    call(X, y)
            except (ValueError, TypeError):
                if not accepted:
                    break
            else:
                accepted.append((X, y))
        if not accepted:
            continue
        model.save(place, with_examples=draw.random() < 0.5)
        loaded = load_model(place)
        for X, y in accepted:
            truth = model.predict(X)
            assert known(loaded.predict(X)) == known(truth), number
            if hasattr(model, "classes_"):
                assert known(loaded.classes_) == known(model.classes_), number
                kinds = {(isinstance(label, str), label) for label in (y.tolist() if hasattr(y, "tolist") else y)}
                assert kinds <= {*known(model.classes_)}, number


# -- labels given ----------------------------------------------------------------------------------------------------
# Labels and ids as users give them: columns of text and numbers are taken as the value after value of a list is.

TEXTS = st.sampled_from(["no", "yes", "é", "", "1"])
ODD: st.SearchStrategy[Any] = st.one_of(TEXTS, st.sampled_from([None, float("nan"), 1, True, b"no", "nul\0", "\ud800"]))


def learnt(labels: Any, more: Any) -> Any:
    """Classes and the codes of further labels, or the error."""
    X = np.zeros((len(labels), 1))
    try:
        model = FullyDynamicTreeClassifier(max_depth=0).fit(X, labels)
        codes = targets._codes_of(arguments.labels_of(more), model.classes_)
        return model.classes_.tolist(), model.classes_.dtype, codes.tolist(), codes.dtype, model.digest()
    except (RaydtError, ValueError, TypeError) as error:
        return type(error), str(error)


@given(
    labels=st.one_of(st.lists(TEXTS, min_size=1, max_size=12), st.lists(ODD, min_size=1, max_size=6)),
    more=st.lists(TEXTS, min_size=1, max_size=8),
    listed=st.booleans(),
)
def test_text_is_taken_as_values_one_after_another_are(labels: list[Any], more: list[str], listed: bool) -> None:
    def shaped(values: list[Any]) -> Any:
        array = np.empty(len(values), dtype=np.object_)
        array[:] = values
        return values if listed else array

    fast = learnt(shaped(labels), shaped(more))
    with pytest.MonkeyPatch.context() as patch:
        for module in (arguments, targets):
            patch.setattr(module, "text_column", lambda _: None)
        assert learnt(shaped(labels), shaped(more)) == fast


@given(
    ids=st.one_of(
        st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=5).map(lambda v: np.array(v, dtype=np.uint64)),
        st.lists(st.floats(width=16), min_size=1, max_size=5).map(lambda v: np.array(v, dtype=np.float16)),
        st.lists(st.integers(-(2**54), 2**54), min_size=1, max_size=5).map(lambda v: np.array(v, dtype=np.float64)),
        st.lists(st.integers(-(2**25), 2**25), min_size=1, max_size=5).map(lambda v: np.array(v, dtype=np.float32)),
        st.lists(st.floats(), min_size=1, max_size=3).map(np.array),
    )
)
def test_ids_in_arrays_are_judged_as_each_of_them(ids: Any) -> None:
    exact = 2 ** (np.finfo(ids.dtype).nmant + 1) if ids.dtype.kind == "f" else 2**63

    def sound(value: Any) -> bool:
        return (isinstance(value, int) and value < 2**63) or (
            isinstance(value, float) and value.is_integer() and abs(value) < exact
        )

    wrong = [row for row, value in enumerate(ids.tolist()) if not sound(value)]
    if wrong:
        with pytest.raises(RaydtError) as found:
            ids_of(ids)
        assert found.value.row == wrong[0]
    else:
        assert ids_of(ids).tolist() == [int(value) for value in ids.tolist()]


# -- times -----------------------------------------------------------------------------------------------------------
# Event times of every file kind, unit, zone and year: Python's datetime says what each is in microseconds.
#
# Drawn over the whole range of the calendar (years 1 to 9999), before and after what nanoseconds in 64 bits can hold.

EPOCH = datetime_times(1970, 1, 1)
#: Steps of each unit in a microsecond's thousandths, so that nothing is rounded here.
NANOSECONDS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
#: What 64 bits of nanoseconds hold.
NS_RANGE = datetime_times(1677, 9, 22), datetime_times(2262, 4, 11)
ZONES = [None, "UTC", "Europe/Paris", "Asia/Kathmandu", "-05:30"]
WHEN = st.datetimes() | st.sampled_from(
    [
        datetime_times.min,
        datetime_times.max,
        *NS_RANGE,
        datetime_times(9999, 12, 31),
        datetime_times(1600, 2, 29),
        EPOCH,
    ]
)
ROWS_TIMES = st.lists(st.tuples(WHEN, st.integers(0, 999)), min_size=1, max_size=8)


def micros(when: datetime_times) -> int:
    return (when - EPOCH) // timedelta(microseconds=1)


def table_of(times: pa.Array) -> pa.Table:
    return pa.table({"x": pa.array([float(i) for i in range(len(times))]), "y": ["a"] * len(times), "t": times})


def read(source: Any) -> list[int]:
    assert source.require_ts().kind == "timestamp"
    found = []
    for rows in source.rows():
        assert not rows.bad, [str(error) for error in rows.bad.values()]
        found += rows.ts.tolist()
    return found


@examples(200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ROWS_TIMES, st.sampled_from(list(NANOSECONDS)), st.sampled_from(ZONES), st.data())
def test_typed_times(
    tmp_path: Path, rows: list[tuple[datetime_times, int]], unit: str, zone: str | None, data: st.DataObject
) -> None:
    if unit == "ns":
        rows = [(min(max(when, NS_RANGE[0]), NS_RANGE[1]), more) for when, more in rows]
    kind = data.draw(st.sampled_from(["parquet", "int96", "1.0", "arrow", "stream", "date32", "date64"]))
    if kind == "1.0":  # has no nanoseconds: Arrow cuts them off when it writes, towards zero
        rows = [(when, 0) for when, _ in rows]
    exact = [micros(when) * 1000 + more for when, more in rows]
    column = pa.array([value // NANOSECONDS[unit] for value in exact], pa.int64()).cast(pa.timestamp(unit, zone))
    wanted = [value // NANOSECONDS[unit] * NANOSECONDS[unit] // 1000 for value in exact]
    if kind.startswith("date"):
        column = pa.array([when.date() for when, _ in rows], pa.date32()).cast(getattr(pa, kind)())
        wanted = [micros(datetime_times(when.year, when.month, when.day)) for when, _ in rows]
    table = table_of(column)
    if kind in ("arrow", "stream"):
        path = tmp_path / "t.arrow"
        with (pa.ipc.new_file if kind == "arrow" else pa.ipc.new_stream)(path, table.schema) as writer:
            writer.write_table(table)
        assert read(open_source(ArrowFiles(path=str(path), features=["x"], ts="t"))) == wanted
        return
    more: dict[str, Any] = {"version": "1.0"} if kind == "1.0" else {"store_schema": data.draw(st.booleans())}
    if kind == "1.0" and unit == "ns":
        more |= {"coerce_timestamps": "us", "allow_truncated_timestamps": True}
    if kind == "int96":
        more["use_deprecated_int96_timestamps"] = True
    pq.write_table(table, tmp_path / "t.parquet", **more)
    assert read(open_source(ParquetFiles(path=str(tmp_path / "t.parquet"), features=["x"], ts="t"))) == wanted


#: How a text writes a point in time: offset from UTC in minutes, or none, and how.
OFFSETS = st.sampled_from([None, "Z", "+00:00", "+02:00", "-0530", "+14"])


def offset_minutes(text: str | None) -> int:
    if text in (None, "Z"):
        return 0
    assert text is not None
    digits = text[1:].replace(":", "").ljust(4, "0")
    return (1 if text[0] == "+" else -1) * (60 * int(digits[:2]) + int(digits[2:]))


@examples(200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ROWS_TIMES, st.booleans(), st.data())
def test_times_as_text(
    tmp_path: Path, rows: list[tuple[datetime_times, int]], zoned: bool, data: st.DataObject
) -> None:
    """Of any fineness, whatever that of the first rows: a CSV file has no unit."""
    texts, wanted = [], []
    for when, more in rows:
        digits = data.draw(st.integers(0, 9))
        offset = data.draw(OFFSETS.filter(bool)) if zoned else None
        fraction = f"{when.microsecond:06}{more:03}"[:digits]
        text = f"{when:%m-%d}{data.draw(st.sampled_from(' T'))}{when:%H:%M:%S}"
        texts.append(f"{when.year:04}-{text}{'.' * bool(digits)}{fraction}{offset or ''}")
        seen = when.replace(microsecond=int(fraction.ljust(9, "0")[:6]))
        wanted.append(micros(seen) - offset_minutes(offset) * 60_000_000)
    lines = [f"{i},{text},a\n" for i, text in enumerate(texts)]
    (tmp_path / "t.csv").write_text("x,t,y\n" + "".join(lines), encoding="utf-8")
    assert read(open_source(CsvFiles(path=str(tmp_path / "t.csv"), ts="t"))) == wanted


@pytest.mark.parametrize("kind", ["int96", "us", "csv"])
def test_a_time_window_keeps_what_never_ends(kind: str, tmp_path: Path) -> None:
    """The year 9999, which stands for "no end" in many tables, is the latest time and not one of 1816."""
    times = [datetime_times(2024, 5, 1), datetime_times(2024, 5, 2), datetime_times(9999, 12, 31)]
    table = table_of(pa.array(times, pa.timestamp("us")))
    if kind == "csv":
        (tmp_path / "t.csv").write_text("x,t,y\n" + "".join(f"{i},{t},a\n" for i, t in enumerate(times)))
        source = open_source(CsvFiles(path=str(tmp_path / "t.csv"), ts="t"))
    else:
        pq.write_table(table, tmp_path / "t.parquet", use_deprecated_int96_timestamps=kind == "int96")
        source = open_source(ParquetFiles(path=str(tmp_path / "t.parquet"), features=["x"], ts="t"))
    (batch,) = TimeWindow(duration="2d").make(source).batches(10)
    assert batch.op.tolist() == [INSERT, INSERT, DELETE, DELETE, INSERT]


def test_the_largest_times_are_compared_exactly(tmp_path: Path) -> None:
    times = pa.array([LARGEST_TIME, -LARGEST_TIME], pa.int64())
    pq.write_table(table_of(times), tmp_path / "t.parquet")
    source = open_source(ParquetFiles(path=str(tmp_path / "t.parquet"), features=["x"], ts="t"))
    stream = TimeWindow(duration=5, lateness=4, on_error="skip").make(source)
    assert sum(len(batch) for batch in stream.batches(10)) == 1
    (late,) = stream.take_skipped()
    assert f"its time is {2 * LARGEST_TIME} before the latest" in text(late.reason)


# -- steps -----------------------------------------------------------------------------------------------------------
# The steps of a batch against their definition, in NumPy: an update that takes effect is one, an UPDATE two.


@given(st.lists(st.integers(0, 4), max_size=40), st.integers(0, 2**31), st.data())
def test_steps_are_those_of_the_definition(ops: list[int], start: int, data: st.DataObject) -> None:
    op, draw = np.array(ops, dtype=np.int8), np.random.default_rng(len(ops))
    m, carried = len(op), int(CARRIES_ROW[op].sum())
    batch = UpdateBatch(start, op, np.arange(m), np.zeros((carried, 1)), np.zeros(carried, np.int32), 2, np.arange(m))
    admitted = nothing_admitted(op)
    admitted.old[:], admitted.new[:] = draw.integers(-1, 9, m), draw.integers(-1, 9, m)
    admitted.fault[:] = draw.random(m) < 0.2
    begin = data.draw(st.integers(0, m))
    part = slice(begin, data.draw(st.integers(begin, m)))
    steps, position = steps_of(batch, part, admitted)

    times = np.where(admitted.fault[part] != 0, 0, np.where(op[part] == UPDATE, 2, 1))
    expected = np.repeat(np.arange(part.start, part.stop), times)
    of = op[expected]
    second = np.zeros(len(expected), dtype=bool)
    second[1:] = (of[1:] == UPDATE) & (expected[1:] == expected[:-1])
    first = (of == UPDATE) & ~second
    removes = (of == DELETE) | (of == DELETE_VALUE) | first
    assert_array_equal(position, expected)
    assert_array_equal(steps["kind"], np.where(removes, REMOVE, np.where(of == QUERY, LOOK, ADD)))
    assert_array_equal(steps["stamp"], 2 * (start + expected) + 1 - first)
    assert_array_equal(steps["slot"], np.where(removes, admitted.old[expected], admitted.new[expected]))
    assert_array_equal(steps["row"], admitted.row[expected])
    for name, value in (("prediction", -1), ("path", 0), ("level", NO_LEVEL)):
        assert (steps[name] == value).all()


# -- update replay ---------------------------------------------------------------------------------------------------
# An update of a state is what the same changes are elsewhere: further calls of an estimator, or of a run's stream.

LEARNER = {"alpha": 0.05, "beta": 0.05, "max_depth": 4}


@dataclass(frozen=True)
class Case:
    """A sequence of examples: the first ``begun`` make the state, then some are deleted and the others inserted."""

    seed: int
    begun: int
    gone: tuple[int, ...]
    replaced: tuple[int, ...]
    new: int
    text_ids: bool

    def table(self, places: list[int], ids: list[int]) -> pa.Table:
        rng = np.random.default_rng(self.seed)
        a, b = rng.integers(0, 9, 90) / 2.0, np.array(["red", "green", "blue", "grey"])[rng.integers(0, 4, 90)]
        y = ((a > 2) ^ (b == "red")).astype(int) + (rng.random(90) < 0.1)
        key: list[Any] = [f"id {i}" for i in ids] if self.text_ids else ids
        kind = pa.string() if self.text_ids else pa.int64()
        return pa.table({"key": pa.array(key, kind), "a": a[places], "b": b[places], "y": y[places]})

    @property
    def first(self) -> pa.Table:
        return self.table(list(range(self.begun)), list(range(self.begun)))

    @property
    def inserted(self) -> pa.Table:
        ids = [*self.replaced, *range(self.begun, self.begun + self.new)]
        return self.table(list(range(self.begun, self.begun + len(ids))), ids)

    @property
    def deleted(self) -> pa.Table:
        return self.table([0] * len(self.gone), list(self.gone)).select(["key"]).rename_columns(["id"])


@st.composite
def cases(draw: st.DrawFn) -> Case:
    begun = draw(st.integers(3, 40))
    gone = draw(st.lists(st.integers(0, begun - 1), unique=True, max_size=begun))
    replaced = draw(st.lists(st.sampled_from(gone), unique=True, max_size=5)) if gone else []
    new = draw(st.integers(0, 20))
    return Case(draw(st.integers(0, 99)), begun, tuple(gone), tuple(replaced), new, draw(st.booleans()))


def replay(folder: Path, name: str, rows: pa.Table) -> pipelines.RunResult:
    pq.write_table(rows, folder / f"{name}.parquet")
    config = {
        "source": {"kind": "parquet", "path": str(folder / f"{name}.parquet"), "id": "key", "op": "op"},
        "stream": {"model": "changelog"},
        "learner": {"kind": "fudyadt", **LEARNER},
        "cluster": {"backend": "in_process"},
        "output": {"report": False},
    }
    return pipelines.replay(config, folder / name)


def with_op(rows: pa.Table, op: str) -> pa.Table:
    return rows.append_column("op", pa.array([op] * rows.num_rows, pa.string()))


@examples(8)
@given(cases())
def test_an_update_is_the_rest_of_the_stream(case: Case) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        begun = with_op(case.first, "insert")
        gone = with_op(case.deleted.rename_columns(["key"]), "delete")
        changes = pa.concat_tables([begun, gone, with_op(case.inserted, "insert")], promote_options="default")
        run = replay(folder, "begun", begun)
        whole = replay(folder, "whole", changes.select(begun.column_names))
        pq.write_table(case.deleted, folder / "gone.parquet")
        pq.write_table(case.inserted, folder / "new.parquet")
        files = {"delete": folder / "gone.parquet" if case.gone else None, "insert": folder / "new.parquet"}
        receipt = update(run.path, out=folder / "second", **files)
        assert receipt.digest_before == run.digest
        assert receipt.digest_after == whole.digest
        again = load_model(folder / "second")
        assert again.digest() == whole.digest
        assert again.audit().ok
        assert (receipt.active, len(receipt.ids)) == (whole.summary["active"], len(case.gone))
        assert receipt.rebuilds == whole.summary["rebuilds"] - run.summary["rebuilds"]


@examples(25)
@given(cases())
def test_an_update_is_further_calls_of_the_estimator(case: Case) -> None:
    case = Case(case.seed, case.begun, case.gone, case.replaced, case.new, text_ids=False)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        first, new = case.first, case.inserted
        tree = FullyDynamicTreeClassifier(**LEARNER)
        tree.fit(first.select(["a", "b"]), first["y"].to_numpy(), ids=first["key"].to_numpy())
        tree.partial_fit(first.slice(0, 3).select(["a", "b"]), [0, 1, 2], ids=[1000, 1001, 1002])  # no class is new
        tree.save(folder / "state", with_examples=True)
        pq.write_table(case.deleted, folder / "gone.parquet")
        pq.write_table(new, folder / "new.parquet")
        told = update(
            folder / "state",
            delete=folder / "gone.parquet" if case.gone else None,
            insert=folder / "new.parquet",
            id_column="key",
            out=folder / "second",
        )
        receipt = tree.forget(np.array(case.gone, dtype=np.int64))
        for column, values in receipt.deletions.items():
            assert told.deletions[column].tolist() == values.tolist()
        if new.num_rows:
            tree.partial_fit(new.select(["a", "b"]), new["y"].to_numpy(), ids=new["key"].to_numpy())
        assert told.digest_after == tree.digest() == load_model(folder / "second").digest()
