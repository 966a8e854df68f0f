"""A pool of threads that the process shares, and how many threads a piece of work takes.

The calling thread takes tasks too, and waits for nobody who has not begun: work ends if no other thread can be
started, and as many Python threads as like may divide work at the same time. A task that divides work itself does so
alone. To hand out tasks costs about 0.1 ms: work that takes less is left to the calling thread.
"""

from __future__ import annotations

import _thread
import atexit
import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar, copy_context
from functools import partial
from queue import SimpleQueue
from typing import Any, Generic, TypeVar, cast

from raydt.parallel.cpus import cpus_here

T = TypeVar("T")

#: Threads that the current call may use; None: as many as the process may use CPUs.
_limit: ContextVar[int | None] = ContextVar("threads", default=None)
#: Whether the current call divides work however little it is.
_however_little: ContextVar[bool] = ContextVar("however little", default=False)

#: Work that no thread of the pool has begun. Queue and threads are made in C: a signal may arrive anywhere in the
#: calling thread, also between two bytecodes of :mod:`concurrent.futures` or :mod:`threading`, and would leave their
#: locks taken for ever.
_queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
_ended: SimpleQueue[None] = SimpleQueue()  # an item for each thread that has ended
_started: list[int] = []  # threads of the pool, which last as long as the process
_clocks: list[int] = []  # of their processor time
_ending: list[bool] = []  # not empty once no thread is to be started any more


def threads() -> int:
    """Return how many threads the current call may use, at least 1."""
    limit = _limit.get()
    return cpus_here() if limit is None else limit


def threads_of(n_jobs: int | None) -> int:
    """Return the threads that ``n_jobs`` means: None and -1 all CPUs of this process, -2 all but one, and so on."""
    if n_jobs is None or n_jobs < 0:
        return max(1, cpus_here() + 1 + (-1 if n_jobs is None else n_jobs))
    return max(1, n_jobs)


def limited(n: int | None) -> contextlib.AbstractContextManager[None]:
    """Return a context in which a call uses at most ``n`` threads, and no more than around it; None: no change."""
    return _Limit(n)


class _Limit(contextlib.AbstractContextManager[None]):
    # No generator: of an interrupted call, it would end wherever the garbage is collected, with another limit.
    def __init__(self, n: int | None) -> None:
        self._n = n

    def __enter__(self) -> None:
        self._token = _limit.set(_within(self._n))

    def __exit__(self, *_: object) -> None:
        _limit.reset(self._token)


def _within(n: int | None) -> int | None:
    """Return the smaller one of ``n`` and the limit of the present context."""
    outer = _limit.get()
    return n if outer is None or (n is not None and n < outer) else outer


def call(n: int | None, work: Callable[..., T], *arguments: Any, **named: Any) -> T:
    """Call ``work`` with at most ``n`` threads; of the limit nothing is left, wherever an interrupt arrives."""
    context = copy_context()
    context.run(_limit.set, _within(n))
    return context.run(work, *arguments, **named)


def call_divided(work: Callable[[], T]) -> T:
    """Call work, which is divided however little it is."""
    context = copy_context()
    context.run(_however_little.set, True)
    return context.run(work)


def divided(cells: int, few: int) -> bool:
    """Return whether the current call divides work of so many cells, if it is at least ``few``."""
    return _however_little.get() or (threads() > 1 and cells >= few)


