"""Prequential classification metrics, and the trivial predictors every result has to be compared with.

Invariant: everything is derived from counts, which depend on the sequence of labels and predictions only, never on how
it was cut into batches. *No change* predicts the label inserted just before, *majority* the one inserted most often so
far, ties to the smaller class; before any label is known both predict class 0. Not here: the loops over predictions
(``raydt.evaluation.scoring``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from raydt.arrays.elementary import AnyArray, Bools, Floats, Int32s, Ints
from raydt.evaluation.adwin import Adwin, new_adwin
from raydt.evaluation.scoring import (
    CLASS_SCORES,
    DELTA,
    FADED,
    FADING,
    KAPPAS,
    LAST,
    LEADER,
    LEARNER,
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


class _Moment(NamedTuple):
    """The counts at one moment: what scores are made from. Arrays as in ``ClassCounts``."""

    hits: Ints
    classes: Ints
    faded: Floats
    faded_classes: Floats
    auc: float = math.nan
    window_auc: float = math.nan


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
        self.inserted = np.zeros(0, dtype=np.int64)  #: labels learned so far by class, scored or not
        #: counts of all scored predictions; they grow with the classes seen
        self.counts = ClassCounts(
            confusion=np.zeros((0, 0), dtype=np.int64),
            hits=np.zeros(4, dtype=np.int64),
            classes=np.zeros((3, 0), dtype=np.int64),
            faded=np.zeros(4),
            faded_classes=np.zeros((2, 0)),
            ranks=no_ranks(),
        )
        self.alarms = 0  #: alarms so far
        self._resting: Sparse | None = None  # the table of ranks, while it is not needed
        self._window_ranks: Sparse = NONE  # the table where the window began
        self._registers = np.zeros(2, dtype=np.int64)
        self._adwin = new_adwin()
        self._found: list[Alarm] = []
        self._marked: list[_Moment] = []
        self._before: _Moment = self._moment(NONE)

    def rest(self) -> None:
        """Keep the table of ranks as what is not 0 in it, until the next prediction: for one of very many streams.

        O(LEVELS), as a call of :meth:`score` is then; without scores O(1).
        """
        if self.counts.ranks.size:
            self._resting = sparse_ranks(self.counts.ranks)
            self.counts = self.counts._replace(ranks=_NO_RANKS)

    def _ranks(self) -> Sparse:
        """Return what is not 0 in the table of ranks."""
        return sparse_ranks(self.counts.ranks) if self._resting is None else self._resting

    @property
    def confusion(self) -> Ints:
        """Return counts by true class (row) and predicted class (column), shape (K, K)."""
        return self.counts.confusion

    def rivals(self, truth: Codes) -> tuple[Codes, Codes]:
        """Learn labels: what *no change* and *majority* predicted just before each, two arrays of shape (n,)."""
        no_change, majority = np.empty(len(truth), dtype=np.int32), np.empty(len(truth), dtype=np.int32)
        if len(truth):
            self._grow(int(truth.max()) + 1)
            rival_classes(np.ascontiguousarray(truth), self.inserted, self._registers, no_change, majority)
        return no_change, majority

    def rivals_now(self) -> tuple[int, int]:
        """Return what *no change* and *majority* would predict now."""
        return int(self._registers[LAST]), int(self._registers[LEADER])

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
        self._grow(int(max(truth.max(), prediction.max())) + 1)
        if not self.counts.ranks.size and (levels is not None or self._resting is not None):
            self.counts = self.counts._replace(ranks=dense_ranks(self._resting or NONE))
            self._resting = None
        found = Found(np.empty(n, dtype=np.int64), np.empty((n, 2)), np.empty(n, dtype=np.int64))
        no_change, majority = rivals
        predictions = Predictions(
            *(np.ascontiguousarray(truth), np.ascontiguousarray(prediction), no_change, majority),
            levels=_NO_LEVELS if levels is None else np.ascontiguousarray(levels),
            weight=np.full(n, self._unit) if weight is None else weight.astype(np.int64),
        )
        raised = score_classes(predictions, self.counts, self._unit, self._fading, self._adwin, self._delta, found)
        for k in range(raised):
            place = int(found.place[k])
            at = place if seq is None else int(seq[place])
            self._found.append(Alarm(at, int(found.width[k]), float(found.sides[k, 0]), float(found.sides[k, 1])))
        self.alarms += raised

    def take_alarms(self) -> list[Alarm]:
        """Return alarms since the last call."""
        found, self._found = self._found, []
        return found

    def state(self) -> dict[str, Any]:
        """Return all that later scores depend on: integers and copies of arrays. O(K^2)."""
        return self._without_ranks() | {name: dense_ranks(ranks) for name, ranks in self._tables().items()}

    def narrow_state(self) -> dict[str, Any]:
        """Return the same without the zeros of tables of ranks (:mod:`raydt.keyed.members`)."""
        found = self._without_ranks()
        for name, ranks in self._tables().items():
            del found[name]
            found[f"{name}_places"], found[f"{name}_numbers"] = ranks
        return found

    def _tables(self) -> dict[str, Sparse]:
        """Return the tables of ranks, by their names in a state; none if nothing has a score."""
        if self._resting is None and not self.counts.ranks.size:
            return {}
        return {"ranks": self._ranks(), "window_ranks": self._window_ranks}

    def _without_ranks(self) -> dict[str, Any]:
        """Return the state of an evaluation in which nothing has a score."""
        window = {"hits": self._before.hits, "classes": self._before.classes, "ranks": _NO_RANKS}
        return {
            **_copied(self.counts._replace(ranks=_NO_RANKS)._asdict()),
            "inserted": self.inserted.copy(),
            "registers": self._registers.copy(),
            "alarms": self.alarms,
            **_copied(self._adwin._asdict(), "adwin_"),
            **_copied(window, "window_"),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Resume from what :meth:`state` or :meth:`narrow_state` gave, after the rows were taken. O(K^2).

        What it lacks begins here. ValueError for tables of ranks that no predictions have.
        """
        if "hits" not in state:
            state = former_prequential(state)
        self._resting = ranks_in(state, "ranks")
        if self._resting is not None:
            state = {**state, "ranks": _NO_RANKS}
        self.counts = ClassCounts(**{name: np.array(state[name]) for name in ClassCounts._fields})
        self.inserted, self._registers = np.array(state["inserted"]), np.array(state["registers"])
        self.alarms, self._found, self._marked = int(state["alarms"]), [], []
        self._adwin = Adwin(*(np.array(state[f"adwin_{name}"]) for name in Adwin._fields))
        self._before, self._window_ranks = self._moment(), self._ranks()
        if "window_hits" in state:
            self._window_ranks = ranks_in(state, "window_ranks") or sparse_ranks(np.array(state["window_ranks"]))
            if not is_since(self._window_ranks, self._ranks()):
                raise ValueError(message("states.impossible", array="window_ranks"))
            hits, classes = np.array(state["window_hits"]), np.array(state["window_classes"])
            self._before = self._before._replace(hits=hits, classes=classes)

    def sums(self) -> Ints:
        """Return counts that may be added up over several streams: scored, and right ones as in :class:`Hits`."""
        sums: Ints = self.counts.hits.copy()
        return sums

    def snapshot(self) -> Hits:
        """Return hits so far; O(1)."""
        return Hits(*self.counts.hits.tolist())

    def scores(self) -> dict[str, float]:
        """Return ``accuracy``, ``f1``, ``macro_f1``, ``kappa``, ``kappa_temporal``, ``kappa_m`` and ``auc``.

        ``f1`` is that of class 1 and NaN where there is no positive class, as ``auc`` is, which also needs the score of
        every prediction. A class that was neither true nor predicted takes no part in ``macro_f1``; F1 of a class never
        hit is 0. Everything is NaN before the first scored prediction, and a kappa while what it is compared with is
        always right. O(K^2).
        """
        return {name: float(values[0]) for name, values in _scores([self._moment()], self.positive).items()}

    def faded(self) -> dict[str, float]:
        """Return ``faded_accuracy`` and the faded kappas: a prediction counts less with each that follows. O(K)."""
        return {name: float(values[0]) for name, values in _faded([self._moment()]).items()}

    def baselines(self) -> dict[str, float]:
        """Return the accuracy of the trivial predictors on the same predictions."""
        return {name: float(values[0]) for name, values in _baselines(self.counts.hits[None]).items()}

    def mark(self) -> None:
        """End a window here, and keep the counts of this moment for :meth:`take_rows`. O(K), with scores O(LEVELS)."""
        ranks = self._ranks()
        moment = self._moment(ranks)
        scored = int(moment.hits[SCORED] - (self._marked or [self._before])[-1].hits[SCORED])
        self._marked.append(moment._replace(window_auc=self._auc(scored, ranks, self._window_ranks)))
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
        widths = np.array([moment.classes.shape[1] for moment, _ in marked], dtype=np.int64)
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
        counts, ranks = self.counts, self._ranks() if ranks is None else ranks
        return _Moment(
            hits=counts.hits.copy(),
            classes=counts.classes.copy(),
            faded=counts.faded.copy(),
            faded_classes=counts.faded_classes.copy(),
            auc=self._auc(int(counts.hits[SCORED]), ranks),
        )

    def _auc(self, scored: int, ranks: Sparse, since: Sparse = NONE) -> float:
        """Return the AUC; NaN without a positive class, and if not every prediction had a score."""
        if (not self.positive and len(self.inserted) > 2) or not scored:
            return math.nan
        value, ranked = auc(ranks, since, self._unit)
        return value if ranked * self._unit == scored else math.nan

    def _grow(self, classes: int) -> None:
        if classes > len(self.inserted):
            self.inserted = _padded(self.inserted, classes)
            counts = self.counts
            self.counts = counts._replace(
                confusion=_padded(_padded(counts.confusion, classes).T, classes).T.copy(),
                classes=_padded(counts.classes, classes),
                faded_classes=_padded(counts.faded_classes, classes),
            )


