"""Values of the data in messages: marked where a message is made, shown or withheld where it is given out.

The value stands between marks with a stand-in beside it, and :func:`text` takes one of the two: errors show values
unless the run has redacted them (``output.quote_values: false``), its files as it allows. The marks are noncharacters,
which ``repr`` escapes, so that no value forges one. Names of files, rows' numbers, and features and classes that a
config or model names are no values; what a file calls its columns is one: without a row of names they are the first
row.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

#: What stands in the place of a value.
WITHHELD = "(a value)"

_BEGIN, _ELSE, _END = _MARKS = "\ufdd0\ufdd1\ufdd2"
_VALUE = re.compile(f"{_BEGIN}(.*?){_ELSE}(.*?){_END}", re.DOTALL)
_WITHOUT_MARKS = str.maketrans("", "", _MARKS)


def text(message: str, quote: bool = True) -> str:
    """Return a message with the values that are marked in it, or with what stands for them."""
    return _VALUE.sub(r"\1" if quote else r"\2", message)


def marked(value: str, instead: str = WITHHELD) -> str:
    """Return a text for a message, marked as a value; ``instead`` is shown where none is quoted."""
    return f"{_BEGIN}{text(value).translate(_WITHOUT_MARKS)}{_ELSE}{instead}{_END}"


def quoted(value: Any, most: int = 60) -> str:
    """Return text, bytes or a number for a message, marked, as Python writes it, and its beginning if it is long.

    ``...`` stands behind what is cut to ``most`` characters, so that no beginning is taken for a whole value.
    """
    if isinstance(value, str):
        return marked(repr(value[:most]) + "..." * (len(value) > most))
    shown = repr(value).removeprefix("b")
    return marked(shown if len(shown) <= most else shown[: most - 3] + "...")


def quoted_columns(names: Sequence[str]) -> str:
    """Return the first names of a file's columns for a message, marked; what stands for them is their number."""
    shown = [name[:60] + "..." * (len(name) > 60) for name in names[:30]] + ["..."] * (len(names) > 30)
    return marked(", ".join(shown), f"{len(names)}, with names that are not quoted") if names else "none at all"


def in_quotes(name: str) -> str:
    """Return a name as Python writes it; what is marked in it stays so."""
    return marked(repr(text(name)), repr(text(name, quote=False))) if _BEGIN in name else repr(name)
