"""The audit of models by key: each key's state against the raw rows of its key, read again from the source.

Invariant: as of :mod:`pipelines.auditing`. The rows are told apart by key as they are for a run; all else of the
history is the plain replay of a stream.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, cast

from pipelines.chapters import begins_from, earlier, live_then, run_of
from pipelines.config import Config
from pipelines.following import LivingOfKey, compare_keys_with_table
from pipelines.keyed.recorder import StreamsOfKeys, job_of
from pipelines.keyed.updating import ListedDeletions, StreamsOfKey, rows_by_key, rows_of_changes, source_of_key
from pipelines.living import Living, living_of, rebuilt_digest
from pipelines.run_folder import RunFolder, fitting
from pipelines.running.plans import PlanLog, features_of, require_same_data
from pipelines.saved_runs import audit_saved, folder_of_model, keyed_stream, last_state, no_rows, open_stream, states_of
from pipelines.updating.change_files import find_changes
from pipelines.updating.changes import (
    StateNames,
    insertions_of,
    no_deletions,
    no_insertions,
    open_insertions,
    read_deletions,
    sound_rows,
)
from pipelines.updating.lineage import batch_of, names_after, read_again, replay_changes, state_before
from raydt.arrays.digest import digest
from raydt.arrays.elementary import Ints
from raydt.audits.recorded_tree import AuditReport
from raydt.errors import InputError, ModelFileError
from raydt.examples.store import Subjects
from raydt.examples.updates import Features, History
from raydt.keyed.groups import Key, digest_of, in_order
from raydt.keyed.members import pooled
from raydt.keyed.packing import SavedKeys, StoredKeys, live, open_keys
from raydt.keyed.session import KeyedSession, KeyFailedError, NewTableRows
from raydt.keyed.source import SharedSource
from raydt.keyed.stream import ROWS, KeyedStream
from raydt.learners import learners, traits_of
from raydt.learners.base import Learner, LearnerOptions, audit
from raydt.messages import Message, message
from raydt.redaction import quoted
from raydt.sessions.receipt import trained_from_nothing
from raydt.sessions.receipt_chain import Key as ChainKey
from raydt.sessions.receipt_chain import about
from raydt.sessions.saved_model import BY_KEY, SavedModel
from raydt.sources.base import Rows, Source
from raydt.sources.files.datafile import TableInMemory
from raydt.sources.live.base import LiveOptions
from raydt.sources.live.followed import FollowedSource
from raydt.streams.base import Replay, Stream, known

# Where the history of models by key begins that an audit reads: at the first row, or where a chapter went on.
#
# Invariant: as of :mod:`pipelines.chapters`.

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


# The updates in the life of a run of models by key, repeated for an audit: each key has its part of every update.
#
# Invariant: as of :mod:`pipelines.updating.lineage`. Where a list names no keys, an id is that of the key in whose
# history it lives.

Histories = dict[Key, Replay]


class UpdateOfHistories:
    """One update of a lineage, which the histories of keys take in."""

    def __init__(self, config: Config, streams: StreamsOfKeys, saved: SavedKeys, only: Key | None) -> None:
        self._config, self._streams, self._saved, self._only = config, streams, saved, only
        self._features = features_of(streams.stream.source, config.learner)
        self._column = str(saved.meta[BY_KEY])

    def follow(self, step: Mapping[str, Any], histories: Histories) -> None:
        """Replay an update, and have the streams of its keys follow it; InputError if a file changed, or is gone.

        Histories of keys that begin are added to ``histories``.
        """
        self._step, self._histories = step, histories
        self._common = state_before(self._config, self._features, self._streams.stream, step, int(step["offset"]), 0)
        self._names = replace(
            StateNames.of(self._common), text_key=self._column if self._saved.kind == "text" else None
        )
        work = self._changes if "changes" in step["files"] else self._lists
        read_again(step, self._saved.place, work)

    def _lists(self, _: list[Any]) -> bool | None:
        """Replay an update of ids and rows; None if a file has changed."""
        files, common, names = self._step["files"], self._common, self._names
        deleted, inserted = dict[Key, TableInMemory](), dict[Key, Rows]()
        shared: SharedSource | None = None
        if (file := files.get("delete")) is not None:
            living = _KeysOfHistories(self._streams, self._histories, self._saved.kind, self._then)
            listed = ListedDeletions(living, names, file["path"], self._column)
            if listed.log.file.content_hash() != file["sha256"]:
                return None
            deleted = listed.by_key()
        if (file := files.get("insert")) is not None:
            source = open_insertions(file["path"], file["kind"], common, names, self._column)
            if source.identity().fingerprint != file["fingerprint"]:
                return None
            shared = SharedSource(source, traits_of(common.options).reading)
            inserted = rows_by_key(shared, sound_rows(source))
        for key in self._wanted({*deleted, *inserted}):
            then, own_names, replay, own = self._of(key)
            gone = no_deletions()
            if key in deleted:
                gone = read_deletions(deleted[key], own_names, replay.find, "skip")
            new = no_insertions(then, own_names, gone)
            if shared is not None and key in inserted:
                own_source = source_of_key(shared, then, own_names)
                own_source.give(inserted[key])
                new = insertions_of(own_source, None, then, own_names, replay.find, gone)
            seq = int(then.meta["offset"])
            batch = batch_of(seq, gone, new, own.source.positive is not None)
            replay.add(batch if seq else replace(batch, warmup=self._config.stream.warmup))
            known = names_after(own_names, new, seq + len(gone.ids), replay.living)
            self._follow(key, own, gone.ids, new.ids, len(batch), known, len(new.classes))
        return True

    def _changes(self, files: list[Any]) -> bool | None:
        """Replay an update by change logs; None if a file has changed."""
        read_as, common, names = self._step["read_as"], self._common, self._names
        found = [one for file in files for one in find_changes([file["path"]], file["kind"], common, names)]
        if [one.sha256 for one in found] != [file["sha256"] for file in files]:
            return None
        spelling, on_error = read_as["spelling"], read_as["on_error"]
        parts, _, _ = rows_of_changes(found, common, names, spelling, self._column, skip=on_error == "skip")
        for key in self._wanted(set(parts)):
            then, own_names, replay, own = self._of(key)
            seq = int(then.meta["offset"])
            streams = StreamsOfKey(then, own_names, spelling, on_error, None if seq else self._config.stream.warmup)
            streams.parts = parts[key]
            mine = [one for one in found if one.path in parts[key]]
            gone, new, begin, updates = replay_changes(streams, mine, replay, seq)
            known = names_after(own_names, new, begin, replay.living)
            self._follow(key, own, gone, new.ids, updates, known, len(new.classes))
        return True

    def _follow(
        self, key: Key, own: Any, deleted: Ints, inserted: Ints, updates: int, names: Any, n_classes: int
    ) -> None:
        """Have the stream of a key follow an update, and know what a table that is followed has after it."""
        gone = own.names_of(deleted)
        own.follow_update(deleted, inserted, updates, names, n_classes)
        if (table := self._streams.stream.table) is not None:
            table.follow_update(key, gone, own.names_of(inserted))

    def _wanted(self, keys: set[Key]) -> list[Key]:
        return [key for key in keys if self._only in (None, key)]

    def _of(self, key: Key) -> tuple[SavedModel, StateNames, Replay, Stream]:
        """Return what a state before the update says of a key, which may begin, with its history and stream."""
        _, own = self._streams.of(key)
        replay = self._histories.setdefault(key, Replay(own.source))
        then = self._then(own, replay)
        names = StateNames.of(then)
        names.subjects.keep(*replay.living)
        return then, names, replay, own

    def _then(self, own: Stream, replay: Replay) -> SavedModel:
        return state_before(self._config, self._features, own, self._step, own.state()["seq"], replay.next_id)


class _KeysOfHistories:
    """The keys of histories, as :class:`pipelines.keyed.updating.KeysWithExamples`."""

    def __init__(
        self,
        streams: StreamsOfKeys,
        histories: Histories,
        kind: str,
        then: Callable[[Stream, Replay], SavedModel],
    ) -> None:
        self._streams, self._histories, self.kind, self._then = streams, histories, kind, then

    def __iter__(self) -> Iterator[Key]:
        return iter(self._histories)

    def of(self, key: Key) -> tuple[Mapping[str, Any], Ints, Callable[[], Subjects]] | None:
        """Return the state of a key's stream, the ids of its live examples, and their subjects; None without any."""
        replay = self._histories.get(key)
        if replay is None or not replay.live:
            return None
        _, own = self._streams.of(key)
        return own.state(), replay.living[0], lambda: self._subjects(own, replay)

    def _subjects(self, own: Stream, replay: Replay) -> Subjects:
        subjects = StateNames.of(self._then(own, replay)).subjects
        subjects.keep(*replay.living)
        return subjects


