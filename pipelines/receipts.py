"""Receipts on file for ``update``, and their check by ``verify``."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pipelines.saved_runs import open_state
from raydt.errors import InputError
from raydt.examples.history import history_of_live
from raydt.learners import traits_of
from raydt.sessions.receipt import Receipt, options_hash
from raydt.sessions.receipt_chain import Chain, Key, OpenChain, Signer, opened, read_chain
from raydt.sessions.retraining import trained_from_nothing
from raydt.sessions.saved_model import SavedModel

if TYPE_CHECKING:
    from pipelines.purging.receipt import Purged


class ReceiptFile(NamedTuple):
    """Where an update appends its receipt."""

    path: str  #: The chain.
    key: str  #: File with the key of ids.
    sign: str | None = None  #: File with the private key that signs.


class Receipts:
    """The chain of a command, open from before anything is applied; made by :func:`opened_receipts`."""

    def __init__(self, chain: OpenChain, key: Key, signer: Signer | None) -> None:
        self._chain, self._key, self._signer = chain, key, signer
        self.withdraw = chain.withdraw

    def append(self, receipt: Receipt) -> None:
        """Append a receipt, with the time of now."""
        self._chain.append(receipt, time=_now(), signer=self._signer)

    def append_purge(self, done: Purged) -> None:
        """Append the receipt of a purge, which changes no model, with the time of now."""
        names = done.scope.names
        values = {
            "learner": done.learner,
            "options_hash": done.options_hash,
            "digest_before": done.digest,
            "digest_after": done.digest,
            "active_before": done.active,
            "active": done.active,
            "deleted": [],
            "inserted": [],
            "purged": {
                "ids": None if names is None else self._key.hashes(names),
                "replaced": list(done.replaced),
                "rewritten": list(done.rewritten),
                "out_of_reach": list(done.out_of_reach),
            },
        }
        self._chain.append_values(values, time=_now(), signer=self._signer)


@contextmanager
def opened_receipts(given: ReceiptFile | None, *, dry_run: bool) -> Iterator[Receipts | None]:
    """Open the chain of a command, if it has one; of a dry run only look at it.

    Raises
    ------
    ConfigError
        A key cannot be used, or is not that of the chain; another process appends to it.
    InputError
        The chain is not whole, or cannot be written.
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
    with opened(given.path, key) as chain:
        yield Receipts(chain, key, signer)


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def verify_receipts(
    path: str | Path, state: str | Path | None = None, *, key: str | None = None, public_key: str | None = None
) -> dict[str, Any]:
    """Check a chain of receipts and, with a state, that it is what the last receipt says.

    Parameters
    ----------
    path : str or Path
        The chain.
    state : path or URI, optional
        The state that the last receipt is of.
    key : str, optional
        Key file of the ids: none that was deleted, and not inserted again, lives in the state.
    public_key : str, optional
        Key, 64 hexadecimal digits, by which every receipt must be signed.

    Returns
    -------
    dict
        ``receipts`` and, among them, ``purges``; ``deletes``, ``head``, ``gaps``, ``signers`` and ``all_signed`` of the
        chain; with a state ``equal`` (its digest and options are those of the newest receipt of the chain) and
        ``rebuilt``: whether a model trained from nothing on its examples has that digest, too, None where the model
        depends on the past; with a key ``live``, how many deleted ids live, and ``keyed``, whether every receipt tells
        that this is its key; ``ok``, whether all of it holds.

    Raises
    ------
    InputError
        The chain is not whole, or not signed by ``public_key``; there is no state.
    ConfigError
        The key cannot be used, or is not that of the chain.
    """
    secret = Key.read(key) if key is not None else None
    chain = read_chain(path, secret)
    if public_key is not None and not (chain.all_signed and chain.signers == [public_key.lower()]):
        raise InputError("not every receipt is signed by the given public key", file=str(path))
    found: dict[str, Any] = {
        "receipts": len(chain.entries),
        "purges": sum("purged" in entry for entry in chain.entries),
        "deletes": sum(len(entry["deleted"]) for entry in chain.entries),
        "head": chain.head,
        "gaps": chain.gaps,
        "signers": chain.signers,
        "all_signed": chain.all_signed,
    }
    if state is not None:
        found |= _compared(chain, open_state(state)[0], secret)
    found["ok"] = found.get("equal", True) and found.get("rebuilt") is not False and not found.get("live")
    return found


def _compared(chain: Chain, saved: SavedModel, key: Key | None) -> dict[str, Any]:
    """A state beside the last receipt of a chain."""
    last = chain.newest
    session = saved.session()
    same = session.digest() == last["digest_after"] and last["options_hash"] == options_hash(saved.options)
    found: dict[str, Any] = {"equal": same and last["active"] == session.coordinator.store.live, "rebuilt": None}
    if traits_of(saved.options).retrained:
        history = history_of_live(saved.arrays, saved.groups, saved.features)
        options = saved.learner.fixed_by(saved.options, saved.arrays)
        rebuilt = trained_from_nothing(options, saved.features, history, saved.class_order).digest()
        found["rebuilt"] = rebuilt == last["digest_after"]
    if key is not None:
        gone: set[str] = set()
        for entry in chain.entries:
            gone = (gone | set(entry["deleted"])) - set(entry["inserted"])
        stream = saved.components.get("stream", {})
        names = dict(zip(stream["id_codes"].tolist(), stream["ids"], strict=True)) if "id_codes" in stream else {}
        text = saved.meta.get("columns", {}).get("id_kind") == "text"
        live = saved.arrays["id"].tolist()
        found["keyed"] = chain.keyed
        found["live"] = len(gone & {key.hash(names[one] if text else one) for one in live})
    return found
