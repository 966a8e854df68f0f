"""The 256 groups of keys: what a process owns, what a file of a checkpoint holds, and a level of the digest.

Invariant: the group of a key, and the digest over all keys, follow from the keys and the models alone: not from the
order in which keys appeared, or from who owns them. A key without live examples is in no digest: it is as one that has
never been there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

#: Value of a key, as a source or a user gives it.
Key = str | int

#: Fixed: states are divided by it.
GROUPS = 256

_PERSON = b"raydt keys"


def bytes_of(key: Key) -> bytes:
    """Return what stands for a key in hashes; an integer and the text of its digits differ."""
    return b"s" + key.encode("utf-8", "surrogatepass") if isinstance(key, str) else b"i%d" % key


def group_of(key: Key) -> int:
    """Return the group of a key, from 0 to 255: the first byte of a hash."""
    return hashlib.blake2b(bytes_of(key), digest_size=8, person=_PERSON).digest()[0]


def in_order(keys: Iterable[Key]) -> list[Key]:
    """Return keys in an order of their own: by group, then by the bytes that stand for them."""
    return sorted(keys, key=lambda key: (group_of(key), bytes_of(key)))


def digest_of_group(digests: Mapping[Key, str]) -> str:
    """Return the digest of one group: over its keys and the digests of their models; "" of a group without keys."""
    if not digests:
        return ""
    whole = hashlib.sha256(_PERSON)
    for key in sorted(digests, key=bytes_of):
        for part in (bytes_of(key), digests[key].encode()):
            whole.update(len(part).to_bytes(8, "little") + part)
    return f"sha256:{whole.hexdigest()}"


def digest_of_groups(groups: Mapping[int, str]) -> str:
    """Return the digest over all keys, from those of the groups (:func:`digest_of_group`) that have keys.

    Two runs that differ can be compared group by group, then key by key.
    """
    whole = hashlib.sha256(_PERSON)
    for group in sorted(groups):
        if groups[group]:
            whole.update(bytes([group]) + groups[group].encode())
    return f"sha256:{whole.hexdigest()}"


def digest_of(digests: Mapping[Key, str]) -> str:
    """Return the digest over all keys, from the digest of each key's model."""
    parts: dict[int, dict[Key, str]] = {}
    for key, digest in digests.items():
        parts.setdefault(group_of(key), {})[key] = digest
    return digest_of_groups({group: digest_of_group(part) for group, part in parts.items()})


def owners(sizes: Mapping[int, int], processes: int) -> list[int]:
    """Return the process that owns each of the 256 groups, given the sizes of those that have some.

    From the largest group on, each goes to the process that has least so far: a group of more than the mean is alone.
    Groups without a size are dealt in equal parts.

    Examples
    --------
    >>> found = owners({7: 60, 1: 20, 200: 10, 3: 10}, 2)
    >>> found[7], [found[group] for group in (1, 3, 200)]
    (0, [1, 1, 1])
    """
    held, found = [0] * processes, [group * processes // GROUPS for group in range(GROUPS)]
    for group in sorted(sizes, key=lambda group: (-sizes[group], group)):
        found[group] = min(range(processes), key=held.__getitem__)
        held[found[group]] += sizes[group]
    return found
