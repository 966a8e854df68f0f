"""The smallest learner in which everything that can go wrong between machines shows in the digest.

Every group chains what it is told into one number, so that a step taken twice, left out, or out of order changes all
that follows; the predictions are read off the chains. The row of a deletion is not sent again: a shard chains what
it finds in the slot, so that a slot that was filled too early, or not restored, shows as well. Every so many updates
the shards meet, and mix the sum of all chains into each.
"""

import numpy as np

from raydt.arrays.blocks import RaggedStore, SparseRows, grown, merged
from raydt.examples.digest import digest
from raydt.examples.store import ExampleStore
from raydt.examples.updates import (
    DELETE,
    DELETE_VALUE,
    QUERY,
    UNKNOWN_VALUE,
    UPDATE,
    BatchResult,
    Reading,
    Refusal,
    nothing_admitted,
)
from raydt.exchange.links import Meeting, together
from raydt.exchange.meetings import AllGather, ReduceScatter
from raydt.exchange.messages import MET, Ask, Tell
from raydt.learners.base import Learner, LearnerOptions, Traits

#: Updates of one round, so that a batch takes several.
ROUND = 3
MODULUS = 2**31 - 1


def added(ours, theirs):
    assert ours[1] == theirs[1], "parts for two shards are added"
    return np.array([ours[0] + theirs[0], ours[1]])


class ChainShard:
    def __init__(self, options, features, groups):
        self.groups = {int(group): features.group_columns(int(group)) for group in groups}
        self.columns = features.columns_of(groups)
        self.features, self.group_numbers = features, groups
        self.X = np.zeros((0, len(features.names)))
        self.sparse = RaggedStore(np.int32)
        self.chains = dict.fromkeys(self.groups, 1)
        self.meeting = Meeting()
        # By slot: what changes of an example, for as long as it lives, and not by what it is.
        self.marks = {group: np.zeros(0, np.int64) for group in self.groups}

    def handle(self, method, payload):
        if method == MET:
            return self.meeting.receive(**payload)
        return getattr(self, f"on_{method}")(**payload)

    def ones_of(self, slots):
        return SparseRows.of_lengths(*self.sparse.take(slots), self.features.sparse)

    def on_rows(self, slots, X, sparse=None):
        if sparse is not None:
            self.sparse.put(slots, sparse.lengths, sparse.indices)
        if len(slots):
            self.make_room(int(slots.max()) + 1)
        self.X[np.ix_(slots, self.columns)] = X

    def make_room(self, slots):
        if slots > len(self.X):
            self.X = grown(self.X, slots)
            self.marks = {group: grown(marks, slots) for group, marks in self.marks.items()}

    def on_steps(self, steps):
        """Chains before each step; a step adds (1), removes (-1) or looks at (0) the row of a slot."""
        before = np.empty((len(steps), len(self.groups)), np.int64)
        for place, (sign, slot) in enumerate(steps.tolist()):
            before[place] = list(self.chains.values())
            for group, columns in self.groups.items():
                if sign:
                    marks = self.marks[group]
                    if sign > 0:
                        marks[slot] = 0
                    term = int(self.X[slot, columns].sum() * 4) + sign + int(marks[slot]) + self.ones(slot, group)
                    marks += self.chains[group] % 3
                    self.chains[group] = (self.chains[group] * 31 + term) % MODULUS
        return before

    def ones(self, slot, group):
        row = self.of_group(np.array([slot]), group)
        return int((row.indices.astype(np.int64) + 1).sum()) * 7 + 3 * len(row.indices)

    def of_group(self, slots, group):
        if not self.features.sparse:
            return SparseRows.empty(0, len(slots))
        return self.ones_of(slots).of_groups(np.array([group]), self.features.groups)

    def on_equal(self, slots, x, sparse=None):
        equal = (self.X[np.ix_(slots, self.columns)] == x[self.columns]).all(axis=1)
        if sparse is not None:
            held, sought = self.ones_of(slots), sparse.of_groups(self.group_numbers, self.features.groups).row(0)
            equal &= np.array([np.array_equal(held.row(i), sought) for i in range(len(slots))], np.bool_)
        return equal

    def on_mix(self, shards):
        return self.meeting.begin(self.mixed(shards))

    def mixed(self, shards):
        """Four meetings: the shards add up their chains, compare the sums, and then so with what has become of them.

        The first time the parts are added on their way.
        """
        for again in range(2):
            made = [np.array([sum(self.chains.values()), owner]) for owner in range(shards)]
            parts = yield (made if again else ReduceScatter(made, added))
            answers = yield AllGather(np.array([sum(int(part[0]) for part in parts)]), shards)
            assert len({int(answer[0]) for answer in answers}) == 1, "shards have made different sums"
            for group, chain in self.chains.items():
                self.chains[group] = (chain * 31 + int(answers[0][0])) % MODULUS

    def on_chains(self):
        return np.array(list(self.chains.values()), np.int64)

    def rows(self, slots):
        found = {group: {"X": self.X[np.ix_(slots, columns)]} for group, columns in self.groups.items()}
        if self.features.sparse:
            for group, arrays in found.items():
                arrays |= self.of_group(slots, group).arrays()
        return found

    def state(self, slots):
        return {
            group: {"chain": np.array([chain]), "mark": self.marks[group][slots]}
            for group, chain in self.chains.items()
        }

    def restore(self, state):
        for group, columns in self.groups.items():
            self.make_room(len(state[group]["X"]))
            self.marks[group][: len(state[group]["mark"])] = state[group]["mark"]
            self.X[: len(state[group]["X"]), columns] = state[group]["X"]
            self.chains[group] = int(state[group]["chain"][0])
        if self.features.sparse:
            self.sparse = RaggedStore(np.int32)
            parts = [SparseRows.of_arrays(state[group], self.features.sparse) for group in self.groups]
            if parts:
                rows = merged(parts)
                self.sparse.put(np.arange(len(rows)), rows.lengths, rows.indices)


