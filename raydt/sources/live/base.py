"""Interface of every live source: what it is, what can be read now, and the rows of that.

Invariant: the rows of a plan are the same whenever it is read. So a stream is a function of its plans, which a run
keeps, and of the source; nothing is confirmed to the source, and nobody else's reading counts.

A module of this package that defines options (:class:`LiveOptions`) is a kind of source; nothing else names it.
"""

from __future__ import annotations

import pkgutil
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from importlib import import_module
from typing import Any, ClassVar, NamedTuple, Protocol

import pyarrow as pa
from pydantic import Field, model_validator

from raydt.errors import ConfigError, InputError, RaydtError
from raydt.examples.updates import CLASSES, Reading
from raydt.messages import Message, message, quoted
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


# Tables of Arrow as live sources hand them on: files of a table, columns of plain types, rows in one order.


class TableFile(NamedTuple):
    """A Parquet file of a table, as the log of the table describes it."""

    path: str  #: Within the folder of the table.
    partition: Mapping[str, Any]  #: Values of partition columns: text, or of the type of the column. None: null.
    filled: Set[str] = frozenset()  #: Columns with at least one value, by the statistics of the log.


def scan(files: Iterable[TableFile], schema: pa.Schema, filesystem: Any, name: str) -> Iterator[pa.RecordBatch]:
    """Read the rows of files of the table ``name`` in the order of their paths; null where a file lacks a column.

    InputError if a file lacks a column that has values by the statistics of the log: read as null, the rows would be
    learned wrongly in silence.
    """
    import pyarrow.dataset as pads  # needed for what is read only: a slow import

    form = pads.ParquetFileFormat()
    for one in sorted(files, key=lambda file: file.path):
        fragment = form.make_fragment(one.path, filesystem, partition_expression=_fixed(one.partition, schema))
        lost = one.filled - {*fragment.physical_schema.names, *one.partition}
        for column in schema.names:
            if column in lost:
                raise InputError(message("live.lost_column", path=quoted(one.path), column=quoted(column)), file=name)
        # One row group at a time, each to its end. A scan that is broken off goes on reading in threads of Arrow; where
        # the filesystem is one in Python, these abort or block a process that ends meanwhile.
        for group in fragment.split_by_row_group():
            yield from pads.FileSystemDataset([group], schema, form, filesystem).to_table().to_batches()


def _fixed(partition: Mapping[str, Any], schema: pa.Schema) -> Any:
    """Return the values of the columns of a partition as an expression, by which pyarrow fills the columns."""
    import pyarrow.dataset as pads

    whole = pads.scalar(True)
    for name, value in partition.items():
        if name in schema.names:
            field, value = pads.field(name), _value(value, schema.field(name).type)
            whole = whole & (field == value if value.is_valid else field.is_null())
    return whole


def _value(value: Any, kind: pa.DataType) -> pa.Scalar:
    """Return the value of a partition in the type of its column; the log of a table has values as text."""
    if value in (None, ""):  # by the protocol of Delta, empty text is null, whatever the type
        return pa.scalar(None, kind)
    if isinstance(value, str) and pa.types.is_timestamp(kind) and kind.tz and value[-1].isdigit():
        value += "Z"  # by the protocol of Delta, a time without a zone is one of UTC
    return pa.scalar(value).cast(kind)


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Return the type in which a column is read: text is not a view, nor large."""
    return pa.string() if pa.types.is_string_view(kind) or pa.types.is_large_string(kind) else kind


def first_line(error: Exception) -> str:
    """Return the message of an error of a library, in one line."""
    return next(iter(str(error).splitlines()), type(error).__name__)
