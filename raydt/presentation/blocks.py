"""Parts of a description: text, tables, charts and trees as plain data, which report and terminal lay out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from raydt.presentation.charts import Box, Chart

#: Levels of a tree that are open at first.
OPEN_LEVELS = 3


@dataclass(frozen=True, slots=True)
class Text:
    """A paragraph: plain, a quiet remark, or why there is ``none`` of what would be here."""

    text: str
    tone: Literal["plain", "quiet", "none"] = "plain"


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading within a section; ``key`` is its anchor."""

    key: str
    text: str


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a table: cells as text, and the share that its bar shows, if it has one."""

    cells: tuple[str, ...]
    share: float | None = None
    tone: str = "learner"


@dataclass(frozen=True, slots=True)
class Table:
    """Rows with a remark below them; both may be empty.

    Attributes
    ----------
    rows : list of Row
    remark : str
    title : str
    columns : sequence of str
        A name for each cell of a row.
    words : sequence of int
        Columns of words, counted from 1; the others hold numbers.
    bars : bool
        Whether rows have bars; ``bar`` is what they show, where that is not said elsewhere.
    """

    rows: list[Row]
    remark: str = ""
    title: str = ""
    columns: Sequence[str] = ()
    words: Sequence[int] = (1,)
    bars: bool = False
    bar: str = ""


@dataclass(frozen=True, slots=True)
class Note:
    """A learner's note on a node, in addition to its question and examples.

    Attributes
    ----------
    lines : tuple of str
        When it was built and what decided it, line by line; not shown of a node that hides others.
    sentences : tuple of str
        The same in full.
    margin, margin_tone : str
        How far it is from its next change, in words, and their tone. Empty without such a margin.
    margin_share : float
    """

    lines: tuple[str, ...] = ()
    sentences: tuple[str, ...] = ()
    margin: str = ""
    margin_tone: str = ""
    margin_share: float = 0.0


@dataclass(slots=True)
class Node:
    """One card of a tree.

    Attributes
    ----------
    name, test : str
        The question asked here: the feature, and what it is compared with; or the label that the leaf predicts.
    leaf : bool
    tone : str
        Of the class the node predicts; empty without examples.
    answer : str
        The answer to the parent's question that leads here, empty at the root.
    rows : int or None
        Live examples below, if the model says.
    mix : list of (str, float)
        Tone and share of the classes that have a row, in class order; classes of one tone are one part.
    counts : str
        The largest class and its share; without rows all there is to say.
    detail : str
        Everything in one sentence: question, counts of classes, and the sentences of the note.
    note : Note
    children : list of Node
        The ``yes`` side first; empty at a leaf and where the page stops.
    hidden : int
        Nodes below that have no card.
    """

    name: str
    test: str
    leaf: bool
    tone: str
    answer: str
    rows: int | None
    mix: list[tuple[str, float]]
    counts: str
    detail: str
    note: Note = Note()
    children: list[Node] = field(default_factory=list)
    hidden: int = 0

    def cards(self) -> int:
        """How many nodes are drawn from here on."""
        return 1 + sum(child.cards() for child in self.children)


@dataclass(frozen=True, slots=True, eq=False)
class Icicle:
    """A tree at a glance.

    Attributes
    ----------
    cells : list of (str, int, Box)
        Tone, strength (0 to 2: how much of a node its majority class is), and the nodes that have them.
    rows : int
        Levels.
    thin : int
        Nodes that are too thin to be seen, or too deep, and are left out.
    """

    cells: list[tuple[str, int, Box]]
    rows: int
    thin: int


@dataclass(frozen=True, slots=True, eq=False)
class Tree:
    """One or several trees as cards.

    Attributes
    ----------
    label : str
        What is shown, for those who do not see it.
    roots : list of (str, Node)
        What each tree is about, empty of a single one, and its root.
    about : str
        What a card says.
    legend : list of (str, str)
        Names and tones of the labels.
    remark : str
        What is left out.
    icicle : Icicle or None
    lines : int
        Lines of the longest note.
    margins : list of (str, str)
        Names and tones of the margins at the lower edge of a card.
    """

    label: str
    roots: list[tuple[str, Node]]
    about: str
    legend: list[tuple[str, str]] = field(default_factory=list)
    remark: str = ""
    icicle: Icicle | None = None
    lines: int = 1
    margins: list[tuple[str, str]] = field(default_factory=list)


Block: TypeAlias = Text | Heading | Table | Chart | Tree


@dataclass(frozen=True, slots=True)
class Section:
    """Blocks under a title."""

    title: str
    blocks: list[Block]
