"""Amortised cost of FuDyADT against n, d, epsilon and the number of distinct values, beside its theorem's shape.

A stream makes n insertions and then n replacements (delete a random example, insert a new one): 3n updates in
batches of 4,096, in process, on one core, without warm-up. Rebuilt rows per update depend on nothing but the stream;
CPU time is that of ``session.apply``, measured once. Label: x_0 + x_1 > 1, with a tenth of the labels drawn at random;
alpha = beta = 0 and depth 10 at most, as in the paper's experiments. One setting varies at a time. The tables go into
``docs/development/results/amortised-cost.md``, between its two markers. Takes about two minutes of one idle core.
Run: python benchmarks/amortised_cost.py [document]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil, log2
from pathlib import Path

import numpy as np
from harness import machine

from raydt.examples.updates import DELETE, INSERT, Features, UpdateBatch
from raydt.learners import learners
from raydt.learners.base import WorkPlan
from raydt.sessions.session import InProcessSession, compile_kernels

LEARNER = learners()["fudyadt"]
BATCH = 4096
BEGIN, END = "<!-- written by benchmarks/amortised_cost.py from here -->", "<!-- to here -->"
DOCUMENT = Path(__file__).parents[1] / "docs" / "development" / "results" / "amortised-cost.md"


@dataclass(frozen=True)
class Setting:
    """``values``: distinct values of each feature, 0 for as many as rows. ``depth``: the limit, None for no limit."""

    n: int = 100_000
    d: int = 8
    epsilon: float = 0.1
    values: int = 0
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


@dataclass(frozen=True)
class Cost:
    """``height``: of the tree at the end."""

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
    if setting.values:
        X = np.floor(X * setting.values)
    op = np.concatenate([np.full(n, INSERT), np.tile([DELETE, INSERT], n)]).astype(np.int8)
    key = np.concatenate([np.arange(n), np.column_stack([rng.permutation(n), np.arange(n, 2 * n)]).ravel()])
    batches = []
    for begin in range(0, len(op), BATCH):
        ops, ids = op[begin : begin + BATCH], key[begin : begin + BATCH]
        rows = ids[ops == INSERT]
        batches.append(UpdateBatch(begin, ops, ids, X[rows], y[rows], 2, np.full(len(ops), -1)))
    return batches


def measure(setting: Setting) -> Cost:
    options = LEARNER.Options(epsilon=setting.epsilon, alpha=0, beta=0, max_depth=setting.depth)
    features = Features(tuple(f"x{j}" for j in range(setting.d)), (False,) * setting.d)
    session = InProcessSession(LEARNER, options, features, 1, WorkPlan(2**62))
    busy = 0.0
    for batch in stream(setting):
        began = time.process_time()
        session.apply(batch)
        busy += time.process_time() - began
    updates = 3 * setting.n
    end = session.statistics()
    cost = Cost(setting, busy / updates * 1e6, end["rebuilt_rows"] / updates, end["depth"])
    print(f"{setting}: {cost.micros:.2f} us and {cost.rows:.2f} rows per update", file=sys.stderr)
    return cost


def slope(x: list[float], y: list[float]) -> float:
    """Of the line through the logarithms."""
    return float(round(np.polyfit(np.log(x), np.log(y), 1)[0], 2)) + 0.0


def table(title: str, head: str, costs: list[Cost], x: Callable[[Setting], float]) -> str:
    """One sweep as Markdown."""
    lines = [
        f"### {title}",
        "",
        f"| {head} | height | us per update | rebuilt rows per update | at most | share | ns per rebuilt row "
        "and feature |",
        "|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for cost in costs:
        s = cost.setting
        each = cost.micros * 1e3 / (cost.rows * s.d)
        lines.append(
            f"| {f'{x(s):,}'.removesuffix('.0')} | {cost.height} | {cost.micros:.2f} | {cost.rows:.2f} "
            f"| {s.most_rows:.0f} | {cost.rows / s.most_rows:.1%} | {each:.0f} |"
        )
    at = [x(cost.setting) for cost in costs]
    measured = slope(at, [cost.micros for cost in costs]), slope(at, [cost.rows for cost in costs])
    bound = slope(at, [cost.shape for cost in costs]), slope(at, [cost.setting.most_rows for cost in costs])
    lines += [
        "",
        f"Slopes, log-log: time {measured[0]:+.2f} (theorem's shape {bound[0]:+.2f}), "
        f"rows {measured[1]:+.2f} (bound {bound[1]:+.2f}).",
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    document = Path(sys.argv[1]) if len(sys.argv) > 1 else DOCUMENT
    compile_kernels(LEARNER)
    base = Setting()
    measured: dict[Setting, Cost] = {}

    def sweep(settings: list[Setting]) -> list[Cost]:
        for setting in settings:
            if setting not in measured:
                measured[setting] = measure(setting)
        return [measured[setting] for setting in settings]

    by_n = sweep([replace(base, n=n) for n in (1_000, 10_000, 100_000, 1_000_000)])
    by_n_unlimited = sweep([replace(base, n=n, depth=None) for n in (1_000, 10_000, 100_000)])
    by_d = sweep([replace(base, n=20_000, d=d) for d in (1, 2, 4, 8, 16, 32, 64, 128)])
    by_epsilon = sweep([replace(base, epsilon=e) for e in (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)])
    by_values = sweep([replace(base, values=v) for v in (2, 16, 256, 0)])
    parts = [
        f"{machine()}; {time.process_time():.0f} s of CPU time in all.",
        "",
        table("Rows n (d = 8, epsilon = 0.1, all values distinct)", "n", by_n, lambda s: s.n),
        table("Rows n, no limit on depth", "n", by_n_unlimited, lambda s: s.n),
        table("Features d (n = 20,000, epsilon = 0.1, all values distinct)", "d", by_d, lambda s: s.d),
        table("Epsilon (n = 100,000, d = 8, all values distinct)", "epsilon", by_epsilon, lambda s: s.epsilon),
        table(
            "Distinct values of each feature (n = 100,000, d = 8, epsilon = 0.1)",
            "values",
            by_values,
            lambda s: s.values or s.n,
        ),
    ]
    print("\n".join(parts))
    before, rest = document.read_text(encoding="utf-8").split(BEGIN)
    after = rest.split(END)[1]
    document.write_text(f"{before}{BEGIN}\n\n" + "\n".join(parts) + f"\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
