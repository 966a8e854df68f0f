"""Tables 1 to 5 and Figures 1 to 5 of the FuDyADT paper.

Rows marked with a dagger are not the paper's: their F1 must not be compared with it. Figures: 1 and 3 sliding windows
(F1 and time), 2 and 4 random updates (time, F1), 5 random updates (both). Published figures: Bressan, Damay, Sozio,
Fully-Dynamic Decision Trees (December 2022); keys are the names the paper uses, F1 in per cent, times in seconds.
"""

import math
from typing import NamedTuple

import paper.bench as kit
from harness import Panel, Section, Style, svg, table
from paper.bench import Bench, DataSet, Measurement

#: By the name of the paper's data set. Table 1: features, examples, positive class. Table 2: seconds and F1 of EFDT,
#: seconds and F1 of FuDyADT, its epsilon. Table 3: grace period of best F1 of HAT and of EFDT. Tables 4 and 5: seconds
#: and F1 of HAT, EFDT and FuDyADT (epsilon 0.5), insert-only.
NAMES = ("Electricity", "Forest Covertypes", "KDDCUP99", "NOAA Weather", "Poker")
TABLE_1, TABLE_2, TABLE_3, TABLE_4, TABLE_5 = (
    dict(zip(NAMES, rows, strict=True))
    for rows in (
        ((8, 45_311, "UP"), (54, 581_011, "2"), (41, 494_021, "smurf"), (8, 18_159, "1"), (10, 829_201, "0")),
        (
            (1.65, 83.64, 1.53, 90.33, 0.15), (42.47, 83.64, 42.37, 90.33, 0.29),
            (17.72, 97.98, 17.43, 99.91, 0.17), (0.73, 80.78, 0.73, 81.43, 0.36), (16.26, 79.69, 16.14, 86.07, 1.03),
        ),
        ((1000, 500), (1000, 100), (1000, 500), (1000, 500), (500, 100)),
        ((2.06, 1.65, 0.76), (39.95, 42.47, 30.78), (18.28, 17.72, 10.49), (0.82, 0.73, 0.66), (16.78, 16.26, 36.41)),
        (
            (70.81, 72.05, 82.12), (84.30, 83.64, 90.37),
            (99.97, 97.98, 99.91), (80.58, 80.78, 81.92), (67.93, 79.69, 88.34),
        ),
    )
)  # fmt: skip


#: Data sets on which the peers ran too, and those of so many rows that the peers would take too long.
SETS = (kit.ELECTRICITY, kit.COVERTYPE, kit.NOAA, kit.KDD_HEAD, kit.POKER_UCI)
LARGE = (kit.KDD, kit.POKER)
#: The trivial predictors.
TRIVIAL = (kit.NO_CHANGE, kit.MAJORITY)
#: Epsilon of Tables 4 and 5; windows and epsilons of the grid; epsilons of the figures.
FIXED = 0.5
EPSILONS = (0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0)
#: Largest epsilon of Table 2; share of the peer's time that is near enough; trials; examples before random updates.
LARGEST, CLOSE, TRIALS, START = 2.0, 0.93, 8, 1000


def tune(bench: Bench, data: DataSet, target_us: float, max_depth: int) -> tuple[float, Measurement]:
    """Epsilon to two digits and its measurement, insert-only; 2 if even that takes longer than ``target_us``.

    Time is about inversely proportional to epsilon, which gives the next trial; where that leaves the bracket of a
    too slow and a fast enough epsilon, their geometric mean does. An epsilon below 1 / rows rebuilds at every update,
    as 0 does, so that 0 is tried in its place.
    """
    slow, fast, epsilon = 0.0, LARGEST, 0.5
    for _ in range(TRIALS):
        us = bench.ours(data, epsilon, max_depth).us
        if us > target_us:
            slow = max(epsilon, 1 / data.rows)
        else:
            fast = epsilon
            if epsilon == 0 or us >= CLOSE * target_us:
                break
        trial = epsilon * us / (0.97 * target_us)
        if not slow < trial < fast:
            trial = math.sqrt(slow * fast) if slow else fast / 2
        epsilon = float(f"{trial:.2g}") if trial * data.rows >= 1 else 0.0
        if epsilon == fast or 0 < epsilon <= slow:
            break
    return fast, bench.ours(data, fast, max_depth)


