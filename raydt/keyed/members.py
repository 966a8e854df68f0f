"""The models of many keys, each with its stream, its session, its counts and its scores.

Invariant: what a :class:`Member` holds after some rows is what a run over the rows of its key alone holds after them:
model, predictions, scores and stream. Rows may come in blocks cut anywhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from raydt.arrays.blocks import Column
from raydt.arrays.elementary import AnyArray, Ints
from raydt.errors import UpdateError
from raydt.evaluation.adwin import MOST_SIZES, SIZES
from raydt.evaluation.classification import BUCKETS, Prequential, with_length
from raydt.evaluation.regression import PrequentialErrors
from raydt.evaluation.scoring import LEARNER, MAJORITY, NO_CHANGE, SCORED, dense_ranks, ranks_in, sparse_ranks
from raydt.examples.updates import BatchResult, Features, UpdateBatch, cut_at
from raydt.keyed.groups import GROUPS, Key, bytes_of, digest_of_group, group_of
from raydt.keyed.source import KeySource, Part, SharedSource
from raydt.learners.base import NOTHING_DIVIDED, Learner, LearnerOptions
from raydt.learners.batch_coordinator import Many
from raydt.learners.tree_coordinator import ManyBatches
from raydt.messages import message
from raydt.parallel import work_seconds
from raydt.sessions.saved_model import groups_of
from raydt.sessions.session import InProcessSession
from raydt.streams.base import Stream, Tally
from raydt.streams.row_stream import RowStreamOptions, labels_before

# Which models have not been used for long, of many: they give up what they hold for the next updates.
#
# Invariant: a model that is used in every round, or a little less often, is never among them. Nothing but memory and
# time depends on it.

#: Keys whose batches are recorded together: not all of a block have whole tables of ranks at once.
_RECORDED = 256
#: Rounds without a use, blocks of rows or calls, after which a model is idle.
ROUNDS = 16


class Awake:
    """Keys by their last use, the earliest first; those that are idle already are not among them."""

    def __init__(self) -> None:
        self._last: dict[Key, int] = {}
        self._round = 0

    def use(self, keys: Iterable[Key]) -> list[Key]:
        """Begin a round in which some keys are used; return those that are idle from now on. Amortised O(keys)."""
        self._round += 1
        for key in keys:
            self._last.pop(key, None)
            self._last[key] = self._round
        idle = []
        for key, last in self._last.items():
            if self._round - last < ROUNDS:
                break
            idle.append(key)
        for key in idle:
            del self._last[key]
        return idle


class Observer(Protocol):
    """A follower of the members: it gets their figures before and after each change, and records."""

    records: Any  #: As :class:`raydt.keyed.session.NewTableRows`.

    def before(self, member: Member) -> None:
        """Called before the figures of a member change."""

    def after(self, member: Member) -> None:
        """Called once they have changed."""


@dataclass(frozen=True)
class KeyedJob:
    """Source, learner, options and stream of the models of all keys."""

    shared: SharedSource
    learner: Learner
    options: LearnerOptions
    features: Features  #: dealt into the groups that the options ask for
    stream: RowStreamOptions
    weighted: bool = False  #: whether scores count a prediction by the weight of its row
    every: int = 0  #: no batch of a key crosses a multiple of this; 0: any
    size: int = 4096  #: updates of a batch, at most
    predicting: bool = False  #: whether predictions are recorded

    def __post_init__(self) -> None:
        """Have the source read what streams need, before its first row; ConfigError if it does not fit the stream."""
        self.stream.make(KeySource(self.shared))


class Member:
    """One key: the source of its rows, its stream, its session and its scores.

    ``marked`` says after how many updates the last row of the metrics was, ``seconds`` how long its batches took.
    """

    __slots__ = ("digest", "group", "key", "marked", "seconds", "session", "source", "stream", "tally")

    def __init__(self, key: Key, job: KeyedJob) -> None:
        self.key, self.group, self.seconds, self.marked = key, group_of(key), 0.0, -1
        self.digest: str | None = None  #: Of the model, once :func:`digests_of` has made it, until it changes.
        self.source = KeySource(job.shared)
        self.stream: Stream = job.stream.make(self.source)
        self.session = InProcessSession(job.learner, job.options, job.features, 1, NOTHING_DIVIDED)
        self.tally = Tally(self.stream, weighted=job.weighted)

    def batches(self, job: KeyedJob) -> Iterator[UpdateBatch]:
        """Yield the updates that the rows given so far make."""
        for batch in self.stream.batches(job.size):
            yield from cut_at(batch, _ends(batch, job.every))

    def state(self) -> dict[str, Any]:
        """Return everything needed to go on but the state of the session: components, as a run writes them."""
        tally = self.tally.narrow_state()
        scores = tally.pop("prequential")
        return {
            "stream": self.stream.state(),
            "scores": scores,
            "recorder": {**tally, "marked": self.marked},
        }

    def model(self) -> dict[str, Any]:
        """Return what predicting needs beside the arrays of the session."""
        at = self.stream.state()
        classes = list(self.source.classes[: at["n_classes"]])
        return {
            "classes": classes,
            "categories": at["source"].get("categories", {}),
            **labels_before(at, classes),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what :meth:`state` gave."""
        groups = groups_of(state)
        stream = state["stream"]
        self.source.restore(stream["source"])
        self.source.go_to(int(stream["row"]), int(stream.get("deletions", 0)))
        self.stream.restore(stream)
        self.session.restore(state["coordinator"], groups)
        self.tally.restore({**state["recorder"], "prequential": state["scores"]})
        self.marked = int(state["recorder"].get("marked", -1))
        self.rest()

    def change(self) -> None:
        """Note that the model changes."""
        self.digest = None

    def rest(self) -> None:
        """Give up what can be made again, until the next rows of the key."""
        if isinstance(self.tally.prequential, Prequential):
            self.tally.prequential.rest()


