"""The coordinator of the confidence tree: routes and counts rows, and splits leaves by what the shards answer.

A window of updates: (1) its steps are processed as if no leaf were split, which shows what every node counts and after
which step it is checked (``tree.walk``); (2) in one round the shards count the same, and answer every check with the
candidates of their feature groups; (3) the rule decides, in the order of the steps (``split_decisions``); (4) steps
after a split, at its leaf, are rolled back; one more round asks for the side of every row of the leaves that are split,
and (5) the steps rolled back are processed again. So m, t and the statistics of a check are exactly those just after
its step, however the stream is cut. Windows end where the bins are made again.
"""

from __future__ import annotations

from operator import is_not
from typing import Any

import numpy as np
import numpy.typing as npt

from raydt.arrays.elementary import Arrays, Floats, Ints, Slots
from raydt.arrays.kernel import Repeated
from raydt.batches.binning import Bins, joined
from raydt.batches.rows_on_shards import RowBlock, RowsOnShards
from raydt.examples.digest import RowDigest
from raydt.examples.store import ExampleStore
from raydt.examples.updates import INSERT, Admission, BatchResult, Features, Log, UpdateBatch, counting
from raydt.examples.updates import joined as joined_logs
from raydt.exchange.messages import Ask, Exchange
from raydt.learners.base import WorkPlan
from raydt.learners.batch_coordinator import (
    ADD,
    LOOK,
    STEP,
    Many,
    RowUpdates,
    SequentialCoordinator,
    enter_steps,
    steps_of,
)
from raydt.learners.confidence_tree.bounds import TIE
from raydt.learners.confidence_tree.describe import Logged, logged
from raydt.learners.confidence_tree.dynamic_tree import (
    Decider,
    LeafSplit,
    LiveConfidenceTree,
    RunTotals,
    StepWindow,
    Times,
)
from raydt.learners.confidence_tree.leaf_predictions import (
    ODDS,
    ConfidenceTreeDigest,
    chosen,
    naive_leaves,
    priors_of,
    settle_window,
)
from raydt.learners.confidence_tree.many import ListedConfidenceTree, come, find, forget, group_of
from raydt.learners.confidence_tree.naive_bayes import SharedLogs, normal_arrays, normal_scores
from raydt.learners.confidence_tree.options import WARMUP, ConfidenceTreeOptions
from raydt.learners.confidence_tree.schema import SCALARS
from raydt.learners.confidence_tree.shard import ConfidenceTreeShard
from raydt.learners.confidence_tree.statistics import (
    INHERITED,
    MAJORITY,
    NORMAL,
    SITE,
    SLOT,
    StatisticsHistory,
)
from raydt.learners.confidence_tree.tree import (
    CHECK,
    NaivePredictor,
    Path,
    canonical_tree,
    filled,
    naive_arrays,
    node_arrays,
    odds_of,
    predictive,
)
from raydt.trees.records import LEAVES, NODES, preorder, route, shares_of

# Updates of one example, and predictions of one row, where coordinator and shard are in one process.

_NO_NUMBERS = np.empty(0, dtype=np.int64)


