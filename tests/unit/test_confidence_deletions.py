"""After deletions every count is that of the remaining examples, counted anew in the same tree."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from raydt.learners.confidence_tree.dynamic_tree import LiveConfidenceTree
from raydt.learners.confidence_tree.shard import ConfidenceTreeShard
from raydt.sessions.session import InProcessSession
from tests.confidence_streams import LEARNER, GroupedStream, assert_same_tree, grown, session_of, twin_of
from tests.oracles.binning import CategoryBins, NumericBins
from tests.oracles.confidence_tree import ConfidenceTwin, Node, stamp
from tests.oracles.fudyadt import Example

SETTINGS: dict[str, dict[str, Any]] = {
    "kept": {"c": 0.005, "grace_period": 3, "max_bins": 6},
    "renewed": {"c": 0.005, "grace_period": 3, "max_bins": 6, "renew_bins": 5},
    "drift": {"c": 0.005, "grace_period": 3, "max_bins": 6, "drift_period": 4},
    "theorem": {"confidence": "theorem", "delta": 0.9, "tie_threshold": 4.0, "grace_period": 6, "max_bins": 6},
}


def bins_of(twin: ConfidenceTwin, j: int) -> int:
    """How many bins a dense feature has at a shard."""
    bins = twin.bins[j]
    if isinstance(bins, NumericBins):
        return len(bins.boundaries) + 2
    assert isinstance(bins, CategoryBins)
    return len(bins.kept) + 1


def tally(examples: list[Example], classes: int) -> list[int]:
    return np.bincount([e.y for e in examples], minlength=classes).tolist()


def goes_left(twin: ConfidenceTwin, feature: int, threshold: float, x: tuple[float, ...]) -> bool:
    return x[feature] == threshold if twin.categorical[feature] else x[feature] <= threshold


def faults(session: InProcessSession, stream: GroupedStream, twin: ConfidenceTwin) -> list[str]:
    """What a session's counts have wrong. The tree is its own; of the twin only live examples and bins are used."""
    state, groups = session.state()
    found = []
    routed: list[list[Example]] = [[] for _ in state["feature"]]
    for e in twin.live.values():
        node = 0
        while True:
            routed[node].append(e)
            if state["feature"][node] < 0:
                break
            left = goes_left(twin, int(state["feature"][node]), float(state["threshold"][node]), e.x)
            node = int(state["left" if left else "right"][node])
    classes, used, no_trials = state["counts"].shape[1], {}, np.full(len(routed), -1)
    for node, examples in enumerate(routed):
        own = [e for e in examples if stamp(e) > state["created"][node]]
        if state["place"][node] < 0:
            own = []
        else:
            used[int(state["place"][node])] = own
        if state["counts"][node].tolist() != tally(examples, classes):
            found.append(f"classes of node {node}")
        if state["own"][node].tolist() != tally(own, classes):
            found.append(f"own classes of node {node}")
        if state.get("trial_place", no_trials)[node] >= 0:
            tried = [e for e in examples if state["trial_began"][node] < stamp(e) <= state["compared"][0]]
            used[int(state["trial_place"][node])] = tried
            if state["trial_own"][node].tolist() != tally(tried, classes):
                found.append(f"classes of the trial of node {node}")
    if len(used) != int((state["place"] >= 0).sum() + (state.get("trial_place", no_trials) >= 0).sum()):
        found.append("a place is used twice")
    for g, group in groups.items():
        found += [f"group {g}: {fault}" for fault in faults_of_group(stream, twin, g, group, used)]
    return found


def faults_of_group(
    stream: GroupedStream, twin: ConfidenceTwin, g: int, group: dict[str, Any], used: dict[int, list[Example]]
) -> list[str]:
    """The same of what is counted of one feature group; places that no node has are empty."""
    found = []
    places, bins, classes = group["bins"].shape
    if any(own for place, own in used.items() if place >= places):
        found.append("a place is missing")
    columns = stream.features.group_columns(g).tolist()
    for place in range(places):
        own = used.get(place, [])
        if group["totals"][place].tolist() != tally(own, classes):
            found.append(f"totals at place {place}")
        parts = [
            tally([e for e in own if twin.codes(e.x)[j] == b], classes)
            for j in columns
            for b in range(bins_of(twin, j))
        ]
        if group["bins"][place].tolist() != parts:
            found.append(f"bins at place {place}, of {bins}")
    if stream.features.sparse:
        mine = np.flatnonzero(stream.features.groups_of(np.arange(stream.features.sparse)) == g).tolist()
        ones = {}
        for place, own in used.items():
            for j in mine:
                labels = [e.y for e in own if e.x[stream.dense + j] == 1.0]
                if labels:
                    ones[place, j] = len(labels), sum(labels)
        names = ("place", "feature", "n1", "c11")
        rows = zip(*(group[name].tolist() for name in names), strict=True)
        if {(place, j): (n1, c11) for place, j, n1, c11 in rows} != ones:
            found.append("sparse features")
    return found


def streams_for(setting: str) -> list[GroupedStream]:
    """Three of them; a structure needs sparse features."""
    streams = [grown(seed, 260, 3 if seed % 4 == 3 and "upd" not in setting else 2) for seed in range(60, 90)]
    return [s for s in streams if s.features.sparse > 1 or "upd" not in setting][:3]


