"""Interface of every source: encoded rows in a fixed order, readable again from any row."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from itertools import accumulate
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from raydt.arrays.sparse import SparseRows, concatenated
from raydt.arrays.types import Floats, Ints
from raydt.encoding.times import TimeColumn
from raydt.errors import InputError
from raydt.examples.features import Features
from raydt.examples.reading import Reading
from raydt.examples.targets import Targets
from raydt.examples.weights import Weights
from raydt.messages import message
from raydt.sources.identity import Identity


def require(reading: Reading, features: Features) -> None:
    """Raise an InputError about features that a learner does not take."""
    from raydt.learners import instead  # needed for messages only: compiled kernels are imported with it

    if features.names and not reading.dense:
        shown = ", ".join(map(repr, features.names[:3]))
        more = f" and {len(features.names) - 3:,} others" if len(features.names) > 3 else ""
        others = instead(reading.with_dense, lambda other: other.sparse and other.dense)
        raise InputError(message("columns.dense", names=shown + more, others=others))
    if reading.needs_sparse and not features.sparse:
        others = reading.without_sparse or instead("", lambda other: not other.needs_sparse)
        raise InputError(message("columns.no_sparse", others=others))


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of a source, encoded: consecutive ones as they are read, or a selection of them."""

    row: Ints  #: Shape (n,): numbers over all files of the source, ascending.
    #: Shape (n, d): finite, -0.0 replaced by 0.0; categorical columns hold codes in order of first appearance or, under
    #: :attr:`Reading.by_value`, numbers that follow from the values. Unspecified where the operation carries no
    #: features. Under :attr:`Reading.missing` a missing number is NaN, and a missing category -1, the code of whatever
    #: the model has not seen: the rows that lack it are told apart from all categories in the same way, and no file or
    #: model needs a name for what has none.
    X: Floats
    #: Shape (n,): class codes in order of first appearance (0 = rest, 1 = positive under ``positive``); -1 where
    #: missing. Under :attr:`Reading.regression` float64, the labels themselves; NaN where missing.
    y: Targets
    #: Shape (n,): the id column, or the row number where the source has none; -1 where ids are text (``names``).
    id: Ints
    #: Shape (n,): operation codes of a changelog (``raydt.examples.updates``), or ``IGNORED``.
    op: npt.NDArray[np.int8] | None = None
    #: Rows that cannot be used, by position; their values are unspecified, but for ``op`` and ``id`` (``names``) of a
    #: change log: an insert or update has the id of the row that it was about, an update that of the old row; where
    #: that cannot be read, it is ``IGNORED``. A selection of rows has none.
    bad: dict[int, InputError] = field(default_factory=dict)
    #: Shape (n,): event times, once :meth:`Source.times` or :meth:`Source.require_ts` has asked for them: microseconds
    #: since 1970-01-01 UTC for a column of timestamps or dates, integers as they are. At most
    #: ``raydt.encoding.times.LARGEST_TIME`` in size.
    ts: Ints | None = None
    #: The sparse features, if the source has some; without ones where the operation carries no features.
    sparse: SparseRows | None = None
    #: Shape (n,): weights in units, times those of the classes (:attr:`Reading.class_weight`); None where no row has
    #: any.
    weight: Weights | None = None
    #: Shape (n,): text ids, None where there is none; the stream gives them numbers.
    names: npt.NDArray[np.object_] | None = None
    #: Shape (n,): whose row each is, text or integers, if the source names a column of subjects; None of a row that is
    #: not inserted.
    subject: npt.NDArray[np.object_] | None = None
    #: Shape (n,): code of the key that each row belongs to (:attr:`Source.keys`), -1 where there is none, if the source
    #: names a column of keys.
    key: Ints | None = None
    #: Shape (n,): of an update that moves its example from another key the code of that one, else -1; None where none
    #: does.
    moved: Ints | None = None

    def __len__(self) -> int:
        return len(self.row)

    def __getitem__(self, index: Any) -> Rows:
        return Rows(**{name: column[index] for name, column in self.columns().items()})

    def part(self, begin: int, end: int) -> Rows:
        """Return consecutive rows, by position, with the bad ones among them."""
        part = self[begin:end]
        part.bad.update((place - begin, error) for place, error in self.bad.items() if begin <= place < end)
        return part

    @property
    def start(self) -> int:
        """Number of the first row."""
        return int(self.row[0])

    @property
    def has_features(self) -> bool:
        """Return False if the shards have read the features of these rows (:mod:`raydt.sources.divided`)."""
        return bool(self.X.shape[1]) or self.sparse is not None

    def columns(self) -> dict[str, Any]:
        """Return the arrays and sparse rows that are there, by name."""
        given = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "bad"}
        return {name: column for name, column in given.items() if column is not None}

    @staticmethod
    def joined(parts: list[Rows]) -> Rows:
        """Return the rows of at least one part, all of the same columns, one after another; a single part itself."""
        if len(parts) == 1:
            return parts[0]
        whole: dict[str, Any] = {}
        for name in parts[0].columns():
            columns = [getattr(part, name) for part in parts]
            whole[name] = concatenated(columns) if name == "sparse" else np.concatenate(columns)
        begins = accumulate(map(len, parts), initial=0)
        bad = {begin + at: error for begin, part in zip(begins, parts, strict=False) for at, error in part.bad.items()}
        return Rows(**whole, bad=bad)


