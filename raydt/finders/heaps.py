"""Pairing heaps (Fredman, Sedgewick, Sleator, Tarjan 1986) threaded through the entries of a pool.

A heap is the number of its root, -1 if it is empty. Insertion and a smaller key are O(1), removal of any member
O(log n) amortised; no heap has memory of its own, so that there may be thousands of small ones. What a heap answers,
its smallest (key, feature), depends on its members alone, never on their order of arrival.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from raydt.arrays.kernel import inner_kernel

#: One member: ``prev`` is the sibling before it, the parent of a first child, -1 of a root.
LINK = np.dtype(
    [("key", np.float64), ("child", np.int32), ("next", np.int32), ("prev", np.int32), ("feature", np.int32)]
)


@inner_kernel
def _meld(links: Any, p: int, q: int) -> int:
    """Make the root with the larger (key, feature) the first child of the other; the root of both."""
    if links[q].key < links[p].key or (links[q].key == links[p].key and links[q].feature < links[p].feature):
        p, q = q, p
    first = links[p].child
    links[q].next = first
    links[q].prev = p
    if first >= 0:
        links[first].prev = q
    links[p].child = q
    return p


@inner_kernel
def _pair(links: Any, first: int) -> int:
    """Meld siblings to one heap: in pairs from the first, then the pairs from the last; its root."""
    done = -1  # pairs, the last first, chained by ``prev``
    at = first
    while at >= 0:
        second = links[at].next
        if second < 0:
            after = -1
            pair = at
        else:
            after = links[second].next
            pair = _meld(links, at, second)
        links[pair].prev = done
        done = pair
        at = after
    root = -1
    while done >= 0:
        before = links[done].prev
        root = done if root < 0 else _meld(links, root, done)
        done = before
    return root


@inner_kernel
def insert(links: Any, root: int, e: int, key: float) -> int:
    """Put entry ``e`` into a heap; its new root."""
    links[e].key = key
    links[e].child = links[e].next = links[e].prev = -1
    return e if root < 0 else _meld(links, root, e)


@inner_kernel
def _unlink(links: Any, e: int) -> None:
    """Take entry ``e``, which is not a root, from its siblings and its parent."""
    before, after = links[e].prev, links[e].next
    if links[before].child == e:
        links[before].child = after
    else:
        links[before].next = after
    if after >= 0:
        links[after].prev = before


@inner_kernel
def remove(links: Any, root: int, e: int) -> int:
    """Take entry ``e`` out of its heap; its new root, -1 if it is empty now."""
    below = _pair(links, links[e].child)
    if below >= 0:
        links[below].next = links[below].prev = -1
    if e == root:
        return below
    _unlink(links, e)
    return root if below < 0 else _meld(links, root, below)


@inner_kernel
def lower(links: Any, root: int, e: int, key: float) -> int:
    """Give entry ``e`` a smaller key; the new root. O(1)."""
    links[e].key = key
    if e == root:
        return root
    _unlink(links, e)
    links[e].next = links[e].prev = -1
    return _meld(links, root, e)


@inner_kernel
def lift(links: Any, root: int, key: float) -> int:
    """Give the root a larger key; the new root."""
    return insert(links, remove(links, root, root), root, key)
