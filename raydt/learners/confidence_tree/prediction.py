"""What leaves predict: the majority, naive Bayes, or whichever of the two has been right more often.

The coordinator knows the majority of each row's leaf at once, and the scores of naive Bayes once the shards have
answered; then it goes through the window once more, in the order of the steps. Which of the two was right about an
example is kept with it (``MAJORITY_RIGHT``, ``NAIVE_RIGHT``): the tallies of a node sum up the live examples that the
node has counted, so that a deleted example leaves them as it leaves all counts.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from raydt.arrays.kernel import inner_kernel, kernel
from raydt.arrays.types import Ints
from raydt.evaluation.ranking import LEVELS
from raydt.learners.confidence_tree.naive_bayes import UNIT, log_count
from raydt.learners.sequential import ADD, REMOVE
from raydt.trees.masses import mass_of

#: What is kept of an example: who was right about it when it came; where drift is followed also whether its prediction
#: is no error of the tree: it was right, or its leaf had counted few examples yet (``BLAMELESS``).
MAJORITY_RIGHT, NAIVE_RIGHT, BLAMELESS, NORMAL_RIGHT, INHERITED_RIGHT = 1, 2, 4, 8, 16
#: What predicts at a leaf.
MAJORITY, NAIVE, NORMAL, INHERITED = range(4)


@inner_kernel
def naive_class(prior: Any, scores: Any, table: Any) -> int:
    """Class of the highest score, the smaller on a tie; -1 of a leaf that has counted nothing."""
    best = -1
    highest = np.int64(0)
    for k in range(len(prior)):
        if prior[k] > 0:
            score = log_count(table, prior[k]) + scores[k]
            if best < 0 or score > highest:
                best, highest = k, score
    return best


def level_odds() -> Ints:
    """Log-odds of class 1, in units of T, from which on its share is at level 1, 2, ..., int64, shape (LEVELS,).

    Whole numbers, so that a level does not depend on a processor's logarithm.
    """
    half = np.arange(1, LEVELS + 1) - 0.5
    odds: Ints = np.rint(UNIT * np.log(half / (LEVELS - half))).astype(np.int64)
    return odds


@inner_kernel
def naive_level(prior: Any, scores: Any, table: Any, odds: Any) -> int:
    """The share of class 1 among the first two classes, as a level; one of them has examples."""
    if prior[0] == 0 or prior[1] == 0:
        return LEVELS if prior[1] > 0 else 0
    difference = log_count(table, prior[1]) + scores[1] - log_count(table, prior[0]) - scores[0]
    level: int = np.searchsorted(odds, difference, side="right")
    return level


@inner_kernel
def tally(tree: Any, leaf: int, stamp: int, right: int, by: int) -> None:
    """Count in or out at a leaf, if it has counted an example, who was right about that; ``by`` is the mass of it."""
    here = tree.nodes[leaf]
    if stamp > here.created:
        here.majority_right += by * (right & 1)
        here.naive_right += by * ((right >> 1) & 1)
        here.normal_right += by * ((right >> 3) & 1)
        here.inherited_right += by * ((right >> 4) & 1)


@inner_kernel
def chosen(node: Any, adaptive: bool, normal: bool, inherits: bool) -> int:
    """What predicts at a leaf: naive Bayes or, of what has been right more often, of equals the last of the three.

    With all live examples of the leaf only if that has been right more often than all of the three.
    """
    if not adaptive:
        return NAIVE
    best = NAIVE if node.naive_right >= node.majority_right else MAJORITY
    right = max(node.naive_right, node.majority_right)
    if normal and node.normal_right >= right:
        best, right = NORMAL, node.normal_right
    return INHERITED if inherits and node.inherited_right > right else best


@kernel
def settle(
    tree: Any, examples: Any, right: Any, path: Any, counted: Any, scores: Any, tables: Any, void: Any, rules: Any
) -> None:
    """Make the predictions of the steps of a window that were not rolled back (``void``), and tally who was right.

    ``right`` says by slot who was right about each live example; ``scores``, shape (rows scored, K), are those of naive
    Bayes, summed over the shards, on counts and with normal features (without rows if no leaf chooses these; behind
    them those with all live examples of the leaf, where leaves inherit); ``tables`` are T of ``naive_bayes`` and
    :func:`level_odds`. ``rules``: adaptive, else naive Bayes always; where drift is followed, one more than the count
    below which a leaf is not blamed (0: ``BLAMELESS`` is not kept); and whether leaves inherit.
    """
    (adaptive, young, inherits), (table, odds), (counts, normals) = rules, tables, scores
    normal, known = len(normals) > 0, tree.own.shape[1]
    row = 0
    for i in path.pending:
        step = path.steps[i]
        if step.kind == REMOVE:
            if adaptive and not void[i]:
                stamp = 2 * examples.born[step.slot] + 1
                mass = mass_of(examples.weight, step.slot)
                tally(tree, np.int64(path.leaves[i]), stamp, np.int64(right[step.slot]), -mass)
            continue
        # Steps that were rolled back were scored, too: they take their row of ``scores`` and nothing else.
        entry = counted.scored[row]
        leaf, prior = np.int64(counted.entries[entry].node), counted.priors[row, :known]
        k = naive_class(prior, counts[row], table)
        by_normal = naive_class(prior, normals[row], table) if normal else k
        present, of_all = counted.priors[row, known:], row + len(counts)
        by_all = naive_class(present, normals[of_all], table) if inherits else k
        row += 1
        if void[i]:
            continue
        majority = np.int64(step.prediction)
        naive = majority if k < 0 else np.int64(k)
        # The leaf chooses by what it has tallied before this step, as the step itself is tallied below.
        choice = chosen(tree.nodes[leaf], adaptive, normal, inherits)
        if choice != MAJORITY:
            best = by_all if choice == INHERITED else by_normal if choice == NORMAL else k
            step.prediction = majority if best < 0 else np.int64(best)
            if best == 0 or best == 1:
                if choice == INHERITED:
                    step.level = naive_level(present, normals[of_all], table, odds)
                else:
                    found = normals[row - 1] if choice == NORMAL else counts[row - 1]
                    step.level = naive_level(prior, found, table, odds)
        if adaptive and step.kind == ADD:
            label = examples.y[step.slot]
            who = (MAJORITY_RIGHT if majority == label else 0) | (NAIVE_RIGHT if naive == label else 0)
            if normal and (majority if by_normal < 0 else by_normal) == label:
                who |= NORMAL_RIGHT
            if inherits and (majority if by_all < 0 else by_all) == label:
                who |= INHERITED_RIGHT
            if young > 0 and (step.prediction == label or prior.sum() < young - 1):
                who |= BLAMELESS
            right[step.slot] = who
            tally(tree, leaf, 2 * examples.born[step.slot] + 1, who, mass_of(examples.weight, step.slot))


@kernel
def tally_rows(tree: Any, examples: Any, right: Any, slots: Any) -> None:
    """Tally at their leaves who was right about some examples. O(examples)."""
    for slot in slots:
        stamp = 2 * examples.born[slot] + 1
        mass = mass_of(examples.weight, slot)
        tally(tree, np.int64(examples.members[slot].leaf), stamp, np.int64(right[slot]), mass)
