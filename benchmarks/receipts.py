"""What a receipt costs: ``forget`` with digests and without, by turns, and LightGBM trained again.

    python benchmarks/receipts.py [--rows 1000000] [--calls 20] [--skip-peer]

CPU time of this process, medians of the calls. The model has made its first digest before, which takes a pass over all
rows and is shown, too. LightGBM has one thread and the same settings; it is trained on all rows but one, as anybody
must who deletes a row from it.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from harness import machine

import raydt


def cpu(call: Callable[[], Any]) -> float:
    """CPU milliseconds of a call."""
    began = time.process_time()
    call()
    return (time.process_time() - began) * 1e3


def compare(name: str, model: Any, ids: Any, calls: int, each: int) -> float:
    """Delete ``each`` ids in every call, with digests and without by turns; returns the time with, in ms."""
    ids = iter(np.array_split(ids[: 2 * calls * each], 2 * calls))
    model.digest()
    for digests in (True, False):  # what is compiled or allocated once
        model.forget(next(ids)[:1], digests=digests)
        model.digest()
    with_, without = [], []
    for _ in range(calls - 1):
        without.append(cpu(lambda: model.forget(next(ids), digests=False)))
        model.digest()  # belongs to the deletion that has none
        with_.append(cpu(lambda: model.forget(next(ids))))
    a, b = statistics.median(with_), statistics.median(without)
    print(f"| {name} | {each:,} | {a:.2f} | {b:.2f} | {a / b:.2f} |", flush=True)
    return a


def rows(n: int, d: int, seed: int = 0) -> tuple[Any, Any]:
    """Numeric features, and labels with noise."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, ((X[:, 0] + X[:, 1] * X[:, 2] + 0.5 * rng.normal(size=n)) > 0).astype(int)


def credit(calls: int) -> None:
    """CreditInfo: our deletion of a row with its receipt, and LightGBM without that row."""
    import lightgbm
    from gbdt.data import load

    split = load("givemesomecredit")
    model = raydt.OnlineGradientBoostingClassifier().fit(split.X, split.y)
    ours = compare("GBDT, CreditInfo", model, np.arange(len(split.y)), calls, 1)
    settings = {"n_estimators": 100, "num_leaves": 20, "n_jobs": 1, "verbose": -1}
    theirs = min(cpu(lambda: lightgbm.LGBMClassifier(**settings).fit(split.X[1:], split.y[1:])) for _ in range(3))
    print(f"\nLightGBM trained without one row of CreditInfo: {theirs:,.0f} ms, {theirs / ours:.1f} times our forget")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--calls", type=int, default=20)
    parser.add_argument("--skip-peer", action="store_true")
    given = parser.parse_args()
    print(f"{machine()}\n\n| Model | Ids | With receipt, ms | Without, ms | Ratio |\n|---|---|---|---|---|")
    X, y = rows(given.rows, 5)
    tree = raydt.FullyDynamicTreeClassifier().fit(X, y)
    first = cpu(tree.digest)
    order = np.random.default_rng(1).permutation(given.rows)
    compare(f"FuDyADT, {given.rows:,} x 5", tree, order, given.calls, 1)
    compare(f"FuDyADT, {given.rows:,} x 5", tree, order[1000:], given.calls // 2, 1000)
    X, y = rows(100_000, 10)
    model = raydt.OnlineGradientBoostingClassifier(max_iter=100).fit(X, y)
    second = cpu(model.digest)
    compare("GBDT, 100,000 x 10", model, np.arange(100_000), given.calls, 1)
    compare("GBDT, 100,000 x 10", model, np.arange(10_000, 100_000), given.calls, 1000)
    print(f"\nFirst digest: FuDyADT {first:.0f} ms, GBDT {second:.0f} ms")
    if not given.skip_peer:
        credit(given.calls)


if __name__ == "__main__":
    main()
