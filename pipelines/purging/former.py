"""States of a format that this version does not read, as far as a purge needs them: rows and dictionaries.

Invariant: what is written again has the format, the options and the arrays that were read; only rows of examples that
are not live, and names in dictionaries, are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy.typing as npt

from raydt.exchange.messages import GroupSnapshot
from raydt.exchange.snapshot import Snapshot
from raydt.folders.checkpoint import Checkpoint
from raydt.sessions.saved_model import groups_of


class FormerSession:
    """Stands for the session of a state that this version does not understand, and writes it again as it is.

    Parameters
    ----------
    checkpoint : Checkpoint
    model : mapping of str to ndarray
        Arrays of the model beside it.
    """

    def __init__(self, checkpoint: Checkpoint, model: Mapping[str, npt.NDArray[Any]]) -> None:
        self._checkpoint, self._model = checkpoint, dict(model)

    def model(self) -> dict[str, npt.NDArray[Any]]:
        """Arrays of the model."""
        return self._model

    def snapshot(self) -> Snapshot:
        """The checkpoint as one segment of its live rows, whatever its arrays mean."""
        columns: dict[str, set[str]] = {}
        for file in (file for stored in self._checkpoint.stored for file in stored.files):
            _, of_group, number = file.component.partition("-group-")
            name = f"group-{number}" if of_group else "coordinator"
            columns.setdefault(name, set()).update(file.arrays or {})

        def divided(name: str, arrays: Mapping[str, Any]) -> GroupSnapshot:
            constant = columns.get(name, {"born"})
            rows = {column: array for column, array in arrays.items() if column in constant}
            return GroupSnapshot(rows, {column: array for column, array in arrays.items() if column not in constant})

        rows, state = divided("coordinator", self._checkpoint.components["coordinator"])
        groups = groups_of(self._checkpoint.components)
        parts = [{number: divided(f"group-{number:03d}", groups[number])} for number in groups]
        return Snapshot(0, rows.pop("born"), rows, state, (0, 0), parts)
