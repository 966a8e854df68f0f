"""A timetable that is replayed takes as long as the real coordinator and shards under the clock; the gate is real."""

from __future__ import annotations

import importlib
import random
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from raydt.exchange.links import Links
from raydt.exchange.meetings import AllGather, ReduceScatter
from tests.meetings import met
from tests.simulation.clock import Done, Wire

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def kit() -> Iterator[Any]:
    """The programs of the benchmark."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        yield importlib.import_module("clock")


@pytest.fixture(scope="module")
def timetable(kit: Any) -> Any:
    return sys.modules["timetable"]


def cost_of(kind: str) -> float:
    """Some seconds that differ from kind to kind."""
    return (1 + zlib.crc32(kind.encode()) % 97) * 1e-4


def given(done: Done) -> float:
    """Costs by kind of step; of the coordinator by what it does last."""
    if done.machine.name == "coordinator":
        return cost_of(done.steps[-1].kind) if done.steps else 0.0
    return sum(cost_of(step.kind) for step in done.steps)


def work(kit: Any, rows: int = 3_000, columns: int = 6) -> Any:
    return kit.Work("gbdt", rows, columns, {"max_iter": 2, "max_bins": 64})


def exact(timetable: Any, run: Any) -> Any:
    """A table whose seconds are those of :func:`given`, and whose bytes are those of a run."""
    fits, one = {}, np.zeros(len(timetable.TERMS))
    one[-1] = 1.0
    for (what, kind), value in run.values.items():
        seconds = {"s": cost_of(kind), "lead": cost_of(kind), "reply": 0.0}.get(what, value)
        fits[run.size.shards == 1, what, kind] = timetable.Fit(seconds * one, np.zeros(1))
    none = {way: timetable.Fit(np.zeros(3), np.zeros(1)) for way in run.ways}
    return timetable.Table([run], fits, none, {}, lambda rows: 1)


@pytest.mark.parametrize("shards", [1, 2, 5, 8])
def test_a_replay_takes_as_long_as_the_clock(kit: Any, timetable: Any, shards: int) -> None:
    """Exactly where messages have no size, with and without a straggler; and closely where they have one."""
    slow = 1.7 if shards > 1 else 1.0
    for wire, within in ((Wire(call=2e-3, frame=3e-4), 1e-6), (Wire(2e-3, 3e-4, bandwidth=1e8), 0.05)):
        for factor in (1.0, slow):
            timed = kit.Timed(work(kit), shards, wire, given, slow={f"shard {shards - 1}": factor})
            run = timed.run()
            table = exact(timetable, run)
            said = timetable.replay(table, run.size, wire, seed=None, slow={shards - 1: factor})
            assert said.seconds == pytest.approx(run.seconds, rel=within)
            assert 0 <= said.terms.sum() <= said.seconds


def test_a_timetable_does_not_follow_the_shards(kit: Any) -> None:
    two, nine = (kit.Timed(work(kit), shards, Wire(), given).run() for shards in (2, 9))
    assert two.asked == nine.asked
    assert two.digest == nine.digest
    assert sum(len(asked.stops) for asked in two.asked) > 20


@pytest.mark.parametrize("shards", [2, 3, 6, 8, 13, 33])
def test_rounds_are_those_of_the_product(timetable: Any, shards: int) -> None:
    each = np.arange(3)
    for way, parts in {
        "gather": AllGather(each, shards),
        "reduce": ReduceScatter([each] * shards, np.add),
        "deal": [each] * shards,
    }.items():
        sent: list[tuple[int, int, int]] = []

        def note(sender: int, to: int, frame: Any, sent: Any = sent) -> None:
            if sender == 0:
                sent.append((to, len(frame.content["lengths"]), frame.content[""].nbytes))

        met([Links(i, shards, 1) for i in range(shards)], [[parts] * shards], random.Random(0), note)
        rounds, whole = timetable.rounds_of(way, shards), each.nbytes * (1 if way == "gather" else shards)
        assert sent == [(round.way % shards, round.blocks, round.share * whole) for round in rounds]


def test_a_fit_finds_what_the_seconds_are_made_of(timetable: Any) -> None:
    draw = random.Random(1)
    sizes = [
        timetable.Size(draw.randrange(10_000, 10**6), draw.randrange(5, 200), draw.randrange(2, 100)) for _ in range(30)
    ]
    terms = np.array([timetable.terms_of(size) for size in sizes])
    true = np.array([1e-9, 0.0, 2e-10, 0.0, 1e-6, 0.0, 1e-5, 1e-3])
    found = timetable.fit(terms, terms @ true)
    np.testing.assert_allclose(terms @ found.coefficients, terms @ true, rtol=1e-5)
    assert np.abs(found.errors).max() < 1e-5
    noisy = timetable.fit(terms, terms @ true * np.array([draw.uniform(0.9, 1.1) for _ in sizes]))
    assert (noisy.coefficients >= 0).all()
    assert 0.01 < np.abs(noisy.errors).max() < 0.3
    without = timetable.fit(terms * (np.arange(len(true)) != 2), terms @ true)
    assert without.coefficients[2] == 0


def test_blocks_of_rows_are_met_over_once_each(timetable: Any) -> None:
    stop, dealt = timetable.Stop("a", "gather"), timetable.Stop("b", "deal")
    run = timetable.Run(
        timetable.Size(400, 3, 2), [timetable.Asked("encode", False, (stop, *[dealt] * 3, stop))],
        {}, {}, {}, 0.0, 0.0, "",
    )  # fmt: skip
    table = timetable.Table([run], {}, {}, {}, lambda rows: -(-rows // 100))
    ((_, _, stops),) = table.asked(timetable.Size(1_000, 3, 7))
    assert stops == [(stop, 1), (dealt, 9), (stop, 1)]


def test_nothing_is_extrapolated_unless_everything_is_predicted(kit: Any, capsys: Any) -> None:
    def compared(**changed: float) -> list[Any]:
        wanted = [*(("wall", n) for n in kit.WALLS), *(("path", n) for n in kit.PATHS)]
        return [kit.Compared(what, n, [2.0, 1.9, 2.2], changed.get(f"{what}{n}", 2.1), 2.0) for what, n in wanted]

    asked: list[str] = []
    assert kit.report(compared(), lambda: asked.append("far"))
    assert kit.report(compared(path32=2.29), lambda: asked.append("far"))
    assert asked == ["far", "far"]
    for wrong in (compared(path32=2.31), compared(wall4=1.69), compared()[:-1], compared()[1:]):
        assert not kit.report(wrong, lambda: asked.append("wrong"))
    assert asked == ["far", "far"]
    assert "nothing is extrapolated" in capsys.readouterr().out
