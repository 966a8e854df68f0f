"""Hundreds of shards meet by a ladder of links, and have the digest, predictions and refusals of one."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from raydt.examples.row_owners import RowOwners
from raydt.learners.base import WorkPlan
from raydt.sessions.session import InProcessSession
from tests.cases import CASES, Trial
from tests.meetings import LadderDriver
from tests.simulation.network import Faults
from tests.simulation.scenarios import SETUPS, fitted, undisturbed
from tests.simulation.simulator import Plan, Simulation
from tests.simulation.stores import Memory
from tests.simulation.streams import NAMED
from tests.volume import by_night

#: All rows and all work are with the shards.
DIVIDED = WorkPlan(local_work_limit=0, row_cache_bytes=0, shared_store=False)
#: Learners whose shards meet: one case of each for each day, all by night.
MEET = [trial for trial in CASES if trial.learner.kind in ("gbdt", "fudyadt", "forest") and trial.shipped]
OF_A_DAY = [next(trial for trial in MEET if trial.learner.kind == kind) for kind in ("gbdt", "fudyadt", "forest")]
UPDATES, BATCH = 60, 20


def outcomes(
    trial: Trial, folder: Path, sizes: tuple[int, ...], plan: WorkPlan, updates: int, *, meet: bool
) -> dict[str, Any]:
    """Predictions, refusals and digest, by so many shards, in turn: each goes on with a state of the former."""
    stream, found, state, session = trial.stream(folder, updates), list[Any](), None, None
    features, shards = trial.features(stream.source), itertools.cycle(sizes)
    for batch in stream.batches(BATCH):
        if session is None or len(sizes) > 1:
            former, session = session, InProcessSession(trial.learner, trial.options, features, next(shards), plan)
            if meet:
                session.driver = LadderDriver(session.shards, batch.start)
            if former is not None:
                state = former.state()
                session.restore(*state)
        result = session.apply(batch, skip_refused=True)
        found += [result.predictions.tolist(), [(one.position, one.reason) for one in result.refused]]
    assert session is not None
    session.finish()
    return {"digest": session.digest(), "results": repr(found)}  # NaN is not equal to itself


def ended(trial: Trial, folder: Path, *sizes: int, updates: int = UPDATES) -> None:
    """Compare shards that meet over links with one shard."""
    one, many = folder / "one", folder / "many"
    one.mkdir()
    many.mkdir()
    expected = outcomes(trial, one, (1,), WorkPlan(), updates, meet=False)
    assert outcomes(trial, many, sizes, DIVIDED, updates, meet=True) == expected


@pytest.mark.parametrize("trial", OF_A_DAY, ids=lambda trial: trial.name)
@pytest.mark.parametrize("shards", by_night([33], [257]))
def test_many_shards_end_as_one(trial: Trial, shards: int, tmp_path: Path) -> None:
    ended(trial, tmp_path, shards)


@pytest.mark.timeout(900)  # of hundreds
@pytest.mark.nightly
@pytest.mark.parametrize("trial", MEET, ids=lambda trial: trial.name)
@pytest.mark.parametrize("sizes", [(17, 5, 33), (9, 257)], ids=str)
def test_other_numbers_of_shards_go_on(trial: Trial, sizes: tuple[int, ...], tmp_path: Path) -> None:
    ended(trial, tmp_path, *sizes)


@pytest.mark.timeout(1800)  # the work of a thousand shards in one process
@pytest.mark.nightly
@pytest.mark.parametrize("trial", OF_A_DAY, ids=lambda trial: trial.name)
def test_a_thousand_shards_end_as_one(trial: Trial, tmp_path: Path) -> None:
    ended(trial, tmp_path, 1_000, updates=BATCH)  # in one process the parts of all for all are a million


def test_each_of_more_shards_than_there_were_buckets_owns_rows() -> None:
    owner = RowOwners(1_000).of(np.arange(50_000, dtype=np.int64))
    assert len(np.unique(owner)) == 1_000


@pytest.mark.parametrize("name", ["chain", OF_A_DAY[0].name])
@pytest.mark.parametrize("survivors", [True, False])
def test_links_of_many_shards_break_and_others_go_on(name: str, survivors: bool, tmp_path: Path) -> None:
    """Frames are late, come twice, or break off; machines die; and then there is another number of shards."""
    setup = SETUPS[name]
    workload = fitted(setup, NAMED["slot_reuse"](tmp_path).store())
    number = itertools.count(1)
    plan = Plan(lambda epoch: (12, 9, 17)[epoch % 3], lambda: workload.batch, lambda: next(number) % 2 == 0)
    faults = Faults(cut=0.002, late=0.01, duplicate=0.1, crash=0.0005, most=3, survivors=survivors)
    simulation = Simulation(setup, workload.open, Memory(), plan, faults=faults)
    assert simulation.run() == undisturbed(setup, workload)
    assert simulation.events["incarnations"] > 1
    assert simulation.events["frames"] > 500
