"""Which shard owns a row, where shards own whole rows: that follows from the row's id alone.

The first eight bits of the key of an id (``row_tree``) choose one of 256 buckets; a shard owns neighbouring ones. A
node of the tree of rows at depth 2 has the rows of one bucket: a shard has all that is below the nodes of its own.

A row's *slot* says who owns it, too. Slots are dealt to the shards in runs of 64, each shard's own are numbered without
a gap (*local* slots), and a new row takes one of its owner's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from raydt.arrays.types import AnyArray, Bools, Ints, Slots
from raydt.examples.row_trie import BITS, keys_of
from raydt.examples.weights import filled, unless_equal
from raydt.exchange.messages import Buckets
from raydt.messages import message

Ids = Ints

#: Buckets of rows, those below the nodes of the tree of rows at this depth.
BUCKETS, _DEPTH = 256, 2
#: Neighbouring slots of one shard.
_RUN = 64
_WEIGHT = "weight"
_COMPONENT = re.compile(r"buckets-([0-9]{3})-([0-9]{3})")


def buckets_of(ids: Ids) -> Ints:
    """Return the bucket of each row, by id."""
    buckets: Ints = (keys_of(ids) >> np.uint64(64 - _DEPTH * BITS)).astype(np.int64)
    return buckets


def are_in(ids: Ids, part: Buckets) -> Bools:
    """Return which rows are in some buckets, by id."""
    bucket = buckets_of(ids)
    found: Bools = (bucket >= part.begin) & (bucket < part.end)
    return found


class RowOwners:
    """The owners of all rows: ``shards`` of them, of which those beyond 256 own none."""

    def __init__(self, shards: int) -> None:
        self.shards = shards
        self._bounds = [BUCKETS * shard // shards for shard in range(shards + 1)]
        self._owner = np.repeat(np.arange(shards), np.diff(self._bounds))

    def buckets(self, shard: int) -> Buckets:
        """Return the buckets that a shard owns."""
        return Buckets(self._bounds[shard], self._bounds[shard + 1])

    def of_all(self) -> list[Buckets]:
        """Return the buckets of each shard."""
        return [self.buckets(shard) for shard in range(self.shards)]

    def pieces(self, shard: int, pieces: int) -> list[Buckets]:
        """Divide the buckets of a shard into so many pieces, at most one for each bucket; none if it has none."""
        own = self.buckets(shard)
        n = min(max(1, pieces), len(own))
        ends = [own.begin + len(own) * i // max(1, n) for i in range(n + 1)]
        return [Buckets(begin, end) for begin, end in pairwise(ends)]

    def of(self, ids: Ids) -> Ints:
        """Return the shard that owns each row, by id."""
        owners: Ints = self._owner[buckets_of(ids)]
        return owners

    def shard_of(self, slots: npt.NDArray[np.integer]) -> AnyArray:
        """Return the shard that owns the row in each of some slots."""
        return slots // _RUN % self.shards

    def local(self, slots: Slots) -> Slots:
        """Return the local slots of some slots."""
        return slots // (_RUN * self.shards) * _RUN + slots % _RUN

    def slots(self, local: npt.NDArray[np.integer], shard: int) -> Slots:
        """Return the slots of some local slots of a shard."""
        slots: Slots = (local // _RUN * self.shards + shard) * _RUN + local % _RUN
        return slots.astype(np.int32)

    def local_capacity(self, slots: int) -> int:
        """Return how many local slots a shard has among the first ``slots``, at most."""
        return -(-slots // (_RUN * self.shards)) * _RUN

    def first_slots(self, ids: Ids) -> Slots:
        """Return the slots of rows that take the first ones of their owners, in this order."""
        owner, slots = self.of(ids), np.empty(len(ids), dtype=np.int32)
        for shard in range(self.shards):
            own = np.flatnonzero(owner == shard)
            slots[own] = self.slots(np.arange(len(own)), shard)
        return slots


def joined_buckets(ids: Ids, parts: Mapping[Buckets, Mapping[str, AnyArray]]) -> dict[str, AnyArray]:
    """Put together arrays by row that were divided by buckets, all but ``id``. Raises as :func:`rows_of_parts`."""
    joined: dict[str, AnyArray] = {}
    for rows, arrays in rows_of_parts(ids, parts):
        if not joined:
            joined = {
                name: np.empty((len(ids), *one.shape[1:]), one.dtype) for name, one in arrays.items() if name != "id"
            }
        for name, array in joined.items():
            array[rows] = arrays[name]
    return joined


def joined_by_birth(parts: Mapping[Buckets, Mapping[str, AnyArray]]) -> dict[str, AnyArray]:
    """Put together what owners have of all rows, in the order of their births, with ``born`` and perhaps ``weight``.

    ValueError if parts do not have the same arrays, or rows of other buckets, or a birth is in two, or a bucket is in
    none or in several.
    """
    require_all_buckets(parts, 0)
    of_parts = [dict(parts[own]) for own in parts]
    names = of_parts[0].keys() - {_WEIGHT}
    for own, part in zip(parts, of_parts, strict=True):
        examples = len(part["born"])
        if part.keys() - {_WEIGHT} != names or any(len(array) != examples for array in part.values()):
            raise ValueError(message("models.uneven", columns=component_of(own), examples=examples))
        part[_WEIGHT] = filled(part.get(_WEIGHT), examples)
    born = np.concatenate([part["born"] for part in of_parts])
    order = np.argsort(born, kind="stable")
    if not (np.diff(born[order]) > 0).all():
        raise ValueError(message("models.uneven", columns="born", examples=len(born)))
    joined = {name: np.concatenate([part.pop(name) for part in of_parts])[order] for name in (*names, _WEIGHT)}
    if unless_equal(joined[_WEIGHT]) is None:
        joined.pop(_WEIGHT)
    return joined


def require_all_buckets(parts: Iterable[Buckets], examples: int) -> None:
    """Raise ValueError unless each bucket is in one of the parts."""
    if sorted(bucket for part in parts for bucket in part) != list(range(BUCKETS)):
        raise ValueError(message("models.uneven", columns=", ".join(map(component_of, parts)), examples=examples))


def rows_of_parts(
    ids: Ids, parts: Mapping[Buckets, Mapping[str, AnyArray]]
) -> Iterator[tuple[npt.NDArray[np.intp], Mapping[str, AnyArray]]]:
    """Yield which rows each part has, and its arrays; ValueError unless each bucket is there once, in full."""
    bucket, names = buckets_of(ids), None
    if parts:
        require_all_buckets(parts, len(ids))
    for own in parts:
        rows, arrays = np.flatnonzero((bucket >= own.begin) & (bucket < own.end)), parts[own]
        names = names or arrays.keys()
        even = arrays.keys() == names and all(len(array) == len(rows) for array in arrays.values())
        if not even or not np.array_equal(arrays["id"], ids[rows]):
            raise ValueError(message("models.uneven", columns=component_of(own), examples=len(rows)))
        yield rows, arrays


def parts_for(shards: Iterable[Buckets], parts: Iterable[Buckets]) -> list[Buckets]:
    """Return the parts that have rows of some shards."""
    owned = {bucket for shard in shards for bucket in shard}
    return [part for part in parts if not owned.isdisjoint(part)]


def component_of(buckets: Buckets) -> str:
    """Return the name of the component of a state that has the arrays of some buckets."""
    return f"buckets-{buckets.begin:03d}-{buckets.end:03d}"


def buckets_in(component: str) -> Buckets | None:
    """Return the buckets of a component with such a name, None of any other."""
    found = _COMPONENT.fullmatch(component)
    return None if found is None else Buckets(*map(int, found.groups()))
