"""Amortised cost of FuDyADT against n, d and epsilon, beside its theorem's shape.

A stream makes n insertions and then n replacements (delete a random example, insert a new one): 3n updates in
batches of 4,096, in process, on one core, without warm-up. Rebuilt rows per update depend on nothing but the stream;
CPU time is that of ``session.apply``, measured once. Label: x_0 + x_1 > 1, with a tenth of the labels drawn at random;
alpha = beta = 0 and depth 10 at most, as in the paper's experiments. One setting varies at a time. The tables go into
``docs/development/results/amortised-cost.md``, between its two markers. Takes about two minutes of one idle core.
Run: python benchmarks/amortised_cost.py [--document FILE] [--most ROWS]
"""

import time
from collections.abc import Callable, Sequence
from math import ceil, log2
from typing import Any, NamedTuple

import numpy as np
from harness import PAGES, arguments, machine, progress, session

from raydt.examples.updates import DELETE, INSERT, UpdateBatch
from raydt.learners import learners
from raydt.sessions.session import compile_kernels

BATCH = 4096
BEGIN, END = "<!-- written by benchmarks/amortised_cost.py from here -->", "<!-- to here -->"


class Setting(NamedTuple):
    """``depth``: the limit, None for no limit."""

    n: int = 100_000
    d: int = 8
    epsilon: float = 0.1
    depth: int | None = 10

    @property
    def levels(self) -> int:
        """How often one update can count in the proof of the bound: nodes of a path, or their sizes' powers of two."""
        sizes = ceil(log2(self.n)) + 2
        return sizes if self.depth is None else min(self.depth + 1, sizes)

    @property
    def most_rows(self) -> float:
        """Rows per update that rebuilds can have at most (docs/explanation/guarantees.md, "What it costs")."""
        return (2 / self.epsilon + 1) * self.levels


class Cost(NamedTuple):
    setting: Setting
    micros: float
    rows: float
    height: int

    @property
    def shape(self) -> float:
        """The bound's time per update up to a constant: its rows, times d (height + log n) for a row of BUILD."""
        return self.setting.most_rows * self.setting.d * (self.height + log2(self.setting.n))


def stream(setting: Setting) -> list[UpdateBatch]:
    n, d, rng = setting.n, setting.d, np.random.default_rng(setting.n + setting.d)
    X = rng.random((2 * n, d))
    y = X[:, 0] + X[:, min(1, d - 1)] > 1
    y = np.where(rng.random(2 * n) < 0.1, rng.random(2 * n) < 0.5, y).astype(np.int32)
    op = np.concatenate([np.full(n, INSERT), np.tile([DELETE, INSERT], n)]).astype(np.int8)
    key = np.concatenate([np.arange(n), np.column_stack([rng.permutation(n), np.arange(n, 2 * n)]).ravel()])
    batches = []
    for begin in range(0, len(op), BATCH):
        ops, ids = op[begin : begin + BATCH], key[begin : begin + BATCH]
        rows = ids[ops == INSERT]
        batches.append(UpdateBatch(begin, ops, ids, X[rows], y[rows], 2, np.full(len(ops), -1)))
    return batches


def measure(setting: Setting) -> Cost:
    options = {"epsilon": setting.epsilon, "alpha": 0, "beta": 0, "max_depth": setting.depth}
    running, busy, updates = session("fudyadt", setting.d, **options), 0.0, 3 * setting.n
    for batch in stream(setting):
        began = time.process_time()
        running.apply(batch)
        busy += time.process_time() - began
    end = running.statistics()
    cost = Cost(setting, busy / updates * 1e6, end["rebuilt_rows"] / updates, end["depth"])
    progress(f"{setting}: {cost.micros:.2f} us and {cost.rows:.2f} rows per update")
    return cost


def slope(x: Sequence[float], y: Sequence[float]) -> float:
    return float(round(np.polyfit(np.log(x), np.log(y), 1)[0], 2)) + 0.0


def table(title: str, head: str, costs: list[Cost], x: Callable[[Setting], float]) -> str:
    columns = "height | us per update | rebuilt rows per update | ns per rebuilt row and feature |"
    lines = [f"### {title}", "", f"| {head} | {columns}", "|---:|---:|---:|---:|---:|"]
    for cost in costs:
        s = cost.setting
        each = cost.micros * 1e3 / (cost.rows * s.d)
        lines.append(
            f"| {f'{x(s):,}'.removesuffix('.0')} | {cost.height} | {cost.micros:.2f} | {cost.rows:.2f} | {each:.0f} |"
        )
    at = [x(cost.setting) for cost in costs]
    time, shape = (slope(at, [getattr(cost, name) for cost in costs]) for name in ("micros", "shape"))
    rows, bound = slope(at, [cost.rows for cost in costs]), slope(at, [cost.setting.most_rows for cost in costs])
    told = f"time {time:+.2f} (theorem's shape {shape:+.2f}), rows {rows:+.2f} (bound {bound:+.2f})"
    return "\n".join([*lines, "", f"Slopes, log-log: {told}.", ""])


#: Title, first column, settings, and the value of a setting in the first column.
TABLES: tuple[tuple[str, str, list[Setting], Callable[[Setting], Any]], ...] = (
    (
        "Rows n (d = 8, epsilon = 0.1)", "n",
        [Setting(n=n) for n in (1_000, 10_000, 100_000, 1_000_000)], lambda s: s.n,
    ),
    ("Rows n, no limit on depth", "n", [Setting(n=n, depth=None) for n in (1_000, 10_000, 100_000)], lambda s: s.n),
    (
        "Features d (n = 20,000, epsilon = 0.1)", "d",
        [Setting(n=20_000, d=d) for d in (1, 2, 4, 8, 16, 32, 64, 128)], lambda s: s.d,
    ),
    (
        "Epsilon (n = 100,000, d = 8)", "epsilon",
        [Setting(epsilon=e) for e in (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)], lambda s: s.epsilon,
    ),
)  # fmt: skip


if __name__ == "__main__":
    given = arguments(__doc__, document=PAGES / "amortised-cost.md", most=10**9)
    compile_kernels(learners()["fudyadt"])
    wanted = {s: s._replace(n=min(s.n, given.most)) for _, _, settings, _ in TABLES for s in settings}
    costs = {setting: measure(small) for setting, small in wanted.items()}
    parts = [table(title, head, [costs[s] for s in settings], x) for title, head, settings, x in TABLES]
    parts = [f"{machine()}; {time.process_time():.0f} s of CPU time in all.", "", *parts]
    print("\n".join(parts))
    before, rest = given.document.read_text(encoding="utf-8").split(BEGIN)
    after = rest.split(END)[1]
    given.document.write_text(f"{before}{BEGIN}\n\n" + "\n".join(parts) + f"\n{END}{after}", encoding="utf-8")