class ChainCoordinator:
    rows_are_owned = False

    def __init__(self, options, features, shards, plan):
        self.features, self.shards = features, features.assign(shards)
        self.columns = [features.columns_of(groups) for groups in self.shards]
        self.store = self.shared = ExampleStore(len(features.names), 0)
        self.seq, self.chains = 0, np.empty(0, np.int64)

    def gather(self):
        yield from ()

    gather_state = gather_digest = gather

    def process(self, batch, *, skip_refused=False):
        m = len(batch)
        self.store.reserve(m)
        old, new, fault, rows = admitted = nothing_admitted(batch.op)
        result = BatchResult(m, np.full(m, -1, np.int32))
        begin = 0
        while begin < m:
            stop = self.store.admit(batch.op, batch.id, begin, skip_refused, admitted)
            while begin < stop:
                last = min(stop, begin + ROUND - (batch.start + begin) % ROUND)
                yield from self.take(batch, range(begin, last), old, new, fault, rows, result)
                yield from self.mix(batch.start + last)
                begin = last
            if stop < m and not fault[stop]:
                assert batch.op[stop] == DELETE_VALUE
                slots = self.in_order_of_birth()
                slots = slots[self.store.y[slots] == batch.y[rows[stop]]]
                sparse = {} if batch.sparse is None else {"sparse": batch.sparse[rows[stop : stop + 1]]}
                replies = yield Ask("equal", {"slots": slots, "x": batch.X[rows[stop]], **sparse})
                equal = slots[np.logical_and.reduce(replies)]
                if len(equal):
                    old[stop] = equal[0]
                    self.store.discard(int(equal[0]))
                    yield from self.take(batch, range(stop, stop + 1), old, new, fault, rows, result)
                else:
                    fault[stop] = UNKNOWN_VALUE
            if stop < m and fault[stop] and not skip_refused:
                result.applied = stop
                break
            if stop < m:
                yield from self.mix(batch.start + stop + 1)
            begin = stop + 1
        result.refused = [Refusal(int(i), int(fault[i])) for i in np.flatnonzero(fault)]
        self.store.release(old[old >= 0])
        result.inserts, result.deletes = int((new >= 0).sum()), int((old >= 0).sum())
        self.seq = batch.start + result.applied
        return result

    def mix(self, position):
        if position % ROUND == 0:
            yield from together("mix", {"shards": len(self.shards)})

    def take(self, batch, places, old, new, fault, rows, result):
        """One round: the new rows, then the steps, whose replies are the chains before each of them."""
        added = [place for place in places if new[place] >= 0]
        slots, X = new[added], batch.X[rows[added]]
        self.store.y[slots], self.store.born[slots] = batch.y[rows[added]], batch.start + np.array(added, np.int64)
        each = [{"X": X[:, columns]} for columns in self.columns]
        if batch.sparse is not None:
            ones = batch.sparse[rows[added]]
            each = [
                {**part, "sparse": ones.of_groups(groups, self.features.groups)}
                for part, groups in zip(each, self.shards, strict=True)
            ]
        yield Tell("rows", {"slots": slots}, each)
        steps, asked = [], []
        for place in places:
            if fault[place]:
                continue
            if batch.op[place] in (DELETE, DELETE_VALUE, UPDATE):
                steps.append((-1, old[place]))
            if batch.op[place] not in (DELETE, DELETE_VALUE):
                asked.append((len(steps), place))
                steps.append((0, 0) if batch.op[place] == QUERY else (1, new[place]))
        replies = yield Ask("steps", {"steps": np.array(steps, np.int64).reshape(-1, 2)})
        before = np.concatenate(replies, axis=1)
        for step, place in asked:
            if batch.start + place >= batch.warmup:
                result.predictions[place] = before[step].sum() % 7

    def finish(self):
        self.chains = np.concatenate((yield Ask("chains", {})))

    def digest(self):
        slots = self.in_order_of_birth()
        rows = [("born", self.born(slots)), *self.rows(slots).items()]
        return digest([("seq", np.array(self.seq)), ("chains", self.chains), *rows])

    def statistics(self):
        return {"active": self.store.live}

    def in_order_of_birth(self):
        return self.store.in_order_of_birth()

    def born(self, slots):
        return self.store.born[slots]

    def rows(self, slots):
        return {"id": self.store.id[slots], "y": self.store.y[slots]}

    def state(self, slots):
        return {"seq": np.array([self.seq]), "chains": self.chains}

    def restore(self, state):
        self.store.fill(state["id"], state["y"], state["born"])
        self.seq, self.chains = int(state["seq"][0]), state["chains"]


class ChainOptions(LearnerOptions):
    kind: str = "chain"


class Chain(Learner):
    kind, Options, Coordinator, Shard = "chain", ChainOptions, ChainCoordinator, ChainShard

    def traits(self, options):
        return Traits(Reading(sparse=True))

    def schema(self, options, features, model, *, state):
        raise NotImplementedError("no chain is read from a file")

    def check_relations(self, options, features, model, groups, n):
        raise NotImplementedError("no chain is read from a file")

    def cases(self):
        return ()