#: Failures that a report lists.
_MOST_FAILURES = 50
#: In the place of an update: a purge, which has removed the keys without a live example.
_PURGE = "purge"


def histories(
    config: Config, stream: KeyedStream, saved: SavedKeys, past: PastOfKeys, only: Key | None = None
) -> tuple[dict[Key, Replay], StreamsOfKeys]:
    """Replay the rows of the source, and updates in between, up to the last state of a run for each key, or for one.

    Keys are in the order of their groups, so that whoever compares them with a saved state reads each group once. Also
    returns the streams of the keys, which have come to that state.
    """
    with fitting(saved.place):
        stops = _stops(saved, 0 if past.before is None else len(past.before.components["stream"].get("purges", ())))
    if stream.table is not None:
        stream.table.erased = lambda id: True  # the run has found out which deletions a receipt shows as done
    if past.before is not None:
        stream.restore(past.before.components["stream"])
    streams = StreamsOfKeys(config, stream, only)
    found = past.begin(streams, only)
    for row, deletions, step in stops:
        for key, own in streams.read(row, deletions):
            found.setdefault(key, Replay(own.source)).read(own)
        if step is _PURGE:
            for key in [key for key, replay in found.items() if not replay.live]:
                del found[key]
                streams.forget(key)
        elif step is not None:
            UpdateOfHistories(config, streams, saved, only).follow(step, found)
    return {key: found[key] for key in in_order(found)}, streams