def classes_of(state: Mapping[str, Any]) -> list[Any]:
    """Return the labels that a key has met, in the order of their codes, from its state."""
    labels, n = state["stream"]["source"]["labels"], state["stream"]["n_classes"]
    classes: list[Any] = labels.get("classes", labels.get("names", []))[:n]
    if len(classes) != n:
        raise ValueError(message("models.uneven", columns="labels", examples=n))
    return classes


def _row_of(member: Member, batch: UpdateBatch, seq: int) -> int:
    """Return the number over the whole source of the row that update ``seq`` came in.

    Of an update before the batch, a number from that row on and before the first row of the batch.
    """
    place = max(0, seq - batch.start)
    return member.source.place(int(batch.row[place])) - (seq < batch.start)


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
    _groups: dict[int, dict[Key, Member]] = field(default_factory=dict)
    _changed: set[int] = field(default_factory=set)  # groups
    _awake: Awake = field(default_factory=Awake)
    _taken: list[tuple[Key, int]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.by_key)

    def __getitem__(self, key: Key) -> Member:
        return self.by_key[key]

    def learn(self, parts: Iterable[Part], observer: Observer | None = None) -> None:
        """Give each key its next rows, and apply the updates that they make.

        Updates of a key are applied in their order; those of different keys have none. UpdateError if an update is
        refused and the stream does not skip it, InputError before a bad row: other keys may have gone on.
        """
        waiting = []
        for key, rows, due in parts:
            if key is None:
                continue
            member = self.by_key.get(key)
            new = member is None
            if member is None:
                member = self._add(key)
            if observer is not None and not new:
                observer.before(member)
            self._note(member)
            member.source.give(rows, due)
            waiting.append((member, member.batches(self.job)))
        taken = [member for member, _ in waiting]
        while waiting:
            ready = [(*one, batch) for one in waiting if (batch := self._next(*one, observer)) is not None]
            self._apply([(member, batch) for member, _, batch in ready], observer)
            waiting = [(member, batches) for member, batches, _ in ready]
        if observer is not None:
            for member in taken:
                observer.after(member)
        self._use(member.key for member in taken)

    def _use(self, keys: Iterable[Key]) -> None:
        """Note that some keys are used; trim those that have not been for long."""
        for key in self._awake.use(keys):
            self.by_key[key].session.trim()

    def _next(self, member: Member, batches: Iterator[UpdateBatch], observer: Observer | None) -> UpdateBatch | None:
        """Return the next batch of a key, if there is one."""
        batch = next(batches, None)
        skipped = member.stream.take_skipped()
        if skipped:
            member.tally.record_skipped(skipped)
            if observer is not None:
                observer.records.record_skipped(member, skipped)
        return batch

    def _apply(self, ready: Sequence[tuple[Member, UpdateBatch]], observer: Observer | None) -> None:
        """Apply one batch of each of some keys, together where that is faster."""
        skip = self.job.stream.on_error == "skip"
        results = apply_all([member.session for member, _ in ready], [batch for _, batch in ready], skip)
        errors: list[UpdateError] = []
        for begin in range(0, len(ready), _RECORDED):
            some = slice(begin, begin + _RECORDED)
            self._record(ready[some], results[some], observer, errors)
        if errors:
            raise errors[0]

    def _record(
        self,
        ready: Sequence[tuple[Member, UpdateBatch]],
        results: Sequence[BatchResult],
        observer: Observer | None,
        errors: list[UpdateError],
    ) -> None:
        """Record answered batches of some keys, and list the errors of updates that were refused for good."""
        for (member, _), result in zip(ready, results, strict=True):
            member.seconds += result.seconds
        answered = zip(ready, results, strict=True)
        Tally.record_all([(member.tally, batch, result, member.seconds) for (member, batch), result in answered])
        for (member, batch), result in zip(ready, results, strict=True):
            if observer is not None:
                observer.records.record(member, batch, result)
            if self._collects and len(ends := result.log.get("seq", ())):
                self._taken.append((member.key, _row_of(member, batch, int(np.max(ends)))))
            member.rest()
            if result.applied < len(batch):
                errors.append(member.tally.update_error(batch, result.refused[-1]))

    def finish(self, observer: Observer | None = None) -> set[int]:
        """Complete what waits for more updates, once the source has ended; return groups that got a row of metrics.

        These have other scores then, which are to be saved. Models change where updates waited, and in a warm-up.
        """
        marked = set[int]()
        for member in self.by_key.values():
            if observer is not None:
                observer.before(member)
            waits = self._collects or member.tally.inserts < self.job.stream.warmup
            if waits:
                self._note(member)
                member.session.finish()
            if waits or not member.tally.statistics:  # all rows of the key were skipped: there was no batch
                member.tally.statistics = member.tally.totals(member.session.statistics())
            if observer is not None:
                if member.marked != member.tally.updates:
                    observer.records.mark(member)
                    marked.add(member.group)
                observer.after(member)
        return marked

    def _note(self, member: Member) -> None:
        member.change()
        self._changed.add(member.group)

    @cached_property
    def _collects(self) -> bool:  # asked for each batch of each key
        return self.job.learner.traits(self.job.options).collects_updates

    def take_taken(self) -> list[tuple[Key, int]]:
        """Return the keys that have taken in what they collected since the last call, and up to which row of all."""
        taken, self._taken = self._taken, []
        return taken

    def take_changed(self) -> list[int]:
        """Return the groups in which anything was learned since the last call, ascending."""
        changed, self._changed = sorted(self._changed), set()
        return changed

    def _add(self, key: Key) -> Member:
        """Begin a key."""
        member = self.by_key[key] = Member(key, self.job)
        self._groups.setdefault(member.group, {})[key] = member
        return member

    def of_group(self, group: int) -> dict[Key, Member]:
        """Return the members of a group."""
        return self._groups.get(group, {})

    def keys_of_groups(self) -> Ints:
        """Return the number of keys of each group, shape (256,)."""
        counts = [len(self.of_group(group)) for group in range(GROUPS)]
        return np.array(counts, dtype=np.int64)

    def digests(self, groups: Iterable[int]) -> dict[int, dict[Key, str]]:
        """Return the digests of the models in some groups, by group and key; a key without live examples has none."""
        held = {group: self.of_group(group) for group in groups}
        alive = {
            group: {key: one for key, one in members.items() if one.session.coordinator.store.live}
            for group, members in held.items()
        }
        digests = iter(digests_of([one for members in alive.values() for one in members.values()]))
        return {group: dict(zip(members, digests, strict=False)) for group, members in alive.items()}

    def states(self, group: int) -> tuple[dict[Key, dict[str, Any]], dict[str, Column]]:
        """Return the state of each member of a group, and arrays that belong to them, in the order of their names."""
        held = self.in_order(group)
        own, columns = apart([one.session for one in held], state_of, lambda alike, models: alike.states(models))
        return {one.key: {**part, **one.state()} for one, part in zip(held, own, strict=True)}, columns

    def models(self, group: int) -> tuple[dict[Key, dict[str, Any]], dict[str, Column]]:
        """Return the model of each member of a group, and arrays that belong to them, as :meth:`states`."""
        held = self.in_order(group)
        own, columns = apart([one.session for one in held], model_of, lambda alike, models: alike.models(models))
        columns = {f"arrays/{name}": column for name, column in columns.items()}
        return {one.key: {**part, **one.model()} for one, part in zip(held, own, strict=True)}, columns

    def in_order(self, group: int) -> list[Member]:
        """Return the members of a group in the order of the bytes that stand for their keys."""
        return sorted(self.of_group(group).values(), key=lambda one: bytes_of(one.key))

    def digest_of_groups(self, groups: Iterable[int]) -> dict[int, str]:
        """Return the digest of each of some groups."""
        return {group: digest_of_group(digests) for group, digests in self.digests(groups).items()}

    def restore(self, states: Mapping[Key, Mapping[str, Any]]) -> None:
        """Take in the keys of saved states, which are not there yet; KeyError or ValueError if arrays do not fit."""
        job = self.job
        for key, state in states.items():
            groups = groups_of(state)
            job.learner.check(job.options, job.features, len(classes_of(state)), state["coordinator"], groups, {})
            self._add(key).restore(state)
        self._use(states)


