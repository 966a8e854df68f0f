"""What a receipt costs: ``forget`` with digests and without, by turns, and LightGBM trained again.

    python benchmarks/receipts.py [--rows 1000000] [--calls 20] [--skip-peer]

CPU time of this process, medians of the calls. The model has made its first digest before, which takes a pass over all
rows and is shown, too. LightGBM has one thread and the same settings; it is trained on all rows but one, as anybody
must who deletes a row from it.
"""

import statistics
from collections.abc import Callable
from typing import Any

import numpy as np
from harness import DATA, arguments, print_machine, read, show, timed

import raydt


def cpu(call: Callable[[], Any]) -> float:
    """Return the CPU milliseconds of a call."""
    return 1e3 * timed(call)[0]


def compare(name: str, model: Any, ids: Any, calls: int, each: int) -> list[str]:
    """Delete ``each`` ids in every call, with digests and without by turns."""
    parts = iter(np.array_split(ids[: 2 * calls * each], 2 * calls))
    model.digest()
    for digests in (True, False):  # what is compiled or allocated once
        model.forget(next(parts)[:1], digests=digests)
        model.digest()
    with_, without = [], []
    for _ in range(calls - 1):
        without.append(cpu(lambda: model.forget(next(parts), digests=False)))
        model.digest()  # belongs to the deletion that has none
        with_.append(cpu(lambda: model.forget(next(parts))))
    a, b = statistics.median(with_), statistics.median(without)
    return [name, f"{each:,}", f"{a:.2f}", f"{b:.2f}", f"{a / b:.2f}"]


def drawn(n: int, d: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d))
    return X, ((X[:, 0] + X[:, 1] * X[:, 2] + 0.5 * rng.normal(size=n)) > 0).astype(int)


def stored(name: str) -> tuple[Any, Any]:
    """Return a data set of the harness, its texts as columns of 0 and 1, and its labels."""
    import pandas as pd

    frame = read(name).to_pandas()
    texts = [c for c in frame.columns.drop("y") if not pd.api.types.is_numeric_dtype(frame[c])]
    return pd.get_dummies(frame.drop(columns="y"), columns=texts).to_numpy(dtype=np.float64), frame["y"].astype(str)


def credit(calls: int) -> tuple[list[str], float]:
    """CreditInfo: our deletion of a row with its receipt, and milliseconds of LightGBM without that row."""
    import lightgbm
    from gbdt.data import load

    split = load("givemesomecredit")
    model = raydt.OnlineGradientBoostingClassifier().fit(split.X, split.y)
    line = compare("GBDT, CreditInfo", model, np.arange(len(split.y)), calls, 1)
    settings = {"n_estimators": 100, "num_leaves": 20, "n_jobs": 1, "verbose": -1}
    peer = lambda: lightgbm.LGBMClassifier(**settings).fit(split.X[1:], split.y[1:])  # noqa: E731
    return line, min(cpu(peer) for _ in range(3))


if __name__ == "__main__":
    given = arguments(__doc__, rows=1_000_000, calls=20, skip_peer=False)
    print_machine("lightgbm")
    tree = raydt.FullyDynamicTreeClassifier().fit(*drawn(given.rows, 5))
    first, order = cpu(tree.digest), np.random.default_rng(1).permutation(given.rows)
    name = f"FuDyADT, {given.rows:,} x 5"
    lines = [compare(name, tree, order, given.calls, 1), compare(name, tree, order[1000:], given.calls // 2, 1000)]
    boosted = raydt.OnlineGradientBoostingClassifier(max_iter=100).fit(*drawn(100_000, 10))
    second, name = cpu(boosted.digest), "GBDT, 100,000 x 10"
    lines.append(compare(name, boosted, np.arange(100_000), given.calls, 1))
    lines.append(compare(name, boosted, np.arange(10_000, 100_000), given.calls, 1000))
    if (DATA / "letter.parquet").exists():
        letters, name = raydt.OnlineGradientBoostingClassifier().fit(*stored("letter")), "GBDT, Letter"
        lines += [compare(name, letters, order[order < 20_000][20 * each :], given.calls, each) for each in (1, 20)]
    if (DATA / "adult_train.parquet").exists():
        forest, name = (
            raydt.ExactForestClassifier(n_estimators=100).fit(*stored("adult_train")),
            "forest, Adult one-hot",
        )
        lines.append(compare(name, forest, order[order < 32_000], given.calls, 1))
    note = f"First digest: FuDyADT {first:.0f} ms, GBDT {second:.0f} ms."
    if not given.skip_peer:
        line, theirs = credit(given.calls)
        lines.append(line)
        note += f" LightGBM without one row of CreditInfo: {theirs:,.0f} ms, {theirs / float(line[2]):.1f} times."
    show("Receipts", ["Model", "Ids", "With receipt, ms", "Without, ms", "Ratio"], lines, note)
