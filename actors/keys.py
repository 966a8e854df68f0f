"""The actor of models by key: a process with the models of the keys of some groups. Keys need no other process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from actors.environment import use_cpus
from actors.identity import Identity, identity
from actors.memory import peak_rss_bytes
from actors.progress import Progress, Pulse
from actors.shard import node
from actors.writable import own
from raydt.arrays import kernel
from raydt.arrays.types import Arrays
from raydt.examples.features import Features
from raydt.exchange import faults
from raydt.exchange.faults import fault
from raydt.exchange.snapshot import Parts, Segment
from raydt.folders.arrays import open_folder
from raydt.folders.folder import Folder
from raydt.folders.parts import Place, Written
from raydt.keyed.members import KeyedJob
from raydt.keyed.records import Records
from raydt.keyed.saved import SavedKeys
from raydt.keyed.sent import SentRows, SentSource
from raydt.keyed.session import KeyedResult, KeyedSession
from raydt.keyed.source import SharedSource
from raydt.keyed.store import write_groups
from raydt.keyed.stream import KeyedBatch
from raydt.learners.base import Learner, LearnerOptions
from raydt.sessions.warmup import BY_KEY, compile_missing
from raydt.streams.row_stream import RowStreamOptions


class KeyedAssignment(NamedTuple):
    """Learner, options and stream of a job by key, equal in all processes."""

    epoch: int
    learner: Learner
    options: LearnerOptions
    features: Features
    source: SentSource
    stream: RowStreamOptions
    weighted: bool
    every: int
    size: int
    predicting: bool
    log: Any = None  #: as of :class:`raydt.keyed.source.SharedSource`


class KeyGroups:
    """One process with the models of the keys of some groups; operators find it as ``ray::KeyGroups``."""

    def __init__(self) -> None:
        self._pulse = Pulse()
        self._session: KeyedSession
        self._source: SentSource
        self._aside: dict[int, Parts] = {}

    def identity(self) -> Identity:
        """Which sources this process has loaded."""
        self._pulse.beat()
        return identity()

    def open(self, given: KeyedAssignment, index: int, cpus: float) -> str:
        """Begin the epoch, without keys; returns the number of the node."""
        self._pulse.beat()
        use_cpus(cpus)
        compile_missing(given.learner, given.options, BY_KEY)
        kernel.load()
        faults.begin_epoch(given.epoch, index)
        self._source = given.source
        traits = given.learner.traits(given.options)
        job = KeyedJob(
            SharedSource(self._source, traits.reading, given.log),
            given.learner,
            given.options,
            given.features,
            given.stream,
            weighted=given.weighted,
            every=given.every,
            size=given.size,
        )
        self._session = KeyedSession(job, Records(given.every, predicting=given.predicting, own=traits.figures))
        return node()

    def apply(self, sent: SentRows, number: int) -> KeyedResult:
        """Apply rows, each by the model of its key; a snapshot under ``number`` is set aside, if it is wanted."""
        self._pulse.beat()
        fault("shard.before_answer")
        self._source.take(sent.news)
        result = self._session.apply(KeyedBatch(0, own(sent.rows), sent.due, digest=sent.digest))
        if sent.stored is not None:
            result.keys = self._set_aside(number, sent.stored)
        fault("shard.after_answer")
        return result

    def _set_aside(self, number: int, stored: Sequence[Segment]) -> Any:
        snapshot = self._session.snapshot(stored)
        (parts,) = snapshot.parts
        self._aside = {number: parts}
        return snapshot.state["keys"]

    def set_aside(self, number: int, stored: Sequence[Segment]) -> Any:
        """Set a snapshot aside here and now; returns the keys of each group."""
        self._pulse.beat()
        return self._set_aside(number, stored)

    def take_aside(self, number: int) -> Parts:
        """Return the last snapshot, of this number, once; called concurrently with the work."""
        self._pulse.beat()
        fault("shard.before_parts")
        return self._aside.pop(number)

    def write_aside(self, number: int, place: Place) -> Written:
        """Write the last snapshot, of this number, once; called concurrently with the work."""
        parts = self.take_aside(number)
        with self._pulse.writing(place.folder):
            return write_groups(place, parts)

    def restore(self, groups: Mapping[int, Arrays], news: Any, folder: Folder | None = None) -> KeyedResult:
        """Replace everything by the packed keys of the owned groups."""
        self._pulse.beat()
        fault("shard.before_restore")
        self._source.take(news)
        self._session.restore({}, own(dict(groups)), None, folder)
        return self._session.result()

    def restore_from(self, folder: Folder, groups: Sequence[int], news: Any) -> KeyedResult:
        """Replace everything by the owned groups of a state in a folder that was found sound."""
        with self._pulse.storage():
            meta, components = open_folder(folder.root, "state", filesystem=folder.filesystem)
            saved = SavedKeys(meta, components, folder.root)
            owned = {group: saved.groups[group] for group in groups if group in saved.groups}
            return self.restore(owned, news, folder)

    def finish(self) -> KeyedResult:
        """Complete what waits for more updates."""
        self._pulse.beat()
        result: KeyedResult = self._session.finish()
        return result

    def digests(self) -> dict[int, str]:
        """Return the digest of each group that has keys."""
        self._pulse.beat()
        return self._session.digests_of_groups()

    def models(self) -> list[tuple[str, Arrays]]:
        """Return the components of the model folder."""
        self._pulse.beat()
        return list(self._session.models())

    def key_rows(self) -> list[dict[str, Any]]:
        """Return the rows of the table of keys."""
        self._pulse.beat()
        return self._session.key_rows()

    def work(self) -> dict[str, Any]:
        """Return the work of this process, and its ``peak_rss_bytes``."""
        self._pulse.beat()
        (work,) = self._session.work()
        return {**work, "peak_rss_bytes": peak_rss_bytes()}

    def progress(self) -> Progress:
        """Return the progress of this actor; called while the actor works."""
        return Progress(self._pulse.seconds(), False)