def _stops(saved: SavedKeys, begun: int) -> list[tuple[int, int, Any]]:
    """Return, in order, after which rows and deletions a run has been updated or purged, and where its state is.

    With each the step of its lineage, :data:`_PURGE`, or None for the state. ``begun`` purges came before the chapter.
    """
    at, lineage = saved.components["stream"], saved.meta.get("lineage", [])
    purges = at.get("purges", [])[begun:]
    stops: list[tuple[int, int, Any]] = []
    for place in range(len(lineage) + 1):  # a purge stands behind the updates that it has met
        stops += [(int(row), int(deletions), _PURGE) for row, deletions, updates in purges if updates == place]
        stops += [(int(step["row"]), int(step.get("deletions", 0)), step) for step in lineage[place : place + 1]]
    return [*stops, (int(at["row"]), int(at.get("deletions", 0)), None)]


def audit_keys(
    config: Config, saved: SavedKeys, stream: KeyedStream, past: PastOfKeys | None, only: Key | None = None
) -> AuditReport:
    """Audit the last state of every key of a run, or of one; ModelFileError if there is no such key.

    Without a ``past``, each state is audited against its own examples.
    """
    if past is None:
        report, streams = audit_states(saved, only), StreamsOfKeys(config, stream, only)
        stream.restore(saved.components["stream"])
        known = PastOfKeys(saved).begin(streams, only)
    else:
        known, streams = histories(config, stream, saved, past, only)
        features = features_of(stream.source, config.learner)
        if only is not None and only not in saved:
            raise saved.unknown(only)
        report = together(_reports(config, saved, known, features, only), known if only is None else {})
    if not isinstance(config.source, LiveOptions):
        return report
    living: dict[Key, LivingOfKey] = {}
    for key, replay in known.items():
        source, own = streams.of(key)
        living[key] = LivingOfKey(replay.result(), cast(Any, own).names_of, source.state())
    compare_keys_with_table(report, config, saved, living, only)
    return report


