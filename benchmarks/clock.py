"""First models on up to a thousand shards, by the clock: what it predicts beside what is measured, and only then more.

The real coordinator and shards run here against virtual time (`tests/simulation/clock.py`), one process after the
other, and the processor time of each step is measured, while the same runs a second time on another core: so memory is
shared as among processes at work. From runs of several sizes the seconds of each kind of step follow
(`benchmarks/timetable.py`), with the residuals of the fit. What lies between processes is measured apart: the latency
of a call of Ray and of a frame, and what these take of a processor beyond what a step of the simulation does.

*Gate*: real sessions on Ray make the same models. The fitted clock, which has seen no run of this size, must predict
the wall time of 1, 2 and 4 shards (4 share two cores) and the critical path of 8, 16 and 32 (`benchmarks/scaling.py`)
within 15 %. Otherwise both are printed, and nothing else is.

Extrapolated are steps that are linear in rows, cells, features and shards, on processes with a core and a port each,
with the latency and bandwidth of `--latency` and `--gigabits`. Assumed are: the sequence of steps and meetings as
recorded with fewer rows of as many features (trees of as many leaves and levels); memory as large as needed and as fast
as that of the fitted sizes; as much difference between the steps of shards as measured. The shards have read the rows.

Run: python benchmarks/clock.py [--rows 1000000] [--features 50] [--repeats 3] [--fit 1.0]
"""

from __future__ import annotations

import contextlib
import gc
import heapq
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from harness import arguments, print_machine, progress, show
from timetable import TERMS, Recorder, Run, Size, Spent, Table, replay
from works import ALL_TO_SHARDS, GBDT, GROUPS, Work, lightgbm

from raydt.exchange.links import FrameReader, Links, packed
from raydt.exchange.meetings import AllGather
from raydt.exchange.messages import Ask, Exchange, Tell
from raydt.learners import learners
from raydt.learners.gbdt.shard import _ENCODED
from raydt.parallel import limited
from tests.simulation.clock import SECOND, ClockedCoordinator, ClockedNetwork, ClockedShard, Done, Wire, size_of
from tests.simulation.network import NO_FAULTS

#: Sizes of the runs that the fit is made of: rows (whole blocks), features, shards.
SIZES = (
    *((65_536, 32, 1), (196_608, 16, 1), (196_608, 64, 1), (393_216, 32, 1), (327_680, 128, 1)),
    *((131_072, 32, 2), (393_216, 64, 2), (589_824, 32, 2), (327_680, 128, 4), (196_608, 16, 8), (196_608, 128, 8)),
    *((786_432, 32, 8), (131_072, 64, 32), (393_216, 32, 32), (196_608, 128, 64), (131_072, 64, 128)),
)
WITHIN, WALLS, PATHS = 0.15, (1, 2, 4), (8, 16, 32)
NEAR, SEEDS = (1, 2, 4, 8, 16, 32, 64), 3
FAR_ROWS, FAR_FEATURES, FAR = 1_000_000_000, 128, (1, 4, 16, 64, 256, 1024)
CORES = os.cpu_count() or 1


class Host(NamedTuple):
    """What lies between processes on this machine, in seconds."""

    call: float  #: Until a call of Ray is answered.
    calling: float  #: Of the caller's processor, for each.
    latency: float  #: Until a frame is there.
    frame: float  #: Of the processor at either end of a frame, beyond what the simulation does.
    byte: float  #: The same for each byte.

    def costs(self, done: Done) -> float:
        """Seconds of an event, as measured."""
        calls = done.messages if done.machine.name == "coordinator" else 0
        frames, sent = len(done.sent) + (done.received > 0), sum(done.sent) + done.received
        return done.seconds + calls * self.calling + frames * self.frame + sent * self.byte

    @property
    def wire(self) -> Wire:
        return Wire(call=self.call / 2, frame=self.latency)


# -- the clock over a piece of work ------------------------------------------------------------------------------------


class RecordingCoordinator(ClockedCoordinator):
    """Tells a recorder of requests and replies."""

    recorder: Recorder | None = None

    def _send(self, request: Ask) -> None:
        if self.recorder is not None:
            told = isinstance(request, Tell)
            self.recorder.requests.append((request.method, told, size_of(request.for_shard(0))))
        super()._send(request)

    def receive(self, message: Any) -> bool:
        if self.recorder is not None and message.shard == 0:
            content = message.content
            self.recorder.replies[self._request.method] = size_of(getattr(content, "result", content))
        return super().receive(message)


