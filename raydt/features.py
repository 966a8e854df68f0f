"""What the features are, and how they are dealt into the fixed groups that shards own.

Groups do not depend on the number of shards: a shard owns whole groups, so that resharding is an assignment
of groups and no result changes with it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

NUMERIC, CATEGORICAL = 0, 1


@dataclass(frozen=True)
class Features:
    """Names and kinds of the d features, in column order.

    Attributes
    ----------
    names : tuple of str
    categorical : tuple of bool
        Same length; True where the column holds category codes.
    groups : int
        G, the number of feature groups, between 1 and d.
    """

    names: tuple[str, ...]
    categorical: tuple[bool, ...]
    groups: int = 16

    def __post_init__(self) -> None:
        object.__setattr__(self, "groups", max(1, min(self.groups, len(self.names))))

    def __len__(self) -> int:
        return len(self.names)

    @property
    def kinds(self) -> npt.NDArray[np.int8]:
        """NUMERIC or CATEGORICAL of each column, int8, shape (d,)."""
        return np.array(self.categorical, dtype=np.int8)

    def describe(self) -> list[dict[str, str]]:
        """Name and kind of each feature, as plain values."""
        kinds = ("categorical" if categorical else "numeric" for categorical in self.categorical)
        return [{"name": name, "kind": kind} for name, kind in zip(self.names, kinds, strict=True)]

    def group_columns(self, group: int) -> npt.NDArray[np.int64]:
        """Columns of one group: a contiguous range, sizes differing by at most one."""
        d, g = len(self), self.groups
        return np.arange(group * d // g, (group + 1) * d // g)

    def columns_of(self, groups: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Columns of several groups, in the order of the groups."""
        return np.concatenate([np.empty(0, dtype=np.int64), *(self.group_columns(int(g)) for g in groups)])

    def assign(self, shards: int) -> list[npt.NDArray[np.int64]]:
        """Groups of each of ``shards`` shards, contiguous and in order; a shard beyond G owns none."""
        g = self.groups
        return [np.arange(s * g // shards, (s + 1) * g // shards) for s in range(shards)]
