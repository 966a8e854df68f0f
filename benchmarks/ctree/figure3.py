"""Figure 3: performance against number of leaves on real data, each in several random orders."""

from __future__ import annotations

import numpy as np
import pyarrow.parquet as pq
from ctree.command import Request, draw
from ctree.comparison import along, averaged, best, difference, lines
from ctree.rules import RULES
from ctree.streams import DATA, SETS, Setting, trial, trials
from kit import show
from paper.chart import Panel

#: Numbers of leaves of the table.
SIZES = np.array([1, 2, 5, 10, 20, 50, 100, 200])


def order(name: str, permutation: int, settings: int) -> list[Setting]:
    """All settings on a data set in one order."""
    data = SETS[name]
    return trial({**data.source(), "permutation": permutation}, settings, rows_of(name), data.score)


def rows_of(name: str) -> int:
    """Rows of a data set."""
    return sum(pq.read_metadata(DATA / f"{file}.parquet").num_rows for file in SETS[name].files)


def run(request: Request) -> None:
    """Print two tables for each data set, and draw the figure."""
    panels = []
    for name in request.sets(*SETS):
        data = SETS[name]
        arguments = [(name, permutation, request.settings) for permutation in range(request.seeds)]
        found = [*trials(order, arguments, request.jobs)]
        score = "accuracy" if data.score == "accuracy" else "F-measure of the smallest class"
        tuned = {rule: best(found, rule) for rule in RULES}
        ours, rows = tuned["C-Tree"][1], []
        for rule, (value, scores, leaves) in tuned.items():
            key = "c" if rule == "C-Tree" else "delta"
            cells = [f"{rule}, {key} {value:g}", f"{100 * scores.mean():.2f}", f"{100 * scores.std(ddof=1):.2f}"]
            cells.append(f"{leaves.mean():.1f}")
            if rule != "C-Tree":
                over = difference(ours, scores)
                cells += [f"{100 * over.mean:+.2f}", f"{100 * over.lower:+.2f}"]
            rows.append(cells + [""] * (6 - len(cells)))
        note = (
            f"{rows_of(name):,} rows in {request.seeds} random orders; of {request.settings} settings of each rule the "
            f"one whose mean is best. {score[0].upper()}{score[1:]} at the end, in per cent; C-Tree minus the baseline "
            "in points, paired by order, and the lower end of its one-sided 95 % interval."
        )
        header = ["", score, "deviation", "leaves", "C-Tree minus it", "lower bound"]
        show(f"{data.title}, each rule tuned", header, rows, note)
        table = []
        for rule in RULES:
            line = averaged([along(settings, rule, SIZES) for settings in found])
            table.append([rule, *(f"{100 * v:.2f}" if np.isfinite(v) else "" for v in line)])
        note = f"{score[0].upper()}{score[1:]} so far at all moments of all settings, in per cent, mean of the orders."
        show(f"{data.title}, by number of leaves", ["leaves", *(f"{size:,}" for size in SIZES)], table, note)
        scaled = {rule: [(x, 100 * y) for x, y in line] for rule, line in lines(found).items()}
        title = f"{data.title}: {'accuracy' if data.score == 'accuracy' else 'F'} so far"
        panels.append(Panel(title, scaled, x="leaves", log_x=True))
    draw(request, "figure-3", [panels[place : place + 2] for place in range(0, len(panels), 2)])