class SingleRows:
    """Buffers of one update, and its way through tree and statistics; ``grace`` is the grace period."""

    def __init__(self, live: LiveConfidenceTree, logs: SharedLogs, grace: int) -> None:
        self._live, self._logs, self._grace = live, logs, grace
        self._one = RowUpdates(len(live.categorical))
        self._codes = np.empty((1, len(live.categorical)), dtype=np.uint16)  # of a row that is only predicted
        self._known: tuple[Any, ...] = ()  # the arrays of which the arguments were made
        self._sites, self._step = 0, np.zeros(1, dtype=STEP)
        self._arguments: tuple[Any, ...] = ()
        self._repeat()

    def _repeat(self) -> None:
        self._insert, self._look = Repeated(come), Repeated(come)

    def rest(self) -> None:
        """Let go of the arrays of the last row, until the next."""
        self._known, self._arguments, self._sites = (), (), 0

    def insert(
        self, example: tuple[int, Floats, int, int], worker: ConfidenceTreeShard, digested: RowDigest | None
    ) -> tuple[int, int] | None:
        """Insert an example: id, row, class and number of the update; its slot, and the leaf to check (-1: none).

        None, and nothing has changed, if its class is new: that takes a batch.
        """
        live, (number, row, code, seq) = self._live, example
        if code >= live.tree.counts.shape[1]:
            return None
        rows = self._one.take(row)
        live.reserve(1)
        arguments = self._held(worker)
        slot = self._one.insert(live.store, digested, number, code, seq)
        worker.keep(slot)
        return slot, self._take(self._insert, ADD, slot, rows, arguments)

    def forget(self, row: Floats, code: int, worker: ConfidenceTreeShard, digested: RowDigest | None) -> bool:
        """Delete the oldest example that equals a row and has a class; False if there is none."""
        live = self._live
        if code >= live.tree.counts.shape[1]:
            return False
        examples, _, held, *_ = self._held(worker)
        rows = self._one.take(row)
        slot = int(find(live.tree, live.categorical, examples, worker.features_by_slot, rows, code))
        if slot < 0:
            return False
        self._one.delete(live.store, digested, slot)
        forget(live.tree, examples, live.right, held, slot, live.adaptive, live.inherits)
        self._one.release(live.store, slot)
        return True

    def class_of(self, row: Floats, worker: ConfidenceTreeShard) -> int:
        """Return the class that the tree predicts for a row."""
        self._take(self._look, LOOK, 0, self._one.take(row), self._held(worker))
        return int(self._step["prediction"][0])

    def _take(self, call: Repeated, kind: int, slot: int, rows: RowBlock, arguments: tuple[Any, ...]) -> int:
        """Take one step; the leaf to check (-1: none)."""
        live, (examples, by_slot, *held) = self._live, arguments
        self._step["kind"], self._step["slot"] = kind, slot
        rules = self._grace, live.adaptive, live.inherits
        return int(call(live.tree, live.categorical, examples, by_slot, rows, *held, ODDS, self._step, rules))

    def _held(self, worker: ConfidenceTreeShard) -> tuple[Any, ...]:
        """Return examples, what is kept of them, what the shard has, scratch for codes, bins, what rows are scored by.

        All are kept until one of the arrays is another.
        """
        live, logs = self._live, self._logs
        if live.naive and len(logs.table) <= live.store.live + 1:
            logs.reach(np.array([live.store.live + 1]))
        known = live.tree, live.members, live.bins, logs.table, *worker.arrays
        if self._sites != live.sites or any(map(is_not, known, self._known)):
            held, bins = worker.single(live.store.capacity, live.sites, live.tree.counts.shape[1])
            classes = held.counts.totals.shape[1]
            # The table is empty where leaves predict the majority.
            table, normals = logs.table if live.naive else _NO_NUMBERS, live.normal + live.inherits
            scores = (np.empty((n, classes), dtype=np.int64) for n in (1, normals))
            naive = worker.naive(_NO_NUMBERS, table, *scores)
            by_slot = live.right, worker.features_by_slot
            self._arguments = live.examples, by_slot, held, self._codes, bins, naive
            self._repeat()
            self._sites, self._known = live.sites, (*known[:4], *worker.arrays)  # room may have been made
        return self._arguments


# Naive Bayes of a live tree: the counts of all its leaves, or shares of the classes for a few rows without these.
#
# For the latter the shards score the rows. The scores, and so the class with the largest share, are those of
# ``NaivePredictor``; with many classes a share may differ in its last bits, because shares are divided by a sum over
# all classes known. Nothing is counted: the rows lie in slots beyond those of all examples, as those of queries do.


