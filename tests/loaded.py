"""The kernels of stories, loaded before their processes are forked: the fork server alone imports this module."""

import pyarrow as pa

from raydt.learners import learners
from raydt.sessions.session import compile_kernels
from tests import live_topics

__all__ = ["live_topics"]

compile_kernels(learners()["fudyadt"])
pa.array([0])  # the first array has pyarrow import pandas, which takes as long as a short run
