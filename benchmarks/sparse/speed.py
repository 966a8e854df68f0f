"""The paper's default stream, sparse(10000, 10, 10000, 10/10000), with a query after every update.

Beside it sliding windows over twice as many rows, which the paper does not have: each row that comes and each that goes
is an update. The answers of the same run are compared with the scan's.
"""

from __future__ import annotations

from kit import progress, show
from sparse.command import Request
from sparse.contestants import OPPONENT, compare, in_turns
from sparse.data import Steps, sparse, window

FEATURES = 10_000
ROWS = 10_000
WINDOWS = (2_000, 10_000)
GROUPS = (1, 16)


def streams() -> dict[str, Steps]:
    """What is measured, by name."""
    found = {f"{ROWS:,} rows come": sparse(ROWS, 10, FEATURES, 10 / FEATURES)}
    rows = sparse(2 * ROWS, 10, FEATURES, 10 / FEATURES)
    return found | {f"window of {size:,}": window(rows, size) for size in WINDOWS}


def run(request: Request) -> None:
    """Print the tables."""
    times, answers = [], []
    for name, steps in streams().items():
        for groups in GROUPS:
            taken = in_turns(steps, request.seeds, groups=groups)
            cells = [name, f"{len(steps):,}", str(groups)]
            for who, scan in OPPONENT.items():
                own, other = taken[who].seconds, taken[scan].seconds
                cells += [f"{1e3 * own:.1f}", f"{1e3 * other:.1f}", f"{other / own:.1f}"]
            times.append(cells)
            progress(*cells)
            for who in OPPONENT:
                finder = taken[who].finder
                found = [who, *compare(who, taken, steps).cells()]
                answers.append([name, str(groups), *found, f"{finder.moves:,}", str(finder.buckets_filled)])
    header = ["stream", "updates", "groups"]
    for who, scan in OPPONENT.items():
        header += [f"{who} ms", f"{scan} ms", "times faster"]
    note = f"sparse(n, 10, {FEATURES:,}, 10/{FEATURES:,}), alpha 0.1, a query after every update; CPU ms of the whole"
    show("Speed", header, times, f"{note} stream, median of {request.seeds}. Goals: 5 for UPDGINI, 3 for UPDENT.")
    header = ["stream", "groups", "", "worst ratio", "worse than the scan", "moves of the tests", "filled buckets"]
    show("Answers of the same run", header, answers, "The ratio may be 1.1.")
