"""Streams for the tests of the confidence tree: numbers with gaps, categories, sparse features; its twin and a session.

The label follows two of the features, with noise, and two others from the middle on, so that small grace periods and
narrow widths make many splits, and drift restarts nodes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from raydt.examples.updates import DELETE, DELETE_VALUE, INSERT, QUERY, UNIT, UPDATE, Features, UpdateBatch
from raydt.learners import learners
from raydt.sessions.session import InProcessSession
from tests.oracles.confidence_tree import ConfidenceTwin, padded
from tests.sparse_tree_streams import MixedStream
from tests.strategies import WEIGHTS, script

LEARNER = learners()["confidence_tree"]

MIX = np.array((INSERT, DELETE, DELETE_VALUE, UPDATE, QUERY))
GROWING, CHANGING = (0.86, 0.04, 0.01, 0.05, 0.04), (0.42, 0.26, 0.06, 0.22, 0.04)


@dataclass(frozen=True)
class GroupedStream(MixedStream):
    """With any number of feature groups."""

    groups: int = 4

    @property
    def features(self) -> Features:
        return replace(super().features, groups=self.groups)

    @property
    def classes(self) -> int:
        return max(2, 1 + max(int(y) for y in self.columns.y))

    def batches(self, sizes: Sequence[int]) -> Iterator[UpdateBatch]:
        for batch in super().batches(sizes):
            yield batch if self.features.sparse else replace(batch, sparse=None)


def grown(
    seed: int, events: int = 240, classes: int = 2, refusals: bool = False, oldest: bool = False, flips: bool = False
) -> GroupedStream:
    """A stream from a seed: columns of all kinds, values that repeat.

    ``oldest``: the oldest examples leave first; ``flips``: from the middle on each label is another one.
    """
    rng = np.random.default_rng(seed)
    kinds = tuple(bool(k) for k in rng.random(int(rng.integers(1, 5))) < 0.35)
    sparse = int(rng.integers(0, 5)) if classes == 2 else 0
    distinct, gaps = int(rng.choice((3, 7, 40))), float(rng.choice((0.0, 0.05, 0.3)))
    gaps_late, noise = float(rng.choice((0.0, 0.1))), float(rng.choice((0.02, 0.15)))
    d = len(kinds) + sparse
    early, late = rng.integers(0, d, 2), rng.integers(0, d, 2)
    drawn = []
    for i in range(events):
        cells = rng.integers(0, distinct, d)
        cells[len(kinds) :] %= 2
        middle = np.where(np.arange(d) < len(kinds), distinct // 2, 1)
        a, b = early if flips or i < events // 2 else late
        label = (int(cells[a] >= middle[a]) + int(cells[b] >= middle[b])) % classes
        if rng.random() < noise:
            label = int(rng.integers(classes))
        if flips and i >= events // 2:
            label = classes - 1 - label
        x = [float(v) for v in cells]
        for j, categorical in enumerate(kinds):
            if rng.random() < (gaps if i < events // 2 else gaps + gaps_late):
                x[j] = -1.0 if categorical else math.nan
        op = int(rng.choice(MIX, p=GROWING if flips or i < events // 2 else CHANGING))
        drawn.append((op, int(rng.integers(4 if oldest else 256)), tuple(x), label))
    lead = int(rng.choice((1, 8, 25, events // 4)))
    columns = replace(script(drawn, (*kinds, *[False] * sparse), lead, refusals), warmup=lead)
    columns = replace(columns, classes_known=bool(rng.random() < 0.5))
    return GroupedStream(columns, len(kinds), int(rng.integers(1, 6)))


def scattered(seed: int, events: int, gaps: float) -> GroupedStream:
    """Numbers that hardly repeat, normally distributed in each of three classes; and a column of few values."""
    rng = np.random.default_rng(seed)
    middles = rng.normal(0.0, 1.0, (3, 3))
    drawn = []
    for _ in range(events):
        label = int(rng.integers(3))
        x = [*np.round(middles[label] + rng.normal(size=3), 2).tolist(), float(rng.integers(4))]
        x = [math.nan if rng.random() < gaps else v for v in x]
        drawn.append((int(rng.choice(MIX, p=CHANGING)), int(rng.integers(256)), tuple(x), label))
    columns = replace(script(drawn, (False,) * 4, 40, False), warmup=40)
    return GroupedStream(columns, 4, int(rng.integers(1, 6)))


@st.composite
def short_streams(draw: st.DrawFn, refusals: bool = False) -> GroupedStream:
    """Few features and rows that repeat: ties, equal rows, pure and empty sides, also a warm-up that never ends."""
    dense = tuple(draw(st.lists(st.booleans(), min_size=1, max_size=2)))
    classes = draw(st.integers(2, 3))
    number = st.sampled_from((0.0, 1.0, 2.0, 2.5, math.nan))
    category = st.sampled_from((-1.0, 0.0, 1.0, 2.0))
    sparse = draw(st.integers(0, 3)) if classes == 2 else 0
    cells = st.tuples(*(category if kind else number for kind in dense), *[st.sampled_from((0.0, 1.0))] * sparse)
    operation = st.sampled_from((INSERT,) * draw(st.sampled_from((1, 8))) + (INSERT, *MIX.tolist()))
    event = st.tuples(operation, st.integers(0, 255), cells, st.integers(0, classes - 1))
    size = draw(st.sampled_from((1, 30, 80)))
    events = draw(st.lists(event, min_size=size, max_size=2 * size))
    lead = draw(st.integers(1, 12))
    columns = replace(script(events, (*dense, *[False] * sparse), lead, refusals), warmup=lead)
    return GroupedStream(replace(columns, classes_known=draw(st.booleans())), len(dense), draw(st.integers(1, 4)))


#: Settings that split: narrow widths, or ties that are wide.
RULES: dict[str, dict[str, list[Any]]] = {
    "practical": {
        "criterion": ["gini", "gini", "entropy", "kearns_mansour"],
        "c": [0.001, 0.01, 0.03],
        "tie_threshold": [0.0, 0.0, 0.02],
    },
    "theorem": {
        "confidence": ["theorem"],
        "criterion": ["gini", "entropy", "kearns_mansour"],
        "delta": [0.9, 0.01, "1/t"],
        "tie_threshold": [3.0, 6.0],
    },
    "hoeffding": {
        "rule": ["hoeffding"],
        "criterion": ["gini", "entropy"],
        "delta": [0.9, 0.99, "1/t"],
        "tie_threshold": [0.0, 0.05, 0.3],
    },
    "corrected": {"rule": ["corrected"], "delta": [0.95, 0.5], "tie_threshold": [0.0, 0.2]},
    "mcdiarmid": {"rule": ["mcdiarmid"], "delta": [0.9], "tie_threshold": [5.0, 9.0]},
}
COMMON: dict[str, list[Any]] = {
    "grace_period": [1, 4, 9, 15],
    "max_bins": [2, 3, 6, 32],
    "rival": ["feature", "split"],
    "leaf_prediction": ["majority", "naive_bayes", "adaptive", "adaptive_normal", "adaptive_inherited"],
}


def drawn_options(rng: np.random.Generator, classes: int, rule: str, **fixed: Any) -> dict[str, Any]:
    """Options that decide the model, each key drawn from its list."""
    lists = {**RULES[rule], **COMMON}
    options = {key: values[int(rng.integers(len(values)))] for key, values in lists.items()} | fixed
    options["renew_bins"] = (None, 0, 1, 5, 20)[int(rng.integers(5))]
    if classes > 2 and options.get("criterion") == "kearns_mansour":
        options["criterion"] = "gini"
    return options


def options_for(classes: int) -> st.SearchStrategy[dict[str, Any]]:
    seeds = st.integers(0, 2**32 - 1)
    return st.builds(
        lambda seed, rule: drawn_options(np.random.default_rng(seed), classes, rule),
        seeds,
        st.sampled_from(list(RULES)),
    )


def weighed(stream: GroupedStream, seed: int, weights: Sequence[int] = WEIGHTS) -> GroupedStream:
    """The stream with weights for its rows, the first rows with 1."""
    rng = np.random.default_rng(seed)
    columns = stream.columns
    drawn = rng.choice(weights, len(columns)).tolist()
    even = int(rng.integers(0, 1 + len(columns) // 2))
    return replace(stream, columns=replace(columns, weight=(*[UNIT] * even, *drawn[even:])))


def twin_of(stream: GroupedStream, options: dict[str, Any], *, copies: bool = False) -> ConfidenceTwin:
    """The twin; with ``copies`` it counts rows, of which an example of weight 3 is three."""
    twin = ConfidenceTwin(stream.columns.categorical, LEARNER.Options(**options), stream.features.sparse)
    if stream.columns.weight is not None or options.get("class_weight") == "balanced":
        twin.unit, twin.weights = 1 if copies else UNIT, dict(enumerate(stream.columns.weight or ()))
    return twin


def session_of(stream: GroupedStream, options: dict[str, Any], shards: int) -> InProcessSession:
    return InProcessSession(LEARNER, LEARNER.Options(**options), stream.features, shards)


#: What a split's record has of its own; the rest is with its node.
_OF_RECORDS = (
    "stamp",
    "m",
    "t",
    "classes",
    "rival_feature",
    "rival_cut",
    "reason",
    "phi",
    "rival_phi",
    "impurity",
    "epsilon",
)


#: Arrays of a state that count.
_COUNTS = ("counts", "own", "since", "t", "renewed", "lived")
_COUNTS += (*(f"split_{name}" for name in ("m", "t", "own", "left")),)


def observed(state: dict[str, Any], unit: int = 1) -> dict[str, Any]:
    """A coordinator's state in the words of the twin, whose counts have so many units a row."""
    own = int(state["unit"][0]) if "unit" in state else 1
    state = state | {name: state[name] * unit // own for name in _COUNTS if name in state}
    inner = np.flatnonzero(state["feature"] >= 0).tolist()
    parents = {child: v for v in inner for child in (int(state["left"][v]), int(state["right"][v]))}
    depth: list[int] = []
    for v in range(len(state["feature"])):
        depth.append(depth[parents[v]] + 1 if v in parents else 0)
    records = []
    for i, v in enumerate(inner):
        record = {name: state[f"split_{name}"][i].item() for name in _OF_RECORDS}
        record |= {name: state[name][v].item() for name in ("feature", "cut", "threshold")}
        records.append(record | {name: padded(state[f"split_{name}"][i].tolist()) for name in ("own", "left")})
    order = np.argsort(state["id"])
    nodes = {name: state[name].tolist() for name in ("feature", "cut", "left", "right", "created")}
    rows = {name: state[name][order].tolist() for name in ("id", "y", "born", "leaf")}
    return {
        **nodes,
        **rows,
        "depth": depth,
        "arrivals": state["since"].tolist(),
        "counts": [padded(row) for row in state["counts"].tolist()],
        "own": [padded(row) for row in state["own"].tolist()],
        "records": records,
        "t": int(state["t"][0]),
        "renewed": int(state["renewed"][0]),
        "lived": int(state["lived"][0]),
        "classes": int(state["classes"][0]),
        "compared": int(state["compared"][0]),
        "was_right": state["was_right"][order].tolist() if "was_right" in state else [],
    }


def assert_same_tree(session: InProcessSession, twin: ConfidenceTwin, where: str = "") -> None:
    """Bit for bit, but for epsilon, which the twin has of forty digits."""
    seen, expected = observed(session.state()[0], twin.unit), twin.canonical()
    for record, other in zip(seen["records"], expected["records"], strict=False):
        if math.isclose(record["epsilon"], other["epsilon"], rel_tol=1e-12):
            record["epsilon"] = other["epsilon"]
    for name, value in expected.items():
        assert seen[name] == value, f"{where}: {name}"
