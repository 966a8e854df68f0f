"""Sweeps: one stream, many settings of learner and stream model, one table and one page."""

from pipelines.sweeping.trials import SweepResult, sweep

__all__ = ["SweepResult", "sweep"]
