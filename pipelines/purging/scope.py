"""Whose copies a purge erases: of every example that is not live, or only of some ids."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pipelines.updating.changes import StateNames
from pipelines.updating.model_data import without_a_config
from raydt.errors import InputError, UpdateError
from raydt.redaction import quoted
from raydt.sessions.saved_model import SavedModel
from raydt.streams.deletion_log import LoggedDeletions


@dataclass(frozen=True)
class Scope:
    """Ids whose copies are erased, as the files have them."""

    names: frozenset[Any] | None  #: Integers or text; None: all that are not live.

    def erases(self, name: Any) -> bool:
        """Whether the copies of an example that is not live are to go."""
        return self.names is None or name in self.names


def read_ids(path: str, saved: SavedModel) -> Scope:
    """Read a file with the column ``id``; none of its ids may be live in the state.

    Raises
    ------
    InputError
        The file cannot be read, has no row, or an id is missing or of another type.
    UpdateError
        An id is live. The message names the first.
    """
    names = StateNames.of(saved)
    with without_a_config():
        log = LoggedDeletions(path, ".", "text" if names.text_ids else "integer", "list of ids", "state")
    if not log.ids:
        raise InputError("it has no id", file=log.file.name, remedy="Check that it is the right file")
    codes = saved.arrays["id"]
    live = set(names.ids.names_of(codes) if names.text_ids else codes.tolist())
    row = next((row for row, name in enumerate(log.ids) if name in live), None)
    if row is not None:
        remedy = (
            "Delete it with raydt update --delete, which writes another state, and then remove this folder. "
            "Nothing has been changed"
        )
        problem = f"id {quoted(log.ids[row])}: its example is live in this folder, and a purge deletes none"
        raise UpdateError(problem, file=log.file.name, row=row, column="id", remedy=remedy)
    return Scope(frozenset(log.ids))
