"""In what two descriptions of data differ, in words."""

import pytest

from raydt.sources.base import differences


def named(then, now):
    """Ids and parameters of the differences."""
    return [(said.id.removeprefix("sources."), *said.parameters.values()) for said in differences(then, now)]


@pytest.mark.parametrize(
    ("then", "now", "found"),
    [
        ({"seed": 7, "n": 5}, {"seed": 8, "n": 5}, ("differs", "seed", "7", "8")),
        ({"limit": None}, {"limit": None, "permutation": 3}, ("differs", "permutation", "not there", "3")),
        (
            {"schema": [["a", "double"], ["b", "string"]]},
            {"schema": [["b", "string"], ["a", "double"]]},
            ("other_order", "columns", "a, b", "b, a"),
        ),
        ({"schema": [["a", "double"]]}, {"schema": []}, ("gone", "column 'a' (double)")),
        ({"files": "?"}, {"files": []}, ("unknown_description",)),
    ],
)
def test_differences_are_named(then, now, found):
    assert named(then, now) == [found]


def test_differences_of_files_are_named():
    a, b, c = ({"name": name, "rows": None, "bytes": 9, "sha256": name} for name in "abc")
    assert named({"files": [a, b]}, {"files": [b, a]}) == [("other_order", "files", "a, b", "b, a")]
    assert named({"files": [a, b]}, {"files": [a]}) == [("other_files", 2, 1), ("gone", "b")]
    assert named({"files": [a]}, {"files": [a, c]}) == [("other_files", 1, 2), ("new", "c")]
    assert named({"files": [a]}, {"files": [b]}) == [("other_contents", "a (now b)")]
    assert named({"files": [a]}, {"files": [{**a, "name": "renamed"}]}) == []
