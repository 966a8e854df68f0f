"""Jobs drawn from what a config can say all at once: any number of shards, a kill, a resume, an update, a purge."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import combinations

#: Of every test run: jobs that nothing refuses, two of which have found a fault. Nightly ones take all.
DAILY = (1, 10, 18, 43, 44, 55)
NIGHTLY = range(150)


@pytest.mark.turns(3)
@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=[] if seed in DAILY else pytest.mark.nightly) for seed in NIGHTLY]
)
def test_a_drawn_job(seed: int, tmp_path: Path) -> None:
    combinations.check(seed, tmp_path)
