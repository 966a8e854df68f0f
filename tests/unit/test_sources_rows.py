"""What becomes of columns and rows: parts, bad rows, ids, operations, labels; and which options are refused."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import TypeAdapter

from raydt.errors import InputError
from raydt.examples.updates import DELETE, INSERT, QUERY, UPDATE
from raydt.sources.divided import open_source
from raydt.sources.options import CsvFiles, ParquetFiles, SourceOptions
from tests.refusals import refusal, refused

OPTIONS = TypeAdapter(SourceOptions)


def parquet(tmp_path, columns, **options):
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    return open_source(ParquetFiles(path="t.parquet", **options), tmp_path)


def csv(tmp_path, text, **options):
    (tmp_path / "t.csv").write_text(text)
    return open_source(CsvFiles(path="t.csv", **options), tmp_path)


def one(source):
    (rows,) = source.rows()
    return rows


def test_parts_of_columns(tmp_path):
    columns = {"y": [0, 1], "when": [5, 6], "key": [70, 60], "b": [True, False], "n": [1, 2], "s": ["u", "v"]}
    source = parquet(tmp_path, columns, id="key", ts="when", categorical=["n"])
    rows = one(source)
    assert source.features.names == ("b", "n", "s")
    assert source.features.categorical == (False, True, True)
    assert rows.X.tolist() == [[1.0, 0.0, 0.0], [0.0, 1.0, 1.0]]
    assert rows.id.tolist() == [70, 60]
    assert rows.y.tolist() == [0, 1]
    assert source.id_kind == "integer"


def test_an_index_that_pandas_wrote_is_no_feature(tmp_path):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"a": [1.0, 2.0, 3.0], "y": [0, 1, 0]})
    frame.set_index(pd.Index([0, 7, 8])).to_parquet(tmp_path / "t.parquet", index=True)
    assert open_source(ParquetFiles(path="t.parquet"), tmp_path).features.names == ("a",)
    listed = open_source(ParquetFiles(path="t.parquet", features=["a", "__index_level_0__"]), tmp_path)
    assert one(listed).X.tolist() == [[1.0, 0.0], [2.0, 7.0], [3.0, 8.0]]


def test_features_are_taken_in_the_order_listed(tmp_path):
    source = parquet(tmp_path, {"a": [1], "b": [2], "c": [3], "y": [0]}, features=["c", "a"])
    assert one(source).X.tolist() == [[3.0, 1.0]]


def test_changelog(tmp_path):
    columns = {
        "op": ["c", "+I", "D", "u", "Query", "what", None, "insert"],
        "id": [1, 2, 1, 2, None, 3, 4, None],
        "a": [0.5, 1.5, None, 2.5, 3.5, 0.0, 0.0, 0.0],
        "s": ["k", "l", None, "m", "k", "z", "z", "z"],
        "y": ["p", "q", None, "p", None, "z", "z", "z"],
    }
    source = parquet(tmp_path, columns, op="op", id="id")
    rows = one(source)
    assert source.is_changelog
    assert rows.op[:5].tolist() == [INSERT, INSERT, DELETE, UPDATE, QUERY]
    assert rows.id[:4].tolist() == [1, 2, 1, 2]
    assert rows.y[:5].tolist() == [0, 1, -1, 0, -1]
    assert rows.X[[0, 1, 3, 4]].tolist() == [[0.5, 0], [1.5, 1], [2.5, 2], [3.5, 0]]
    assert {place: error.message.id for place, error in rows.bad.items()} == {
        5: "rows.unknown_operation",
        6: "rows.no_operation",
        7: "rows.no_id",
    }
    known = (
        "insert: insert, i, c, r, +I; delete: delete, d, -D; update: update, u, +U, update_after, update_postimage; "
        "query: query, q; delete_value: delete_value; ignore: -U, update_before, update_preimage, m"
    )
    assert rows.bad[5].message.parameters["operations"] == known
    assert source.classes == ["p", "q"]


def test_op_values_replace_the_defaults_of_that_operation(tmp_path):
    columns = {"op": [1, -1, 9], "id": [1, 1, 1], "a": [0, 0, 0], "y": [0, 0, 0]}
    options = OPTIONS.validate_python(
        {"kind": "parquet", "path": "t.parquet", "op": "op", "id": "id"}
        | {"op_values": {"insert": [1], "delete": ["-1"]}}
    )
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    rows = one(open_source(options, tmp_path))
    assert rows.op[:2].tolist() == [INSERT, DELETE]
    assert set(rows.bad) == {2}


@pytest.mark.parametrize("empty", ["", None])
@pytest.mark.parametrize(
    "op",
    [
        pa.array(["", None, "I", "D"]),
        pa.array([None, float("nan"), 2.0, 1.0]),
        pa.array([None, None, 2, 1]),
        pa.array([None, "", "2.0", " 1"]),
    ],
)
def test_op_values_say_what_an_empty_operation_and_numbers_mean(tmp_path, empty, op):
    """AWS DMS: rows of the first load have no operation, and pandas writes integers next to nothing as 1.0."""
    pq.write_table(pa.table({"op": op, "id": [1, 2, 3, 1], "a": [0] * 4, "y": [0] * 4}), tmp_path / "t.parquet")
    given = {"kind": "parquet", "path": "t.parquet", "op": "op", "id": "id"}
    options = OPTIONS.validate_python(given | {"op_values": {"insert": [empty, "I", 2], "delete": ["D", 1.0]}})
    assert one(open_source(options, tmp_path)).op.tolist() == [INSERT, INSERT, INSERT, DELETE]
    plain = OPTIONS.validate_python(given | {"op_values": {"insert": ["I", 2], "delete": ["D", 1]}})
    bad = one(open_source(plain, tmp_path)).bad
    assert {row: error.message.id for row, error in bad.items()} == dict.fromkeys([0, 1], "rows.no_operation")


def test_a_delete_needs_nothing_but_its_id(tmp_path):
    text = "op,id,a,y\ni,1,1.5,0\nd,1,,\nd,2,junk,\n"
    rows = one(csv(tmp_path, text, op="op", id="id"))
    assert not rows.bad


@pytest.mark.parametrize(
    ("positive", "classes", "y", "resolved"),
    [
        (None, ["b", "a", "c"], [0, 1, 2, 1], None),
        ("a", ["not a", "a"], [0, 1, 0, 1], ["a"]),
        ("majority", ["not a", "a"], [0, 1, 0, 1], ["a"]),
        ("minority", ["not b", "b"], [1, 0, 0, 0], ["b"]),
        (["b", "c"], ["a", "b|c"], [1, 0, 1, 0], ["b", "c"]),
    ],
)
def test_positive(tmp_path, positive, classes, y, resolved):
    source = parquet(tmp_path, {"x": [1, 2, 3, 4], "y": ["b", "a", "c", "a"]}, positive=positive)
    assert source.known_classes == (0 if positive is None else 2)
    rows = one(source)
    assert (source.classes, rows.y.tolist(), source.positive) == (classes, y, resolved)


def test_positive_is_resolved_within_the_limit_and_kept_by_the_state(tmp_path):
    columns = {"x": [1, 2, 3, 4, 5], "y": ["b", "a", "a", "b", "b"]}
    source = parquet(tmp_path, columns, positive="majority", limit=3)
    assert source.positive == ["a"]
    other = parquet(tmp_path, columns, positive="majority", limit=5)
    assert other.positive == ["b"]
    other.restore(source.state(0))
    assert other.positive == ["a"]
    assert one(other).y.tolist() == [0, 1, 1, 0, 0]


def test_rows_without_labels_can_be_read_for_prediction(tmp_path):
    source = parquet(tmp_path, {"a": [1, 2], "s": ["u", "v"]}, label=None)
    rows = one(source)
    assert not source.has_labels
    assert rows.y.tolist() == [-1, -1]
    assert not rows.bad


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"kind": "excel", "path": "x"}, ": union_tag_invalid"),
        ({"kind": "parquet", "path": "x", "permutation": 0.5}, "parquet.permutation: int_type"),
        (
            {"kind": "parquet", "path": "x", "op": "o", "id": "i", "permutation": 3},
            "parquet: sources.permuted_changes",
        ),
        ({"kind": "parquet", "path": "x", "delimiter": ";"}, "parquet.delimiter: extra_forbidden"),
        ({"kind": "parquet", "path": []}, "parquet: sources.no_path"),
        ({"kind": "parquet", "path": ["x", "x"]}, "parquet: sources.twice"),
        ({"kind": "parquet", "path": "x", "limit": "7"}, "parquet.limit: int_type"),
        ({"kind": "parquet", "path": "x", "op": "op"}, "parquet: sources.no_ids"),
        (
            {"kind": "parquet", "path": "x", "op_values": {"insert": ["z"]}},
            "parquet: sources.op_values",
        ),
        ({"kind": "parquet", "path": "x", "label": None, "positive": 1}, "parquet: sources.positive"),
        (
            {"kind": "parquet", "path": "x", "op": "o", "id": "i", "op_values": {"insert": ["D"]}},
            "parquet.op_values: sources.two_meanings",
        ),
        ({"kind": "synthetic", "generator": "randtree"}, "synthetic: union_tag_invalid"),
        ({"kind": "synthetic", "generator": "sea", "path": "x"}, "synthetic.sea.path: extra_forbidden"),
        ({"kind": "synthetic"}, "synthetic: union_tag_not_found"),
        ({"path": "x"}, ": union_tag_not_found"),
    ],
    ids=str,
)
def test_options_that_are_refused(options, problem):
    assert refusal(OPTIONS, options).startswith(problem)


def test_options_survive_a_round_trip():
    for options in (
        {"kind": "csv", "path": ["a", "b"], "positive": [1, "x", True], "delimiter": ";"},
        {"kind": "parquet", "path": "x", "op": "o", "id": "i", "op_values": {"insert": [1]}},
        {"kind": "synthetic", "generator": "hyperplane", "n": 10, "noise": 0},
    ):
        first = OPTIONS.validate_python(options)
        assert OPTIONS.validate_json(first.model_dump_json()) == first
    assert OPTIONS.json_schema()["discriminator"]["propertyName"] == "kind"


def test_csv_types_come_from_the_values(tmp_path):
    source = csv(tmp_path, "n,b,s,k,y\n1,true,p q,7,0\n2.5,false,r,8,1\n")
    assert source.features.categorical == (False, False, True, False)
    assert one(source).X.tolist() == [[1.0, 1.0, 0.0, 7.0], [2.5, 0.0, 1.0, 8.0]]
    assert source.classes == [0, 1]


def test_csv_categories_are_text(tmp_path):
    source = csv(tmp_path, "n,k,y\n1,7,0\n1,08,1\n1,A,0\n", categorical=["k"])
    assert one(source).X[:, 1].tolist() == [0.0, 1.0, 2.0]
    assert source.state()["categories"] == {"k": ["7", "08", "A"]}


def test_csv_that_starts_with_a_header_only_file(tmp_path):
    (tmp_path / "0.csv").write_text("s,a,y\n")
    (tmp_path / "1.csv").write_text("s,a,y\nu,1.5,0\n")
    source = open_source(CsvFiles(path="*.csv"), tmp_path)
    assert source.features.categorical == (True, False)
    assert sum(len(rows) for rows in source.rows()) == 1


def test_csv_dialect(tmp_path):
    text = '\ufeffa;s;y\n1;"x;\n2";0\n2;"say ""hi""";1\n'
    source = csv(tmp_path, text, delimiter=";")
    rows = one(source)
    assert rows.X.tolist() == [[1.0, 0.0], [2.0, 1.0]]
    assert source.state()["categories"] == {"s": ["x;\n2", 'say "hi"']}


def test_csv_line_breaks_inside_quotes(tmp_path):
    n = 30_000
    text = "s,a,y\n" + "".join(f'"{"line,break" * 14}\n{i}",{i},0\n' for i in range(n))  # longer than a block
    source = csv(tmp_path, text)
    assert not any(rows.bad for rows in source.rows())
    assert len(source.state()["categories"]["s"]) == n


@pytest.mark.parametrize("positive", [1, "majority"])
def test_positive_in_a_file_without_rows(tmp_path, positive):
    with refused("files.no_rows", InputError, file=str(tmp_path / "t.csv")):
        csv(tmp_path, "a,y\n", positive=positive)


@pytest.mark.data
def test_electricity(data_dir):
    options = {"kind": "parquet", "path": str(data_dir / "electricity.parquet"), "positive": "DOWN"}
    source = open_source(OPTIONS.validate_python(options))
    y = np.concatenate([rows.y for rows in source.rows()])
    assert (len(y), int(y.sum()), source.n_rows) == (45_312, 26_075, 45_312)
    assert source.classes == ["UP", "DOWN"]
