"""Critical path of first models of 10^8 x 128 on 1 to 64 shards, calculated from shards in this process.

The protocol is the real one: all shards of a session work here, one after the other, so that what others compute on the
machine changes little; of each step the least of several runs counts. Of every request the processor seconds of the
slowest shard count, as on the critical path of `scaling.py`, and those of the coordinator. Both are taken of two
numbers of rows and several numbers of shards, and fitted (least squares) by

    shards       a rows / shards + b rows + c               a: what divides; b: what each shard does of every row
    coordinator  d rows + e rows x shards + f shards + g    e: what it does of every row for each shard

for the messages that bring the rows and, apart from these, for the last one, after which there is a model. Calculated
from that, with a latency for each request and each round of a swap, and what the coordinator sends and receives and a
shard swaps at 10 gigabits. Where the rows are told (`Tell`), the coordinator admits the next ones meanwhile: the longer
of both counts. Shards have read the rows themselves (`Traits.reads`), which is not counted. It is linear in the rows:
memory that no longer fits into a cache, deeper trees and what the system takes for new memory make `a` larger on all
machines alike.

Run: python benchmarks/calculated_path.py [--work fudyadt] [--shards 1 4 16 64] [--repeats 3]
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from harness import arguments, print_machine, progress, show
from works import Work

from raydt.exchange.links import InProcessDriver, Traffic
from raydt.exchange.messages import MET, Ask, Block, EndOfPass, Exchange, Tell
from raydt.learners import learners
from raydt.learners.base import WorkPlan
from raydt.parallel import limited
from raydt.sessions.session import InProcessSession

COLUMNS, GROUPS = 128, 64
WORKS = {
    "fudyadt": Work("fudyadt", 0, COLUMNS, {"epsilon": 0.5, "max_depth": 10, "feature_groups": GROUPS}),
    "forest": Work("forest", 0, COLUMNS, {"n_estimators": 64, "sample_share": 0.5, "feature_groups": GROUPS}),
}
ROWS = {"fudyadt": (100_000, 400_000), "forest": (5_000, 20_000)}
#: Seconds until a call of Ray is answered, and until what another shard has sent is there (`decisions.md`).
CALL, SWAP = 3e-3, 1e-4
#: Rows of a message of a warm-up, and those for which is calculated, on these numbers of shards.
BYTES_A_SECOND, MESSAGE, FAR, ON = 10e9 / 8, 131_072, 10**8, (1, 2, 4, 8, 16, 32, 64)


class Taken(NamedTuple):
    """Seconds of the rows of a first model, or of the model itself."""

    rows: int
    shards: int
    slowest: float  #: Seconds of the slowest shard of every request.
    coordinator: float
    messages: int  #: Requests but meetings.
    swaps: int
    sent: float  #: Bytes of a row, of the coordinator and swapped by a shard.
    told: bool  #: Nobody waits for a reply.

    @classmethod
    def of(cls, rows: int, drivers: Sequence[TimedDriver]) -> Taken:
        one = drivers[0]
        seconds = np.min([driver.seconds for driver in drivers], axis=0)
        coordinator = np.min([driver.coordinator for driver in drivers], axis=0)
        counts = one.messages, one.swaps, one.sent / rows, one.told
        return cls(rows, len(one.shards), float(seconds.max(axis=1).sum()), float(coordinator.sum()), *counts)


def size_of(content: Any) -> int:
    traffic = Traffic()
    traffic.count(content)
    return traffic.bytes


class TimedDriver(InProcessDriver):
    """Takes the time of the coordinator, and of every shard, one after the other."""

    def __init__(self, shards: Any) -> None:
        super().__init__(shards)
        self.seconds: list[list[float]] = []  # of the shards in each request
        self.coordinator: list[float] = []
        self.sent, self.messages, self.swaps, self.told = 0.0, 0, 0, True

    def run(self, exchange: Exchange[Any]) -> Any:
        """Drive an exchange; what takes parts from shard to shard is not the coordinator's work."""
        return super().run(self._timed(exchange))

    def _timed(self, exchange: Exchange[Any]) -> Exchange[Any]:
        replies = None
        while True:
            began = time.process_time()
            try:
                request = exchange.send(replies)  # type: ignore[arg-type]
            except StopIteration as end:
                return end.value
            finally:
                self.coordinator.append(time.process_time() - began)
            replies = yield request

    def _ask(self, request: Ask) -> list[Any]:
        replies, seconds = [], []
        for index, shard in enumerate(self.shards):
            payload, began = request.for_shard(index), time.process_time()
            replies.append(shard.receive(shard.epoch, shard.seq + 1, request.method, payload))
            seconds.append(time.process_time() - began)
        self.seconds.append(seconds)
        self.told &= isinstance(request, Tell)
        meets = request.method == MET
        self.messages, self.swaps = self.messages + (not meets), self.swaps + meets
        self.sent += size_of(request.each) / len(self.shards) if meets else size_of(request.payload)
        if not isinstance(replies[0], list):  # parts for a meeting
            self.sent += size_of([reply.result if isinstance(reply, EndOfPass) else reply for reply in replies])
        return replies


class Columns:
    def __init__(self, X: Any, columns: Any) -> None:
        self._X = np.ascontiguousarray(X[:, columns])

    def take(self, rows: Any, blocks: Any) -> Any:
        return self._X[rows]


