"""Whatever the network does and whichever machine crashes when, the outcome is that of a quiet run."""

from __future__ import annotations

import itertools
import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from raydt.sources.live.followed import PlansInMemory
from tests import volume
from tests.cases import CASES, a_third, net, noted, one_of_each
from tests.simulation.network import Faults, by_node
from tests.simulation.scenarios import DRAWN, MOODS, REGRESSIONS, SETUPS, fitted, survives, undisturbed
from tests.simulation.simulator import Plan, Simulation
from tests.simulation.stores import Checkpoints, Memory
from tests.simulation.streams import NAMED, Followed

# -- simulation ------------------------------------------------------------------------------------------------------
# Whatever the network does and whichever machine crashes when, the outcome is that of a quiet run.

ROOT = Path(__file__).parents[2]

#: Seeds of a nightly run, in blocks, and those after them that every test run takes: every third case.
SEEDS, BLOCK, DAILY = 640, 128, range(641, 689, 3)

#: Places of a run at most: those of three shards of a GBDT are 2,000, more than a test has time for.
MOST = 60
STREAMS, KINDS = list(NAMED), sorted({trial.learner.kind for trial in CASES})


def simulate(setup, workload, shards, *, store=Memory, **kwargs):
    """A simulation in which every second batch ends with a checkpoint."""
    number = itertools.count(1)
    plan = Plan(lambda epoch: shards, lambda: workload.batch, lambda: next(number) % 2 == 0)
    return Simulation(setup, workload.open, store(), plan, **kwargs)


