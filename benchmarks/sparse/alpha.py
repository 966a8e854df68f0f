"""Filled buckets and time against alpha: the paper's Figure 1."""

from __future__ import annotations

from kit import progress, show
from paper.chart import Panel
from sparse.command import Request, draw
from sparse.contestants import OPPONENT, compare, in_turns
from sparse.data import sparse

ALPHAS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
ROWS = 10_000
FEATURES = 10_000


def run(request: Request) -> None:
    """Print the table, and draw the figure."""
    steps = sparse(ROWS, 10, FEATURES, 10 / FEATURES)
    rows = []
    buckets: dict[str, list[tuple[float, float]]] = {who: [] for who in OPPONENT}
    times: dict[str, list[tuple[float, float]]] = {who: [] for who in (*OPPONENT, *OPPONENT.values())}
    for alpha in ALPHAS:
        taken = in_turns(steps, request.seeds, alpha)
        cells = [f"{alpha:g}"]
        for who in OPPONENT:
            finder = taken[who].finder
            filled, seconds = finder.buckets_filled, taken[who].seconds
            worst = f"{compare(who, taken, steps).worst:.4f}"
            cells += [str(filled), f"{1e3 * seconds:.1f}", f"{finder.moves:,}", worst]
            buckets[who].append((alpha, filled))
        for who, line in times.items():
            line.append((alpha, 1e3 * taken[who].seconds))
        rows.append(cells)
        progress(*cells)
    header = ["alpha", *(f"{who}: {what}" for who in OPPONENT for what in ("buckets", "ms", "moves", "worst ratio"))]
    note = f"sparse({ROWS:,}, 10, {FEATURES:,}, 10/{FEATURES:,}), a query after every row; buckets filled at the"
    show("By alpha (Figure 1)", header, rows, f"{note} end, CPU ms of all rows, median of {request.seeds}.")
    panels = [Panel("filled buckets", buckets, x="alpha", log_x=True)]
    draw(request, "figure-1", [[*panels, Panel("ms, 10,000 rows", times, log=True, x="alpha", log_x=True)]])
