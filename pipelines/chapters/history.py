"""The raw examples of a chapter for an audit: those of the state that it went on from, and what came in it.

Invariant: what came in the chapter is read again from the source, by its plans. The state before is what the audit of
the chapter before has checked: so audits of all chapters reach back to the first row.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from pipelines.chapters.chapter import begins_from, earlier
from pipelines.run_folder import RunFolder
from pipelines.running.plans import PlanLog
from pipelines.saved_runs import open_state
from raydt.errors import InputError
from raydt.examples.features import Features
from raydt.examples.history import History, history_of_live
from raydt.learners import traits_of
from raydt.messages import message
from raydt.sessions.saved_model import SavedModel, groups_of
from raydt.streams.base import Stream
from raydt.streams.history import Replay

log = logging.getLogger(__name__)


def history_of_chapter(
    folder: RunFolder, stream: Stream, features: Features, meta: Mapping[str, Any], components: Mapping[str, Any]
) -> History:
    """Return the history of a chapter with a last state of this ``meta`` and ``components``; ``stream`` goes there.

    Where the state before is gone, or was purged, it is what the last state itself holds, which a warning says.
    InputError if the chapter before has another digest than this one goes on from.
    """
    before = begins_from(folder)
    if before is None:
        log.warning("%s", message("verdicts.no_chapter_before").at(folder.location))
        stream.restore(components["stream"])
        return history_of_live(components["coordinator"], groups_of(components), features)
    saved, place = open_state(before)
    if saved.session().digest() != meta["chapter"]["digest_before"]:
        raise InputError(message("verdicts.other_chapter_before", before=place.location), file=folder.location)
    replay = Replay(stream.source)
    replay.begin(live_then(saved, int(saved.meta["offset"])), int(saved.meta["offset"]))
    source: Any = stream.source
    source.plans = PlanLog(folder, grows=False, before=earlier(folder))
    stream.restore(saved.components["stream"])
    replay.read(stream, int(meta["offset"]))
    return replay.result()


def live_then(saved: SavedModel, updates: int) -> History:
    """Return the examples of a state after so many updates; those whose deletion waits in it have been deleted."""
    history = history_of_live(saved.arrays, saved.groups, saved.features)
    if not traits_of(saved.options).collects_updates or not len(history.id):
        return history
    store = saved.session().coordinator.store
    slots = store.find(history.id)
    waits = (slots < 0) | (store.born[slots] != history.inserted)  # an id that has come again has two examples
    return replace(history, deleted=np.where(waits, updates - 1, history.deleted))
