"""Which messages quote values of the data: what ``output.quote_values`` of a run says of its errors and its log."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ParamSpec, TypeVar

from pipelines.printing import frames
from pipelines.run_folder import RunFolder
from pipelines.threads_of_run import within
from pipelines.yaml12 import load_yaml
from raydt.errors import STORAGE_REMEDIES, RaydtError, message_of
from raydt.folders.manifest import MANIFEST, newest, read_manifest
from raydt.messages import message
from raydt.redaction import text

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
        record.exc_text = frames(record.exc_info[1]).rstrip("\n")
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