def data_sets(bench: Bench, rows: int | None) -> Section:
    body = []
    for data in (
        kit.cut(data, rows)
        for data in (kit.ELECTRICITY, kit.COVERTYPE, kit.KDD, kit.KDD_HEAD, kit.NOAA, kit.POKER, kit.POKER_UCI)
    ):
        d, examples, positive = TABLE_1[data.paper]
        share = bench.trivial(data, kit.MAJORITY).positive_share
        theirs = [data.paper, str(d), f"{examples:,}", positive]
        body.append([*theirs, data.title, f"{data.rows:,}", str(data.positive), f"{100 * share:.1f} %"])
    header = ["The paper's", "features", "rows", "positive", "here", "rows", "positive", "share"]
    return Section("table 1", "\n".join(table(header, body)))


def equal_time(bench: Bench, rows: int | None) -> Section:
    """Table 2: EFDT, and FuDyADT (h = 10) at the epsilon that takes as long; of stand-ins beside river's EFDT alone."""
    body = []
    for data in (kit.cut(data, rows) for data in (*SETS, *LARGE)):
        efdt_s, efdt_f1, our_s, our_f1, epsilon = TABLE_2[data.paper]
        n = TABLE_1[data.paper][1]
        part = [["paper, EFDT (MOA)", "", f"{efdt_s / n * 1e6:.1f}", f"{efdt_f1:.2f}", ""]]
        part.append(["paper, FuDyADT", f"{epsilon:g}", f"{our_s / n * 1e6:.1f}", f"{our_f1:.2f}", ""])
        limits, standing_in = [("EFDT (MOA) in the paper", efdt_s / n * 1e6)], _marked(data).endswith("†")
        if data.title not in {large.title for large in LARGE}:
            grace, efdt = bench.best_peer(data, kit.EFDT)
            part = [*([] if standing_in else part), [f"here, EFDT (river), grace {grace}", "", *_scores(efdt)]]
            limits = [("EFDT (river)", efdt.us), *([] if standing_in else limits)]
        for name, us in limits:
            tuned, ours = tune(bench, data, us, 10)
            part.append([f"here, raydt, as long as {name}", f"{tuned:g}", *_scores(ours)])
        if not standing_in:
            part.append(["here, raydt, the paper's epsilon", f"{epsilon:g}", *_scores(bench.ours(data, epsilon, 10))])
        part += [[f"here, {name}", "", "", *_scores(bench.trivial(data, name))[1:]] for name in TRIVIAL]
        part[0][0] = f"**{_marked(data)}**: {part[0][0]}"
        body += part
    return Section("table 2", "\n".join(table(["", "epsilon", "us per update", "F1", "accuracy"], body)))


def grace_periods(bench: Bench, rows: int | None) -> Section:
    body = []
    for data in (kit.cut(data, rows) for data in SETS):
        for name, paper in zip((kit.HAT, kit.EFDT), TABLE_3[data.paper], strict=True):
            f1 = [percent(bench.peer(data, name, grace).f1) for grace in kit.GRACE_PERIODS]
            best, majority = bench.best_peer(data, name)[0], percent(bench.trivial(data, kit.MAJORITY).f1)
            body.append([f"{_marked(data)}, {name}", str(paper), str(best), *f1, majority])
    header = ["", "best in the paper", "best here", *(f"F1 here at {grace}" for grace in kit.GRACE_PERIODS), "majority"]
    return Section("table 3", "\n".join(table(header, body)))


def times(bench: Bench, rows: int | None) -> Section:
    """Table 4, in microseconds per update."""
    body = []
    for data in (kit.cut(data, rows) for data in (*SETS, *LARGE)):
        paper = [f"{seconds / TABLE_1[data.paper][1] * 1e6:.1f}" for seconds in TABLE_4[data.paper]]
        body.append([_marked(data), *paper, *(f"{m.us:.1f}" if m else "-" for m in _insert_only(bench, data))])
    header = ["us per update", "paper: HAT", "EFDT", "FuDyADT", "here: HAT", "EFDT", "raydt, h 10", "h 5"]
    return Section("table 4", "\n".join(table(header, body)))


