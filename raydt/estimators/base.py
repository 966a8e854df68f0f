"""Base of all estimators: examples with stable ids, inserted or deleted in one call or not at all."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from raydt.arrays.sparse import SparseRows
from raydt.errors import ConfigError, HalfAppliedError, InputError, UpdateError
from raydt.estimators.arguments import ids_of, index_of, warn_of_index, weights_of
from raydt.estimators.fitted import Fitted
from raydt.estimators.frames import nothing_in
from raydt.examples.targets import Targets, dtype_of, in_order, no_targets
from raydt.examples.updates import (
    DELETE,
    DUPLICATE_ID,
    INSERT,
    REFUSALS,
    UNKNOWN_ID,
    Log,
    UpdateBatch,
    joined,
    refuse_numbered,
    running_ids,
)
from raydt.examples.weights import UNIT, Weights, of_labels, products, unless_equal
from raydt.learners import no_weights, traits_of
from raydt.messages import message
from raydt.sessions.copies import OF_AN_ESTIMATOR
from raydt.sessions.receipt import Receipt, apply_with_receipt
from raydt.sources.base import require

Self = TypeVar("Self", bound="Estimator")


class _NewExamples(NamedTuple):
    """Examples to insert: ids (``numbered`` here although their frame has an index), encoded features, and targets."""

    numbered: bool
    key: npt.NDArray[np.int64]
    rows: npt.NDArray[np.float64]
    sparse: SparseRows | None
    targets: Targets
    weight: Weights | None  #: In units; None if all are 1.


class Estimator(Fitted):
    """Base of :class:`raydt.estimators.targets.Classifier` and ``Regressor``, which know what ``y`` is."""

    def fit(self: Self, X: Any, y: Any, *, ids: Any = None, **weights: Any) -> Self:
        """Forget everything and build the model at once from (X, y); after an error the old model is still there.

        Parameters
        ----------
        X : array-like, data frame or Arrow table, shape (n, d)
        y : array-like, shape (n,)
        ids : array-like of int, shape (n,), optional
            Stable ids; running integers by default, returned in ``row_ids_``.

        Raises
        ------
        ConfigError
            A parameter has a value that is not allowed.
        InputError
            NaN, infinite or missing values, ids that are no integers or given twice, lengths that differ.
        """
        return self._begin(X, y, None, ids, self._sample_weight(weights), warmup=True)

    def forget(self, ids: Any, *, digests: bool = True) -> Receipt:
        """Delete examples by id; all of them or, if an error is raised, none.

        Parameters
        ----------
        ids : array-like of int, shape (m,)
        digests : bool
            Whether the receipt has digests. The first takes a pass over all live examples, 0.2 s for a million; later
            ones follow what has changed: O(log n) hashes for each row, and those of the nodes that changed.

        Raises
        ------
        UpdateError
            An id is not live, or given twice.
        InputError
            The examples came from a state whose ids are text, or an id was not given: it is the number of a row of a
            data frame whose index has a name.
        """
        return self._atomically(self._forget, ids, digests)

    def replace_examples(
        self, ids: Any, X: Any, y: Any, *, new_ids: Any = None, digests: bool = True, **weights: Any
    ) -> Receipt:
        """Delete examples by id and insert others, in one batch: one step of a sliding window.

        All of it or, if an error is raised, nothing. Learners that collect updates apply both together, which costs
        less than :meth:`forget` and ``partial_fit``.

        Parameters
        ----------
        ids : array-like of int, shape (m,)
            The examples to delete; none are allowed.
        X : array-like, data frame or Arrow table, shape (n, d)
            At least one row; to delete only, call :meth:`forget`.
        y : array-like, shape (n,)
        new_ids : array-like of int, shape (n,), optional
            Ids of the new examples, also those of deleted ones; running integers by default, returned in ``row_ids_``.
        digests : bool
            As in :meth:`forget`.

        Raises
        ------
        UpdateError
            An id to delete is not live, a new one is, or one is given twice.
        InputError
            Values that ``partial_fit`` would refuse, or lengths that differ.
        """
        return self._atomically(self._replace, ids, X, y, new_ids, self._sample_weight(weights), digests)

    def forget_examples(self, X: Any, y: Any, *, digests: bool = True) -> Receipt:
        """Delete examples by value: for each row the oldest live example equal to it (NaN equals NaN).

        All of them or, if an error is raised, none. A row takes O(live examples x features), of a tree O(rows of its
        leaf); ``digests`` as in :meth:`forget`.

        Raises
        ------
        InputError
            Values that ``fit`` would refuse, or lengths that differ.
        UpdateError
            Fewer live examples equal a row than the call asks to delete.
        """
        return self._atomically(self._forget_equal, X, y, digests)

    # ------------------------------------------------------------ inside

    def _sample_weight(self, weights: Mapping[str, Any]) -> Any:
        """Return ``sample_weight`` among further arguments, of which there is no other."""
        for name in weights:
            if name != "sample_weight":
                raise TypeError(message("estimators.no_argument", name=name))
        given = weights.get("sample_weight")
        if given is not None and not self._learner.traits(self._options()).reading.weights:
            raise ConfigError(no_weights("sample_weight", type(self).__name__))
        return given

    def _begin(self: Self, X: Any, y: Any, classes: Any, ids: Any, weights: Any, warmup: bool) -> Self:
        """Replace the model by a new one; on an error nothing changes, since a shallow copy does the work."""
        with self._lock:
            new = type(self).__new__(type(self))
            new.__dict__ = self.__dict__ | {"_change": None}
            new._start(X, y, classes)
            new._insert(X, y, ids, weights, warmup)
            self.__dict__ = new.__dict__
        return self

    def _more(self: Self, X: Any, y: Any, classes: Any, ids: Any, weights: Any) -> Self:
        """Insert examples into the model; the first ones make it."""
        if not self.__sklearn_is_fitted__():
            return self._begin(X, y, classes, ids, weights, warmup=bool(traits_of(self._options()).warmup))
        self._require_examples()
        return self._atomically(self._insert, X, y, ids, weights, False)

    def _start(self, X: Any, y: Any, classes: Any) -> None:
        self._fitted_options = self._options()
        self._encoder = self._new_encoder(self.categorical_features)
        self._encoder.learn(X)
        require(self._traits.reading, self._features())
        self._learn_targets(y, classes)
        self.__dict__.pop("_loaded", None)
        self._declared = classes is not None
        self._seq, self._next_id, self._columns, self._numbered = 0, 0, {}, []
        self._set_fitted()
        self._open_session()

    def _forget(self, ids: Any, digests: bool) -> Receipt:
        return self._delete(*self._deletable(ids), digests)

    def _forget_equal(self, X: Any, y: Any, digests: bool) -> Receipt:
        rows, sparse = self._rows(X, known=True)
        self._require_examples()
        given = self._checked(y)
        if len(rows) != len(given):
            raise InputError(message("estimators.other_labels", rows=len(rows), labels=len(given)))
        coordinator = self.session_.coordinator
        taken: dict[tuple[bytes, ...], list[int]] = {}
        chosen = []
        for row, target in enumerate(self._looked_up(given).tolist()):
            value = rows[row].tobytes(), repr(target).encode(), *(s.row(row).tobytes() for s in sparse.values())
            if value not in taken:
                slots = self.session_.driver.run(coordinator.find_equal(rows, row, target, **sparse))
                taken[value] = self._store().id[slots][::-1].tolist()
            if not taken[value]:
                raise UpdateError(message("examples.unknown_value"), row=row)
            chosen.append(taken[value].pop())
        key = np.array(chosen, dtype=np.int64)
        return self._delete(key, self._store().find(key), digests)

    def _delete(self, key: npt.NDArray[np.int64], slots: npt.NDArray[np.int32], digests: bool) -> Receipt:
        """Delete live examples."""
        width = self._features().sparse
        nothing = np.empty((0, len(self._features().names)))
        no_y = no_targets(0, dtype_of(self._traits.reading.regression))
        sparse = SparseRows.empty(width) if width else None
        batch = self._next_batch(np.full(len(key), DELETE, dtype=np.int8), key, nothing, no_y, sparse)
        return self._apply_with_receipt(batch, slots, self.digest() if digests else None)

    def _replace(self, ids: Any, X: Any, y: Any, new_ids: Any, weights: Any, digests: bool) -> Receipt:
        gone, slots = self._deletable(ids)
        before = self.digest() if digests else None  # new labels are not learned yet
        new = self._insertable(X, y, new_ids, weights, gone)
        op = np.repeat(np.array([DELETE, INSERT], dtype=np.int8), [len(gone), len(new.key)])
        key = np.concatenate([gone, new.key])
        batch = self._next_batch(op, key, new.rows, new.targets, new.sparse, weight=new.weight)
        receipt = self._apply_with_receipt(batch, slots, before)
        self._take_ids(new)
        return receipt

    def _deletable(self, ids: Any) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
        """Ids of examples that can all be deleted and their slots, or an error."""
        self._require_fitted()
        self._require_examples()
        self._refuse_text_ids()
        key = ids_of(ids)
        refuse_numbered(self._numbered, key)
        slots = self._store().find(key)
        self._refuse(slots < 0, key, UNKNOWN_ID)
        self._refuse_repeated(key)
        return key, slots

    def _apply_with_receipt(self, batch: UpdateBatch, slots: npt.NDArray[np.int32], before: str | None) -> Receipt:
        """Apply a batch that cannot be refused any more and that empties ``slots``.

        With the digest ``before`` it, the receipt has both.
        """
        self._change_begins(batch, slots)
        receipt = apply_with_receipt(
            self.session_,
            batch,
            self._classes,
            self._fitted_options,
            copies=OF_AN_ESTIMATOR,
            digest_before=before,
            digests=before is not None,
        )
        self._advance(batch, receipt.log)
        if before is not None:
            self._known["digest"] = receipt.digest_after
        return receipt

    def _insertable(self, X: Any, y: Any, ids: Any, weights: Any, gone: npt.NDArray[np.int64]) -> _NewExamples:
        """Examples that can all be inserted once those with the ids ``gone`` are deleted, or an error."""
        given = self._checked(y)
        rows, sparse = self._encoder.encode(X, type(self).__name__, grow=True, known=True)
        if not len(rows):
            raise nothing_in(rows.shape, "sample")
        if len(rows) != len(given):
            raise InputError(message("estimators.other_labels", rows=len(rows), labels=len(given)))
        if ids is None:
            key = running_ids(self._next_id, len(rows))
        else:
            key = ids_of(ids)
            if key.shape != (len(rows),):
                raise InputError(message("estimators.other_ids", rows=len(rows), shape=key.shape))
        if ids is not None:  # running ids ascend
            self._refuse_repeated(key)
        self._refuse((self._store().find(key) >= 0) & ~np.isin(key, gone), key, DUPLICATE_ID)
        weight = None if weights is None else weights_of(weights, len(rows))
        targets = self._encoded(given)  # the last that can be refused
        numbered = ids is None and bool(index_of(X))
        if numbered:
            warn_of_index(X, key)
        class_weight = self._traits.reading.class_weight
        if class_weight:
            factors = of_labels(class_weight, self._classes)[targets]
            weight = products(UNIT if weight is None else weight, factors)
        return _NewExamples(numbered, key, rows, sparse, targets, unless_equal(weight))

    def _insert(self: Self, X: Any, y: Any, ids: Any, weights: Any, warmup: bool) -> Self:
        new = self._insertable(X, y, ids, weights, np.empty(0, dtype=np.int64))
        op = np.full(len(new.key), INSERT, dtype=np.int8)
        first = len(new.key) if warmup else 0
        self._apply(self._next_batch(op, new.key, new.rows, new.targets, new.sparse, first, new.weight))
        self._take_ids(new)
        return self

    def _apply(self, batch: UpdateBatch) -> None:
        """Apply a batch of insertions that cannot be refused any more."""
        self._change_begins(batch, np.empty(0, dtype=np.int32))
        log = self.session_.apply(batch).log
        if self._traits.collects_updates:
            log = joined([log, self.session_.finish()])
        self._advance(batch, log)

    def _change_begins(self, batch: UpdateBatch, slots: npt.NDArray[np.int32]) -> None:
        """Note, unless the model is a new one that nobody sees yet, that a batch comes next, which empties slots."""
        if self._change is not None:
            self._change.begin(batch, slots, bool(len(slots)) and self._traits.erases)

    def _sound(self: Self) -> Self:
        """This estimator or, if a call was broken off, one as it was before, whose model is built from its examples."""
        change = self._change
        if change is None or not change.begun:
            return self
        change.undo()
        sound = type(self).__new__(type(self))
        sound.__dict__ = change.before.copy()
        if change.touched:
            held = change.examples(self._features())
            n = len(held.id)
            if not n:
                raise HalfAppliedError(message("estimators.interrupted_first"))
            sound._seq, sound._known = 0, {}
            sound._open_session()
            op = np.full(n, INSERT, dtype=np.int8)
            sound._apply(sound._next_batch(op, held.id, held.X, held.y, held.sparse, n, unless_equal(held.weight)))
        return sound

    def _take_ids(self, new: _NewExamples) -> None:
        """Remember the ids of examples that were inserted."""
        self._next_id = max(self._next_id, int(new.key.max(initial=-1)) + 1)
        self.row_ids_ = new.key
        if new.numbered:
            begin = int(new.key[0])
            *others, last = self._numbered or [[begin, begin]]
            ranges = [[last[0], self._next_id]] if last[1] == begin else [last, [begin, self._next_id]]
            self._numbered = [*others, *ranges]

    def _next_batch(
        self,
        op: npt.NDArray[np.int8],
        key: npt.NDArray[np.int64],
        X: npt.NDArray[np.float64],
        y: Targets,
        sparse: SparseRows | None,
        warmup: int = 0,
        weight: Weights | None = None,
    ) -> UpdateBatch:
        row = np.full(len(op), -1, dtype=np.int64)
        classes = self._classes
        order = in_order(classes)
        known: dict[str, Any] = {"sparse": sparse, "class_order": order, "weight": weight}
        return UpdateBatch(self._seq, op, key, X, y, len(classes), row, warmup, **known)

    def _advance(self, batch: UpdateBatch, log: Log) -> None:
        """The model has taken a batch, and this is its record of it."""
        self._seq, self._known = batch.stop, {}

    def _refuse(self, bad: npt.NDArray[np.bool_], key: npt.NDArray[np.int64], reason: int) -> None:
        if bad.any():
            row = int(np.flatnonzero(bad)[0])
            problem, remedy = REFUSALS[reason]
            said = message("estimators.refused", subject=f"id {key[row]}", problem=problem, remedy=remedy)
            raise UpdateError(said, row=row)

    def _refuse_repeated(self, key: npt.NDArray[np.int64]) -> None:
        ids, counts = np.unique(key, return_counts=True)
        if (counts > 1).any():
            raise UpdateError(message("estimators.repeated_id", id=int(ids[counts > 1][0])))

    # ------------------------------------------------------------ what y is

    @abstractmethod
    def _learn_targets(self, y: Any, classes: Any) -> None:
        """Take from the first ``y``, or from all classes declared, what there is to know of targets."""

    @abstractmethod
    def _checked(self, y: Any) -> npt.NDArray[Any]:
        """One target per row as the user gives it, shape (n,), or an error."""

    @abstractmethod
    def _looked_up(self, given: npt.NDArray[Any]) -> Targets:
        """The same without learning anything from it: what no example has is -1."""

    @abstractmethod
    def _encoded(self, given: npt.NDArray[Any]) -> Targets:
        """Convert the result of :meth:`_checked` to the learner's form."""
