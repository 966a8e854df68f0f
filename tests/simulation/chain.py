"""The smallest learner in which everything that can go wrong between machines shows in the digest.

Every group chains what it is told into one number, so that an update applied twice, left out, or out of order
changes all that follows; the coordinator's predictions are read off the chains.
"""

import numpy as np

from raydt.digest import digest
from raydt.exchange import Ask, Tell
from raydt.learners.base import LearnerOptions
from raydt.updates import BatchResult


class ChainShard:
    def __init__(self, features, groups):
        self.groups = {int(group): features.group_columns(group) for group in groups}
        self.columns = np.concatenate([*self.groups.values(), np.empty(0, np.int64)])
        self.chains = dict.fromkeys(self.groups, 1)

    def handle(self, method, payload):
        if method == "add":
            for group, columns in self.groups.items():
                for row in payload["X"][:, columns]:
                    self.chains[group] = (self.chains[group] * 31 + int(row.sum())) % (2**31 - 1)
            return None
        assert method == "chains"
        return np.array(list(self.chains.values()), np.int64) + payload["offset"]

    def rows(self, slots):
        return {group: {} for group in self.groups}

    def state(self):
        return {group: {"chain": np.array([chain])} for group, chain in self.chains.items()}

    def restore(self, state):
        self.chains = {group: int(state[group]["chain"][0]) for group in self.groups}


class ChainCoordinator:
    def __init__(self, shards):
        self.shards, self.seq, self.chains = shards, 0, np.empty(0, np.int64)

    def process(self, batch, *, skip_refused=False):
        predictions = np.empty(len(batch), np.int32)
        for position, row in enumerate(batch.X):
            replies = yield Ask("chains", {}, [{"offset": index} for index in range(self.shards)])
            chains = np.concatenate([reply - index for index, reply in enumerate(replies)])
            predictions[position] = chains.sum() % 7
            yield Tell("add", {"X": row[None]})
            self.seq += 1
        return BatchResult(len(batch), predictions, inserts=len(batch))

    def finish(self):
        replies = yield Ask("chains", {"offset": 0})
        self.chains = np.concatenate(replies)

    def digest(self):
        return digest([("seq", np.array(self.seq)), ("chains", self.chains)])

    def statistics(self):
        return {"active": self.seq}

    def model(self):
        return {"chains": self.chains}

    def in_order_of_birth(self):
        return np.empty(0, np.int32)

    def born(self, slots):
        return np.empty(0, np.int64)

    def rows(self, slots):
        return {}

    def state(self, slots):
        return {"seq": np.array(self.seq), "chains": self.chains}

    def restore(self, state):
        self.seq, self.chains = int(state["seq"]), state["chains"]


class Chain:
    kind = "chain"
    Options = LearnerOptions

    def coordinator(self, options, features, shards, plan):
        return ChainCoordinator(shards)

    def shard(self, options, features, groups, store=None):
        return ChainShard(features, groups)

    def warmup(self):
        pass
