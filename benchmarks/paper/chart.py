"""Line charts over epsilon as small SVG files: panels in a grid, one legend below."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 300, 190  # of one panel, axes included
LEFT, RIGHT, TOP, BOTTOM = 44, 8, 22, 30


@dataclass(frozen=True, slots=True)
class Style:
    """Colour and dash pattern of a line."""

    colour: str
    dash: str = ""

    def svg(self) -> str:
        """Attributes of a path."""
        dash = f' stroke-dasharray="{self.dash}"' if self.dash else ""
        return f'fill="none" stroke="{self.colour}" stroke-width="1.6"{dash}'


@dataclass(frozen=True, slots=True)
class Panel:
    """One pair of axes.

    Attributes
    ----------
    lines : dict of str to list of (x, y)
        By the name of their style.
    levels : dict of str to float
        Horizontal lines; one far from all lines is left out.
    log : bool
        Logarithmic y-axis.
    """

    title: str
    lines: dict[str, list[tuple[float, float]]]
    levels: dict[str, float] = field(default_factory=dict)
    log: bool = False


def svg(grid: Sequence[Sequence[Panel]], styles: dict[str, Style]) -> str:
    """The panels, row by row, and a legend of the styles that are used."""
    width, rows = WIDTH * max(map(len, grid)), len(grid)
    used = [name for name in styles if any(name in p.lines or name in _shown(p) for row in grid for p in row)]
    per_row = max(1, width // 140)
    height = HEIGHT * rows + 18 * math.ceil(len(used) / per_row) + 8
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="10" fill="#333">',
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
    ]
    for r, row in enumerate(grid):
        for c, panel in enumerate(row):
            out += [f'<g transform="translate({c * WIDTH},{r * HEIGHT})">', *_panel(panel, styles), "</g>"]
    for i, name in enumerate(used):
        x, y = 8 + i % per_row * 140, HEIGHT * rows + 14 + 18 * (i // per_row)
        out.append(f'<path d="M{x} {y - 3}h24" {styles[name].svg()}/><text x="{x + 29}" y="{y}">{escape(name)}</text>')
    return "\n".join([*out, "</svg>", ""])


def _shown(panel: Panel) -> dict[str, float]:
    """Levels near enough to the lines to leave these readable."""
    values = [y for line in panel.lines.values() for _, y in line]
    reach = max(max(values) - min(values), 1e-3)
    return {k: y for k, y in panel.levels.items() if min(values) - reach <= y <= max(values) + reach}


def _panel(panel: Panel, styles: dict[str, Style]) -> list[str]:
    levels = _shown(panel)
    points = [p for line in panel.lines.values() for p in line]
    x_low, x_high = min(x for x, _ in points), max(x for x, _ in points)
    ticks = _ticks([y for _, y in points] + list(levels.values()), panel.log)
    low, high = _scale(ticks[0], panel.log), _scale(ticks[-1], panel.log)

    def place(x: float, y: float) -> tuple[float, float]:
        across = LEFT + (x - x_low) / (x_high - x_low) * (WIDTH - LEFT - RIGHT)
        return across, TOP + (high - _scale(y, panel.log)) / (high - low) * (HEIGHT - TOP - BOTTOM)

    out = [f'<text x="{LEFT}" y="14" font-weight="bold">{escape(panel.title)}</text>']
    for tick in ticks:
        _, y = place(x_low, tick)
        out.append(
            f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>'
            f'<text x="{LEFT - 4}" y="{y + 3:.1f}" text-anchor="end">{tick:g}</text>'
        )
    for tick in (x_low + (x_high - x_low) * i / 4 for i in range(5)):
        x, _ = place(tick, ticks[0])
        out.append(f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 13}" text-anchor="middle">{tick:g}</text>')
    out.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 5}" text-anchor="middle">epsilon</text>')
    for name, value in levels.items():
        out.append(f'<path d="M{LEFT} {place(x_low, value)[1]:.1f}H{WIDTH - RIGHT}" {styles[name].svg()}/>')
    for name, line in panel.lines.items():
        path = "L".join("{:.1f} {:.1f}".format(*place(x, y)) for x, y in line)
        out.append(f'<path d="M{path}" {styles[name].svg()}/>')
    return out


def _scale(y: float, log: bool) -> float:
    return math.log10(y) if log else y


def _ticks(values: Sequence[float], log: bool) -> list[float]:
    """About five round values that enclose all others."""
    low, high = min(values), max(values)
    if log:
        first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
        return [10.0**e for e in range(first, max(last, first + 1) + 1)]
    step = 10.0 ** math.floor(math.log10(max(high - low, 1e-3) / 3))
    step *= next(m for m in (1, 2, 5, 10) if (high - low) / (step * m) <= 5)
    return [round(i * step, 6) for i in range(math.floor(low / step), math.ceil(high / step + 1e-9) + 1)]