class Source(Protocol):
    """A finite, ordered, re-readable table of examples or changes."""

    features: Features
    #: ``"row"`` (no id column: the row number is the id), ``"integer"`` or ``"text"``.
    rules: int  #: By which rows are read (:data:`raydt.examples.reading.NEWEST_RULES`).
    id_kind: Literal["row", "integer", "text"]
    id_column: str | None  #: Name of the id column, for messages.
    subject_column: str | None  #: Name of the column of subjects.
    subject_kind: Literal["integer", "text"] | None  #: What that column holds; None without one.
    is_changelog: bool  #: Whether rows carry operations.
    has_labels: bool  #: Whether rows carry labels; without, they can be predicted only.
    known_classes: int  #: Classes known before any row is read: 2 under ``positive`` and for generators, else 0.
    target_dtype: np.dtype[Any]  #: Of :attr:`Rows.y`.
    #: False while more rows may come: :meth:`rows` then ends at a pause, and goes on from there if it is called again.
    complete: bool

    @property
    def classes(self) -> list[Any]:
        """Labels in the order of their codes, as known so far (plain Python values)."""

    @property
    def positive(self) -> list[Any] | None:
        """Labels that count as positive, resolved (``majority`` included); None where every label is a class."""

    @property
    def n_rows(self) -> int | None:
        """Total number of rows if it is known without reading them."""

    def identity(self) -> Identity:
        """Return the identity of the data: schema, row counts, and contents (read once) or generator settings."""

    def rows(self, start: int = 0) -> Iterator[Rows]:
        """Chunks of rows from row ``start`` on."""

    def count_rows(self) -> int:
        """Total number of rows; files of a format that does not say it are read through once."""

    def times(self) -> TimeColumn | None:
        """Fill :attr:`Rows.ts` from now on if the source names a column that can hold event times.

        A row without a usable time has ``raydt.encoding.times.NO_TIME``, and stays as good as it is.
        """

    def require_ts(self) -> TimeColumn:
        """Fill :attr:`Rows.ts` from now on, and make a row without a usable time bad.

        Raises
        ------
        ConfigError
            The source names no column of times.
        InputError
            The column cannot hold event times.
        """

    def where(self, row: int) -> tuple[str, int]:
        """File and row within it (zero-based) of a row number, for messages."""

    def state(self, row: int | None = None) -> dict[str, Any]:
        """Dictionaries of categories, labels and tokens, as plain JSON values.

        With ``row``, as they were before that row was read, so that reading ahead does not show.
        """

    def restore(self, state: dict[str, Any]) -> None:
        """Continue with the dictionaries of a saved state."""
