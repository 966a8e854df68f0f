"""The rebuilds of a run: when they happened, how large and how deep they were, and who did them.

Every rebuild of the log is counted; what is drawn is sums over at most ``STRETCHES`` stretches of the stream.
"""

from __future__ import annotations

import numpy as np

from raydt.arrays.types import AnyArray
from raydt.presentation.blocks import Row, Table
from raydt.presentation.charts import Axis, Chart, Mark, Panel, Stretches, Tick, bar_chart, boxes, stacked_bars
from raydt.presentation.series import Columns, size_classes
from raydt.presentation.words import brief, count, counted, duration, share

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
