"""Text from data, file names or libraries, made safe to print and to show on a page."""

from __future__ import annotations

import logging
import re
import traceback
import unicodedata
from types import TracebackType

from raydt.errors import RaydtError

#: Characters of an error's longest word, such as a path, and of its longest line.
LONGEST_WORD, LONGEST_LINE = 1000, 4000
_WORD = re.compile(r"\S+")

#: What :meth:`logging.Formatter.formatException` is given.
_ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]


def escaped(text: str, keep: str = "") -> str:
    r"""Return text with control and format characters as Python escapes, such as ``\n``, but for those of ``keep``."""
    if text.isprintable():
        return text
    return "".join(c if _is_shown(c) or c in keep else c.encode("unicode_escape").decode() for c in text)


def _is_shown(character: str) -> bool:
    return character.isprintable() or unicodedata.category(character) == "Zs"  # spaces of all kinds


def shortened(text: str, most: int = 100) -> str:
    """Return a text of at most so many characters: the middle of a longer one is left out."""
    end = most // 3
    return text if len(text) <= most else f"{text[: most - end - 3]}...{text[-end:]}"


def one_line(text: str) -> str:
    """Return a message as one line for stderr; of a value that would fill pages, the beginning and the end."""
    return shortened(_WORD.sub(lambda word: shortened(word[0], LONGEST_WORD), escaped(text)), LONGEST_LINE)


def error_text(error: RaydtError) -> str:
    """Return the lines of an error for stderr."""
    return "\n".join(map(one_line, error.lines))


def frames(error: BaseException | None) -> str:
    """Return a traceback without what the errors say: those of other packages may quote values."""
    text = ""
    while error is not None:
        text = f"{''.join(traceback.format_tb(error.__traceback__))}{type(error).__name__}\n{text}"
        error = error.__cause__ or error.__context__
    return text


class TerminalFormatter(logging.Formatter):
    """Records for a terminal: each is one line, but for its traceback."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 (logging's name)
        """Return the line of a record."""
        return escaped(super().formatMessage(record))

    def formatException(self, ei: _ExcInfo) -> str:  # noqa: N802 (logging's name)
        """Return its traceback."""
        return escaped(super().formatException(ei), keep="\n")
