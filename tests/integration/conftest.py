"""One private Ray for all tests that need one."""

import os

import pytest

from actors.cluster import bundles, connect, set_numba_cache_dir

set_numba_cache_dir()
# Ray has its workers give way to everything else. What else runs here is other tests: an actor that they starve
# would be taken for one that is stuck.
os.environ.setdefault("RAY_worker_niceness", "0")


@pytest.fixture(scope="session")
def cluster():
    """A private Ray, started as the product starts it, with room for the coordinator and three shards."""
    connection = connect("local", bundles(3))
    from actors import starting

    # A process that starts shows no progress until it is there. On a machine full of other tests that may take minutes,
    # and a start that is given up is one more loss than a test has caused.
    starting.LOCAL_START_SECONDS = starting.START_SECONDS
    yield connection
    connection.close()
