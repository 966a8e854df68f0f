"""The cost model of shards: rates of this machine, and what they predict for other sizes and numbers of nodes.

Every learner counts its rounds, bytes and units of work (``benchmarks/costs``); this script measures what each
takes here. Messages are those of the Ray driver to actors that answer at once, the least of many rounds (wall time, so
that other work on the machine counts little). Work is processor time of the first model in one process, with one shard
and with four: what grows with the number of shards is done by all of them, the rest is divided.

Run: python benchmarks/cost_model.py [--part messages|rates|training|all] [--rows 50000] [--learner gbdt]
"""

from __future__ import annotations

import argparse
import itertools
import os
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from costs import COSTS
from costs.counts import Costs, Machine, Rates, Sizes, seconds
from kit import progress, show
from measure import machine

from raydt.arrays.sparse import SparseRows
from raydt.examples.features import Features
from raydt.examples.updates import INSERT, UpdateBatch
from raydt.exchange.messages import Ask
from raydt.learners import learners
from raydt.learners.base import NOTHING_DIVIDED, Learner, WorkPlan
from raydt.sessions.session import InProcessSession

COLUMNS, ONES, WIDTH, GROUPS = 128, 20, 4096, 64
BATCH = 4096
NODES, ROWS = (1, 4, 16, 64), (10**6, 10**8, 10**9)
ACTORS, TREES = (1, 4, 16, 64, 256), 1024
#: Options that differ from the defaults: shorter training for the rates.
OPTIONS: dict[str, dict[str, Any]] = {"gbdt": {"max_iter": 20}}
#: Bytes of a live row in the coordinator (``benchmarks/memory.py``).
COORDINATOR_BYTES = 55
#: What is assumed if messages are not measured in this run: figures of docs/explanation/performance.md.
ASSUMED = Machine(round=1.22e-3, shard=1.01e-3, byte=1.55e-9)


class Echo:
    """An actor that answers at once."""

    def receive(self, epoch: int, seq: int, method: str, shared: Any, each: Any) -> Any:
        """Return what was sent to the shards of this actor alone."""
        return each

    def progress(self) -> tuple[float, bool]:
        """Return a sign of life, which is asked for if the machine is busy."""
        return time.perf_counter(), False


def messages(rounds: int = 300) -> Machine:
    """Measure rounds with one, two and four actors, without contents and with 4 MB each way."""
    import ray

    from actors.cluster import bundles, connect
    from actors.driver import RayDriver
    from actors.liveness import CONTROL, Peer, Watch

    with_connection = connect("local", bundles(4))
    try:
        peers = [
            Peer(f"echo {index}", ray.remote(num_cpus=0, concurrency_groups={CONTROL: 1})(Echo).remote())
            for index in range(4)
        ]

        def least(shards: int, size: int, rounds: int) -> float:
            driver, times = RayDriver(peers[:shards], 1, Watch(60.0)), []

            def once() -> Iterator[Any]:
                yield Ask("echo", {}, [{"x": np.zeros(size, dtype=np.uint8)} for _ in range(shards)])

            for _ in range(rounds):
                began = time.perf_counter()
                driver.run(once())  # type: ignore[arg-type]
                times.append(time.perf_counter() - began)
            return float(np.quantile(times, 0.1))

        least(4, 0, 20)
        empty = {shards: least(shards, 0, rounds) for shards in (1, 2, 4)}
        large = least(2, 4_000_000, 30)
    finally:
        with_connection.close()
    found = Machine(empty[1], (empty[4] - empty[1]) / 3, (large - empty[2]) / (2 * 2 * 4_000_000))
    rows = [[f"{shards}", f"{taken * 1e3:.2f}"] for shards, taken in empty.items()]
    show("Rounds without contents", ["shards", "ms"], rows)
    show(
        "Messages",
        ["a round ms", "each further shard ms", "a byte ns"],
        [[f"{found.round * 1e3:.2f}", f"{found.shard * 1e3:.2f}", f"{found.byte * 1e9:.2f}"]],
    )
    return found


def data_of(learner: Learner, options: Any) -> tuple[Features, int, float]:
    """Features for a learner; numbers of columns and ones."""
    if learner.traits(options).reading.needs_sparse or not learner.traits(options).reading.dense:
        return Features((), (), groups=GROUPS, sparse=WIDTH), 0, float(ONES)
    return Features(tuple(f"x{j}" for j in range(COLUMNS)), (False,) * COLUMNS, groups=GROUPS), COLUMNS, 0.0