def shares_now(
    live: LiveConfidenceTree, on_shards: RowsOnShards, logs: SharedLogs, rows: RowBlock, n_classes: int
) -> Exchange[Floats]:
    """Shares of the classes, shape (rows, n_classes). O(rows x (depth + features x classes)), two messages at most."""
    leaves = np.array([route(live.tree, live.categorical, rows, i) for i in range(len(rows.X))], dtype=np.int64)
    shares = shares_of(live.tree.counts[[_filled(live, leaf) for leaf in leaves.tolist()]], n_classes)
    by = chosen(live, leaves)
    which = np.flatnonzero(by != MAJORITY)
    if not len(which):
        return shares
    deltas = np.zeros((4, len(which)), dtype=live.delta)  # of no sign: the rows are only scored
    deltas[SLOT] = live.store.capacity + np.arange(len(which))
    deltas[SITE] = live.tree.nodes["site"][leaves[which]]
    yield from on_shards.put(deltas[SLOT], rows.take(which))
    priors, by = priors_of(live, leaves[which]), by[which]
    payload = live.to_count(deltas, np.arange(len(which)), logs.unsent(live.tree.counts[leaves[which]]))
    replies = yield Ask("count", payload)
    scores = sum((reply[1] for reply in replies), np.zeros_like(priors))
    if live.normal:
        normals = sum((reply[2] for reply in replies), 0)
        scores = np.where((by == NORMAL)[:, None], normals[: len(which)], scores)
        if live.inherits:
            scores = np.where((by == INHERITED)[:, None], normals[len(which) :], scores)
    scores = scores + logs.of(priors)
    odds = odds_of(scores, priors > 0)[:, :n_classes]
    shares[which] = 0.0
    shares[which, : odds.shape[1]] = odds / odds.sum(axis=1, keepdims=True)
    return shares


def _filled(live: LiveConfidenceTree, leaf: int) -> int:
    """The leaf or, where it has no examples, the nearest node above that has some; else the root."""
    while not live.tree.counts[leaf].any() and live.tree.nodes["parent"][leaf] >= 0:
        leaf = int(live.tree.nodes["parent"][leaf])
    return leaf


def gathered(live: LiveConfidenceTree, on_shards: RowsOnShards, logs: SharedLogs) -> Exchange[Arrays]:
    """Return what a model has of its leaves that predict by naive Bayes. O(leaves x bins x classes), two messages."""
    leaves = naive_leaves(live)
    by, sites = chosen(live, leaves), live.tree.nodes["site"][leaves].astype(np.int64)
    past = by == INHERITED
    replies = (yield Ask("naive", {"sites": sites, "past": past})) if len(leaves) else []
    assert live.bins is not None
    arrays = naive_arrays(preorder(live.tree)[1][leaves], priors_of(live, leaves), replies, live.bins, logs)
    normal = np.flatnonzero(by >= NORMAL)
    if len(normal):
        of_shards = yield Ask("normal", {"sites": sites[normal], "past": past[normal]})
        known = arrays["naive_prior"].shape[1]
        columns = np.concatenate(on_shards.columns)
        columns = columns[normal_scores(live.bins)[1][columns] > 0]
        if len(columns):
            parts = np.concatenate([part[..., :known] for part in of_shards if part.shape[2]], axis=2)
            arrays |= normal_arrays(normal, parts[:, :, np.argsort(columns)], logs)
    return arrays


#: Steps of the longest window.
LONGEST = 1 << 12
#: More insertions than there will be.
NEVER = 1 << 62