def _padded(counts: AnyArray, K: int) -> AnyArray:
    """Return counts with room for K classes on the last axis."""
    known = counts.shape[-1]
    if known == K:
        return counts
    padded = np.zeros((*counts.shape[:-1], K), dtype=counts.dtype)  # numpy.pad takes 20 times as long
    padded[..., :known] = counts
    return padded


def _copied(arrays: Mapping[str, AnyArray], prefix: str = "") -> dict[str, AnyArray]:
    return {prefix + name: array.copy() for name, array in arrays.items()}


def _rows(marked: Sequence[tuple[_Moment, _Moment]], positive: bool) -> dict[str, Floats]:
    """Return values of the columns at moments of one number of classes."""
    moments = [moment for moment, _ in marked]
    windows = [_difference(now, before) for now, before in marked]
    hits = np.array([window.hits for window in windows])
    classes = np.array([window.classes for window in windows])
    windowed = {"accuracy": ratio(hits[:, LEARNER], hits[:, SCORED]), **_kappas(hits, classes)}
    return {
        **_scores(moments, positive),
        **{f"window_{name}": values for name, values in windowed.items()},
        "window_auc": np.array([moment.window_auc for moment in moments]),
        **_faded(moments),
        **_baselines(np.array([moment.hits for moment in moments])),
        **{f"window_{name}": values for name, values in _baselines(hits).items()},
    }


