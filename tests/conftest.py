"""What all tests share: the hypothesis profiles and the folder of real data sets."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# "ci" is the default, so that a failure on any machine is the failure on every machine;
# HYPOTHESIS_PROFILE=explore draws fresh examples, and more of them.
settings.register_profile("ci", derandomize=True, print_blob=True, deadline=None)
settings.register_profile(
    "explore", max_examples=500, print_blob=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

DATA = Path(__file__).resolve().parents[1].parent / "shared" / "data"


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Folder of the real data sets, beside the repository; tests that need it are marked ``data``."""
    if not DATA.is_dir():
        pytest.skip("the real data sets are not here: no folder ../shared/data beside the repository")
    return DATA
