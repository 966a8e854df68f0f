"""Sparse best splits beside the scan: time, filled buckets and memory by dimension, alpha, rows and density."""

from __future__ import annotations

import statistics

import numpy as np
from harness import Panel, Request, Style, progress, show
from sparse.data import ALPHA, CONTESTANTS, OPPONENT, SETS, Steps, compare, in_turns, new, real, sparse, take, window

from raydt.learners.best_split.options import BestSplitOptions

STYLES = {"UPDGINI": Style("#1b6ca8"), "UPDENT": Style("#c0392b")}
STYLES |= {"scan, Gini": Style("#1b6ca8", "--"), "scan, entropy": Style("#c0392b", "--")}
#: Features and rows of the default stream; parts of it that are timed each.
FEATURES, ROWS, PARTS = 10_000, 10_000, 20


def speed(request: Request) -> None:
    """The paper's default stream, sparse(10000, 10, 10000, 10/10000), with a query after every update.

    Beside it sliding windows over twice as many rows, which the paper does not have: each row that comes and each that
    goes is an update. The answers of the same run are compared with the scan's.
    """
    times, answers, rows = [], [], sparse(2 * ROWS, 10, FEATURES, 10 / FEATURES)
    streams = {f"{ROWS:,} rows come": sparse(ROWS, 10, FEATURES, 10 / FEATURES)}
    streams |= {f"window of {size:,}": window(rows, size) for size in (2_000, 10_000)}
    for name, steps in streams.items():
        for groups in (1, 16):
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


#: The control: only counters are brought up to date. Where it grows, caches are missed.
COUNTING = "counting"
#: Rows of a turn, of a structure and of a scan; rows before, so that each of a million features had three ones.
DIMENSIONS, DIMENSION_ROWS = (1_000, 10_000, 100_000, 1_000_000), {"structure": 2_000, "scan": 50}
BEFORE = 3 * max(DIMENSIONS) // 10


def measure(d: int, turns: int) -> tuple[int, dict[str, float]]:
    """Features that have an entry, and the CPU seconds per update of each contestant."""
    first = BEFORE
    steps = sparse(first + (turns + 1) * DIMENSION_ROWS["structure"], 10, d, 10 / d)
    finders = {who: new(who, ALPHA) for who in CONTESTANTS} | {COUNTING: new("scan, Gini")}
    for finder in finders.values():
        take(finder, steps.part(0, first), query=False)
    times: dict[str, list[float]] = {who: [] for who in finders}
    begin = dict.fromkeys(finders, first)
    for turn in range(turns + 1):
        for who, finder in finders.items():
            rows = DIMENSION_ROWS["scan" if who in OPPONENT.values() else "structure"]
            seconds = take(finder, steps.part(begin[who], begin[who] + rows), query=who != COUNTING).seconds / rows
            begin[who] += rows
            if turn:
                times[who].append(seconds)
    return finders["UPDGINI"].features, {who: statistics.median(values) for who, values in times.items()}


def dimension(request: Request) -> None:
    """Time per update against the number of features, the ones of a row being as many: of 10 features that matter and
    of d that do not, of which 10 are 1 on average.

    Rows come first, without queries, until most features were seen, since neither contestant touches what was not; the
    same number for every dimension. Then every contestant takes the same further rows with a query after each.
    """
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
    note = f"sparse(n, 10, d, 10/d), alpha {ALPHA}; CPU time per update and its query, after {BEFORE:,} rows without; "
    note += f"median of {request.seeds}. {COUNTING.capitalize()}: the same updates, no structure and no query."
    show("Time per update by dimension", header, rows, note)
    lines = {who: [(float(d), 1e6 * times[who]) for d, times in found.items()] for who in CONTESTANTS}
    request.draw("dimension", [[Panel("microseconds per update", lines, log=True, x="features", log_x=True)]], STYLES)


def alpha(request: Request) -> None:
    """Filled buckets and time against alpha: the paper's Figure 1."""
    steps = sparse(ROWS, 10, FEATURES, 10 / FEATURES)
    rows = []
    buckets: dict[str, list[tuple[float, float]]] = {who: [] for who in OPPONENT}
    times: dict[str, list[tuple[float, float]]] = {who: [] for who in (*OPPONENT, *OPPONENT.values())}
    for alpha in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0):
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
    request.draw("figure-1", [[*panels, Panel("ms, 10,000 rows", times, log=True, x="alpha", log_x=True)]], STYLES)


def points_measure(steps: Steps, parts: int, turns: int) -> tuple[dict[str, list[float]], dict[str, list[int]]]:
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


