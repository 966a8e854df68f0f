import numpy as np
import pyarrow as pa

from raydt.encoding.columns import Dictionary, parse


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
    assert (d.values, d.known()) == (["b"], 1)
    assert codes(d, ["c", "a"], row=20) == [1, 2]
    assert (d.known(20), d.known(21)) == (1, 2)


def test_a_restored_dictionary_goes_on():
    d = Dictionary(["b", "a"])
    assert codes(d, ["c", "a", "b"], row=100) == [2, 1, 0]
    assert d.known(0) == 2
    assert d.known(101) == 3
