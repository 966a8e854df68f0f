"""What both kinds of evaluation share: how they are fed, the alarms they raise, and scores made of counts.

Reports, sweeps and the metrics table show the scores of :data:`CLASS_SCORES`, in this order. Formulas and sources:
docs/explanation/evaluation.md. Not here: counting (``raydt.evaluation.scoring``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.arrays.elementary import AnyArray, Floats, Int32s, Ints
from raydt.arrays.kernel import kernel
from raydt.evaluation.adwin import WIDTH, new_adwin, observe
from raydt.messages import message

# AUC of two classes: the probability that an example of the positive class has a higher score than another one.
#
# A score is the share of the positive class where the model holds an example, in steps of 1 / ``LEVELS``. Counting the
# examples of either class by level makes the AUC of any stretch of a stream the difference of two tables of integers.
#
# Invariant: pairs within a level count one half, so that the AUC is exact for the scores as they are rounded: the Mann
# and Whitney statistic. It differs from that of unrounded scores by at most half the share of pairs within a level.

#: Steps of a score.
LEVELS = 1 << 12

#: The level of a prediction without a score.
NO_LEVEL = np.uint16(np.iinfo(np.uint16).max)

Levels = npt.NDArray[np.uint16]


def levels_of(positive: AnyArray, total: AnyArray, of_nothing: int) -> Levels:
    """Return the level of each share ``positive / total``, rounded half up; ``of_nothing`` for 0 / 0."""
    n = np.maximum(total, 1).astype(np.int64)
    level = (2 * LEVELS * positive.astype(np.int64) + n) // (2 * n)
    known: Levels = np.where(total > 0, level, of_nothing).astype(np.uint16)
    return known


def no_ranks(levels: int = 0) -> Ints:
    """Return a table without examples: by class (0: negative, 1: positive) and level, shape (2, levels)."""
    return np.zeros((2, levels), dtype=np.int64)


#: What is not 0 in a table of ranks: places and numbers.
Sparse = tuple[Int32s, Ints]


def sparse_ranks(ranks: Ints) -> Sparse:
    """Return what is not 0 in a table, as places in it, one class after the other, and numbers."""
    flat = ranks.reshape(-1)
    places = np.flatnonzero(flat)
    return places.astype(np.int32), flat[places]


def dense_ranks(sparse: Sparse) -> Ints:
    """Return the table of :func:`sparse_ranks`."""
    ranks = no_ranks(LEVELS + 1)
    ranks.reshape(-1)[sparse[0]] = sparse[1]
    return ranks


def ranks_in(state: Mapping[str, Any], name: str) -> Sparse | None:
    """Return a table of which a state has what is not 0; None of one that is whole. ValueError if it cannot be."""
    if f"{name}_places" not in state:
        return None
    places, numbers = np.array(state[f"{name}_places"]), np.array(state[f"{name}_numbers"])
    fits = places.dtype == np.int32 and numbers.dtype == np.int64 and places.ndim == 1 and places.shape == numbers.shape
    ascending_within = fits and (np.diff(places, prepend=-1, append=2 * (LEVELS + 1)) > 0).all()
    if not ascending_within or numbers.min(initial=1) < 1:
        raise ValueError(message("states.impossible", array=name))
    return places, numbers


#: The table without examples.
NONE: Sparse = np.empty(0, dtype=np.int32), np.empty(0, dtype=np.int64)


def is_since(since: Sparse, ranks: Sparse) -> bool:
    """Return True if every example of the table ``since`` is in the later table ``ranks``, too."""
    if not len(since[0]):
        return True
    if not len(ranks[0]):
        return False
    at = np.minimum(np.searchsorted(ranks[0], since[0]), len(ranks[0]) - 1)
    return bool(((ranks[0][at] == since[0]) & (since[1] <= ranks[1][at])).all())


def auc(ranks: Sparse, since: Sparse = NONE, unit: int = 1) -> tuple[float, float]:
    """Return the AUC of the examples that ``ranks`` has in addition to ``since``, and their number.

    Numbers are multiples of ``unit``: products of sums of weights are beyond int64, and are taken as float64. NaN while
    one of the classes has no example. O(levels that occur). Exact up to 2^32 examples that count 1.
    """
    places, places_since = ranks[0], since[0]
    numbers: AnyArray = ranks[1]
    numbers_since: AnyArray = since[1]
    if unit > 1:
        numbers, numbers_since = numbers / unit, numbers_since / unit
    if len(places_since):
        numbers = numbers.copy()
        numbers[np.searchsorted(places, places_since)] -= numbers_since
    negative, positive, wins = _wins(places, numbers)
    return wins / (2 * negative * positive) if negative and positive else math.nan, negative + positive


@kernel
def _wins(places: Any, numbers: Any) -> tuple[float, float, float]:
    """Return examples of either class, and twice the pairs in which the positive one is higher; a tie counts once."""
    end = np.searchsorted(places, LEVELS + 1)  # of the negative ones
    below = positives = wins = none = numbers[:0].sum()  # 0 of the type of the numbers
    at = 0
    for i in range(end, len(places)):
        level = places[i] - (LEVELS + 1)
        while at < end and places[at] < level:
            below += numbers[at]
            at += 1
        equal = numbers[at] if at < end and places[at] == level else none
        wins += numbers[i] * (2 * below + equal)
        positives += numbers[i]
    return below + numbers[at:end].sum(), positives, wins


# The loops that score predictions, one example after another in the order of the stream.
#
# Invariant: what an example adds to the counts depends on the examples before it only. Counts are integers; a faded
# count is a float64 that every example multiplies by the fading factor, in the order of the stream, so that no bit of
# it depends on how the stream was cut into batches. The sums of a regression are added term by term for the same
# reason.
#
# Not here: scores, which are made from the counts when they are asked for.

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


#: In faded scores a prediction counts so many times as much as the next one.
FADING = 0.999
#: Chance of a false alarm at a check of ADWIN.
DELTA = 0.002


class Score(NamedTuple):
    """A score of predicted classes, as reports and sweeps show it. More is better."""

    name: str  #: in the metrics table and in summaries
    title: str  #: in the middle of a sentence
    is_share: bool = False  #: from 0 to 1, and shown in percent


CLASS_SCORES = (
    Score("accuracy", "accuracy", is_share=True),
    Score("f1", "F1", is_share=True),
    Score("macro_f1", "macro F1", is_share=True),
    Score("kappa", "kappa"),
    Score("kappa_temporal", "kappa temporal"),
    Score("kappa_m", "kappa M"),
    Score("auc", "AUC"),
)
KAPPAS = ("kappa", "kappa_temporal", "kappa_m")
#: Scores of classes that also have a faded value.
FADED = ("accuracy", *KAPPAS)


class Alarm(NamedTuple):
    """ADWIN has found that the share of wrong predictions has risen."""

    seq: int  #: The update after whose prediction it was found.
    predictions: int  #: Predictions that were compared.
    before: float  #: ``before``, ``after``: Share of wrong ones in the older and in the newer part of them.
    after: float


class Evaluation:
    """Running evaluation of predictions made just before each label was learned."""

    def rivals(self, truth: Any) -> tuple[Any, Any]:
        """Learn labels, and return what the two trivial predictors predicted just before each, of shape (n,)."""
        raise NotImplementedError

    def score(
        self,
        truth: Any,
        prediction: Any,
        rivals: tuple[Any, Any],
        levels: Any = None,
        seq: Any = None,
        weight: Any = None,
    ) -> None:
        """Score predictions and those of the trivial predictors; parameters as of :meth:`update`."""
        raise NotImplementedError

    def update(self, truth: Any, prediction: Any, levels: Any = None, seq: Any = None, weight: Any = None) -> None:
        """Score n consecutive inserted examples, in stream order. O(n), for classes O(n K) for the faded counts.

        ``truth`` and ``prediction`` are class codes (int32) or labels (float64), shape (n,), predicted just before each
        insertion; -1 or NaN in the warm-up, where only the baselines learn the label. ``levels`` are scores of class 1
        (:mod:`raydt.evaluation.scoring`), ``seq`` the numbers of the updates, for alarms; by default the places in
        these arrays. Numbers that exceed float64 make scores infinite or NaN. ``weight`` is what each counts, in units
        (:mod:`raydt.examples.updates`), of an evaluation that is ``weighted``; else each counts once.
        """
        self.score(truth, prediction, self.rivals(truth), levels, seq, weight)

    @staticmethod
    def update_all(
        evaluations: Sequence[Any],
        edges: Ints,
        truth: Any,
        prediction: Any,
        levels: AnyArray,
        scored: Sequence[bool],
        seq: Ints,
    ) -> None:
        """Score the rows of several evaluations of one kind, those of each between two ``edges``, as :meth:`update`.

        ``scored`` says of each evaluation if ``levels`` are known.
        """
        for one, (begin, end), known in zip(evaluations, pairwise(edges.tolist()), scored, strict=True):
            part = slice(begin, end)
            one.update(truth[part], prediction[part], levels[part] if known else None, seq[part])

    def state(self) -> dict[str, Any]:
        """Return all that later scores depend on."""
        raise NotImplementedError

    def narrow_state(self) -> dict[str, Any]:
        """Return the same in little room, for one of very many streams."""
        return self.state()


def ratio(part: AnyArray, total: AnyArray) -> Floats:
    """Return ``part / total``; NaN where the total is 0. Integers of any size are divided exactly, then rounded."""
    known = total != 0
    result = np.full(np.shape(total), np.nan)
    result[known] = (part[known] / total[known]).astype(np.float64)
    return result


def beyond(right: AnyArray, rival: AnyArray, total: AnyArray) -> Floats:
    """Return the share of a rival's errors that is right, (right - rival) / (total - rival); NaN without any."""
    return ratio(right - rival, total - rival)


