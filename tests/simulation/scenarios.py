"""A run that follows from one number: what is learned from which stream, how it is cut, and what goes wrong."""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from pathlib import Path

from tests.simulation.network import Faults
from tests.simulation.setups import SETUPS, fitted, undisturbed
from tests.simulation.simulator import Plan, Simulation
from tests.simulation.stores import Checkpoints
from tests.simulation.streams import WARMUP, random_workload

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
