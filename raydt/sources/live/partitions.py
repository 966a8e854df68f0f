"""Messages of the partitions of a topic, brought by a consumer that no group and no broker keeps track of.

Invariant: what a call takes depends on its offsets alone. What the consumer has brought beyond them waits for the next.
A topic is known by its id, which brokers give since Kafka 2.8: one that was deleted and made again is another topic.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Mapping
from itertools import groupby
from typing import Any

from raydt.errors import InputError
from raydt.messages import message
from raydt.sources.live.base import HistoryGoneError, SourceAwayError, library

#: Most messages of one call of the library.
MESSAGES_OF_CALL = 10_000
#: Seconds that the brokers have for an answer; while nothing is known to be wrong, and afterwards.
ANSWER_SECONDS, SHORT_SECONDS = 5.0, 0.5

Offsets = dict[int, int]

#: Errors of a topic that asking again does not mend, by their names in the library.
_FINAL = ("UNKNOWN_TOPIC_OR_PART", "TOPIC_AUTHORIZATION_FAILED", "TOPIC_EXCEPTION")


class Partitions:
    """The partitions of a topic, at the brokers of ``properties``; InputError if the topic is not there."""

    def __init__(self, topic: str, properties: Mapping[str, str], name: str) -> None:
        self._kafka, self._topic, self._name = library("confluent_kafka", "kafka"), topic, name
        self.partitions: list[int] = []
        self.id: str | None = None  #: Of the topic, as asked for last.
        self.begins: Offsets = {}  #: Offsets of the oldest messages, where these were asked for.
        self._taken: Offsets | None = None  # where the next messages are taken, if these follow the last ones
        self._at: Offsets = {}  # what the consumer brings next
        self._beyond: dict[int, list[Any]] = {}  # what it has brought, and nobody has taken
        self._level: set[int] = set()  # partitions that have nothing after that
        self._down: str | None = None  # why no broker answers
        admin = library("confluent_kafka.admin", "kafka").AdminClient
        own = {"group.id": "raydt", "enable.auto.commit": False, "enable.partition.eof": True}
        own |= {"auto.offset.reset": "error", "fetch.wait.max.ms": 100, "error_cb": self._note_error}
        try:
            self._consumer = self._kafka.Consumer({"log_level": 0, **properties, **own})
            self._admin = admin({"log_level": 0, **properties})
        except self._kafka.KafkaException as error:
            raise InputError(message("live.no_broker", reason=_reason(error)), file=name) from error
        try:
            self.ask()
        except SourceAwayError as error:
            raise InputError(message("live.no_broker", reason=_reason(error.__cause__ or error)), file=name) from error

    def ask(self) -> None:
        """Ask which id and which partitions the topic has now; InputError if there is no such topic any more."""
        try:
            found = self._consumer.list_topics(self._topic, timeout=ANSWER_SECONDS).topics[self._topic]
            if found.error is not None:
                raise self._kafka.KafkaException(found.error)
            self.id = self._asked_id()
        except self._kafka.KafkaException as error:
            if _code(error) in [getattr(self._kafka.KafkaError, name, None) for name in _FINAL]:
                raise InputError(message("live.no_broker", reason=_reason(error)), file=self._name) from error
            raise SourceAwayError(message("live.away", reason=_reason(error)).at(self._name)) from error
        self.partitions = sorted(found.partitions)

    def _asked_id(self) -> str | None:
        """Return the id of the topic; None of brokers that give none."""
        topics = self._kafka.TopicCollection([self._topic])
        told = self._admin.describe_topics(topics, request_timeout=ANSWER_SECONDS)[self._topic]
        id = str(told.result().topic_id)
        return id if id.strip("A") else None  # zero, in base 64

    def oldest(self, partition: int, patience: float = ANSWER_SECONDS) -> int:
        """Offset of the oldest message of a partition; SourceAwayError if no broker answers."""
        try:
            begin = int(self._consumer.get_watermark_offsets(self._place(partition), timeout=patience)[0])
        except self._kafka.KafkaException as error:
            raise SourceAwayError(message("live.away", reason=_reason(error)).at(self._name)) from error
        self.begins[partition] = begin
        return begin

    def ends(self) -> Offsets:
        """Offsets after the newest messages, as the brokers have said last."""
        known = {p: self._consumer.get_watermark_offsets(self._place(p), cached=True) for p in self.partitions}
        return {p: high for p, (_, high) in known.items()}

    def come(self, begins: Offsets, most: int) -> Offsets:
        """Return the offsets after the messages, about ``most``, that have come since ``begins``."""
        self._go_to(begins)
        while self._waiting() < most and self._bring(MESSAGES_OF_CALL, 0.0):
            pass
        heard = time.monotonic()
        while not self._waiting() and len(self._level) < len(begins):
            heard = self._bring(MESSAGES_OF_CALL, 0.02) or self._require_answer(heard)
        if self._down is not None:
            self.oldest(self.partitions[0], SHORT_SECONDS)
            self._down = None
        return dict(self._at)

    def take(self, begins: Offsets, ends: Offsets) -> list[Any]:
        """Return messages in the order of (partition, offset); SourceAwayError if they do not come."""
        self._go_to(begins)
        heard = time.monotonic()
        while missing := sum(max(0, end - self._at[p]) for p, end in ends.items()):
            heard = self._bring(min(missing, MESSAGES_OF_CALL), 0.1) or self._require_answer(heard)
            if short := [p for p in self._level if self._at[p] < ends[p]]:
                raise self._unreachable(short[0], ends[short[0]])
        taken = []
        for p, end in sorted(ends.items()):
            cut = bisect_left(self._beyond[p], end, key=lambda one: one.offset())
            taken += self._beyond[p][:cut]
            del self._beyond[p][:cut]
        self._taken = dict(ends)
        return taken

    def _place(self, partition: int, *offset: int) -> Any:
        return self._kafka.TopicPartition(self._topic, partition, *offset)

    def _go_to(self, begins: Offsets) -> None:
        """Have the consumer bring messages from these offsets on, if it does not yet."""
        if self._taken != begins:
            self._at, self._beyond = dict(begins), {p: [] for p in begins}
            self._level.clear()
            self._consumer.assign([self._place(p, at) for p, at in begins.items()])
            self._taken = dict(begins)

    def _waiting(self) -> int:
        return sum(map(len, self._beyond.values()))

    def _bring(self, most: int, seconds: float) -> float:
        """Take what comes within some seconds; the time, or 0 if nothing has come."""
        brought = self._consumer.consume(most, timeout=seconds)
        for (p, code), run in groupby(brought, key=_origin):
            if code is None:
                self._beyond[p] += run
                self._at[p] = self._beyond[p][-1].offset() + 1
                self._level.discard(p)
            elif code == self._kafka.KafkaError._PARTITION_EOF:
                self._at[p] = max(self._at[p], *(one.offset() for one in run))
                self._level.add(p)
            elif code == self._kafka.KafkaError._AUTO_OFFSET_RESET:
                raise self._unreachable(p, self._at[p])
        return time.monotonic() if brought else 0.0

    def _unreachable(self, partition: int, offset: int) -> HistoryGoneError:
        """Return the error of an offset that the log of a partition does not reach, at its beginning or its end."""
        try:
            newest = self._consumer.get_watermark_offsets(self._place(partition), timeout=ANSWER_SECONDS)[1]
        except self._kafka.KafkaException as error:
            raise SourceAwayError(message("live.away", reason=_reason(error)).at(self._name)) from error
        name = "expired" if offset <= newest else "beyond_end"
        return HistoryGoneError(message(f"live.{name}", offset=offset, partition=partition), file=self._name)

    def _require_answer(self, heard: float) -> float:
        if self._down is not None or time.monotonic() - heard > ANSWER_SECONDS:
            reason, self._taken = self._down or "no message comes", None
            raise SourceAwayError(message("live.away", reason=reason).at(self._name))
        return heard

    def _note_error(self, error: Any) -> None:
        if error.code() == self._kafka.KafkaError._ALL_BROKERS_DOWN:
            self._down = str(error.str())


def _origin(one: Any) -> tuple[int, int | None]:
    """The partition of what the consumer has brought, and the code of its error, if it is one."""
    error = one.error()
    return one.partition(), None if error is None else error.code()


def _code(error: Any) -> int | None:
    """Return the code of an exception of the library, if it has one."""
    return error.args[0].code() if error.args and hasattr(error.args[0], "code") else None


def _reason(error: Any) -> str:
    """Return the message of an exception of the library."""
    return str(error.args[0].str()) if error.args and hasattr(error.args[0], "str") else str(error)
