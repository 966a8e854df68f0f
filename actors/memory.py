"""Memory used by a process of a job."""

from __future__ import annotations

import resource
import sys


def peak_rss_bytes() -> int:
    """Largest resident size of this process so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
