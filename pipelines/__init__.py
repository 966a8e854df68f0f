"""Jobs: a stream of insertions and deletions goes through a learner, and a run folder says what happened."""

from actors.environment import set_numba_cache_dir

set_numba_cache_dir()  # before any kernel is imported: Numba reads it then, and actors inherit it

from pipelines.config import Config, load_config  # noqa: E402
from pipelines.job import RunResult, replay  # noqa: E402

__all__ = ["Config", "RunResult", "load_config", "replay"]
