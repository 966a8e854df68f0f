"""The clock of the simulator: times as computed by hand, times that follow from the seed, and the same outcome."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from raydt.exchange.links import Meeting, together
from raydt.exchange.meetings import AllGather
from raydt.exchange.messages import MET, Ask, Tell
from tests.cases import CASES
from tests.simulation.clock import SECOND, Clock, ClockedCoordinator, ClockedNetwork, ClockedShard, Done, Wire
from tests.simulation.network import NO_FAULTS, Faults
from tests.simulation.scenarios import SETUPS, fitted, undisturbed
from tests.simulation.simulator import Plan
from tests.simulation.stores import Memory
from tests.simulation.streams import NAMED
from tests.volume import by_night

# -- by hand -----------------------------------------------------------------------------------------------------------

#: Bytes of the numbers in a request, and of a reply.
ASKED, ANSWERED = 100, 50


class Worker:
    """Answers a request, or meets the others so many times."""

    def __init__(self, shards: int) -> None:
        self._meeting, self._shards = Meeting(), shards

    def handle(self, method: str, payload: Any) -> Any:
        if method == MET:
            return self._meeting.receive(**payload)
        if method == "meet":
            return self._meeting.begin(self._steps(payload["times"]))
        return np.zeros(ANSWERED, np.int8)

    def _steps(self, times: int) -> Any:
        for _ in range(times):
            told = yield AllGather(np.arange(3), self._shards)
            assert len(told) == self._shards
        return len(told)


def by_kind(**seconds: float) -> Callable[[Done], float]:
    """Costs by the name of an event."""
    return lambda done: seconds.get(done.what.strip("_"), 0.0)


def time_of(exchange: Any, shards: int, wire: Wire, costs: Callable[[Done], float], **clock: Any) -> float:
    """Seconds that an exchange takes, from when the coordinator begins it until it has its result."""
    network = ClockedNetwork(0, NO_FAULTS)
    network.wind(wire, costs, **clock)
    network.epoch = 1
    for index in range(shards):
        machine = ClockedShard(index, 0, Worker(shards))
        machine.begin_epoch(1, shards)
        machine.epoch = 1
        network.shards.append(machine)
    network.coordinator = coordinator = ClockedCoordinator(1, None, shards, network.send, network.remind)

    def end() -> None:
        network.ended = True

    def start() -> None:
        coordinator.run(exchange, lambda _: network._outbox.append((end, ())))

    network.visit(coordinator, start)
    network.pass_time()
    return network.time / SECOND


def ask(times: int = 1) -> Any:
    for _ in range(times):
        yield Ask("go", {"x": np.zeros(ASKED, np.int8)})


def meet(times: int = 1) -> Any:
    yield from together("meet", {"times": times})


COSTS = by_kind(start=1.0, at_shard=2.0, at_coordinator=0.5, read=0.25)


def test_one_shard_by_hand() -> None:
    wire = Wire(call=0.1, bandwidth=1000)
    there, back = 1.0 + 0.1 + 0.1, 2.0 + 0.1 + 0.05
    assert time_of(ask(), 1, wire, COSTS) == pytest.approx(there + back + 0.5)
    again = 0.1 + 0.1 + back + 0.5  # the coordinator asks once more while it takes the first answer
    assert time_of(ask(2), 1, wire, COSTS) == pytest.approx(there + back + 0.5 + again)


def test_two_shards_that_meet_by_hand() -> None:
    """A round: both send at once, a frame takes 0.3, and is read for 0.25; the pass ends with the last meeting."""
    wire = Wire(call=0.1, frame=0.3)
    assert time_of(meet(), 2, wire, COSTS) == pytest.approx(1.1 + 2.0 + (0.3 + 0.25) + 0.1 + 2 * 0.5)
    assert time_of(meet(3), 2, wire, COSTS) == pytest.approx(1.1 + 2.0 + 3 * (0.3 + 0.25) + 0.1 + 2 * 0.5)


@pytest.mark.parametrize("shards", [2, 3, 4, 5, 8, 9])
def test_a_meeting_takes_a_round_for_each_doubling(shards: int) -> None:
    rounds = math.ceil(math.log2(shards))
    assert time_of(meet(), shards, Wire(frame=0.3), by_kind(at_shard=2.0)) == pytest.approx(2.0 + 0.3 * rounds)


def test_all_wait_for_a_straggler() -> None:
    """The first request takes shard 1 twice as long; and of eight that meet, all have heard of it in the last round."""
    wire = Wire(call=0.1, bandwidth=1e9)
    slow = {"shard 1": 2.0}
    assert time_of(ask(), 2, wire, COSTS, slow=slow) == pytest.approx(1.1 + 4.0 + 0.1 + 0.5)
    assert time_of(meet(2), 8, Wire(), by_kind(at_shard=2.0), slow=slow) == pytest.approx(4.0)


def test_messages_queue_at_a_port() -> None:
    """Three requests leave one after the other; the answers, which arrive at the same time, enter so."""
    wire, none = Wire(bandwidth=1000), by_kind()
    assert time_of(ask(), 3, wire, none) == pytest.approx(3 * 0.1 + 0.05)
    late = by_kind(at_shard=2.0)
    assert time_of(ask(), 3, wire, late) == pytest.approx(3 * 0.1 + 2.0 + 0.05)
    assert time_of(ask(), 3, wire, late, slow={"shard 0": 1.05, "shard 1": 1.0}) == pytest.approx(0.3 + 2.05)
    shared = {f"shard {i}": 1 - 0.05 * i for i in range(3)}  # so that they end their work at the same time
    assert time_of(ask(), 3, wire, late, slow=shared) == pytest.approx(0.1 + 2.0 + 3 * 0.05)


def test_processes_that_share_cores_take_turns() -> None:
    four = by_kind(at_shard=2.0)
    assert time_of(ask(), 4, Wire(), four) == pytest.approx(2.0)
    assert time_of(ask(), 4, Wire(), four, cores=2) == pytest.approx(4.0)
    assert time_of(ask(), 4, Wire(), four, cores=1) == pytest.approx(8.0)


def test_nobody_waits_for_what_is_told() -> None:
    def told() -> Any:
        yield Tell("go", {})
        yield Tell("go", {})
        yield Ask("go", {})

    # The second is on its way once the first is done, and so on; what the coordinator does lies beside that.
    assert time_of(told(), 2, Wire(call=0.1), by_kind(start=1.0, at_shard=2.0)) == pytest.approx(1.0 + 3 * 2.2)


def test_what_is_measured_is_the_time_that_it_takes_here() -> None:
    taken: list[Done] = []
    spent = time_of(meet(2), 2, Wire(), lambda done: done.seconds, note=taken.append, cores=1)
    assert spent == pytest.approx(sum(done.seconds for done in taken), abs=1e-3)
    shard = [done for done in taken if done.machine.name == "shard 0"]
    assert [met.way for done in shard for met in done.meetings] == ["gather", "gather"]
    assert [met.bytes for done in shard for met in done.meetings] == [24, 24]
    kinds = [step.kind for done in shard for step in done.steps]
    assert len(kinds) == 3
    assert len(set(kinds)) == 3  # up to the first meeting, from one to the next, and to the end
    assert sum(len(done.sent) for done in shard) == 2


# -- runs --------------------------------------------------------------------------------------------------------------
# The outcome of a run under the clock is that of one shard, whatever takes how long and whoever dies.

GBDT = next(trial.name for trial in CASES if trial.learner.kind == "gbdt" and trial.shipped)
DIVIDE = [
    next(trial.name for trial in CASES if trial.learner.kind == kind and trial.shipped)
    for kind in ("gbdt", "fudyadt", "forest")
]
WIRE = Wire(call=1e-3, frame=1e-4, bandwidth=1e8, noticed=0.5, again=0.05, late=0.02)
#: Seconds of a restored part, of any other event of a shard, and of all else.
RESTORE, WORK, REST = 0.2, 2e-3, 1e-4


def fixed(done: Done) -> float:
    if done.what == "restore":
        return RESTORE
    return WORK if done.machine.name.startswith("shard") and done.what == "_at_shard" else REST


def clock(name: str, folder: Path, shards: int, *, seed: int = 0, faults: Faults = NO_FAULTS, **more: Any) -> Any:
    """A run under the clock, a checkpoint after every second batch; and what it is to end with."""
    setup = SETUPS[name]
    workload = fitted(setup, NAMED["slot_reuse"](folder).store())
    number = itertools.count(1)
    plan = Plan(lambda epoch: shards, lambda: workload.batch, lambda: next(number) % 2 == 0)
    given = {"wire": WIRE, "costs": fixed, **more}
    return Clock(setup, workload.open, Memory(), plan, seed=seed, faults=faults, **given), (setup, workload)


@pytest.mark.parametrize("name", ["chain", GBDT])
def test_the_outcome_does_not_follow_the_clock(name: str, tmp_path: Path) -> None:
    """Nor do times, in which nothing is drawn, follow the seed; a straggler and a slow link are felt."""
    times = {}
    for which, more in {
        "quick": {},
        "same": {},
        "straggler": {"slow": {"shard 2": 5.0}},
        "slow link": {"wire": Wire(call=1e-3, frame=1e-4, bandwidth=1e5)},
        "one core": {"cores": 1},
    }.items():
        folder = tmp_path / which
        folder.mkdir()
        run, of = clock(name, folder, 5, **more)
        assert run.run() == undisturbed(*of)
        times[which] = run.taken
    assert times["quick"] == times["same"]
    quick, *others = (times[which][-1][1] for which in ("quick", "straggler", "slow link", "one core"))
    assert all(other > 1.05 * quick for other in others)


def test_the_same_seed_gives_the_same_times(tmp_path: Path) -> None:
    faults = Faults(late=0.2, loss=0.1, duplicate=0.1, crash=0.001, most=2)
    found = []
    for place, seed in enumerate((1, 1, 2)):
        folder = tmp_path / str(place)
        folder.mkdir()
        run, of = clock("chain", folder, 5, seed=seed, faults=faults)
        assert run.run() == undisturbed(*of)
        found.append(run.taken)
    assert found[0] == found[1] != found[2]


@pytest.mark.parametrize("name", by_night(["chain"], [GBDT]))
def test_a_lost_process_takes_the_time_of_its_recovery(name: str, tmp_path: Path) -> None:
    """At each of some places, the end comes later by what is predicted: to notice, restore, and do what was done since.

    That is at most everything since the last checkpoint but one, as the last one may not have been written yet.
    """
    quiet, of = clock(name, tmp_path, 5)
    expected = undisturbed(*of)
    assert quiet.run() == expected
    begins = [0.0, *(second for _, second in quiet.taken)]
    longest = max(b - a for a, b in itertools.pairwise(begins))
    way = 20 * (WIRE.call + REST)  # the driver's calls on the way
    predicted = WIRE.noticed + 2 * RESTORE + 4 * longest + way
    places = [place for place in range(quiet.places) if place not in quiet.silent]
    for place in places[:: max(1, len(places) // 12)]:
        folder = tmp_path / str(place)
        folder.mkdir()
        run, _ = clock(name, folder, 5, faults=Faults(crash_at=frozenset([place]), survivors=False))
        assert run.run() == expected
        if run.lost_at:  # else the driver died, which is not noticed
            assert WIRE.noticed < run.taken[-1][1] - quiet.taken[-1][1] <= predicted, place


@pytest.mark.parametrize("name", by_night(["chain"], DIVIDE))
@pytest.mark.parametrize("shards", by_night([17], [64]))
@pytest.mark.parametrize("kind", ["kill", "lose", "delay"])
def test_faults_among_many_shards(name: str, shards: int, kind: str, tmp_path: Path) -> None:
    quiet, of = clock(name, tmp_path, shards)
    expected = undisturbed(*of)
    assert quiet.run() == expected
    assert quiet.events["frames"] > shards or name.startswith("forest")  # whose shards answer, and hardly ever meet
    base, begin = quiet.taken[-1][1], tmp_path / "faults"
    begin.mkdir()
    faults = {
        "kill": Faults(crash=3 / quiet.places, most=3, survivors=False),
        "lose": Faults(loss=0.01),
        "delay": Faults(late=0.01, duplicate=0.01),
    }[kind]
    run, _ = clock(name, begin, shards, faults=faults, slow={"shard 7": 3.0})
    assert run.run() == expected
    assert run.events["incarnations"] > 1 if kind == "kill" else run.events["loss" if kind == "lose" else "late"] > 1
    assert run.taken[-1][1] > base


@pytest.mark.nightly
@pytest.mark.parametrize("name", DIVIDE)
def test_each_of_64_shards_may_be_the_one_that_is_lost(name: str, tmp_path: Path) -> None:
    """Killed in the middle of the run, one after the other in runs of their own."""
    quiet, of = clock(name, tmp_path, 64)
    expected = undisturbed(*of)
    of_shard: dict[str, list[int]] = {}
    work = quiet._work

    def noted(machine: Any, *rest: Any) -> None:
        of_shard.setdefault(machine.name, []).append(quiet.places - 1)  # the place just passed
        work(machine, *rest)

    quiet._work = noted
    assert quiet.run() == expected
    shards = [name for name in of_shard if name.startswith("shard")]
    assert len(shards) == 64
    for shard in shards[::4]:
        folder = tmp_path / shard
        folder.mkdir()
        place = of_shard[shard][len(of_shard[shard]) // 2]
        run, _ = clock(name, folder, 64, faults=Faults(crash_at=frozenset([place]), survivors=False))
        assert run.run() == expected
        assert run.events["crash of shard"] == 1