def crashes_everywhere(setup, workload, shards, survivors, store=Memory):
    """Crash once at each place of a run, but not twice at one that differs in nothing; returns how many there are.

    Every test run takes an even share of the places of a long run; a nightly one ``MOST`` of them, from any on.
    """
    expected = undisturbed(setup, workload)
    quiet = simulate(setup, workload, shards, store=store)
    assert quiet.run() == expected
    assert quiet.events["checkpoints"] >= 1
    assert 4 * len(quiet.silent) < quiet.places  # of two places at a shard and two at the coordinator
    unnoticed = 0
    places = [place for place in range(quiet.places) if place not in quiet.silent]
    every = -(-len(places) // MOST)
    for place in volume.spread(places[random.randrange(every) :: every], 8):
        faults = Faults(crash_at=frozenset([place]), survivors=survivors)
        simulation = simulate(setup, workload, shards, faults=faults, store=store)
        assert simulation.run() == expected, f"{setup.name}, {shards} shards, crash at place {place}"
        assert simulation.events["failures"] == 1
        # The driver may also be lost at the first place, before there is anybody else.
        unnoticed += place > 0 and simulation.events["incarnations"] == 1
    assert unnoticed <= 2 + shards  # after the last that was wanted of the machine
    return quiet.places


def turn(setup, name):
    """The shards of a learner and a stream, and whether machines survive: all pairs meet in the ten streams."""
    stream, place = STREAMS.index(name), list(SETUPS).index(setup)
    return (stream + place) % 3 + 1, bool((stream // 3 + place) % 2)


def often(trial, name):
    """Return True if every test run takes a stream with a case: each learner one stream, and its first case."""
    stream = STREAMS[3 * KINDS.index(trial.learner.kind) % len(STREAMS)]
    return name == stream and one_of_each(trial)


def test_turns_are_pairwise():
    """Each learner meets each number of shards, with and without survivors, and these meet each other."""
    met = [(setup, *turn(setup, name)) for name in NAMED for setup in SETUPS]
    for values in (SETUPS, (1, 2, 3)), (SETUPS, (False, True)), ((1, 2, 3), (False, True)):
        assert set(itertools.product(*values)) <= {pair for one in met for pair in itertools.combinations(one, 2)}


@pytest.mark.share
@net("a crash at every place", "trial, name", itertools.product(CASES, NAMED), often)
def test_a_crash_at_every_place(trial, name, tmp_path):
    setup = SETUPS[trial.name]
    assert crashes_everywhere(setup, fitted(setup, NAMED[name](tmp_path).store()), *turn(trial.name, name)) > 40


@pytest.mark.turns(4)
@pytest.mark.share
@pytest.mark.parametrize("name", NAMED)
def test_a_crash_at_every_place_of_the_chain(name, tmp_path):
    assert crashes_everywhere(SETUPS["chain"], NAMED[name](tmp_path).store(), *turn("chain", name)) > 40


@pytest.mark.turns(1)
@pytest.mark.share
@pytest.mark.parametrize("name", ["slot_reuse", "late_class"])
def test_a_crash_at_every_place_goes_on_from_real_checkpoints(name, tmp_path):
    assert crashes_everywhere(SETUPS["chain"], NAMED[name](tmp_path), 2, False, Checkpoints) > 100


@pytest.mark.turns(1)
@pytest.mark.parametrize("name", ["chain", "gbdt: two classes", "forest: two classes"])
def test_a_shard_dies_at_each_part_of_a_checkpoint_that_it_writes(name, tmp_path):
    """The files of the broken checkpoint go (``Checkpoints`` looks), and the run goes on from the one before."""
    setup, events = SETUPS[name], Counter()
    workload = fitted(setup, NAMED["slot_reuse"](tmp_path))
    expected = undisturbed(setup, workload)
    seed = next(
        seed for seed in itertools.count() if simulate(setup, workload, 3, store=Checkpoints, seed=seed).shards_write
    )
    quiet = simulate(setup, workload, 3, store=Checkpoints, seed=seed)
    assert quiet.run() == expected
    assert quiet.events["checkpoints"] >= 2
    places = volume.spread(sorted(quiet.writing), 6)
    for place in places:
        faults = Faults(crash_at=frozenset([place]), survivors=place % 2 == 0)
        simulation = simulate(setup, workload, 3, faults=faults, store=Checkpoints, seed=seed)
        assert simulation.run() == expected, place
        assert (simulation.events["parts lost"], simulation.events["incarnations"]) == (1, 2)
        events += simulation.events
    assert events["restored"] >= len(places) // 3  # before the first checkpoint there is none to go back to


class DyingAtRemoval(Checkpoints):
    """Whenever the last checkpoint is damaged, the driver dies as soon as it begins to remove it."""

    def rot(self, draw):
        super().rot(draw)
        self.left[0] = 0


def test_a_driver_crashes_while_it_removes_checkpoints_that_cannot_be_restored(tmp_path):
    setup, workload, events = SETUPS["chain"], NAMED["slot_reuse"](tmp_path), Counter()
    expected = undisturbed(setup, workload)
    for seed in range(30):
        faults = Faults(crash=0.005, rot=0.5)
        simulation = simulate(setup, workload, 2, store=DyingAtRemoval, faults=faults, seed=seed)
        assert simulation.run() == expected
        events += simulation.events
    assert events["crash going back"] >= 5


@pytest.mark.share
@net("a second crash", "trial, name", itertools.product(a_third("a second crash"), NAMED), often)
def test_a_second_crash_while_recovering_from_the_first(trial, name, tmp_path):
    assert crashes_twice(SETUPS[trial.name], NAMED[name](tmp_path).store()) > 0.7


@pytest.mark.turns(1)
@pytest.mark.parametrize("name", ["chain", "gbdt: two classes"])
def test_channels_that_break_delay_and_repeat_in_the_middle_of_a_pass(name, tmp_path):
    setup, events = SETUPS[name], Counter()
    workload = fitted(setup, NAMED["slot_reuse"](tmp_path).store())
    expected = undisturbed(setup, workload)
    for seed in range(4):
        faults = Faults(cut=0.1, late=0.05, duplicate=0.3, most=4, survivors=seed % 2 == 0)
        simulation = simulate(setup, workload, 3, faults=faults, seed=seed)
        assert simulation.run() == expected
        events += simulation.events
    assert events["cut"] == 16
    assert events["incarnations"] > 8
    assert events["frame repeated"] > 10


@pytest.mark.share
def test_a_second_crash_of_the_chain(tmp_path):
    streams = volume.spread(list(NAMED.values()), 2)
    assert sum(crashes_twice(SETUPS["chain"], make(tmp_path).store()) for make in streams) > 0.7 * len(streams)


def crashes_twice(setup, workload):
    """Crash, and again at a place of the recovery; the share of the crashes of which there was a recovery."""
    draw, recovering, times = random.Random(setup.name), 0, 4 if volume.nightly else 2
    workload = fitted(setup, workload)
    expected = undisturbed(setup, workload)
    for shards in (1, 3):
        quiet = simulate(setup, workload, shards)
        assert quiet.run() == expected
        for survivors in (True, False) * times:
            crashes = frozenset([draw.randrange(quiet.places - 5)])
            once = simulate(setup, workload, shards, faults=Faults(crash_at=crashes, survivors=survivors))
            assert once.run() == expected, f"{setup.name}, {shards} shards, a crash at {sorted(crashes)}"
            if not once.recovering:  # nobody missed the machine, or the run had not begun
                continue
            crashes |= {draw.choice(sorted(once.recovering))}
            twice = simulate(setup, workload, shards, faults=Faults(crash_at=crashes, survivors=survivors))
            assert twice.run() == expected, f"{setup.name}, {shards} shards, crashes at {sorted(crashes)}"
            assert twice.events["crash in recovery"] == 1
            recovering += 1
    return recovering / (4 * times)


BY_DAY = {DRAWN[seed % len(DRAWN)].name for seed in DAILY}
noted("random faults", [trial for trial in CASES if trial.name in BY_DAY], CASES)


def test_seeds_take_every_case_and_by_day_every_learner():
    assert {DRAWN[seed % len(DRAWN)].name for seed in range(SEEDS)} == SETUPS.keys()
    assert {trial.learner.kind for trial in CASES if trial.name in BY_DAY} == set(KINDS)


def test_nothing_that_happens_by_chance_changes_anything(tmp_path):
    events = Counter()
    for seed in DAILY:
        events += survives(seed, tmp_path)
    for kind in (
        "loss",
        "duplicate",
        "late",
        "pause",
        "crash of shard",
        "crash of coordinator",
        "crash of driver",
        "rot",
    ):
        assert events[kind] >= 1, (kind, events)


@pytest.mark.nightly
@pytest.mark.parametrize("first", range(0, SEEDS, BLOCK))
def test_nothing_that_happens_by_chance_changes_anything_in_volume(first, tmp_path):
    events = Counter()
    for seed in range(first, first + BLOCK):
        events += survives(seed, tmp_path)
    # The faults that were to be survived have happened.
    for kind in (
        *("loss", "duplicate", "late", "resent", "reply ignored", "StaleEpochError", "SequenceGapError"),
        *("crash of shard", "crash of coordinator", "crash of driver", "crash in recovery", "crash_writing"),
        *("pause", "paused too long", "ghost", "restored", "checkpoints", "rot"),
        *("cut", "frame repeated", "frame refused", "parts lost"),
    ):
        assert events[kind] >= 1, (kind, events)


def test_what_has_failed_once(tmp_path, monkeypatch):
    """Seeds that have failed are run again, and one that fails is reported with the command that repeats it."""
    for seed, _ in REGRESSIONS:
        survives(seed, tmp_path)
    run = Simulation.run
    monkeypatch.setattr(Simulation, "run", lambda simulation: {**run(simulation), "digest": "another"})
    with pytest.raises(
        AssertionError, match=r"^python -m tests\.simulation --seeds 1 --from 7  # AssertionError: digest differ"
    ):
        survives(7, tmp_path)


@pytest.mark.parametrize(
    ("at", "inherits", "known"), [(2, False, True), (3, False, False), (3, True, True), (5, True, False)]
)
def test_what_no_node_has_counted_is_found(at, inherits, known):
    """Leaves that inherit have a second place of their own, whose order follows that of the nodes."""
    totals = np.zeros((6, 2), dtype=np.int64)
    totals[[2, 0, at], 1] = 3, 5, 7
    states = {"place": np.array([-1, 2, 0])}, {0: {"totals": totals}}
    if known:
        found = by_node(*states, inherits=inherits)[1][0]["totals"][:, 1]
        assert found.tolist() == ([3, 5, 7, 0] if inherits else [7, 5])
    else:
        with pytest.raises(AssertionError, match=r"^totals counts examples where no node does"):
            by_node(*states, inherits=inherits)


def test_a_command_outside_pytest_draws_the_same_scenarios():
    """Seeds take the learners in turn, so that one learner that is not found would change the scenario of a seed."""
    code = "from tests.simulation.__main__ import survives; from tests.simulation.scenarios import DRAWN\n"
    code += "print(*(setup.name for setup in DRAWN), sep='\\n')"
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=clean, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [setup.name for setup in DRAWN]
    assert any(name.startswith("one_rule") for name in done.stdout.splitlines())


# -- followed --------------------------------------------------------------------------------------------------------
# A source that is followed, whose plans outlive drivers: neither faults nor where plans end change an outcome.

#: Seeds of a nightly run, and how many of them every test run takes.
SEEDS_FOLLOWED, DAILY_FOLLOWED = 400, 8


def survives_followed(seed: int) -> Counter[str]:
    """Run a seed: a case, a log, a mood; what has happened."""
    trial, draw = CASES[seed % len(CASES)], random.Random(f"follower {seed}")
    setup, log = SETUPS[trial.name], Followed.of(trial, seed)
    plans, away = PlansInMemory(), draw.choice((0.0, 0.1, 0.3))
    plan = Plan(
        shards=lambda epoch: draw.choice((1, 2, 3)),
        size=lambda: draw.choice((1, 3, 7)),
        checkpoint=lambda: draw.random() < 0.5,
    )
    faults: Faults = MOODS[(seed // len(CASES) + seed) % len(MOODS)]
    store = draw.choice((Checkpoints, Memory))()
    simulation = Simulation(setup, lambda: log.open(plans, draw, away), store, plan, seed=seed, faults=faults)
    expected, found = undisturbed(setup, log), simulation.run()
    different = [name for name in expected if found[name] != expected[name]]
    assert not different, f"seed {seed}, {trial.name}: {', '.join(different)} differ ({dict(simulation.events)})"
    ends = [plans[number].row for number in sorted(plans)]
    assert ends == sorted(set(ends)), "a plan was made twice"
    simulation.events["plans"] += len(plans)
    return simulation.events


def test_nothing_that_happens_to_a_follower_changes_anything() -> None:
    events: Counter[str] = Counter()
    for seed in range(SEEDS_FOLLOWED, SEEDS_FOLLOWED + DAILY_FOLLOWED):
        events += survives_followed(seed)
    for kind in ("source away", "crash of driver", "crash of shard", "crash of coordinator", "restored"):
        assert events[kind] >= 1, (kind, events)


@pytest.mark.nightly
@pytest.mark.parametrize("first", range(0, SEEDS_FOLLOWED, 50))
def test_nothing_that_happens_to_a_follower_changes_anything_in_volume(first: int) -> None:
    for seed in range(first, first + 50):
        survives_followed(seed)
