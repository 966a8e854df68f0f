"""The log of a run: one JSON object per line."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone

from pipelines.run_folder import RunFolder

#: Loggers whose records belong to a run.
OURS = ("raydt", "actors", "pipelines")

_PLAIN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonFormatter(logging.Formatter):
    """A record as one line of JSON: ``time``, ``level``, ``logger``, ``message`` and the record's extra fields."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        entry = {
            "time": datetime.fromtimestamp(record.created, timezone.utc).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **{key: value for key, value in vars(record).items() if key not in _PLAIN},
        }
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str)


@contextmanager
def log_to(folder: RunFolder) -> Iterator[None]:
    """Write the records of this process to ``log.jsonl`` of ``folder`` while the block runs."""
    stream = folder.open_text("log.jsonl")
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    loggers = [logging.getLogger(name) for name in OURS]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        if logger.level == logging.NOTSET:
            logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.removeHandler(handler)
            logger.setLevel(level)
        stream.close()