def f1_scores(bench: Bench, rows: int | None) -> Section:
    body = []
    for data in (kit.cut(data, rows) for data in (*SETS, *LARGE)):
        everyone = [*_insert_only(bench, data), *(bench.trivial(data, name) for name in TRIVIAL)]
        paper = [f"{f1:.2f}" for f1 in TABLE_5[data.paper]]
        body.append([_marked(data), *paper, *(percent(m.f1) if m else "-" for m in everyone)])
        if data.file == kit.ELECTRICITY.file:
            body.append(["the same, UP positive", "", "", "", *(percent(m.f1_rest) if m else "-" for m in everyone)])
    header = ["F1", "paper: HAT", "EFDT", "FuDyADT", "here: HAT", "EFDT", "raydt, h 10", "h 5", "no-change", "majority"]
    return Section("table 5", "\n".join(table(header, body)))


#: What the paper may have done on Poker: words, data, depth (60: no limit), stream, and rows that are not scored.
POKER_CARDS = tuple(f"{kind}{card}" for card in range(1, 6) for kind in "sr")
POKER_VARIANTS = (
    ("insert-only", kit.POKER, 10, kit.INCREMENTAL, 0),
    *((f"insert-only, h {depth}", kit.POKER, depth, kit.INCREMENTAL, 0) for depth in (14, 16, 20, 60)),
    ("insert-only, the first 1,000 rows at once", kit.POKER, 10, kit.INCREMENTAL, 1000),
    (
        "insert-only, suits and ranks as categories",
        kit.POKER._replace(title="Poker, categories", categorical=POKER_CARDS), 10, kit.INCREMENTAL, 0,
    ),
    (
        "insert-only, all ten classes",
        kit.POKER._replace(title="Poker, ten classes", binary=False), 10, kit.INCREMENTAL, 0,
    ),
    *((f"window {size:,}", kit.POKER, 10, kit.SLIDING_WINDOW, size) for size in (100, 1000, 2800, 3000, 5000)),
    ("random updates from 1,000 rows", kit.POKER, 10, kit.RANDOM_UPDATES, 1000),
)  # fmt: skip


def poker(bench: Bench, rows: int | None) -> Section:
    """F1 on Poker at the epsilons of Tables 5 and 2, by what the paper may have done."""
    first, second = TABLE_5["Poker"][2], TABLE_2["Poker"][3]
    small, large = FIXED, TABLE_2["Poker"][4]
    body = [["**the paper**", f"{first:.2f}", f"{second:.2f}", f"{second - first:+.2f}", "", ""]]
    for words, data, depth, stream, window in POKER_VARIANTS:
        if rows is None or window < rows:
            one, other = (bench.ours(kit.cut(data, rows), eps, depth, stream, window) for eps in (small, large))
            cells = [percent(one.f1), percent(other.f1), f"{100 * (other.f1 - one.f1):+.2f}"]
            body.append([words, *cells, percent(one.f1_rest), percent(one.accuracy)])
    for name in TRIVIAL:
        m = bench.trivial(kit.cut(kit.POKER, rows), name)
        body.append([name, percent(m.f1), "", "", percent(m.f1_rest), percent(m.accuracy)])
    header = ["h 10 but where it says", f"F1, epsilon {small:g}", f"F1, epsilon {large:g}", "difference"]
    return Section("poker", "\n".join(table([*header, "F1 of the rest, 0.5", "accuracy, 0.5"], body)))


def percent(value: float) -> str:
    return f"{100 * value:.2f}"


def _scores(m: Measurement) -> list[str]:
    return [f"{m.us:.1f}", percent(m.f1), percent(m.accuracy)]


def _marked(data: DataSet) -> str:
    return data.title if data.same else f"{data.title} †"


def _insert_only(bench: Bench, data: DataSet) -> list[Measurement | None]:
    """Return HAT and EFDT (None where they would take too long), and FuDyADT of depth 10 and 5 at epsilon 0.5."""
    large = data.title in {one.title for one in LARGE}
    peers = [None if large else bench.best_peer(data, name)[1] for name in (kit.HAT, kit.EFDT)]
    return [*peers, *(bench.ours(data, FIXED, depth) for depth in (10, 5))]


