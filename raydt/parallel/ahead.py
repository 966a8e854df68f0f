"""Work begun before its result is asked for: the next rows of a file, or the next settings of a sweep.

Invariant: results come in the order of the tasks. When the iteration ends, is closed or is broken off, no task is under
way, and none is begun any more.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from threading import Condition, get_ident
from typing import Any, Generic, TypeVar

from raydt.parallel.threads import settle, submit

T = TypeVar("T")

_END: Any = object()


def ahead(items: Generator[T, None, None]) -> Generator[T, None, None]:
    """Yield items, of which a thread of the pool makes the next one meanwhile; in the end ``items`` is closed."""
    tasks = iter(lambda: lambda: next(items, _END), None)  # without an end
    with closing(items), closing(in_order(tasks, at_once=1, waiting=1)) as results:
        for item in results:
            if item is _END:
                return
            yield item


def in_order(tasks: Iterator[Callable[[], T]], at_once: int, waiting: int) -> Generator[T, None, None]:
    """Do tasks in threads, ``at_once``, and yield results in order, ``waiting`` for their turn; an error ends it."""
    changed, process = Condition(), os.getpid()
    begun: deque[_Task[T]] = deque()

    def begin() -> None:
        while len(begun) < waiting and sum(not task.done for task in begun) < at_once:
            work = next(tasks, None)
            if work is None:
                return
            begun.append(_Task(work, changed))
            try:
                submit(begun[-1].do, at_once)
            except RuntimeError:  # no thread can be started
                begun[-1].do()

    def nobody_works() -> bool:
        for task in begun:
            task.off = not task.taker
        return all(task.done or task.off or task.taker == get_ident() for task in begun)  # this thread is here

    try:
        try:
            begin()
            while begun:
                if at_once == 1:
                    begun[0].do()  # unless a thread has begun it
                with changed:
                    done = sum(task.done for task in begun)
                    while not begun[0].done and done == sum(task.done for task in begun):
                        changed.wait()
                task = begun.popleft() if begun[0].done else None
                begin()
                if task is not None:
                    yield task.outcome()
                    del task  # with its result
        finally:
            settle(changed, nobody_works, process)
    finally:
        settle(changed, nobody_works, process)  # whatever arrived before the first


class _Task(Generic[T]):
    """A task that one thread does, and only one."""

    def __init__(self, work: Callable[[], T], changed: Condition) -> None:
        self._work, self._changed = work, changed
        self.taker = 0  #: The thread that does it.
        self.off = self.done = False
        self._result: list[T] = []
        self._error: BaseException | None = None

    def do(self) -> None:
        """Do the work, unless another thread does or it was called off."""
        with self._changed:
            if self.taker or self.off:
                return
            self.taker = get_ident()
        try:
            self._result.append(self._work())
        except BaseException as error:
            self._error = error
        finally:
            with self._changed:
                self.done = True
                self._changed.notify_all()

    def outcome(self) -> T:
        """Return the result, or raise the error."""
        if self._error is not None:
            raise self._error
        return self._result[0]