class Timed:
    """A session whose coordinator and shards run against virtual time."""

    def __init__(self, work: Work, shards: int, wire: Wire, costs: Callable[[Done], float], **clock: Any) -> None:
        self.work, self.size = work, Size(work.rows, work.columns, shards)
        groups = max(GROUPS, min(work.columns, shards))
        learner, features = learners()[work.kind], replace(work.features, groups=groups)
        options = work.settings.model_copy(update={"feature_groups": groups})
        self.network = ClockedNetwork(0, NO_FAULTS)
        self.network.wind(wire, costs, **clock)
        self.network.epoch = 1
        for index, owned in enumerate(features.assign(shards)):
            machine = ClockedShard(index, 0, learner.shard(options, features, owned))
            machine.begin_epoch(1, shards)
            machine.epoch = 1
            self.network.shards.append(machine)
        plan = replace(ALL_TO_SHARDS, shared_store=False)
        self.machine = self.network.coordinator = RecordingCoordinator(
            1, learner.coordinator(options, features, shards, plan), shards, self.network.send, self.network.remind
        )

    def drive(self, exchange: Exchange[Any]) -> float:
        """Seconds of virtual time from the beginning of an exchange to its result."""
        network, began = self.network, self.network.time

        def end() -> None:
            network.ended = True

        def start() -> None:
            self.machine.run(exchange, lambda _: network._outbox.append((end, ())))

        network.ended = False
        network.visit(self.machine, start)
        network.pass_time()
        return (network.time - began) / SECOND

    def settle(self) -> None:
        """Wait until nothing is under way."""
        waits = self.network._queue
        while waits:
            self.network.time, _, happen, arguments = heapq.heappop(waits)
            happen(*arguments)

    def run(self) -> Run:
        """Make the model; what is recorded are the batches that a benchmark times."""
        work, coordinator = self.work, self.machine.coordinator
        batches = list(work.first())
        timed = list(work.updates()) if work.every else [batches.pop()]
        with limited(1):
            for batch in batches:
                self.drive(coordinator.process(batch))
            self.settle()
            recorder = self.machine.recorder = Recorder(self.size)
            self.network.note = recorder.note
            gc.collect()
            gc.disable()  # in a process with one shard there is little to collect
            seconds = sum(self.drive(coordinator.process(batch)) for batch in timed)
            gc.enable()
            self.settle()
            self.machine.recorder, self.network.note = None, lambda done: None
            self.drive(coordinator.gather_digest())
        return recorder.run(seconds, coordinator.digest())


def run_of(work: Work, shards: int, host: Host, **clock: Any) -> Run:
    """One measured run; of several shards beside a process that does the same."""
    with beside(work, shards) if shards > 1 and CORES > 1 else contextlib.nullcontext():
        return Timed(work, shards, host.wire, host.costs, **clock).run()


@contextlib.contextmanager
def beside(work: Work, shards: int) -> Iterator[None]:
    """Have another process make the same model again and again."""
    context = multiprocessing.get_context("spawn")
    begun = context.Event()
    process = context.Process(target=_again_and_again, args=(work._replace(peer=None), shards, begun), daemon=True)
    process.start()
    try:
        begun.wait(60)
        yield
    finally:
        process.terminate()
        process.join()


def _again_and_again(work: Work, shards: int, begun: Any) -> None:
    Timed(work.of(20_000), 2, Wire(), lambda done: done.seconds).run()  # kernels
    begun.set()
    while True:
        Timed(work, shards, Wire(), lambda done: done.seconds).run()


def made_of(what: str, kind: str) -> Collection[str]:
    """Of which terms seconds or bytes of a first GBDT are sums, as its code shows.

    Bins and codes are made of columns of all rows, whose slots all shards know; a tree is grown from own rows, and what
    shards tell each other of it follows the features. The coordinator sees no row but those of its last batch.
    """
    few = {"features", "features x shards", "shards", "1"}
    if what in ("lead", "reply"):
        return few
    if what in ("asked", "replied"):
        return {*few, "features / shards"}
    every = {*TERMS} - {"features x shards"}
    if kind.startswith(("learn:", "encode:")):
        return every
    return every - {"rows"} if what == "s" else {"features", "shards", "1"}


# -- what lies between processes ---------------------------------------------------------------------------------------


