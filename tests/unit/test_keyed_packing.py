"""What is packed comes back, and what no packing has made is refused as damage of the folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from raydt.errors import ModelFileError
from raydt.keyed.groups import group_of
from raydt.keyed.packing import keys_of, packed, unpacked

VALUES: dict[Any, dict[str, Any]] = {
    "a": {"x": np.arange(6.0).reshape(2, 3), "below": {"y": np.arange(3)}, "words": ["b", None]},
    "c": {"x": np.zeros((0, 3)), "below": {}, "words": []},
}
X, Y = "x#f8#2", "below/y#i8#1"


def text(change: Callable[[Any], Any]) -> Callable[[dict[str, Any]], None]:
    """A change of the JSON values."""

    def changed(arrays: dict[str, Any]) -> None:
        value = change(json.loads(bytes(arrays["json"])))
        arrays["json"] = np.frombuffer((value if isinstance(value, str) else json.dumps(value)).encode(), np.uint8)

    return changed


def put(**values: Any) -> Callable[[dict[str, Any]], None]:
    return lambda arrays: arrays.update(values)


DAMAGE: dict[str, Callable[[dict[str, Any]], Any]] = {
    "a key twice": text(lambda rest: [rest[0], rest[0]]),
    "keys in another order": text(lambda rest: rest[::-1]),
    "a key less": text(lambda rest: rest[1:]),
    "keys of two kinds": text(lambda rest: [[7, rest[0][1]], rest[1]]),
    "a truth value for a key": text(lambda rest: [[True, rest[0][1]], rest[1]]),
    "a list for a key": text(lambda rest: [[["a"], rest[0][1]], rest[1]]),
    "no values": text(lambda rest: [["a", None], rest[1]]),
    "no keys": text(lambda rest: {}),
    "a number": text(lambda rest: 3),
    "NaN": text(lambda rest: '[["a", {"z": NaN}], ["c", {}]]'),
    "deep": text(lambda rest: "[" * 100_000),
    "a value where an array belongs": text(lambda rest: [["a", {**rest[0][1], "x": 1}], rest[1]]),
    "a value above an array": text(lambda rest: [["a", {**rest[0][1], "below": 1}], rest[1]]),
    "text of another type": lambda arrays: arrays.update(json=arrays["json"].astype(np.int8)),
    "no text": lambda arrays: arrays.pop("json"),
    "no places": lambda arrays: arrays.pop(f"{X}#key"),
    "no shapes": lambda arrays: arrays.pop(f"{X}#shape"),
    "no array": lambda arrays: arrays.pop(X),
    "a stranger": put(z=np.zeros(3)),
    "a negative place": put(**{f"{X}#key": np.array([-1, 1])}),
    "a place beyond": put(**{f"{X}#key": np.array([0, 2])}),
    "one place twice": put(**{f"{X}#key": np.array([0, 0])}),
    "a place less": put(**{f"{X}#key": np.array([0])}),
    "places of floats": put(**{f"{X}#key": np.array([0.0, 1.0])}),
    "a place alone": put(**{f"{X}#key": np.array(0)}),
    "a negative shape": put(**{f"{X}#shape": np.array([[-2, -3], [0, 3]])}),
    "a huge shape": put(**{f"{X}#shape": np.array([[2**62, 2**62], [0, 3]])}),
    "a shape too many": put(**{f"{X}#shape": np.array([[2, 3], [1, 0], [0, 3]])}),
    "a shape of one dimension": put(**{f"{X}#shape": np.array([[6], [0]])}),
    "a value less": put(**{X: np.arange(5.0)}),
    "a value more": put(**{X: np.arange(7.0)}),
    "values of another type": put(**{X: np.arange(6, dtype=np.float32)}),
    "values of two dimensions": put(**{X: np.arange(6.0).reshape(2, 3)}),
    "one array by two names": lambda arrays: arrays.update(
        {f"below/y#f8#1{part}": arrays[f"{Y}{part}"] for part in ("#key", "#shape")}, **{"below/y#f8#1": np.arange(3.0)}
    ),
}


def test_what_is_packed_comes_back() -> None:
    found = unpacked(packed(VALUES))
    assert {key: repr(sorted(value.items())) for key, value in found.items()} == {
        key: repr(sorted(value.items())) for key, value in VALUES.items()
    }


@pytest.mark.parametrize("name", DAMAGE)
def test_what_cannot_be_is_refused(name: str) -> None:
    arrays = packed(VALUES)
    DAMAGE[name](arrays)
    with pytest.raises(ModelFileError, match="do not fit together"):
        keys_of(arrays, group_of("a"), "folder")


def test_a_key_of_another_group_is_refused() -> None:
    arrays = packed({"a": VALUES["a"]})
    assert list(keys_of(arrays, group_of("a"), "folder")) == ["a"]
    with pytest.raises(ModelFileError, match="another group"):
        keys_of(arrays, group_of("a") ^ 1, "folder")