def run(stream: GroupedStream, options: dict[str, Any], shards: int, sizes: list[int]) -> tuple[list[str], int]:
    """Faults after some of the batches, and how many splits there were; the last examples leave one by one."""
    session, twin = (
        session_of(stream, options, shards),
        ConfidenceTwin(stream.columns.categorical, unsplit(options), stream.features.sparse),
    )
    found: list[str] = []
    for turn, (batch, whole) in enumerate(zip(stream.batches(sizes), stream.columns.batches(sizes), strict=True)):
        session.apply(batch)
        twin.process(whole)
        if turn % 3 == 2 and twin.started:
            found += [f"update {batch.stop}: {fault}" for fault in faults(session, stream, twin)]
    found += [f"the end: {fault}" for fault in faults(session, stream, twin)]
    return found, session.statistics()["splits"]


def unsplit(options: dict[str, Any]) -> Any:
    """Options of the twin that keeps the live examples, and their bins: it never splits."""
    renewal = LEARNER.Options(**options).renewal
    return LEARNER.Options(c=1e6, grace_period=1000, max_bins=6, renew_bins=renewal, leaf_prediction="majority")


@pytest.mark.parametrize("setting", SETTINGS)
def test_counts_are_those_of_the_remaining_examples(setting: str) -> None:
    splits = 0
    for i, stream in enumerate(streams_for(setting)):
        found, more = run(stream, SETTINGS[setting], 1 + i, [30, 7])
        assert found == []
        splits += more
    assert splits >= 15


# ------------------------------------------------------------------ mistakes that would be found


def at_another_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every tenth row is counted out at the place of another."""
    walk = LiveConfidenceTree.walk

    def mistaken(*args: Any, **options: Any) -> Any:
        window = walk(*args, **options)
        deltas = window.counted.deltas
        out = np.flatnonzero(deltas[2] < 0)[::10]
        deltas[1, out] = deltas[1, (out + 1) % deltas.shape[1]] if deltas.shape[1] else 0
        return window

    monkeypatch.setattr(LiveConfidenceTree, "walk", mistaken)


def never_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """A place is used again as it was left."""
    monkeypatch.setattr(ConfidenceTreeShard, "_forget", lambda self, gone: None)


def own_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """An inner node keeps what it counted as a leaf."""
    clear = LiveConfidenceTree.clear

    def mistaken(self: LiveConfidenceTree, node: int) -> list[int]:
        own = self.tree.own[node].copy()
        places = clear(self, node)
        self.tree.own[node] = own
        return places

    monkeypatch.setattr(LiveConfidenceTree, "clear", mistaken)


MISTAKES = [(at_another_place, "kept"), (never_forgotten, "kept"), (own_kept, "kept")]
MISTAKES += [(never_forgotten, "drift")]


@pytest.mark.parametrize(("mistake", "setting"), MISTAKES, ids=lambda v: getattr(v, "__name__", v))
def test_a_mistake_is_found(
    mistake: Callable[[pytest.MonkeyPatch], None], setting: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mistake(monkeypatch)
    assert any(run(stream, SETTINGS[setting], 2, [30, 7])[0] for stream in streams_for(setting))


class GraceGivenBack(ConfidenceTwin):
    """A deletion takes back an arrival."""

    def remove(self, e: Example, now: int) -> int:
        leaf = self.path(e.x)[-1]
        leaf.arrivals = max(0, leaf.arrivals - (stamp(e) > leaf.created))
        return super().remove(e, now)


class DeletionsArrive(ConfidenceTwin):
    """A deletion is an arrival, and may split."""

    def remove(self, e: Example, now: int) -> int:
        leaf = self.path(e.x)[-1]
        route = super().remove(e, now)
        leaf.arrivals += 1
        if leaf.arrivals >= self.options.grace_period:
            leaf.arrivals = 0
            self.split_leaf(leaf, now)
        return route


class InheritedCount(ConfidenceTwin):
    """What a leaf was given by its parent counts for its split."""

    def own(self, v: Node) -> list[Example]:
        return list(self.below(v)) if v.is_leaf else []


class FirstIsCounted(ConfidenceTwin):
    """The example that made a leaf is counted there."""

    def own(self, v: Node) -> list[Example]:
        return [e for e in self.below(v) if stamp(e) >= v.created] if v.is_leaf else []


@pytest.mark.parametrize(
    "mutant", [GraceGivenBack, DeletionsArrive, InheritedCount, FirstIsCounted], ids=lambda m: m.__name__
)
def test_another_tree_would_be_told_apart(mutant: type[ConfidenceTwin]) -> None:
    options = SETTINGS["kept"]
    told = []
    for stream in streams_for("kept"):
        session, honest = session_of(stream, options, 2), twin_of(stream, options)
        other = mutant(stream.columns.categorical, honest.options, stream.features.sparse)
        for batch, whole in zip(stream.batches([1000]), stream.columns.batches([1000]), strict=True):
            session.apply(batch)
            honest.process(whole)
            other.process(whole)
        assert_same_tree(session, honest)
        same = ("feature", "cut", "left", "right", "created")
        told.append(any(honest.canonical()[name] != other.canonical()[name] for name in same))
    assert any(told)
