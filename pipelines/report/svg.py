"""Charts as SVG paths on a square of 1000 units that stretches to any width.

Invariant: drawn without a script, in light and dark, and on paper. Words and numbers stand beside the drawing as text,
so that they never stretch with it. Not here: what is drawn (:mod:`raydt.presentation.charts`).
"""

from __future__ import annotations

import json

import numpy as np

from pipelines.printing import escaped
from raydt.presentation.charts import Area, Box, Chart, Dots, Line, Panel, Shape

UNIT = 1000.0

#: Dots that are drawn exactly where they belong.
FEW = 300


def path(shape: Shape | None) -> str:
    """Return the path of a shape; of a line without its dots."""
    match shape:
        case Line(x, y, step):
            known, parts = np.isfinite(y), list[str]()
            for i in np.flatnonzero(known).tolist():
                across, level = _place(x[i]), _place(1.0 - y[i])
                begins = i == 0 or not known[i - 1]
                parts.append(f"M{across} {level}" if begins else f"H{across}V{level}" if step else f"L{across} {level}")
            return "".join(parts)
        case Area(x, low, high):
            edges = [*zip(x, high, strict=True), *zip(x[::-1], low[::-1], strict=True)]
            return "M" + "L".join(f"{_place(a)} {_place(1 - b)}" for a, b in edges) + "Z" if edges else ""
        case Box(x, y, width, height):
            rows = zip(*(column.tolist() for column in (x, y, width, height)), strict=True)
            return "".join(
                f"M{_place(a)} {_place(1 - b - h)}h{_place(w)}v{_place(h)}h{_place(-w)}z"
                for a, b, w, h in rows
                if w > 0 and h > 0
            )
        case Dots(x, y):
            there = np.isfinite(x) & np.isfinite(y)
            pairs = list(zip(x[there].tolist(), y[there].tolist(), strict=True))
            if len(pairs) > FEW:  # on a grid of 250 by 100, each place once
                pairs = [(a / 250, b / 100) for a, b in sorted({(round(250 * a), round(100 * b)) for a, b in pairs})]
            return "".join(f"M{_place(a)} {_place(1 - b)}h0" for a, b in pairs)
    return ""


def dots_of(shape: object) -> str:
    """Return the dots on a line: on all points if it is dotted, else on those without neighbours."""
    if not isinstance(shape, Line):
        return ""
    known, down = np.isfinite(shape.y), 1.0 - shape.y
    before, after = np.append(False, known[:-1]), np.append(known[1:], False)
    drawn = known if shape.dotted else known & ~before & ~after
    return "".join(f"M{_place(shape.x[i])} {_place(down[i])}h0" for i in np.flatnonzero(drawn).tolist())


def kind(shape: object) -> str:
    """Return the class of a shape in the style sheet."""
    return type(shape).__name__.lower()


def grid(panel: Panel) -> str:
    """Return the lines at the ticks of a panel."""
    return "".join(f"M0 {_place(1 - tick.at)}H1000" for tick in panel.axis.ticks)


def uprights(chart: Chart) -> str:
    """Return the lines from top to bottom; those that fall on one another are drawn once."""
    return "".join(f"M{place} 0V1000" for place in dict.fromkeys(map(_place, chart.uprights)))


def readout(chart: Chart) -> str:
    """Return the data the page's script needs to answer a pointer, as JSON; empty if there is nothing to point at."""
    values = [mark.values for panel in chart.panels for mark in panel.marks]
    if not len(chart.at) or not any(values):
        return ""
    at = [round(float(place), 4) for place in chart.at]
    return json.dumps(
        {"at": at, "names": [escaped(name) for name in chart.names], "values": values}, separators=(",", ":")
    )


def _place(part: float) -> str:
    """Return a share as units of the drawing, to a tenth."""
    return f"{UNIT * part:.1f}".removesuffix(".0")
