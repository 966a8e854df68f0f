"""FuDyADT on Electricity, CPU time per update on one core, median of 5.

    python benchmarks/electricity.py efdt | window [--data FOLDER] [--rows N]

``efdt``: insert-only beside river's EFDT (grace 500), with default options and with the paper's epsilon 0.15 and depth
10. A session in this process (what a replay drives, in batches of 4,096) predicts every example by the model as it was
just before, as EFDT does. The estimator, in batches of 1,000, predicts each batch before it learns any of it. Defaults
are proven by the audit, which the last line repeats; epsilon 0.15 is not.

``window``: the first W rows build the tree; then every step deletes the oldest example and inserts one (two updates),
each inserted example being predicted first. The peer is this project's own twin without incremental work: the same
stream with epsilon 0, that is a rebuild after every update.
"""

from typing import Any

import numpy as np
from harness import DATA, arguments, cpu_seconds, electricity, inserts, print_machine, session, show

from raydt import FullyDynamicTreeClassifier
from raydt.examples.updates import UpdateBatch

PAPER = {"alpha": 0.0, "beta": 0.0, "max_depth": 10}


def beside_efdt(X: Any, y: Any) -> None:
    n, predicted = len(y), np.zeros(len(y), dtype=np.int32)

    def in_session(**options: float) -> None:
        running = session("fudyadt", X.shape[1], **options)
        for begin in range(0, n, 4096):
            predicted[begin : begin + 4096] = running.apply(inserts(begin, begin + 4096, X, y)).predictions

    def estimator(**options: Any) -> FullyDynamicTreeClassifier:
        tree = FullyDynamicTreeClassifier(**options)
        for begin in range(0, n, 1000):
            rows = slice(begin, begin + 1000)
            if begin:
                predicted[rows] = tree.predict(X[rows])
            tree.partial_fit(X[rows], y[rows], [0, 1])
        return tree

    def efdt() -> None:
        tree = river_tree.ExtremelyFastDecisionTreeClassifier(grace_period=500)
        for i, (x, label) in enumerate(zip(rows, y.tolist(), strict=True)):
            predicted[i] = tree.predict_one(x) or 0
            tree.learn_one(x, label)

    def scored(who: str, seconds: float) -> list[str]:
        hits = int(((predicted == 1) & (y == 1)).sum())
        f1 = 2 * hits / (2 * hits + int((predicted != y).sum()))
        return [who, f"{seconds / n * 1e6:.2f}", f"{100 * float(np.mean(predicted == y)):.2f}", f"{100 * f1:.2f}"]

    lines, mine = [], []
    for setting, options in (("default", {}), ("epsilon .15", {"epsilon": 0.15, **PAPER})):
        for kind, run in (("session", in_session), ("estimator", estimator)):
            mine.append(cpu_seconds(lambda run=run, options=options: run(**options)))  # type: ignore[misc]
            lines.append(scored(f"raydt {setting}, {kind}", mine[-1]))
    verdict = estimator().audit().feasibility
    from river import tree as river_tree  # after our timing, so that it cannot disturb it

    rows = [dict(enumerate(x)) for x in X.tolist()]
    peer = cpu_seconds(efdt)
    lines = [[*line, f"{peer / own:.1f}"] for line, own in zip(lines, mine, strict=True)]
    lines.append([*scored("river EFDT", peer), "1.0"])
    show("Insert-only", ["", "us/update", "accuracy", "F1 (DOWN)", "EFDT takes times as long"], lines)
    print(f"audit of the default tree: {verdict}")


def windows(X: Any, y: Any) -> None:
    def batches(window: int, stop: int, size: int = 1000) -> list[UpdateBatch]:
        steps = stop - window
        pairs = np.column_stack([np.arange(steps), np.arange(window, stop)]).ravel()
        op = np.concatenate([np.zeros(window), np.tile([1, 0], steps)]).astype(np.int8)
        key = np.concatenate([np.arange(window), pairs])
        out = []
        for begin in range(0, len(op), size):
            ops, ids = op[begin : begin + size], key[begin : begin + size]
            rows = ids[ops == 0]
            out.append(UpdateBatch(begin, ops, ids, X[rows], y[rows], 2, np.full(len(ops), -1), window))
        return out

    def accuracy_of(stream: list[UpdateBatch], epsilon: float) -> float:
        right = scored = 0
        for batch, result in session("fudyadt", X.shape[1], epsilon=epsilon, **PAPER).process(stream):
            prediction = result.predictions[batch.op == 0]
            scored += int((prediction >= 0).sum())
            right += int(((prediction == batch.y) & (prediction >= 0)).sum())
        return right / scored

    lines, no_change = [], float(np.mean(y[1:] == y[:-1]))
    for window in (1000, 100):
        stream, short = batches(window, len(y)), batches(window, window + 1500)
        each = cpu_seconds(lambda s=short: accuracy_of(s, 0.0), 1) / sum(map(len, short))  # type: ignore[misc]
        for epsilon in (0.1, 0.5, 1.0):
            us = 1e6 * cpu_seconds(lambda s=stream, e=epsilon: accuracy_of(s, e)) / sum(map(len, stream))  # type: ignore[misc]
            cells = [f"{us:.2f}", f"{accuracy_of(stream, epsilon):.4f}", f"{no_change:.4f}"]
            lines.append([f"{window}", f"{epsilon}", *cells, f"{1e6 * each:.1f}", f"{1e6 * each / us:.1f}"])
    header = ["window", "epsilon", "us/update", "accuracy", "no-change", "us/update, rebuild each time", "times"]
    show("Sliding windows", header, lines)


if __name__ == "__main__":
    parts = {"efdt": beside_efdt, "window": windows}
    given = arguments(__doc__, part_={"choices": parts}, data=DATA, rows=10**9)
    print_machine("river")
    features, labels = electricity(given.data)
    parts[given.part](features[: given.rows], labels[: given.rows])
