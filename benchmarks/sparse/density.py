"""Time against the number of features and against density, the ones of a row being constant: the paper's Figure 4.

From the first row on, so that few features have an entry where there are very many.
"""

from __future__ import annotations

from kit import progress, show
from paper.chart import Panel
from sparse.command import Request, draw
from sparse.contestants import CONTESTANTS, OPPONENT, in_turns
from sparse.data import sparse

DIMENSIONS = (100, 300, 1_000, 3_000, 10_000, 30_000, 100_000)
ROWS = 10_000


def run(request: Request) -> None:
    """Print the table, and draw the figure."""
    rows, lines = [], {who: [] for who in CONTESTANTS}
    by_density: dict[str, list[tuple[float, float]]] = {who: [] for who in CONTESTANTS}
    for d in DIMENSIONS:
        steps = sparse(ROWS, 10, d, 10 / d)
        taken = in_turns(steps, request.seeds)
        density = len(steps.feature) / ROWS / (d + 10)
        for who, one in taken.items():
            lines[who].append((float(d), 1e3 * one.seconds))
            by_density[who].append((density, 1e3 * one.seconds))
        factors = [f"{taken[scan].seconds / taken[who].seconds:.1f}" for who, scan in OPPONENT.items()]
        times = [f"{1e3 * one.seconds:.1f}" for one in taken.values()]
        entries = taken["UPDGINI"].finder.features
        ratio = entries * ROWS / len(steps.feature)
        rows.append([f"{d:,}", f"{entries:,}", f"{density:.5f}", f"{ratio:.0f}", *times, *factors])
        progress(*rows[-1])
    header = ["d2", "entries", "density", "entries / ones of a row", *(f"{who} ms" for who in CONTESTANTS)]
    header += [f"{who}: times faster" for who in OPPONENT]
    note = f"sparse({ROWS:,}, 10, d2, 10/d2), alpha 0.1, a query after every row; median of {request.seeds}."
    show("By dimension and density (Figure 4)", header, rows, note)
    options = {"log": True, "log_x": True}
    panels = [Panel("ms, 10,000 rows", lines, x="features", **options)]
    draw(request, "figure-4", [[*panels, Panel("ms, 10,000 rows", by_density, x="density", **options)]])