def cohen(right: AnyArray, true: AnyArray, predicted: AnyArray, total: AnyArray) -> Floats:
    """Return Cohen's kappa of m moments, from counts by true and by predicted class, shape (m, K). O(m K).

    Whole counts are multiplied as Python integers: their products exceed int64 on long streams.
    """
    if true.dtype.kind == "i":
        right, true, predicted, total = (counts.astype(object) for counts in (right, true, predicted, total))
    chance = (true * predicted).sum(axis=1)
    return beyond(total * right, chance, total * total)


def determination(squared: Floats, spread: Floats, spread_squared: Floats, total: Floats) -> Floats:
    """Return R squared: 1 - squared errors / those of the mean of the labels; NaN where all labels are equal."""
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        variation = spread_squared - spread * spread / total
        return np.where(variation > 0.0, 1.0 - squared / variation, np.nan)


# States of scores that earlier versions wrote, in today's form.


def former_prequential(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return a state that has the confusion, the hits of the baselines and the last label only, of a classification."""
    confusion, inserted = np.array(state["confusion"]), np.array(state["inserted"])
    hits = np.array([confusion.sum(), np.trace(confusion), state["no_change"], state["majority"]], dtype=np.int64)
    return {
        "confusion": confusion,
        "hits": hits,
        "classes": np.array([confusion.sum(axis=1), confusion.sum(axis=0), np.diag(confusion)]),
        "faded": np.zeros(4),
        "faded_classes": np.zeros((2, len(confusion))),
        "ranks": no_ranks(),
        "inserted": inserted,
        "registers": np.array([state["last"], inserted.argmax() if len(inserted) else 0], dtype=np.int64),
        "alarms": 0,
        **{f"adwin_{name}": array for name, array in new_adwin()._asdict().items()},
    }


def former_errors(state: Mapping[str, Any], width: int) -> dict[str, Any]:
    """Return a state that has other registers (last, first, total, and two sums of spread), of a regression.

    ``width`` is the number of sums.
    """
    last, first, total, spread, spread_squared = state["registers"].tolist()
    return {
        "sums": np.array([float(state["scored"]), *state["sums"].tolist(), spread, spread_squared]),
        "registers": np.array([float(state["inserted"]), last, first, total]),
        "window": np.zeros(width),
        "faded": np.zeros(width),
    }
