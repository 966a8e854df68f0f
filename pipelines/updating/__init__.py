"""Applying insertions and deletions to a saved state, with a receipt."""

from pipelines.updating.job import update

__all__ = ["update"]
