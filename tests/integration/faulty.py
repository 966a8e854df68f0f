"""A learner that does on request what a learner should not: each batch names one act in its first id."""

import os
import threading
import time
from types import SimpleNamespace

import numpy as np

from raydt.errors import UpdateError
from raydt.examples.digest import digest
from raydt.examples.updates import BatchResult, UpdateBatch
from raydt.exchange.messages import Ask, Tell
from raydt.learners.base import LearnerOptions, Traits, WorkPlan
from raydt.parallel import clocks

ACTS = (
    "report",
    "refuse",
    "shard raises",
    "coordinator raises",
    "shard has a defect",
    "shard dies",
    "coordinator dies",
    "shard waits for ever",
    "shard computes",
    "helper computes",
    "slow part",
)

#: Processor seconds that :class:`Slow` takes.
SLOW_SECONDS = 3.0


def act(name, start, length=1, X=None):
    """A batch of updates that asks for one act."""
    X = np.zeros((length, 1)) if X is None else X
    ids = np.full(length, ACTS.index(name))
    return UpdateBatch(start, np.zeros(length, np.int8), ids, X, np.zeros(length, np.int32), 1, ids)


def compute(seconds):
    """Take so much processor time."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


#: The shards do all work.
ON_SHARDS = WorkPlan(local_work_limit=0)


#: Where the two shards of one process meet, each in a thread.
BOTH = threading.Barrier(2)


class Slow:
    """A value that takes long to hand over; zero when it has arrived."""

    def __reduce__(self):
        compute(SLOW_SECONDS)
        return np.zeros, (1,)


class FaultyShard:
    """Only the second shard misbehaves, so that the right one must be named."""

    def __init__(self, groups):
        self.columns = self.groups = np.asarray(groups)
        self.slow = {}

    def handle(self, method, payload):
        if method == "report":
            arrays = [payload["X"], payload["own"], self.groups]
            assert all(array.flags.writeable and array.flags.c_contiguous for array in arrays)
            return np.array([int(payload["own"][0]), payload["X"].nbytes, os.getpid()])
        if 1 in self.groups:
            if method == "shard raises":
                raise UpdateError("no such example", row=7, remedy="Look at row 7")
            if method == "shard has a defect":
                raise KeyError("node")
            if method == "shard dies":
                os._exit(1)
            if method == "shard waits for ever":
                threading.Event().wait()
            if method == "shard computes":
                compute(1.0)
            if method == "slow part":
                self.slow = {"slow": Slow()}
        if method == "helper computes":
            BOTH.wait(60)
            if time.pthread_getcpuclockid(threading.get_ident()) in clocks():
                compute(SLOW_SECONDS)
        return np.zeros(1)

    def rows(self, slots):
        return {int(group): self.slow for group in self.groups}

    def state(self, slots):
        return {int(group): {"group": np.array([group])} for group in self.groups}

    def restore(self, state):
        assert state.keys() == set(self.groups.tolist())


class FaultyCoordinator:
    rows_are_owned = False

    def __init__(self, shards):
        self.store = SimpleNamespace(changes=0)
        self.shards, self.seq = shards, 0

    def process(self, batch, *, skip_refused=False):
        name = ACTS[batch.id[0]]
        if name == "refuse":
            return BatchResult(0, np.full(len(batch), -1, np.int32))
        if name == "coordinator raises":
            raise UpdateError("no such example", row=8)
        if name == "coordinator dies":
            os._exit(1)
        assert batch.barrier is None
        assert all(array.flags.writeable for array in (batch.X, batch.op, batch.id, batch.y))
        each = [{"own": np.full(50_000, index)} for index in range(self.shards)]
        yield Tell(name, {"X": batch.X}, each)
        replies = yield Ask(name, {"X": batch.X}, each)
        assert all(reply.flags.writeable for reply in replies)
        self.seq += len(batch)
        return BatchResult(len(batch), np.zeros(len(batch), np.int32), log={"replies": np.concatenate(replies)})

    def finish(self):
        yield from ()

    def gather_state(self):
        yield from ()

    gather_digest = gather_state

    def digest(self):
        return digest([("seq", np.array(self.seq))])

    def statistics(self):
        return {"active": self.seq}

    def model(self):
        return {}

    def in_order_of_birth(self):
        return np.empty(0, np.int32)

    def born(self, slots):
        return np.empty(0, np.int64)

    def rows(self, slots):
        return {}

    def state(self, slots):
        return {"seq": np.array(self.seq)}

    def restore(self, state):
        assert state["seq"].flags.writeable
        self.seq = int(state["seq"])


class Faulty:
    kind = "faulty"
    Options = LearnerOptions

    def traits(self, options):
        return Traits()

    def coordinator(self, options, features, shards, plan):
        assert not plan.shared_store
        return FaultyCoordinator(shards)

    def shard(self, options, features, groups, store=None):
        return FaultyShard(groups)

    def cases(self):
        return ()  # no kernels to compile
