"""Who reads the rows of the warm-up: the driver, which sends them, or each shard for itself.

One decision for ``validate`` and for a run. Wherever rows are read, the updates and the model are the same bit for bit.
"""

from __future__ import annotations

import logging
import os
import re
from typing import Any, NamedTuple

from actors.cluster import starts_ray
from pipelines.config import Config
from raydt.examples.features import Features
from raydt.learners import traits_of
from raydt.messages import Message, message
from raydt.presentation.words import counted
from raydt.sessions.local_phase import holds, most_cells
from raydt.sources.base import Source
from raydt.sources.feature_reader import Opening
from raydt.streams.base import Stream

log = logging.getLogger(__name__)

#: Updates in a message of the warm-up if the shards read the rows.
WARMUP_ROWS = 1 << 17


class Reading(NamedTuple):
    """Who reads the rows of the warm-up."""

    divided: bool  #: Each shard reads what it needs.
    sentence: Message | None  #: Who reads, and why; None where there is no shard to which rows would go.


def reading_of(config: Config, source: Source, features: Features) -> Reading:
    """Decide who reads the rows of the warm-up, by the place of the config (:mod:`pipelines.placement`)."""
    traits, warmup = traits_of(config.learner), config.stream.warmup
    rows = warmup if source.n_rows is None else min(warmup, source.n_rows)
    most = most_cells(traits.divided, config.placement.plan)
    sure = most is None or not features.sparse
    if (
        config.cluster.backend == "in_process"
        or getattr(config.source, "key", None) is not None  # each of these models is in one process
        or not rows
        or not source.complete
        or (sure and holds(features, most, rows, 0))
    ):
        return Reading(False, None)
    why = None
    if not traits.reads:
        why = message("runs.whole_rows", learner=config.learner.kind)
    elif holds(features, most, rows, rows):  # with one in each row
        why = message("runs.unknown_ones")
    if why is not None:
        return Reading(False, message("runs.rows_sent", why=why))
    what = message("runs.all_columns" if traits.reads == "rows" else "runs.own_columns")
    there = "runs.rows_read" if _is_everywhere(config) else "runs.rows_read_there"
    return Reading(True, message(there, rows=counted(rows, "row"), what=what))


def _is_everywhere(config: Config) -> bool:
    """Return True if all processes surely see the data: on one machine, at a URI, or where rows are generated."""
    named = getattr(config.source, "path", [])
    remote = [
        re.match(r"(?!file:)[A-Za-z][A-Za-z0-9+.-]+://", path)
        for path in ([named] if isinstance(named, str) else named)
    ]
    return starts_ray(config.cluster.address) or all(remote)


def divide(config: Config, session: Any, stream: Stream, features: Features) -> bool:
    """Have the shards of a session on Ray read the rows of the warm-up, if they can; the stream is at its beginning."""
    source: Any = stream.source
    if not reading_of(config, source, features).divided:
        return False
    reading = traits_of(config.learner).reading
    opening = Opening(config.source, os.getcwd(), reading, source.places, source.identity().fingerprint)
    divided = session.divide(source, opening, config.stream.warmup)
    if isinstance(divided, str):
        why = message("sources.other_here", name=divided)
        log.warning("%s", message("runs.rows_sent", why=why), extra={"event": "rows_sent"})
        return False
    log.info("shards read the rows of the warm-up", extra={"event": "rows_read"})
    stream.begin_with(divided.rows())
    return True


def divide_ids(session: Any, stream: Any) -> None:
    """Have the shards of a session on Ray keep the text ids, if there are many; the stream is restored afterwards."""
    parts = getattr(session, "id_parts", lambda: None)()
    if parts is not None:
        stream.divide_ids(parts)
