import math

import numpy as np
import pyarrow as pa
import pytest

from raydt.encoding.columns import Dictionary, column_kind, inexact, missing, numbers, parse
from raydt.errors import InputError


def test_numbers_and_text_are_told_apart():
    kinds = {
        "number": [pa.int8(), pa.uint64(), pa.float16(), pa.float32(), pa.float64(), pa.bool_()],
        "text": [
            pa.string(),
            pa.large_string(),
            pa.string_view(),
            pa.dictionary(pa.int8(), pa.string()),
            pa.dictionary(pa.int32(), pa.int64()),
        ],
    }
    for kind, types in kinds.items():
        assert [column_kind(pa.field("c", t)) for t in types] == [kind] * len(types)


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(pa.int32()),
        pa.struct([("a", pa.int32())]),
        pa.map_(pa.string(), pa.int32()),
        pa.binary(),
        pa.decimal128(10, 2),
        pa.timestamp("s"),
        pa.date32(),
        pa.duration("s"),
        pa.null(),
        pa.dictionary(pa.int8(), pa.binary()),
        pa.run_end_encoded(pa.int32(), pa.int64()),
        pa.uuid(),
        pa.json_(),
    ],
    ids=str,
)
def test_other_types_are_refused_by_name(kind):
    with pytest.raises(InputError, match=r"file\.x.*'c'.*which raydt cannot use.*source\.features") as error:
        column_kind(pa.field("c", kind), "file.x")
    assert error.value.column == "c"


def test_unregistered_extension_types_are_refused():
    field = pa.field("c", pa.int64(), metadata={"ARROW:extension:name": "evil.pickle"})
    with pytest.raises(InputError, match=r"evil\.pickle"):
        column_kind(field)


def test_numbers_turn_null_into_nan():
    assert numbers(pa.array([1, None, 3], pa.int32())).tolist()[::2] == [1.0, 3.0]
    assert math.isnan(numbers(pa.array([1, None], pa.int32()))[1])
    assert numbers(pa.array([True, False])).tolist() == [1.0, 0.0]
    assert numbers(pa.array([1.5, 0.25], pa.float16())).tolist() == [1.5, 0.25]
    assert numbers(pa.array([5, 7, 5]).dictionary_encode()).tolist() == [5.0, 7.0, 5.0]


def test_integers_beyond_the_exact_range_are_found():
    assert inexact(pa.array([2**53, -(2**53), None])) is None
    assert inexact(pa.array([2**31 - 1], pa.int32())) is None
    found = inexact(pa.array([2**53 + 1, 0, None, -(2**53) - 1]))
    assert found.tolist() == [True, False, False, True]
    assert inexact(pa.array([2**64 - 1, 3], pa.uint64())).tolist() == [True, False]


def test_missing_sees_nulls_wherever_arrow_hides_them():
    assert missing(pa.array(["a", "b"])) is None
    assert missing(pa.array(["a", None])).tolist() == [False, True]
    assert missing(pa.array([1.0, math.nan, math.inf, None])).tolist() == [False, True, True, True]
    in_dictionary = pa.DictionaryArray.from_arrays(pa.array([1, 0, None], pa.int8()), pa.array(["a", None]))
    assert missing(in_dictionary).tolist() == [True, False, True]
    unused_null = pa.DictionaryArray.from_arrays(pa.array([0, 0], pa.int8()), pa.array(["a", None]))
    assert missing(unused_null) is None


def test_parse_reads_what_it_can_and_marks_the_rest():
    values, wrong = parse(pa.array([" 1.5", "x", None, "2", "x", "1e3"]), pa.float64())
    assert values.to_pylist() == [1.5, None, None, 2.0, None, 1000.0]
    assert wrong.tolist() == [False, True, False, False, True, False]
    values, wrong = parse(pa.array(["7 ", None]), pa.int64())
    assert values.to_pylist() == [7, None]
    assert wrong is None


def codes(dictionary, values, row=0, keep=None, kind=None):
    column = values if isinstance(values, pa.Array) else pa.array(values, kind)
    return dictionary.encode(column, row, keep).tolist()


def test_codes_follow_first_appearance():
    d = Dictionary()
    assert codes(d, ["b", "a", None, "b"]) == [0, 1, -1, 0]
    assert codes(d, ["c", "a"], row=4) == [2, 1]
    assert d.values == ["b", "a", "c"]
    assert len(d) == 3


def test_codes_in_the_file_do_not_matter():
    indices, values = pa.array([2, 0, None, 2, 3], pa.int8()), pa.array(["a", "unused", "c", None])
    d = Dictionary()
    assert codes(d, pa.DictionaryArray.from_arrays(indices, values)) == [0, 1, -1, 0, -1]
    assert d.values == ["c", "a"]


def test_equal_numbers_are_one_value():
    d = Dictionary()
    assert codes(d, [1, 2]) == [0, 1]
    assert codes(d, [2.0, -0.0, 0.0, 1.0]) == [1, 2, 2, 0]
    assert codes(d, [True, False]) == [0, 2]


def test_values_passed_over_get_no_code():
    d = Dictionary()
    keep = np.array([False, True, True, False])
    assert codes(d, ["x", "b", "a", "b"], keep=keep) == [-1, 0, 1, -1]
    assert d.values == ["b", "a"]
    coded = pa.array(["y", "a", "z", "z"]).dictionary_encode()
    assert codes(d, coded, keep=keep) == [-1, 1, 2, -1]


def test_a_dictionary_can_be_cut_at_any_row():
    d = Dictionary()
    codes(d, ["b", "b", "a"], row=10)
    codes(d, ["a", "c"], row=13)
    assert [d.known(row) for row in (0, 10, 11, 12, 13, 14, 15)] == [0, 0, 1, 1, 2, 2, 3]
    assert d.known() == 3
    assert d.code("c") == 2
    assert d.code("c", 14) == -1
    assert d.code("c", 15) == 2
    assert d.code("nobody") == -1


def test_values_are_found_without_adding_any():
    d = Dictionary(["b", "a"])
    assert d.find(pa.array(["c", "a", None, "b", "c"])).tolist() == [-1, 1, -1, 0, -1]
    assert d.find(pa.array(["a", "z"]).dictionary_encode()).tolist() == [1, -1]
    assert d.find(pa.array([], pa.string())).tolist() == []
    assert d.values == ["b", "a"]


def test_values_that_are_cut_off_are_forgotten():
    d = Dictionary()
    codes(d, ["b", "a", "c"], row=10)
    d.cut(1)
    assert (d.values, d.known(), d.code("a")) == (["b"], 1, -1)
    assert codes(d, ["c", "a"], row=20) == [1, 2]
    assert (d.known(20), d.known(21)) == (1, 2)


def test_a_restored_dictionary_goes_on():
    d = Dictionary(["b", "a"])
    assert codes(d, ["c", "a", "b"], row=100) == [2, 1, 0]
    assert d.known(0) == 2
    assert d.known(101) == 3


def test_codes_are_writable():
    assert Dictionary().encode(pa.array(["a", "b"]), 0).flags.writeable
