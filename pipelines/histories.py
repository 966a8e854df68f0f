"""The raw examples of each member of a run, read again from its source, with the updates and purges in between.

A run is a mapping from keys to members; a run without keys has one, whose key is None.

Invariant: nothing that a run has computed is trusted but where it was in its source. Each member has its part of every
update, whose files are read again, like the source. A chapter begins at the state that it went on from, which the audit
of the chapter before has checked.
"""

from __future__ import annotations

import logging
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from pipelines.chapters import begins_from, earlier, run_of
from pipelines.config import Config
from pipelines.run_folder import RunFolder, fitting
from pipelines.running.keyed import StreamsOfKeys, streams_of
from pipelines.running.plans import PlanLog, features_of, require_same_data
from pipelines.saved_runs import config_of, last_state, open_members, open_stream, states_of
from pipelines.updating.changes import RULES, StateNames
from pipelines.updating.lists import Examples, Lists, Missing, open_deletions, open_insertions
from pipelines.updating.logs import Logs, find_changes
from raydt.errors import InputError, ModelFileError, message_of
from raydt.examples.updates import NEWEST_RULES, Features, History, history_of_live
from raydt.folders.checkpoint import CheckpointStore, read_checkpoint
from raydt.keyed.groups import Key, in_order
from raydt.keyed.packing import Member, SavedKeys, live
from raydt.learners import learners, traits_of
from raydt.messages import message
from raydt.sessions.saved_model import BY_KEY, SavedModel
from raydt.sources.base import Source
from raydt.sources.files.jsonl import Dialect
from raydt.sources.live.base import HistoryGoneError
from raydt.sources.live.followed import FollowedSource
from raydt.streams.base import Replay

log = logging.getLogger(__name__)

Histories = dict[Member, Replay]
#: In the place of an update: a purge, which has removed the keys without a live example.
_PURGE = "purge"


class EndedRun(NamedTuple):
    """The last state of a run, and the raw examples of its members."""

    config: Config
    members: SavedKeys
    features: Features
    histories: Histories
    streams: StreamsOfKeys  #: Where they have come to.
    only: Member  #: The one member that is wanted; None: all.
    gone: HistoryGoneError | None  #: Why the examples are those stored in the state, if the source does not keep them.
    stored: bool  #: The examples are those stored in the state.


def last_of(folder: RunFolder, key: str | None = None) -> EndedRun:
    """Return the last state of a finished run and its histories; InputError without one, or of another source.

    Where a live source does not keep any more what the run has read, and where the state is gone from which a chapter
    went on, the examples are those stored in the state, which a warning says.
    """
    config = config_of(folder).read_again()
    folder.require_saved()
    with naming_sound_state(config, folder):
        members = open_members(last_state(states_of(config, folder)), folder)
    source, stream = open_stream(config)
    require_same_data(config, members.meta, source, stream, folder)
    features, only = features_of(source, config.learner), None if key is None else members.find(key)
    gone: HistoryGoneError | None = None
    try:
        if (past := past_of(folder, source, members)) is not None:
            found, streams = histories(config, stream, members, past, only)
            return EndedRun(config, members, features, found, streams, only, None, False)
    except HistoryGoneError as error:
        log.warning("%s", message("verdicts.past_gone", reason=error.parts["problem"]).at(folder.location))
        gone, (_, stream) = error, open_stream(config)
    streams = streams_of(config, stream, only)
    stream.restore(members.components["stream"])
    return EndedRun(config, members, features, HistoryStart(members).begin(streams, only), streams, only, gone, True)


@contextmanager
def naming_sound_state(config: Config, folder: RunFolder) -> Iterator[None]:
    """Context in which the error of a damaged last state of a run names the newest sound one, if there is one."""
    try:
        yield
    except ModelFileError as error:
        states = states_of(config, folder)
        before = CheckpointStore(states, 1).numbers()[:-1]
        sound = next((number for number in reversed(before) if _is_sound(states.inside(str(number)))), None)
        if sound is None:
            raise
        place = states.inside(str(sound)).location
        remedy = message("verdicts.earlier_state", update=sound, path=shlex.quote(place))
        raise ModelFileError(error.problem, file=error.file, remedy=remedy) from error


def _is_sound(state: RunFolder) -> bool:
    try:
        read_checkpoint(state)
    except ModelFileError:
        return False
    return True


# Where a history begins: at the first row, or where a chapter went on.


@dataclass(frozen=True)
class HistoryStart:
    """The state that a chapter went on from; None of a run from its first row."""

    before: SavedKeys | None = None

    def begin(self, streams: StreamsOfKeys, only: Member) -> Histories:
        """Have the streams of members go to the beginning, and return the histories of their live examples there."""
        found: Histories = {}
        if self.before is None:
            return found
        for key in [*self.before] if only is None else [one for one in (only,) if one in self.before]:
            held = self.before.held(key)
            found[key] = replay = Replay(streams.begin(key, held["stream"]).source)
            updates = int(held["recorder"]["updates"])
            if live(held) or updates:
                replay.begin(live_then(self.before.saved(key), updates), updates)
        return found


