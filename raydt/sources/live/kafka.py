"""A Kafka topic: messages that are rows of a change log, in JSON, plain or in Debezium's envelope.

Invariant: nothing is left to the broker. Partitions are assigned and sought, no group is joined, no offset committed; a
plan has ranges of offsets, and its rows are in the order of (partition, offset). A message without a value (a
tombstone) deletes the id that its key names.
"""

from __future__ import annotations

import json
import time
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
from pydantic import Field

from raydt.encoding.json_rows import json_rows
from raydt.errors import InputError
from raydt.messages import message
from raydt.sources.live.base import LiveOptions, Part, Plan, SourceAwayError, library

#: Most messages of a plan, and of one call.
MESSAGES_OF_PLAN, MESSAGES_OF_CALL = 1 << 16, 10_000
#: Seconds that the broker has for an answer.
ANSWER_SECONDS = 5.0


class Kafka(LiveOptions):
    """A Kafka topic, from its oldest message on."""

    kind: Literal["kafka"] = "kafka"
    path: str = Field(description="topic, as kafka://HOST:PORT,HOST:PORT/TOPIC")
    features: list[str] = Field(min_length=1, description="feature columns: fields of a message, or of after in it")
    text: list[str] = Field([], description="columns that hold text; others hold numbers, ids and labels integers")
    op: str = Field("op", description="field of the operation")
    properties: str | None = Field(
        None, description="file with options of the client, name=value in each line: security.protocol, sasl.password"
    )

    def open(self) -> KafkaChanges:
        """Open the topic; see :meth:`raydt.sources.live.base.LiveOptions.open`."""
        return KafkaChanges(self)


