"""Base of all estimators: examples with stable ids, inserted or deleted in one call or not at all."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from raydt.arrays.blocks import SparseRows, taken
from raydt.arrays.elementary import AnyArray, Floats, Int32s, Ints
from raydt.errors import ConfigError, HalfAppliedError, InputError, UpdateError
from raydt.estimators.arguments import (
    NO_TYPES,
    columns_named,
    distinct_labels,
    index_of,
    labels_of,
    numbers_of,
    require_labels,
    require_some_weight,
    subjects_of_rows,
    text_column,
    types_of,
    warn,
    weights_of,
)
from raydt.estimators.fitted import DeletionRequest, ExampleMetadata, NamedExamples, NewExamples
from raydt.estimators.frames import nothing_in
from raydt.estimators.without import without
from raydt.examples.store import Subjects, objects
from raydt.examples.updates import (
    DELETE,
    INSERT,
    UNIT,
    Log,
    Targets,
    UpdateBatch,
    Weights,
    dtype_of,
    in_order,
    joined,
    no_targets,
    of_labels,
    products,
    unknown_labels,
    unless_equal,
)
from raydt.learners import no_weights, traits_of
from raydt.learners.base import WeightSum
from raydt.messages import message
from raydt.sessions.receipt import Receipt, apply_with_receipt, checked_note
from raydt.sessions.session import OF_AN_ESTIMATOR
from raydt.sources.base import require

Self = TypeVar("Self", bound="Estimator")


class Estimator(NamedExamples):
    """Base of :class:`raydt.estimators.base.Classifier` and ``Regressor``, which know what ``y`` is."""

    def fit(self: Self, X: Any, y: Any, sample_weight: Any = None, *, ids: Any = None, subjects: Any = None) -> Self:
        """Forget everything and build the model at once from (X, y); after an error the old model is still there.

        Parameters
        ----------
        X : array-like, data frame or Arrow table, shape (n, d)
        y : array-like, shape (n,)
        sample_weight : array-like of float, shape (n,), optional
            How many rows each row counts for: 0, or from 2**-16 to 65,535, rounded to 2**-16; 1 by default.
        ids : array-like, shape (n,), optional
            Stable ids: integers, text, UUIDs or other hashable values. By default the index of a data frame, if it has
            a name, else running integers; ``row_ids_`` has them.
        subjects : array-like, shape (n,), optional
            Whose row each is, a person or an account, as ids are; ``forget(subjects=...)`` deletes by it. If the first
            examples have subjects, all have.

        Raises
        ------
        ConfigError
            A parameter has a value that is not allowed, or the learner takes no weights.
        ValueError
            All weights are zero.
        InputError
            NaN, infinite or missing values, ids that cannot be used or are given twice, lengths that differ.
        """
        self._require_classes(y)
        require_some_weight(sample_weight)
        return self._begin(X, y, None, self._beside(ids, subjects, sample_weight), warmup=True)._warned()

    def forget(
        self,
        ids: Any = None,
        *,
        subjects: Any = None,
        missing: Literal["error", "skip"] = "error",
        digests: bool = True,
        note: str = "",
    ) -> Receipt:
        """Delete examples by id, or all examples of some subjects; all of them or, if an error is raised, none.

        Parameters
        ----------
        ids : array-like, shape (m,), optional
            As of ``fit``, or one id; repeated ones count once.
        subjects : array-like, shape (k,), optional
            As of ``fit``, or one subject.
        missing : {"error", "skip"}
            What is done about ids and subjects without a live example: refuse them, all in one error, or pass over them
            and list them in ``Receipt.missing``.
        digests : bool
            Whether the receipt has digests. The first takes a pass over all live examples, 0.2 s for a million; later
            ones follow what has changed: O(log n) hashes for each row, and those of the nodes that changed.
        note : str
            Who asked, or the number of the case, for the receipt.

        Raises
        ------
        ConfigError
            The note is too long.
        UpdateError
            An id or a subject has no live example.
        InputError
            Neither ids nor subjects, or values that cannot be some.
        """
        checked_note(note)
        return replace(self._atomically(self._deletion, ids, subjects, missing, digests), note=note)

    def without(self: Self, ids: Any = None, *, subjects: Any = None) -> AbstractContextManager[Self]:
        """Return a context in which the model lacks some examples, and after which it is the model of before.

        Inside, ``predict``, ``score``, ``digest``, ``explain``, ``audit`` and ``save`` answer as after ``forget`` of
        the examples, in every thread; calls that change the model are refused. Afterwards the model is the one of
        before, digest for digest, also after an error or Ctrl-C. A context is entered once. Contexts may be nested;
        those that several threads have open at a time add up. ``set_params`` is refused inside; attributes that are set
        inside are gone afterwards.

        The model inside is the one after ``forget``; of ``ExactForestClassifier``, whose predictions are the fast ones,
        that of training without the examples. Everything else takes a copy of the model, made when it is needed, and
        the deletion.

        Parameters
        ----------
        ids, subjects
            As of :meth:`forget`.

        Raises
        ------
        UpdateError
            An id or a subject has no live example; or, inside, the model was to be changed.

        Examples
        --------
        >>> from raydt import ExactForestClassifier
        >>> X, y = [[float(x)] for x in range(100)], [x >= 50 for x in range(100)]
        >>> model = ExactForestClassifier(n_estimators=20).fit(X, y)
        >>> before = model.digest()
        >>> with model.without(ids=range(40, 60)):
        ...     print(len(model.live_ids_), model.digest() == before)
        80 False
        >>> len(model.live_ids_), model.digest() == before
        (100, True)
        """
        return without(self, ids, subjects)

    def replace_examples(
        self,
        ids: Any,
        X: Any,
        y: Any,
        *,
        sample_weight: Any = None,
        new_ids: Any = None,
        subjects: Any = None,
        digests: bool = True,
        note: str = "",
    ) -> Receipt:
        """Delete examples by id and insert others, in one batch: one step of a sliding window.

        All of it or, if an error is raised, nothing. Learners that collect updates apply both together, which costs
        less than :meth:`forget` and ``partial_fit``.

        Parameters
        ----------
        ids : array-like, shape (m,)
            The examples to delete; none are allowed.
        X : array-like, data frame or Arrow table, shape (n, d)
            At least one row; to delete only, call :meth:`forget`.
        y : array-like, shape (n,)
        sample_weight, new_ids, subjects : array-like, shape (n,), optional
            Of the new examples, as of ``fit``; ids of deleted ones are free again.
        digests : bool
            As in :meth:`forget`.

        Raises
        ------
        UpdateError
            An id to delete is not live, a new one is, or a new one is given twice.
        InputError
            Values that ``partial_fit`` would refuse, or lengths that differ.
        """
        checked_note(note)
        beside = self._beside(new_ids, subjects, sample_weight)
        receipt = replace(self._atomically(self._replacement, ids, X, y, beside, digests), note=note)
        self._warned()
        return receipt

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
        return self._atomically(self._deletion_by_value, X, y, digests)

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import ClassifierTags, InputTags, RegressorTags, Tags, TargetTags

        default = self._learner.traits(self._learner.Options())
        sparse, missing = default.reading.needs_sparse, self.__dict__.get("_traits", default).reading.missing
        numbers = isinstance(self, Regressor)
        return Tags(
            estimator_type="regressor" if numbers else "classifier",
            target_tags=TargetTags(required=True),
            classifier_tags=None if numbers else ClassifierTags(multi_class=not sparse),
            regressor_tags=RegressorTags() if numbers else None,
            input_tags=InputTags(allow_nan=missing, sparse=sparse),
        )

    # ------------------------------------------------------------ inside

    def _require_settable(self) -> None:
        self._require_all()

    def _warned(self: Self) -> Self:
        """Warn, after a call has taken effect, if the weights so far are too small to split a node."""
        if (said := self._weighed.too_little(self._traits)) is not None:
            warn(said)
        return self

    def _beside(self, ids: Any, subjects: Any, weights: Any) -> ExampleMetadata:
        """Return what was given of new examples, or refuse weights that the learner does not take."""
        if weights is not None and not (reading := traits_of(self._options()).reading).weights:
            raise ConfigError(no_weights("sample_weight", type(self).__name__, reading.regression))
        return ExampleMetadata(ids, subjects, weights)

    def _begin(self: Self, X: Any, y: Any, classes: Any, beside: ExampleMetadata, warmup: bool) -> Self:
        """Replace the model by a new one; on an error nothing changes, since a shallow copy does the work."""
        with self._lock:
            self._require_all()
            new = type(self).__new__(type(self))
            new.__dict__ = self.__dict__ | {"_change": None}
            new._start(X, y, classes)
            given = {"label": y, "id": beside.ids, "subject": beside.subjects, "weight": beside.weights}
            features = new._features()
            new._columns = columns_named(X, (*features.names, features.sparse_column), **given)
            new._insertion(X, y, beside, warmup)()
            self.__dict__ = new.__dict__
        return self

    def _more(self: Self, X: Any, y: Any, classes: Any, beside: ExampleMetadata) -> Self:
        """Insert examples into the model; the first ones make it."""
        if not self.__sklearn_is_fitted__():
            return self._begin(X, y, classes, beside, warmup=bool(traits_of(self._options()).warmup))
        self._require_examples()
        return self._atomically(self._insertion, X, y, beside, False)

    def _start(self, X: Any, y: Any, classes: Any) -> None:
        self._take_options(self._options())
        self._encoder = self._new_encoder(self.categorical_features)
        self._encoder.learn(X)
        require(self._traits.reading, self._features())
        self._learn_targets(y, classes)
        self.__dict__.pop("_loaded", None)
        self._declared = classes is not None
        self._seq, self._next_id, self._columns, self._numbered, self._weighed = 0, 0, {}, [], WeightSum()
        self._names, self._subjects, self._types = None, None, NO_TYPES
        self._set_fitted()
        self._open_session()

    # A call that changes the model has two steps: the method that prepares it refuses what is wrong with it, and what
    # the method returns applies it.

    def _deletion(self, ids: Any, subjects: Any, missing: str, digests: bool) -> Callable[[], Receipt]:
        return self._delete(self._asked(ids, subjects, missing), self._digest() if digests else None)

    def _deletion_by_value(self, X: Any, y: Any, digests: bool) -> Callable[[], Receipt]:
        rows, sparse = self._rows(X, known=True)
        self._require_examples()
        given = self._checked(y)
        require_labels(given, len(rows))
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
        return self._delete(DeletionRequest(key, self._store().find(key)), self._digest() if digests else None)

    def _delete(self, asked: DeletionRequest, before: str | None) -> Callable[[], Receipt]:
        key, width = asked.key, self._features().sparse
        nothing = np.empty((0, len(self._features().names)))
        no_y = no_targets(0, dtype_of(self._traits.reading.regression))
        sparse = SparseRows.empty(width) if width else None
        batch = self._next_batch(np.full(len(key), DELETE, dtype=np.int8), key, nothing, no_y, sparse)
        return partial(self._apply_with_receipt, batch, asked, before, self._shown(key))

    def _replacement(self, ids: Any, X: Any, y: Any, beside: ExampleMetadata, digests: bool) -> Callable[[], Receipt]:
        asked = self._asked(ids, None, "error")
        gone, before = asked.key, self._digest() if digests else None  # new labels are not learned yet
        new = self._insertable(X, y, beside, gone)
        op = np.repeat(np.array([DELETE, INSERT], dtype=np.int8), [len(gone), len(new.key)])
        key = np.concatenate([gone, new.key])
        batch = self._next_batch(op, key, new.rows, new.targets, new.sparse, weight=new.weight)
        shown = np.concatenate([self._shown(gone), new.key if new.ids is None else objects(new.ids)])

        def replaced() -> Receipt:
            receipt = self._apply_with_receipt(batch, asked, before, shown)
            self._take_ids(new)
            return receipt

        return replaced

    def _apply_with_receipt(
        self, batch: UpdateBatch, asked: DeletionRequest, before: str | None, shown: AnyArray
    ) -> Receipt:
        """Apply a batch that cannot be refused, whose ids are ``shown``; with digests if that ``before`` is given."""
        whose = None if self._subjects is None else self._subjects.of(asked.key)
        self._change_begins(batch, asked.slots)
        receipt = apply_with_receipt(
            self.session_,
            batch,
            self._classes,
            self._method,
            copies=OF_AN_ESTIMATOR,
            ids=shown,
            digest_before=before,
        )
        self._advance(batch, receipt.log)
        self._gone = asked.key, batch.start
        if before is not None:
            self._known["digest"] = receipt.digest_after
        return receipt.answering(whose, asked.subjects, asked.missing)

    def _insertable(self, X: Any, y: Any, beside: ExampleMetadata, gone: Ints) -> NewExamples:
        """Examples that can all be inserted once those with the ids ``gone`` are deleted, or an error."""
        given = self._checked(y)
        rows, sparse = self._encoder.encode(X, type(self).__name__, grow=True, known=True)
        if not len(rows):
            raise nothing_in(rows.shape, "sample")
        require_labels(given, len(rows))
        ids = index_of(X) if beside.ids is None else beside.ids
        key, shown, names = self._named(ids, len(rows), gone)
        before = self._subjects is not None if self._seq else None
        whose = subjects_of_rows(beside.subjects, len(rows), self._types, before)
        weight = None if beside.weights is None else weights_of(beside.weights, len(rows))
        targets = self._encoded(given)  # the last that can be refused
        if class_weight := self._traits.reading.class_weight:
            weight = products(UNIT if weight is None else weight, of_labels(class_weight, self._classes)[targets])
        return NewExamples(key, rows, sparse, targets, shown, names, whose, unless_equal(weight))

    def _insertion(self: Self, X: Any, y: Any, beside: ExampleMetadata, warmup: bool) -> Callable[[], Self]:
        new = self._insertable(X, y, beside, np.empty(0, dtype=np.int64))
        op, first = np.full(len(new.key), INSERT, dtype=np.int8), len(new.key) if warmup else 0
        batch = self._next_batch(op, new.key, new.rows, new.targets, new.sparse, first, new.weight)

        def inserted() -> Self:
            self._apply(batch)
            self._take_ids(new)
            return self

        return inserted

    def _apply(self, batch: UpdateBatch) -> None:
        """Apply a batch of insertions that cannot be refused any more."""
        self._change_begins(batch, np.empty(0, dtype=np.int32))
        log = self.session_.apply(batch).log
        if self._traits.collects_updates:
            log = joined([log, self.session_.finish()])
        self._advance(batch, log)

    def _change_begins(self, batch: UpdateBatch, slots: Int32s) -> None:
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
            if (factors := self.session_.coordinator.class_factors) is not None:
                sound.session_.coordinator.weigh_classes(factors)
            op, weight = np.full(n, INSERT, dtype=np.int8), unless_equal(held.weight)
            sound._apply(sound._next_batch(op, held.id, held.X, held.y, held.sparse, n, weight))
            if sound._subjects is not None:
                whose, sound._subjects = sound._subjects.of(held.id), Subjects()
                sound._subjects.add(held.id, np.arange(n), whose)
        return sound

    def _take_ids(self, new: NewExamples) -> None:
        """Remember ids and subjects of examples that were inserted, the last updates."""
        self._next_id = max(self._next_id, int(new.key.max(initial=-1)) + 1)
        self.row_ids_ = new.key
        self._weighed = self._weighed.plus(len(new.key), new.weight)
        if not self._types:
            self._types = {"id": ("integer",) if new.ids is None else types_of(new.ids)}
            self._types |= {} if new.subjects is None else {"subject": types_of(new.subjects)}
        if new.names is not None and new.ids is not None:
            self._names = new.names
            self._names.add(new.key, new.ids)
            self.row_ids_ = objects(new.ids)
        if new.subjects is not None:
            self._subjects = Subjects() if self._subjects is None else self._subjects
            self._subjects.add(new.key, self._seq - len(new.key) + np.arange(len(new.key)), new.subjects)

    def _next_batch(
        self,
        op: npt.NDArray[np.int8],
        key: Ints,
        X: Floats,
        y: Targets,
        sparse: SparseRows | None,
        warmup: int = 0,
        weight: Weights | None = None,
    ) -> UpdateBatch:
        if self._encoder.previous:
            raise ConfigError(message("updates.previous"))
        row = np.broadcast_to(np.int64(-1), len(op))  # one number for all: nothing is read from a source
        classes = self._classes
        order = in_order(classes)
        more: dict[str, Any] = {"sparse": sparse, "class_order": order, "answers": False, "weight": weight}
        return UpdateBatch(self._seq, op, key, X, y, len(classes), row, warmup, **more)

    def _advance(self, batch: UpdateBatch, log: Log) -> None:
        """The model has taken a batch, and this is its record of it."""
        self._seq, self._known = batch.stop, {}

    # ------------------------------------------------------------ what y is

    @abstractmethod
    def _require_classes(self, y: Any) -> None:
        """Raise ConfigError unless ``y`` has all classes that have weights."""

    @abstractmethod
    def _learn_targets(self, y: Any, classes: Any) -> None:
        """Take from the first ``y``, or from all classes declared, what there is to know of targets."""

    @abstractmethod
    def _checked(self, y: Any) -> AnyArray:
        """One target per row as the user gives it, shape (n,), or an error."""

    @abstractmethod
    def _looked_up(self, given: AnyArray) -> Targets:
        """The same without learning anything from it: what no example has is -1."""

    @abstractmethod
    def _encoded(self, given: AnyArray) -> Targets:
        """Convert the result of :meth:`_checked` to the learner's form."""


