"""The log of a run: one JSON object per line.

Invariant: every line is a complete object and says of what it speaks: :data:`FIELDS` are in each, null where they do
not apply. A record is out of this process before the call that made it returns, so that a killed driver loses none.
"""

from __future__ import annotations

import io
import json
import logging
import math
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from typing import Any

import numpy as np
import pyarrow as pa

from pipelines.receipts import resolve
from pipelines.run_folder import RunFolder
from raydt.errors import STORAGE_REMEDIES, NotWrittenError
from raydt.messages import escaped, message

#: Loggers whose records belong to a run.
OURS = ("raydt", "actors", "pipelines")

#: In every record: folder name, updates done, incarnation, who it is about (``driver``, ``coordinator`` or ``shard``),
#: which shard, and what happened, as a word to search for.
FIELDS = ("run", "seq", "epoch", "actor", "shard", "event")

LOG = "log.jsonl"

_PLAIN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}

# Where a file cannot be appended to it is written as a whole: with every record while it is short, then now and then.
_SHORT_BYTES = 1 << 18
_REWRITE_SECONDS = 30.0


@dataclass(slots=True)
class LogContext:
    """Context of the next records; the driver keeps it up to date. A record's own fields come first."""

    run: str
    seq: int | None = None  #: Updates done.
    epoch: int | None = None  #: Number of the incarnation.
    actor: str = "driver"
    shard: int | None = None


class JsonFormatter(logging.Formatter):
    """A record as one line of JSON: ``time``, ``level``, ``logger``, ``message``, :data:`FIELDS`, other extra fields.

    Fields whose names begin with an underscore are left out: other packages add theirs to every record, as Ray does.
    """

    def __init__(self, context: LogContext) -> None:
        super().__init__()
        self._context = context

    def format(self, record: logging.LogRecord) -> str:
        """Return one line, without its end."""
        entry: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, timezone.utc).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **dict.fromkeys(FIELDS),
            **asdict(self._context),
        }
        entry |= {key: value for key, value in vars(record).items() if key not in _PLAIN and key[0] != "_"}
        if record.exc_info:
            entry["traceback"] = record.exc_text or self.formatException(record.exc_info)
        try:
            return json.dumps(entry, default=_plain, allow_nan=False)
        except ValueError:
            return json.dumps({key: _finite(value) for key, value in entry.items()}, default=_plain)


class _LogFile(logging.Handler):
    """Appends records to the log of a folder, after those that are there. A line that was cut short is dropped."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder, self._warned = folder, False
        try:
            text = folder.read(LOG) if folder.has(LOG) else b""
            whole = text[: text.rfind(b"\n") + 1]
            if whole != text or not folder.has(LOG):
                folder.publish(LOG, whole)
            self._stream: Any = folder.filesystem.open_append_stream(folder.path(LOG), compression=None)
            self._text = b""
        except NotImplementedError:  # object stores
            self._stream, self._text = None, whole
        except OSError as error:
            remedy = STORAGE_REMEDIES.get(error.errno or 0)
            said = message("machine.not_written", reason=str(error))
            raise NotWrittenError(said, file=folder.path(LOG), remedy=remedy) from error
        self._written, self._when = len(self._text), time.monotonic()
        super().__init__()  # last: logging closes at exit whatever has passed here

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record."""
        try:
            line = (self.format(record) + "\n").encode()
            if self._stream is not None:
                self._stream.write(line)
                self._stream.flush()
                return
            self._text += line
            waited = time.monotonic() - self._when >= _REWRITE_SECONDS
            if len(self._text) <= _SHORT_BYTES or waited or record.levelno >= logging.WARNING:
                self._rewrite()
        except (OSError, ValueError, TypeError, pa.ArrowException) as error:
            self._dropped(error)

    def close(self) -> None:
        """Write what is not written."""
        super().close()
        try:
            if self._stream is not None:
                self._stream.close()
            elif len(self._text) > self._written:
                self._rewrite()
        except (OSError, pa.ArrowException) as error:
            self._dropped(error)

    def _dropped(self, error: Exception) -> None:
        """Say once that a record is lost: the run is what counts, and what it cannot write itself it says itself."""
        if not self._warned:
            self._warned = True
            with suppress(OSError, ValueError):  # there need not be anyone to read it
                said = message("outputs.log_records", file=f"{self._folder.location}/{LOG}", reason=str(error))
                sys.stderr.write(escaped(said) + "\n")
                sys.stderr.flush()

    def _rewrite(self) -> None:
        self._folder.publish(LOG, self._text)
        self._written, self._when = len(self._text), time.monotonic()


@contextmanager
def log_to(folder: RunFolder, quote: bool = True) -> Iterator[LogContext]:
    """Append the records of this process to ``log.jsonl`` while the block runs, with the context that it sets.

    Unless they may ``quote`` values, no handler after this one sees one. NotWrittenError if the log cannot be opened.
    """
    context = LogContext(folder.location.rstrip("/").rsplit("/", 1)[-1])
    handler = _LogFile(folder)
    handler.setFormatter(JsonFormatter(context))
    loggers = [logging.getLogger(name) for name in OURS]
    levels = [logger.level for logger in loggers]
    handler.addFilter(lambda record: resolve(record, quote))
    for logger in loggers:
        logger.addHandler(handler)
        if not quote:
            logger.handlers.sort(key=lambda one: one is not handler)  # before a run that may
        if logger.level == logging.NOTSET:
            logger.setLevel(logging.INFO)
    try:
        yield context
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.removeHandler(handler)
            logger.setLevel(level)
        handler.close()


def _plain(value: Any) -> Any:
    """Return numbers of NumPy as numbers, anything else as text."""
    return _finite(value.item()) if isinstance(value, np.generic) else str(value)


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


#: What terminals take for colours.
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class LinesToLog(io.TextIOBase):
    """A stream whose lines become records ``event`` of a log, at level ``info``: for what another package prints."""

    def __init__(self, logger: logging.Logger, event: str) -> None:
        self._logger, self._event, self._begun = logger, event, ""

    def writable(self) -> bool:
        """Return True: it takes text."""
        return True

    def write(self, text: str) -> int:
        """Record the lines that ``text`` completes."""
        *lines, self._begun = (self._begun + text).split("\n")
        for line in filter(None, (_COLOURS.sub("", line).strip() for line in lines)):
            self._logger.info("%s", line, extra={"event": self._event})
        return len(text)
