"""A followed source for the simulated machines: a log in memory, whose plans are kept on a disk that drivers share.

Plans have any length, and one that was not kept may come to be another; now and then the source does not answer, to a
plan or in the middle of a read. None of that may change an outcome.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from raydt.examples.updates import Reading
from raydt.sources.live.base import Part, Plan, SourceAwayError
from raydt.sources.live.followed import FollowedSource, PlansInMemory
from raydt.sources.live.kafka import Kafka
from raydt.streams.base import Stream
from raydt.streams.deletion_log import Changelog
from tests.cases import Trial
from tests.simulation.streams import REMEMBERED, WARMUP
from tests.small_tables import WIDE, Hostile, random_changes, table_of


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
