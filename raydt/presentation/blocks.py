"""Contents of pages and terminals as plain data: text, facts, tables, charts and trees, in sections of articles.

Two renderers lay blocks out: :mod:`pipelines.report.page` (HTML) and :mod:`pipelines.display`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np

from raydt.arrays.elementary import AnyArray
from raydt.presentation.charts import (
    Chart,
    Columns,
    Stretches,
    count,
    counted,
    duration,
    figure,
    share,
    size_classes,
)

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
class Tree:
    """A tree as cards."""

    root: Node
    about: str  #: how to read a card
    legend: list[tuple[str, str]] = field(default_factory=list)  #: names and tones of the labels
    remark: str = ""
    lines: int = 1  #: lines of the longest note
    margins: list[tuple[str, str]] = field(default_factory=list)  #: names and tones of the margins of a card


@dataclass(frozen=True, slots=True)
class Beside:
    """Tables side by side."""

    tables: Sequence[Table]


@dataclass(frozen=True, slots=True)
class Fold:
    """Blocks that a reader opens by their title."""

    title: str
    blocks: Sequence[Block]


Block: TypeAlias = Text | Heading | Code | Items | Facts | Table | Chart | Tree | Beside | Fold


def has_content(block: Block) -> bool:
    """Return True if a block shows anything."""
    if isinstance(block, Table):
        return bool(block.rows or block.remark)
    if isinstance(block, Beside):
        return any(map(has_content, block.tables))
    return bool(getattr(block, _CONTENT.get(type(block), ""), True))


_CONTENT = {Text: "text", Code: "text", Items: "items", Facts: "facts", Fold: "blocks"}


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


# The rebuilds of a run: when they happened, how large they were, and who did them. Every rebuild of the log is counted.

PLACES = ("leaf reset", "coordinator", "shards")
PLACE_TONES = ("reset", "coordinator", "shards")
LEAF_RESET, COORDINATOR, SHARDS = range(3)


def timeline(events: Columns, updates: int) -> Chart:
    """Return the rebuilds and their rows over the stream, by who did them."""
    parts, place = Stretches.by(events, updates), events["place"]
    kinds = {place_name(code): (place_tone(code), place == code) for code in np.unique(place).tolist()}
    return parts.chart(
        "rebuild-timeline",
        "Rebuilds over the stream",
        f"{counted(len(place), 'rebuild')} and their rows, in {counted(parts.n, 'stretch')} of the stream.",
        [parts.bars(kinds, "rebuilds"), parts.bars(kinds, "rows", events["rows"])],
    )


def rebuild_sizes(events: Columns) -> Table:
    """Return number, rows and mean depth of the rebuilds of each size, up to the next power of two."""
    lanes, sizes, rows = size_classes(events["rows"]), events["rows"].astype(np.float64), []
    whole = sizes.sum() or 1.0
    for bits in np.unique(lanes).tolist():
        here = lanes == bits
        name = f"{count(2**bits)} to {count(2 ** (bits + 1) - 1)}" if bits > 0 else str(bits + 1)
        part = float(sizes[here].sum())
        cells = name, count(here.sum()), count(part), figure(events["depth"][here].mean())
        rows.append(Row(cells, part / whole))
    columns = ("Rows of the node", "Rebuilds", "Rows in all", "Mean depth")
    return Table(rows, "Bars are shares of all rows rebuilt.", "Rebuilds by size", columns, style="bars")


def milliseconds(value: float) -> str:
    """Return a time given in milliseconds."""
    return duration(value / 1e3)


def place_name(code: int) -> str:
    """Return the place of a rebuild in words."""
    return PLACES[code] if 0 <= code < len(PLACES) else f"place {code}"


def place_tone(code: int) -> str:
    """Return the tone of a place."""
    return PLACE_TONES[code] if 0 <= code < len(PLACES) else "majority"


def rebuild_work(events: Columns, total: float | None) -> Table:
    """Return where the processing time, ``total`` seconds, went: rebuilds that were timed, by place, and the rest."""
    seconds = np.nan_to_num(events["seconds"]) if "seconds" in events else np.zeros(len(events["rows"]))
    timed = seconds > 0
    rows = []
    for place, title in ((SHARDS, "Rebuilds by the shards"), (COORDINATOR, "Large rebuilds by the coordinator")):
        here = timed & (events["place"] == place)
        rows.append(_work(title, events["rows"][here], float(seconds[here].sum()), total, PLACE_TONES[place]))
    rest = None if total is None else max(total - float(seconds.sum()), 0.0)
    rows.append(_work("Compiled loop: routing and small rebuilds", events["rows"][~timed], rest, total, "reset"))
    rows.append(Row(("In all", count(len(seconds)), count(events["rows"].sum()), duration(total), "")))
    resets = int((events["place"] == LEAF_RESET).sum())
    return Table(
        rows,
        "Bars are shares of the processing time. Small rebuilds run inside the compiled loop and are counted, but not "
        "timed one by one; the time of the loop is what the timed rebuilds leave, with reading the source and "
        "recording." + (f" {counted(resets, 'rebuild')} only reset a leaf." if resets else ""),
        "Where the processing time went",
        ("Work", "Rebuilds", "Rows", "Time", "Share of time"),
        style="bars",
    )


def _work(title: str, sizes: AnyArray, seconds: float | None, total: float | None, tone: str) -> Row:
    """Return one row of :func:`rebuild_work`, about rebuilds of ``sizes`` rows."""
    part = seconds / total if total and seconds is not None else None
    return Row((title, count(len(sizes)), count(sizes.sum()), duration(seconds), share(part, 1)), part, tone)