def _reports(
    config: Config, saved: SavedKeys, known: dict[Key, Replay], features: Features, only: Key | None
) -> Iterator[tuple[Key, AuditReport]]:
    learner = learners()[config.learner.kind]
    for key in [only] if only is not None else saved.keys():
        if key not in known:
            yield key, AuditReport.malformed("key", message("keyed.no_rows", key=quoted(key)))
            continue
        history = known[key].result()
        yield key, _audited(saved, key, partial(_against, learner, config.learner, features, history))


def _against(learner: Learner, options: Any, features: Features, history: History, one: SavedModel) -> AuditReport:
    known = one.options == options and one.features == features  # by which the state was checked when it was read
    return audit(learner, options, features, len(one.classes), one.arrays, history, one.groups, checked=known)


def _audited(saved: SavedKeys, key: Key, work: Callable[[SavedModel], AuditReport]) -> AuditReport:
    """Audit one key; arrays that cannot be are a verdict, too."""
    try:
        return work(saved.saved(key))
    except ModelFileError as error:
        return AuditReport.malformed("key", error.parts["problem"])


def audit_states(saved: SavedKeys, only: Key | None) -> AuditReport:
    """Audit the state of each key, or of one, against its own examples."""
    keys = saved.keys() if only is None else [only]
    return together(((key, _audited(saved, key, audit_saved)) for key in keys), {})


def together(reports: Iterator[tuple[Key, AuditReport]], known: Mapping[Key, Replay]) -> AuditReport:
    """Return the report on all keys: the worst verdicts, sums of what was checked, and failures with their keys.

    A key that is ``known`` to have live examples and that no report is on is lost; one without was purged.
    """
    whole: AuditReport | None = None
    failures: list[Any] = []
    seen, failed, reasons = set[Key](), 0, dict[str, None]()
    for key, report in reports:
        seen.add(key)
        failed += not report.ok
        reasons[report.reason] = None
        failures += [message("keyed.failure", key=quoted(key), failure=one) for one in report.failures]
        if whole is None:
            whole = AuditReport(report.conformance, report.feasibility, report.reason)
        if report.conformance == "violated":
            whole.conformance = "violated"
        if report.feasibility == "violated":
            whole.feasibility = "violated"
        for name, count in report.checked.items():
            whole.checked[name] = whole.checked.get(name, 0) + count
        for name, value in report.worst.items():
            whole.worst[name] = max(whole.worst.get(name, value), value)
    if whole is None:
        whole = AuditReport("holds", "not_promised", message("keyed.none"))
    missing = [key for key, replay in known.items() if key not in seen and replay.live]
    if missing:
        whole.conformance, failed = "violated", failed + len(missing)
    whole.checked = {"keys": len(seen), **whole.checked}
    if len(reasons) > 1:
        whole.reason = message("keyed.verdicts_failed" if failed else "keyed.verdicts", keys=len(seen), failed=failed)
    lost = [message("keyed.lost", key=quoted(key)) for key in missing]
    whole.failures = [*lost, *failures][:_MOST_FAILURES]
    return whole


# ``verify`` of models by key: each key's model against one trained from nothing, and receipts against a state.


class OfState(NamedTuple):
    """Digest over the models of a state, that over models trained from nothing, live examples, and the options."""

    stated: str
    rebuilt: str | None  #: None where a model depends on the past.
    active: int
    options: LearnerOptions


def of_state(keys: SavedKeys, *, retrain: bool = True) -> OfState:
    """Compare the models of a state with the examples in it, if they are to be trained again."""
    options, rebuilt = keys.outline().options, None
    if retrain and traits_of(options).retrained:
        alive = [key for key in keys if live(keys.held(key))]
        rebuilt = digest_of({key: rebuilt_digest(keys.saved(key)) for key in alive})
    counted = keys.counted()
    return OfState(counted.digest, rebuilt, int(counted.active.sum()), options)


