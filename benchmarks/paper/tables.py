"""Tables 1 to 5, and accuracy on Electricity by window and epsilon.

Insert-only streams from an empty tree, except in the last. Rows marked with a dagger are not the paper's: their F1
must not be compared with it.
"""

from __future__ import annotations

from paper.bench import Bench, Measurement
from paper.contestants import EFDT, GRACE_PERIODS, HAT, MAJORITY, NO_CHANGE, SLIDING_WINDOW
from paper.datasets import COVERTYPE, ELECTRICITY, KDD, KDD_HEAD, POKER, POKER_UCI, DataSet, cut
from paper.equal_time import tune
from paper.markdown import Section, table
from paper.published import TABLE_1, TABLE_2, TABLE_3, TABLE_4, TABLE_5

#: Data sets on which the peers ran too.
SETS = (ELECTRICITY, COVERTYPE, KDD_HEAD, POKER_UCI)
#: Those of so many rows that the peers would take too long.
LARGE = (KDD, POKER)
FIXED = 0.5  # epsilon of Tables 4 and 5
GRID_WINDOWS = (50, 100, 200, 500, 1000)
GRID_EPSILONS = (0.0, 0.05, 0.1, 0.2, 0.5, 1.0)


def data_sets(bench: Bench, rows: int | None) -> Section:
    """Table 1: the data sets, theirs and ours."""
    body = []
    for data in (cut(data, rows) for data in (ELECTRICITY, COVERTYPE, KDD, KDD_HEAD, POKER, POKER_UCI)):
        d, examples, positive = TABLE_1[data.paper]
        share = bench.trivial(data, MAJORITY).positive_share
        theirs = [data.paper, str(d), f"{examples:,}", positive]
        body.append([*theirs, data.title, f"{data.rows:,}", str(data.positive), f"{100 * share:.1f} %"])
    header = ["The paper's", "features", "rows", "positive", "here", "rows", "positive", "share"]
    return Section("table 1", "\n".join(table(header, body)))


def equal_time(bench: Bench, rows: int | None) -> Section:
    """Table 2: EFDT, and FuDyADT at the epsilon that takes as long."""
    body = []
    for data in (cut(data, rows) for data in (*SETS, *LARGE)):
        efdt_s, efdt_f1, our_s, our_f1, epsilon = TABLE_2[data.paper]
        n = TABLE_1[data.paper][1]
        body.append([f"**{_marked(data)}**: paper, EFDT (MOA)", "", f"{efdt_s / n * 1e6:.1f}", f"{efdt_f1:.2f}", ""])
        body.append(["paper, FuDyADT", f"{epsilon:g}", f"{our_s / n * 1e6:.1f}", f"{our_f1:.2f}", ""])
        limits = [("EFDT (MOA) in the paper", 10, efdt_s / n * 1e6)]
        if _has_peers(data):
            grace, efdt = bench.best_peer(data, EFDT)
            body.append([f"here, EFDT (river), grace {grace}", "", *_scores(efdt)])
            limits = [("EFDT (river)", 10, efdt.us), ("EFDT (river)", 5, efdt.us), *limits]
        for name, depth, us in limits:
            tuned, ours = tune(bench, data, us, depth)
            body.append([f"here, raydt, h {depth}, as long as {name}", f"{tuned:g}", *_scores(ours)])
        for depth in (10, 5):
            ours = bench.ours(data, epsilon, depth)
            body.append([f"here, raydt, h {depth}, the paper's epsilon", f"{epsilon:g}", *_scores(ours)])
        body += [[f"here, {name}", "", "", *_scores(bench.trivial(data, name))[1:]] for name in (NO_CHANGE, MAJORITY)]
    return Section("table 2", "\n".join(table(["", "epsilon", "us per update", "F1", "accuracy"], body)))


def grace_periods(bench: Bench, rows: int | None) -> Section:
    """Table 3: the grace periods of best F1."""
    body = []
    for data in (cut(data, rows) for data in SETS):
        for name, paper in zip((HAT, EFDT), TABLE_3[data.paper], strict=True):
            f1 = [percent(bench.peer(data, name, grace).f1) for grace in GRACE_PERIODS]
            body.append([f"{_marked(data)}, {name}", str(paper), str(bench.best_peer(data, name)[0]), *f1])
    header = ["", "best in the paper", "best here", *(f"F1 here at {grace}" for grace in GRACE_PERIODS)]
    return Section("table 3", "\n".join(table(header, body)))


