"""In which order examples are inserted and deleted: stream models over a source."""

from raydt.streams.base import Skipped, Stream
from raydt.streams.changelog import ChangelogOptions
from raydt.streams.deletion_log import DeletionLogOptions
from raydt.streams.history import history_of
from raydt.streams.incremental import IncrementalOptions
from raydt.streams.options import AnyStreamOptions, make_stream
from raydt.streams.random_updates import RandomUpdatesOptions, warmup
from raydt.streams.row_stream import StreamOptions
from raydt.streams.sliding_window import SlidingWindowOptions

__all__ = [
    "AnyStreamOptions",
    "ChangelogOptions",
    "DeletionLogOptions",
    "IncrementalOptions",
    "RandomUpdatesOptions",
    "Skipped",
    "SlidingWindowOptions",
    "Stream",
    "StreamOptions",
    "history_of",
    "make_stream",
    "warmup",
]