def stream(features: Features, rows: int) -> Iterator[UpdateBatch]:
    """A warm-up of all rows, of two classes that two features tell apart, with noise."""
    draw, d = np.random.default_rng(1), len(features.names)
    for begin in range(0, rows, BATCH):
        m = min(BATCH, rows - begin)
        X, sparse = draw.random((m, d)), None
        if features.sparse:
            indices = np.sort(draw.integers(0, features.sparse // ONES, (m, ONES)), axis=1) * ONES + np.arange(ONES)
            sparse = SparseRows.of_lengths(
                np.full(m, ONES), np.sort(indices, axis=1).astype(np.int32).ravel(), features.sparse
            )
            score = (indices < features.sparse // 3).mean(axis=1) * 1.5
        else:
            score = X[:, 0] + X[:, 1] - 0.5
        y = (score + draw.normal(0, 0.3, m) > 0.5).astype(np.int32)
        ids, none = np.arange(begin, begin + m), np.full(m, -1)
        yield UpdateBatch(begin, np.full(m, INSERT, dtype=np.int8), ids, X, y, 2, none, rows, sparse=sparse)


def processor_seconds(
    learner: Learner, options: Any, features: Features, rows: int, shards: int
) -> tuple[float, float]:
    """Processor seconds of the coordinator, and of all shards, for the first model; 0 shards: of one process."""
    plan = WorkPlan(0, 0, shared_store=False) if shards else NOTHING_DIVIDED
    session = InProcessSession(learner, options, features, max(1, shards), plan)
    taken = [0.0]
    for shard in session.shards:
        handle = shard.worker.handle

        def timed(method: str, payload: Any, handle: Any = handle) -> Any:
            began = time.process_time()
            reply = handle(method, payload)
            taken[0] += time.process_time() - began
            return reply

        shard.worker.handle = timed  # type: ignore[method-assign]
    began = time.process_time()
    for batch in stream(features, rows):
        session.apply(batch)
    session.finish()
    return time.process_time() - began - taken[0], taken[0]


def rates_of(learner: Learner, rows: int) -> tuple[Costs, Rates, list[str]]:
    """Rates of a learner, and its row of the table."""
    options = learner.Options.model_validate(
        {"kind": learner.kind, "feature_groups": GROUPS, **OPTIONS.get(learner.kind, {})}
    )
    costs = COSTS[learner.kind](options)
    features, columns, ones = data_of(learner, options)
    for shards in (0, 1):
        processor_seconds(learner, options, features, 2000, shards)  # kernels
    alone = sum(processor_seconds(learner, options, features, rows, 0))
    own, one = processor_seconds(learner, options, features, rows, 1)
    _, four = processor_seconds(learner, options, features, rows, 4)
    every = max(0.0, (four - one) / 3)
    work = costs.first_model(Sizes(rows, columns, ones, 2, GROUPS, 1, BATCH), costs.shape(rows))
    found = Rates(alone / work.cells, (one - every) / work.cells, every / work.rows, own / work.rows)
    row = [learner.kind, f"{rows:,} x {columns or WIDTH}", *(f"{taken:.2f}" for taken in (alone, own, one, four))]
    row += [f"{rate * 1e9:.2f}" for rate in (found.alone, found.cell, found.shard_row, found.coordinator_row)]
    progress(*row)
    whole = learner.Options.model_validate({"kind": learner.kind, "feature_groups": GROUPS})
    return COSTS[learner.kind](whole), found, row


def duration(taken: float) -> str:
    """Seconds in words that fit a table."""
    for unit, length in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if taken >= 2 * length:
            return f"{taken / length:,.1f} {unit}"
    return f"{taken:,.1f} s" if taken >= 1 else f"{taken * 1e3:,.0f} ms"


def predictions(found: dict[str, tuple[Costs, Rates]], messages: Machine) -> None:
    """Print the time of the first model, by learner, rows and nodes."""
    table = []
    for kind, (costs, rates) in found.items():
        columns, ones = data_of(learners()[kind], learners()[kind].Options(kind=kind))[1:]
        for rows in ROWS:
            taken, spent = [], None
            for nodes in NODES:
                sizes = Sizes(rows, columns, ones, 2, GROUPS, nodes, BATCH)
                spent = costs.first_model(sizes, costs.shape(rows))
                taken.append(seconds(spent, nodes, rates, messages))
            assert spent is not None
            table.append(
                [
                    kind,
                    f"10^{len(str(rows)) - 1}",
                    *map(duration, taken),
                    f"{taken[0] / min(taken):.1f}",
                    f"{spent.rounds:,}",
                    f"{(spent.sent + spent.received) / 1e9:,.1f}",
                ]
            )
    header = ["learner", "rows", *(f"{nodes} nodes" for nodes in NODES), "best gain", "rounds", "GB on 64 nodes"]
    note = f"{COLUMNS} numbers, or {ONES} ones of {WIDTH:,} sparse features; {GROUPS} feature groups."
    show("The first model, predicted", header, table, note)


def forest(costs: Costs, rates: Rates, messages: Machine) -> None:
    """Print what a batch takes by number of actors."""
    table = []
    for rows in ROWS[:2]:
        for actors in ACTORS:
            sizes = Sizes(rows, COLUMNS, 0.0, 2, max(ACTORS), actors, BATCH)
            spent = costs.batch(sizes, costs.shape(rows))
            taken = seconds(spent, actors, rates, messages)
            table.append(
                [
                    f"10^{len(str(rows)) - 1}",
                    f"{actors}",
                    duration(taken),
                    f"{BATCH / taken:,.0f}",
                    f"{spent.sent / 1e6:,.1f}",
                    f"{spent.received / 1e6:,.1f}",
                ]
            )
    header = ["live rows", "actors", "a batch", "updates/s", "MB sent", "MB received"]
    show(f"A batch of {BATCH:,} updates of the forest, {TREES:,} trees, predicted", header, table)


def training() -> None:
    """Print what a cell of the GBDT takes, by rows, bins and iterations: by rows and iterations it should be the same.

    By bins it is not: the more there are, the less of a node's sums lies in the nearest cache.
    """
    learner, table = learners()["gbdt"], []
    for rows, bins in itertools.product((16_384, 131_072), (255, 1024)):
        for iterations in (5, 20):
            options = learner.Options(kind="gbdt", feature_groups=GROUPS, max_iter=iterations, max_bins=bins)
            features, columns, ones = data_of(learner, options)
            processor_seconds(learner, options, features, 2000, 0)  # kernels
            taken = sum(processor_seconds(learner, options, features, rows, 0))
            costs = COSTS[learner.kind](options)
            cells = costs.first_model(Sizes(rows, columns, ones, 2, GROUPS, 1, BATCH), costs.shape(rows)).cells
            table.append([f"{rows:,}", f"{bins:,}", f"{iterations}", f"{taken:.2f}", f"{taken / cells * 1e9:.2f}"])
            progress(*table[-1])
    show("Training of the GBDT in one process", ["rows", "bins", "iterations", "processor s", "cell ns"], table)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=("messages", "rates", "training", "all"), default="all")
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--learner", choices=sorted(learners()), action="append", help="rates of these alone")
    asked = parser.parse_args()
    print(machine("ray"), f"load {os.getloadavg()[0]:.1f}", flush=True)
    if asked.part == "training":
        training()
        return
    there = messages() if asked.part != "rates" else ASSUMED
    if asked.part == "messages":
        return
    found, table = {}, []
    for kind, learner in sorted(learners().items()):
        if kind not in COSTS or (asked.learner and kind not in asked.learner):
            continue
        costs, rates, row = rates_of(learner, asked.rows)
        found[kind] = costs, rates
        table.append(row)
    header = ["learner", "rows", "one process s", "coordinator s", "one shard s", "four shards s", "cell alone ns"]
    show("Rates", [*header, "cell ns", "row at a shard ns", "row at the coordinator ns"], table)
    predictions(found, there)
    if "forest" not in found:
        return
    several = learners()["forest"]
    costs = COSTS["forest"](several.Options(kind="forest", feature_groups=max(ACTORS), n_estimators=TREES))
    forest(costs, found["forest"][1], there)
    print(f"\nLoad average of the last 15 minutes: {os.getloadavg()[2]:.1f}, of {os.cpu_count()} cores.")


if __name__ == "__main__":
    main()
