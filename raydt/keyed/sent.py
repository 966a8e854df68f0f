"""Rows of a source sent to another process, which has models by key and no source of its own.

Invariant: dictionaries there are those of the source as far as codes of rows that were sent need them: each message
has the values that are new since the one before.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from raydt.encoding.columns import Dictionary
from raydt.encoding.times import TimeColumn
from raydt.errors import ConfigError
from raydt.examples.features import Features
from raydt.exchange.snapshot import Segment
from raydt.keyed.log import Due
from raydt.messages import message
from raydt.sources.base import Rows
from raydt.sources.file_source import FileSource
from raydt.sources.live.followed import KEPT, FollowedSource

#: A source that has rows of many keys.
WholeSource = FileSource | FollowedSource


@dataclass
class SentSource:
    """What :class:`raydt.keyed.source.SharedSource` asks of a source, without its files."""

    features: Features
    rules: int
    id_kind: Literal["row", "integer", "text"]
    id_column: str | None
    subject_kind: Literal["integer", "text"] | None
    subject_column: str | None
    is_changelog: bool
    has_labels: bool
    known_classes: int
    target_dtype: np.dtype[Any]
    positive: list[Any] | None
    classes: list[Any]  #: under ``positive``
    label_state: dict[str, Any]
    column_of_times: TimeColumn | None
    coded: tuple[str, ...]  #: columns with dictionaries
    files: list[tuple[str, int]]  #: names, and numbers of the first rows
    grows: bool  #: plans are added to the files without end, and the first are forgotten
    keys: list[Any] = field(default_factory=list)
    label_values: list[Any] = field(default_factory=list)
    dictionaries: dict[str, Dictionary] = field(default_factory=dict)

    @classmethod
    def of(cls, source: WholeSource) -> SentSource:
        """Describe a source, of which nothing was sent yet."""
        return cls(
            source.features,
            source.rules,
            source.id_kind,
            source.id_column,
            source.subject_kind,
            source.subject_column,
            source.is_changelog,
            source.has_labels,
            source.known_classes,
            source.target_dtype,
            source.positive,
            source.classes if source.positive is not None else [],
            source.state(0)["labels"],
            source.times(),
            tuple(source.categories()),
            source.beginnings(),
            isinstance(source, FollowedSource),
            dictionaries={name: Dictionary() for name in source.categories()},
        )

    def categories(self) -> dict[str, Dictionary]:
        """Return the dictionaries by column."""
        return self.dictionaries

    def times(self) -> TimeColumn | None:
        """Return the column of event times, if rows have some."""
        return self.column_of_times

    def require_ts(self) -> TimeColumn:
        """As :meth:`times`; ConfigError without any."""
        if self.column_of_times is None:
            raise ConfigError(message("sources.no_times"))
        return self.column_of_times

    def state(self, row: int | None = None) -> dict[str, Any]:
        """Return the resolution of positive labels."""
        return {"labels": self.label_state}

    def where(self, row: int) -> tuple[str, int]:
        """File and row within it of a row of the source."""
        name, begin = self.files[max(0, bisect_right(self.files, row, key=lambda file: file[1]) - 1)]
        return name, row - begin

    def take(self, news: News) -> None:
        """Take the values that are new."""
        self.keys += news.keys
        self.label_values += news.labels
        for name, values in news.categories.items():
            self.dictionaries[name].learn(values, [-1] * len(values))
        for name, begin in news.files:
            while self.files and self.files[-1][1] >= begin:
                self.files.pop()
            self.files.append((name, begin))
        if self.grows:
            del self.files[:-KEPT]


@dataclass(frozen=True)
class News:
    """Values of dictionaries that are new since the message before."""

    keys: list[Any]
    labels: list[Any]
    categories: dict[str, list[Any]]
    files: list[tuple[str, int]]


class Sending:
    """What a source has given other processes so far."""

    def __init__(self, source: WholeSource) -> None:
        self._source = source
        self._keys = self._labels = self._since = 0
        self._categories = dict.fromkeys(source.categories(), 0)

    def news(self) -> News:
        """Return the values of all dictionaries that are new since the last call."""
        source = self._source
        keys, labels = source.keys[self._keys :], source.label_values[self._labels :]
        found = {name: one.values[self._categories[name] :] for name, one in source.categories().items()}
        self._keys, self._labels = self._keys + len(keys), self._labels + len(labels)
        for name, values in found.items():
            self._categories[name] += len(values)
        files = source.beginnings(self._since)
        self._since = files[-1][1] + 1
        return News(keys, labels, {name: values for name, values in found.items() if values}, files)


@dataclass(frozen=True)
class SentRows:
    """Rows of the keys of one process; the bad ones by place."""

    rows: Rows
    news: News
    stored: Sequence[Segment] | None  #: a snapshot is to follow, without these
    due: Due | None = None
    digest: bool = False  #: The digests before these rows are wanted.
