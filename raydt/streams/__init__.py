"""In which order examples are inserted and deleted: stream models over a source."""

from raydt.streams.base import Skipped, Stream
from raydt.streams.batches import Batches
from raydt.streams.changelog import Changelog
from raydt.streams.deletion_log import DeletionLog
from raydt.streams.history import history_of
from raydt.streams.incremental import Incremental
from raydt.streams.options import StreamOptions, make_stream
from raydt.streams.random_updates import RandomUpdates, warmup
from raydt.streams.row_stream import RowStreamOptions
from raydt.streams.sliding_window import SlidingWindow
from raydt.streams.time_window import TimeWindow
from raydt.streams.training import Training

__all__ = [
    "Batches",
    "Changelog",
    "DeletionLog",
    "Incremental",
    "RandomUpdates",
    "RowStreamOptions",
    "Skipped",
    "SlidingWindow",
    "Stream",
    "StreamOptions",
    "TimeWindow",
    "Training",
    "history_of",
    "make_stream",
    "warmup",
]