# The two kinds of estimator: the type of ``y``, the predictions, and the tags for scikit-learn.

C = TypeVar("C", bound="Classifier")
R = TypeVar("R", bound="Regressor")


def _codes_of(given: AnyArray, classes: AnyArray) -> Int32s:
    """Return the place of each label among some classes, -1 of a label that is none of them."""
    texts = text_column(given) if given.dtype.kind == "O" else None
    known_texts = None if texts is None else text_column(classes.tolist())
    if known_texts is not None:
        return np.array(pc.index_in(texts, known_texts).fill_null(-1), dtype=np.int32)
    if given.dtype.kind != classes.dtype.kind or given.dtype.kind not in "biU" or not len(classes):
        known = {label: code for code, label in enumerate(classes.tolist())}
        return np.array([known.get(label, -1) for label in given.tolist()], dtype=np.int32)
    order = np.argsort(classes, kind="stable")
    places = order[np.minimum(np.searchsorted(classes, given, sorter=order), len(classes) - 1)]
    codes: Int32s = np.where(classes[places] == given, places, -1).astype(np.int32)
    return codes


def accuracy(y: Any, predicted: AnyArray, sample_weight: Any) -> float:
    """Return the share of rows, or of ``sample_weight``, that is predicted right; InputError for another type."""
    _require_label_type(predicted.tolist(), np.asarray(y).ravel()[:1].tolist())
    weights = None if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
    return float(np.average(predicted == np.asarray(y), weights=weights))


