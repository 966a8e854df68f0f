"""Texts of JSON as rows: each text is one row, or one flaw, whatever stands before and after it."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raydt.encoding.labels import json_rows

SCHEMA = pa.schema([("id", pa.int64()), ("a", pa.float64()), ("y", pa.string())])
WRAPPED = pa.schema([("op", pa.string()), ("after", pa.struct(list(SCHEMA)))])

GOOD: dict[bytes, Any] = {
    b'{"id": 1, "a": 2, "y": "c"}': (1, 2.0, "c"),
    b'{"id": 7.0}': (7, None, None),
    b'{"y": "a\\u0000b", "more": [1]}': (None, None, "a\0b"),
    b' {"id": -9223372036854775808}': (-(2**63), None, None),
    b"{}": (None, None, None),
    b'{"id": 2, "more": ' + b"[" * 5000 + b"]" * 5000 + b"}": (2, None, None),
}
BAD = (
    b"",
    b"null",
    b"[1]",
    b'{"id": 1}{"id": 2}',
    b'{"more":',
    b'{"id": 3}}',
    b'{"more": "',
    b'{"id": 1.5}',
    b'{"id": 9007199254740993.0}',
    b'{"id": 1e30}',
    b'{"id": NaN}',
    b'{"id": 9223372036854775808}',
    b'{"id": true}',
    b'{"id": "1"}',
    b'{"a": 1' + b"0" * 400 + b', "id": 1.0}',
    b'{"y": "\xff"}',
    b'{"y": "\\ud800"}',
    b'{"y": 5}',
    b'{"more": ' + b"[" * 5000,
)


@given(st.lists(st.sampled_from([*GOOD, *BAD]), max_size=6))
def test_a_text_is_one_row_whatever_the_others_are(texts: list[bytes]) -> None:
    rows, flaws = json_rows(texts, SCHEMA)
    expected = [GOOD.get(text, (1, None, None) if b'"id": 1.0}' in text else (None,) * 3) for text in texts]
    assert [tuple(row.values()) for row in rows.to_pylist()] == expected
    assert sorted(flaws) == [place for place, text in enumerate(texts) if text in BAD]


@pytest.mark.parametrize("text", BAD, ids=lambda text: repr(text[:20]))
def test_a_bad_row_in_an_envelope_is_a_flaw(text: bytes) -> None:
    rows, flaws = json_rows([b'{"op": "c", "after": ' + text + b"}", b'{"op": "d"}'], WRAPPED)
    assert rows["op"].to_pylist()[1] == "d"
    assert (0 in flaws) == (text != b"null")


def test_numbers_that_are_no_json_are_taken_as_python_writes_them() -> None:
    rows, flaws = json_rows([b'{"a": NaN}', b'{"a": Infinity}'], SCHEMA)
    assert (math.isnan(rows["a"][0].as_py()), rows["a"][1].as_py(), flaws) == (True, math.inf, {})
