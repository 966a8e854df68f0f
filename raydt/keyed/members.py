"""The models of many keys, each with its stream, its session, its counts and its scores.

Invariant: what a :class:`Member` holds after some rows is what a run over the rows of its key alone holds after them:
model, predictions, scores and stream. Rows may come in blocks cut anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from raydt.errors import UpdateError
from raydt.evaluation.tally import Tally
from raydt.examples.features import Features
from raydt.examples.updates import BatchResult, UpdateBatch, cut_at
from raydt.keyed.groups import Key, digest_of_group, group_of
from raydt.keyed.source import KeySource, SharedSource
from raydt.learners.base import NOTHING_DIVIDED, Learner, LearnerOptions
from raydt.sessions.session import InProcessSession
from raydt.sources.base import Rows
from raydt.streams.base import Stream
from raydt.streams.row_stream import RowStreamOptions

Arrays = dict[str, "npt.NDArray[Any]"]

#: Takes the answered updates of a member: the member, a batch and its result.
Record = Callable[["Member", UpdateBatch, BatchResult], None]


@dataclass(frozen=True)
class KeyedJob:
    """What the models of all keys have in common."""

    shared: SharedSource
    learner: Learner
    options: LearnerOptions
    features: Features  #: dealt into the groups that the options ask for
    stream: RowStreamOptions
    weighted: bool = False  #: whether scores count a prediction by the weight of its row
    every: int = 0  #: no batch of a key crosses a multiple of this; 0: any
    size: int = 4096  #: updates of a batch, at most

    def __post_init__(self) -> None:
        """Have the source read what streams need, before its first row; ConfigError if it does not fit the stream."""
        self.stream.make(KeySource(self.shared))


class Member:
    """One key: the source of its rows, its stream, its session and its scores.

    ``changed`` says whether anything was learned since :meth:`Members.take_changed` was last asked.
    """

    __slots__ = ("changed", "key", "seconds", "session", "source", "stream", "tally")

    def __init__(self, key: Key, job: KeyedJob) -> None:
        self.key, self.changed, self.seconds = key, True, 0.0
        self.source = KeySource(job.shared)
        self.stream: Stream = job.stream.make(self.source)
        self.session = InProcessSession(job.learner, job.options, job.features, 1, NOTHING_DIVIDED)
        self.tally = Tally(self.stream, weighted=job.weighted)

    def batches(self, job: KeyedJob) -> Iterator[UpdateBatch]:
        """Yield the updates that the rows given so far make."""
        for batch in self.stream.batches(job.size):
            yield from cut_at(batch, _ends(batch, job.every))

    def state(self) -> dict[str, Any]:
        """Return everything needed to go on: components of a state, as a run writes them."""
        coordinator, groups = self.session.state()
        tally = self.tally.state()
        return {
            "coordinator": coordinator,
            **{f"group-{number:03d}": arrays for number, arrays in groups.items()},
            "stream": self.stream.state(),
            "scores": tally.pop("prequential"),
            "recorder": tally,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what :meth:`state` gave."""
        groups = {int(name[6:]): arrays for name, arrays in state.items() if name.startswith("group-")}
        stream = state["stream"]
        self.source.restore(stream["source"])
        self.source.go_to(int(stream["row"]))
        self.stream.restore(stream)
        self.session.restore(state["coordinator"], groups)
        self.tally.restore({**state["recorder"], "prequential": state["scores"]})


def _ends(batch: UpdateBatch, every: int) -> list[int]:
    """Places within a batch at multiples of ``every``."""
    if not every:
        return []
    first = batch.start + every - batch.start % every
    return [*range(first - batch.start, len(batch), every)]


@dataclass
class Members:
    """The models of the keys of some groups."""

    job: KeyedJob
    by_key: dict[Key, Member] = field(default_factory=dict)
    _changed: set[int] = field(default_factory=set)  # groups

    def __len__(self) -> int:
        return len(self.by_key)

    def __getitem__(self, key: Key) -> Member:
        return self.by_key[key]

    def learn(self, parts: Iterable[tuple[Key, Rows]], record: Record) -> None:
        """Give each key its next rows, and apply the updates that they make.

        Updates of a key are applied in their order; those of different keys have none. UpdateError if an update is
        refused and the stream does not skip it, InputError before a bad row: other keys may have gone on.
        """
        skip = getattr(self.job.stream, "on_error", "error") == "skip"
        waiting = []
        for key, rows in parts:
            member = self.by_key.get(key)
            if member is None:
                member = self.by_key[key] = Member(key, self.job)
            self._note(member)
            member.source.give(rows)
            waiting.append((member, member.batches(self.job)))
        while waiting:
            now = [(member, batches, next(batches, None)) for member, batches in waiting]
            for member, _, batch in now:
                member.tally.record_skipped(member.stream.take_skipped())
                if batch is None:
                    continue
                result = member.session.apply(batch, skip_refused=skip)
                member.seconds += result.seconds
                member.tally.record(batch, result, member.seconds)
                record(member, batch, result)
                if result.applied < len(batch):
                    raise self._refused(member, batch, result)
            waiting = [(member, batches) for member, batches, batch in now if batch is not None]

    def finish(self, record: Record) -> None:
        """Complete what waits for more updates, once the source has ended."""
        for member in self.by_key.values():
            log = member.session.finish()
            if any(len(column) for column in log.values()):
                self._note(member)
            record(member, None, BatchResult(0, np.empty(0), log=log))  # type: ignore[arg-type]

    def _refused(self, member: Member, batch: UpdateBatch, result: BatchResult) -> UpdateError:
        return member.tally.update_error(batch, result.refused[-1])

    def _note(self, member: Member) -> None:
        member.changed = True
        self._changed.add(group_of(member.key))

    def take_changed(self) -> list[int]:
        """Return the groups in which anything was learned since the last call, ascending."""
        changed, self._changed = sorted(self._changed), set()
        return changed

    def of_group(self, group: int) -> dict[Key, Member]:
        """Return the members of a group."""
        return {key: member for key, member in self.by_key.items() if group_of(key) == group}

    def digests(self, groups: Iterable[int]) -> dict[int, dict[Key, str]]:
        """Return the digests of the models in some groups, by group and key."""
        return {group: {key: one.session.digest() for key, one in self.of_group(group).items()} for group in groups}

    def digest_of_groups(self, groups: Iterable[int]) -> dict[int, str]:
        """Return the digest of each of some groups."""
        return {group: digest_of_group(digests) for group, digests in self.digests(groups).items()}

    def restore(self, states: Mapping[Key, Mapping[str, Any]]) -> None:
        """Take in the keys of saved states, which are not there yet."""
        for key, state in states.items():
            member = self.by_key[key] = Member(key, self.job)
            member.restore(state)
            member.changed = False