class KafkaChanges:
    """Changes in a Kafka topic; satisfies :class:`raydt.sources.live.base.LiveSource`. A plan is ranges of offsets."""

    unit = "messages"

    def __init__(self, options: Kafka) -> None:
        self.name, self._options = options.path, options
        self._kafka = library("confluent_kafka", "kafka")
        servers, _, self._topic = options.path.removeprefix("kafka://").partition("/")
        if not servers or not self._topic or not options.path.startswith("kafka://"):
            raise InputError(message("live.no_topic"), file=self.name)
        own: dict[str, Any] = {"group.id": "raydt", "enable.auto.commit": False, "enable.partition.eof": True}
        given = {
            **_properties(options.properties),
            "bootstrap.servers": servers,
            "auto.offset.reset": "error",
            "log_level": 0,
        }
        self._consumer = self._kafka.Consumer({**given, **own})
        self._taken: dict[int, int] | None = None  # where the next plan begins, if it follows the last one
        self._at: dict[int, int] = {}  # what the consumer brings next, by partition
        self._beyond: dict[int, list[Any]] = {}  # what it has brought, and no plan has taken
        self._level: set[int] = set()  # partitions that have nothing after that
        self._down: str | None = None  # why no broker answers
        try:
            found = self._consumer.list_topics(self._topic, timeout=ANSWER_SECONDS).topics[self._topic]
        except self._kafka.KafkaException as error:
            raise InputError(message("live.no_broker", reason=_reason(error)), file=self.name) from error
        if found.error is not None:
            raise InputError(message("live.no_broker", reason=str(found.error)), file=self.name)
        self._partitions = sorted(found.partitions)

    def schema(self) -> pa.Schema:
        """Columns as the options say."""
        given, text = self._options, set(self._options.text)
        whole = {given.id, given.label, given.subject, given.ts}
        names = dict.fromkeys([*filter(None, whole), *given.features, *filter(None, [given.weight])])
        kinds = {n: pa.string() if n in text else pa.int64() if n in whole else pa.float64() for n in names}
        row, op = [pa.field(name, kind) for name, kind in sorted(kinds.items())], pa.field(given.op, pa.string())
        if given.envelope is None:
            return pa.schema([*row, op])
        return pa.schema([pa.field("before", pa.struct(row)), pa.field("after", pa.struct(row)), op])

    def describe(self) -> dict[str, Any]:
        """The topic."""
        return {"source": "kafka", "topic": self._topic}

    def begin(self) -> dict[str, Any]:
        """Nothing: the first plan has the offsets."""
        return {}

    def plan(self, after: Plan | None) -> Plan | None:
        """Ranges of offsets, [from, to) by partition, of messages that have come: about :data:`MESSAGES_OF_PLAN`."""
        if after is None:
            begins = {p: self._watermarks(p)[0] for p in self._partitions}
        else:
            begins = {int(p): at for p, at in after["to"].items()}
        self._go_to(begins)
        while self._waiting() < MESSAGES_OF_PLAN and self._bring(MESSAGES_OF_CALL, 0.0):
            pass
        heard = time.monotonic()
        while not self._waiting() and len(self._level) < len(begins):
            heard = self._bring(MESSAGES_OF_CALL, 0.02) or self._require_answer(heard)
        if self._down is not None:
            self._watermarks(self._partitions[0])
            self._down = None
        if self._at == begins:
            return None
        return {"from": {str(p): at for p, at in begins.items()}, "to": {str(p): at for p, at in self._at.items()}}

    def behind(self, after: Plan | None) -> int:
        """Messages after a plan, as the broker has said last."""
        to, behind = {} if after is None else after["to"], 0
        for p in self._partitions:
            _, high = self._consumer.get_watermark_offsets(self._kafka.TopicPartition(self._topic, p), cached=True)
            behind += max(0, high - to.get(str(p), 0))
        return behind

    def place(self, plan: Plan) -> str:
        """The ranges."""
        spans = ((p, begin, plan["to"][p]) for p, begin in plan["from"].items())
        return ", ".join(f"{p}:{begin}-{end - 1}" for p, begin, end in spans if end > begin)

    def read(self, plan: Plan, columns: Sequence[str]) -> Iterator[Part]:
        """The messages of a plan."""
        texts = [one.value() or _tombstone(one.key(), self._options) for one in self._fetch(plan)]
        yield json_rows(texts, self.schema())

    def _fetch(self, plan: Plan) -> list[Any]:
        """Messages of a plan in the order of (partition, offset); SourceAwayError if they do not come."""
        begins, ends = ({int(p): at for p, at in plan[side].items()} for side in ("from", "to"))
        self._go_to(begins)
        heard = time.monotonic()
        while missing := sum(max(0, end - self._at[p]) for p, end in ends.items()):
            heard = self._bring(min(missing, MESSAGES_OF_CALL), 0.1) or self._require_answer(heard)
        taken = []
        for p, end in sorted(ends.items()):
            cut = bisect_left(self._beyond[p], end, key=lambda one: one.offset())
            taken += self._beyond[p][:cut]
            del self._beyond[p][:cut]
        self._taken = ends
        return taken

    def _go_to(self, begins: dict[int, int]) -> None:
        """Have the consumer bring messages from these offsets on, if it does not yet."""
        if self._taken != begins:
            self._at, self._beyond = dict(begins), {p: [] for p in begins}
            self._level.clear()
            self._consumer.assign([self._kafka.TopicPartition(self._topic, p, at) for p, at in begins.items()])
            self._taken = begins

    def _waiting(self) -> int:
        return sum(map(len, self._beyond.values()))

    def _bring(self, most: int, seconds: float) -> float:
        """Take what comes within some seconds; the time, or 0 if nothing has come."""
        brought = self._consumer.consume(most, timeout=seconds)
        for one in brought:
            error, p = one.error(), one.partition()
            if error is None:
                self._beyond[p].append(one)
                self._at[p] = one.offset() + 1
                self._level.discard(p)
            elif error.code() == self._kafka.KafkaError._PARTITION_EOF:
                self._at[p] = max(self._at[p], one.offset())
                self._level.add(p)
            elif error.code() == self._kafka.KafkaError._AUTO_OFFSET_RESET:
                raise InputError(message("live.expired", offset=self._at[p], partition=p), file=self.name)
        return time.monotonic() if brought else 0.0

    def _require_answer(self, heard: float) -> float:
        if self._down is not None or time.monotonic() - heard > ANSWER_SECONDS:
            reason, self._taken = self._down or "no message comes", None
            raise SourceAwayError(message("live.away", reason=reason).at(self.name))
        return heard

    def _note_error(self, error: Any) -> None:
        if error.code() == self._kafka.KafkaError._ALL_BROKERS_DOWN:
            self._down = str(error.str())

    def _watermarks(self, partition: int) -> tuple[int, int]:
        try:
            place = self._kafka.TopicPartition(self._topic, partition)
            low, high = self._consumer.get_watermark_offsets(place, timeout=ANSWER_SECONDS)
        except self._kafka.KafkaException as error:
            raise SourceAwayError(message("live.away", reason=_reason(error)).at(self.name)) from error
        return int(low), int(high)


def _tombstone(key: bytes | None, options: Kafka) -> bytes:
    """The row that a message without a value stands for; Debezium sends one after the delete itself."""
    if options.envelope is not None:
        return b"{}"
    try:
        named = json.loads(key or b"null")
    except ValueError:
        named = (key or b"").decode(errors="replace")  # a text
    id = named.get(options.id) if isinstance(named, dict) else named
    id = str(id) if options.id in options.text and id is not None else id
    return json.dumps({options.id: id, options.op: options.op_values.delete[0]}).encode()


def _properties(path: str | None) -> dict[str, str]:
    """Options of the client, of a file with ``name=value`` in each line."""
    try:
        lines = [] if path is None else Path(path).read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise InputError(message("live.no_properties", reason=error.strerror or str(error)), file=path) from error
    pairs = (line.partition("=") for line in lines if "=" in line and not line.lstrip().startswith("#"))
    return {name.strip(): value.strip() for name, _, value in pairs}


def _reason(error: Any) -> str:
    """What an exception of the library says."""
    return str(error.args[0].str()) if error.args and hasattr(error.args[0], "str") else str(error)
