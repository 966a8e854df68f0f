"""Where the history of models by key begins that an audit reads: at the first row, or where a chapter went on.

Invariant: as of :mod:`pipelines.chapters.history`.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from pipelines.chapters.chapter import begins_from, earlier, run_of
from pipelines.chapters.history import live_then
from pipelines.keyed.streams import StreamsOfKeys
from pipelines.run_folder import RunFolder
from pipelines.running.plans import PlanLog
from raydt.errors import InputError
from raydt.keyed.groups import Key
from raydt.keyed.saved import SavedKeys, live, open_keys
from raydt.messages import message
from raydt.sources.base import Source
from raydt.sources.live.followed import FollowedSource
from raydt.streams.history import Replay

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PastOfKeys:
    """The state of all keys that a chapter went on from; None of a run from its first row."""

    before: SavedKeys | None = None

    def begin(self, streams: StreamsOfKeys, only: Key | None) -> dict[Key, Replay]:
        """Have the streams of keys go to the beginning, and return the histories of their live examples there."""
        found: dict[Key, Replay] = {}
        if self.before is None:
            return found
        for key in [*self.before] if only is None else [one for one in (only,) if one in self.before]:
            held = self.before.held(key)
            source, own = streams.of(key)
            source.restore(held["stream"]["source"])
            source.go_to(int(held["stream"]["row"]))
            own.restore(held["stream"])
            found[key] = replay = Replay(source)
            if live(held) or int(held["recorder"]["updates"]):
                updates = int(held["recorder"]["updates"])
                replay.begin(live_then(self.before.saved(key), updates), updates)
        return found


def past_of_keys(folder: RunFolder, source: Source, saved: SavedKeys) -> PastOfKeys | None:
    """Return where the history of the last state of a run or chapter begins, whose plans are read from now on.

    None, and a warning, where the state before is gone. InputError if that has another digest than the chapter goes on
    from.
    """
    found = run_of(folder)
    if found is None or found[1] == 1:
        if isinstance(source, FollowedSource):
            source.plans = PlanLog(folder, grows=False)
        return PastOfKeys()
    place = begins_from(folder)
    before = None if place is None else open_keys(place.root, filesystem=place.filesystem)
    if place is None or before is None:
        log.warning("%s", message("verdicts.no_chapter_before").at(folder.location))
        return None
    if before.figures.digest != saved.meta["chapter"]["digest_before"]:
        raise InputError(message("verdicts.other_chapter_before", before=place.location), file=folder.location)
    if isinstance(source, FollowedSource):
        source.plans = PlanLog(folder, grows=False, before=earlier(folder))
    return PastOfKeys(before)