def _scores(moments: Sequence[_Moment], positive: bool) -> dict[str, Floats]:
    """Return scores at moments of one number of classes, K."""
    hits, classes = np.array([moment.hits for moment in moments]), np.array([moment.classes for moment in moments])
    hit, either = classes[:, RIGHT], classes[:, TRUE] + classes[:, PREDICTED]
    f1, scored, seen, K = ratio(2 * hit, either), hits[:, SCORED], either > 0, classes.shape[2]
    of_1 = np.nan_to_num(f1[:, 1]) if K > 1 else np.zeros(len(moments))
    return {
        "accuracy": ratio(hits[:, LEARNER], scored),
        "f1": np.where((positive or K <= 2) & (scored > 0), of_1, np.nan),
        "macro_f1": ratio(np.where(seen, f1, 0.0).sum(axis=1), seen.sum(axis=1)),
        **_kappas(hits, classes),
        "auc": np.array([moment.auc for moment in moments]),
    }


def _difference(now: _Moment, before: _Moment) -> _Moment:
    """Return what was counted between two moments."""
    classes = now.classes - _padded(before.classes, now.classes.shape[1])
    return now._replace(hits=now.hits - before.hits, classes=classes)


def _kappas(hits: AnyArray, classes: AnyArray) -> dict[str, Floats]:
    """Return the three kappas: against chance, against *no change* and against *majority*."""
    right, scored = hits[:, LEARNER], hits[:, SCORED]
    values = (
        cohen(right, classes[:, TRUE], classes[:, PREDICTED], scored),
        beyond(right, hits[:, NO_CHANGE], scored),
        beyond(right, hits[:, MAJORITY], scored),
    )
    return dict(zip(KAPPAS, values, strict=True))


def _faded(moments: Sequence[_Moment]) -> dict[str, Floats]:
    hits, classes = (np.array([getattr(moment, name) for moment in moments]) for name in ("faded", "faded_classes"))
    scores = {"accuracy": ratio(hits[:, LEARNER], hits[:, SCORED]), **_kappas(hits, classes)}
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
