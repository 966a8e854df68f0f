"""A Kafka topic: messages that are rows of a change log, in JSON, plain or in Debezium's envelope.

Invariant: nothing is left to the broker. Partitions are assigned and sought, no group is joined, no offset committed; a
plan has the id of the topic and ranges of offsets, and its rows are in the order of (partition, offset). Each plan asks
for the partitions that there are. A message without a value (a tombstone) deletes the id that its key names.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field

from raydt.encoding.labels import json_rows
from raydt.errors import InputError
from raydt.examples.updates import CLASSES, Reading
from raydt.messages import message, quoted
from raydt.sources.live.base import LiveOptions, Part, Plan, SourceAwayError
from raydt.sources.live.partitions import Partitions

#: Messages of a plan, about.
MESSAGES_OF_PLAN = 1 << 16


class Kafka(LiveOptions):
    """A Kafka topic, from its oldest message on."""

    kind: Literal["kafka"] = "kafka"
    path: str = Field(description="topic, as kafka://HOST:PORT,HOST:PORT/TOPIC")
    features: list[str] = Field(min_length=1, description="feature columns: fields of a message, or of after in it")
    text: list[str] = Field([], description="columns that hold text; others hold numbers, ids and classes integers")
    op: str = Field("op", description="field of the operation")
    properties: str | None = Field(
        None, description="file with options of the client, name=value in each line: security.protocol, sasl.password"
    )

    def open(self, reading: Reading = CLASSES) -> KafkaChanges:
        """Open the topic; see :meth:`raydt.sources.live.base.LiveOptions.open`."""
        return KafkaChanges(self, reading)


class KafkaChanges:
    """Changes in a Kafka topic; satisfies :class:`raydt.sources.live.base.LiveSource`. A plan is ranges of offsets."""

    unit = "messages"

    def __init__(self, options: Kafka, reading: Reading = CLASSES) -> None:
        self.name, self._options, self._reading = options.path, options, reading
        servers, _, self._topic = options.path.removeprefix("kafka://").partition("/")
        if not servers or not self._topic or not options.path.startswith("kafka://"):
            raise InputError(message("live.no_topic"), file=self.name)
        given = {**_properties(options.properties), "bootstrap.servers": servers}
        self._messages = Partitions(self._topic, given, self.name)

    def schema(self) -> pa.Schema:
        """Columns as the options say."""
        given, text = self._options, set(self._options.text)
        whole = {given.id, given.label, given.subject, given.key, given.ts}
        whole -= {given.label} if self._reading.regression else set()
        names = dict.fromkeys(filter(None, [*whole, given.label, *given.features, given.weight]))
        kinds = {n: pa.string() if n in text else pa.int64() if n in whole else pa.float64() for n in names}
        row, op = [pa.field(name, kind) for name, kind in sorted(kinds.items())], pa.field(given.op, pa.string())
        if given.envelope is None:
            return pa.schema([*row, op])
        return pa.schema([pa.field("before", pa.struct(row)), pa.field("after", pa.struct(row)), op])

    def describe(self) -> dict[str, Any]:
        """The topic."""
        return {"source": "kafka", "topic": self._topic}

    def begin(self) -> dict[str, Any]:
        """Nothing: the first plan has the topic and the offsets."""
        return {}

    def plan(self, after: Plan | None) -> Plan | None:
        """Ranges of offsets, [from, to) by partition, of messages that have come: about :data:`MESSAGES_OF_PLAN`."""
        self._messages.ask()
        if after is None:
            begins = {p: self._messages.oldest(p) for p in self._messages.partitions}
        else:  # a partition that was added since is read from its first message on
            self._require_topic(after)
            begins = {p: after["to"].get(str(p), 0) for p in self._messages.partitions}
        ends = self._messages.come(begins, MESSAGES_OF_PLAN)
        if ends == begins:
            return None
        known = {} if self._messages.id is None else {"topic": self._messages.id}
        return {**known, "from": {str(p): at for p, at in begins.items()}, "to": {str(p): at for p, at in ends.items()}}

    def _require_topic(self, plan: Plan) -> None:
        """Refuse (InputError) a topic that is not that of a plan; SourceAwayError if a partition is not known yet."""
        then, now = plan.get("topic"), self._messages.id
        lacks = sorted({int(p) for p in plan["to"]}.difference(self._messages.partitions))
        if (then and now and then != now) or (lacks and not (then and now)):
            raise InputError(message("live.other_topic", place=self.place(plan)), file=self.name)
        if lacks:  # by a broker that has not heard of it
            raise SourceAwayError(message("live.no_partition", partition=lacks[0]).at(self.name))

    def behind(self, after: Plan | None) -> int:
        """Return the number of messages after a plan, as the broker has said last; expired ones do not count."""
        begins = self._messages.begins if after is None else {int(p): at for p, at in after["to"].items()}
        return sum(max(0, end - begins.get(p, 0)) for p, end in self._messages.ends().items())

    def place(self, plan: Plan) -> str:
        """The ranges."""
        spans = ((p, begin, plan["to"][p]) for p, begin in plan["from"].items())
        return ", ".join(f"{p}:{begin}-{end - 1}" for p, begin, end in spans if end > begin)

    def read(self, plan: Plan, columns: Sequence[str]) -> Iterator[Part]:
        """The messages of a plan."""
        begins, ends = ({int(p): at for p, at in plan[side].items()} for side in ("from", "to"))
        messages = self._messages.take(begins, ends)
        self._messages.ask()  # only now: a topic that is made again meanwhile has other messages at these offsets
        self._require_topic(plan)
        yield self._rows(messages)

    def _rows(self, messages: Sequence[Any]) -> Part:
        """Messages as rows; in an envelope one with a value and without a change is a flaw."""
        texts = [_tombstone(one.key(), self._options) if one.value() is None else one.value() for one in messages]
        rows, flaws = json_rows(texts, self.schema())
        if self._options.envelope is not None:
            empty = np.logical_and.reduce([np.asarray(column.is_null()) for column in rows.columns])
            for place in np.flatnonzero(empty).tolist():
                if messages[place].value() is not None:
                    said = message("live.no_change", text=quoted(texts[place].decode(errors="replace")))
                    flaws.setdefault(place, said)
        return rows, flaws


def _tombstone(key: bytes | None, options: Kafka) -> bytes:
    """The row that a message without a value stands for; Debezium sends one after the delete itself."""
    if options.envelope is not None:
        return b"{}"
    try:
        id = None if key is None else _id_of(key.decode(), options)
    except UnicodeDecodeError:
        return key or b""  # no row
    deletes = options.op_values.by_name()["delete"] or ["delete"]  # which is an error then
    return json.dumps({options.id: id, options.op: deletes[0]}).encode()


def _id_of(key: str, options: Kafka) -> Any:
    """Return the id that a key names: a JSON value, or the field of an object; of one with a schema its payload.

    Where the column of ids holds text, a key that is neither a JSON string nor an object is the id itself, so that
    ``1.10`` and ``1.1`` are two ids.
    """
    try:
        named = json.loads(key)
    except (ValueError, RecursionError):
        return key
    wrapped = isinstance(named, dict) and named.keys() == {"schema", "payload"}  # by the converter of Kafka Connect
    named = named["payload"] if wrapped else named
    if isinstance(named, dict):
        return named.get(options.id)
    if wrapped:
        return named
    return key if options.id in options.text and not isinstance(named, str) else named


def _properties(path: str | None) -> dict[str, str]:
    """Options of the client, of a file with ``name=value`` in each line."""
    try:
        lines = [] if path is None else Path(path).read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise InputError(message("live.no_properties", reason=error.strerror or str(error)), file=path) from error
    pairs = (line.partition("=") for line in lines if "=" in line and not line.lstrip().startswith("#"))
    return {name.strip(): value.strip() for name, _, value in pairs}
