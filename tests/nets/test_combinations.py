"""Jobs drawn from what a config can say all at once: any number of shards, a kill, a resume, an update, a purge."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import combinations

#: Of every test run, and of nightly ones.
DAILY, NIGHTLY = 6, 150


@pytest.mark.parametrize(
    "seed", [*range(DAILY), *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(DAILY, NIGHTLY))]
)
def test_a_drawn_job(seed: int, tmp_path: Path) -> None:
    combinations.check(seed, tmp_path)
