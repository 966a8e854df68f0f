"""Learners behind river's interface: one example at a time, as a dictionary, with ``learn_one`` and ``forget_one``.

river is not needed. Where it is installed the classes are among its classifiers: its pipelines, metrics,
``evaluate.progressive_val_score`` and ``checks`` take it. Nothing is buffered: a prediction knows every example
learned before it. Not here: ids, many rows at a time, saving; that is what the other estimators are for.
"""

from __future__ import annotations

import dataclasses
import math
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import partial
from itertools import islice, zip_longest
from numbers import Integral
from operator import itemgetter
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from pydantic import ValidationError

from raydt.arrays.elementary import Floats
from raydt.audits.recorded_tree import AuditReport
from raydt.encoding.columns import LARGEST_INTEGER
from raydt.errors import ConfigError, InputError, UpdateError
from raydt.estimators.arguments import names_of, parameter_error, warn
from raydt.estimators.atomic import AtomicCalls, Values
from raydt.estimators.base import Classifier
from raydt.examples.updates import (
    CLASSES,
    DELETE_VALUE,
    INSERT,
    MOST_CLASSES,
    MOST_PREVIOUS,
    Features,
    History,
    UpdateBatch,
    in_order,
    previous_names,
)
from raydt.learners import learners
from raydt.learners.base import NOTHING_DIVIDED
from raydt.messages import message
from raydt.sessions.session import InProcessSession

if TYPE_CHECKING:
    _Classifier = object
else:
    try:
        from river.base import Classifier as _Classifier
    except ImportError:
        _Classifier = object

Row = Floats

#: Types of values that are numbers as they are.
_PLAIN = frozenset((float, int, bool))
_NO_SLOTS = np.empty(0, dtype=np.int32)


class _ValueCodes(dict[Hashable, int]):
    """Codes 0, 1, ... of values, in the order they came."""

    def cut(self, n: int) -> None:
        """Forget all but the first ``n`` values."""
        while len(self) > n:
            self.popitem()