def apply_all(
    sessions: Sequence[InProcessSession], batches: Sequence[UpdateBatch], skip_refused: bool = False
) -> list[BatchResult]:
    """Apply one batch of each of some sessions; the results in their order, bit for bit those of one after the other.

    Sessions whose learner can take many batches by one compiled call go together, since a batch of few updates costs
    more in Python than in counting. Only ``seconds``, of logs too, and the traffic differ: models that are taken
    together exchange nothing.

    Each session is a different one. After an error, or an interrupt, those whose batches were taken are as ever, and
    those that were at work refuse to go on (:attr:`InProcessSession.whole`).
    """
    groups: dict[Many, list[int]] = {}
    alone: list[int] = []
    for i, (session, batch) in enumerate(zip(sessions, batches, strict=True)):
        group = session.group(batch)
        (alone if group is None else groups.setdefault(group, [])).append(i)
    results: list[BatchResult | None] = [None] * len(batches)
    for group, members in groups.items():
        taken = _together(group, [sessions[i] for i in members], [batches[i] for i in members], skip_refused)
        for i, result in zip(members, taken, strict=True):
            results[i] = result
            if result is None:
                alone.append(i)
    for i in alone:
        results[i] = sessions[i].apply(batches[i], skip_refused=skip_refused)
    return [result for result in results if result is not None]