def meeting_seconds(numbers: int, times: int) -> tuple[float, float]:
    """Processor seconds of a meeting of two processes, of each: over TCP, and as the simulation has it."""
    from actors.channel import Channel

    mine = np.arange(numbers)
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()

    def meet(channel: Any) -> float:
        began = time.thread_time()
        for _ in range(times):
            channel.swap(AllGather(mine, 2))
        return (time.thread_time() - began) / times

    def other() -> None:
        channel = Channel(1, 1, "127.0.0.1")
        theirs.send(channel.address)
        channel.connect(theirs.recv(), b"secret")
        theirs.send(meet(channel))
        theirs.recv()

    process = context.Process(target=other)
    process.start()
    here = Channel(0, 1, "127.0.0.1")
    addresses = [here.address, ours.recv()]
    ours.send(addresses)
    here.connect(addresses, b"secret")
    real = (meet(here) + ours.recv()) / 2
    ours.send(None)
    process.join()
    here.close()
    links = [Links(0, 2, 1), Links(1, 2, 1)]
    began = time.thread_time()
    for _ in range(times):
        frames = [(index, b"".join(packed(link.begin(AllGather(mine, 2))[0][1]))) for index, link in enumerate(links)]
        for index, data in frames:
            reader, begin, frame = FrameReader(), 0, None
            while frame is None:
                space = reader.space
                space[:] = data[begin : begin + len(space)]
                begin += len(space)
                frame = reader.take(len(space))
            links[1 - index].receive(index, frame)
            links[1 - index].proceed()
            links[1 - index].complete()
    return real, (time.thread_time() - began) / times / 2


def measured_host() -> Host:
    """Measure what lies between processes; Ray runs."""
    import ray
    from scaling import latency_of_swaps, lower_quartile

    @ray.remote
    class Idle:
        def answer(self, one: Any) -> Any:
            return one

    actors = [Idle.remote() for _ in range(2)]  # type: ignore[attr-defined]
    some = {"x": np.zeros(100), "each": [{}]}
    ray.get([actor.answer.remote(some) for actor in actors])
    call = lower_quartile(lambda: ray.get(actors[0].answer.remote(some)), 100)
    began, times = time.process_time(), 300
    for _ in range(times):
        ray.get([actor.answer.remote(some) for actor in actors])
    calling = (time.process_time() - began) / times / len(actors)
    for actor in actors:
        ray.kill(actor)
    small, large = meeting_seconds(248, 1000), meeting_seconds(200_000, 50)
    frame = max(0.0, small[0] - small[1]) / 2
    byte = max(0.0, large[0] - large[1] - 2 * frame) / (2 * 8 * 200_000)
    return Host(call, calling, latency_of_swaps(), frame, byte)


# -- gate --------------------------------------------------------------------------------------------------------------


class Compared(NamedTuple):
    """What is measured of real processes (each of several runs), and what the clock says."""

    what: str
    shards: int
    real: list[float]
    fitted: float
    measured: float  #: By a measured run of the clock at the same size.

    @property
    def median(self) -> float:
        return statistics.median(self.real)

    @property
    def ratio(self) -> float:
        return self.fitted / self.median


def holds(compared: Sequence[Compared]) -> bool:
    """Whether the clock predicts everything well enough, and there is everything to predict."""
    there = {(one.what, one.shards) for one in compared}
    wanted = {("wall", n) for n in WALLS} | {("path", n) for n in PATHS}
    return wanted <= there and all(abs(one.ratio - 1) <= WITHIN for one in compared)


def report(compared: Sequence[Compared], far: Callable[[], None]) -> bool:
    """Print what was predicted beside what was measured and, if that is close, what follows ``far`` from it."""
    rows = []
    for one in compared:
        spread = f"{one.median:.2f} ({min(one.real):.2f} to {max(one.real):.2f})"
        said = [f"{one.fitted:.2f}", f"{one.ratio:.2f}", f"{one.measured:.2f}"]
        rows.append([f"{one.what}, {one.shards}", spread, *said])
    header = ["s, shards", "real processes", "fitted clock", "fitted / real", "measured clock"]
    show("Predicted and measured", header, rows)
    if holds(compared):
        far()
        return True
    print(f"\nThe clock is wrong by more than {WITHIN:.0%} somewhere: nothing is extrapolated.")
    return False


def at(table: Table, size: Size, host: Host, cores: int | None) -> Spent:
    """What the fitted clock says of processes on this machine; ``cores`` None: each has one."""
    share = max(1.0, size.shards / cores) if cores else 1.0
    return Far(table, host, host.wire).spent(size, share=share)


# -- tables ------------------------------------------------------------------------------------------------------------