STYLES = {
    f"{window}h {h}": Style(colour, dash)
    for window, colour in (("window 100, ", "#1f77b4"), ("window 1000, ", "#d95f02"), ("", "#d95f02"))
    for h, dash in ((10, "-"), (5, "--"))
} | {
    "EFDT, insert-only": Style("#2ca02c", "-."), "HAT, insert-only": Style("#9467bd", "-."),
    "no-change": Style("#777777"), "majority": Style("#777777", ":"),
}  # fmt: skip


class Figure(NamedTuple):
    number: int
    stream: str
    data: tuple[DataSet, ...]
    f1: bool = True
    time: bool = True


FIGURES = (
    Figure(1, kit.SLIDING_WINDOW, (kit.ELECTRICITY, kit.POKER_UCI)),
    Figure(2, kit.RANDOM_UPDATES, (kit.ELECTRICITY, kit.POKER_UCI), f1=False),
    Figure(3, kit.SLIDING_WINDOW, (kit.COVERTYPE, kit.KDD_HEAD)),
    Figure(4, kit.RANDOM_UPDATES, (kit.ELECTRICITY, kit.POKER_UCI), time=False),
    Figure(5, kit.RANDOM_UPDATES, (kit.COVERTYPE, kit.KDD_HEAD)),
)


def figures(bench: Bench, rows: int | None) -> Section:
    """Figures 1 to 5 as charts, and one table of what the paper's text takes from them."""
    told = "roughly 10", "about 1000 times", "close", "about 0.5 ms"
    body = [["**The paper's text** (Electricity and Poker, windows)", *told]]
    pictures = {}
    for figure in FIGURES:
        curves = {data: _curves(bench, data, figure.stream) for data in (kit.cut(data, rows) for data in figure.data)}
        pictures[f"figure-{figure.number}.svg"] = draw(bench, figure, curves)
        body += _claims(figure, curves) if figure.time else []
    header = ["h 10", "F1 lost, epsilon 0 to 1", "time saved, 0 to 1", "F1 lost, 0 to 0.1", "time per update at 0.1"]
    return Section("figures", "\n".join(table(header, body)), pictures)


def draw(bench: Bench, figure: Figure, curves: dict[DataSet, dict[str, dict[float, Measurement]]]) -> str:
    grid = []
    for name, is_f1 in [("F1", True)] * figure.f1 + [("us per update", False)] * figure.time:
        panels = []
        for data in curves:
            lines = {label: [(e, m.f1 if is_f1 else m.us) for e, m in c.items()] for label, c in curves[data].items()}
            levels = {k: m.f1 for k, m in _others(bench, data, START).items()} if is_f1 else {}
            panels.append(Panel(f"{data.title}: {name}", lines, levels, log=not is_f1))
        grid.append(panels)
    return svg(grid, STYLES)


def _curves(bench: Bench, data: DataSet, stream: str) -> dict[str, dict[float, Measurement]]:
    curves = {}
    for window in (100, 1000) if stream == kit.SLIDING_WINDOW else (START,):
        for depth in (10, 5):
            label = f"window {window}, h {depth}" if stream == kit.SLIDING_WINDOW else f"h {depth}"
            curves[label] = {e: bench.ours(data, e, depth, stream, window) for e in EPSILONS}
    return curves


def _others(bench: Bench, data: DataSet, window: int) -> dict[str, Measurement]:
    peers = {f"{name}, insert-only": bench.best_peer(data, name, window)[1] for name in (kit.EFDT, kit.HAT)}
    return peers | {name: bench.trivial(data, name, window) for name in TRIVIAL}


def _claims(figure: Figure, curves: dict[DataSet, dict[str, dict[float, Measurement]]]) -> list[list[str]]:
    """Return the numbers that the text takes from a figure: from epsilon 0 to 1, and at 0.1."""
    body = []
    for data, lines in curves.items():
        for label, curve in lines.items():
            if label.endswith("h 10"):
                zero, small, one = curve[0.0], curve[0.1], curve[1.0]
                lost, saved = 100 * (zero.f1 - one.f1), zero.us / one.us
                cells = [f"{lost:.1f}", f"{saved:.0f} times", f"{100 * (zero.f1 - small.f1):.1f}"]
                words = f"{figure.number}: {data.title}, {label.removesuffix('h 10').strip(', ') or 'random updates'}"
                body.append([words, *cells, f"{small.us / 1000:.4f} ms"])
    return body
