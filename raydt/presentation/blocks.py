"""What pages and terminals show, as plain data: text, facts, tables, charts and trees, in sections of articles.

Two renderers lay blocks out: :mod:`pipelines.report.document` (HTML) and :mod:`pipelines.terminal`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from raydt.presentation.charts import Box, Chart

#: Levels of a tree that are open at first.
OPEN_LEVELS = 3


class Best(str):
    """A cell that holds the best value of its row or column."""

    __slots__ = ()


class Name(str):
    """A cell that names something to type, such as the key of a config."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Text:
    """A paragraph; tone ``none`` gives the reason why something is absent."""

    text: str
    tone: Literal["plain", "quiet", "none", "notice", "notice bad", "verdict good", "verdict bad", "verdict plain"] = (
        "plain"
    )
    lead: str = ""  #: first words, in bold


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading within a section; ``key`` is its anchor."""

    key: str
    text: str


@dataclass(frozen=True, slots=True)
class Code:
    """Lines to copy: a command, a config."""

    text: str


@dataclass(frozen=True, slots=True)
class Items:
    """A list of sentences."""

    items: Sequence[str]


@dataclass(frozen=True, slots=True)
class Fact:
    """A value with its name."""

    name: str
    value: str
    remark: str = ""
    tone: Literal["", "good", "bad", "plain"] = ""
    share: float | None = None  #: share of a limit; above 1 the limit is exceeded


@dataclass(frozen=True, slots=True)
class Facts:
    """Names and values: key figures, verdicts, plain pairs, or digests."""

    facts: Sequence[Fact]
    kind: Literal["figures", "verdicts", "pairs", "digests"] = "pairs"


def pairs(rows: Iterable[tuple[str, str]]) -> Facts:
    """Return names and values as facts; a row without a value is left out."""
    return Facts([Fact(name, value) for name, value in rows if value])


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a table."""

    cells: Sequence[str]
    share: float | None = None  #: length of its bar
    tone: str = "learner"  #: colour of its bar


@dataclass(frozen=True, slots=True)
class Table:
    """Rows with a remark below them; a table without rows shows the remark only."""

    rows: Sequence[Row]
    remark: str = ""
    title: str = ""
    columns: Sequence[str] = ()
    words: Sequence[int] = (1,)  #: columns of words, counted from 1; the others hold numbers
    style: Literal["", "bars", "runs", "dense"] = ""  #: bars beside rows; a column per run; many columns
    bar: str = ""  #: heading of the bars
    tones: Sequence[str] = ()  #: a colour for each column after the first


@dataclass(frozen=True, slots=True)
class Note:
    """A learner's note on a node, in addition to its question and examples."""

    lines: tuple[str, ...] = ()  #: shown on a card unless it hides nodes: when the node was built, what decided it
    sentences: tuple[str, ...] = ()  #: the same in full
    margin: str = ""  #: how far the node is from its next change
    margin_tone: str = ""
    margin_share: float = 0.0


@dataclass(slots=True)
class Node:
    """One card of a tree."""

    name: str  #: feature of the question, or the label that the leaf predicts
    test: str  #: value the feature is compared with
    leaf: bool
    tone: str  #: of the predicted class; empty without examples
    answer: str  #: answer to the parent's question; empty at the root
    rows: int | None  #: live examples below, if the model counts them
    mix: list[tuple[str, float]]  #: tone and share of each class with examples, in class order
    counts: str  #: largest class and its share
    detail: str  #: everything in one sentence
    note: Note = Note()
    children: list[Node] = field(default_factory=list)  #: the ``yes`` side first
    hidden: int = 0  #: nodes below without a card

    def cards(self) -> int:
        """Count the nodes drawn from this one on."""
        return 1 + sum(child.cards() for child in self.children)


@dataclass(frozen=True, slots=True, eq=False)
class Icicle:
    """A tree at a glance: a row per depth, each node as wide as its share of the examples."""

    cells: list[tuple[str, int, Box]]  #: tone, strength (0 to 2: share of the majority class), and boxes
    rows: int
    thin: int  #: nodes left out as too thin or too deep to be seen


@dataclass(frozen=True, slots=True, eq=False)
class Tree:
    """One or several trees as cards."""

    label: str  #: description for screen readers
    roots: list[tuple[str, Node]]  #: title (empty of a single tree) and root of each
    about: str  #: how to read a card
    legend: list[tuple[str, str]] = field(default_factory=list)  #: names and tones of the labels
    remark: str = ""
    icicle: Icicle | None = None
    lines: int = 1  #: lines of the longest note
    margins: list[tuple[str, str]] = field(default_factory=list)  #: names and tones of the margins of a card


@dataclass(frozen=True, slots=True)
class Beside:
    """Tables side by side."""

    tables: Sequence[Table]


Block: TypeAlias = Text | Heading | Code | Items | Facts | Table | Chart | Tree | Beside


def has_content(block: Block) -> bool:
    """Return True if a block shows anything."""
    if isinstance(block, Table):
        return bool(block.rows or block.remark)
    if isinstance(block, Beside):
        return any(map(has_content, block.tables))
    return bool(getattr(block, _CONTENT.get(type(block), ""), True))


_CONTENT = {Text: "text", Code: "text", Items: "items", Facts: "facts"}


@dataclass(frozen=True, slots=True)
class Section:
    """Blocks under a title; ``key`` is its anchor."""

    title: str
    blocks: Sequence[Block]
    key: str = ""


@dataclass(frozen=True, slots=True)
class Article:
    """Everything about one run, one sweep, or several runs compared."""

    title: str
    what: str
    head: Sequence[Block]
    sections: Sequence[Section]
    prefix: str = ""  #: beginning of its anchors, which keeps several articles apart
    links: Sequence[tuple[str, str, str]] = ()  #: anchor, text and tone of links to other articles