def points(request: Request) -> None:
    """Time and filled buckets against the number of rows: the paper's Figures 2 and 3."""
    steps = sparse(ROWS, 10, FEATURES, 10 / FEATURES)
    times, buckets = points_measure(steps, PARTS, request.seeds)
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
    request.draw("figures-2-3", [[*panels, Panel("microseconds per row", each_row, log=True, x="rows")]], STYLES)


def density(request: Request) -> None:
    """Time against the number of features and against density, the ones of a row being constant: the paper's Figure 4.

    From the first row on, so that few features have an entry where there are very many.
    """
    rows, lines = [], {who: [] for who in CONTESTANTS}
    by_density: dict[str, list[tuple[float, float]]] = {who: [] for who in CONTESTANTS}
    for d in (100, 300, 1_000, 3_000, 10_000, 30_000, 100_000):
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
    request.draw("figure-4", [[*panels, Panel("ms, 10,000 rows", by_density, x="density", **options)]], STYLES)


def chosen(steps: Steps) -> tuple[str, str]:
    """Seen features for each one of a row in the warm-up, and what ``auto`` chooses by it and Gini."""
    first = steps.part(0, min(1_000, len(steps)))
    seen, ones = len(set(first.feature.tolist())), len(first.feature)
    return f"{seen * len(first) / ones:.0f}", BestSplitOptions(finder="auto").chosen(seen, ones, len(first))


def datasets(request: Request) -> None:
    """Real data, every row in its order, a query after each: the paper's Tables 1, 2 and Figure 5.

    Of the paper's data sets Farm Ads is at hand; Reuters stands in for the other text ones. w8a and a9a are as dense as
    data may be for which ``auto`` chooses the scan.
    """
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
            parts, _ = points_measure(steps, PARTS, 1)
            at = [n * (part + 1) / PARTS for part in range(PARTS)]
            lines = {who: [(x, sum(found[: i + 1])) for i, x in enumerate(at)] for who, found in parts.items()}
            panels.append(Panel(f"{name}: seconds since the first row", lines, x="rows"))
    header = ["data", "rows", "d", "entries", "density", "ones of a row", "entries / ones of a row"]
    header += ["seen / ones in the warm-up", "auto"]
    show("Data (Table 1)", header, about, "auto chooses by the first 1,000 rows; Gini.")
    header = ["data", *(f"{who} s" for who in CONTESTANTS), *(f"{who}: times faster" for who in OPPONENT)]
    note = f"alpha 0.1, a query after every row; CPU seconds, median of {request.seeds}."
    show("Time (Table 2)", header, times, note)
    header = ["data", "", "worst ratio", "worse than the scan", "moves of the tests", "per row"]
    show("Answers of the same run", header, answers, "The ratio may be 1.1.")
    request.draw("figure-5", [panels[i : i + 2] for i in range(0, len(panels), 2)], STYLES)


#: Features, those that were seen, and ones of a row.
MEMORY_FEATURES, SEEN, ONES = 1_000_000, (10_000, 100_000, 1_000_000), 10


def rows_of(seen: int, d: int, seed: int = 0) -> Steps:
    """Rows with ``ONES`` features each, in which ``seen`` of ``d`` features are 1 once."""
    rng = np.random.default_rng(seed)
    feature = rng.choice(d, seen, replace=False).astype(np.int32)
    indptr = np.append(np.arange(0, seen, ONES), seen)
    feature = np.concatenate([np.sort(part) for part in np.split(feature, indptr[1:-1])])
    n = len(indptr) - 1
    return Steps(np.ones(n, dtype=np.int8), rng.integers(0, 2, n, dtype=np.int8), indptr, feature)


def memory_measure(who: str, seen: int, d: int) -> int:
    finder = new(who)
    if seen:
        take(finder, rows_of(seen, d), query=False)
    return finder.nbytes()


def memory(request: Request) -> None:
    """Bytes per feature of a million: of those that were seen, and of those that were not."""
    rows = []
    for who in CONTESTANTS:
        empty = memory_measure(who, 0, MEMORY_FEATURES)
        cells = [who, f"{empty:,}"]
        for seen in SEEN:
            found = memory_measure(who, seen, MEMORY_FEATURES)
            cells += [f"{found / 2**20:.1f}", f"{(found - empty) / seen:.0f}"]
        same = memory_measure(who, SEEN[0], MEMORY_FEATURES) - memory_measure(who, SEEN[0], 2 * SEEN[0])
        rows.append([*cells, f"{same / (MEMORY_FEATURES - 2 * SEEN[0]):.0f}"])
        progress(*rows[-1])
    header = ["", "nothing seen, bytes"]
    header += [text for seen in SEEN for text in (f"{seen:,} seen, MB", "bytes per seen")]
    note = "All arrays of a finder, room to grow included; rows are kept elsewhere."
    show(f"Memory, d = {MEMORY_FEATURES:,}", [*header, "bytes per unseen"], rows, note)