def times(bench: Bench, rows: int | None) -> Section:
    """Table 4: seconds for the whole stream at epsilon 0.5."""
    body = []
    for data in (cut(data, rows) for data in (*SETS, *LARGE)):
        paper = [f"{seconds:.2f}" for seconds in TABLE_4[data.paper]]
        trees = [bench.ours(data, FIXED, depth) for depth in (10, 5)]
        peers = _peers(bench, data)
        here = [f"{m.cpu_seconds:.2f}" if m else "-" for m in (*peers, *trees)]
        per_update = [f"{m.us:.1f}" if m else "-" for m in (*peers, *trees)]
        body.append([_marked(data), *paper, *here])
        body.append(["us per update", *_per_update(data), *per_update])
    header = ["Seconds", "paper: HAT", "EFDT", "FuDyADT", "here: HAT", "EFDT", "raydt, h 10", "h 5"]
    return Section("table 4", "\n".join(table(header, body)))


def f1_scores(bench: Bench, rows: int | None) -> Section:
    """Table 5: F1 at epsilon 0.5."""
    body = []
    for data in (cut(data, rows) for data in (*SETS, *LARGE)):
        paper = [f"{f1:.2f}" for f1 in TABLE_5[data.paper]]
        trees = [bench.ours(data, FIXED, depth) for depth in (10, 5)]
        everyone = [*_peers(bench, data), *trees, *(bench.trivial(data, name) for name in (NO_CHANGE, MAJORITY))]
        body.append([_marked(data), *paper, *(percent(m.f1) if m else "-" for m in everyone)])
        if data.file == ELECTRICITY.file:
            body.append(["the same, UP positive", "", "", "", *(percent(m.f1_rest) if m else "-" for m in everyone)])
    header = ["F1", "paper: HAT", "EFDT", "FuDyADT", "here: HAT", "EFDT", "raydt, h 10", "h 5", "no-change", "majority"]
    return Section("table 5", "\n".join(table(header, body)))


def accuracy(bench: Bench, rows: int | None) -> Section:
    """Accuracy on Electricity by window and epsilon, h = 10; not in the paper."""
    data = cut(ELECTRICITY, rows)
    body, best = [], (0.0, 0, 0.0)
    for window in GRID_WINDOWS:
        ours = [bench.ours(data, e, 10, SLIDING_WINDOW, window).accuracy for e in GRID_EPSILONS]
        best = max(best, *((a, window, e) for a, e in zip(ours, GRID_EPSILONS, strict=True)))
        others = [bench.best_peer(data, name, window)[1] for name in (EFDT, HAT)]
        others += [bench.trivial(data, name, window) for name in (NO_CHANGE, MAJORITY)]
        body.append([str(window), *(f"{a:.4f}" for a in ours), *(f"{m.accuracy:.4f}" for m in others)])
    header = ["Window; epsilon", *(f"{e:g}" for e in GRID_EPSILONS), "EFDT", "HAT", "no-change", "majority"]
    highest, window, epsilon = best
    no_change = bench.trivial(data, NO_CHANGE, window).accuracy
    text = f"Best: {highest:.4f} with window {window}, epsilon {epsilon:g}; no-change on the same rows {no_change:.4f}."
    return Section("accuracy", "\n".join([*table(header, body), "", text]))


def percent(value: float) -> str:
    """A fraction in per cent."""
    return f"{100 * value:.2f}"


def _scores(m: Measurement) -> list[str]:
    return [f"{m.us:.1f}", percent(m.f1), percent(m.accuracy)]


def _marked(data: DataSet) -> str:
    return data.title if data.same else f"{data.title} †"


def _has_peers(data: DataSet) -> bool:
    return data.title not in {large.title for large in LARGE}


def _peers(bench: Bench, data: DataSet) -> list[Measurement | None]:
    """HAT and EFDT at their best, if they ran."""
    if not _has_peers(data):
        return [None, None]
    return [bench.best_peer(data, name)[1] for name in (HAT, EFDT)]


def _per_update(data: DataSet) -> list[str]:
    return [f"{seconds / TABLE_1[data.paper][1] * 1e6:.1f}" for seconds in TABLE_4[data.paper]]