def of_run(folder: RunFolder, config: Config, stated: str) -> tuple[list[Message], str, str, int, int]:
    """Compare a run with its rows, read again from the source; results as of :func:`pipelines.auditing.verify_run`.

    ``stated`` is the digest of its summary.
    """
    folder.require_saved()
    keys = _opened(last_state(states_of(config, folder)))
    models = _opened(folder_of_model(folder.location))
    source, stream = open_stream(config)
    require_same_data(config, keys.meta, source, stream, folder)
    features, digests, same, inserted = features_of(source, config.learner), {}, True, 0
    past = past_of_keys(folder, source, keys) or PastOfKeys()
    for key, replay in histories(config, cast(Any, stream), keys, past)[0].items():
        history = replay.result()
        inserted += len(history.id)
        if key not in keys and not replay.live:  # purged
            continue
        saved = keys.saved(key)
        model = saved.session().model()
        same = same and digest(sorted(models.saved(key).arrays.items())) == digest(sorted(model.items()))
        if live(keys.held(key)):
            trained = trained_from_nothing(config.learner, features, history, saved.class_order, saved.arrays)
            digests[key] = str(trained.digest())
    rebuilt, counted = digest_of(digests), keys.counted()
    different = [message("verdicts.digest")] * (stated != rebuilt)
    if counted.digest != rebuilt:
        different.append(message("verdicts.run_state"))
    elif not same:
        different.append(message("verdicts.model"))
    return different, stated, rebuilt, int(counted.active.sum()), inserted


def _opened(place: Any) -> SavedKeys:
    keys = open_keys(place.root, filesystem=place.filesystem)
    if keys is None:
        raise ModelFileError(message("keyed.one"), file=place.location)
    return keys


def living_keys(keys: SavedKeys, entries: Sequence[Mapping[str, Any]], secret: ChainKey) -> Living:
    """Return the hashes of what all keys of a state have; an example of one key says nothing about those of another."""
    found = [living_of(keys.saved(key), about(entries, secret.hash(key)), secret) for key in keys]
    return Living(
        set().union(*(one.ids for one in found)),
        set().union(*(one.subjects for one in found)),
        set().union(*(one.left for one in found)),
        set().union(*(one.against for one in found)),
        set().union(*(one.persons for one in found)),
        sum(one.deleted for one in found),
    )


# One setting of a sweep with a model for each key: scored as a keyed run is, over all keys.


class KeyedSetting:
    """A setting and its models; ``updates``: how many were applied before the last block of rows."""

    def __init__(self, source: StoredKeys, config: Config) -> None:
        self._config, self._stream, self.updates = config, keyed_stream(config, source), 0
        records = NewTableRows(config.output.metrics_every, predicting=False)
        self.session = KeyedSession(job_of(config, self._stream), records)

    def run(self, arm: Callable[[Callable[[], None]], None] | None) -> dict[str, Any] | None:
        """Learn all rows, each by the model of its key; None if ``arm``'s function has ended that early.

        Returns columns of the sweep's table. The error of a bad row or a refused update is raised, unless the stream
        passes them over.
        """
        stops = threading.Event()
        if arm is not None:
            arm(stops.set)
        began, cpu_began, without_key = time.perf_counter(), time.thread_time(), 0
        for batch in self._stream.batches(self._config.cluster.batch_size * ROWS):
            if stops.is_set():
                return None
            try:
                self.updates = self.session.apply(batch).totals["updates"]
            except KeyFailedError as error:  # there is no checkpoint to go back to
                raise error.__cause__ or error from None
            without_key += len(self._stream.take_skipped())
        result = self.session.finish()
        seconds, cpu_seconds = time.perf_counter() - began, time.thread_time() - cpu_began
        totals = result.totals
        if not totals["updates"] and not totals["skipped"] + without_key:
            raise no_rows(self._config)
        scores = result.scores.sum(axis=0) if len(result.scores) else result.scores
        return {
            **{name: totals[name] for name in ("updates", "inserts", "deletes", "predictions", "refused")},
            "active": totals["inserts"] - totals["deletes"],
            "skipped": totals["skipped"] + without_key,
            "no_change": None,
            "majority": None,
            **known(pooled(scores, numbers=False)),
            "alarms": sum(row["alarms"] for row in self.session.key_rows()),
            "seconds": seconds,
            "cpu_seconds": cpu_seconds,
        }
