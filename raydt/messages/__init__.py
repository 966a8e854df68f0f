"""Every sentence of errors, warnings, progress and verdicts, by id.

One file holds the sentences of one topic, so that they are read as a whole: ``streams.late_row`` is the line
``late_row`` of ``raydt/messages/streams.txt``. A sentence is a problem with the names of its parameters, or a pair of
a problem and its remedy. A message keeps its id and its parameters, which a program and a test read in place of the
words.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from raydt.redaction import text

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

    A value of the data is marked (:func:`raydt.redaction.quoted`).
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
