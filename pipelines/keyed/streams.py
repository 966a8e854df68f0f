"""The stream of each key while the rows of a source are read, without models: for checks and audits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from pipelines.config import Config
from pipelines.id_check import MOST_UPDATES, Found, without_remedy
from raydt.errors import InputError
from raydt.examples.updates import DELETE, DELETE_VALUE, DUPLICATE_ID, INSERT, QUERY, UNKNOWN_ID, UPDATE
from raydt.keyed.groups import Key
from raydt.keyed.source import KeySource, SharedSource
from raydt.keyed.stream import KeyedStream
from raydt.learners import traits_of
from raydt.streams.base import Stream
from raydt.streams.refused import update_error

#: Refused updates that a check describes.
_MOST_DESCRIBED = 10


def streams_of(
    config: Config, stream: KeyedStream, at: Mapping[str, Any] | None = None, only: Key | None = None
) -> Iterator[tuple[Key, Stream]]:
    """Read rows up to a saved state of the stream (None: all) and yield each key whenever its stream has new updates.

    Its batches are to be read then. ``only`` names the one key that is wanted.
    """
    stop = None if at is None else int(at["row"])
    shared = SharedSource(stream.source, traits_of(config.learner).reading, stream.log)
    config.stream.make(KeySource(shared))  # which has the source read event times, if it needs some
    found: dict[Key, tuple[KeySource, Stream]] = {}
    for batch in stream.batches(config.cluster.batch_size):
        part = batch if stop is None else batch.before(stop)
        for key, rows, due in shared.split(part.rows, part.due):
            if key is None or (only is not None and key != only):
                continue
            if key not in found:
                source = KeySource(shared)
                found[key] = source, config.stream.make(source)
            source, own = found[key]
            source.give(rows, due)
            yield key, own
        if at is not None and stop is not None and batch.stop >= stop and stream.deletions >= at.get("deletions", 0):
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
        for key, own in streams_of(config, stream):
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
