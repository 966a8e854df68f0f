"""Line charts as small SVG files: panels in a grid, one legend below."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Style:
    """Colour and dash pattern of a line."""

    colour: str
    dash: str = "-"


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
    x : str
        What the x-axis shows.
    log_x : bool
        Logarithmic x-axis.
    """

    title: str
    lines: dict[str, list[tuple[float, float]]]
    levels: dict[str, float] = field(default_factory=dict)
    log: bool = False
    x: str = "epsilon"
    log_x: bool = False

    def near(self) -> dict[str, float]:
        """Levels near enough to the lines to leave these readable."""
        values = [y for line in self.lines.values() for _, y in line]
        reach = max(max(values) - min(values), 1e-3)
        return {k: y for k, y in self.levels.items() if min(values) - reach <= y <= max(values) + reach}


def svg(grid: Sequence[Sequence[Panel]], styles: dict[str, Style]) -> str:
    """The panels, row by row, and a legend of the styles that are used; the same bytes for the same figures."""
    import matplotlib  # here, since measuring and the tables do not need it
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3.6 * max(map(len, grid)), 2.6 * len(grid) + 0.7), layout="constrained")
    axes = figure.subplots(len(grid), max(map(len, grid)), squeeze=False)
    handles = {}
    for row, panels in zip(axes, grid, strict=True):
        for axis, panel in zip(row, panels, strict=True):
            for name, line in panel.lines.items():
                style = styles[name]
                (handles[name],) = axis.plot(*zip(*line, strict=True), color=style.colour, linestyle=style.dash, lw=1.4)
            for name, level in panel.near().items():
                handles[name] = axis.axhline(level, color=styles[name].colour, linestyle=styles[name].dash, lw=1)
            axis.set_title(panel.title, fontsize=9, loc="left")
            axis.set_xlabel(panel.x, fontsize=8)
            axis.set_xscale("log" if panel.log_x else "linear")
            axis.set_yscale("log" if panel.log else "linear")
            axis.grid(color="#ddd", lw=0.6)
            axis.minorticks_off()  # a third of the file
            if not panel.log:
                axis.locator_params(axis="y", nbins=5)
            if not panel.log_x:
                axis.locator_params(axis="x", nbins=5)
            axis.tick_params(labelsize=7)
    used = [name for name in styles if name in handles]
    figure.legend(
        [handles[name] for name in used], used, loc="outside lower center", ncols=4, fontsize=7, frameon=False
    )
    out = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "raydt"}):
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    return out.getvalue()
