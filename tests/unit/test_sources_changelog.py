"""Change logs as other systems write them: operations by other names, rows that are no update, Debezium's envelope."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from raydt.encoding.labels import IGNORED
from raydt.errors import InputError
from raydt.examples.updates import DELETE, DELETE_VALUE, INSERT, QUERY, UPDATE
from raydt.sources.divided import open_source
from raydt.sources.options import ArrowFiles, ParquetFiles, SourceOptions
from raydt.streams.deletion_log import Changelog
from raydt.streams.options import make_stream
from tests.changelogs import ROW, SPELLINGS, enveloped, flat, spelled
from tests.refusals import refusal, refused

OPTIONS = TypeAdapter(SourceOptions)
ONE = {"id": 1, "a": 0.5, "s": "p", "y": "no"}
TWO = {"id": 2, "a": 1.5, "s": "q", "y": "yes"}


def write_arrow(table, path):
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table)


def source_of(tmp_path, table, kind=ParquetFiles, **options):
    """A source of ``table``, or of the table written last if None."""
    if table is not None:
        (pq.write_table if kind is ParquetFiles else write_arrow)(table, str(tmp_path / "t"))
    return open_source(kind(path="t", id="id", **({"op": "op"} | options)), tmp_path)


def one(source):
    (rows,) = source.rows()
    return rows


def stream_of(source, **options):
    return make_stream(Changelog(**options), source, ".")


def of(batch):
    """The updates of a batch: (operation, id, row of the source, features, label)."""
    carried = iter(zip(batch.X.tolist(), batch.y.tolist(), strict=True))
    for op, code, row in zip(batch.op.tolist(), batch.id.tolist(), batch.row.tolist(), strict=True):
        yield (op, code, row, *((None, None) if op == DELETE else next(carried)))


def updates(stream, size=3):
    found = []
    for batch in stream.batches(size):
        assert batch.start == len(found)
        found += of(batch)
    return found


@pytest.mark.parametrize(
    ("code", "values"),
    [
        (INSERT, ["insert", "INSERT", "i", "I", "c", "r", "+I"]),
        (DELETE, ["delete", "DELETE", "d", "D", "-D"]),
        (UPDATE, ["update", "UPDATE", "u", "+U", "UPDATE_AFTER", "update_postimage"]),
        (QUERY, ["query", "q"]),
        (DELETE_VALUE, ["delete_value"]),
        (IGNORED, ["-U", "UPDATE_BEFORE", "update_preimage", "m"]),
    ],
)
@pytest.mark.parametrize("dictionary", [False, True])
def test_spellings(tmp_path, code, values, dictionary):
    table = flat([(f" {value}", ONE) for value in values])
    if dictionary:
        table = table.set_column(0, "op", table["op"].dictionary_encode())
    rows = one(source_of(tmp_path, table))
    assert not rows.bad
    assert rows.op.tolist() == [code] * len(values)


LOG = flat(
    [
        ("-U", {"id": 9, "a": None, "s": "unseen", "y": "unseen"}),
        ("+I", ONE),
        ("m", None),
        ("-U", ONE),
        ("+U", ONE | {"a": 2.5, "s": "r"}),
        ("?", ONE),
        ("-U", None),
        ("-D", {"id": 1}),
        ("+I", TWO),
        ("m", None),
    ]
)
UPDATES = [
    (INSERT, 1, 1, [0.5, 0], 0),
    (UPDATE, 1, 4, [2.5, 1], 0),
    (DELETE, 1, 7, None, None),
    (INSERT, 2, 8, [1.5, 2], 1),
]


def test_ignored_rows_are_no_updates_and_neither_bad_nor_skipped(tmp_path):
    source = source_of(tmp_path, LOG)
    assert list(one(source).bad) == [5]
    assert source.classes == ["no", "yes"]  # no trace of the label that was only ignored
    assert source.state()["categories"] == {"s": ["p", "r", "q"]}
    stream = stream_of(source_of(tmp_path, LOG), on_error="skip")
    assert stream.length() >= len(UPDATES)
    assert updates(stream) == UPDATES
    assert [skipped.row for skipped in stream.take_skipped()] == [5]


def test_ignored_rows_do_not_count_in_the_warm_up(tmp_path):
    table = flat([("m", None), ("+I", ONE), ("-U", ONE), ("+I", TWO), ("+U", TWO)])
    for planned in (2, 3):
        stream = stream_of(source_of(tmp_path, table), warmup=planned)
        assert len(updates(stream)) == 3
        assert stream.warmup == 2


@pytest.mark.parametrize("op", ["-D", "+U"])
def test_a_warm_up_begins_with_an_insertion(tmp_path, op):
    """Whatever comes before is a bad row, and the warm-up goes on."""
    table = flat([(op, ONE), (op, TWO), ("+I", ONE), ("+I", TWO), ("-D", ONE)])
    with refused("streams.nothing_live", InputError, row=0, op={"-D": "delete", "+U": "update"}[op]):
        updates(stream_of(source_of(tmp_path, table), warmup=2))
    stream = stream_of(source_of(tmp_path, table), warmup=2, on_error="skip")
    assert [kind for kind, *_ in updates(stream)] == [INSERT, INSERT, DELETE]
    assert [skipped.row for skipped in stream.take_skipped()] == [0, 1]
    assert stream.warmup == 2


ENVELOPE = [
    ("r", None, ONE),
    ("c", None, TWO),
    ("u", None, ONE | {"a": 2.5, "s": "r"}),  # REPLICA IDENTITY DEFAULT: no row before
    ("m", None, None),
    ("u", ONE, ONE | {"a": 3.5}),
    ("d", {"id": 2}, None),
    (None, None, None),  # tombstone
    ("c", None, TWO | {"a": -0.0}),
]
OPENED = [
    (INSERT, 1, 0, [0.5, 0], 0),
    (INSERT, 2, 1, [1.5, 1], 1),
    (UPDATE, 1, 2, [2.5, 2], 0),
    (UPDATE, 1, 4, [3.5, 0], 0),
    (DELETE, 2, 5, None, None),
    (INSERT, 2, 7, [0.0, 1], 1),
]


@pytest.mark.parametrize("kind", [ParquetFiles, ArrowFiles])
@pytest.mark.parametrize("size", [1, 100])
def test_an_envelope(tmp_path, kind, size):
    source = source_of(tmp_path, enveloped(ENVELOPE), kind, envelope="debezium", ts="ts_ms", op=None)
    assert (source.features.names, source.features.categorical) == (("a", "s"), (False, True))
    stream = stream_of(source)
    assert updates(stream, size) == OPENED
    assert stream.take_skipped() == []


def test_parts_of_an_envelope_are_fields(tmp_path):
    table = enveloped(ENVELOPE)
    chosen = source_of(tmp_path, table, envelope="debezium", features=["s"], positive="yes")
    assert chosen.features.names == ("s",)
    assert [u[4] for u in updates(stream_of(chosen))] == [0, 1, 0, 0, None, 1]
    timed = source_of(tmp_path, table, envelope="debezium", ts="a")
    assert timed.features.names == ("s",)
    with refused("columns.misspelt", InputError, column="aa", near="'a'"):
        source_of(tmp_path, table, envelope="debezium", features=["aa"])
    with refused("columns.in_envelope", InputError, column="y"):
        source_of(tmp_path, table)


@pytest.mark.parametrize("kind", [ParquetFiles, ArrowFiles])
def test_times_of_an_envelope_are_a_field_or_a_column_beside_the_structs(tmp_path, kind):
    fields = pa.struct([*ROW, pa.field("at", pa.timestamp("us"))])
    table = enveloped([("c", None, ONE | {"at": 5}), ("d", ONE, None), ("c", None, TWO)], after=fields)
    for name, times in (("ts_ms", [0, 2]), ("at", [5, 0])):
        source = source_of(tmp_path, table, kind, envelope="debezium", ts=name, features=["a"])
        source.require_ts()
        rows = one(source)
        assert rows.ts[[0, 2]].tolist() == times
        assert [(error.row, error.column, error.message.id) for error in rows.bad.values()] == (
            [(2, "after.at", "rows.no_time")] * (name == "at")
        )


@pytest.mark.parametrize(
    ("row", "column", "code"),
    [
        (("c", None, None), "after", "no_after"),
        (("u", ONE, None), "after", "no_after"),
        (("d", None, None), "before", "no_before"),
        (("d", None, ONE), "before", "no_before"),
        (("d", {"a": 1.0}, None), "before.id", "no_key"),
        (("c", None, {"a": 1.0, "s": "p", "y": "no"}), "after.id", "no_id"),
        (("c", None, ONE | {"a": None}), "after.a", "no_value"),
        (("u", ONE, ONE | {"s": None}), "after.s", "no_category"),
        (("c", None, ONE | {"y": None}), "after.y", "no_label"),
        (("u", None, ONE | {"s": "__debezium_unavailable_value"}), "after.s", "unsent"),
        (("u", None, ONE | {"y": "__debezium_unavailable_value"}), "after.y", "unsent"),
        (("u", ONE, TWO), "after.id", "moved_id"),
        (("t", None, None), "op", "truncate"),
        ((None, None, ONE), "op", "no_operation"),
        ((None, ONE, None), "op", "no_operation"),
    ],
    ids=str,
)
def test_bad_rows_of_an_envelope(tmp_path, row, column, code):
    source = source_of(tmp_path, enveloped([("c", None, TWO), row]), envelope="debezium")
    rows = one(source)
    assert [(place, e.row, e.column, e.message.id.removeprefix("rows.")) for place, e in rows.bad.items()] == [
        (1, 1, column, code)
    ]
    assert source.state()["categories"] == {"s": ["q"]}  # the bad row left no trace
    assert source.classes == ["yes"]


def test_the_first_row_of_a_file_may_lack_the_types_of_one_side(tmp_path):
    empty = pa.null()
    inserts = enveloped([("c", None, ONE), ("c", None, TWO)], before=empty)
    deletes = enveloped([("d", ONE, None)], after=empty)
    for name, table in (("1", deletes), ("2", inserts), ("3", deletes), ("4", enveloped([("r", None, TWO)]))):
        pq.write_table(table, tmp_path / f"{name}.parquet")
    some = pa.struct([("id", pa.int64()), ("a", pa.float64()), ("s", pa.null()), ("y", pa.string())])
    pq.write_table(enveloped([("u", ONE, {"id": 1, "a": 1.0, "y": "no"})], after=some), tmp_path / "5.parquet")
    source = open_source(ParquetFiles(path="5.parquet", id="id", envelope="debezium"), tmp_path)
    assert source.features.categorical == (False, True)
    assert [error.column for error in one(source).bad.values()] == ["after.s"]
    (tmp_path / "5.parquet").unlink()
    source = open_source(ParquetFiles(path="*.parquet", id="id", envelope="debezium"), tmp_path)
    assert [(u[0], u[1]) for u in updates(stream_of(source))] == [
        (DELETE, 1),
        (INSERT, 1),
        (INSERT, 2),
        (DELETE, 1),
        (INSERT, 2),
    ]


@pytest.mark.parametrize(
    ("table", "said", "found"),
    [
        (flat([("c", ONE)]), "no_struct", {"column": "after", "columns": "op, id, a, s, y"}),
        (
            pa.table({"payload": [{"before": 1, "after": 2, "op": "c"}]}),
            "wrapped_struct",
            {"column": "after", "outer": "'payload'"},
        ),
        (
            pa.table({"before": ["{}"], "after": ["{}"], "op": ["c"]}),
            "not_struct",
            {"column": "after", "kind": "text"},
        ),
        (enveloped(ENVELOPE).drop_columns("op"), "unknown", {"column": "op", "option": "source.op"}),
        (
            enveloped(
                [("c", None, {"id": 1})], after=pa.struct([("id", pa.int64()), ("op", pa.int64()), ("y", pa.int64())])
            ),
            "repeated",
            {"column": "op"},
        ),
    ],
    ids=["flat", "wrapped", "json", "no op", "op twice"],
)
def test_what_is_no_envelope(tmp_path, table, said, found):
    with refused(f"columns.{said}", InputError, **found):
        source_of(tmp_path, table, envelope="debezium")


def test_options_of_an_envelope():
    options = OPTIONS.validate_python({"kind": "parquet", "path": "x", "id": "id", "envelope": "debezium"})
    assert options.op == "op"
    assert OPTIONS.validate_json(options.model_dump_json()) == options
    for wrong, problem in (
        ({"kind": "csv", "id": "id"}, "csv: sources.no_structs"),
        ({"kind": "parquet"}, "parquet: sources.no_ids"),
        ({"kind": "parquet", "id": "id", "envelope": "canal"}, "parquet.envelope: literal_error"),
    ):
        assert refusal(OPTIONS, {"path": "x", "envelope": "debezium"} | wrong) == problem


def test_the_placeholder_of_debezium_is_no_category(tmp_path):
    rows = [
        ("c", ONE),
        ("u", ONE | {"s": "__debezium_unavailable_value"}),
        ("-D", {"id": 1, "s": "__debezium_unavailable_value", "y": "no"}),
    ]
    for encode in (False, True):
        table = flat(rows)
        if encode:
            table = table.set_column(3, "s", table["s"].dictionary_encode())
        assert list(one(source_of(tmp_path, table)).bad) == [1]
    only_rows = open_source(ParquetFiles(path="t", features=["s"]), tmp_path)  # no change log: a text like any other
    assert not one(only_rows).bad


IDS = st.integers(0, 4)
CHANGES = st.lists(
    st.tuples(st.sampled_from("iud"), IDS, st.floats(-2, 2), st.sampled_from("pqr"), st.sampled_from(["no", "yes"])),
    min_size=1,
    max_size=20,
)


@given(changes=CHANGES, size=st.integers(1, 7))
def test_every_spelling_gives_the_same_batches(changes, size, tmp_path_factory):
    tmp_path = tmp_path_factory.mktemp("log")
    found = {}
    for spelling, options in SPELLINGS.items():
        stream = stream_of(source_of(tmp_path, spelled(changes, spelling), **options))
        found[spelling] = [
            (b.start, b.op.tolist(), b.id.tolist(), b.X.tolist(), b.y.tolist(), b.n_classes)
            for b in stream.batches(size)
        ]
        assert sum(len(batch[1]) for batch in found[spelling]) == len(changes)
    for spelling, batches in found.items():
        assert batches == found["plain"], spelling
