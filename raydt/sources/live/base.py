"""Interface of every live source: what it is, what can be read now, and the rows of that.

Invariant: the rows of a plan are the same whenever it is read. So a stream is a function of its plans, which a run
keeps, and of the source; nothing is confirmed to the source, and nobody else's reading counts.

A module of this package that defines options (:class:`LiveOptions`) is a kind of source; nothing else names it.
"""

from __future__ import annotations

import pkgutil
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, ClassVar, Protocol

import pyarrow as pa
from pydantic import Field, model_validator

from raydt.errors import ConfigError, InputError, RaydtError
from raydt.examples.updates import CLASSES, Reading
from raydt.messages import Message, message
from raydt.sources.base import FileOptions, Label
from raydt.sources.encoder import find_parts

#: Where reading has come to and what comes next, in JSON values; ``time`` is that of its newest change, in seconds
#: since 1970, if the source tells it.
Plan = dict[str, Any]

#: Rows of a change log, and why rows cannot be used that the source does not give as a whole, by position.
Part = tuple[pa.RecordBatch, Mapping[int, Message]]

#: Column of operations of a source that finds them itself.
OP = "_op"


class SourceAwayError(RaydtError):
    """A source does not answer now, for a fault of the network; whoever follows it waits."""


class HistoryGoneError(InputError):
    """The source does not keep any more what a plan has read or is to read."""


class LiveSource(Protocol):
    """Changes of a table, in plans."""

    name: str  #: For messages, without secrets.
    unit: str  #: What :meth:`behind` counts.

    def schema(self) -> pa.Schema:
        """Columns that rows can have, that of the operations among them."""

    def describe(self) -> dict[str, Any]:
        """Return the identity of the source as JSON values, without its address and without secrets."""

    def begin(self) -> dict[str, Any]:
        """Options that fix where reading begins, where the config leaves that to the moment."""

    def plan(self, after: Plan | None) -> Plan | None:
        """Return a plan of what can be read now after a plan (None: from the beginning); None if nothing is new.

        SourceAwayError if the source does not answer; HistoryGoneError if what comes next is gone for good; InputError
        if it cannot be read.
        """

    def read(self, plan: Plan, columns: Sequence[str]) -> Iterator[Part]:
        """The rows of a plan, in one order, with these columns (null where a row has none); errors as above."""

    def place(self, plan: Plan) -> str:
        """Return the place of the rows of a plan in the source, for messages."""

    def behind(self, after: Plan | None) -> int:
        """Return the number of units after a plan (None: in all), as last known: no request, since each batch asks."""


class LiveOptions(FileOptions):
    """Options of every live source: one of a run that goes on."""

    deletes_by_id: ClassVar[bool] = True

    path: str = Field(description="where the source is")
    id: str = Field(description="column of stable ids, integers or strings")
    op: str = OP
    positive: Label | list[Label] | None = Field(
        None, description="labels that become class 1, all others class 0; null: every label is a class"
    )
    limit: None = Field(None, description="not of live sources, which have no end")
    permutation: None = Field(None, description="not of live sources: the order of changes matters")

    @abstractmethod
    def open(self, reading: Reading = CLASSES) -> LiveSource:
        """Open the source for a learner; InputError if it is not there, ConfigError without its library."""

    def settled(self) -> LiveOptions:
        """Return the options of a run that begins now: the same rows and features whenever it is resumed."""
        live = self.open()
        changes: dict[str, Any] = live.begin()
        if self.features is None:
            changes |= {"features": find_parts(self, live.schema(), live.name).features, "exclude": []}
        return type(self).model_validate({**self.model_dump(), **changes})

    def at(self, plan: Plan) -> LiveOptions | None:
        """Return the options of the whole table as it was after a plan, if the source keeps that."""
        return None

    @model_validator(mode="before")
    @classmethod
    def _has_id(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get("id") is None:
            raise ValueError(message("sources.no_ids", option=f"source.kind: {data.get('kind')}"))
        return data


def library(name: str, extra: str) -> Any:
    """Import the library that reads a source; ConfigError with the command that installs it."""
    try:
        return import_module(name)
    except ImportError as error:
        raise ConfigError(message("live.no_library", library=name, extra=extra)) from error


def kinds() -> tuple[type[LiveOptions], ...]:
    """Return the options of all live sources, by the names of their modules."""
    package = import_module("raydt.sources.live")
    for module in sorted(found.name for found in pkgutil.iter_modules(package.__path__)):
        if module not in ("base", "followed"):
            import_module(f"raydt.sources.live.{module}")
    return tuple(LiveOptions.__subclasses__())
