"""Bad rows of one chunk: the first problem of each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt

from raydt.errors import InputError

Mask = npt.NDArray[np.bool_]


class BadRows(dict[int, InputError]):
    """The first problem of each bad row of one chunk, by position.

    Parameters
    ----------
    file : str
    file_row : int
        Row of ``file`` at position 0.
    length : int
        Rows of the chunk.
    stored : mapping of str to str
        How messages call a column, where that is not its name.
    """

    def __init__(self, file: str, file_row: int, length: int, stored: Mapping[str, str]) -> None:
        super().__init__()
        self._file, self._file_row, self._length, self._stored = file, file_row, length, stored

    def add(self, positions: Iterable[int], column: str, problem: str, remedy: str) -> None:
        """Note a problem of the rows at ``positions`` that have none yet."""
        for position in positions:
            if position not in self:
                row, column = self._file_row + position, self._stored.get(column, column)
                self[position] = InputError(problem, file=self._file, row=row, column=column, remedy=remedy)

    def add_mask(self, mask: Mask | None, needed: Mask | None, column: str, problem: str, remedy: str) -> None:
        """Note a problem of the rows where both masks, shape (n,), are true; None for ``needed`` is all rows."""
        if mask is not None:
            self.add(np.nonzero(mask if needed is None else mask & needed)[0].tolist(), column, problem, remedy)

    def keep(self, needed: Mask | None) -> Mask | None:
        """Mask of the rows to code: those that need it and are not bad; None for all."""
        if not self:
            return None if needed is None or needed.all() else needed
        good = np.ones(self._length, dtype=np.bool_) if needed is None else needed.copy()
        good[list(self)] = False
        return good
