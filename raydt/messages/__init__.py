"""Every sentence of errors, warnings, progress and verdicts, by id; values of the data in it are marked.

One file holds the sentences of one topic, so that they are read as a whole: ``streams.late_row`` is the line
``late_row`` of ``raydt/messages/streams.txt``. A sentence is a problem with the names of its parameters, or a pair of
a problem and its remedy. A message keeps its id and its parameters, which a program and a test read in place of the
words.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

# Values of the data in messages: marked where a message is made, shown or withheld where it is given out.
#
# The value stands between marks with a stand-in beside it, and :func:`text` takes one of the two: errors show values
# unless the run has redacted them (``output.quote_values: false``), its files as it allows. The marks are
# noncharacters, which ``repr`` escapes, so that no value forges one. Names of files, rows' numbers, and features and
# classes that a config or model names are no values; what a file calls its columns is one: without a row of names they
# are the first row.

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


Sentence = str | tuple[str, str]

#: What the remedy of a bad row ends with.
OR_SKIP = ", or set stream.on_error: skip"


class Message(str):
    """A sentence that is filled in: the problem without a trailing full stop, and its remedy, which may be empty."""

    problem: str
    remedy: str
    id: str
    parameters: Mapping[str, Any]

    def __new__(
        cls, problem: str, remedy: str = "", id: str = "", parameters: Mapping[str, Any] | None = None
    ) -> Message:
        """Return the text ``problem. remedy`` with its parts."""
        message = super().__new__(cls, f"{problem}. {remedy}" if remedy else problem)
        message.problem, message.remedy, message.id, message.parameters = problem, remedy, id, parameters or {}
        return message

    def __getnewargs__(self) -> tuple[str, str, str, Mapping[str, Any]]:  # type: ignore[override]
        """Return the arguments, for copies in another process."""
        return self.problem, self.remedy, self.id, self.parameters

    def alone(self) -> Message:
        """Return the problem without its remedy."""
        return Message(self.problem, "", self.id, self.parameters)

    def shown(self, quote: bool) -> Message:
        """Return the message with the values of the data in it, unmarked, or with what stands for them."""
        shown = {name: text(one, quote) if isinstance(one, str) else one for name, one in self.parameters.items()}
        return Message(text(self.problem, quote), text(self.remedy, quote), self.id, shown)

    def at(self, place: str) -> Message:
        """Return the message after ``place``, where the problem was found."""
        return Message(f"{place}: {self.problem}", self.remedy, self.id, self.parameters)


@cache
def sentences(topic: str) -> dict[str, Sentence]:
    """Return the sentences of a topic, by name: a line ``name: problem || remedy`` of its file for each."""
    found: dict[str, Sentence] = {}
    for line in (Path(__file__).parent / f"{topic}.txt").read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            name, _, rest = line.replace("\\n", "\n").partition(": ")
            problem, remedy, told = rest.partition(" || ")
            found[name] = (problem, told) if remedy else problem
    return found


def message(id: str, /, **parameters: Any) -> Message:
    """Fill in the sentence ``topic.name`` of the catalogue; ``KeyError`` without such a sentence or a parameter of it.

    A value of the data is marked (:func:`raydt.messages.quoted`).
    """
    topic, name = id.split(".")
    sentence = sentences(topic)[name]
    problem, remedy = (sentence, "") if isinstance(sentence, str) else sentence
    return Message(problem.format(**parameters), remedy.format(**parameters), id, parameters)


def message_of(error: BaseException) -> Message | None:
    """Return the message of an error (of pydantic's, of its first problem); None if not of the catalogue."""
    problems = getattr(error, "errors", None)
    if callable(problems):
        error = next((each["ctx"]["error"] for each in problems() if "error" in each.get("ctx", {})), error)
    return next((line for line in error.args if isinstance(line, Message)), getattr(error, "message", None))


# Text from data, file names or libraries, made safe to print and to show on a page.

#: Characters of an error's longest word, such as a path, and of its longest line.
LONGEST_WORD, LONGEST_LINE = 1000, 4000
_WORD = re.compile(r"\S+")


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
