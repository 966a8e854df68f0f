"""The loops that score predictions, one example after another in the order of the stream.

Invariant: what an example adds to the counts depends on the examples before it only. Counts are integers; a faded
count is a float64 that every example multiplies by the fading factor, in the order of the stream, so that no bit of it
depends on how the stream was cut into batches. The sums of a regression are added term by term for the same reason.

Not here: scores, which are made from the counts when they are asked for.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.arrays.kernel import kernel
from raydt.arrays.types import Floats, Int32s, Ints
from raydt.evaluation.adwin import WIDTH, observe
from raydt.evaluation.ranking import NO_LEVEL

Numbers = Floats

#: Registers of the rivals of a classification: the last label, and the most frequent one.
LAST, LEADER = 0, 1

#: Counts of hits, whole (int64) or faded (float64): predictions, and right ones of the learner and its rivals.
SCORED, LEARNER, NO_CHANGE, MAJORITY = 0, 1, 2, 3

#: Counts by class: examples of it, predictions of it, and those that are both.
TRUE, PREDICTED, RIGHT = 0, 1, 2

#: Sums over the scored predictions of a regression: their number, squared and absolute errors of the learner, squared
#: errors of its rivals, and the labels and their squares as differences from the first label.
N_SCORED, SQUARED, ABSOLUTE, SQUARED_NO_CHANGE, SQUARED_MEAN, SPREAD, SPREAD_SQUARED = range(7)

#: Registers of the rivals of a regression: labels so far, the last, the first, and the sum of differences from it.
N_LABELS, LAST_LABEL, FIRST_LABEL, TOTAL = range(4)


class ClassCounts(NamedTuple):
    """Counts of a classification with K classes; where predictions have weights, sums of these in units."""

    confusion: Ints  #: Shape (K, K): by true class (row) and predicted class (column).
    hits: Ints  #: Shape (4,): ``SCORED`` to ``MAJORITY``.
    classes: Ints  #: Shape (3, K): examples by true class, by predicted class, and right predictions by class.
    faded: Numbers  #: Shape (4,): ``hits``, faded.
    faded_classes: Numbers  #: Shape (2, K): the first two of ``classes``, faded.
    #: Shape (2, LEVELS + 1) or (2, 0): by whether the true class is 1, and by level of the score; empty before the
    #: first score.
    ranks: Ints


class Predictions(NamedTuple):
    """Predictions of n consecutive examples."""

    #: ``truth``, ``learner``, ``no_change``, ``majority``: Shape (n,): the true class, and the one that each predicted;
    #: where the learner has -1, nothing is scored.
    truth: Int32s
    learner: Int32s
    no_change: Int32s
    majority: Int32s
    levels: npt.NDArray[np.uint16]  #: Shape (n,) or (0,): scores of class 1, if the learner gives any.
    weight: Ints  #: Shape (n,): what each counts, in units.


class Found(NamedTuple):
    """Room for the alarms of a batch: place in it, ``Adwin.sides``, and outcomes compared; each of length n."""

    place: Ints
    sides: Numbers
    width: Ints


@kernel
def rival_classes(truth: Any, inserted: Any, registers: Any, no_change: Any, majority: Any) -> None:
    """Predict each label by the one before it and by the most frequent so far, and count it.

    Of classes that are equally frequent the smallest leads. O(n).
    """
    for i in range(len(truth)):
        no_change[i], majority[i] = registers[LAST], registers[LEADER]
        k, leader = np.int64(truth[i]), registers[LEADER]
        inserted[k] += 1
        if inserted[k] > inserted[leader] or (inserted[k] == inserted[leader] and k < leader):
            registers[LEADER] = k
        registers[LAST] = k


@kernel
def score_classes(predictions: Any, counts: Any, unit: int, factor: float, adwin: Any, delta: float, found: Any) -> int:
    """Score predictions; the number of alarms found. O(n K) multiplications for the faded counts, else O(n).

    A weight of ``unit`` counts once. Alarms count every prediction once.
    """
    truth, learner, levels = predictions.truth, predictions.learner, predictions.levels
    hits, classes, faded, faded_classes = counts.hits, counts.classes, counts.faded, counts.faded_classes
    K = faded_classes.shape[1]
    alarms = 0
    for i in range(len(truth)):
        t, p = np.int64(truth[i]), np.int64(learner[i])
        if p < 0:
            continue
        w = predictions.weight[i]
        times = w / unit
        counts.confusion[t, p] += w
        right, no_change, majority = t == p, predictions.no_change[i] == t, predictions.majority[i] == t
        classes[TRUE, t] += w
        classes[PREDICTED, p] += w
        classes[RIGHT, t] += w * right
        hits[SCORED] += w
        hits[LEARNER] += w * right
        hits[NO_CHANGE] += w * no_change
        hits[MAJORITY] += w * majority
        faded[SCORED] = faded[SCORED] * factor + times
        faded[LEARNER] = faded[LEARNER] * factor + times * right
        faded[NO_CHANGE] = faded[NO_CHANGE] * factor + times * no_change
        faded[MAJORITY] = faded[MAJORITY] * factor + times * majority
        for k in range(K):
            faded_classes[TRUE, k] *= factor
            faded_classes[PREDICTED, k] *= factor
        faded_classes[TRUE, t] += times
        faded_classes[PREDICTED, p] += times
        if len(levels) and levels[i] != NO_LEVEL:
            counts.ranks[np.int64(t == 1), levels[i]] += w
        width = adwin.reg[WIDTH] + 1
        if observe(adwin, np.int64(not right), delta) > 0:
            found.place[alarms], found.width[alarms] = i, width
            found.sides[alarms, 0], found.sides[alarms, 1] = adwin.sides[0], adwin.sides[1]
            alarms += 1
    return alarms


@kernel
def rival_numbers(truth: Any, registers: Any, no_change: Any, mean: Any) -> None:
    """Predict each label by the one before it and by the mean of those so far, and count it. O(n)."""
    if len(truth) and registers[N_LABELS] == 0.0:
        registers[FIRST_LABEL] = truth[0]
    for i in range(len(truth)):
        n = registers[N_LABELS]
        no_change[i] = registers[LAST_LABEL]
        mean[i] = registers[FIRST_LABEL] + registers[TOTAL] / n if n > 0.0 else 0.0
        registers[N_LABELS] = n + 1.0
        registers[TOTAL] += truth[i] - registers[FIRST_LABEL]
        registers[LAST_LABEL] = truth[i]


@kernel
def score_numbers(
    truth: Any, learner: Any, rivals: Any, times: Any, first: float, sums: Any, window: Any, faded: Any, factor: float
) -> None:
    """Score predictions, each of which counts so many ``times``; NaN is none. O(n).

    ``rivals`` are those of *no change* and of the mean. ``sums``, ``window`` and ``faded`` have the same entries, shape
    (7,).
    """
    no_change, mean = rivals
    for i in range(len(truth)):
        if np.isnan(learner[i]):
            continue
        error, away = truth[i] - learner[i], truth[i] - first
        last, middle = truth[i] - no_change[i], truth[i] - mean[i]
        terms = (1.0, error * error, abs(error), last * last, middle * middle, away, away * away)
        for k in range(7):
            term = terms[k] * times[i]
            sums[k] += term
            window[k] += term
            faded[k] = faded[k] * factor + term
