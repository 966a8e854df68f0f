"""Applying insertions and deletions to a saved state, with a receipt."""

from pipelines.updating.change_update import ChangesResult, apply_changes
from pipelines.updating.lists import update

__all__ = ["ChangesResult", "apply_changes", "update"]
