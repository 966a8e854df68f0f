"""Streams made to hurt FuDyADT: at its trigger, at the powers of two of its rule, where no split helps or exists.

Each is small and exact; ``tests/property/test_lower_bounds.py`` runs them against the twin.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.oracles.lower_bounds import Script
from tests.strategies import Stream


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
)
