"""What shards are worth: wall time of one process, of peers and of shards on Ray, and the critical path of many shards.

The protocol is the real one: a session on Ray with so many processes of shards. Each records, for every answer, its
processor seconds between two points at which it waits, and the bytes that it sends to other shards. The *critical path*
is the coordinator's processor time, plus for every step that of the slowest shard, plus a latency for every wait, which
is measured between two idle processes. So processes that share two cores show what as many machines would take, without
what their network takes for the bytes. The path counts only if it predicts the wall time of one and of two shards
within 10 %; otherwise a dash stands in its place. Every process has loaded its kernels before the clock starts.

COST is the smallest number of shards that beats a contestant: by wall time up to two shards (or as many as there are
cores), by the critical path beyond. All digests of a piece of work are equal, or the program ends.

Run: python benchmarks/scaling.py [--work gbdt] [--scale 0.2] [--shards 1 2 4 8] [--repeats 1]
For publication: --scale 1 --repeats 3 --shards 1 2 4 8 16 32
"""

import os
import socket
import statistics
import time
from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

from harness import arguments, print_machine, progress, show
from works import ALL_TO_SHARDS, LEARNERS, WORKS, Work, run

import actors.session
import actors.starting
from actors.cluster import Cluster, bundles, connect
from actors.session import Coordinator
from actors.shard import FeatureShard
from raydt.learners import learners
from raydt.learners.base import NOTHING_DIVIDED
from raydt.parallel import limited
from raydt.sessions.session import DIVIDED, InProcessSession, compile_kernels

#: The path must predict the wall time of so many shards, within this share.
CHECKED, WITHIN = (1, 2), 0.10
CORES = os.cpu_count() or 1

#: Of one answer of a shard: processor seconds of its steps, between which it swaps with others, and bytes sent.
Answer = tuple[list[float], int]


class RecordingShard(FeatureShard):
    def __init__(self) -> None:
        super().__init__()
        self._record: list[Answer] = []
        self._steps: list[float] = []  # processor seconds at the beginning and at each swap of the answer under way

    def open(self, assignment: Any, *rest: Any) -> str:
        node = super().open(assignment, *rest)
        compile_kernels(assignment.learner, assignment.options, DIVIDED)
        return node

    def connect(self, addresses: Any, secret: bytes) -> None:
        """Record where a pass is between two steps: what sends and receives is a step, too."""
        super().connect(addresses, secret)
        assert self._channel is not None
        swap = self._channel.swap

        def recorded(parts: Any) -> Any:
            self._steps.append(self._pulse.seconds())
            received = swap(parts)
            self._steps.append(self._pulse.seconds())
            return received

        self._channel.swap = recorded  # type: ignore[method-assign]

    def receive(self, *message: Any) -> list[Any]:
        self._begin()
        replies = super().receive(*message)
        self._end(0)
        return replies

    def combine(self, *message: Any) -> Any:
        self._begin()
        ended, sent = super().combine(*message)
        self._end(sent)
        return ended, sent

    def _begin(self) -> None:
        self._pulse.beat()
        self._steps = [self._pulse.seconds()]

    def _end(self, sent: int) -> None:
        self._steps.append(self._pulse.seconds())
        taken = [b - a for a, b in zip(self._steps, self._steps[1:], strict=False)]
        self._record.append((taken, sent))

    def taken(self) -> list[Answer]:
        record, self._record = self._record, []
        return record


class RecordingCoordinator(Coordinator):
    def __init__(self) -> None:
        super().__init__()
        self._spent = 0.0

    def open(self, assignment: Any, *rest: Any) -> None:
        super().open(assignment, *rest)
        compile_kernels(assignment.learner, assignment.options, DIVIDED)

    def apply(self, *message: Any) -> Any:
        began = time.process_time()
        results = super().apply(*message)
        self._spent += time.process_time() - began
        return results

    def taken(self) -> float:
        spent, self._spent = self._spent, 0.0
        return spent


class Path(NamedTuple):
    wall: float
    path: float
    coordinator: float
    waits: int  #: calls of Ray, and swaps among shards
    megabytes: float  #: sent to other shards by the process that sends most


class Latency(NamedTuple):
    """Seconds that nobody computes: until an answer to a call of Ray is there, and what another process has sent."""

    call: float
    swap: float


