"""A model without some of its examples, for the length of a ``with`` block.

The model of before is set aside whole: nothing of it is changed, so that it is back afterwards, digest and all,
whatever happens in the block. In its place stands a copy from which the examples are deleted. The copy is made when
something needs it: predictions of a learner with ``known_predictions`` do not.

Invariant: within the block the model takes no change, which would be lost with the copy.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import copy
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np

from raydt.arrays.elementary import Floats, Slots
from raydt.examples.updates import Targets

M = TypeVar("M", bound=Any)


class _SessionWhenNeeded:
    """Stands for the session of the copy until something is asked of it."""

    def __init__(self, made: Callable[[], Any]) -> None:
        self._made = made

    def __getattr__(self, name: str) -> Any:
        return getattr(self._made(), name)


class _PredictorWithout:
    """Predictions of a model without examples, from those that it would make with them; all else is the copy's."""

    def __init__(self, model: Any, slots: Slots, copied: Callable[[], Any]) -> None:
        self._model, self._slots, self._copied = model, slots, copied
        self._last: tuple[Any, Any] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._copied(), name)

    def predict(self, X: Floats) -> Targets:
        """Return class codes or numbers, shape (m,)."""
        known = self._changed(X, "predicted")
        predicted: Targets = self._copied().predict(X) if known is None else known
        return predicted

    def predict_proba(self, X: Floats, n_classes: int) -> Floats:
        """Return shares of the classes, shape (m, n_classes)."""
        shares: Floats = self._changed(X, "shares")  # only numeric labels have units
        return shares

    def _changed(self, X: Floats, name: str) -> Any:
        """Return what rows have without the examples; changes are kept for the rows asked last. None: not told."""
        with self._model._lock:  # the trees are read: no thread that leaves the block may change them meanwhile
            known = self._model._known_predictions(X)
            if self._last is None or self._last[0] is not known:
                (changes,) = known.without(np.array([0, len(self._slots)]), self._slots)
                self._last = known, changes
            changes = self._last[1]
        if len(changes.untold):
            return None
        values = getattr(known, name).copy()
        values[changes.row] = getattr(changes, name)
        return values


def _shell(model: Any, attributes: dict[str, Any]) -> Any:
    """Return an object with the lock of a model, and these attributes, which it shares."""
    shell = object.__new__(type(model))
    shell.__dict__, shell._lock = attributes, model._lock
    return shell


@contextmanager
def without(model: M, ids: Any, subjects: Any) -> Iterator[M]:
    """Leave examples out of a model inside the block: ``without`` of an estimator."""
    block = _Block(model)
    try:
        try:
            block.begin(ids, subjects)
            yield model
        finally:
            block.end()
    finally:
        block.end()  # which an exception may have broken off


class _Block:
    """Examples that are left out for a while, and the model of before."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._before: dict[str, Any] = {}
        self._former: Any = None
        self._is_open = False

    def begin(self, ids: Any, subjects: Any) -> None:
        """Set the model of before aside, and have Ctrl-C bring it back."""
        model = self._model
        with model._lock:
            model._require_whole()
            slots = model._asked(ids, subjects, "error").slots
            before = model.__dict__
            whole = _shell(model, before)
            own = before | {"session_": _SessionWhenNeeded(lambda: copied()), "_known": {}, "_block": self}

            def copied() -> Any:
                """Return the session of the copy, which is made once."""
                with model._lock:
                    if isinstance(own["session_"], _SessionWhenNeeded):
                        less = copy.deepcopy(_shell(model, before | {"_known": {}}))
                        less._atomically(less._deletion, ids, subjects, "error", False)
                        del less._known
                        own.update(less.__dict__)
                    return own["session_"]

            if before["session_"].coordinator.knows_rows:
                predictor = _PredictorWithout(whole, slots, lambda: whole._predictor_of(copied().model()))
                own["_known"] |= {"predictor": predictor, "encoded": before["_known"].setdefault("encoded", [])}
            self._defer()
            self._before, self._is_open = before, True
            model.__dict__ = own

    def end(self) -> None:
        """Put the model of before back; nothing if that was done.

        Threads may leave their blocks in another order than they entered them: the model of before an open block comes
        back once that block ends.
        """
        with self._model._lock:
            self._is_open = False
            while (block := self._model._block) is not None and not block._is_open:
                self._model.__dict__, block._before = block._before, {}
        if self._former is not None and threading.current_thread() is threading.main_thread():
            _signal.signal(signal.SIGINT, _open_handler())

    def _defer(self) -> None:
        """Have Ctrl-C put the model of before back, wherever in the block it arrives."""
        if threading.current_thread() is threading.main_thread() and callable(handler := _open_handler()):
            self._former = handler
            _signal.signal(signal.SIGINT, self._note)

    def _note(self, number: int, frame: Any) -> None:
        try:
            self._former(number, frame)
        except BaseException:  # a handler that returns lets the block go on
            self.end()
            raise


def _open_handler() -> Any:
    """Return the handler of Ctrl-C below those of blocks that have ended."""
    handler = _signal.getsignal(signal.SIGINT)
    while isinstance(block := getattr(handler, "__self__", None), _Block) and not block._is_open:
        handler = block._former
    return handler
