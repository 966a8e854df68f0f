"""Figures 1 to 5: F1 and time over epsilon, on sliding windows and under random updates.

In the paper: 1 and 3 sliding windows (F1 and time), 2 and 4 random updates (time, F1), 5 random updates (both).
"""

from __future__ import annotations

from dataclasses import dataclass

from paper.bench import Bench, Measurement
from paper.chart import Panel, Style, svg
from paper.contestants import EFDT, HAT, MAJORITY, NO_CHANGE, RANDOM_UPDATES, SLIDING_WINDOW
from paper.datasets import COVERTYPE, ELECTRICITY, KDD_HEAD, POKER_UCI, DataSet, cut
from paper.markdown import Section, table

EPSILONS = (0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0)
DEPTHS = (10, 5)
START = 1000  # examples the tree is built from before random updates begin

STYLES = {
    "window 100, h 10": Style("#1f77b4"),
    "window 100, h 5": Style("#1f77b4", "--"),
    "window 1000, h 10": Style("#d95f02"),
    "window 1000, h 5": Style("#d95f02", "--"),
    "h 10": Style("#d95f02"),
    "h 5": Style("#d95f02", "--"),
    "EFDT, insert-only": Style("#2ca02c", "-."),
    "HAT, insert-only": Style("#9467bd", "-."),
    "no-change": Style("#777777"),
    "majority": Style("#777777", ":"),
}


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of the paper."""

    number: int
    stream: str
    data: tuple[DataSet, ...]
    f1: bool = True
    time: bool = True


FIGURES = (
    Figure(1, SLIDING_WINDOW, (ELECTRICITY, POKER_UCI)),
    Figure(2, RANDOM_UPDATES, (ELECTRICITY, POKER_UCI), f1=False),
    Figure(3, SLIDING_WINDOW, (COVERTYPE, KDD_HEAD)),
    Figure(4, RANDOM_UPDATES, (ELECTRICITY, POKER_UCI), time=False),
    Figure(5, RANDOM_UPDATES, (COVERTYPE, KDD_HEAD)),
)


def draw(bench: Bench, figure: Figure, rows: int | None) -> Section:
    """The figure as a chart, and what the text says of its times."""
    sets = [cut(data, rows) for data in figure.data]
    measures = [("F1", True)] * figure.f1 + [("us per update", False)] * figure.time
    curves = {data: _curves(bench, data, figure.stream) for data in sets}
    grid = []
    for name, is_f1 in measures:
        panels = []
        for data in sets:
            lines = {label: [(e, m.f1 if is_f1 else m.us) for e, m in c.items()] for label, c in curves[data].items()}
            levels = {k: m.f1 for k, m in _others(bench, data, START).items()} if is_f1 else {}
            panels.append(Panel(f"{data.title}: {name}", lines, levels, log=not is_f1))
        grid.append(panels)
    text = "\n".join(_claims(curves)) if figure.time else ""
    return Section(f"figure {figure.number}", text, {f"figure-{figure.number}.svg": svg(grid, STYLES)})


def _curves(bench: Bench, data: DataSet, stream: str) -> dict[str, dict[float, Measurement]]:
    windows = (100, 1000) if stream == SLIDING_WINDOW else (START,)
    curves = {}
    for window in windows:
        for depth in DEPTHS:
            label = f"window {window}, h {depth}" if stream == SLIDING_WINDOW else f"h {depth}"
            curves[label] = {e: bench.ours(data, e, depth, stream, window) for e in EPSILONS}
    return curves


def _others(bench: Bench, data: DataSet, window: int) -> dict[str, Measurement]:
    return {
        "EFDT, insert-only": bench.best_peer(data, EFDT, window)[1],
        "HAT, insert-only": bench.best_peer(data, HAT, window)[1],
        "no-change": bench.trivial(data, NO_CHANGE, window),
        "majority": bench.trivial(data, MAJORITY, window),
    }


def _claims(curves: dict[DataSet, dict[str, dict[float, Measurement]]]) -> list[str]:
    """What the text says of the figures, as numbers: from epsilon 0 to 1, and at 0.1."""
    body = []
    for data, lines in curves.items():
        for label, curve in lines.items():
            if label.endswith("h 10"):
                zero, small, one = curve[0.0], curve[0.1], curve[1.0]
                body.append(
                    [
                        f"{data.title}, {label}",
                        f"{100 * (zero.f1 - one.f1):.1f}",
                        f"{zero.us / one.us:.0f} times",
                        f"{100 * (zero.f1 - small.f1):.1f}",
                        f"{small.us / 1000:.4f} ms",
                    ]
                )
    paper = [
        "**The paper's text** (Electricity and Poker, windows)",
        "roughly 10",
        "about 1000 times",
        "close",
        "about 0.5 ms",
    ]
    header = ["h 10", "F1 lost, epsilon 0 to 1", "time saved, 0 to 1", "F1 lost, 0 to 0.1", "time per update at 0.1"]
    return table(header, [paper, *body])