def ranges(n: int, smallest: int = 1, each: int = 1) -> list[slice]:
    """Divide ``n`` items into nearly equal ranges of at least ``smallest`` items, ``each`` for every thread."""
    parts = max(1, min(threads() * each if threads() > 1 else 1, n // max(1, smallest)))
    return [slice(n * i // parts, n * (i + 1) // parts) for i in range(parts)]


def run(tasks: Sequence[Callable[[], T]]) -> list[T]:
    """Do all tasks, in threads, and return their results in order; an error is raised when no thread works."""
    n = min(len(tasks), threads()) if len(tasks) > 1 else 1
    if n <= 1:
        return [task() for task in tasks]
    work = _Work(tasks)
    try:
        try:
            with contextlib.suppress(RuntimeError):  # no thread can be started: the calling one does it all
                for _ in range(n - 1):
                    submit(work.help)
            copy_context().run(work.take)
        except BaseException:
            work.ended = True
            raise
        finally:
            work.settle()
    finally:
        work.settle()  # whatever arrived before the first
    return work.outcome()


class _Work(Generic[T]):
    """Tasks that several threads take one after the other; the calling one takes a lock only in :func:`settle`."""

    def __init__(self, tasks: Sequence[Callable[[], T]]) -> None:
        self._tasks = tasks
        self._next: Iterator[int] = iter(range(len(tasks)))
        self._results: dict[int, T] = {}
        self._errors: dict[int, BaseException] = {}
        self.ended = False  #: No other task is to be begun.
        self._closed = False  # whoever has not come yet is late
        self._changed, self._helping, self._process = threading.Condition(), 0, os.getpid()

    def take(self) -> None:
        """Take tasks until there is none, in a context of its own, which says that a task divides nothing."""
        _limit.set(1)
        for i in self._next:  # one step of an iterator of ranges is atomic
            if self.ended:
                return
            try:
                self._results[i] = self._tasks[i]()
            except BaseException as error:
                self.ended = True
                self._errors[i] = error

    def help(self) -> None:
        """Take tasks in another thread than the calling one, which waits for this one if it has begun."""
        with self._changed:
            if self._closed:
                return
            self._helping += 1
        try:
            self.take()
        finally:
            with self._changed:
                self._helping -= 1
                self._changed.notify_all()

    def settle(self) -> None:
        """Wait for all who have begun."""

        def nobody_works() -> bool:
            self._closed = True
            return not self._helping

        settle(self._changed, nobody_works, self._process)

    def outcome(self) -> list[T]:
        """Return the results in order, or raise the first error; nothing of the tasks is kept."""
        results, errors = [self._results.get(i) for i in range(len(self._tasks))], self._errors
        self._tasks, self._results, self._errors = (), {}, {}
        try:
            if errors:
                interrupts = [i for i, error in errors.items() if not isinstance(error, Exception)]
                raise errors[min(interrupts or errors)]
        finally:
            del errors  # an error has this frame, which shall not have it
        return cast("list[T]", results)


def settle(changed: threading.Condition, nobody_works: Callable[[], bool], process: int) -> None:
    """Wait until nobody works, whatever arrives meanwhile; raise that afterwards.

    Nobody works in a child forked from ``process``, where the work was begun: threads are not copied.
    ``nobody_works`` is asked while the lock is held, and calls off what has not begun. This thread may be interrupted
    before any bytecode, also behind the one that has taken the lock: it lets go of it however often it was taken.
    """
    if os.getpid() != process:
        return
    arrived: BaseException | None = None
    while True:
        try:
            _let_go(changed)
            changed.acquire()  # without a block: a wait that is broken off may leave without the lock
            while not nobody_works():
                changed.wait()
            _let_go(changed)
        except BaseException as error:
            arrived = error
        else:
            break
    if arrived is not None:
        raise arrived


def _let_go(changed: threading.Condition) -> None:
    """Release the lock as often as this thread has it: once more raises RuntimeError."""
    with contextlib.suppress(RuntimeError):
        while True:
            changed.release()


def submit(work: Callable[[], None], at_once: int = 0) -> None:
    """Have a thread of the pool do some work, in a copy of this thread's context (NumPy's handling of errors).

    The pool has room for ``at_once`` pieces of work that may divide work themselves. RuntimeError if no thread can be
    started; another one may then do the work later all the same.
    """
    if _ending:
        raise RuntimeError("the process ends")
    _queue.put(partial(copy_context().run, work))
    for _ in range(max(1, threads() - 1 + at_once) - len(_started)):
        _started.append(_thread.start_new_thread(_serve, (_queue, _ended)))


def _serve(queue: SimpleQueue[Callable[[], None] | None], ended: SimpleQueue[None]) -> None:
    """Do work until there is None; its errors are its own."""
    try:
        _clocks.append(time.pthread_getcpuclockid(_thread.get_ident()))
        for work in iter(queue.get, None):
            with contextlib.suppress(BaseException):
                work()
            del work  # and what it holds
    finally:
        ended.put(None)


@atexit.register
def _end() -> None:
    """Wait for work under way: Python would end its thread in the middle of a library, which may abort the process."""
    _ending.append(True)
    for _ in _started:
        _queue.put(None)
    for _ in _started:
        _ended.get()


def clocks() -> list[int]:
    """Return the clocks of the processor time of all threads that have been started."""
    return list(_clocks)


def _forget() -> None:
    """Have a forked child start threads of its own: they are not copied."""
    global _queue, _ended  # a lock of the former ones may be taken
    _queue, _ended = SimpleQueue(), SimpleQueue()
    for of_parent in (_started, _clocks, _ending):
        of_parent.clear()


os.register_at_fork(after_in_child=_forget)
