"""One private Ray for all tests that need one."""

import pytest

from actors.cluster import bundles, connect
from actors.environment import set_numba_cache_dir

set_numba_cache_dir()


@pytest.fixture(scope="session")
def cluster():
    """A private Ray, started as the product starts it, with room for the coordinator and three shards."""
    connection = connect("local", bundles(3))
    yield connection
    connection.close()