def r_squared(y: Any, predicted: Floats, sample_weight: Any) -> float:
    """Return R squared of predictions; NaN if all of ``y`` is equal."""
    truth = numbers_of(y)
    counts = 1.0 if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
    mean = np.average(truth, weights=None if sample_weight is None else counts)
    variation = float((counts * (truth - mean) ** 2).sum())
    squared = float((counts * (truth - predicted) ** 2).sum())
    return 1.0 - squared / variation if variation > 0.0 else float("nan")


def with_unseen(classes: AnyArray, given: AnyArray, declared: bool) -> tuple[AnyArray, Int32s]:
    """Return classes with, after them, sorted, the labels that are none of them; and the place of each label.

    ``InputError`` for such a label if all classes were ``declared``, and for one of another kind.
    """
    known = classes.tolist()
    _require_label_type(known, given[:1].tolist())
    codes = _codes_of(given, classes)
    unseen = distinct_labels(given[codes < 0])
    if not len(unseen):
        return classes, codes
    new = unseen.tolist()
    if declared:
        raise InputError(message("estimators.new_class", label=new[0], classes=known))
    grown = np.concatenate([classes, np.array(new)])
    if grown.tolist() != [*known, *new]:
        raise InputError(message("estimators.common_type", label=new[0], classes=known))
    return grown, _codes_of(given, grown)