def path_of(shards: Sequence[Sequence[Answer]], coordinator: float, wall: float, calls: int, latency: Latency) -> Path:
    """Add up the slowest shard of each step, in the order of the answers; all shards answer equally often.

    The driver has made so many calls of the coordinator.
    """
    seconds, rounds, swaps = coordinator, calls, 0
    for answers in zip(*shards, strict=True):
        steps = list(zip_longest(*(taken for taken, _ in answers), fillvalue=0.0))
        seconds += sum(map(max, steps))
        rounds += 1
        swaps += len(steps) // 2
    sent = max(sum(bytes for _, bytes in answers) for answers in shards)
    waited = latency.call * rounds + latency.swap * swaps * (len(shards) - 1).bit_length()  # rounds of a meeting
    return Path(wall, seconds + waited, coordinator, rounds + swaps, sent / 1e6)


def lower_quartile(once: Callable[[], object], times: int) -> float:
    """Seconds that something takes without processor time of this process: the lower quartile."""
    found = []
    for _ in range(times):
        began, busy = time.perf_counter(), time.process_time()
        once()
        found.append(time.perf_counter() - began - time.process_time() + busy)
    return statistics.quantiles(found, n=4)[0]


def latency_of_swaps() -> float:
    """Seconds from a byte sent by TCP until the other process, which waited for it, has it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        here = socket.create_connection(server.getsockname())
        there, _ = server.accept()
    for one in (here, there):
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    child = os.fork()
    if not child:
        here.close()
        while byte := there.recv(1):
            there.sendall(byte)
        os._exit(0)
    there.close()
    found = lower_quartile(lambda: here.sendall(b"1") or here.recv(1), 1000) / 2
    here.close()
    os.waitpid(child, 0)
    return found


def on_shards(cluster: Cluster, work: Work, shards: int, swap: float) -> tuple[Path, str]:
    import ray

    session = actors.session.RaySession(
        cluster, learners()[work.kind], work.settings, work.features, shards=shards, plan=ALL_TO_SHARDS, patience=120.0
    )
    records: list[list[Any]] = []

    def look() -> None:
        records.append([ray.get(peer.handle.taken.remote()) for peer in session._peers])

    try:
        shard = session._peers[1].handle
        call = lower_quartile(lambda: ray.get(shard.identity.remote()), 50)
        wall, digest = run(session, work, look)
    finally:
        session.close()
    coordinator, *answers = records[1]
    return path_of(answers, coordinator, wall, work.batches, Latency(call, swap)), digest


def alone(work: Work, threads: int) -> tuple[float, str]:
    session = InProcessSession(learners()[work.kind], work.settings, work.features, 1, NOTHING_DIVIDED)
    with limited(threads or None):
        return run(session, work)


class Contest:
    def __init__(self, name: str, work: Work) -> None:
        self.name, self.work = name, work
        self.walls: dict[str, list[float]] = {}
        self.paths: dict[int, list[Path]] = {}
        self.digests: set[str] = set()

    def take_turns(self, cluster: Cluster, shards: Sequence[int], repeats: int, swap: float) -> None:
        for _ in range(repeats):
            for name, threads in (("one thread", 1), ("all threads", 0)):
                wall, digest = alone(self.work, threads)
                self._note(name, wall, digest)
            for count in shards:
                path, digest = on_shards(cluster, self.work, count, swap)
                self.paths.setdefault(count, []).append(path)
                self._note(f"{count} shards", path.wall, digest)
        if self.work.peer is not None:
            data = self.work.data()
            for _ in range(repeats):
                began = time.perf_counter()
                self.work.peer(*data)
                self._note("peer", time.perf_counter() - began, None)

    def _note(self, name: str, wall: float, digest: str | None) -> None:
        self.walls.setdefault(name, []).append(wall)
        self.digests |= {digest} if digest else set()
        assert len(self.digests) <= 1, f"{self.name}: the digests differ"
        progress(self.name, name, f"{wall:.3f} s, load {os.getloadavg()[0]:.1f}")

    def wall(self, name: str) -> float | None:
        """Median wall seconds of a contestant; None if there is none."""
        return statistics.median(self.walls[name]) if name in self.walls else None

    def spread(self, name: str | int) -> str:
        """Median wall seconds of a contestant, or critical path of so many shards, and in brackets the extremes."""
        found = [path.path for path in self.paths[name]] if isinstance(name, int) else self.walls.get(name, [])
        if not found:
            return "-"
        median = f"{statistics.median(found):.2f}"
        return median if len(found) == 1 else f"{median} ({min(found):.2f} to {max(found):.2f})"

    def path(self, shards: int) -> float:
        return statistics.median(path.path for path in self.paths[shards])

    @property
    def counts(self) -> bool:
        """Whether the critical path predicts what it can be compared with."""
        checked = [shards for shards in CHECKED if shards in self.paths and shards <= CORES]
        return bool(checked) and all(abs(self.path(n) / (self.wall(f"{n} shards") or 1) - 1) <= WITHIN for n in checked)

    def seconds(self, shards: int) -> float | None:
        """Wall seconds where each shard has a core, the critical path beyond; None if that does not count."""
        if shards <= CORES:
            return self.wall(f"{shards} shards")
        return self.path(shards) if self.counts else None

    def cost(self, name: str) -> str:
        goal = self.wall(name)
        if goal is None:
            return "no peer"
        known = [(shards, seconds) for shards in self.paths if (seconds := self.seconds(shards)) is not None]
        found = [shards for shards, seconds in known if seconds < goal]
        return str(min(found)) if found else f"none up to {max(shards for shards, _ in known)}"


def tables(contests: Sequence[Contest], shards: Sequence[int]) -> None:
    sides, rows = ("one thread", "all threads", "peer"), []
    for contest in contests:
        one, two = contest.wall("one thread"), contest.wall("2 shards")
        times = "-" if one is None or two is None else f"{one / two:.2f}"
        names = (*sides, "1 shards", "2 shards")
        rows.append([contest.work.title, *map(contest.spread, names), times])
    header = ["work", "one thread s", "all threads s", "peer, all cores s", "1 shard s", "2 shards s"]
    show("Wall time", [*header, "one thread / 2 shards"], rows)
    rows = [[contest.work.title, *(contest.cost(side) for side in sides)] for contest in contests]
    show("COST: the fewest shards that beat", ["work", "our one thread", "our all threads", "the peer"], rows)
    rows = []
    for contest in contests:
        shown = [contest.spread(n) if contest.counts or n in CHECKED else "-" for n in shards]
        known = [n for n in CHECKED if n in contest.paths]
        ratios = ", ".join(f"{contest.path(n) / (contest.wall(f'{n} shards') or 1):.2f}" for n in known)
        last = contest.paths[shards[-1]][0]
        most = [f"{last.coordinator:.2f}", f"{last.waits:,}", f"{last.megabytes:.1f}"]
        rows.append([contest.work.title, *shown, ratios, *most])
    header = ["work", *(f"{n} shards s" for n in shards), "path / wall", f"with {shards[-1]}: coordinator s", "waits"]
    show("Critical path", [*header, "MB sent by a process"], rows)


if __name__ == "__main__":
    asked = arguments(__doc__, work={"choices": WORKS, "action": "append"}, scale=0.1, shards=[1, 2, 4], repeats=1)
    names = asked.work or LEARNERS
    print_machine("ray")
    actors.starting.LOCAL_START_SECONDS = 600.0  # many processes start on few cores
    actors.session.Coordinator = RecordingCoordinator  # type: ignore[misc]
    actors.session.FeatureShard = RecordingShard  # type: ignore[misc]
    swap = latency_of_swaps()
    cluster = connect("local", bundles(max(asked.shards)))
    contests = []
    for name in names:
        work = WORKS[name]
        for small in (0, 1):  # kernels
            alone(work.of(20_000), small)
        contest = Contest(name, work.of(max(20_000, int(work.rows * asked.scale))) if not work.every else work)
        contest.take_turns(cluster, asked.shards, asked.repeats, swap)
        contests.append(contest)
    tables(contests, asked.shards)
    cluster.close()
    print(f"\nWhat is sent takes {swap * 1e6:.0f} us. Load {os.getloadavg()[0]:.1f} at the end, of {CORES} cores.")
