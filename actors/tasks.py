"""Independent pieces of work on Ray: one function, large objects that many of them read, one small item for each.

Invariant: a large object is put into the object store once, whatever the number of its items. Ray repeats nothing: a
piece whose process is lost is answered with the error, and the others go on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import ray
from ray.exceptions import OutOfMemoryError, RayError, RayTaskError
from ray.util.placement_group import remove_placement_group

from actors.cluster import Cluster, cpus
from actors.faults import translate
from actors.identity import Identity, identity, require_same
from raydt.errors import ProcessLostError
from raydt.messages import message

S = TypeVar("S")
T = TypeVar("T")
R = TypeVar("R")

#: Pieces handed to Ray at a time: enough for any autoscaler to see what is waiting.
UNDER_WAY = 1000

#: Seconds between two looks at ``stopped``.
LOOK_SECONDS = 0.2


def run_tasks(
    cluster: Cluster,
    work: Callable[[S, T], R],
    parts: Iterable[tuple[S, Sequence[T]]],
    stopped: Callable[[], bool] = lambda: False,
) -> Iterator[tuple[int, R | ProcessLostError]]:
    """Yield the place of each item among all parts and ``work(shared, item)``, as results come.

    Each is a Ray task of one CPU; a lost process gives its error as the result. ``work`` is a function of a module. Few
    parts are in memory at a time. Once ``stopped`` says so, what is under way is ended.
    """
    if not cluster.started:
        remove_placement_group(cluster.reserve([{"CPU": 1.0}]))  # a task that no node can take would wait for ever
    options = {"num_cpus": 1, "max_retries": 0, **cluster.actor_environment()}
    task: Any = ray.remote(**options)(_run)
    mine, remaining = identity(), iter(parts)
    waiting: Iterator[T] = iter(())
    everything: Any = None
    under_way: dict[Any, int] = {}
    index = 0
    try:
        while not stopped():
            while len(under_way) < UNDER_WAY:
                for item in waiting:
                    under_way[task.remote(mine, work, everything, item)] = index
                    index += 1
                    break
                else:
                    part = next(remaining, None) if len(under_way) < max(1, cpus()) else None
                    if part is None:
                        break
                    everything, waiting = ray.put(part[0]), iter(part[1])
                    del part
            if not under_way:
                return
            for reply in ray.wait(list(under_way), num_returns=1, timeout=LOOK_SECONDS)[0]:
                yield under_way.pop(reply), _answer(reply)
    finally:
        for reply in under_way:
            ray.cancel(reply, force=True)


def _run(theirs: Identity, work: Callable[[Any, Any], R], shared: Any, item: Any) -> R:
    require_same(theirs, identity(), "a worker process")
    return work(shared, item)


def _answer(reply: Any) -> Any:
    try:
        return ray.get(reply)
    except RayTaskError as error:
        raise translate(error, "a worker process") from error
    except OutOfMemoryError:
        return ProcessLostError(message("cluster.task_memory"))
    except RayError as error:
        return ProcessLostError(message("cluster.task_lost", error=type(error).__name__))
