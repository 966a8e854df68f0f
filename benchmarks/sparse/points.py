"""Time and filled buckets against the number of rows: the paper's Figures 2 and 3."""

from __future__ import annotations

import statistics

from kit import progress, show
from paper.chart import Panel
from sparse.command import Request, draw
from sparse.contestants import CONTESTANTS, OPPONENT, new, take
from sparse.data import Steps, sparse

ROWS = 10_000
FEATURES = 10_000
#: Parts of the stream, which are timed each.
PARTS = 20


def measure(steps: Steps, parts: int, turns: int) -> tuple[dict[str, list[float]], dict[str, list[int]]]:
    """CPU seconds of each contestant in each part of the stream, and its filled buckets after it."""
    bounds = [len(steps) * part // parts for part in range(parts + 1)]
    times: dict[str, list[list[float]]] = {who: [[] for _ in range(parts)] for who in CONTESTANTS}
    buckets: dict[str, list[int]] = {who: [0] * parts for who in OPPONENT}
    for turn in range(turns + 1):
        for who in CONTESTANTS:
            finder = new(who)
            for part in range(parts):
                seconds = take(finder, steps.part(bounds[part], bounds[part + 1])).seconds
                if turn or not turns:
                    times[who][part].append(seconds)
                if who in OPPONENT:
                    buckets[who][part] = finder.buckets_filled
    return {who: [statistics.median(values) for values in found] for who, found in times.items()}, buckets


def run(request: Request) -> None:
    """Print the table, and draw the figures."""
    steps = sparse(ROWS, 10, FEATURES, 10 / FEATURES)
    times, buckets = measure(steps, PARTS, request.seeds)
    size = ROWS // PARTS
    rows = []
    for part in range(PARTS):
        ends = (part + 1) * size
        whole = [f"{1e3 * sum(times[who][: part + 1]):.1f}" for who in CONTESTANTS]
        each = [f"{1e6 * times[who][part] / size:.2f}" for who in CONTESTANTS]
        rows.append([f"{ends:,}", *whole, *each, *(str(buckets[who][part]) for who in OPPONENT)])
    progress(*rows[-1])
    header = ["rows", *(f"{who} ms" for who in CONTESTANTS), *(f"{who} us a row" for who in CONTESTANTS)]
    header += [f"{who}: buckets" for who in OPPONENT]
    note = f"sparse({ROWS:,}, 10, {FEATURES:,}, 10/{FEATURES:,}), alpha 0.1, a query after every row; median of"
    show("By the number of rows (Figures 2, 3)", header, rows, f"{note} {request.seeds}; ms since the first row.")
    at = [float((part + 1) * size) for part in range(PARTS)]
    sums = {who: [(x, 1e3 * sum(found[: i + 1])) for i, x in enumerate(at)] for who, found in times.items()}
    each_row = {who: [(x, 1e6 * found[i] / size) for i, x in enumerate(at)] for who, found in times.items()}
    filled = {who: list(zip(at, map(float, found), strict=True)) for who, found in buckets.items()}
    panels = [Panel("ms since the first row", sums, log=True, x="rows"), Panel("filled buckets", filled, x="rows")]
    draw(request, "figures-2-3", [[*panels, Panel("microseconds per row", each_row, log=True, x="rows")]])
