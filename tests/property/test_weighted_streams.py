"""Rows with whole weights against repeated rows: the same model, bit for bit, under insertions and deletions.

Features are numbers: bins of categories are in the order of how many rows have them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raydt.examples.updates import DELETE, INSERT, UNIT, Features, History, UpdateBatch
from raydt.learners import learners
from raydt.learners.base import WorkPlan
from raydt.learners.gbdt.options import GBDTOptions
from raydt.sessions.session import InProcessSession
from tests.crews import NUMBERS, crew
from tests.volume import examples

pytestmark = pytest.mark.timeout(900)

GBDT = learners()["gbdt"]
#: Larger than every weight.
COPIES = 8
ALIVE = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Round:
    """Rows to delete, by id, and to insert: cells, label and weight of each."""

    gone: tuple[int, ...]
    new: tuple[tuple[float, float, int, int], ...]


@st.composite
def rounds(draw: st.DrawFn) -> list[Round]:
    """A training, then updates; ids count the rows inserted so far."""
    cell = st.integers(0, 4).map(float)
    row = st.tuples(cell, cell, st.integers(0, 2), st.integers(1, 4))
    found, live, count = [], set(), 0
    for turn in range(draw(st.integers(1, 4))):
        gone = draw(st.sets(st.sampled_from(sorted(live)))) if live else set()
        new = draw(st.lists(row, min_size=0 if turn else 8, max_size=24))
        live = live - gone | set(range(count, count + len(new)))
        count += len(new)
        found.append(Round(tuple(sorted(gone)), tuple(new)))
    return found


def batch_of(
    some: Round, start: int, first: int, warmup: int, numbers: bool, repeated: bool, weights: list[int]
) -> Any:
    """A round as a batch; weights of all rows so far are in ``weights``."""
    copies = lambda id: range(weights[id]) if repeated else range(1)  # noqa: E731
    gone = [id * COPIES + copy for id in some.gone for copy in copies(id)]
    new = [(first + i, row) for i, row in enumerate(some.new)]
    added = [(id * COPIES + copy, row) for id, row in new for copy in copies(id)]
    y = [row[2] for _, row in added]
    return UpdateBatch(
        start,
        np.repeat(np.array([DELETE, INSERT], np.int8), [len(gone), len(added)]),
        np.array([*gone, *(id for id, _ in added)], np.int64),
        np.array([row[:2] for _, row in added], np.float64).reshape(-1, 2),
        np.array(y, np.float64) / 3 if numbers else np.array(y, np.int32),
        0 if numbers else 3,
        np.full(len(gone) + len(added), -1, np.int64),
        len(added) if warmup else 0,
        weight=None if repeated else np.array([UNIT * row[3] for _, row in added], np.uint32),
    )


def model_of(session: InProcessSession) -> dict[str, Any]:
    """What both have to agree in."""
    state = session.state()[0]
    names = [name for name in state if name.startswith("node_")]
    return {name: state[name].tolist() for name in [*names, "tree_nodes", "origin", "exponent", "classes"]}


@examples(25)
@given(
    rounds(),
    st.fixed_dictionaries(
        {
            "objective": st.sampled_from(("auto", "multiclass", "squared_error")),
            "max_iter": st.integers(1, 4),
            "max_leaf_nodes": st.integers(2, 6),
            "l2_regularization": st.sampled_from((0.0, 1.0)),
            "robustness_tolerance": st.sampled_from((0.0, 0.2)),
            "derivatives": st.sampled_from(("bounded", "changed_leaves", "retrained", "never")),
            "retrain": st.sampled_from(("never", "always")),
        }
    ),
    st.sampled_from((1, 2, 3)),
    st.booleans(),
    st.sampled_from(NUMBERS),
)
def test_gbdt(updates: list[Round], chosen: dict[str, Any], shards: int, shared: bool, threads: int) -> None:
    numbers = chosen["objective"] == "squared_error"
    chosen = chosen | {"max_bins": 16, "candidate_fraction": 0.5, "update_every": 2**40}
    options, features = GBDTOptions(**chosen), Features(("a", "b"), (False, False), groups=2)
    weighted, repeated = (
        InProcessSession(GBDT, options, features, shards, WorkPlan(0, shared_store=shared)) for _ in range(2)
    )
    weights: list[int] = []
    seq, first = [0, 0], 0
    with crew(threads, None):
        for turn, some in enumerate(updates):
            weights += [row[3] for row in some.new]
            for which, session in enumerate((weighted, repeated)):
                batch = batch_of(some, seq[which], first, turn == 0, numbers, which == 1, weights)
                seq[which] = batch.stop
                session.apply(batch)
                session.finish()
            first += len(some.new)
            assert model_of(weighted) == model_of(repeated), f"round {turn}"
        restored = InProcessSession(GBDT, options, features, 2, WorkPlan(0, shared_store=False))
        restored.restore(*weighted.state())
        assert restored.digest() == weighted.digest()
        assert model_of(restored) == model_of(weighted)
    assert GBDT.audit(options, features, weighted.state()[0], history_of(updates, numbers), {}).failures == []


def history_of(updates: list[Round], numbers: bool) -> History:
    """The live examples of the weighted session, as the source has them."""
    rows = [(turn, row) for turn, some in enumerate(updates) for row in some.new]
    gone = {id for some in updates for id in some.gone}
    born, seq = [], 0
    for some in updates:
        born += [seq + len(some.gone) + i for i in range(len(some.new))]
        seq += len(some.gone) + len(some.new)
    live = [i for i in range(len(rows)) if i not in gone]
    y = np.array([rows[i][1][2] for i in live])
    return History(
        id=np.array([i * COPIES for i in live], np.int64),
        X=np.array([rows[i][1][:2] for i in live], np.float64).reshape(-1, 2),
        y=y / 3 if numbers else y.astype(np.int32),
        inserted=np.array([born[i] for i in live], np.int64),
        deleted=np.full(len(live), ALIVE),
        complete=False,
        weight=np.array([UNIT * rows[i][1][3] for i in live], np.uint32),
    )
