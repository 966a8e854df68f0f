"""Whether it pays to update the first iterations in place and to train the others again, on the same bins.

One D' after a training: the oldest rows out and the next ones in, of a window, or random rows out of a larger set. The
first ``m`` of 100 iterations are updated, and the others are trained on the live rows from the scores after them; 0 is
a training without new bins, 100 an update. Each D' meets a model that was trained just before on the same rows.
"""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import numpy as np
from gbdt.command import Request
from gbdt.contestants import OWN_BINS, fitted, median, predicted, timed
from gbdt.data import Rows, Split, load
from kit import progress, show

from raydt.arrays.elementary import Slots
from raydt.learners.gbdt.ensemble import Trees, new_trees
from raydt.learners.gbdt.row_shard import Counts, RowShard

#: Iterations that are updated.
UPDATED = (0, 10, 25, 50, 75, 90, 100)
#: Of the live rows, out and in.
TURNOVERS = (0.002, 0.005, 0.01, 0.02, 0.05)
#: Rows of the window; of random rows without a window 0.
WINDOWS = {"electricity": 10_000, "covtype": 4000, "adult": 0, "givemesomecredit": 0, "pendigits": 0}


def nothing_updated(local: RowShard, slots: Slots, role: int, anew: Slots) -> Counts:
    """In the place of :meth:`RowShard.update`: rows come and go, and no tree changes."""
    local.taken = slots
    return Counts()


def step(model: Any, split: Split, out: Rows, into: Rows, m: int) -> None:
    """One D': the first ``m`` iterations are updated, the others trained again."""
    coordinator = model.session_.coordinator
    local, ensemble = coordinator._trainer.shard, coordinator.ensemble
    count = m * ensemble.per
    local.ensemble = first = copy.copy(ensemble)  # views of the first trees
    first.iterations, first.trees = m, Trees(*(array[:count] for array in ensemble.trees))
    first.leaf, first.ledger = ensemble.leaf[:count], ensemble.ledger[:count]
    if not m:  # an ensemble has at least one iteration, and there is none to update: all rows are trained on below
        local.update = partial(nothing_updated, local)
    if len(into):
        model.replace_examples(out, split.X[into], split.y[into], new_ids=into, digests=False)
    else:
        model.forget(out, digests=False)
    local.ensemble = ensemble
    if m == ensemble.iterations:
        return
    fresh = new_trees(len(ensemble.leaf) - count, ensemble.options.max_leaf_nodes)
    for array, one in zip(ensemble.trees, fresh, strict=True):
        array[count:] = one
    ensemble.leaf[count:] = ensemble.absent
    slots = coordinator.store.slots()
    F = ensemble.origins(len(slots))
    for t in range(count):
        F[:, t % ensemble.per] += ensemble.trees.value[t, ensemble.leaf[t, slots]]
    local.y = coordinator.store.y
    local.train(slots, F, m, ensemble.iterations)


def compared(name: str, turnover: float, turns: int) -> tuple[Split, dict[int, float], dict[int, float]]:
    """Median CPU seconds and mean accuracy by ``m``, over some D'."""
    split, window = load(name), WINDOWS[name]
    live = window or len(split)
    rows = max(1, round(turnover * live))
    seconds: dict[int, list[float]] = {m: [] for m in UPDATED}
    right: dict[int, list[float]] = {m: [] for m in UPDATED}
    for turn in range(turns + 1):
        rng = np.random.default_rng(turn)
        begin = int(rng.integers(0, max(1, len(split) - live - 3 * rows))) if window else 0
        out = np.arange(begin, begin + rows) if window else rng.choice(live, rows, replace=False)
        into = np.arange(begin + live, begin + live + rows) if window else out[:0]
        for m in UPDATED:
            model = fitted(split, np.arange(begin, begin + live), max_bins=OWN_BINS, retrain="never")
            model.session_.coordinator.ensemble.reserve(2 * live)  # once: the views of a step do not follow
            spent = timed(lambda out=out, into=into, m=m, model=model: step(model, split, out, into, m))[0]
            if not turn:
                continue  # compiles
            seconds[m].append(spent)
            after = slice(begin + live + rows, begin + live + 3 * rows)  # of a window the rows that come next
            X, y = (split.X[after], split.y[after]) if window else (split.X_test, split.y_test)
            right[m].append(float(np.mean(predicted(model, split, X) == y)))
    return split, {m: median(s) for m, s in seconds.items()}, {m: float(np.mean(r)) for m, r in right.items()}


def run(request: Request) -> None:
    """Print the table."""
    rows = []
    for name in request.sets(*WINDOWS):
        for turnover in TURNOVERS:
            split, seconds, right = compared(name, turnover, request.seeds)
            best = min(seconds[0], seconds[UPDATED[-1]])
            between = min(seconds[m] for m in UPDATED[1:-1])
            times = [f"{1e3 * s:.0f} ({100 * right[m]:.1f})" for m, s in seconds.items()]
            rows.append([split.title, f"{100 * turnover:g} %", f"{between / best:.2f}", *times])
            progress(*rows[-1])
    note = "Milliseconds of a D' (accuracy after it, per cent) by the number of iterations that are updated, of 100."
    header = ["data", "of the rows out and in", "best between / best of 0 and 100", *map(str, UPDATED)]
    show("Updating the first iterations only", header, rows, note)
