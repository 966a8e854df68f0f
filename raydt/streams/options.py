"""Options of any stream model, selected by ``model``. A model is added in its own file and listed here."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Discriminator

from raydt.sources.base import Source
from raydt.streams.base import Stream
from raydt.streams.deletion_log import Changelog, DeletionLog, RandomUpdates
from raydt.streams.row_stream import RowStreamOptions
from raydt.streams.windows import Batches, Incremental, SlidingWindow, TimeWindow, Training

#: Options of any stream model.
StreamOptions = Annotated[
    Incremental | SlidingWindow | RandomUpdates | Batches | TimeWindow | Changelog | DeletionLog | Training,
    Discriminator("model"),
]


def make_stream(options: RowStreamOptions, source: Source, base_dir: str | Path = ".") -> Stream:
    """Return the stream over a fresh ``source``; ConfigError if they do not fit, InputError for a bad log."""
    return options.make(source, base_dir)