def residuals(table: Table, size: Size) -> None:
    """Print the coefficients of the kinds of steps that take most, and how well they fit."""
    kinds = {key for run in table.runs for what, key in run.values if what == "s" and run.size.shards > 1}
    often = dict.fromkeys(kinds, 0)
    for _, _, stops in table.asked(size):
        for stop, times in stops:
            often[stop.kind] = often.get(stop.kind, 0) + times
    taken = {kind: often[kind] * table.value(size, "s", kind) for kind in kinds}
    whole, rows = sum(taken.values()), []
    for kind in sorted(kinds, key=lambda kind: -taken[kind]):
        if taken[kind] < 0.005 * whole:
            break
        found = table.fits[False, "s", kind]
        errors = np.abs(found.errors)
        shown = [f"{1e9 * one:.3g}" if one else "" for one in found.coefficients]
        fits = [f"{np.median(errors):.0%}", f"{errors.max():.0%}"]
        rows.append([kind, f"{often[kind]:,}", f"{taken[kind] / whole:.0%}", *shown, *fits])
    header = ["step", "times", "share", *(f"ns x {name}" for name in TERMS), "median error", "largest"]
    show(f"Fitted steps; shares at {size.rows:,} x {size.features} on {size.shards}", header, rows)
    rows = []
    for run in table.runs:
        said = replay(table, run.size, Wire(), seed=None)
        steps = float(said.terms.sum()) + said.coordinator
        mean = sum(run.values.get(("s", stop.kind), 0.0) for asked in run.asked for stop in asked.stops)
        lead = sum(value for (what, kind), value in run.values.items() if what == "lead")
        of_run = f"{run.size.rows:,} x {run.size.features}", f"{run.size.shards}"
        both = [f"{mean + lead:.3f}", f"{steps:.3f}", f"{steps / (mean + lead):.2f}"]
        rows.append([*of_run, f"{run.seconds:.3f}", *both])
    header = ["fitted runs", "shards", "s by the clock", "steps s", "fitted steps s", "fitted / measured"]
    show("Runs of the fit", header, rows)


class Far(NamedTuple):
    """Where figures are extrapolated to: each process on a core, with a port of its own."""

    table: Table
    host: Host
    wire: Wire

    def spent(self, size: Size, seed: int = 0, **more: Any) -> Spent:
        host = self.host
        return replay(
            self.table, size, self.wire, seed=seed, call=host.calling, frame=host.frame, byte=host.byte, **more
        )

    def seconds(self, size: Size) -> float:
        """Median seconds of three seeds."""
        return statistics.median(self.spent(size, seed).seconds for seed in range(SEEDS))

    def lines(self, sizes: Sequence[Size], title: str) -> None:
        """Print a line for each size: seconds, how many times as fast as the first, and what of."""
        rows, first = [], self.seconds(sizes[0]) / sizes[0].rows
        for size in sizes:
            spent, seconds = self.spent(size), self.seconds(size)
            times, slow = first * size.rows / seconds, self.spent(size, slow={size.shards - 1: 2.0}).seconds
            shown = [seconds, times, times / size.shards, spent.divided, spent.whole, spent.meetings]
            figures = [f"{one:,.2f}" for one in (*shown, spent.coordinator, spent.waits, slow)]
            rows.append([f"{size.rows:,}", f"{size.shards:,}", *figures, f"{spent.bytes / 1e6:,.0f}"])
        parts = ["steps that divide s", "that do not", "meetings", "coordinator", "waits", "one shard half as fast s"]
        show(title, ["rows", "shards", "s", "times", "efficiency", *parts, "MB sent by a shard"], rows)

    def print_all(self, rows: int, features: int, real: Real) -> None:
        """Print the tables of what is simulated, and COST."""
        sizes = [Size(rows, features, n) for n in NEAR]
        self.lines(sizes, f"Simulated: {rows:,} x {features}")
        self.lines([Size(FAR_ROWS, FAR_FEATURES, n) for n in FAR], f"Simulated: {FAR_ROWS:,} x {FAR_FEATURES}")
        growing = [Size(1_000_000 * n, FAR_FEATURES, n) for n in FAR]
        self.lines(growing, f"Simulated: 1,000,000 x {FAR_FEATURES} for each shard")
        said, table = {size.shards: self.seconds(size) for size in sizes}, []
        for side, seconds in real.sides.items():
            goal = statistics.median(seconds)
            walls = {n: statistics.median(found) for (what, n), found in real.shards.items() if what == "wall"}
            fewest = (min((n for n in known if known[n] < goal), default=0) for known in (walls, said))
            spread = f"{goal:.2f} ({min(seconds):.2f} to {max(seconds):.2f})"
            table.append([side, spread, *(f"{n}" if n else "none" for n in fewest)])
        header = ["", "s", f"measured, up to {max(WALLS)} on {CORES} cores", f"simulated, up to {max(NEAR)}"]
        show(f"COST: the fewest shards that beat, {rows:,} x {features}", header, table)


