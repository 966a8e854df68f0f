"""Time per update against the number of features, the ones of a row being as many: of 10 features that matter and of d
that do not, of which 10 are 1 on average.

Rows come first, without queries, until most features were seen, since neither contestant touches what was not; the same
number for every dimension. Then every contestant takes the same further rows with a query after each.
"""

from __future__ import annotations

import statistics

from kit import progress, show
from paper.chart import Panel
from sparse.command import Request, draw
from sparse.contestants import ALPHA, CONTESTANTS, OPPONENT, new, take
from sparse.data import sparse

DIMENSIONS = (1_000, 10_000, 100_000, 1_000_000)
#: Ones that each of a million features has had on average before the measurement.
BEFORE = 3
#: The control: only counters are brought up to date. Where it grows, caches are missed.
COUNTING = "counting"
#: Rows of a turn, of a structure and of a scan.
ROWS = {"structure": 2_000, "scan": 50}


def before() -> int:
    """Rows that come first."""
    return BEFORE * max(DIMENSIONS) // 10


def measure(d: int, turns: int) -> tuple[int, dict[str, float]]:
    """Features that have an entry, and the CPU seconds per update of each contestant."""
    first = before()
    steps = sparse(first + (turns + 1) * ROWS["structure"], 10, d, 10 / d)
    finders = {who: new(who, ALPHA) for who in CONTESTANTS} | {COUNTING: new("scan, Gini")}
    for finder in finders.values():
        take(finder, steps.part(0, first), query=False)
    times: dict[str, list[float]] = {who: [] for who in finders}
    begin = dict.fromkeys(finders, first)
    for turn in range(turns + 1):
        for who, finder in finders.items():
            rows = ROWS["scan" if who in OPPONENT.values() else "structure"]
            seconds = take(finder, steps.part(begin[who], begin[who] + rows), query=who != COUNTING).seconds / rows
            begin[who] += rows
            if turn:
                times[who].append(seconds)
    return finders["UPDGINI"].features, {who: statistics.median(values) for who, values in times.items()}


def run(request: Request) -> None:
    """Print the table, and draw it."""
    rows, found = [], {}
    for d in DIMENSIONS:
        entries, found[d] = measure(d, request.seeds)
        cells = [f"{1e6 * seconds:.2f}" for seconds in found[d].values()]
        least = found[min(DIMENSIONS)]
        ratios = [f"{found[d][who] / least[who]:.2f}" for who in found[d]]
        rows.append([f"{d:,}", f"{entries:,}", *cells, *ratios])
        progress(*rows[-1])
    header = ["d", "entries", *(f"{who} us" for who in found[d])]
    header += [f"{who}: of d = {min(DIMENSIONS):,}" for who in found[d]]
    note = (
        f"sparse(n, 10, d, 10/d), alpha {ALPHA}; CPU time per update and its query, after {before():,} rows without; "
    )
    note += f"median of {request.seeds}. {COUNTING.capitalize()}: the same updates, no structure and no query."
    show("Time per update by dimension", header, rows, note)
    lines = {who: [(float(d), 1e6 * times[who]) for d, times in found.items()] for who in CONTESTANTS}
    draw(request, "dimension", [[Panel("microseconds per update", lines, log=True, x="features", log_x=True)]])
