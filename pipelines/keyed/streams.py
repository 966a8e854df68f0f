"""The stream of each key while the rows of a source are read, without models: for checks and audits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from pipelines.config import Config
from pipelines.id_check import MOST_UPDATES, Found, without_remedy
from raydt.errors import InputError
from raydt.examples.updates import DELETE, DELETE_VALUE, DUPLICATE_ID, INSERT, QUERY, UNKNOWN_ID, UPDATE
from raydt.keyed.groups import Key
from raydt.keyed.source import KeySource, SharedSource
from raydt.keyed.stream import ROWS, KeyedBatch, KeyedStream
from raydt.learners import traits_of
from raydt.streams.base import Stream
from raydt.streams.refused import update_error

#: Refused updates that a check describes.
_MOST_DESCRIBED = 10


class StreamsOfKeys:
    """The stream of each key, while the rows of a source are read; ``only`` names the one key that is wanted."""

    def __init__(self, config: Config, stream: KeyedStream, only: Key | None = None) -> None:
        self.stream = stream
        self._config, self._only = config, only
        self._shared = SharedSource(stream.source, traits_of(config.learner).reading, stream.log)
        config.stream.make(KeySource(self._shared))  # which has the source read event times, if it needs some
        self._found: dict[Key, tuple[KeySource, Stream]] = {}
        self._batches = stream.batches(config.cluster.batch_size * ROWS)
        self._rest: KeyedBatch | None = None  # the rows of the last batch that were not wanted yet

    def of(self, key: Key) -> tuple[KeySource, Stream]:
        """Return the source and the stream of a key, which may begin."""
        if key not in self._found:
            source = KeySource(self._shared)
            self._found[key] = source, self._config.stream.make(source)
        return self._found[key]

    def forget(self, key: Key) -> None:
        """Have a key begin anew with its next row."""
        self._found.pop(key, None)

    def read(self, stop: int | None = None, deletions: int = 0) -> Iterator[tuple[Key, Stream]]:
        """Read rows up to ``stop`` (None: all) and yield each key whenever its stream has new updates.

        Its batches are to be read then. ``deletions`` are the entries of a log that belong to the rows before ``stop``.
        """
        done = 0
        while stop is None or done < stop or self.stream.deletions < deletions:
            batch = self._rest if self._rest is not None else next(self._batches, None)
            if batch is None:
                return
            part, self._rest = (batch, None) if stop is None else batch.cut(stop)
            done = part.stop
            for key, rows, due in self._shared.split(part.rows, part.due):
                if key is not None and self._only in (None, key):
                    source, own = self.of(key)
                    source.give(rows, due)
                    yield key, own
            if self._rest is not None:
                return


def search_keys(config: Config, stream: KeyedStream, skip: bool) -> Found | None:
    """Find the updates of any key whose ids its model refuses; as :func:`pipelines.id_check.search`.

    Updates are numbered within their key.
    """
    if stream.source.id_kind == "row":
        return None
    live: defaultdict[Key, set[int]] = defaultdict(set)
    found = Found(0, complete=True)
    try:
        for key, own in StreamsOfKeys(config, stream).read():
            for batch in own.batches(config.cluster.batch_size):
                for place, (op, code) in enumerate(zip(batch.op.tolist(), batch.id.tolist(), strict=True)):
                    if op in (QUERY, DELETE_VALUE):
                        found.complete &= op == QUERY
                    elif (op == INSERT) == (code in live[key]):
                        if batch.tolerated is not None and batch.tolerated[place]:
                            continue
                        reason = DUPLICATE_ID if op == INSERT else UNKNOWN_ID
                        error = update_error(own, batch, place, reason)
                        found.refused += 1
                        if len(found.errors) < _MOST_DESCRIBED:
                            found.errors.append(without_remedy(error) if skip else error)
                        if not skip and found.stops_at is None:
                            found.stops_at = batch.start + place
                    elif op != UPDATE:
                        (live[key].remove if op == DELETE else live[key].add)(code)
                found.updates = (found.updates or 0) + len(batch)
            own.take_skipped()
            if (found.updates or 0) >= MOST_UPDATES:
                found.complete = False
                break
    except InputError as error:
        found.errors.append(without_remedy(error) if skip else error)
        found.stops_at = found.updates if found.stops_at is None else found.stops_at
    return found