class ConfidenceTreeCoordinator(SequentialCoordinator):
    """Tree, class counts, ids and labels; features and what is counted of them are with the shards."""

    def __init__(self, options: ConfidenceTreeOptions, features: Features, shards: int, plan: WorkPlan) -> None:
        super().__init__()
        self.options, self.features = options, features
        self._rows = RowsOnShards(features, shards)
        self.live = LiveConfidenceTree(options, features)
        self._weighting = self.live.weighting
        self._decider = Decider(options.split_rule(len(features)), by_feature=options.rival == "feature")
        self._warmup = self._t = 0
        self._renewal = options.renewal if features.names else 0
        self._renewed = self._lived = 0  # t when the bins were made last, and the count of the live examples then
        self._classes = 2  # of the examples that were taken
        self._counts, self._digest, self._logs = RunTotals(), ConfidenceTreeDigest(), SharedLogs()
        self._compared = 0  # number of the last row of the warm-up, as a stamp: states have it
        self._single = SingleRows(self.live, self._logs, options.grace_period)
        self.listed: ListedConfidenceTree | None = None  #: For the call that takes the batches of many trees.
        self._naive: Arrays | None = None  # what predictions need of the shards, if nothing has changed since
        self._history: StatisticsHistory | None = None  # of the batch at work, if its statistics are wanted within it

    @property
    def store(self) -> ExampleStore:
        """Ids and labels of the live examples."""
        return self.live.store

    # ---------------------------------------------------------------- one batch

    def process(self, batch: UpdateBatch, *, skip_refused: bool = False) -> Exchange[BatchResult]:
        """Apply one batch, as :meth:`SequentialCoordinator.process` does; with its statistics within, if wanted."""
        self._history = StatisticsHistory(self.statistics()) if batch.every else None
        result = yield from super().process(batch, skip_refused=skip_refused)
        if self._history is not None:
            wanted = range((batch.start // batch.every + 1) * batch.every, batch.start + result.applied, batch.every)
            result.within = [self._history.after(updates) for updates in wanted]
        return result

    def _prepare(self, batch: UpdateBatch) -> Exchange[None]:
        self.options.require_classes(batch.n_classes, sparse=self.features.sparse > 0)
        self._require_warmup(batch, "confidence_tree", WARMUP)
        if batch.start == 0:
            self._warmup = batch.warmup
        self.live.make_room(batch)
        yield from ()

    def _take(self, batch: UpdateBatch, part: slice, admitted: Admission, result: BatchResult) -> Exchange[Log]:
        """Take the admitted updates of one part of the batch; returns the log of what changed the tree."""
        self._naive = None
        rows = RowBlock.of(batch.X, batch.sparse)
        steps, position = steps_of(batch, part, admitted)
        self._weigh()
        if self.live.naive:  # the shards score queries, too: in slots beyond all others, until these are used
            looks = np.flatnonzero(steps["kind"] == LOOK)
            steps["slot"][looks] = self.store.capacity + np.arange(len(looks))
        put = (steps["kind"] == ADD) | (self.live.naive & (steps["kind"] == LOOK))
        new = rows if put.sum() == len(rows.X) else rows.take(steps["row"][put])  # each row is of one update
        yield from self._rows.put(steps["slot"][put], new)
        logs: list[Log] = []
        warm = int(np.searchsorted(steps["stamp"], 2 * self._warmup)) if self.live.bins is None else 0
        if warm:
            path = Path(steps, np.arange(warm), np.full(warm, -1, dtype=np.int64), 0)
            self.live.walk(path, rows, counted=False, scored=False)
        if self.live.bins is None and batch.start + part.stop >= self._warmup:
            logs.append((yield from self._begin(steps)))
        logs += yield from self._take_steps(steps, warm, rows)
        enter_steps(result, steps, position, steps["prediction"] >= 0)
        return joined_logs(logs)

    def _weigh(self) -> None:
        """Make all counts masses with the first example that has another weight than 1."""
        live = self.live
        if live.unit == 1 and (self.store.uneven or live.weighting.factors is not None):
            live.weigh()
            self._logs.restart(masses=True)
            self._t, self._renewed, self._lived = (count * live.unit for count in (self._t, self._renewed, self._lived))

    def _take_steps(self, steps: npt.NDArray[np.void], begin: int, rows: RowBlock) -> Exchange[list[Log]]:
        """Take the steps after the warm-up, from ``begin`` on; renew the bins where that is due."""
        logs: list[Log] = []
        adds = np.flatnonzero(steps["kind"] == ADD)
        came = np.cumsum(self.live.masses(steps["slot"][adds]))
        while begin < len(steps):
            renews = self._renews_in()
            first = int(np.searchsorted(adds, begin))
            before = int(came[first - 1]) if first else 0
            last = int(np.searchsorted(came, before + renews))
            stop = int(adds[last]) + 1 if last < len(adds) else len(steps)
            logs.append((yield from self._advance(steps[begin:stop], rows)))
            if last < len(adds):
                yield from self._renew()
            begin = stop
        return logs

    def _renews_in(self) -> int:
        """Return the insertions up to the next renewal of the bins, as a count."""
        renewal = self._renewal * self.live.unit
        return self._renewed + max(self._lived, renewal) - self._t if renewal else NEVER

    def _renew(self) -> Exchange[None]:
        """Make the bins again, from the live examples, and have the shards count by them what nodes have counted."""
        slots, counted = self.live.counted()
        self._renewed, self._lived = self._t, int(self.live.tree.counts[0].sum())
        slots = counting(slots, self.store.weights(slots))
        parts = yield Ask("renew", {"slots": slots, "counted": counted})
        self.live.bins = joined([Bins.from_arrays(part) for part in parts])

    def _begin(self, later: npt.NDArray[np.void]) -> Exchange[Log]:
        """End the warm-up: fix the bins by its rows, and take these in order of birth; ``later`` steps follow."""
        slots = self.live.rows_of(np.array([0]))[0]
        slots = slots[np.argsort(self.store.born[slots])]
        if self.live.weighting.balance(self.store, slots, self._warmup, 2, later["slot"][later["kind"] == ADD]):
            self._weigh()
        parts = yield Ask("learn", {"slots": counting(slots, self.store.weights(slots))})
        self.live.bins = joined([Bins.from_arrays(part) for part in parts])
        rows = yield from self._rows.take(slots)
        self.live.tree.counts[0], self.live.tree.nodes["head"][0] = 0, -1
        if self._digested is not None and self.live.tallies:
            self._digested.forget()  # rows of earlier batches are predicted only now
        steps = np.zeros(len(slots), dtype=STEP)
        steps["kind"], steps["slot"], steps["row"] = ADD, slots, np.arange(len(slots))
        steps["stamp"] = 2 * self.store.born[slots] + 1
        log = yield from self._advance(steps, rows, scored=self.live.naive)
        self._renewed, self._lived = self._t, int(self.live.masses(slots).sum())
        self._compared = int(steps["stamp"].max(initial=0))
        if self._history is not None:
            self._history.know(2 * self._warmup - 1, self.statistics(), at_once=True)
        return log

    def _advance(self, steps: npt.NDArray[np.void], rows: RowBlock, *, scored: bool = True) -> Exchange[Log]:
        """Take some steps, window by window."""
        adds, which = steps["kind"] == ADD, np.arange(len(steps))
        slots = np.where(adds, steps["slot"], 0)  # of a query it is none
        label = np.where(adds, self.store.y[slots], 0) if len(steps) else which
        come = adds if self.live.unit == 1 else np.where(adds, self.live.masses(slots), 0)
        times = Times(self._t + np.cumsum(come), np.maximum.accumulate(np.append(self._classes, label + 1))[1:])
        log: list[Logged] = []
        leaves, altered = np.full(len(steps), -1, dtype=np.int64), np.zeros(len(steps), dtype=np.bool_)
        waiting, at = which[:0], 0
        while len(waiting) or at < len(which):
            begin, at = at, max(at, min(len(which), at + LONGEST - len(waiting)))
            waiting = np.concatenate([waiting, which[begin:at]])
            pending, waiting = waiting[:LONGEST], waiting[LONGEST:]
            path = Path(steps, pending, leaves, at)
            window = self.live.walk(path, rows, scored=scored)
            replies = yield from self._count(window)
            counted, stamps = window.counted, steps["stamp"]
            found = [reply[0] for reply in replies]
            changes = self._decider.decide(counted.checks, counted.owns, stamps, times, found, self.live.unit)
            again = self.live.roll_back(window, changes, altered)
            void = np.zeros(len(steps), dtype=np.bool_)
            void[again] = True
            settle_window(self.live, window, replies, self._logs.table, void)
            checked = counted.checks["step"]
            self._note(stamps[checked[~void[checked]]], changes)
            if changes:
                log += (entries := [self.live.entry_of(change) for change in changes])
                yield from self._apply(changes, [entry.threshold for entry in entries])
            waiting = np.concatenate([again, waiting])
        if len(steps):
            self._t, self._classes = int(times.t[-1]), int(times.classes[-1])
        return logged(sorted(log, key=lambda entry: entry.stamp))

    def _count(self, window: StepWindow) -> Exchange[list[tuple[Ints, Ints, Ints]]]:
        """Have the shards count what was counted, answer the checks, and score rows by naive Bayes."""
        counted = window.counted
        if not len(counted.entries):
            return []
        sites = self.live.tree.nodes["site"][counted.checks["node"]]
        checks = np.stack([counted.checks["entry"], sites], axis=1).astype(np.int64)
        logs = self._logs.unsent(counted.priors)
        return (yield Ask("count", self.live.to_count(counted.deltas, counted.scored, logs, checks)))

    def _note(self, checked: Ints, changes: list[LeafSplit]) -> None:
        """Count checks, by the stamps of their steps, and splits, before the leaves are split."""
        if self._history is not None:
            if len(checked):
                self._history.checked(checked)
            for change in changes:
                depth = int(self.live.tree.nodes["depth"][change.node])
                self._history.split(change.split.stamp, depth, tie=change.split.reason == TIE)
        ties = sum(change.split.reason == TIE for change in changes)
        checks, splits, tied = self._counts
        self._counts = RunTotals(checks + len(checked), splits + len(changes), tied + ties)

    def _apply(self, changes: list[LeafSplit], thresholds: list[float]) -> Exchange[None]:
        """Split leaves, and ask for the side of each of their rows."""
        of_changes = [(change.node, change.feature, change.cut) for change in changes]
        leaves, feature, cut = np.array(of_changes, dtype=np.int64).T.copy()
        slots, ends = self.live.rows_of(leaves)
        gone = self.live.clear(leaves)
        replies = yield Ask("divide", {"gone": gone, "feature": feature, "cut": cut, "ends": ends, "slots": slots})
        self.live.free(gone)
        owner = np.repeat(self._rows.owners(feature), np.diff(ends, prepend=0))
        right = np.empty(len(slots), dtype=np.uint8)
        for shard, bits in enumerate(replies):
            right[owner == shard] = np.unpackbits(bits, count=np.count_nonzero(owner == shard))
        self.live.divide(changes, thresholds, slots, ends, right)
        if self.live.inherits:
            children = self.live.tree.nodes[["left", "right"]][leaves].tolist()
            yield Ask("count", self.live.to_count(self.live.inherited(np.array(children).ravel())))

    def take_row(
        self, op: int, number: int, row: Floats, code: int, worker: Any
    ) -> tuple[bool | None, Exchange[Any] | None]:
        """Apply one update without a batch, after which nothing is renewed."""
        if self.live.bins is None or self.features.sparse or self.live.unit > 1:
            return None, None
        rest = None
        if op == INSERT:
            example = number, row, code, self._seq
            taken = self._single.insert(example, worker, self._digested) if self._renews_in() > 1 else None
            if taken is None:
                return None, None
            self._t, self._classes = self._t + 1, max(self._classes, code + 1)
            rest = self._check(*taken) if taken[1] >= 0 else None
        elif not self._single.forget(row, code, worker, self._digested):
            return False, None
        self._seq, self._naive = self._seq + 1, None
        return True, rest

    def _check(self, slot: int, leaf: int) -> Exchange[None]:
        """Check a leaf just after an example was counted there alone, and split it if the rule says so."""
        live, times = self.live, Times(np.array([self._t]), np.array([self._classes]))
        check, stamp, nothing = np.zeros(1, dtype=CHECK), 2 * self.store.born[[slot]] + 1, np.zeros(4, dtype=live.delta)
        check["node"], check["depth"] = leaf, live.tree.nodes["depth"][leaf]
        at = np.array([[0, live.tree.nodes["site"][leaf]]], dtype=np.int64)
        replies, self._history = (yield Ask("count", live.to_count(nothing[:, None], checks=at))), None
        found = [reply[0] for reply in replies]
        changes = self._decider.decide(check, live.tree.own[[leaf]], stamp, times, found, live.unit)
        self._note(stamp, changes)
        if changes:
            yield from self._apply(changes, [self.live.entry_of(change).threshold for change in changes])

    def group(self, batch: UpdateBatch, worker: Any) -> Many | None:
        """Return what takes this batch with those of other trees, if nothing is renewed."""
        self.listed, group = group_of(self.live, self.features, worker, self._decider, batch, self.listed)
        return group if self._renews_in() > len(batch.op) else None

    @property
    def examples_and_classes(self) -> tuple[int, int]:
        """The examples that the tree has taken, as a count, and the classes that it knows."""
        return self._t, self._classes

    def took_rows(self, rows: int, classes: int, checks: int) -> RunTotals:
        """Take note of examples taken with those of other trees, their classes, and checks; the totals so far."""
        self._t, self._classes, self._naive = self._t + rows, max(self._classes, classes), None
        if checks:
            self._counts = self._counts._replace(checks=self._counts.checks + checks)
        return self._counts

    def trim(self) -> None:
        """Rest, and give up what digests have of the tree, and room for more examples and nodes."""
        super().trim()
        self.listed, self._naive, self._digest = None, None, ConfidenceTreeDigest()
        self._single.rest()
        self.live.trim()

    def predict_row(self, row: Floats, worker: Any) -> int | None:
        """Return the class that the tree predicts, once there are bins, and without weights."""
        if self.live.bins is None or self.features.sparse or self.live.unit > 1:
            return None
        return self._single.class_of(row, worker)

    def finish(self) -> Exchange[Log]:
        """End a warm-up that the stream did not complete."""
        if self.live.bins is not None or self._seq == 0:
            return {}
        self._warmup, self._naive = self._seq, None
        return (yield from self._begin(np.empty(0, dtype=STEP)))

    def gather(self) -> Exchange[None]:
        """Fetch the counts of the leaves that predict by naive Bayes. O(leaves x bins x classes)."""
        if self._naive is None and self.live.naive and self.live.bins is not None:
            self._naive = yield from gathered(self.live, self._rows, self._logs)

    # ---------------------------------------------------------------- the model

    def _alike(self, row: RowBlock) -> Slots:
        """Live examples in the leaf of a row."""
        return self.live.rows_of(np.array([route(self.live.tree, self.live.categorical, row, 0)]))[0]

    def _positions(self, slots: Slots) -> Arrays:
        return {"leaf": preorder(self.live.tree)[1][self.live.members["leaf"][slots]]}

    def predictor(self) -> NaivePredictor:
        """Predictions of the tree. O(nodes x classes), and once O(leaves x groups of bins x classes)."""
        return NaivePredictor(self.features, self._with_naive(filled(node_arrays(self.live.tree))))

    def shares_now(self, X: Floats, n_classes: int) -> Exchange[Floats]:
        """As :meth:`predict_proba`, of a few dense rows and without :meth:`gather`: the shards score them."""
        return (yield from shares_now(self.live, self._rows, self._logs, RowBlock.of(X, None), n_classes))

    def _with_naive(self, model: Arrays) -> Arrays:
        return model if self._naive is None else model | self._naive

    def digest(self, former: bool = False) -> str:
        """Digest of all that predicts and decides: tree, counts, records, bins, tallies, ids, labels, who was right.

        It is free of slots, node ids, sites and list orders. The first costs O(nodes + live examples), the next
        O(nodes + log n) for an update.
        """
        none = np.empty(0, dtype=np.int32)
        return self._digest.of(self.live, self._totals(), lambda: self.state(none), self._row_part())

    def _row_columns(self, slots: Slots) -> Arrays:
        return {"y": self.store.y[slots], **self.live.was_right(slots)}

    def statistics(self) -> dict[str, int]:
        """Sizes and totals now."""
        deepest, reg = preorder(self.live.tree)[2], self.live.tree.reg
        size = {"active": self.store.live, "nodes": int(reg[NODES]), "leaves": int(reg[LEAVES]), "depth": deepest}
        return {**size, "rebuilds": 0, "rebuilt_rows": 0, **self._counts._asdict()}

    def model(self) -> Arrays:
        """Canonical arrays of the tree that predict."""
        canonical = canonical_tree(self.live.tree, self.live.splits, self.live.outline)
        return self._with_naive(predictive(canonical, self.live.unit))

    def state(self, slots: Slots) -> Arrays:
        """Canonical arrays of the tree, its records, the bins, the leaf of each example, and the totals."""
        return self.live.state(slots) | self._totals()

    def _totals(self) -> Arrays:
        bins = self._renewed, self._lived
        totals = self._seq, self._warmup, self._t, self._classes, *bins, self._compared, *self._counts, 0
        return {name: np.array([value], dtype=np.int64) for name, value in zip(SCALARS, totals, strict=True)}

    def restore(self, state: Arrays) -> None:
        """Continue from a saved state; its rows take slots 0, 1, ..., their features stay with the shards."""
        self.live.restore(state)
        totals = [int(state[name][0]) for name in SCALARS]
        self._seq, self._warmup, self._t, self._classes, self._renewed, self._lived, self._compared, *counts, _ = totals
        self._counts, self._naive = RunTotals(*counts), None
        self._logs.restart(masses=self.live.unit > 1)