def live_then(saved: SavedModel, updates: int) -> History:
    """Return the examples of a state after so many updates; those whose deletion waits in it have been deleted."""
    history = history_of_live(saved.arrays, saved.groups, saved.features)
    if not traits_of(saved.options).collects_updates or not len(history.id):
        return history
    store = saved.session().coordinator.store
    slots = store.find(history.id)
    waits = (slots < 0) | (store.born[slots] != history.inserted)  # an id that has come again has two examples
    return replace(history, deleted=np.where(waits, updates - 1, history.deleted))


def past_of(folder: RunFolder, source: Source, members: SavedKeys) -> HistoryStart | None:
    """Return where the history of the last state of a run or chapter begins, whose plans are read from now on.

    None, and a warning, where the state before is gone, or was purged. InputError if that has another digest than the
    chapter goes on from.
    """
    found = run_of(folder)
    if found is None or found[1] == 1:
        if isinstance(source, FollowedSource):
            source.plans = PlanLog(folder, grows=False)
        return HistoryStart()
    place = begins_from(folder)
    if place is None:
        log.warning("%s", message("verdicts.no_chapter_before").at(folder.location))
        return None
    before = open_members(place)
    if not before.has_digest(members.meta["chapter"]["digest_before"]):
        raise InputError(message("verdicts.other_chapter_before", before=place.location), file=folder.location)
    if isinstance(source, FollowedSource):
        source.plans = PlanLog(folder, grows=False, before=earlier(folder))
    return HistoryStart(before)


def histories(
    config: Config, stream: Any, members: SavedKeys, past: HistoryStart, only: Member = None
) -> tuple[Histories, StreamsOfKeys]:
    """Replay the rows of the source, and updates in between, up to the last state of a run for each member, or one.

    Keys are in the order of their groups, so that whoever compares them with a saved state reads each group once. Also
    returns the streams of the members, which have come to that state.
    """
    with fitting(members.place):
        stops = _stops(members, 0 if past.before is None else len(past.before.components["stream"].get("purges", ())))
    if getattr(stream, "table", None) is not None:
        stream.table.erased = lambda id: True  # the run has found out which deletions a receipt shows as done
    if past.before is not None:
        stream.restore(past.before.components["stream"])
    streams = streams_of(config, stream, only)
    found = past.begin(streams, only)
    for place, deletions, step in stops:
        for key, own, stop in streams.read(place, deletions):
            found.setdefault(key, Replay(own.source)).read(own, stop)
        if step is _PURGE:
            for key in [key for key, replay in found.items() if not replay.live]:
                del found[key]
                streams.forget(key)
        elif step is not None:
            with fitting(members.place):
                _RepeatedUpdate(config, streams, members, only, step, found).follow()
    pa.default_memory_pool().release_unused()  # what reading the source took, as much as the rows take themselves
    return {key: found[key] for key in (found if None in found else in_order(found))}, streams


def _stops(members: SavedKeys, begun: int) -> list[tuple[int, int, Any]]:
    """Return, in order, after which rows and deletions a run has been updated or purged, and where its state is.

    Without keys it is updates that are counted. With each is the step of its lineage, :data:`_PURGE`, or None for the
    state. ``begun`` purges came before the chapter.
    """
    at, lineage, unit = members.components["stream"], members.meta.get("lineage", []), members.unit
    purges = at.get("purges", [])[begun:]
    stops: list[tuple[int, int, Any]] = []
    for place in range(len(lineage) + 1):  # a purge stands behind the updates that it has met
        stops += [(int(row), int(deletions), _PURGE) for row, deletions, updates in purges if updates == place]
        stops += [(int(step[unit]), int(step.get("deletions", 0)), step) for step in lineage[place : place + 1]]
    end = at["row"] if unit == "row" else members.meta["offset"]
    return [*stops, (int(end), int(at.get("deletions", 0)), None)]