def _require_label_type(known: list[Any], given: list[Any]) -> None:
    """Refuse text where classes are numbers, and numbers where they are text; 1, 1.0 and True are one class."""
    if known and given and isinstance(given[0], str) != isinstance(known[0], str):
        classes = list(dict.fromkeys(known))
        raise InputError(message("estimators.mixed_classes", label=given[0], classes=classes))


class Classifier(Estimator):
    """Labels are classes: integers, booleans or strings."""

    classes_: AnyArray  #: Labels in the order of the columns of ``predict_proba``.

    def partial_fit(
        self: C,
        X: Any,
        y: Any,
        classes: Any = None,
        sample_weight: Any = None,
        *,
        ids: Any = None,
        subjects: Any = None,
    ) -> C:
        """Insert examples; all of them or, if an error is raised, none.

        Parameters
        ----------
        classes : array-like, optional
            All labels that will come, on the first call. Without it, unseen labels are added as they come.
        sample_weight, ids, subjects : array-like, optional
            As of ``fit``.
        """
        return self._more(X, y, classes, self._beside(ids, subjects, sample_weight))._warned()

    def predict(self, X: Any) -> AnyArray:
        """Labels, shape (n,)."""
        rows, sparse = self._rows(X)
        predictor, classes = self._predicting()
        return taken(classes, predictor.predict(rows, **sparse))

    def predict_proba(self, X: Any) -> Floats:
        """Shares of the classes, shape (n, len(classes_))."""
        rows, sparse = self._rows(X)
        predictor, classes = self._predicting()
        shares: Floats = predictor.predict_proba(rows, len(classes), **sparse)
        return shares

    def predict_log_proba(self, X: Any) -> Floats:
        """Logarithms of ``predict_proba(X)``, -inf for a share of 0, shape (n, len(classes_))."""
        with np.errstate(divide="ignore"):
            logs: Floats = np.log(self.predict_proba(X))
        return logs

    def _predicting(self) -> tuple[Any, AnyArray]:
        """Return the predictor and the labels of its codes: another thread may add a class meanwhile."""
        with self._lock:
            predictor, classes = self._predictor(), self.classes_
        if not len(classes):  # of a run that has ended before its first row
            raise InputError(message("predictions.no_class"))
        return predictor, classes

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy: the share of rows, or of ``sample_weight``, that is predicted right."""
        return accuracy(y, self.predict(X), sample_weight)

    @property
    def _classes(self) -> list[Any]:
        classes: list[Any] = self.classes_.tolist()
        return classes

    def _take_classes(self, classes: list[Any]) -> None:
        self.classes_ = np.array(classes)

    def _require_classes(self, y: Any) -> None:
        if class_weight := traits_of(self._options()).reading.class_weight:
            classes = distinct_labels(labels_of(y)).tolist()
            if unknown := unknown_labels(class_weight, classes):
                raise ConfigError(message("estimators.unknown_class_weight", labels=unknown, classes=classes))

    def _learn_targets(self, y: Any, classes: Any) -> None:
        labels = labels_of(y if classes is None else classes)
        self.classes_ = distinct_labels(labels)
        if len(self.classes_) > self._most_classes():
            self._require_few([], labels, "y" if classes is None else "classes")

    def _most_classes(self) -> int:
        return self._traits.reading.most_classes(sparse=self._features().sparse > 0)

    def _require_few(self, known: Sequence[Any], given: AnyArray, argument: str) -> None:
        """Refuse more classes, known ones and those given, than the learner takes with its options."""
        most = self._most_classes()
        seen = dict.fromkeys(known)
        if len({*seen, *distinct_labels(given).tolist()}) <= most:
            return
        for row, label in enumerate(given.tolist()):
            if label in seen:
                continue
            if len(seen) == most:
                kind, sparse = type(self).__name__, self._features().sparse > 0
                features = "with sparse features and these parameters" if sparse else "with these parameters"
                parameters = {"estimator": kind, "features": features, "argument": argument, "label": label}
                said = message("estimators.many_classes", most=most, **parameters)
                if most == 2:
                    first, second = seen
                    more = "" if sparse else self._traits.reading.with_classes
                    parameters |= {"first": first, "second": second, "instead": more and f", or use {more}"}
                    said = message("estimators.third_class", **parameters)
                raise InputError(said, row=row if argument == "y" else None)
            seen[label] = None

    def _checked(self, y: Any) -> AnyArray:
        return labels_of(y)

    def _looked_up(self, given: AnyArray) -> Targets:
        _require_label_type(self._classes, given[:1].tolist())
        return _codes_of(given, self.classes_)

    def _encoded(self, given: AnyArray) -> Targets:
        """Codes of labels; unseen ones become classes, unless all classes were declared."""
        classes, codes = with_unseen(self.classes_, given, self._declared)
        if len(classes) > len(self.classes_):
            self._require_few(self._classes, given, "y")
            self.classes_ = classes
        return codes


class Regressor(Estimator):
    """Labels are numbers."""

    def partial_fit(self: R, X: Any, y: Any, sample_weight: Any = None, *, ids: Any = None, subjects: Any = None) -> R:
        """Insert examples; all of them or, if an error is raised, none. All else is as of ``fit``."""
        return self._more(X, y, None, self._beside(ids, subjects, sample_weight))._warned()

    def predict(self, X: Any) -> Floats:
        """Numbers, shape (n,)."""
        rows, sparse = self._rows(X)
        numbers: Floats = self._predictor().predict(rows, **sparse)
        return numbers

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """R squared: 1 is perfect, 0 what the mean of ``y`` would get; NaN if all of ``y`` is equal.

        Rows count by ``sample_weight``, if it is given.
        """
        return r_squared(y, self.predict(X), sample_weight)

    @property
    def _classes(self) -> list[Any]:
        return []

    def _take_classes(self, classes: list[Any]) -> None:
        """There are none."""

    def _require_classes(self, y: Any) -> None:
        """There are none."""

    def _learn_targets(self, y: Any, classes: Any) -> None:
        """Nothing is known before the rows are."""

    def _checked(self, y: Any) -> AnyArray:
        return numbers_of(y)

    def _looked_up(self, given: AnyArray) -> Targets:
        return given

    def _encoded(self, given: AnyArray) -> Targets:
        return given
