"""A source that is followed, whose plans outlive drivers: neither faults nor where plans end change an outcome."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from raydt.sources.live.followed import PlansInMemory
from tests.cases import CASES
from tests.simulation.followed import Followed
from tests.simulation.network import Faults
from tests.simulation.scenarios import MOODS
from tests.simulation.setups import SETUPS, undisturbed
from tests.simulation.simulator import Plan, Simulation
from tests.simulation.stores import Checkpoints, Memory

#: Seeds of a nightly run, and how many of them every test run takes.
SEEDS, DAILY = 400, 8


def survives(seed: int) -> Counter[str]:
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
    for seed in range(SEEDS, SEEDS + DAILY):
        events += survives(seed)
    for kind in ("source away", "crash of driver", "crash of shard", "crash of coordinator", "restored"):
        assert events[kind] >= 1, (kind, events)


@pytest.mark.nightly
@pytest.mark.parametrize("first", range(0, SEEDS, 50))
def test_nothing_that_happens_to_a_follower_changes_anything_in_volume(first: int) -> None:
    for seed in range(first, first + 50):
        survives(seed)
