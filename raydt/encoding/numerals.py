"""Texts that look like numbers or times, of which each value would be a category of its own."""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.compute as pc

from raydt.encoding.times import kind_of_times
from raydt.messages import Message, message

NUMBER = r"^\s*[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?\s*$"
DECIMAL_COMMA = r"^\s*[-+]?[0-9]*,[0-9]+\s*$"
#: With groups of thousands, a currency or a percent sign.
_WRITTEN_OUT = r"^\s*[-+]?\p{Sc}?\s*[0-9]{1,3}(?:[,.' _]?[0-9]{3})*(?:[.,][0-9]+)?\s*[%\p{Sc}]?\s*$"
#: So many values are looked at.
_MOST = 1000


#: An integer as it is usually written: 007, -0 and +7 are texts.
_INTEGER = re.compile(r"0|-?[1-9][0-9]*", re.ASCII)


def integer_of(written: str) -> int | None:
    """Return the integer that a text writes as Python would, None if it writes none so."""
    return int(written) if _INTEGER.fullmatch(written) and len(written) < 400 else None


def share(texts: pa.Array, pattern: str) -> float:
    """Share of the texts that match a regular expression."""
    return (pc.sum(pc.match_substring_regex(texts, pattern)).as_py() or 0) / max(1, len(texts))


def doubt(values: pa.Array) -> Message | None:
    """Say, as the end of a sentence, what a column of text is more likely to hold; None where it holds names."""
    values = values[:_MOST]
    if share(values, f"{NUMBER}|{DECIMAL_COMMA}|{_WRITTEN_OUT}") > 0.5:
        return message("columns.like_numbers")
    return None if kind_of_times(values) is None else message("columns.like_times")