class _RepeatedUpdate:
    """One update of a lineage, which the histories of members take in.

    Where a list names no keys, an id is that of the key in whose history it lives.
    """

    def __init__(
        self,
        config: Config,
        streams: StreamsOfKeys,
        members: SavedKeys,
        only: Member,
        step: Mapping[str, Any],
        histories: Histories,
    ) -> None:
        self._config, self._streams, self._members, self._only = config, streams, members, only
        self._step, self._histories = step, histories
        self._features = features_of(streams.stream.source, config.learner)
        self._column: str | None = members.meta.get(BY_KEY)

    def follow(self) -> None:
        """Replay the update, and have the streams of its members follow it; InputError if a file changed, or is gone.

        Histories of keys that begin are added.
        """
        files: dict[str, Any] = self._step["files"]
        named, run = files.get("changes", list(files.values())), self._members.place
        if any(file["path"] is None for file in named):
            raise InputError(message("updates.in_memory", updates=self._step["offset"]), file=run)
        told = {"updates": self._step["offset"], "files": " and ".join(file["path"] for file in named)}
        try:
            entry = self._logs(named) if "changes" in files else self._lists(files)
            if entry is not None:
                self._replay(entry)
        except InputError as error:
            said = message("updates.unreadable", **told, problem=message_of(error))
            raise InputError(said, file=run) from error
        if entry is None:
            raise InputError(message("updates.changed", **told), file=run)

    def _lists(self, files: Mapping[str, Any]) -> Lists | None:
        """Open the lists of the update; None if a file has changed."""
        common, names = self._common()
        # Of the history of one key alone, ids of others are missing.
        missing: Missing = files.get("delete", {}).get("missing", "error") if self._column is None else "skip"
        lists = Lists(common, names, self._column, self._members.kind, self._examples, missing)
        if (file := files.get("delete")) is not None:
            listed = open_deletions(file["path"], names)
            if listed.file.content_hash() != file["sha256"]:
                return None
            lists.delete(listed, self._histories)
        if (file := files.get("insert")) is not None:
            source = open_insertions(file["path"], file["kind"], common, names, self._column)
            if source.identity().fingerprint != file["fingerprint"]:
                return None
            lists.insert(source)
        return lists

    def _logs(self, files: Sequence[Mapping[str, Any]]) -> Logs | None:
        """Open the change logs of the update; None if a file has changed."""
        (common, names), read_as = self._common(), self._step["read_as"]
        found = [one for file in files for one in find_changes([file["path"]], file["kind"], common, names)]
        if [one.sha256 for one in found] != [file["sha256"] for file in files]:
            return None
        return Logs(found, common, names, read_as["spelling"], read_as["on_error"], self._column)

    def _replay(self, entry: Lists | Logs) -> None:
        """Replay what members have of a source of changes, and have their streams follow it."""
        table = getattr(self._streams.stream, "table", None)
        for key in entry.keys if self._only is None else [key for key in entry.keys if key == self._only]:
            then, names, replay, own = self._of(key)
            seq, changes = int(then.meta["offset"]), entry.of(key, then, names)
            deleted, inserted = changes.replay(replay, None if seq or key is None else self._config.stream.warmup)
            gone, after = own.names_of(deleted), changes.component(replay.living)
            own.follow_update(deleted, inserted, changes.seq - seq, after, len(changes.saved.classes))
            if table is not None:  # it is followed, and knows the keys of its ids
                table.follow_update(key, gone, own.names_of(inserted))

    def _common(self) -> tuple[SavedModel, StateNames]:
        """Return what the state before the update says of all members."""
        common = self._before(self._streams.stream, int(self._step["offset"]), 0)
        text = self._column if self._column is not None and self._members.kind == "text" else None
        return common, replace(StateNames.of(common), text_key=text)

    def _of(self, key: Member) -> tuple[SavedModel, StateNames, Replay, Any]:
        """Return what a state before the update says of a member, which may begin, with its history and stream."""
        own = self._streams.of(key)
        replay = self._histories.setdefault(key, Replay(own.source))
        then = self._before(own, own.state()["seq"], replay.next_id)
        names = StateNames.of(then)
        names.subjects.keep(*replay.living)
        return then, names, replay, own

    def _before(self, stream: Any, offset: int, next_id: int) -> SavedModel:
        """Return what the state before the update says, by the stream as it was then."""
        config, files, at, source = self._config, self._step["files"], stream.state(), stream.source
        own = self._step.get("read_as") or files.get("insert") or files.get("delete") or {}
        columns = {"label": own.get("label"), "id": own.get("id") or source.id_column, "id_kind": source.id_kind}
        columns |= {"subject": source.subject_column, "subject_kind": source.subject_kind, "weight": own.get("weight")}
        meta = {"kind": "state", "columns": columns, "next_id": next_id, "offset": offset}
        # An update without rules is of an earlier build, which read its files as those of the run, or by later rules.
        rules = self._step.get(RULES, getattr(config.source, "rules", NEWEST_RULES))
        meta |= {**Dialect.recorded(config.source), RULES: rules}
        classes, categories = source.classes[: at["n_classes"]], at["source"].get("categories", {})
        learner = learners()[config.learner.kind]
        return SavedModel(learner, config.learner, self._features, classes, categories, meta, {"stream": at})

    def _examples(self, key: Key) -> Examples | None:
        """Return the live examples of a key; None without any."""
        replay = self._histories.get(key)
        if replay is None or not replay.live:
            return None
        state = self._streams.of(key).state()
        return state, replay.living[0], lambda: self._of(key)[1].subjects
