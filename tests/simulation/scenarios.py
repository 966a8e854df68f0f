"""Scenarios: setups, and seeds that have failed once."""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from raydt.learners.base import LearnerOptions, WorkPlan
from raydt.sessions.session import InProcessSession, whole
from raydt.streams.base import history_of
from tests.cases import CASES, GROUPS
from tests.simulation.chain import Chain
from tests.simulation.network import Faults, outcome
from tests.simulation.simulator import Plan, Record, Setup, Simulation
from tests.simulation.stores import Checkpoints
from tests.simulation.streams import WARMUP, Workload, random_workload

# -- setups ----------------------------------------------------------------------------------------------------------
# Learners to be simulated, with features in four groups, and their outcome if nothing goes wrong.

#: The learner in which every fault shows, and every case of all others.
SETUPS = {
    setup.name: setup
    for setup in (
        Setup("chain", Chain(), LearnerOptions(kind="chain", feature_groups=GROUPS), WorkPlan(shared_store=False)),
        *(Setup(trial.name, trial.learner, trial.options, trial.case.plan, trial) for trial in CASES),
    )
}


def fitted(setup: Setup, workload: Workload) -> Workload:
    """The stream as the learner takes it."""
    return workload if setup.trial is None else workload.fit(setup.trial)


def undisturbed(setup: Setup, workload: Workload | Simulation) -> dict[str, Any]:
    """The outcome in one process: one shard, which shares the coordinator's rows, and other batches.

    The live ids are compared with those of a plain replay, which knows no learner.
    """
    stream = workload.open()
    session = InProcessSession(setup.learner, setup.options, setup.features(stream.source), 1, WorkPlan())
    record = Record()
    for batch, result in session.process(stream.batches(6), skip_refused=True):
        record.add(batch, result)
    session.finish()
    history = history_of(workload.open())
    alive = history.id[history.deleted == np.iinfo(np.int64).max]
    whole_state = whole(session.snapshot())
    assert sorted(whole_state[0]["id"].tolist()) == sorted(alive.tolist())
    return outcome(session.digest(), record, whole_state, setup.options)


# -- regressions -----------------------------------------------------------------------------------------------------
# Seeds that have failed once, and why; every test run repeats them.
#
# A seed stands for a scenario only as long as ``tests.simulation.scenarios`` draws the same from it. Where that has
# to change, keep what a seed has shown as a test of its own.

#: Seed, and the fault it has shown.
REGRESSIONS: tuple[tuple[int, str], ...] = ()


# -- scenarios -------------------------------------------------------------------------------------------------------
# A run that follows from one number: what is learned from which stream, how it is cut, and what goes wrong.

#: Seeds take the learners in turn.
DRAWN = list(SETUPS.values())
#: Every so many seeds each learner has met each of the moods below.
MOODS = (
    Faults(loss=0.1, duplicate=0.2, late=0.1, cut=0.05, crash=0.004, crash_writing=0.05, survivors=True),
    Faults(loss=0.1, duplicate=0.2, late=0.1, crash=0.004, pause=0.002, crash_writing=0.05, survivors=False),
    Faults(duplicate=0.05, crash=0.02, crash_writing=0.2, rot=0.3, most=12, survivors=True),
    Faults(late=0.3, cut=0.05, pause=0.01, survivors=True),
    Faults(late=0.3, duplicate=0.3, pause=0.006, crash=0.006, rot=0.1, most=12, survivors=False),
)


def scenario(seed: int, folder: Path) -> tuple[Simulation, dict[str, object]]:
    """The simulation of a seed, and its expected outcome; ``folder`` is for its files."""
    draw = random.Random(f"scenario {seed}")
    setup = DRAWN[seed % len(DRAWN)]
    faults = MOODS[(seed % len(DRAWN) + seed // len(DRAWN)) % len(MOODS)]  # neighbours differ
    least_warmup = WARMUP if setup.trial is not None and setup.trial.needs_warmup else 0
    workload = fitted(setup, random_workload(folder, seed, least_warmup))
    sizes = draw.choice(((1, 2, 3), (workload.batch,), (1, 5, 9), (4, 16)))
    shards, often = draw.choice(((1,), (2,), (3,), (1, 2, 3), (2, 5))), draw.choice((0.2, 0.5, 0.9))
    # Restarted with as many shards mostly, or survivors would never be used again.
    counts = [draw.choice(shards)]
    counts += [draw.choice(shards) if draw.random() < 0.5 else counts[-1] for _ in range(40)]
    plan = Plan(
        shards=lambda epoch: counts[epoch % len(counts)],
        size=lambda: draw.choice(sizes),
        checkpoint=lambda: draw.random() < often,
    )
    simulation = Simulation(setup, workload.open, Checkpoints(), plan, seed=seed, faults=faults)
    return simulation, undisturbed(setup, workload)


def examine(simulation: Simulation, expected: dict[str, object]) -> None:
    """Run to the end, and in one process with as many threads; AssertionError if an outcome is not the expected one."""
    with simulation.threads():
        alone = undisturbed(simulation.setup, simulation)
    for found in (simulation.run(), alone):
        different = [name for name in expected if found[name] != expected[name]]
        assert not different, f"{', '.join(different)} differ"


def survives(seed: int, folder: Path | None = None) -> Counter[str]:
    """Run a seed and return what has happened.

    Raises
    ------
    AssertionError
        It did not end as expected. The message begins with the command that repeats it.
    """
    if folder is None:
        with tempfile.TemporaryDirectory() as made:
            return survives(seed, Path(made))
    events: Counter[str] = Counter()
    try:
        simulation, expected = scenario(seed, folder)
        events = simulation.events
        examine(simulation, expected)
    except Exception as error:
        happened = ", ".join(f"{kind} {n}" for kind, n in sorted(events.items()) if n)
        command = f"python -m tests.simulation --seeds 1 --from {seed}"
        raise AssertionError(f"{command}  # {type(error).__name__}: {error} ({happened})") from error
    return events
