"""Tables in Markdown, and sections of a document that are replaced between markers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Section:
    """The generated part of one section, and its pictures by file name."""

    name: str
    text: str
    pictures: dict[str, str] = field(default_factory=dict)


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a table; every column but the first is aligned to the right."""
    align = ["---", *["---:"] * (len(header) - 1)]
    return ["| " + " | ".join(cells) + " |" for cells in (header, align, *rows)]


def replace(document: str, section: Section) -> str:
    """``document`` with the text between the section's two markers replaced.

    Raises
    ------
    ValueError
        The document has no such pair of markers.
    """
    begin, end = f"<!-- {section.name}: generated -->", f"<!-- {section.name}: end -->"
    head, found, rest = document.partition(begin)
    _, found_end, tail = rest.partition(end)
    if not (found and found_end):
        raise ValueError(f"the document has no markers {begin} and {end}")
    return f"{head}{begin}\n{section.text}\n{end}{tail}"