def taken(work: Work, rows: int, shards: int, repeats: int) -> tuple[Taken, Taken, str]:
    """Make a first model of so many rows, all of whose work is with the shards: rows, model and digest."""
    work = work.of(rows)
    learner, options = learners()[work.kind], work.settings
    batches = list(work.first())
    X = np.concatenate([batch.X for batch in batches])
    read = {"blocks": (Block(0, rows, {}),)}
    batches = [replace(b, X=b.X[:, :0], row=b.start + np.arange(len(b)), **read) for b in batches]
    plan = WorkPlan(local_work_limit=0, row_cache_bytes=0, shared_store=False)
    drivers: tuple[list[TimedDriver], list[TimedDriver]] = ([], [])
    for _ in range(repeats):
        features = replace(work.features, groups=GROUPS)
        session = InProcessSession(learner, options, features, shards, plan)
        for shard in session.shards:
            own = shard.worker.columns if learner.traits(options).reads == "columns" else np.arange(COLUMNS)
            shard.worker.reader = Columns(X, own)
        for phase, some in zip(drivers, (batches[:-1], batches[-1:]), strict=True):
            session.driver = driver = TimedDriver(session.shards)
            for batch in some:
                session.apply(batch)
            phase.append(driver)
    before, model = (Taken.of(rows, phase) for phase in drivers)
    return before, model, session.digest()


def fitted(columns: Sequence[Any], seconds: Sequence[float]) -> list[float]:
    """Return coefficients by least squares of relative errors, none of them negative."""
    A, weights = np.array(columns, dtype=float).T, 1 / np.array(seconds)
    left = list(range(A.shape[1]))
    while True:
        found = np.linalg.lstsq(A[:, left] * weights[:, None], np.ones(len(A)), rcond=None)[0]
        if (found >= 0).all():
            break
        left.pop(int(found.argmin()))
    coefficients = np.zeros(A.shape[1])
    coefficients[left] = found
    return [float(one) for one in coefficients]


def far(measured: Sequence[Taken]) -> list[list[float]]:
    """Print the coefficients; returns the seconds that they give for each number of shards, and their sum."""
    n, S = (np.array([getattr(t, name) for t in measured], dtype=float) for name in ("rows", "shards"))
    one, last = np.ones(len(measured)), measured[-1]
    a, b, c = fitted([n / S, n, one], [t.slowest for t in measured])
    d, e, f, g = fitted([n, n * S, S, one], [t.coordinator for t in measured])
    shown = [", ".join(f"{one * by:.2f}" for one in some) for some, by in (((a, b, d, e), 1e9), ((c, f, g), 1e3))]
    print(f"\na, b, d, e: {shown[0]} ns; c, f, g: {shown[1]} ms")
    found = []
    for shards in ON:
        divides, each, alone = a * FAR / shards, b * FAR + c, (d + e * shards) * FAR + f * shards + g
        rounds = last.swaps * (shards - 1).bit_length()
        waits = (FAR / MESSAGE if last.told else last.messages) * CALL + rounds * SWAP
        sends = last.sent * FAR / BYTES_A_SECOND if shards > 1 else 0.0
        whole = max(divides + each, alone) if last.told else divides + each + alone + waits
        found.append([divides, each, alone, waits, sends, whole + sends])
    return found


def calculated(work: str, pairs: Sequence[tuple[Taken, Taken]]) -> None:
    """Print what was measured, the coefficients and what follows from them."""
    for name, measured in zip(("rows", "model"), zip(*pairs, strict=True), strict=True):
        rows = []
        for t in measured:
            counts = f"{t.messages}", f"{t.swaps}", f"{t.sent:.1f}"
            rows.append([f"{t.rows:,}", f"{t.shards}", f"{t.slowest:.3f}", f"{t.coordinator:.3f}", *counts])
        header = ["rows", "shards", "slowest shards s", "coordinator s", "messages", "swaps", "bytes a row"]
        show(f"{work}, {name}: measured, {COLUMNS} columns", header, rows)
    before, model = (far(measured) for measured in zip(*pairs, strict=True))
    table = []
    for shards, first, then in zip(ON, before, model, strict=True):
        times = model[0][-1] / then[-1], (before[0][-1] + model[0][-1]) / (first[-1] + then[-1])
        table.append([f"{shards}", *(f"{one:.1f}" for one in (*then, times[0], first[-1], times[1]))])
    header = ["shards", "divides s", "each shard s", "coordinator s", "waits s", "bytes s", "model s", "times"]
    show(f"{work}: calculated for {FAR:,} x {COLUMNS}", [*header, "rows before s", "times with rows"], table)


if __name__ == "__main__":
    asked = arguments(__doc__, work={"choices": WORKS, "action": "append"}, shards=[1, 4, 16, 64], repeats=3)
    print_machine()
    with limited(1):
        for name in asked.work or WORKS:
            taken(WORKS[name], 5_000, 2, 1)  # kernels
            pairs, digests = [], dict[int, str]()
            for rows in ROWS[name]:
                for shards in asked.shards:
                    *pair, digest = taken(WORKS[name], rows, shards, asked.repeats)
                    assert digests.setdefault(rows, digest) == digest, "the digests differ"
                    progress(name, f"{rows:,} rows, {shards} shards")
                    pairs.append((pair[0], pair[1]))
            calculated(name, pairs)
