"""The chain of receipts to which ``update`` and ``purge`` append, and the model that a chain must be about."""

from __future__ import annotations

import logging
import os
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple, ParamSpec, TypeVar

from pipelines.operation import in_threads_of_its_run, load_yaml, within
from pipelines.run_folder import RunFolder
from pipelines.saved_runs import find_state, open_members
from raydt.errors import STORAGE_REMEDIES, RaydtError, message_of
from raydt.folders.arrays import MANIFEST, newest, read_manifest
from raydt.messages import message, text
from raydt.sessions.receipt import options_hash
from raydt.sessions.receipt_chain import Key, OpenChain, Origin, Signer, opened, read_chain
from raydt.sessions.saved_model import SavedModel


class ReceiptFile(NamedTuple):
    """The file to which an update appends its receipt."""

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


def origin_of(
    place: str, saved: SavedModel, digest: Callable[[], str], former: Callable[[], str | None] = lambda: None
) -> Origin:
    """Return what a chain has to name of the model of a run or a state.

    ``digest`` is of the model as it is, and so is ``former``, in the format before the present one, if there was one.
    """
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
        former,
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
    members = open_members(place)
    saved, digest = members.outline(), members.total().digest
    options = saved.options
    origin = origin_of(place.location, saved, lambda: digest, members.former)
    with opened_receipts(given, dry_run=False) as chain:
        assert chain is not None
        chain.about(origin)
        return chain.append_rollback(digest, options_hash(options), options.kind, time=now(), note=note)


def now() -> str:
    """Return the time for a receipt, in UTC."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


# Which messages quote values of the data: what ``output.quote_values`` of a run says of its errors and its log.

#: Key of the manifest of a state that ``update`` wrote, which has no config.
QUOTE_VALUES = "quote_values"

P = ParamSpec("P")
R = TypeVar("R")


def said(error: BaseException, quote: bool) -> str:
    """Return what an error says, with or without the values in it."""
    return text(message_of(error), quote)


@contextmanager
def quoting(allowed: bool) -> Iterator[None]:
    """Let errors leave the block with values only if ``allowed``; else an unexpected one leaves as one of ours."""
    try:
        yield
    except RaydtError as error:
        if not allowed:
            error.redact()
            raise error from None
        raise
    except Exception as error:
        of_the_machine = isinstance(error, MemoryError) or getattr(error, "errno", None) in STORAGE_REMEDIES
        if allowed or of_the_machine:  # which have no values in them
            raise
        raise RaydtError(message("runs.unexpected", error=type(error).__name__)) from None


def resolve(record: logging.LogRecord, quote: bool) -> bool:
    """Put plain text in the place of what is marked in a log record, its fields and its traceback."""
    if isinstance(record.args, tuple):
        record.args = tuple(message_of(one) if isinstance(one, BaseException) else one for one in record.args)
    record.msg, record.args = record.getMessage(), ()
    for name, value in vars(record).items():
        if isinstance(value, str):
            setattr(record, name, text(value, quote))
    if record.exc_info and not quote:
        record.exc_text = _frames(record.exc_info[1]).rstrip("\n")
    return True


def quoting_as_its_run(work: Callable[P, R]) -> Callable[P, R]:
    """Have errors of a function quote values only if :func:`may_quote` allows it of its first argument."""
    return within(work, lambda place: quoting(may_quote(place)))


def may_quote(place: str | Path) -> bool:
    """Return True unless the run of a model or state forbids to quote values, or its config is damaged."""
    folder, run = RunFolder(place), RunFolder.near(place)
    try:
        if run is not None:
            return load_yaml(run.read_text("config.yaml"))["output"][QUOTE_VALUES] is not False
        state = newest(folder)
        meta = read_manifest(state).meta if state.has(MANIFEST) else {}
        return meta.get(QUOTE_VALUES, meta["config"]["output"][QUOTE_VALUES] if "config" in meta else True) is not False
    except (OSError, ValueError, TypeError, LookupError):
        return False


def _frames(error: BaseException | None) -> str:
    """Return a traceback without what the errors say: those of other packages may quote values."""
    text = ""
    while error is not None:
        text = f"{''.join(traceback.format_tb(error.__traceback__))}{type(error).__name__}\n{text}"
        error = error.__cause__ or error.__context__
    return text
