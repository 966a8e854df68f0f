"""``purge``: a completed run, or a saved state, is rewritten so that it holds live examples only."""

from pipelines.purging.steps import purge

__all__ = ["purge"]
