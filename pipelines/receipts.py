"""The chain of receipts to which ``update`` and ``purge`` append."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from typing import NamedTuple

from raydt.sessions.receipt_chain import Key, OpenChain, Signer, opened, read_chain


class ReceiptFile(NamedTuple):
    """Where an update appends its receipt."""

    path: str  #: The chain.
    key: str  #: File with the key of ids.
    sign: str | None = None  #: File with the private key that signs.


@contextmanager
def opened_receipts(given: ReceiptFile | None, *, dry_run: bool) -> Iterator[OpenChain | None]:
    """Open the chain of a command, if it has one, before anything is applied; of a dry run only look at it.

    ConfigError if a key cannot be used or is not that of the chain, or another process appends to it; InputError if the
    chain is not whole, or cannot be written.
    """
    if given is None:
        yield None
        return
    key, signer = Key.read(given.key), Signer(given.sign) if given.sign is not None else None
    if dry_run:
        if os.path.isfile(given.path) and os.path.getsize(given.path):
            read_chain(given.path, key)
        yield None
        return
    with opened(given.path, key, signer) as chain:
        yield chain


def now() -> str:
    """Return the time for a receipt, in UTC."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