class RiverClassifier(AtomicCalls, _Classifier):
    """Base of the classifiers for river; each names its estimator and repeats the parameters of that.

    The first example learned says what the features are: its keys, in the order of their names; strings are
    categories, numbers are numbers. A feature that a later example lacks is a missing value of it. One that the first
    example lacks is passed over, with one warning: give it there, as None if it has no value yet.
    """

    #: The estimator of the same learner, which checks the parameters.
    estimator: ClassVar[type[Classifier]]
    described: ClassVar[dict[str, str]] = {
        "categorical_features": "keys whose values are categories even if the first one is a number, or missing",
        "previous_labels": "how many of the labels learned last are features, previous_label_1 the newest, of examples "
        "that do not name them, from 0 to 8; an example can be forgotten only by the names and values of all features",
    }
    categorical_features: Sequence[Hashable] | None
    previous_labels: int
    #: Options of the learner that are parameters here, and not of the estimator.
    _own: ClassVar[Sequence[str]] = ()
    _interrupted = "estimators.interrupted_stream"

    def __post_init__(self) -> None:
        """Know nothing yet: neither features nor labels."""
        self._keys: tuple[Hashable, ...] = ()
        self._values: Callable[[Mapping[Hashable, Any]], Any] = tuple  # of the keys, once these are known
        self._row = np.empty((1, 0))  # the example at hand
        self._passed_over = set[Hashable]()  # keys that the first example lacked
        self._categories: dict[Hashable, _ValueCodes] = {}
        self._labels = _ValueCodes()
        self._previous: tuple[Hashable, ...] = ()  # names of the labels learned last, once there is a model
        self._last: deque[Hashable] = deque()  # these labels, the newest first
        self._reading = CLASSES  # until the options say what may be read
        self._order = in_order(())  # codes of labels, ascending by label
        self._session: InProcessSession | None = None
        self._seq = self._learned = 0
        self._warmup = 0  # updates of it, if the learner has one

    @property
    def _multiclass(self) -> bool:
        return True

    # ------------------------------------------------------------ one example

    def learn_one(self, x: Mapping[Hashable, Any], y: Any) -> None:
        """Insert one example; nothing of it if an error is raised.

        Raises
        ------
        ConfigError
            A parameter has a value that is not allowed (at the first example).
        InputError
            A feature that is infinite, or of another kind than before; one that is left out, NaN or None, unless the
            learner takes missing values; a label that is missing, or of a class too many.
        """
        self._atomically(partial, self._learn, x, self._label(y))

    def forget_one(self, x: Mapping[Hashable, Any], y: Any) -> None:
        """Delete the oldest live example with exactly these features and this label.

        Raises
        ------
        InputError
            Features that ``learn_one`` would refuse.
        UpdateError
            No live example equals this one.
        """
        self._atomically(partial, self._forget, x, self._label(y))

    def predict_one(self, x: Mapping[Hashable, Any], **kwargs: Any) -> Any:
        """Label of one example; None before anything is learned."""
        with self._lock:
            self._require_whole()
            if self._session is None:
                return None
            return next(islice(self._labels, self._code(x), None))

    def predict_proba_one(self, x: Mapping[Hashable, Any], **kwargs: Any) -> dict[Any, float]:
        """Share of every label seen so far where the example falls; empty before anything is learned."""
        with self._lock:
            self._require_whole()
            if self._session is None:
                return {}
            return dict(zip(self._labels, self._shares(x).tolist(), strict=True))

    # ------------------------------------------------------------ the whole model

    def audit(self) -> AuditReport:
        """Prove the guarantee on the live model from its examples, as ``audit`` of the other estimators does."""
        with self._lock:
            self._require_whole()
            if self._session is None:
                raise ValueError(message("estimators.nothing_learned"))
            state, groups = self._session.state()
        X = np.concatenate([groups[g]["X"] for g in sorted(groups)], axis=1)
        live = np.full(len(X), np.iinfo(np.int64).max)
        history = History(state["id"], X, state["y"], state["born"], live, complete=False)
        return learners()[self.estimator.kind].audit(self._options(), self._features(), state, history, groups)

    # ------------------------------------------------------------ inside

    def _learn(self, x: Mapping[Hashable, Any], label: Hashable) -> None:
        if label not in self._labels:
            self._require_few(label)
        if self._session is None:
            self._begin(x)
        row, new = self._encode(x)
        for key, value in new:
            codes = self._categories[key]
            codes[value] = len(codes)
        code = self._labels.setdefault(label, len(self._labels))
        if self._apply(INSERT, row, code) and self._previous:
            self._last.appendleft(label)

    def _forget(self, x: Mapping[Hashable, Any], label: Hashable) -> None:
        if self._session is not None:
            row, new = self._encode(x)
            if not new and label in self._labels and self._apply(DELETE_VALUE, row, self._labels[label]):
                return
        raise UpdateError(message("examples.unknown_value"))

    def _live_session(self) -> InProcessSession | None:
        return self._session

    def _growing(self) -> Iterable[Values]:
        return [self._labels, *self._categories.values()]

    def _options(self) -> Any:
        """Options of the estimator with these parameters, and with those that it has none for."""
        given = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}  # type: ignore[arg-type]
        k = given.pop("previous_labels")
        if not isinstance(k, int) or not 0 <= k <= MOST_PREVIOUS:
            raise ConfigError(message("estimators.previous_labels", most=MOST_PREVIOUS, given=k))
        own = {name: given.pop(name) for name in self._own}
        options = self.estimator(**given)._options()
        if not own:
            return options
        try:
            return type(options)(**{**options.model_dump(), **own})
        except ValidationError as error:
            raise parameter_error(error, own) from error

    def _features(self) -> Features:
        return Features(tuple(map(str, self._keys)), tuple(key in self._categories for key in self._keys))

    def _begin(self, x: Mapping[Hashable, Any]) -> None:
        """Take the features from the first example, and open the session if all of it is as it should be."""
        if not x:
            raise InputError(message("estimators.no_features"))
        chosen = set(names_of(self.categorical_features))
        absent = sorted(chosen - set(x), key=repr)
        if absent:
            raise InputError(message("estimators.unknown_name", name=absent[0], rows="the first example"))
        options = self._options()
        self._reading = learners()[self.estimator.kind].traits(options).reading
        self._previous = previous_names(self.previous_labels)
        self._last, x = deque(maxlen=len(self._previous)), {**dict.fromkeys(self._previous), **x}
        chosen.update(self._previous)
        # By name, not by place: river promises nothing about the order of a dictionary's keys.
        self._keys = tuple(sorted(x, key=lambda key: (str(key), type(key).__name__)))
        self._values = itemgetter(*self._keys, self._keys[0])  # one more, as of one key it makes no tuple
        self._row = np.empty((1, len(self._keys)))
        self._categories = {key: _ValueCodes() for key in self._keys if key in chosen or isinstance(x[key], str)}
        self._encode(x)
        self._session = self._opened(options)

    def _opened(self, options: Any) -> InProcessSession:
        """A session without examples."""
        return InProcessSession(learners()[self.estimator.kind], options, self._features(), 1, NOTHING_DIVIDED)

    def _encode(self, x: Mapping[Hashable, Any]) -> tuple[Row, list[tuple[Hashable, Hashable]]]:
        """Return the row, shape (1, d), a buffer with the next codes for new categories, and these (key, value)."""
        if self._previous and x.keys().isdisjoint(self._previous):
            x = {**x, **dict(zip_longest(self._previous, self._last))}
        if len(x) != len(self._keys) or (type(x) is not dict and any(key not in x for key in self._keys)):
            x = self._completed(x)
        try:
            values = self._values(x)[:-1]
        except KeyError:
            values = self._values(self._completed(x))[:-1]
        row = self._row
        if not self._categories and _are_plain(values):
            row[0] = values
            row += 0.0  # -0.0 equals 0.0
            return row, []
        new: list[tuple[Hashable, Hashable]] = []
        for j, (key, value) in enumerate(zip(self._keys, values, strict=True)):
            codes = self._categories.get(key)
            if codes is None:
                plain = type(value) is float and value - value == 0.0
                row[0, j] = value if plain else _number(key, value, self._reading.missing)
                continue
            if type(value) is str and value in codes:
                row[0, j] = codes[value]
                continue
            if self._reading.missing and _is_missing(value):
                row[0, j] = -1.0
                continue
            category = _category(key, value, next(iter(codes), value))
            row[0, j] = codes.get(category, len(codes))
            if category not in codes:
                new.append((key, category))
        row += 0.0
        return row, new

    def _completed(self, x: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        """Return the features of an example, None for those that it lacks; warn once of each that is new."""
        for key in x:
            if key not in self._keys and key not in self._passed_over:
                self._passed_over.add(key)
                warn(message("estimators.new_key", name=str(key)))
        lacking = next((key for key in self._keys if key not in x), None)
        if lacking is not None and not self._reading.missing:
            raise InputError(message("estimators.missing_key"), column=str(lacking))
        return {key: x.get(key) for key in self._keys}

    def _label(self, y: Any) -> Hashable:
        label: Hashable = y.item() if isinstance(y, np.generic) else y
        if label is None or (isinstance(label, float) and label != label):
            raise InputError(message("estimators.no_label"))
        first = next(iter(self._labels), label)
        if isinstance(label, str) != isinstance(first, str):
            raise InputError(message("estimators.mixed_labels", first=first, label=label))
        return label

    def _require_few(self, label: Hashable) -> None:
        """Refuse a new class if the learner, with its options, takes no more."""
        most = min(MOST_CLASSES, self._reading.most_classes(sparse=False))
        if len(self._labels) == most:
            other = f", or use {self._reading.with_classes}" if self._reading.with_classes else ""
            raise InputError(message("estimators.class_beyond", label=label, most=most, instead=other))

    def _apply(self, op: int, row: Row, code: int) -> bool:
        assert self._session is not None
        if self._change is not None:
            self._change.begin(None, _NO_SLOTS, erases=False)
        taken = self._session.take_row(op, self._learned, row, code)
        if taken is None:
            taken = self._session.take(self._batch(op, row, code)).applied == 1
        self._seq += taken
        self._learned += taken if op == INSERT else 0
        return taken

    def _batch(self, op: int, row: Row, code: int) -> UpdateBatch:
        ops, ids, codes = np.array([op], np.int8), np.array([self._learned]), np.array([code], np.int32)
        if len(self._order) != len(self._labels):
            self._order = in_order(list(self._labels))
        order = self._order
        rest = np.array([-1]), self._warmup
        return UpdateBatch(self._seq, ops, ids, row.copy(), codes, len(order), *rest, class_order=order, answers=False)

    def _code(self, x: Mapping[Hashable, Any]) -> int:
        assert self._session is not None
        code = self._session.predict_row(self._encode(x)[0])
        return int(self._shares(x).argmax()) if code is None else code

    def _shares(self, x: Mapping[Hashable, Any]) -> Row:
        assert self._session is not None
        shares: Row = self._session.coordinator.predict_proba(self._encode(x)[0], len(self._labels))[0]
        return shares


def _are_plain(values: Sequence[Any]) -> bool:
    """Return True if all values are finite numbers that a float64 has exactly."""
    types = set(map(type, values))
    if not types <= _PLAIN:
        return False
    if len(types) > 1 or float not in types:
        return min(values) >= -LARGEST_INTEGER and max(values) <= LARGEST_INTEGER and _is_finite(sum(values))
    return _is_finite(sum(values))


def _is_finite(total: float) -> bool:
    return total - total == 0.0


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, float | np.floating) and math.isnan(value))


def _number(key: Hashable, value: Any, missing: bool) -> float:
    if missing and _is_missing(value):
        return math.nan
    if isinstance(value, str):
        raise InputError(message("estimators.other_value", value=value, was="numbers"), column=str(key))
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if isinstance(value, Integral) and abs(int(value)) > LARGEST_INTEGER and math.isfinite(number):
        raise InputError(message("estimators.inexact", value=value), column=str(key))
    if not math.isfinite(number):
        raise InputError(message("estimators.not_finite", value=value), column=str(key))
    return number


def _category(key: Hashable, value: Any, first: Any) -> Hashable:
    category: Hashable = value.item() if isinstance(value, np.generic) else value
    if category is None or (isinstance(category, float) and not math.isfinite(category)):
        raise InputError(message("estimators.not_category", value=value), column=str(key))
    if isinstance(category, str) != isinstance(first, str):
        was = "text" if isinstance(first, str) else "numbers"
        raise InputError(message("estimators.other_value", value=value, was=was), column=str(key))
    return category
