"""Actors with several shards each, driven as on Ray but here: what comes out is that of as many plain shards.

Only the calls are not Ray's: the driver, the actors and their channels are those of a run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from actors import shard as actor
from actors.liveness import Peer
from actors.session import RayDriver
from raydt.examples.updates import UpdateBatch
from raydt.learners import learners
from raydt.learners.base import WorkPlan
from raydt.sessions.session import InProcessSession
from raydt.sources.divided import DividedReading, Opening, open_source
from raydt.sources.options import Hyperplane
from raydt.streams.options import make_stream
from raydt.streams.windows import SlidingWindow
from tests.actors_here import Handle, Waiting

SOURCE = Hyperplane(n=500, n_features=6)
OPTIONS: dict[str, dict[str, Any]] = {
    "gbdt": {"max_iter": 3, "max_bins": 16, "update_every": 100, "retrain": "never", "feature_groups": 6},
    "fudyadt": {"max_depth": 4, "feature_groups": 6},
}


class Readers:
    """As :class:`actors.session.RaySession` has the shards read."""

    def __init__(self, peers: Sequence[Peer]) -> None:
        self._peers = peers

    def check(self, start: int, stop: int, unwanted: Sequence[int]) -> Any:
        reports = [peer.handle.check_block.remote(start, stop, unwanted) for peer in self._peers]
        return lambda: [report for some in reports for report in some.result()]


def batches(source: Any, reading: DividedReading | None = None) -> Iterator[UpdateBatch]:
    stream = make_stream(SlidingWindow(warmup=200, window=220), source)
    if reading is not None:
        stream.begin_with(reading.rows())
    for batch in stream.batches(100):
        without = reading is not None and not batch.X.shape[1]
        yield replace(batch, blocks=reading.blocks_of(batch.row)) if reading is not None and without else batch


def settings() -> Iterator[Any]:
    """All settings; every test run takes half of them: each crew with both learners, one of which reads."""
    for crew, (i, kind), reads in product(((2, 1), (1, 2), (1, 3), (2, 2), (2, 3)), enumerate(OPTIONS), (False, True)):
        by_day = (crew[0] * crew[1] + i + reads) % 2
        yield pytest.param(*crew, kind, reads, marks=[] if by_day else pytest.mark.nightly)


@pytest.mark.parametrize(("processes", "cpus", "kind", "reads"), list(settings()))
def test_processes_with_several_shards(
    processes: int, cpus: int, kind: str, reads: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr(actor, "compile_missing", lambda *_: None)
    learner, plan = learners()[kind], WorkPlan(local_work_limit=0, row_cache_bytes=0, shared_store=False)
    options = learner.Options.model_validate({"kind": kind, **OPTIONS[kind]})
    source = open_source(SOURCE)
    features = replace(source.features, groups=options.feature_groups)

    session = InProcessSession(learner, options, features, processes * cpus, plan)
    expected = [(session.apply(batch).predictions.tolist(), session.digest()) for batch in batches(open_source(SOURCE))]

    with ExitStack() as stack:
        in_each = actor.shards_of_each(cpus, processes, learner, options, features)
        assert in_each == cpus
        actors = [actor.FeatureShard() for _ in range(processes)]
        threads = [stack.enter_context(ThreadPoolExecutor(1)) for _ in actors]
        handles = [Handle(*pair) for pair in zip(actors, threads, strict=True)]
        peers = [Peer(f"shard {i}", one, pid=1, shard=i, shards=in_each) for i, one in enumerate(handles)]
        for index, (peer, groups) in enumerate(zip(peers, actor.groups_of(features, peers), strict=True)):
            assignment = actor.Assignment(1, learner, options, features)
            peer.handle.open.remote(assignment, index, groups, cpus, False).result()
        driver: Any = RayDriver(peers, 1, Waiting())  # type: ignore[arg-type]
        coordinator = learner.coordinator(options, features, processes * in_each, plan)
        reading = None
        if reads:
            opening = Opening(SOURCE, ".", learner.traits(options).reading, [], source.identity().fingerprint)
            assert all(peer.handle.open_source.remote(opening).result() for peer in peers)
            reading = DividedReading(source, Readers(peers), 200, 64)
        found = []
        for batch in batches(source, reading):
            assert batch.X.shape[1] == (0 if reads and batch.stop <= 200 else 6)
            predictions = driver.run(coordinator.process(batch, skip_refused=False)).predictions.tolist()
            driver.run(coordinator.gather_digest())
            found.append((predictions, coordinator.digest()))
        driver.acknowledge()
        for one in actors:
            if one._channel is not None:
                stack.enter_context(closing(one._channel))
        assert all(one._channel is not None for one in actors)
    assert found == expected
    assert sorted(column for one in actors for column in one.work()["columns"]) == list(range(6))
