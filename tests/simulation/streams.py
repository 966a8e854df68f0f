"""Streams of the simulation, and tables that are followed."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from pydantic import TypeAdapter

from pipelines.config import StreamOptions
from raydt.examples.updates import CLASSES, Reading
from raydt.sources.divided import open_source
from raydt.sources.file_source import StoredSource
from raydt.sources.live.base import Part, Plan, SourceAwayError
from raydt.sources.live.followed import FollowedSource, PlansInMemory
from raydt.sources.live.kafka import Kafka
from raydt.sources.options import ArrowFiles
from raydt.streams.base import Stream
from raydt.streams.deletion_log import Changelog
from raydt.streams.row_stream import RowStreamOptions
from tests.cases import Trial
from tests.small_tables import WIDE, Hostile, Row, examples, random_changes, spelled, table_of, written

# -- streams ---------------------------------------------------------------------------------------------------------
# What the simulated machines are fed: named short streams, each for what it exercises, and random ones from a seed.
#
# All are read by the product's own sources and stream models from a small Arrow file, with text ids, text categories
# and text labels, so that going on from a checkpoint takes everything that it takes in a real run.

#: Most rows of a warm-up that a learner needs and the stream does not have: all streams begin with so many inserts.
WARMUP = 2


#: Rows after which the id of a deleted example is forgotten here, so that short streams forget some.
REMEMBERED = 3


class Workload(NamedTuple):
    """A stream that can be opened any number of times, and how many updates make a batch where nothing else is said.

    With ``stored`` the rows are not read from the file again, which is faster; there are no dictionaries to restore.
    """

    source: ArrowFiles
    options: RowStreamOptions
    batch: int
    stored: StoredSource | None = None
    reading: Reading = CLASSES

    def open(self) -> Stream:
        """The stream from its beginning, with nothing known of its categories, labels and ids."""
        stream: Any = self.options.make(self.stored or open_source(self.source, reading=self.reading))
        if stream._text_ids is not None:
            stream._text_ids.remembered = REMEMBERED
        opened: Stream = stream
        return opened

    def fit(self, trial: Trial) -> Workload:
        """The same examples as a case takes them: its columns, and a warm-up if its learner cannot do without.

        Where rows come in order and none is deleted by value, labels of the rows before are features now and then.
        """
        options, reading = self.options, trial.reading
        if trial.needs_warmup and not options.warmup:
            options = options.model_copy(update={"warmup": min(trial.case.warmup, WARMUP)})
        if options.in_order and self.source.op is None and reading.dense and reading.missing:
            k = random.Random(f"previous labels {trial.name} {Path(str(self.source.path)).name}").choice(
                (0, 0, 0, 1, 3)
            )
            options = options.model_copy(update={"previous_labels": k})
            reading = replace(reading, previous=(None,) * k)
        source = self.source.model_copy(update=trial.columns)
        fitted = Workload(source, options, self.batch, reading=reading)
        return fitted if self.stored is None else fitted.store()

    def store(self) -> Workload:
        """The same, with the rows in memory."""
        return self._replace(stored=StoredSource(self.open().source))


def workload(folder: Path, name: str, rows: Sequence[Row], batch: int, model: str, **options: Any) -> Workload:
    """A stream over ``rows``, which are written to ``folder``; complete ones have :data:`WIDE` sparse features."""
    wide = {"width": WIDE} if rows and "number" in rows[0] else {}
    path = written(folder / f"{name}.arrow", table_of(rows, **wide))
    changelog = {"op": "op"} if model == "changelog" else {}
    source = ArrowFiles(path=str(path), id="id", ts="ts", features=["a", "b", "c", "d"], **changelog)
    adapter: TypeAdapter[Any] = TypeAdapter(StreamOptions)
    return Workload(source, adapter.validate_python({"model": model, "on_error": "skip", **options}), batch)


def hostile(folder: Path) -> Workload:
    """Numbers of any scale and offset, names that are hard to keep apart, and ids that come back when forgotten."""
    change = Hostile(random.Random("hostile"))
    rows = spelled("+0 +1 +2 -1 +3 +4 +5 +1 -0 -2 +6 +7 +8 +9 +0 +2 *1 -1")
    return workload(folder, "hostile", [change.row(row) for row in rows], 4, "changelog")


def insert_only(folder: Path) -> Workload:
    return workload(folder, "insert_only", examples(12), 4, "incremental")


def sliding_window(folder: Path) -> Workload:
    return workload(folder, "sliding_window", examples(9, 1), 4, "sliding_window", window=5)


def random_updates(folder: Path) -> Workload:
    return workload(folder, "random_updates", examples(9, 2), 4, "random_updates", insert_probability=0.6)


def update_ops(folder: Path) -> Workload:
    rows = spelled("+0 +1 +2 *1 ?2 *1 +4 *0 *4 -2 ?4 +2 *2 -0")
    return workload(folder, "update_ops", rows, 4, "changelog")


def deletion_by_value(folder: Path) -> Workload:
    """Of two equal examples the older one goes; the last has no equal any more and is refused."""
    rows = spelled("+0 +1 +2 +0 +3 =1 +4 =0 -3 +5 =5 =5")
    rows[3] |= {"id": "twin"}
    return workload(folder, "deletion_by_value", rows, 5, "changelog")


def slot_reuse(folder: Path) -> Workload:
    """Ids that come back in the batch in which they were deleted, and slots that are filled again at once."""
    rows = spelled("+0 +1 +2 -1 +1 -0 +3 +4 -4 +4 -4 +0 -2 -1 +5 +6")
    return workload(folder, "slot_reuse", rows, 4, "changelog")


def warm_up(folder: Path) -> Workload:
    """The warm-up ends inside a batch, between two checkpoints."""
    return workload(folder, "warm_up", examples(9, 3), 4, "sliding_window", warmup=6, window=7)


def short_of_warm_up(folder: Path) -> Workload:
    """The model is built only when the stream ends."""
    return workload(folder, "short_of_warm_up", examples(11, 4), 3, "incremental", warmup=20)


def refusals(folder: Path) -> Workload:
    """Unknown and duplicate ids, and a row without a label, all passed over."""
    rows = spelled("+0 +1 -7 +2 +1 +3 *9 -0 -0 +4 +4 =8 +0 -2 ?3")
    rows[9] |= {"y": None}
    return workload(folder, "refusals", rows, 4, "changelog")


def late_class(folder: Path) -> Workload:
    """The third class, and with it wider counts, comes after the first checkpoint."""
    rows = examples(6, 5) + [{**row, "id": f"z{row['id']}"} for row in examples(3, 6, "zx")]
    return workload(folder, "late_class", rows, 3, "sliding_window", window=7)


#: The short streams by name.
NAMED: dict[str, Callable[[Path], Workload]] = {
    make.__name__: make
    for make in (
        insert_only,
        sliding_window,
        random_updates,
        update_ops,
        deletion_by_value,
        slot_reuse,
        warm_up,
        short_of_warm_up,
        refusals,
        late_class,
        hostile,
    )
}


def random_workload(folder: Path, seed: int, least_warmup: int = 0) -> Workload:
    """A stream of any model over any rows; with ``least_warmup`` it has a warm-up."""
    draw = random.Random(f"workload {seed}")
    n = draw.randint(8, 30)
    warmup = max(least_warmup, draw.choice((0, 0, draw.randint(1, min(n, 10)))))
    seed_of_rows, classes = draw.randrange(1000), draw.choice(("xy", "xyz"))
    model = draw.choice(
        ("incremental", "sliding_window", "random_updates", "batches", "time_window", "changelog", "deletion_log")
    )
    if model in ("deletion_log", "batches") and warmup:
        # A third class is a bad row for some learners. A log deletes after so many rows, bad or not, and batches delete
        # as soon as the rows run out: either might delete in the warm-up, which is refused.
        classes = "xy"
    rows = examples(n, seed_of_rows, classes)
    kind = random.Random(f"kind {seed}")
    change = Hostile(kind) if kind.random() < 0.5 else None
    options: dict[str, Any] = {"warmup": warmup}
    if model == "sliding_window":
        options |= {"window": draw.randint(max(1, warmup), 15)}
    elif model == "random_updates":
        options |= {"insert_probability": draw.choice((0.5, 0.7)), "seed": draw.randrange(1000)}
    elif model == "batches":
        steps = [draw.randint(max(1, warmup), n), draw.randrange(n), draw.randint(1, n)]
        options |= {"steps": steps, "removal_order": draw.choice(("fifo", "lifo", "random"))}
    elif model == "time_window":
        options |= {"duration": draw.randint(30, 150), "warmup": least_warmup}
        for row in rows:
            row["ts"] += draw.randrange(15)
        options |= {"lateness": draw.choice((0, 20))}
    elif model == "changelog":
        rows, options = random_changes(draw, n + 10, least_warmup), {"warmup": least_warmup}
    elif model == "deletion_log":
        names = [f"e{draw.randrange(n + 2)}" for _ in range(n // 2)]
        log: dict[str, Any] = {"id": names if change is None else [change.id(name) for name in names]}
        log["after"] = [draw.choice((None, draw.randint(warmup, n))) for _ in log["id"]]
        options |= {"deletion_log": str(written(folder / f"{seed}.log.arrow", pa.table(log)))}
    if change is not None:
        rows = [change.row(row) for row in rows]
    return workload(folder, str(seed), rows, draw.choice((1, 3, 4, 7, 16)), model, **options)


# -- followed --------------------------------------------------------------------------------------------------------
# A followed source for the simulated machines: a log in memory, whose plans are kept on a disk that drivers share.
#
# Plans have any length, and one that was not kept may come to be another; now and then the source does not answer, to
# a plan or in the middle of a read. None of that may change an outcome.


class Log:
    """Rows with operations, in plans; satisfies :class:`raydt.sources.live.base.LiveSource`."""

    name, unit = "log", "rows"

    def __init__(self, table: pa.Table, draw: random.Random, away: float) -> None:
        self._rows, self._draw, self._away = table.combine_chunks().to_batches()[0], draw, away

    def schema(self) -> pa.Schema:
        schema: pa.Schema = self._rows.schema
        return schema

    def describe(self) -> dict[str, Any]:
        return {"source": "log"}

    def begin(self) -> dict[str, Any]:
        return {}

    def plan(self, after: Plan | None) -> Plan | None:
        self._answer()
        begin = 0 if after is None else after["to"]
        to = min(self._rows.num_rows, begin + self._draw.randint(1, 7))
        return {"from": begin, "to": to} if to > begin else None

    def read(self, plan: Plan, columns: Sequence[str]) -> Iterator[Part]:
        rows = self._rows.slice(plan["from"], plan["to"] - plan["from"]).select([*columns])
        cut = self._draw.randint(0, rows.num_rows)
        for part in (rows.slice(0, cut), rows.slice(cut)):
            self._answer()
            yield part, {}

    def _answer(self) -> None:
        if self._draw.random() < self._away:
            raise SourceAwayError("no answer")

    def place(self, plan: Plan) -> str:
        return f"{plan['from']}-{plan['to'] - 1}"

    def behind(self, after: Plan | None) -> int:
        return int(self._rows.num_rows) - (0 if after is None else int(after["to"]))


@dataclass
class Followed:
    """A log that can be followed any number of times, as a case takes it; each time from its beginning."""

    table: pa.Table
    options: Kafka
    reading: Reading
    warmup: int

    @classmethod
    def of(cls, trial: Trial, seed: int) -> Followed:
        """Changes that follow from a seed; all ids are named, as a table's are."""
        draw = random.Random(f"followed {seed}")
        warmup = draw.choice((0, 3)) if not trial.needs_warmup else min(trial.case.warmup, WARMUP)
        rows = [row for row in random_changes(draw, draw.randint(12, 36), warmup) if row.get("id") is not None]
        if draw.random() < 0.5:
            change = Hostile(draw)
            rows = [change.row(row) for row in rows]
        for row in rows[warmup:]:
            if draw.random() < 0.1:
                row["y"] = None  # a bad row: of an update, the old one goes
        wide = {"width": WIDE} if rows and "number" in rows[0] else {}
        options = Kafka(path="kafka://nowhere/log", op="op", n_features=WIDE, **trial.columns)
        return cls(table_of(rows, **wide), options, trial.reading, warmup)

    def open(self, plans: PlansInMemory | None = None, draw: random.Random | None = None, away: float = 0.0) -> Stream:
        """The stream from its beginning; with ``plans``, those that were made before stay."""
        log = Log(self.table, draw or random.Random(0), away)
        source = FollowedSource(self.options, log, self.reading)
        source.patient, source.plans = True, PlansInMemory() if plans is None else plans
        stream: Any = Changelog(model="changelog", on_error="skip", warmup=self.warmup).make(source)
        if stream._text_ids is not None:
            stream._text_ids.remembered = REMEMBERED
        opened: Stream = stream
        return opened
