"""Prequential classification metrics, and the trivial predictors every result has to be compared with.

Invariant: everything is derived from counts, which depend on the sequence of labels and predictions only, never on how
it was cut into batches. *No change* predicts the label inserted just before, *majority* the one inserted most often so
far, ties to the smaller class; before any label is known both predict class 0. Not here: the loops over predictions
(``raydt.evaluation.scoring``).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.arrays.addresses import WORDS, array_at
from raydt.arrays.elementary import AnyArray, Bools, Floats, Int32s, Ints, largest_between
from raydt.arrays.kernel import kernel
from raydt.evaluation.adwin import MOST_SIZES, RING, SIZES, WIDTH, Adwin, sizes_for
from raydt.evaluation.scoring import (
    CLASS_SCORES,
    DELTA,
    FADED,
    FADING,
    KAPPAS,
    LAST,
    LEADER,
    LEARNER,
    LEVELS,
    MAJORITY,
    NO_CHANGE,
    NO_LEVEL,
    NONE,
    PREDICTED,
    RIGHT,
    SCORED,
    TRUE,
    Alarm,
    ClassCounts,
    Evaluation,
    Found,
    Levels,
    Predictions,
    Sparse,
    auc,
    beyond,
    cohen,
    dense_ranks,
    former_prequential,
    is_since,
    no_ranks,
    ranks_in,
    ratio,
    rival_classes,
    score_classes,
    sparse_ranks,
)
from raydt.examples.updates import UNIT
from raydt.messages import message

Codes = Int32s

_NO_RANKS = no_ranks()
_NO_LEVELS = np.empty(0, dtype=np.uint16)


@dataclass(frozen=True, slots=True)
class Hits:
    """Numbers of correct predictions among ``scored``: the learner's and the baselines'."""

    scored: int = 0
    learner: int = 0
    no_change: int = 0
    majority: int = 0


# What an evaluation counts lies in one buffer, so that one compiled call finds what very many evaluations count.


class Tables(NamedTuple):
    """Counts of an evaluation of K classes without its table of ranks: arrays one after another in a buffer."""

    #: ``hits``, ``classes``, ``faded``, ``faded_classes``, ``confusion``: As in :class:`ClassCounts`.
    hits: Any
    registers: Any  #: Shape (2,): ``LAST`` and ``LEADER``.
    adwin_reg: Any  #: ``adwin_reg``, ``adwin_sides`` ...: As in :class:`Adwin`.
    inserted: Any  #: Shape (K,): labels learned so far by class, scored or not.
    classes: Any
    faded: Any
    faded_classes: Any
    confusion: Any
    adwin_sides: Any
    adwin_used: Any
    adwin_first: Any
    adwin_errors: Any


_INTS, _FLOATS = np.empty(0, dtype=np.int64), np.empty(0)
_PAIRS, _FLOAT_PAIRS = _INTS.reshape(0, 0), _FLOATS.reshape(0, 0)
#: Of what types they are.
_LIKE = Tables(*(_INTS, _INTS, _INTS, _INTS, _PAIRS, _FLOATS, _FLOAT_PAIRS, _PAIRS, _FLOATS, _INTS, _INTS, _PAIRS))


#: Those with a row for each size of buckets.
BUCKETS = ("adwin_used", "adwin_first", "adwin_errors")


class _Layout(NamedTuple):
    """Where the arrays of a buffer are, in words of eight bytes."""

    words: int  #: Length of the buffer.
    begin: Tables
    shape: Tables
    addresses: tuple[int, ...]  #: As :attr:`raydt.arrays.addresses.Addresses.words` of a buffer at address 0.


@functools.lru_cache(1 << 10)
def _layout(K: int, sizes: int) -> _Layout:
    """Return the layout for K classes and so many sizes of buckets."""
    shape = Tables((4,), (2,), (4,), (K,), (3, K), (4,), (2, K), (K, K), (2,), (sizes,), (sizes,), (sizes, RING))
    *begin, words = accumulate((math.prod(one) for one in shape), initial=0)
    addresses = [word for at, one in zip(begin, shape, strict=True) for word in (8 * at, *one, 0, 0)[:WORDS]]
    return _Layout(words, Tables(*begin), shape, tuple(addresses))


def _laid_out(buffer: Ints, layout: _Layout) -> Tables:
    """Return the arrays of a buffer, as views."""
    each = zip(layout.shape, _LIKE, layout.begin, strict=True)
    return Tables(*(np.ndarray(shape, like.dtype, buffer, 8 * begin) for shape, like, begin in each))


class _Ranks(NamedTuple):
    """Entries other than 0 of the tables of ranks of some evaluations, one after another."""

    begin: Ints  #: Shape (evaluations + 1,): where those of each begin.
    places: Int32s
    numbers: Ints


@kernel
def _score_many(
    listed: Any, layouts: Any, like: Any, edges: Any, given: Any, before: Any, after: Any, rules: Any, work: Any,
    found: Any, raised: Any,
) -> None:  # fmt: skip
    """Score rows of some evaluations as :meth:`Prequential.update` does. O(rows K + evaluations LEVELS).

    ``listed``, shape (evaluations, 3), has the address of each buffer, its entry of ``layouts``, and whether it has
    ranks. ``given`` are all rows, those of each between two ``edges``; ``work`` is room for addresses, and zeros.
    """
    unit, factor, delta = rules
    words, dense = work
    width, n = np.int64(dense.shape[1]), np.int64(0)
    after.begin[0] = 0
    for k in range(len(raised)):
        begin, end = edges[k], edges[k + 1]
        for i in range(len(words)):
            words[i] = layouts[listed[k, 1], i]
            if i % WORDS == 0:
                words[i] += listed[k, 0]
        own = array_at(like, words, 0)
        truth, no_change, majority = given.truth[begin:end], given.no_change[begin:end], given.majority[begin:end]
        learner, levels, weight = given.learner[begin:end], given.levels[begin:end], given.weight[begin:end]
        rival_classes(truth, own.inserted, own.registers, no_change, majority)
        predictions = Predictions(truth, learner, no_change, majority, levels, weight)
        for i in range(before.begin[k], before.begin[k + 1]):
            dense[before.places[i] // width, before.places[i] % width] = before.numbers[i]
        counts = ClassCounts(own.confusion, own.hits, own.classes, own.faded, own.faded_classes, dense)
        adwin = Adwin(own.adwin_reg, own.adwin_used, own.adwin_first, own.adwin_errors, own.adwin_sides)
        at = Found(found.place[begin:end], found.sides[begin:end], found.width[begin:end])
        raised[k] = score_classes(predictions, counts, unit, factor, adwin, delta, at)
        if listed[k, 2] != 0:
            for side in range(2):
                for level in range(width):
                    if dense[side, level] != 0:
                        after.places[n], after.numbers[n] = side * width + level, dense[side, level]
                        dense[side, level] = 0
                        n += 1
        after.begin[k + 1] = n


#: What a moment keeps: so many arrays, those before the confusion, and their words: without classes, and of each class.
_FRONT = Tables._fields.index("confusion")
_BARE = _layout(0, 0).begin.confusion
_OF_CLASS = _layout(1, 0).begin.confusion - _BARE
#: Word with the width of the window of ADWIN.
_WIDTH = _layout(0, 0).begin.adwin_reg + WIDTH
_NOTHING = np.zeros(_BARE, dtype=np.int64)


class _Moment(NamedTuple):
    """The counts at one moment: what scores are made from."""

    front: Ints  #: ``hits`` to ``faded_classes``, as they are in a buffer.
    auc: float = math.nan
    window_auc: float = math.nan

    @property
    def hits(self) -> Ints:
        """Return the counts of hits."""
        return self.front[: MAJORITY + 1]

    @property
    def classes(self) -> Ints:
        """Return the counts by class."""
        K = (len(self.front) - _BARE) // _OF_CLASS
        begin = _layout(K, 0).begin.classes
        return self.front[begin : begin + 3 * K].reshape(3, K)


def _stacked(fronts: Sequence[Ints]) -> Tables:
    """Return ``hits`` to ``faded_classes`` at some moments of one number of classes, one behind another in each."""
    rows = np.array(fronts)
    layout = _layout((rows.shape[1] - _BARE) // _OF_CLASS, 0)
    each = zip(layout.begin, layout.begin[1:], layout.shape, _LIKE, strict=False)
    found = [
        rows[:, begin:end].view(like.dtype).reshape(len(rows), *shape)
        for begin, end, shape, like in islice(each, _FRONT)
    ]
    return Tables(*found, *[None] * (len(_LIKE) - _FRONT))


class Prequential(Evaluation):
    """Evaluation of predicted classes; class 1 is positive if ``positive``, else while there are at most two."""

    #: Of the metrics table.
    columns: ClassVar[tuple[str, ...]] = (
        *(score.name for score in CLASS_SCORES),
        *("window_accuracy", *(f"window_{name}" for name in KAPPAS), "window_auc"),
        *(f"faded_{name}" for name in FADED),
        *("no_change", "majority", "window_no_change", "window_majority"),
    )

    def __init__(
        self, positive: bool = False, *, fading: float = FADING, delta: float = DELTA, weighted: bool = False
    ) -> None:
        self.positive, self._fading, self._delta = positive, fading, delta
        self._unit = UNIT if weighted else 1  # what counts once
        self._room = 0, 0  # classes, which grow with those seen, and sizes of buckets of ADWIN
        self._buffer = _NOTHING  # what is counted of all scored predictions
        self._seen: Tables | None = None  # its arrays, while they are looked at
        self._dense = _NO_RANKS  # the table of ranks; empty before the first score
        self._resting: Sparse | None = None  # what is not 0 in it, while it is not needed
        self._window_ranks: Sparse = NONE  # the table where the window began
        self.alarms = 0  #: alarms so far
        self._found: list[Alarm] = []
        self._marked: list[_Moment] = []
        self._before = _Moment(_NOTHING)
        self._fit(0, 0)

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes that a copy has: it looks at its own buffer."""
        return {**self.__dict__, "_seen": None}

    @property
    def _tables(self) -> Tables:
        """The arrays of the buffer."""
        if self._seen is None:
            self._seen = _laid_out(self._buffer, _layout(*self._room))
        return self._seen

    def rest(self) -> None:
        """Keep the table of ranks as what is not 0 in it, until the next prediction: for one of very many streams.

        O(LEVELS), as a call of :meth:`score` is then; without scores O(1).
        """
        self._seen = None
        if self._dense.size:
            self._resting, self._dense = sparse_ranks(self._dense), _NO_RANKS

    def _ranks(self) -> Sparse:
        """Return what is not 0 in the table of ranks."""
        return sparse_ranks(self._dense) if self._resting is None else self._resting

    @property
    def confusion(self) -> Ints:
        """Return counts by true class (row) and predicted class (column), shape (K, K)."""
        confusion: Ints = self._tables.confusion
        return confusion

    @property
    def inserted(self) -> Ints:
        """Return labels learned so far by class, scored or not, shape (K,)."""
        inserted: Ints = self._tables.inserted
        return inserted

    def rivals(self, truth: Codes) -> tuple[Codes, Codes]:
        """Learn labels: what *no change* and *majority* predicted just before each, two arrays of shape (n,)."""
        no_change, majority = np.empty(len(truth), dtype=np.int32), np.empty(len(truth), dtype=np.int32)
        if len(truth):
            self._fit(int(truth.max()) + 1, 0)
            own = self._tables
            rival_classes(np.ascontiguousarray(truth), own.inserted, own.registers, no_change, majority)
        return no_change, majority

    def rivals_now(self) -> tuple[int, int]:
        """Return what *no change* and *majority* would predict now."""
        registers = self._tables.registers
        return int(registers[LAST]), int(registers[LEADER])

    def score(
        self,
        truth: Codes,
        prediction: Codes,
        rivals: tuple[Codes, Codes],
        levels: Levels | None = None,
        seq: Ints | None = None,
        weight: AnyArray | None = None,
    ) -> None:
        """Score predictions beside those of the baselines; parameters as of :meth:`update`."""
        n = len(truth)
        if n == 0:
            return
        self._fit(int(max(truth.max(), prediction.max())) + 1, n)
        if not self._dense.size and (levels is not None or self._resting is not None):
            self._dense, self._resting = dense_ranks(self._resting or NONE), None
        found = Found(np.empty(n, dtype=np.int64), np.empty((n, 2)), np.empty(n, dtype=np.int64))
        no_change, majority = rivals
        predictions = Predictions(
            *(np.ascontiguousarray(truth), np.ascontiguousarray(prediction), no_change, majority),
            levels=_NO_LEVELS if levels is None else np.ascontiguousarray(levels),
            weight=np.full(n, self._unit) if weight is None else weight.astype(np.int64),
        )
        own = self._tables
        counts = ClassCounts(own.confusion, own.hits, own.classes, own.faded, own.faded_classes, self._dense)
        adwin = Adwin(own.adwin_reg, own.adwin_used, own.adwin_first, own.adwin_errors, own.adwin_sides)
        raised = score_classes(predictions, counts, self._unit, self._fading, adwin, self._delta, found)
        self._take_raised(raised, found, 0, np.arange(n) if seq is None else seq)

    def _take_raised(self, raised: int, found: Found, begin: int, seq: Ints) -> None:
        """Take so many alarms that were found in rows from ``begin`` on; ``seq`` are the numbers of all rows."""
        for k in range(begin, begin + raised):
            at = int(seq[begin + found.place[k]])
            self._found.append(Alarm(at, int(found.width[k]), float(found.sides[k, 0]), float(found.sides[k, 1])))
        self.alarms += raised

    @staticmethod
    def update_all(
        evaluations: Sequence[Any],
        edges: Ints,
        truth: Codes,
        prediction: Codes,
        levels: AnyArray,
        scored: Sequence[bool],
        seq: Ints,
    ) -> None:
        """As in the base class: by one call, since a few rows take less time than a call of one evaluation."""
        if len(evaluations) == 1:
            Evaluation.update_all(evaluations, edges, truth, prediction, levels, scored, seq)
            return
        n, begins, rooms = len(truth), edges.tolist(), dict[tuple[int, int], int]()
        most = largest_between(np.maximum(truth, prediction), edges).tolist()
        listed: list[tuple[int, int, bool]] = []
        ranks: list[Sparse] = []
        for one, largest, begin, end, known in zip(evaluations, most, begins[:-1], begins[1:], scored, strict=True):
            one.rest()
            one._fit(largest + 1, end - begin)
            kept = begin < end and (known or one._resting is not None)
            ranks.append((one._resting or NONE) if kept else NONE)
            listed.append((one._buffer.ctypes.data, rooms.setdefault(one._room, len(rooms)), kept))
        before = _Ranks(
            np.append(0, np.cumsum([len(places) for places, _ in ranks])),
            np.concatenate([places for places, _ in ranks]),
            np.concatenate([numbers for _, numbers in ranks]),
        )
        m = len(before.places) + n
        after = _Ranks(np.empty_like(before.begin), np.empty(m, dtype=np.int32), np.empty(m, dtype=np.int64))
        one = evaluations[0]
        given = Predictions(
            *(np.ascontiguousarray(truth), np.ascontiguousarray(prediction)),
            *(np.empty(n, dtype=np.int32), np.empty(n, dtype=np.int32)),
            levels=np.ascontiguousarray(levels),
            weight=np.full(n, one._unit),
        )
        layouts = np.array([_layout(*room).addresses for room in rooms], dtype=np.int64)
        found = Found(np.empty(n, dtype=np.int64), np.empty((n, 2)), np.empty(n, dtype=np.int64))
        raised = np.zeros(len(evaluations), dtype=np.int64)
        rest = (one._unit, one._fading, one._delta), (np.empty_like(layouts[0]), no_ranks(LEVELS + 1))
        _score_many(np.array(listed), layouts, _LIKE, edges, given, before, after, *rest, found, raised)
        ends = after.begin.tolist()
        for k, (one, (_, _, kept), alarms) in enumerate(zip(evaluations, listed, raised.tolist(), strict=True)):
            if kept:  # copies: others may keep theirs for longer
                part = slice(ends[k], ends[k + 1])
                one._resting = after.places[part].copy(), after.numbers[part].copy()
            if alarms:
                one._take_raised(alarms, found, begins[k], seq)

    def take_alarms(self) -> list[Alarm]:
        """Return alarms since the last call."""
        found, self._found = self._found, []
        return found

    def state(self) -> dict[str, Any]:
        """Return all that later scores depend on: integers and copies of arrays. O(K^2)."""
        found = self._state() | {name: dense_ranks(ranks) for name, ranks in self._rank_tables().items()}
        found |= {name: with_length(found[name], MOST_SIZES) for name in BUCKETS}
        return {name: one.copy() if isinstance(one, np.ndarray) else one for name, one in found.items()}

    def narrow_state(self) -> dict[str, Any]:
        """Return the same without the zeros of tables of ranks and of ADWIN (:mod:`raydt.keyed.members`).

        Arrays are those that the next prediction changes.
        """
        found, sizes = self._state(), int(self._tables.adwin_reg[SIZES])
        found |= {name: found[name][:sizes] for name in BUCKETS}
        self._seen = None
        for name, ranks in self._rank_tables().items():
            del found[name]
            found[f"{name}_places"], found[f"{name}_numbers"] = ranks
        return found

    def _rank_tables(self) -> dict[str, Sparse]:
        """Return the tables of ranks, by their names in a state; none if nothing has a score."""
        if self._resting is None and not self._dense.size:
            return {}
        return {"ranks": self._ranks(), "window_ranks": self._window_ranks}

    def _state(self) -> dict[str, Any]:
        """Return the state of an evaluation in which nothing has a score, with the arrays as they are."""
        own, before = self._tables, self._before
        return {
            **{name: getattr(own, name) for name in ClassCounts._fields if name != "ranks"},
            "ranks": _NO_RANKS,
            "inserted": own.inserted,
            "registers": own.registers,
            "alarms": self.alarms,
            **{f"adwin_{name}": getattr(own, f"adwin_{name}") for name in Adwin._fields},
            "window_hits": before.hits,
            "window_classes": before.classes,
            "window_ranks": _NO_RANKS,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Resume from what :meth:`state` or :meth:`narrow_state` gave, after the rows were taken. O(K^2).

        What it lacks begins here. ValueError for tables of ranks that no predictions have, and for arrays of lengths
        that do not fit.
        """
        if "hits" not in state:
            state = former_prequential(state)
        self._resting, self._dense = ranks_in(state, "ranks"), _NO_RANKS
        if self._resting is None:
            self._dense = np.array(state["ranks"])
        given = {name: np.asarray(state[name]) for name in Tables._fields}
        K, sizes = len(given["inserted"]), len(given["adwin_used"])
        self._room, self._buffer, self._seen = (0, 0), _NOTHING, None
        self._fit(K, int(given["adwin_reg"][WIDTH]), sizes)
        for name, array in zip(Tables._fields, self._tables, strict=True):
            part = given[name]
            if part.shape != ((sizes, *array.shape[1:]) if name in BUCKETS else array.shape):
                raise ValueError(message("states.impossible", array=name))
            array[: len(part)] = part
        self.alarms, self._found, self._marked = int(state["alarms"]), [], []
        self._before, self._window_ranks = self._moment(), self._ranks()
        if "window_hits" in state:
            self._window_ranks = ranks_in(state, "window_ranks") or sparse_ranks(np.array(state["window_ranks"]))
            if not is_since(self._window_ranks, self._ranks()):
                raise ValueError(message("states.impossible", array="window_ranks"))
            K = np.shape(state["window_classes"])[1]
            buffer = np.zeros(_layout(K, 0).words, dtype=np.int64)
            since = _laid_out(buffer, _layout(K, 0))
            since.hits[:], since.classes[:] = state["window_hits"], state["window_classes"]
            self._before = self._before._replace(front=buffer[: _BARE + _OF_CLASS * K])

    def sums(self) -> Ints:
        """Return counts that may be added up over several streams: scored, and right ones as in :class:`Hits`."""
        sums: Ints = self._buffer[: MAJORITY + 1].copy()
        return sums

    def snapshot(self) -> Hits:
        """Return hits so far; O(1)."""
        return Hits(*self.sums().tolist())

    def scores(self) -> dict[str, float]:
        """Return ``accuracy``, ``f1``, ``macro_f1``, ``kappa``, ``kappa_temporal``, ``kappa_m`` and ``auc``.

        ``f1`` is that of class 1 and NaN where there is no positive class, as ``auc`` is, which also needs the score of
        every prediction. A class that was neither true nor predicted takes no part in ``macro_f1``; F1 of a class never
        hit is 0. Everything is NaN before the first scored prediction, and a kappa while what it is compared with is
        always right. O(K^2).
        """
        now = self._moment()
        found = _scores(_stacked([now.front]), [now.auc], self.positive)
        return {name: float(values[0]) for name, values in found.items()}

    def faded(self) -> dict[str, float]:
        """Return ``faded_accuracy`` and the faded kappas: a prediction counts less with each that follows. O(K)."""
        return {name: float(values[0]) for name, values in _faded(_stacked([self._moment().front])).items()}

    def baselines(self) -> dict[str, float]:
        """Return the accuracy of the trivial predictors on the same predictions."""
        return {name: float(values[0]) for name, values in _baselines(self.sums()[None]).items()}

    def mark(self) -> None:
        """End a window here, and keep the counts of this moment for :meth:`take_rows`. O(K), with scores O(LEVELS)."""
        ranks = self._ranks()
        moment = self._moment(ranks)
        scored = int(moment.front[SCORED] - (self._marked or [self._before])[-1].front[SCORED])
        whole = scored == moment.front[SCORED] and not len(self._window_ranks[0])
        since = moment.auc if whole else self._auc(scored, ranks, self._window_ranks)
        self._marked.append(moment._replace(window_auc=since))
        self._window_ranks = ranks

    def take_rows(self) -> dict[str, Floats]:
        """Return values of :attr:`columns` at each :meth:`mark` since the last call, arrays of one length m. O(m K)."""
        return self.rows_of(self.take_marked())

    def take_marked(self) -> list[tuple[_Moment, _Moment]]:
        """Return the moments of each :meth:`mark` since the last call, with the one before each."""
        moments, self._marked = self._marked, []
        before, self._before = [self._before, *moments], (moments or [self._before])[-1]
        return list(zip(moments, before, strict=False))

    def now(self) -> tuple[_Moment, _Moment]:
        """Return this moment, with the last one that was taken."""
        return self._moment(), self._before

    def rows_of(self, marked: Sequence[tuple[_Moment, _Moment]]) -> dict[str, Floats]:
        """Return values of :attr:`columns` at moments of this evaluation, or of others of its kind. O(m K).

        Moments of one number of classes are taken together: the sum of floats depends on how many zeros are among them.
        """
        rows = {name: np.empty(len(marked)) for name in self.columns}
        widths = (np.array([len(moment.front) for moment, _ in marked], dtype=np.int64) - _BARE) // _OF_CLASS
        for K in np.unique(widths).tolist():
            places = np.flatnonzero(widths == K)
            for name, values in _rows([marked[i] for i in places.tolist()], self.positive).items():
                rows[name][places] = values
        return rows

    def figures(self, n_classes: int) -> dict[str, Any]:
        """Return entries for the summary: scores, ``alarms``, and ``confusion`` with all ``n_classes`` as lists."""
        missing = max(0, n_classes - len(self.confusion))
        whole = self.confusion if self._unit == 1 else self.confusion / self._unit
        confusion = np.pad(whole, (0, missing)).tolist()
        return {**self.scores(), **self.faded(), "alarms": self.alarms, "confusion": confusion}

    def headline(self) -> tuple[str, float]:
        """Return the score that is shown while a run is under way, and its name."""
        hits = self.snapshot()
        return "accuracy", hits.learner / hits.scored if hits.scored else math.nan

    def _moment(self, ranks: Sparse | None = None) -> _Moment:
        front = self._buffer[: _BARE + _OF_CLASS * self._room[0]].copy()
        return _Moment(front, self._auc(int(front[SCORED]), self._ranks() if ranks is None else ranks))

    def _auc(self, scored: int, ranks: Sparse, since: Sparse = NONE) -> float:
        """Return the AUC; NaN without a positive class, and if not every prediction had a score."""
        if (not self.positive and self._room[0] > 2) or not scored:
            return math.nan
        value, ranked = auc(ranks, since, self._unit)
        return value if ranked * self._unit == scored else math.nan

    def _fit(self, classes: int, predictions: int, sizes: int = 0) -> None:
        """Make room for so many classes, and for so many more predictions, or sizes of buckets."""
        K, have = self._room
        sizes = max(have, sizes, sizes_for(int(self._buffer[_WIDTH]) + predictions))
        if classes <= K and sizes <= have:
            return
        self._room, before = (max(classes, K), sizes), self._tables if K else ()
        self._buffer, self._seen = np.zeros(_layout(*self._room).words, dtype=np.int64), None
        for old, new in zip(before, self._tables, strict=False):
            new[tuple(map(slice, old.shape))] = old


def _padded(counts: AnyArray, K: int) -> AnyArray:
    """Return counts with room for K classes on the last axis."""
    known = counts.shape[-1]
    if known == K:
        return counts
    padded = np.zeros((*counts.shape[:-1], K), dtype=counts.dtype)  # numpy.pad takes 20 times as long
    padded[..., :known] = counts
    return padded


def with_length(array: AnyArray, length: int) -> AnyArray:
    """Return an array with so many rows: without its last ones, or with zeros behind them."""
    found = np.zeros((length, *array.shape[1:]), dtype=array.dtype)
    found[: len(array)] = array[:length]
    return found


def _rows(marked: Sequence[tuple[_Moment, _Moment]], positive: bool) -> dict[str, Floats]:
    """Return values of the columns at moments of one number of classes."""
    now, before = _stacked([moment.front for moment, _ in marked]), [moment for _, moment in marked]
    hits = now.hits - np.array([one.hits for one in before])
    classes = now.classes - np.array([_padded(one.classes, now.classes.shape[2]) for one in before])
    windowed = {"accuracy": ratio(hits[:, LEARNER], hits[:, SCORED]), **_kappas(hits, classes)}
    return {
        **_scores(now, [moment.auc for moment, _ in marked], positive),
        **{f"window_{name}": values for name, values in windowed.items()},
        "window_auc": np.array([moment.window_auc for moment, _ in marked]),
        **_faded(now),
        **_baselines(now.hits),
        **{f"window_{name}": values for name, values in _baselines(hits).items()},
    }


def _scores(now: Tables, aucs: Sequence[float], positive: bool) -> dict[str, Floats]:
    """Return scores at moments of one number of classes, K."""
    hits, classes = now.hits, now.classes
    hit, either = classes[:, RIGHT], classes[:, TRUE] + classes[:, PREDICTED]
    f1, scored, seen, K = ratio(2 * hit, either), hits[:, SCORED], either > 0, classes.shape[2]
    of_1 = np.nan_to_num(f1[:, 1]) if K > 1 else np.zeros(len(hits))
    return {
        "accuracy": ratio(hits[:, LEARNER], scored),
        "f1": np.where((positive or K <= 2) & (scored > 0), of_1, np.nan),
        "macro_f1": ratio(np.where(seen, f1, 0.0).sum(axis=1), seen.sum(axis=1)),
        **_kappas(hits, classes),
        "auc": np.array(aucs),
    }


def _kappas(hits: AnyArray, classes: AnyArray) -> dict[str, Floats]:
    """Return the three kappas: against chance, against *no change* and against *majority*."""
    right, scored = hits[:, LEARNER], hits[:, SCORED]
    values = (
        cohen(right, classes[:, TRUE], classes[:, PREDICTED], scored),
        beyond(right, hits[:, NO_CHANGE], scored),
        beyond(right, hits[:, MAJORITY], scored),
    )
    return dict(zip(KAPPAS, values, strict=True))


def _faded(now: Tables) -> dict[str, Floats]:
    hits = now.faded
    scores = {"accuracy": ratio(hits[:, LEARNER], hits[:, SCORED]), **_kappas(hits, now.faded_classes)}
    return {f"faded_{name}": values for name, values in scores.items()}


def _baselines(hits: Ints) -> dict[str, Floats]:
    rivals = {"no_change": NO_CHANGE, "majority": MAJORITY}
    return {name: ratio(hits[:, column], hits[:, SCORED]) for name, column in rivals.items()}


# Predictions that wait for their labels: a query comes first, and the example with its label is inserted later.
#
# Invariant: what is scored is the prediction of the latest query of an id before its insertion, beside what the
# baselines predicted at that query; they knew no label that came after it. An example that was never asked about is
# scored by the prediction just before its insertion. A query whose label never comes is kept, and never scored.

#: What is kept of a query.
_COLUMNS = ("id", "prediction", "level", "no_change", "rival")


class ScoredRows(NamedTuple):
    """Rows of a batch that were inserted or only predicted, in stream order; arrays of one length n."""

    id: Ints
    query: Bools  #: Only predicted.
    truth: AnyArray  #: ``truth``, ``prediction``: The truth of a query is not read.
    prediction: AnyArray
    levels: npt.NDArray[np.uint16] | None
    seq: Ints
    weight: npt.NDArray[np.uint32] | None = None  #: That of a query is not read.


class Delayed:
    """Scores a stream of queries and of labels that come later."""

    def __init__(self, evaluation: Any) -> None:
        self._evaluation = evaluation
        self._asked: dict[int, tuple[Any, int, Any, Any]] = {}  # id -> prediction, level, and those of the baselines

    def update(self, rows: ScoredRows) -> None:
        """Take rows into account. O(1) for each, in Python."""
        inserted = ~rows.query
        learned = rows.truth[inserted]
        rivals = self._evaluation.rivals(learned)
        # What the baselines predict at a query is what they predict at the next insertion.
        known = [np.append(rival, now) for rival, now in zip(rivals, self._evaluation.rivals_now(), strict=True)]
        place: Ints = np.cumsum(inserted) - inserted
        prediction = rows.prediction.copy()
        levels = np.full(len(rows.id), NO_LEVEL) if rows.levels is None else rows.levels.copy()
        for i, (id_, query, at) in enumerate(zip(rows.id.tolist(), rows.query.tolist(), place.tolist(), strict=True)):
            if query:
                self._asked[id_] = (prediction[i].item(), int(levels[i]), known[0][at].item(), known[1][at].item())
            elif id_ in self._asked:
                prediction[i], levels[i], rivals[0][at], rivals[1][at] = self._asked.pop(id_)
        given = None if rows.levels is None else levels[inserted]
        weight = None if rows.weight is None else rows.weight[inserted]
        self._evaluation.score(learned, prediction[inserted], rivals, given, rows.seq[inserted], weight)

    def state(self) -> dict[str, Any]:
        """Return queries that wait, in order: arrays of one length."""
        columns = list(zip(*((id_, *entry) for id_, entry in self._asked.items()), strict=True)) or [()] * 5
        return {
            f"asked_{name}": np.array(column, dtype=np.int64 if name in ("id", "level") else np.float64)
            for name, column in zip(_COLUMNS, columns, strict=True)
        }

    def restore(self, state: Mapping[str, Any], dtype: np.dtype[Any]) -> None:
        """Resume from what :meth:`state` gave; ``dtype`` is that of the targets."""
        columns = (state[f"asked_{name}"] for name in _COLUMNS)
        kinds = (np.int64, dtype, np.int64, dtype, dtype)
        lists = (column.astype(kind).tolist() for column, kind in zip(columns, kinds, strict=True))
        self._asked = {id_: (*entry,) for id_, *entry in zip(*lists, strict=True)}