# -- runs of real processes --------------------------------------------------------------------------------------------


class Real(NamedTuple):
    """Seconds of each run of shards on Ray (wall time, or critical path) and of those without; and of the host."""

    host: Host
    shards: dict[tuple[str, int], list[float]]
    sides: dict[str, list[float]]
    digests: set[str]


def real_runs(work: Work, repeats: int, walls: Sequence[int], paths: Sequence[int]) -> Real:
    """Measure, in turns."""
    from scaling import RecordingCoordinator as OfRay
    from scaling import RecordingShard, alone, latency_of_swaps, on_shards

    import actors.session
    import actors.starting
    from actors.cluster import bundles, connect

    actors.starting.LOCAL_START_SECONDS = 600.0  # many processes start on few cores
    actors.session.Coordinator = OfRay  # type: ignore[misc]
    actors.session.FeatureShard = RecordingShard  # type: ignore[misc]
    cluster = connect("local", bundles(max([*walls, *paths])))
    host, swap = measured_host(), latency_of_swaps()
    real = Real(host, {}, {}, set())
    for threads in (1, 0):
        alone(work.of(20_000), threads)  # kernels
    data = work.data()
    for _ in range(repeats):
        for shards in [*walls, *paths]:
            path, digest = on_shards(cluster, work, shards, swap)
            real.digests.add(digest)
            for what, seconds, counts in (("wall", path.wall, walls), ("path", path.path, paths)):
                if shards in counts:
                    real.shards.setdefault((what, shards), []).append(seconds)
            progress(f"{shards} shards: wall {path.wall:.2f}, path {path.path:.2f} s, load {os.getloadavg()[0]:.1f}")
        for side, threads in (("one thread of ours", 1), ("all threads of ours", 0)):
            seconds, digest = alone(work, threads)
            real.digests.add(digest)
            real.sides.setdefault(side, []).append(seconds)
        began = time.perf_counter()
        lightgbm(*data)
        real.sides.setdefault("LightGBM, all cores", []).append(time.perf_counter() - began)
        progress(", ".join(f"{side} {found[-1]:.2f} s" for side, found in real.sides.items()))
    cluster.close()
    return real


def main() -> None:
    asked = arguments(
        __doc__, rows=1_000_000, features=50, repeats=3, fit=1.0, gigabits=10.0, latency=1e-4, call=3e-3,
        walls=[*WALLS], paths=[*PATHS],
    )  # fmt: skip
    print_machine("ray", "lightgbm")
    work = Work("gbdt", asked.rows, asked.features, GBDT)
    real = real_runs(work, asked.repeats, asked.walls, asked.paths)
    host = real.host
    figures = [*(f"{1e6 * one:,.1f}" for one in host[:4]), f"{1e9 * host.byte:.3f}"]
    header = ["call, us", "processor of a call", "frame", "processor of a frame", "of a byte, ns"]
    show("What lies between processes of this machine", header, [figures])
    for shards in (1, 2):
        Timed(work.of(20_000), shards, Wire(), lambda done: done.seconds).run()  # kernels
    runs, compared = [], []
    for rows, features, shards in SIZES:
        runs.append(run_of(Work("gbdt", int(rows * asked.fit), features, GBDT), shards, host))
        progress(f"fit: {rows:,} x {features} on {shards}: {runs[-1].seconds:.3f} s, load {os.getloadavg()[0]:.1f}")
    table = Table.of(runs, lambda rows: -(-rows // _ENCODED), made_of)
    residuals(table, Size(asked.rows, asked.features, max(asked.paths)))
    for (what, shards), seconds in real.shards.items():
        cores = CORES if what == "wall" else None
        found = run_of(work, shards, host, cores=cores)
        real.digests.add(found.digest)
        fitted = at(table, Size(asked.rows, asked.features, shards), host, cores)
        both = host.call + fitted.seconds, host.call + found.seconds  # the driver's call of the coordinator
        compared.append(Compared(what, shards, seconds, *both))
        progress(f"{what}, {shards}: real {statistics.median(seconds):.2f}, fitted and measured clock {both}")
    assert len(real.digests) == 1, "the digests differ"
    far = Far(table, host, Wire(call=asked.call / 2, frame=asked.latency, bandwidth=asked.gigabits * 1e9 / 8))
    report(compared, lambda: far.print_all(asked.rows, asked.features, real))
    print(f"\nLoad {os.getloadavg()[0]:.1f} at the end, of {CORES} cores.")


if __name__ == "__main__":
    main()
