"""Many small models at once: updates a second of processor time, in a loop over the keys and by ``apply_all``.

Each key has a window of its last rows: a new row is inserted, the oldest deleted. Blocks hold updates of mixed keys,
which are drawn evenly; each is divided by key first, and that is part of the time.

    python benchmarks/keyed_pool.py --keys 1000 --rows 1000 --blocks 8
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from harness import arguments, print_machine, show

from raydt.examples.updates import DELETE, INSERT, BatchResult, Features, UpdateBatch
from raydt.keyed.members import apply_all
from raydt.learners import learners
from raydt.sessions.session import InProcessSession

D = 10


class Streams:
    def __init__(self, keys: int, rows: int) -> None:
        self.draw, self.keys, self.rows = np.random.default_rng(0), keys, rows
        self.seq = np.zeros(keys, dtype=np.int64)
        self.next_id = np.zeros(keys, dtype=np.int64)
        self.weights = self.draw.normal(size=(keys, D))

    def labelled(self, key: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int32]]:
        """New rows of some keys, a tenth of them with the wrong label."""
        X = self.draw.normal(size=(len(key), D))
        right = (X * self.weights[key]).sum(axis=1) > 0
        return X, (right ^ (self.draw.random(len(key)) < 0.1)).astype(np.int32)

    def first(self, key: int) -> UpdateBatch:
        n = self.rows
        X, y = self.labelled(np.full(n, key))
        self.seq[key] = self.next_id[key] = n
        return UpdateBatch(0, np.full(n, INSERT, dtype=np.int8), np.arange(n), X, y, 2, np.arange(n), n)

    def block(self, updates: int) -> tuple[npt.NDArray[Any], ...]:
        """Key, operation, id and row of so many updates of mixed keys, and the features and labels of the new rows."""
        key = np.repeat(self.draw.integers(0, self.keys, updates // 2), 2)
        op = np.tile(np.array([INSERT, DELETE], dtype=np.int8), updates // 2)
        new = key[::2]
        order = np.argsort(new, kind="stable")
        first = np.searchsorted(new[order], new[order])
        number = np.empty(len(new), dtype=np.int64)
        number[order] = self.next_id[new[order]] + np.arange(len(new)) - first
        self.next_id += np.bincount(new, minlength=self.keys)
        ids = np.stack([number, number - self.rows], axis=1).ravel()
        X, y = self.labelled(new)
        return key, op, ids, X, y

    def by_key(self, block: tuple[npt.NDArray[Any], ...]) -> tuple[list[int], list[UpdateBatch]]:
        key, op, ids, X, y = block
        order = np.argsort(key, kind="stable")
        op, ids, rows = op[order], ids[order], order[op[order] == INSERT] // 2
        X, y, number = X[rows], y[rows], np.full(len(op), -1)
        keys, begin = np.unique(key[order], return_index=True)
        ends = [*begin[1:].tolist(), len(op)]
        starts, self.seq = self.seq[keys].tolist(), self.seq + np.bincount(key, minlength=self.keys)
        batches = []
        for start, a, b in zip(starts, begin.tolist(), ends, strict=True):
            half = slice(a // 2, b // 2)
            batches.append(UpdateBatch(start, op[a:b], ids[a:b], X[half], y[half], 2, number[a:b], self.rows))
        return keys.tolist(), batches


def in_a_loop(sessions: Sequence[InProcessSession], batches: Sequence[UpdateBatch]) -> list[BatchResult]:
    return [session.apply(batch) for session, batch in zip(sessions, batches, strict=True)]


FORMS: dict[str, Callable[..., list[BatchResult]]] = {"loop": in_a_loop, "pool": apply_all}


def run(kind: str, form: str, keys: int, rows: int, blocks: int, size: int) -> list[str]:
    """Return a line of the table: updates a second of one form, and the digest of some keys."""
    learner = learners()[kind]
    features = Features(tuple(f"f{j}" for j in range(D)), (False,) * D, 16)
    streams = Streams(keys, rows)
    sessions = [InProcessSession(learner, learner.Options(kind=kind), features) for _ in range(keys)]
    for key, session in enumerate(sessions):
        session.apply(streams.first(key))
    todo, spent = [streams.block(size) for _ in range(blocks + 2)], 0.0
    for number, block in enumerate(todo):
        began = time.process_time()
        of, batches = streams.by_key(block)
        results = FORMS[form]([sessions[key] for key in of], batches)
        if number >= 2:
            spent += time.process_time() - began
        assert all(result.applied == len(batch) for result, batch in zip(results, batches, strict=True))
    digest = hash(tuple(session.digest() for session in sessions[:20]))
    return [kind, form, f"{blocks * size / spent:,.0f}", f"{1e6 * spent / blocks / size:.2f}", f"{digest}"]


if __name__ == "__main__":
    lists = {"kinds": ["fudyadt", "confidence_tree"], "forms": list(FORMS)}
    asked = arguments(__doc__, **lists, keys=1000, rows=1000, blocks=8, size=4096)
    print_machine()
    sizes = asked.keys, asked.rows, asked.blocks, asked.size
    lines = [run(kind, form, *sizes) for kind in asked.kinds for form in asked.forms]
    show("Many small models", ["learner", "form", "updates a second", "us an update", "digest"], lines)
