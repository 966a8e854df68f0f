"""The features, and how they are divided into the fixed groups that shards own.

Groups do not depend on the number of shards, so no result changes with it. *Dense* features are the columns of a matrix
``X``. *Sparse* ones are binary and follow the dense ones in number; a row gives the indices of those that are 1
(``raydt.arrays.sparse``). There may be millions: nothing here holds one of them by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from raydt.arrays.sparse import LARGEST_WIDTH, hashed_groups
from raydt.arrays.types import AnyArray, Ints
from raydt.errors import InputError
from raydt.messages import message

NUMERIC, CATEGORICAL = 0, 1


def sparse_name(column: str, index: int, tokens: Sequence[str] = ()) -> str:
    """Name of a sparse feature: its token, or its column and index where there is none, or none to be seen."""
    token = tokens[index] if index < len(tokens) else ""
    return token if token.strip() else f"{column}[{index}]"


@dataclass(frozen=True)
class Features:
    """Names and kinds of the features: first the d dense ones in column order, then the sparse ones."""

    names: tuple[str, ...]  #: Of the dense features.
    categorical: tuple[bool, ...]  #: Same length; True where the column holds category codes.
    groups: int = 16  #: G, the number of feature groups, between 1 and the number of features.
    sparse: int = 0  #: How many sparse features there are; that of index i is feature ``len(names) + i``.
    sparse_column: str = "indices"  #: The column their indices come from, after which they are called.

    def __post_init__(self) -> None:
        if len(self) > LARGEST_WIDTH:
            said = {"dense": len(self.names), "sparse": self.sparse, "largest": LARGEST_WIDTH}
            raise InputError(message("examples.many_features", **said))
        object.__setattr__(self, "groups", max(1, min(self.groups, len(self))))

    def __len__(self) -> int:
        return len(self.names) + self.sparse

    def name(self, feature: int, tokens: Sequence[str] = ()) -> str:
        """Name of a feature by its number; ``tokens`` are those that indices stand for, if there are any."""
        dense = len(self.names)
        return self.names[feature] if feature < dense else sparse_name(self.sparse_column, feature - dense, tokens)

    @property
    def categorical_names(self) -> list[str]:
        """Names of the dense features that are categorical."""
        return [name for name, is_category in zip(self.names, self.categorical, strict=True) if is_category]

    @property
    def kinds(self) -> npt.NDArray[np.int8]:
        """NUMERIC or CATEGORICAL of each dense feature, int8, shape (d,)."""
        return np.array(self.categorical, dtype=np.int8)

    def describe(self) -> list[dict[str, Any]]:
        """Name and kind of each dense feature, as plain values, then one entry for all sparse ones if there are any."""
        kinds = ("categorical" if categorical else "numeric" for categorical in self.categorical)
        dense: list[dict[str, Any]] = [{"name": n, "kind": k} for n, k in zip(self.names, kinds, strict=True)]
        return (
            [*dense, {"name": self.sparse_column, "kind": "sparse", "features": self.sparse}] if self.sparse else dense
        )

    def group_columns(self, group: int) -> Ints:
        """Columns of ``X`` in one group: a contiguous range, sizes differing by at most one."""
        d, g = len(self.names), self.groups
        return np.arange(group * d // g, (group + 1) * d // g)

    def columns_of(self, groups: Ints) -> Ints:
        """Columns of ``X`` in several groups, in the order of the groups."""
        return np.concatenate([np.empty(0, dtype=np.int64), *(self.group_columns(int(g)) for g in groups)])

    def groups_of(self, indices: AnyArray) -> Ints:
        """Group of each of some sparse features, given by index: a fixed hash (``raydt.arrays.sparse``)."""
        return hashed_groups(indices, self.groups)

    def assign(self, shards: int) -> list[Ints]:
        """Groups of each of ``shards`` shards, contiguous and in order; a shard beyond G owns none."""
        g = self.groups
        return [np.arange(s * g // shards, (s + 1) * g // shards) for s in range(shards)]