def _together(
    group: Many, sessions: Sequence[InProcessSession], batches: Sequence[UpdateBatch], skip_refused: bool
) -> list[BatchResult | None]:
    """Take the batches of one group; None of those that go the usual way."""
    began = work_seconds()
    for session in sessions:
        session.whole = False
    results = group.take(sessions, ManyBatches(batches, skip_refused))
    seconds = (work_seconds() - began) / len(batches)
    for session, result in zip(sessions, results, strict=True):
        session.whole = True
        if result is not None:
            result.seconds = seconds
            traffic = session.driver.traffic
            result.statistics["rounds"], result.statistics["bytes_exchanged"] = traffic.rounds, traffic.bytes
    return results


def state_of(session: InProcessSession) -> dict[str, Any]:
    """Return the state of a session by component."""
    coordinator, groups = session.state()
    return {"coordinator": coordinator, **{f"group-{number:03d}": arrays for number, arrays in groups.items()}}


def model_of(session: InProcessSession) -> dict[str, Any]:
    """Return the model of a session by component."""
    return {"arrays": session.model()}


def apart(
    sessions: Sequence[InProcessSession],
    alone: Callable[[InProcessSession], dict[str, Any]],
    together: Callable[[Any, list[Any]], dict[str, Column]],
) -> tuple[list[dict[str, Any]], dict[str, Column]]:
    """Return what each session gives ``alone``; if all are alike, nothing of each and what they give ``together``."""
    groups = _alike(sessions)
    (alike, *others) = groups or [None]
    if alike is None or others:
        return [alone(session) for session in sessions], {}
    return [{} for _ in sessions], together(alike, [session.coordinator for session in sessions])


