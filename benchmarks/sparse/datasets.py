"""Real data, every row in its order, a query after each: the paper's Tables 1, 2 and Figure 5.

Of the paper's data sets none is at hand; Reuters stands in for the text ones. w8a and a9a are as dense as data may be
for which ``auto`` chooses the scan.
"""

from __future__ import annotations

from kit import progress, show
from paper.chart import Panel
from sparse.command import Request, draw
from sparse.contestants import CONTESTANTS, OPPONENT, compare, in_turns
from sparse.data import SETS, Steps, real
from sparse.points import measure

from raydt.learners.best_split.options import BestSplitOptions

#: Rows by which ``auto`` chooses.
WARMUP = 1_000
PARTS = 20


def chosen(steps: Steps) -> tuple[str, str]:
    """Seen features for each one of a row in the warm-up, and what ``auto`` chooses by it and Gini."""
    first = steps.part(0, min(WARMUP, len(steps)))
    seen, ones = len(set(first.feature.tolist())), len(first.feature)
    return f"{seen * len(first) / ones:.0f}", BestSplitOptions(finder="auto").chosen(seen, ones, len(first))


def run(request: Request) -> None:
    """Print the tables, and draw the figure."""
    about, times, answers, panels = [], [], [], []
    for name in request.sets(*SETS):
        steps, d = real(name)
        taken = in_turns(steps, request.seeds)
        n, ones = len(steps), len(steps.feature)
        entries = taken["UPDGINI"].finder.features
        sizes = [f"{n:,}", f"{d:,}", f"{entries:,}", f"{ones / n / d:.5f}", f"{ones / n:.1f}"]
        about.append([name, *sizes, f"{entries * n / ones:.0f}", *chosen(steps)])
        factors = [f"{taken[scan].seconds / taken[who].seconds:.1f}" for who, scan in OPPONENT.items()]
        times.append([name, *(f"{one.seconds:.3f}" for one in taken.values()), *factors])
        for who in OPPONENT:
            finder = taken[who].finder
            found = compare(who, taken, steps).cells()
            answers.append([name, who, *found, f"{finder.moves:,}", f"{finder.moves / n:.2f}"])
        progress(*times[-1], *about[-1])
        if request.plot:
            parts, _ = measure(steps, PARTS, 1)
            at = [n * (part + 1) / PARTS for part in range(PARTS)]
            lines = {who: [(x, sum(found[: i + 1])) for i, x in enumerate(at)] for who, found in parts.items()}
            panels.append(Panel(f"{name}: seconds since the first row", lines, x="rows"))
    header = ["data", "rows", "d", "entries", "density", "ones of a row", "entries / ones of a row"]
    header += ["seen / ones in the warm-up", "auto"]
    show("Data (Table 1)", header, about, f"auto chooses by the first {WARMUP:,} rows; Gini.")
    header = ["data", *(f"{who} s" for who in CONTESTANTS), *(f"{who}: times faster" for who in OPPONENT)]
    note = f"alpha 0.1, a query after every row; CPU seconds, median of {request.seeds}."
    show("Time (Table 2)", header, times, note)
    header = ["data", "", "worst ratio", "worse than the scan", "moves of the tests", "per row"]
    show("Answers of the same run", header, answers, "The ratio may be 1.1.")
    draw(request, "figure-5", [panels[i : i + 2] for i in range(0, len(panels), 2)])
