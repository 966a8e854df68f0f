"""Drift: a node is restarted as a leaf of recent examples once such a leaf has predicted better than what there is.

Every node that has seen some examples begins a *trial*: at a place of its own the shards count the examples that come
to the node from then on, as a leaf would. Each ``drift_period`` insertions, at a position that depends on nothing but
the stream, all nodes are compared: every example of the last period that is still there was predicted by the tree when
it came, and is now predicted by the trials of the nodes on its route, by naive Bayes on what each had counted before
the period. Then the trials count it. A node is restarted if

- its trial was right and the tree wrong so much more often than the other way round, that the difference of these two
  numbers is more than sqrt(``CERTAINTY``) of its standard deviations (McNemar's test), and
- the tree has made more errors there during the trial than its share before it lets expect, by as many standard
  deviations.

Errors of leaves that have counted fewer than p // ``YOUNG`` examples do not count, p the insertions of a period: below
a new split all leaves are young. A restarted node is a leaf, whatever was below, whose counts are those of the trial.
A trial is compared once it has seen p // 2 examples, ends after ``LONGEST`` p, and the next one begins p examples
later. A leaf that is split begins its tallies again.

Where examples have weights, seen examples and errors are masses, and periods and bounds those of so many rows.

The tallies of errors are whole numbers about predictions of the past: no deletion changes them, as none makes a
prediction undone. The counts of a trial are of live examples: a deleted example leaves them at once.

Source: the idea of a second model that learns from recent examples, and takes over once it errs less, is that of the
Hoeffding adaptive tree (Bifet, Gavalda, Adaptive learning from evolving data streams, IDA 2009). There it is a tree,
begun when a detector sees the error rise; here it is a leaf, always there, and the rise is a condition of its success.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from raydt.arrays.kernel import inner_kernel, kernel
from raydt.arrays.types import Int32s, Ints
from raydt.learners.confidence_tree.prediction import BLAMELESS, naive_class
from raydt.trees.masses import mass_of

#: A trial ends once it has seen so many times the examples of a period.
LONGEST = 10
#: A leaf is not blamed for errors before it has counted this part of the examples of a period.
YOUNG = 8
#: How many variances the square of a difference must exceed.
CERTAINTY = 8

#: By node. ``began`` is the stamp from after which the trial counts (-1: there is none), ``site`` where the shards keep
#: that, ``restarted`` the stamp at which the node was restarted last (-1: never). ``seen`` and ``wrong``, examples and
#: errors of the tree: since the trial began, or the last one ended; ``seen_before`` and ``wrong_before``: before that.
#: ``better``: examples that the trial was right about and the tree wrong; ``worse``: the other way round.
TRIAL = np.dtype(
    [
        *((name, np.int64) for name in ("began", "restarted", "seen_before", "wrong_before")),
        *((name, np.int64) for name in ("seen", "wrong", "better", "worse")),
        ("site", np.int32),
    ],
    align=True,
)
#: A stamp that no example has yet.
LAST = 1 << 62
#: What comparing a node comes to.
NOTHING, BEGIN, END, RESTART = range(4)


class Pairs(NamedTuple):
    """Examples and nodes on their routes whose trials have to do with them, by example, from its leaf up."""

    example: Ints  #: ``example``, ``node``: Shape (pairs,).
    node: Ints
    scored: Ints  #: The pairs whose trial is to predict the example, ascending.


@kernel
def _pair(tree: Any, examples: Any, slots: Any, compared: int, example: Any, node: Any) -> int:
    """Note the pairs of examples up to a stamp; their number."""
    n = 0
    for i in range(len(slots)):
        stamp = 2 * examples.born[slots[i]] + 1
        v = np.int64(examples.members[slots[i]].leaf)
        while v >= 0 and stamp <= compared:
            began = tree.trials[v].began
            if began >= 0 and stamp > began:
                example[n], node[n] = i, v
                n += 1
            v = np.int64(tree.nodes[v].parent)
    return n


def in_trials(tree: Any, examples: Any, slots: Int32s, compared: int, deepest: int) -> Pairs:
    """Return examples, live or just deleted, and the trials that count them. O(examples x depth).

    ``compared`` is the stamp of the last comparison: what came later is in no trial yet.
    """
    room = len(slots) * (deepest + 1)
    example, node = (np.empty(room, dtype=np.int64) for _ in range(2))
    n = _pair(tree, examples, slots, compared, example, node)
    return Pairs(example[:n], node[:n], node[:0])


@kernel
def _see(tree: Any, examples: Any, right: Any, slots: Any) -> None:
    """Count what nodes have seen."""
    for slot in slots:
        v, mass = np.int64(examples.members[slot].leaf), mass_of(examples.weight, slot)
        while v >= 0:
            trial = tree.trials[v]
            trial.seen += mass
            trial.wrong += 0 if right[slot] & BLAMELESS else mass
            v = np.int64(tree.nodes[v].parent)


def meet(tree: Any, examples: Any, right: Any, slots: Int32s, least: int, deepest: int) -> Pairs:
    """Return the examples of a period and the trials they come to; count what nodes have seen. O(examples x depth).

    Trials that have seen less than ``least``, a count, are not compared.
    """
    pairs = in_trials(tree, examples, slots, LAST, deepest)
    scored = np.flatnonzero(tree.trials["seen"][pairs.node] >= least)  # by what was seen before the period
    _see(tree, examples, right, slots)
    return pairs._replace(scored=scored)


@kernel
def judge(tree: Any, examples: Any, right: Any, slots: Any, pairs: Any, scores: Any, table: Any) -> None:
    """Compare the predictions of trials with those of the tree, and let the trials count the examples.

    ``right`` says who was right about each slot; ``scores``, shape (pairs scored, K), are those of naive Bayes, summed
    over the shards; ``table`` is T of ``naive_bayes``.
    """
    y = examples.y
    for i in range(len(pairs.scored)):
        p = pairs.scored[i]
        slot, v = slots[pairs.example[p]], pairs.node[p]
        own = naive_class(tree.fresh[v], scores[i], table) == y[slot]
        trees = (right[slot] & BLAMELESS) != 0
        mass = mass_of(examples.weight, slot)
        tree.trials[v].better += mass if own and not trees else 0
        tree.trials[v].worse += mass if trees and not own else 0
    for p in range(len(pairs.example)):
        slot = slots[pairs.example[p]]
        tree.fresh[pairs.node[p], y[slot]] += mass_of(examples.weight, slot)


@inner_kernel
def _risen(trial: Any, unit: int) -> bool:
    """Whether the tree makes surely more errors than before; products of floats alone, so that no bit can differ."""
    seen, wrong = np.float64(trial.seen), np.float64(trial.wrong)
    seen_before, wrong_before = np.float64(trial.seen_before), np.float64(trial.wrong_before)
    more = wrong * seen_before - wrong_before * seen
    rest = seen_before - wrong_before
    return bool(more > 0.0 and more * more > CERTAINTY * unit * (seen * wrong_before * rest))


@kernel
def decide(tree: Any, order: Any, period: int, unit: int, verdicts: Any) -> None:
    """What to do with each node, given in preorder; nothing of what is below a node that is restarted. O(nodes).

    ``period`` is a count, a row ``unit`` units.
    """
    deepest = np.int64(1) << 40
    for i in range(len(order)):
        v = order[i]
        verdicts[i] = NOTHING
        depth = np.int64(tree.nodes[v].depth)
        if depth > deepest:
            continue
        deepest = np.int64(1) << 40
        trial = tree.trials[v]
        if trial.began < 0:
            if trial.seen >= period:
                verdicts[i] = BEGIN
            continue
        lead = np.float64(trial.better - trial.worse)
        sure = lead > 0.0 and lead * lead > CERTAINTY * unit * np.float64(trial.better + trial.worse)
        if sure and _risen(trial, unit):
            verdicts[i] = RESTART
            deepest = depth
        elif trial.seen >= LONGEST * period:
            verdicts[i] = END
