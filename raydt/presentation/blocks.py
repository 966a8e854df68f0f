"""What pages and terminals show, as plain data: text, facts, tables, charts and trees, in sections of articles.

Two renderers lay blocks out: :mod:`pipelines.report.page` (HTML) and :mod:`pipelines.display`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np

from raydt.arrays.elementary import AnyArray
from raydt.presentation.charts import (
    Axis,
    Box,
    Chart,
    Columns,
    Mark,
    Panel,
    Stretches,
    Tick,
    bar_chart,
    boxes,
    brief,
    count,
    counted,
    duration,
    share,
    size_classes,
    stacked_bars,
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


# The rebuilds of a run: when they happened, how large and how deep they were, and who did them.
#
# Every rebuild of the log is counted; what is drawn is sums over at most ``STRETCHES`` stretches of the stream.

DEPTH_TONES = 5
PLACES = ("leaf reset", "coordinator", "shards")
PLACE_TONES = ("reset", "coordinator", "shards")
LEAF_RESET, COORDINATOR, SHARDS = range(3)


def timeline(events: Columns, metrics: Columns, updates: int) -> Chart:
    """Return lanes of sizes over the stream, coloured by depth, above the rows and the time that rebuilds cost."""
    parts = Stretches.by(events, updates)
    panels = [_lanes(events, parts), _rows(events, parts)]
    if len(metrics.get("seconds", ())):
        panels.append(_time(events, metrics, parts))
    total = len(events["rows"])
    return parts.chart(
        "rebuild-timeline",
        "Rebuilds over the stream",
        f"{counted(total, 'rebuild')}, summed over {counted(parts.n, 'stretch')} of the stream. A lane holds the "
        "rebuilds of one size, from the power of two at its left up to the next; its bars grow with their "
        "number (square root), and their colour shows the mean depth. Below: their rows, and the time of the stretch.",
        panels,
    )


def _lanes(events: Columns, parts: Stretches) -> Panel:
    """Return a lane per power of two; heights of bars are roots of numbers, so that few are still seen."""
    lane = np.maximum(size_classes(events["rows"]), 0)
    low, lanes = int(lane.min()), int(lane.max() - lane.min()) + 1
    cell = (lane - low) * parts.n + parts.of
    number = np.bincount(cell, minlength=lanes * parts.n)
    depth = np.bincount(cell, events["depth"].astype(np.float64), minlength=lanes * parts.n) / np.maximum(number, 1)
    deepest = int(events["depth"].max())
    tones = min(DEPTH_TONES, deepest + 1)
    tone = depth * tones // (deepest + 1)
    height = 0.9 * np.sqrt(number / number.max()) / lanes
    height[number > 0] = np.maximum(height[number > 0], 0.12 / lanes)
    column, row = np.arange(lanes * parts.n) % parts.n, np.arange(lanes * parts.n) // parts.n
    number_of = [counted(int(n), "rebuild") for n in parts.total().tolist()]
    marks = []
    for k in range(tones):
        here = (tone == k) & (number > 0)
        drawn = boxes((column[here] + 0.06) / parts.n, row[here] / lanes, 0.88 / parts.n, height[here])
        marks.append(Mark(_depths(k, tones, deepest), f"depth-{k}", drawn))
    marks.append(Mark("in all", "", None, counted(len(lane), "rebuild"), tuple(number_of)))
    ticks = tuple(Tick(k / lanes, _power(low + k)) for k in range(0, lanes, 1 if lanes <= 12 else 2))
    return Panel("rows of the node", tuple(marks), Axis(0.0, 1.0, ticks), max(9.0, 1.5 * lanes))


def _power(bits: int) -> str:
    return count(2**bits) if bits < 14 else brief(round(2**bits, -3))


def _depths(k: int, tones: int, deepest: int) -> str:
    """Return the depths that a tone stands for."""
    low, high = -(-k * (deepest + 1) // tones), -(-(k + 1) * (deepest + 1) // tones) - 1
    return f"depth {low}" if low == high else f"depth {low} to {high}"


def _rows(events: Columns, parts: Stretches) -> Panel:
    """Return the rows rebuilt in each stretch, by who did it."""
    rows = events["rows"].astype(np.float64)
    layers = [
        (place_name(code), place_tone(code), parts.total(np.where(events["place"] == code, rows, 0.0)))
        for code in np.unique(events["place"]).tolist()
    ]
    return stacked_bars([""] * parts.n, layers, "rows", height=7.0)


def _time(events: Columns, metrics: Columns, parts: Stretches) -> Panel:
    """Return the processing time of each stretch: of timed rebuilds, by who did them, and of all other work."""
    done = np.concatenate(
        [[0.0], np.interp(parts.edges[1:], np.append(0, metrics["seq"]), np.append(0.0, metrics["seconds"]))]
    )
    seconds = np.nan_to_num(events["seconds"]) if "seconds" in events else np.zeros(len(parts.of))
    timed = [
        (f"{place_name(code)}, timed", place_tone(code), parts.total(np.where(events["place"] == code, seconds, 0.0)))
        for code in np.unique(events["place"][seconds > 0]).tolist()
    ]
    rest = np.maximum(np.diff(done) - sum((layer[2] for layer in timed), np.zeros(parts.n)), 0.0)
    layers = [("all other work", "other", rest), *timed]
    return stacked_bars([""] * parts.n, [(n, tone, 1e3 * s) for n, tone, s in layers], "ms", milliseconds, height=7.0)


def sizes(events: Columns) -> tuple[Chart, Chart]:
    """Return the number of rebuilds of each size, and their rows, by who did them."""
    lanes = size_classes(events["rows"])
    low, high = int(lanes.min()), int(lanes.max())
    bars = {}
    for bits in range(low, high + 1):
        name = count(2**bits) if bits >= 0 else "0"
        bars[name] = f"{name} to {count(2 ** (bits + 1) - 1)} rows" if bits > 0 else f"{name} rows"

    def chart(key: str, title: str, unit: str, weights: AnyArray | None) -> Chart:
        layers = []
        for code in np.unique(events["place"]).tolist():
            here = events["place"] == code
            heights = np.bincount(lanes[here] - low, None if weights is None else weights[here], len(bars))
            layers.append((place_name(code), place_tone(code), heights))
        caption = "A bar reaches up to the next power of two: that at 64 holds 64 to 127 rows."
        panel = stacked_bars([*bars], layers, unit)
        return bar_chart(f"rebuild-sizes-{key}", title, caption, bars, panel, "rows of the rebuilt node")

    rows = events["rows"].astype(np.float64)
    return (
        chart("rebuilds", "Number of rebuilds by size", "rebuilds", None),
        chart("rows", "Rows rebuilt by size", "rows", rows),
    )


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
