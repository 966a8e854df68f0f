"""Whatever the network does and whichever machine crashes when, the outcome is that of a quiet run."""

import itertools
import random
from collections import Counter

import pytest

from tests.simulation.network import Faults
from tests.simulation.regressions import REGRESSIONS
from tests.simulation.scenarios import survives
from tests.simulation.setups import SETUPS, undisturbed
from tests.simulation.simulator import Plan, Simulation
from tests.simulation.stores import Checkpoints, Memory
from tests.simulation.streams import NAMED

SEEDS, BLOCK = 500, 50


def simulate(setup, workload, shards, *, store=Memory, **kwargs):
    """A simulation in which every second batch ends with a checkpoint."""
    number = itertools.count(1)
    plan = Plan(lambda epoch: shards, lambda: workload.batch, lambda: next(number) % 2 == 0)
    return Simulation(setup, workload.open, store(), plan, **kwargs)


def crashes_everywhere(setup, workload, shards, survivors, store=Memory):
    """Crash once at each place of a run, but not twice at one that differs in nothing; returns how many there are."""
    expected = undisturbed(setup, workload)
    quiet = simulate(setup, workload, shards, store=store)
    assert quiet.run() == expected
    assert quiet.events["checkpoints"] >= 1
    assert 4 * len(quiet.silent) < quiet.places  # of two places at a shard and two at the coordinator
    unnoticed = 0
    for place in range(quiet.places):
        if place in quiet.silent:
            continue
        faults = Faults(crash_at=frozenset([place]), survivors=survivors)
        simulation = simulate(setup, workload, shards, faults=faults, store=store)
        assert simulation.run() == expected, f"{setup.name}, {shards} shards, crash at place {place}"
        assert simulation.events["failures"] == 1
        # The driver may also be lost at the first place, before there is anybody else.
        unnoticed += place > 0 and simulation.events["incarnations"] == 1
    assert unnoticed <= 2 + shards  # after the last that was wanted of the machine
    return quiet.places


def turns(name):
    """For each setup the shards, and whether machines survive, of a stream: all pairs meet in the ten streams."""
    stream = list(NAMED).index(name)
    return {setup: ((stream + place) % 3 + 1, bool((stream // 3 + place) % 2)) for place, setup in enumerate(SETUPS)}


def test_turns_are_pairwise():
    """Each learner meets each number of shards, with and without survivors, and these meet each other."""
    met = [(setup, *turn) for name in NAMED for setup, turn in turns(name).items()]
    for values in (SETUPS, (1, 2, 3)), (SETUPS, (False, True)), ((1, 2, 3), (False, True)):
        assert set(itertools.product(*values)) <= {pair for one in met for pair in itertools.combinations(one, 2)}


@pytest.mark.parametrize("name", NAMED)
def test_a_crash_at_every_place(name, tmp_path):
    workload = NAMED[name](tmp_path).store()
    for setup, (shards, survivors) in turns(name).items():
        fitted = workload.fit(SETUPS[setup].learner.traits(SETUPS[setup].options))
        assert crashes_everywhere(SETUPS[setup], fitted, shards, survivors) > 40


@pytest.mark.parametrize("name", ["slot_reuse", "late_class"])
def test_a_crash_at_every_place_goes_on_from_real_checkpoints(name, tmp_path):
    assert crashes_everywhere(SETUPS["cached"], NAMED[name](tmp_path), 2, False, Checkpoints) > 100


@pytest.mark.parametrize("setup", SETUPS.values(), ids=SETUPS)
def test_a_second_crash_while_recovering_from_the_first(setup, tmp_path):
    draw = random.Random(setup.name)
    recovering = 0
    for name, make in NAMED.items():
        workload = make(tmp_path).store().fit(setup.learner.traits(setup.options))
        expected = undisturbed(setup, workload)
        for shards in (1, 3):
            quiet = simulate(setup, workload, shards)
            assert quiet.run() == expected
            for survivors in (True, False) * 6:
                first = draw.randrange(quiet.places - 5)
                crashes = frozenset([first, first + draw.randint(1, 12)])
                simulation = simulate(setup, workload, shards, faults=Faults(crash_at=crashes, survivors=survivors))
                assert simulation.run() == expected, f"{name}, {shards} shards, crashes at {sorted(crashes)}"
                recovering += simulation.events["crash in recovery"]
    assert recovering > 50


@pytest.mark.parametrize("first", range(0, SEEDS, BLOCK))
def test_nothing_that_happens_by_chance_changes_anything(first, tmp_path):
    events = Counter()
    for seed in range(first, first + BLOCK):
        events += survives(seed, tmp_path)
    # The faults that were to be survived have happened.
    for kind in (
        *("loss", "duplicate", "late", "resent", "reply ignored", "StaleEpochError", "SequenceGapError"),
        *("crash of shard", "crash of coordinator", "crash of driver", "crash in recovery", "crash_writing"),
        *("pause", "paused too long", "ghost", "restored", "checkpoints", "rot"),
    ):
        assert events[kind] >= 1, (kind, events)


@pytest.mark.parametrize(("seed", "fault"), REGRESSIONS)
def test_what_has_failed_once(seed, fault, tmp_path):
    survives(seed, tmp_path)
