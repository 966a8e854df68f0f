"""Atomic calls: a call that changes a model takes effect in full, or not at all, or the model is refused from then on.

Ctrl-C waits until a change that has begun is complete; a second one does not. Whatever else breaks off a call restores
the attributes; if updates may have been applied by then, the model refuses everything but ``save`` of the examples
before the call, and ``fit``. Invariant: ``_change`` is None unless a call is changing the object, or was broken off
where it could not be undone.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # signal without its conversions to enums, ten times as fast
import signal
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np

from raydt.arrays.elementary import Slots
from raydt.errors import HalfAppliedError, UpdateError
from raydt.examples.updates import DELETE, INSERT, Features, History, UpdateBatch, history_of_live
from raydt.messages import message
from raydt.sessions.session import InProcessSession

T = TypeVar("T")
Self = TypeVar("Self", bound="Locked")


class Values(Protocol):
    """Values in the order they came, the last of which can be forgotten."""

    def __len__(self) -> int:
        """Return the number of values."""

    def cut(self, n: int) -> None:
        """Forget all but the first ``n``."""


class DeferredInterrupt:
    """Ctrl-C in the main thread, which waits from the first :meth:`begin` to :meth:`end`; a second one does not wait.

    Elsewhere signals do not arrive, and where SIGINT is ignored or ends the process nothing is deferred.
    """

    def __init__(self) -> None:
        self._former: Any = None
        self._arrived: tuple[int, Any] | None = None

    def begin(self) -> None:
        """Let Ctrl-C wait."""
        if self._former is None and threading.current_thread() is threading.main_thread():
            handler = _signal.getsignal(signal.SIGINT)
            if callable(handler):
                self._former = handler  # before the next line: from then on it may be needed
                _signal.signal(signal.SIGINT, self._note)

    def _note(self, number: int, frame: Any) -> None:
        if self._arrived is not None:
            self._former(number, frame)
        self._arrived = number, frame

    def end(self) -> None:
        """Handle Ctrl-C as before, and the one that waits now."""
        if self._former is not None:
            _signal.signal(signal.SIGINT, self._former)
            if self._arrived is not None:
                self._former(*self._arrived)


class AtomicCall:
    """A call that changes an object, and what is needed to undo it."""

    def __init__(self, owner: AtomicCalls, interrupt: DeferredInterrupt | None = None) -> None:
        self.begun = False  #: Whether updates may have been applied.
        self.before = owner.__dict__.copy()
        self.sizes = [(values, len(values)) for values in owner._growing()]
        self.session = owner._live_session()
        self.changes = 0 if self.session is None else self.session.coordinator.store.changes
        self.interrupt = DeferredInterrupt() if interrupt is None else interrupt
        self.batch: UpdateBatch | None = None
        self.gone: Slots = np.empty(0, dtype=np.int32)
        self.erased: dict[int, dict[str, Any]] = {}

    def begin(self, batch: UpdateBatch | None, gone: Slots, erases: bool) -> None:
        """Note that a batch (None: one update) comes next, the slots it empties, and if their rows are erased."""
        if erases and len(gone) and self.session is not None:
            self.erased = self.session.rows(gone)
        self.batch, self.gone = batch, gone
        self.interrupt.begin()
        self.begun = True

    @property
    def touched(self) -> bool:
        """True if the session differs from what it was before the call."""
        session = self.session
        return session is not None and not (session.whole and session.coordinator.store.changes == self.changes)

    def undo(self) -> None:
        """Forget the values that came with the call."""
        for values, size in self.sizes:
            values.cut(size)

    def take_back(self, owner: AtomicCalls) -> None:
        """Give an object the attributes that it had; if its session has changed, the object is refused from now on."""
        self.begun = True  # until everything is as it was
        self.undo()
        owner.__dict__ = self.before | ({"_change": self} if self.touched else {})

    def examples(self, features: Features) -> History:
        """The examples before the call, in order of birth."""
        assert self.session is not None
        store = self.session.coordinator.store
        slots = store.slots()
        ids = store.id[slots]
        if self.batch is not None:
            new, old = (self.batch.id[self.batch.op == op] for op in (INSERT, DELETE))
            stay = ~np.isin(ids, new) & ~np.isin(slots, self.gone)
            slots, ids = np.concatenate([slots[stay], self.gone]), np.concatenate([ids[stay], old])
        order = np.argsort(store.born[slots], kind="stable")
        slots, ids = slots[order], ids[order]
        rows = self.session.rows(slots)
        gone = np.argsort(order)[len(slots) - len(self.gone) :]
        for group, erased in self.erased.items():
            rows[group]["X"][gone] = erased["X"]
        known = {"id": ids, "y": store.y[slots], "born": store.born[slots]}
        if store.weight is not None:
            known["weight"] = store.weight[slots]
        return history_of_live(known, rows, features)


class Locked:
    """Base of an object with a lock, which is not among the attributes: these are copied and compared."""

    __slots__ = ("_lock",)
    _lock: Any

    def __new__(cls: type[Self], *args: Any, **kwargs: Any) -> Self:
        """Make the object and its lock."""
        self = super().__new__(cls)
        self._lock = threading.RLock()
        return self


class AtomicCalls(Locked, ABC):
    """Base of what holds a live model. The lock is held by calls that change it, and by those that read all of it."""

    _change: AtomicCall | None = None
    #: The block in which some of the examples are left out (``raydt.estimators.without``).
    _block: Any = None

    def _require_all(self) -> None:
        """Refuse a change of a model without some of its examples: it would be lost where these come back."""
        if self._block is not None:
            raise UpdateError(message("estimators.left_out", estimator=type(self).__name__))

    def _atomically(self, prepare: Callable[..., Callable[[], T]], *args: Any) -> T:
        """Make a call that changes the model: prepare it, which refuses what is wrong with it, and apply it.

        :meth:`AtomicCall.begin` says from when on the model itself changes.
        """
        with self._lock:
            self._require_whole()
            self._require_all()
            change = AtomicCall(self)
            try:
                self._change = change
                result = prepare(*args)()
                self._change = None  # from here on the call has taken effect
                self._settle()
                return result
            except BaseException:
                if self._change is change:
                    change.take_back(self)
                raise
            finally:
                if self._change is change and not change.begun:
                    change.take_back(self)  # a second Ctrl-C came before the first had been answered
                change.interrupt.end()

    def _require_whole(self) -> None:
        """Refuse a model of which a change was broken off."""
        with self._lock:  # a change in another thread is not one that was broken off
            broken_off = self._change is not None and self._change.begun
        if broken_off:
            raise HalfAppliedError(message(self._interrupted, estimator=type(self).__name__))

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes that a copy has."""
        self._require_whole()
        if self._block is None:
            return self.__dict__
        assert getattr(self._live_session(), "whole", False)  # which makes the copy, if nothing has needed it yet
        return {name: value for name, value in self.__dict__.items() if name != "_block"} | {"_known": {}}

    def _settle(self) -> None:
        """Drop, after a call that has taken effect, what is left of deleted examples beside the model."""

    # ------------------------------------------------------------ what a class says of itself

    #: Id of the message about a change that was broken off.
    _interrupted: ClassVar[str]

    @abstractmethod
    def _live_session(self) -> InProcessSession | None:
        """The session, if there is a live model."""

    @abstractmethod
    def _growing(self) -> Iterable[Values]:
        """Return the lists to which new labels and categories are appended."""
