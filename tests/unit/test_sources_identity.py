"""In what two descriptions of data differ, in words."""

import pytest

from raydt.sources.identity import differences


@pytest.mark.parametrize(
    ("then", "now", "words"),
    [
        ({"seed": 7, "n": 5}, {"seed": 8, "n": 5}, ["seed: 7 then, 8 now"]),
        ({"limit": None}, {"limit": None, "permutation": 3}, ["permutation: not there then, 3 now"]),
        (
            {"schema": [["a", "double"], ["b", "string"]]},
            {"schema": [["b", "string"], ["a", "double"]]},
            ["the columns come in another order: a, b then, b, a now"],
        ),
        ({"schema": [["a", "double"]]}, {"schema": []}, ["column 'a' (double) is gone"]),
        ({"files": "?"}, {"files": []}, ["its description cannot be understood: another version of raydt wrote it"]),
    ],
)
def test_differences_are_named(then, now, words):
    assert differences(then, now) == words


def test_differences_of_files_are_named():
    a, b, c = ({"name": name, "rows": None, "bytes": 9, "sha256": name} for name in "abc")
    assert differences({"files": [a, b]}, {"files": [b, a]}) == ["the files come in another order: a, b then, b, a now"]
    assert differences({"files": [a, b]}, {"files": [a]}) == ["2 files then, 1 now", "b is gone"]
    assert differences({"files": [a]}, {"files": [a, c]}) == ["1 files then, 2 now", "c is new"]
    assert differences({"files": [a]}, {"files": [b]}) == ["a (now b): as long as it was, with other contents"]
    assert differences({"files": [a]}, {"files": [{**a, "name": "renamed"}]}) == []
