"""Applying insertions and deletions to a saved state, with a receipt."""

from pipelines.updating.journal import ChangesResult, apply_changes, update

__all__ = ["ChangesResult", "apply_changes", "update"]
