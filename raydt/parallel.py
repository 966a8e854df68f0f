"""A pool of threads that the process shares, how many threads a piece of work takes, and its seconds.

The calling thread takes tasks too, and waits for nobody who has not begun: work ends if no other thread can be
started, and as many Python threads as like may divide work at the same time. A task that divides work itself does so
alone. To hand out tasks costs about 0.1 ms: work that takes less is left to the calling thread.
"""

from __future__ import annotations

import _thread
import atexit
import contextlib
import functools
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from contextvars import Context, ContextVar, copy_context
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from threading import Condition, get_ident
from typing import Any, Generic, Protocol, TypeVar, cast

# How many CPUs this process may use.

_CGROUPS = Path("/sys/fs/cgroup")
_GROUPS_OF_THIS_PROCESS = Path("/proc/self/cgroup")


def cpus_here() -> int:
    """Return how many CPUs this process may use, at least 1.

    The smallest of its affinity, the quotas of its control group and of those above (as a container has one), and
    ``OMP_NUM_THREADS``, which Ray sets to the CPUs of an actor, and joblib to those of a worker.
    """
    return max(1, min(affinity(), _quota(), _named()))


def affinity() -> int:
    """Return how many CPUs the operating system lets this process use; all where it cannot say (macOS, Windows)."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _named() -> int:
    """The first number of ``OMP_NUM_THREADS``; without one no limit."""
    first = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    return int(first) if first.isdecimal() and int(first) else 1 << 30


@functools.cache
def _quota() -> int:
    """The smallest quota of CPU time, in whole CPUs (rounded up), of the control group and of those above."""
    try:
        lines = _GROUPS_OF_THIS_PROCESS.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return 1 << 30
    limits = [1 << 30]
    for line in lines:
        controllers, _, name = line.partition(":")[2].partition(":")
        if controllers in ("", "cpu", "cpu,cpuacct", "cpuacct,cpu"):
            group = _CGROUPS / controllers / name.lstrip("/")
            limits += [_quota_of(folder) for folder in (group, *group.parents) if folder.is_relative_to(_CGROUPS)]
    return min(limits)


def _quota_of(folder: Path) -> int:
    """The quota of one control group; without one, or if it cannot be read, no limit."""
    try:
        if (folder / "cpu.max").exists():
            quota, period = (folder / "cpu.max").read_text(encoding="utf-8").split()
        else:
            names = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
            quota, period = ((folder / name).read_text(encoding="utf-8") for name in names)
        return max(1, -(-int(quota) // int(period))) if int(quota) > 0 else 1 << 30
    except (OSError, ValueError):  # "max" is no number
        return 1 << 30


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


def limited_context(n: int | None) -> Context:
    """Return a context in which work takes at most ``n`` threads; of the limit nothing is left outside."""
    context = copy_context()
    context.run(_limit.set, _within(n))
    return context


class Limited(Protocol):
    """An object whose calls use a limited number of threads."""

    def _threads(self) -> int | None:
        """Return the most threads that a call may use; None: as many as the calls around it."""


def in_threads(method: Callable[..., T]) -> Callable[..., T]:
    """Have a method of an object use as many threads as the object says.

    Nothing is left of the limit, wherever an interrupt arrives.
    """

    @functools.wraps(method)
    def limited_call(self: Limited, /, *arguments: Any, **named: Any) -> T:
        return limited_context(self._threads()).run(method, self, *arguments, **named)

    return limited_call


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
    parts = n // max(1, smallest)
    if parts > 1:  # else nobody needs to know how many threads there are, which takes longer than a row
        parts = min(parts, threads() * each if threads() > 1 else 1)
    parts = max(1, parts)
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


# Work begun before its result is asked for: the next rows of a file, or the next settings of a sweep.
#
# Invariant: results come in the order of the tasks. When the iteration ends, is closed or is broken off, no task is
# under way, and none is begun any more.

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


# What divides work among the cores of one process: how many there are, a pool of threads, ranges of rows.
#
# Kernels release the GIL and work on arrays that all threads share, so nothing is copied or sent. Each task writes
# arrays, or ranges of arrays, of its own; statistics are integers and ties have a total order. A result therefore has
# the same bits with any number of threads, and the number is never part of options, hashes, digests or files.


class Preparation:
    """The time in which this process compiles or loads kernels, which is none of its work.

    Numba does either while it holds a lock, in one thread at a time; what a kernel calls is a part of it.
    """

    def __init__(self) -> None:
        self.compiled = 0  #: kernels
        self.heard: Callable[[], None] = lambda: None  #: called whenever a function begins to compile
        self._past, self._since, self._depth = 0.0, 0.0, 0

    @property
    def seconds(self) -> float:
        """Seconds since the process began."""
        return self._past + (time.perf_counter() - self._since if self._depth else 0.0)

    def begin(self) -> None:
        """Note that a function begins to compile or to load."""
        if not self._depth:
            self._since = time.perf_counter()
        self._depth += 1

    def end(self) -> None:
        """Note that a function is there."""
        past, self._depth = self.seconds, self._depth - 1
        if not self._depth:
            self._past = past


#: Of this process.
PREPARATION = Preparation()


def work_seconds() -> float:
    """Return ``time.perf_counter`` without the time in which kernels were compiled or loaded."""
    return time.perf_counter() - PREPARATION.seconds
