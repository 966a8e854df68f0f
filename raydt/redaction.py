"""Whether messages quote values of the data: one switch for errors, logs and the table of rows that were passed over.

Messages are made where a value is found to be wrong, which knows nothing of the run that reads it, and in the threads
that read ahead. So the switch belongs to the process: while any run in it says ``output.quote_values: false``, no
message quotes. Names of files, of columns and features that a config or model names, numbers of rows, and names of
classes in reports are no quotes. What a file calls its columns is: without a row of names they are values.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from raydt.errors import STORAGE_REMEDIES, RaydtError

#: What stands in the place of a value.
WITHHELD = "(a value)"

_LOCK = threading.Lock()
_forbidding = 0


def quotes() -> bool:
    """Whether messages may quote values."""
    return _forbidding == 0


def quoted(value: Any, most: int = 60) -> str:
    """A value for a message, as Python writes it and cut to what fits into a line; where none is quoted, a stand-in.

    Parameters
    ----------
    value : object
        Text, bytes or number.
    most : int
        Characters of a text that are shown.
    """
    if not quotes():
        return WITHHELD
    if isinstance(value, str):
        return repr(value[:most])
    text = repr(value)
    return text if len(text) <= most else text[: most - 3] + "..."


def quoted_column(name: str) -> str:
    """What a file calls a column, before it is known to have a row of names; where none is quoted, a stand-in."""
    return name if quotes() else WITHHELD


def quoted_columns(names: Sequence[str]) -> str:
    """The first names of a file's columns for a message; where no value is quoted, only how many there are."""
    if not quotes():
        return f"{len(names)}, with names that are not quoted"
    return ", ".join(name[:60] for name in names[:30]) + (", ..." if len(names) > 30 else "")


def said(error: BaseException) -> str:
    """What an error says, for a message. Unexpected ones come from other packages, which may quote values in them.

    Parameters
    ----------
    error : BaseException
        Its own words, if it has any, where values are quoted or they are ours; else the name of its class.
    """
    name = type(error).__name__
    return (str(error) or name) if quotes() or isinstance(error, RaydtError) else name


@contextmanager
def quoting(allowed: bool) -> Iterator[None]:
    """While the block runs, messages quote values only if ``allowed``."""
    global _forbidding
    with _LOCK:
        _forbidding += not allowed
    try:
        yield
    finally:
        with _LOCK:
            _forbidding -= not allowed


@contextmanager
def discreet(advice: str, *passing: type[BaseException]) -> Iterator[None]:
    """Where no value is quoted, an unexpected error leaves the block as one of ours, without what it says.

    Parameters
    ----------
    advice : str
        Where more about such an error is found.
    *passing : type
        Further errors that have no values in them.
    """
    try:
        yield
    except Exception as error:
        of_the_machine = isinstance(error, MemoryError) or getattr(error, "errno", None) in STORAGE_REMEDIES
        if quotes() or of_the_machine or isinstance(error, (RaydtError, *passing)):  # which have no values in them
            raise
        raise RaydtError(f"unexpected {type(error).__name__}; {advice}") from None
