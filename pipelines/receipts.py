"""The chain of receipts to which ``update`` and ``purge`` append, and the model that a chain must be about."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

from pipelines.saved_runs import find_state, open_state
from pipelines.threads_of_run import in_threads_of_its_run
from raydt.keyed.saved import open_keys
from raydt.sessions.receipt import options_hash
from raydt.sessions.receipt_chain import Key, OpenChain, Origin, Signer, opened, read_chain
from raydt.sessions.saved_model import SavedModel


class ReceiptFile(NamedTuple):
    """Where an update appends its receipt."""

    path: str  #: The chain.
    key: str  #: File with the key of ids.
    sign: str | None = None  #: File with the private key that signs.


@contextmanager
def opened_receipts(given: ReceiptFile | None, *, dry_run: bool) -> Iterator[OpenChain | None]:
    """Open the chain of a command, if it has one, before anything is applied; of a dry run only look at it."""
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


def origin_of(place: str, saved: SavedModel, digest: Callable[[], str]) -> Origin:
    """Return what a chain has to name of the model of a run or a state; ``digest`` is of the model as it is."""
    meta, requests = saved.meta, saved.components.get("recorder", {}).get("requests")
    steps, source = meta.get("lineage", []), meta.get("source", {})
    first = steps[0] if steps else {}
    heads = [step["receipt"] for step in steps[-1:] if "receipt" in step]
    if requests is not None:  # the run has a chain of its own, and its updates may be in another
        heads = [requests["head"], *heads] if requests.get("head") is not None else []
    return Origin(
        place,
        saved.options.kind,
        meta.get("run", {}).get("id") or first.get("run"),
        meta.get("source_fingerprint") or first.get("source_fingerprint"),
        first["digest_before"] if steps else digest(),
        source.get("live", {}) if isinstance(source, dict) else {},
        tuple(heads),
    )


def require_about(chain: OpenChain | None, given: ReceiptFile | None, origin: Callable[[], Origin]) -> None:
    """Refuse (InputError) a chain that is not about a model, before anything is applied; of a dry run only look."""
    if chain is not None:
        chain.about(origin())
    elif given is not None and os.path.isfile(given.path) and os.path.getsize(given.path):
        read_chain(given.path, Key.read(given.key)).require(origin())


@in_threads_of_its_run
def roll_back(state: str | Path, given: ReceiptFile, note: str = "") -> dict[str, Any]:
    """Append a receipt that says that ``state``, an older state of the chain, is in use again; return its entry.

    Errors as of :func:`opened_receipts`; ConfigError if no receipt is about the state, or it is the newest one.
    """
    place = find_state(state).folder
    keys = open_keys(place.root, filesystem=place.filesystem)
    saved = open_state(place)[0] if keys is None else keys.outline()
    options, digest = saved.options, saved.session().digest() if keys is None else keys.counted().digest
    origin = origin_of(place.location, saved, lambda: digest)
    with opened_receipts(given, dry_run=False) as chain:
        assert chain is not None
        chain.about(origin)
        return chain.append_rollback(digest, options_hash(options), options.kind, time=now(), note=note)


def now() -> str:
    """Return the time for a receipt, in UTC."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