def _alike(sessions: Sequence[InProcessSession]) -> dict[Any, list[int]]:
    """Return the places of sessions that one call reads, by what does; by None those of which none does."""
    groups: dict[Any, list[int]] = {}
    for i, session in enumerate(sessions):
        session.require_whole()
        groups.setdefault(session.coordinator.alike(), []).append(i)
    return groups


def digest_all(sessions: Sequence[InProcessSession]) -> list[str]:
    """Return the digest of each session; of those that are alike by one call."""
    found: dict[int, str] = {}
    for alike, places in _alike(sessions).items():
        some = [sessions[i] for i in places]
        each = [one.digest() for one in some] if alike is None else alike.digests([one.coordinator for one in some])
        found.update(zip(places, each, strict=True))
    return [found[i] for i in range(len(sessions))]


def digests_of(members: Sequence[Member]) -> list[str]:
    """Return the digests of the models of members, each made once between two changes."""
    made = [one for one in members if one.digest is None]
    for one, digest in zip(made, digest_all([one.session for one in made]), strict=True):
        one.digest = digest
    return [one.digest or "" for one in members]


# Scores of a key in its state, where tables are mostly 0; and scores over all keys, from the sums of each.

#: Tables of ranks in the state of scores.
_RANKS = ("ranks", "window_ranks")


def narrow(scores: Mapping[str, Any]) -> dict[str, Any]:
    """Return a state of scores without its zeros."""
    found = dict(scores)
    for name in [one for one in _RANKS if one in found and found[one].size]:
        places, numbers = sparse_ranks(found.pop(name))
        found |= {f"{name}_places": places, f"{name}_numbers": numbers}
    return _with_sizes(found, int(found["adwin_reg"][SIZES])) if "adwin_reg" in found else found


def whole(scores: Mapping[str, Any]) -> dict[str, Any]:
    """Return what :func:`narrow` was given; KeyError or ValueError if it cannot have been a table."""
    found = dict(scores)
    for name in _RANKS:
        ranks = ranks_in(scores, name)
        if ranks is not None:
            del found[f"{name}_places"], found[f"{name}_numbers"]
            found[name] = dense_ranks(ranks)
    return _with_sizes(found, MOST_SIZES) if "adwin_reg" in found else found


def _with_sizes(scores: dict[str, Any], sizes: int) -> dict[str, Any]:
    return scores | {name: with_length(scores[name], sizes) for name in BUCKETS}


def pooled(sums: AnyArray, *, numbers: bool) -> dict[str, float]:
    """Return the scores of sums, and those of the trivial predictors of each key; ``numbers``: labels are numbers."""
    if not len(sums):
        return {}
    if numbers:
        errors = PrequentialErrors()
        errors.add(sums)
        return {**errors.scores(), **errors.baselines()}
    scored = float(sums[SCORED])
    places = {"accuracy": LEARNER, "no_change": NO_CHANGE, "majority": MAJORITY}
    return {name: float(sums[place]) / scored if scored else math.nan for name, place in places.items()}
