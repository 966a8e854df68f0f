"""Streams of the lower bounds, and streams against an algorithm that does not rebuild."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import ceil

import numpy as np

from raydt.examples.updates import DELETE, DELETE_VALUE, INSERT, QUERY, UPDATE
from tests.strategies import Stream

# -- lower bounds ----------------------------------------------------------------------------------------------------
# A lower bound of the FuDyADT paper (its section 4 and appendix A.3) as a stream, and one more of this project.
#
# A lower bound speaks of *every* algorithm that keeps a feasible tree; its proof is a stream on which a feasible tree
# has no choice. Run through FuDyADT such a stream shows that it does what cannot be avoided:
# ``tests/property/test_lower_bounds.py``.
#
# Source: Bressan, Damay, Sozio, "Fully-Dynamic Decision Trees" (2022), Theorem 4.2.

Row = Sequence[float]


class Script:
    """Writes a stream down, update by update; ids run from 0."""

    def __init__(self) -> None:
        self.events: list[tuple[int, int, Row | None, int]] = []
        self.fresh = 0

    def insert(self, x: Row, y: int) -> int:
        self.events.append((INSERT, self.fresh, x, y))
        self.fresh += 1
        return self.fresh - 1

    def delete(self, ids: Iterable[int]) -> None:
        self.events += [(DELETE, i, None, -1) for i in ids]

    def delete_value(self, x: Row, y: int) -> None:
        self.events.append((DELETE_VALUE, 0, x, y))

    def update(self, id: int, x: Row, y: int) -> None:
        self.events.append((UPDATE, id, x, y))

    def query(self, x: Row) -> None:
        self.events.append((QUERY, 0, x, -1))

    def stream(self, categorical: Sequence[bool] | None = None) -> Stream:
        """All of it; numeric features unless said."""
        op, id, rows, y = zip(*self.events, strict=True)
        d = next(len(x) for x in rows if x is not None)
        kinds = tuple(categorical) if categorical is not None else (False,) * d
        plain = tuple(None if x is None else tuple(float(v) for v in x) for x in rows)
        return Stream(op=op, id=id, rows=plain, y=y, categorical=kinds, classes_known=True)


# ---------------------------------------------------------------------- Theorem 4.2: time


def hidden_feature(d: int, k: int, hidden: Sequence[int], queries: int, seed: int = 0) -> Stream:
    """Theorem 4.2: for alpha, beta < 1/2 there are n updates that take any algorithm Omega(n d) time.

    Proof idea. For a feature j unknown to the algorithm insert k examples (0, ..., 0) of class 0 and k of class 1
    that are 1 in feature j alone. g = 1/2, feature j gains 1/2 and every other 0, so that a feasible tree is one
    split on j, and it labels x with x_j. Asked for a random x with half of its features 1, only one who has found
    j does better than a coin, and finding j takes looking at Omega(d) of the cells. Delete all and start again
    with another j: n updates cost Omega(n d) cells (for k constant: it is Omega(d) for each of n / 4k rounds).

    Parameters
    ----------
    d, k : int
        Features; pruning threshold (``min_samples_split`` - 1).
    hidden : sequence of int
        The feature j of each round; neighbours should differ.
    queries : int
        Random examples asked for at the end of each round's insertions; x_j is the only feasible answer.
    """
    rng = np.random.default_rng(seed)
    script = Script()
    for j in hidden:
        ids = [script.insert([0] * d, 0) for _ in range(k)]
        ids += [script.insert([int(i == j) for i in range(d)], 1) for _ in range(k)]
        for _ in range(queries):
            x = np.zeros(d)
            x[rng.permutation(d)[: ceil(d / 2)]] = 1
            script.query(x.tolist())
        script.delete(ids)
    return script.stream()


# ---------------------------------------------------------------------- ours: time without hiding


class Pendulum:
    """A feasible root has to change twice in 4 n (beta + margin) updates (this project's, not the paper's).

    n = 4q examples with features (a, b), q of each of the four kinds; y = a wherever a = b. Of the 2q examples
    with a != b a share p has y = b, the others y = a. Then G(b) - G(a) = p - 1/2 exactly:

        G(a) = 1/2 - 2 (p/2) (1 - p/2),    G(b) = 1/2 - 2 ((1-p)/2) ((1+p)/2).

    With p > 1/2 + beta a feasible root splits on b, with p < 1/2 - beta on a (g = 1/2, so no leaf for alpha <=
    1/2). One half swing moves p from 1/2 - beta - margin to 1/2 + beta + margin or back, by flipping labels,
    which is n (beta + margin) ``update`` operations, two updates each. So any algorithm that keeps a feasible tree
    changes its root once in 2 n (beta + margin) updates; if changing a root means building a tree of n examples,
    that is 1 / (2 (beta + margin)) rows per update, of the order 1 / beta of FuDyADT's upper bound.
    """

    def __init__(self, q: int, beta: float, margin: float, swings: int) -> None:
        self.q, self.n, self.swings = q, 4 * q, swings
        reach = ceil((beta + margin) * 2 * q)  # flipped examples beside the middle
        low, high = q - reach, q + reach
        assert low >= 0
        assert high <= 2 * q
        script = Script()
        flipped = [script.insert((0, 0), 0) for _ in range(q)] + [script.insert((1, 1), 1) for _ in range(q)]
        kinds = [((0, 1) if i % 2 else (1, 0)) for i in range(2 * q)]
        flipped = [script.insert(x, x[1] if i < low else x[0]) for i, x in enumerate(kinds)]
        #: Updates (as the stream counts them) done at the end of each half swing, and the root's only feature then.
        self.turns: list[tuple[int, int]] = [(len(script.events), 0)]
        for swing in range(swings):
            up = swing % 2 == 0
            for i in range(low, high) if up else range(high - 1, low - 1, -1):
                script.update(flipped[i], kinds[i], kinds[i][1] if up else kinds[i][0])
            self.turns.append((len(script.events), int(up)))
        self.stream = script.stream()


# -- adversarial streams ---------------------------------------------------------------------------------------------
# Streams made to hurt FuDyADT: at its trigger, at the powers of two of its rule, where no split helps or exists.
#
# Each is small and exact; ``tests/property/test_lower_bounds.py`` runs them against the twin.


def oscillation() -> Stream:
    """The same point in and out, at every size at which a counter is about to pass epsilon * s."""
    script = Script()
    for i in range(120):
        script.insert((i % 11, i // 11), int(i % 11 > i // 11))
        if i % 6 == 5:
            for _ in range(5):
                script.delete([script.insert((3, 3), i % 2)])
    return script.stream()


def halving_chain() -> Stream:
    """A path of nodes of 2^i - 1 examples, pushed to 2^i, 2^i + 1 and back from its deepest leaf.

    x in [2^i - 1, 2^(i+1) - 1) has class i mod 2: the best splits peel off the upper half. Every size on the path
    crosses a power of two, where the topmost node with s(u) <= s_hat becomes another one.
    """
    script = Script()
    for i in range(6):
        for x in range(2**i - 1, 2 ** (i + 1) - 1):
            script.insert((x,), i % 2)
    for _ in range(12):
        pair = [script.insert((0,), 0), script.insert((0,), 1)]
        script.delete(pair)
    for _ in range(10):
        script.delete([script.insert((0,), 1)])
    return script.stream()


def sizes_around_powers_of_two() -> Stream:
    """The live set goes to 2^i + 1 and back to 2^i - 1, for every i, with classes that interleave."""
    script, live = Script(), []
    for i in range(1, 8):
        for _ in range(3):
            while len(live) < 2**i + 1:
                x = (7 * script.fresh) % 128
                live.append(script.insert((x, x % 5), x // 16 % 2))
            while len(live) > 2**i - 1:
                script.delete([live.pop(len(live) // 2)])
    return script.stream()


def deep_chain() -> Stream:
    """Classes alternate along one feature, so that greedy splits peel single values off the ends; then they gather."""
    script = Script()
    ids = [script.insert((x,), x % 2) for x in range(40)]
    for x in (7 * i % 40 for i in range(40)):
        script.update(ids[x], (x,), int(x >= 20))
    script.delete(ids[15:25])
    return script.stream()


def all_duplicates() -> Stream:
    """One and the same row in three classes: no split exists, whatever the impurity. Deleted by value."""
    script = Script()
    for i in range(150):
        script.insert((1.5, -2.0), i % 3)
    for i in range(140):
        script.delete_value((1.5, -2.0), i % 3)
    for _ in range(20):
        script.insert((1.5, -2.0), 0)
    script.insert((1.5, 2.0), 1)
    return script.stream()


def feature_turns_constant() -> Stream:
    """The feature that decides loses all its values but one by deletions, and gets them back."""
    script = Script()
    for _ in range(3):
        ids = [script.insert((i % 4, 7, i % 2), int(i % 4 > 1)) for i in range(72)]
        script.delete(i for place, i in enumerate(ids) if place % 4 != 0)
        script.delete(ids[::4])
    return script.stream()


def exclusive_or() -> Stream:
    """XOR: every split gains nothing until the row that breaks the balance, and again after its deletion."""
    script = Script()
    for i in range(120):
        a, b = i % 2, i // 2 % 2
        script.insert((a, b), a ^ b)
    for i in range(40):
        script.delete([script.insert((i % 2, 0), i // 2 % 2)])
    return script.stream()


def to_nothing_and_back() -> Stream:
    """Everything deleted, oldest first, newest first, from the middle, and inserted again."""
    script = Script()
    for order in (lambda ids: ids, lambda ids: ids[::-1], lambda ids: ids[20:] + ids[:20]):
        ids = [script.insert((i % 7, i % 3), int(i % 7 > 2) + int(i % 3 == 2)) for i in range(70)]
        script.query((3, 1))
        script.delete(order(ids))
        script.query((3, 1))
    return script.stream()


def class_flips() -> Stream:
    """All labels flip, one by one, three times; a categorical feature decides."""
    script = Script()
    ids = [script.insert((i % 5, i % 4), int(i % 5 < 2)) for i in range(70)]
    for turn in range(3):
        for i, id in enumerate(ids):
            script.update(id, (i % 5, i % 4), int(i % 5 < 2) ^ (turn + 1) % 2)
    return script.stream((True, False))


def hidden_features() -> Stream:
    """Theorem 4.2 with five rounds."""
    return hidden_feature(7, 20, [0, 6, 3, 0, 6], queries=3)


STREAMS: tuple[Callable[[], Stream], ...] = (
    oscillation,
    halving_chain,
    sizes_around_powers_of_two,
    deep_chain,
    all_duplicates,
    feature_turns_constant,
    exclusive_or,
    to_nothing_and_back,
    class_flips,
    hidden_features,
)
