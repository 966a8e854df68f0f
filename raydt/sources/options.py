"""Options of the sources: one strict model per kind, told apart by ``kind`` (and ``generator``).

A kind is added by its model here, which knows how to open itself, and its place in :data:`SourceOptions`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, StrictBool, StrictFloat, StrictInt, model_validator

from raydt.errors import ConfigError
from raydt.sources.arrow import ArrowDataFile
from raydt.sources.base import CLASSES, Reading, Source
from raydt.sources.csv import CsvDataFile
from raydt.sources.datafile import DataFile, Place, find_files
from raydt.sources.files import FileSource
from raydt.sources.libsvm import LibsvmDataFile
from raydt.sources.operations import OpValues
from raydt.sources.parquet import ParquetDataFile
from raydt.sources.permuted import PermutedFiles
from raydt.sources.randcbt import RandCbtSource
from raydt.sources.sparse_synthetic import SparseSyntheticSource
from raydt.sources.synthetic import HyperplaneSource, SeaSource
from raydt.sparse import LARGEST_WIDTH

Label = StrictBool | StrictInt | StrictFloat | str


class _Options(BaseModel, ABC):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    @abstractmethod
    def open(self, base_dir: str | Path = ".", reading: Reading = CLASSES) -> Source:
        """The source; relative paths are relative to ``base_dir``."""


class FileOptions(_Options):
    """What all sources made of files share."""

    file_type: ClassVar[type[DataFile]]

    path: str | list[str] = Field(description="file, folder, pattern, URI, or a list of these")
    label: str | None = Field("y", description="label column; null reads rows without labels, for prediction only")
    positive: Label | list[Label] | None = Field(
        None,
        description="label or labels of class 1 against the rest, majority or minority; null: every label is a class",
    )
    features: list[str] | None = Field(
        None, min_length=1, description="feature columns; null takes all that are not label, id, op or ts"
    )
    categorical: list[str] = Field([], description="features that are categories though they are numbers")
    n_features: int | None = Field(
        None,
        ge=1,
        le=LARGEST_WIDTH,
        description="sparse features, those of a column of lists, or how many different tokens it may hold; null takes "
        "n_features of the files' metadata, or the largest index + 1, or the number of tokens in the files",
    )
    id: str | None = Field(None, description="column of stable ids, integers or strings; null numbers the rows")
    op: str | None = Field(None, description="column of operations, which makes the source a changelog")
    envelope: Literal["debezium"] | None = Field(
        None, description="rows are in the structs before and after, beside op; label, id, features are fields of them"
    )
    op_values: OpValues = OpValues()
    ts: str | None = Field(None, description="column of event times (timestamps, dates or integers); not a feature")
    limit: int | None = Field(None, ge=1, description="read only so many rows")
    permutation: int | None = Field(
        None, description="seed of an order in which the rows are read; all needed columns are then held in memory"
    )

    @model_validator(mode="before")
    @classmethod
    def _op_of_envelope(cls, data: Any) -> Any:
        named = isinstance(data, dict) and data.get("envelope") is not None and data.get("op") is None
        return {**data, "op": "op"} if named else data

    @model_validator(mode="after")
    def _consistent(self) -> FileOptions:
        if self.envelope is not None and not self.file_type.has_structs:
            raise ValueError(
                f"source.envelope needs structs, which {self.file_type.kind} files cannot hold; use parquet"
            )
        if self.op is not None and self.id is None:
            what = "source.op" if self.envelope is None else "source.envelope"
            raise ValueError(f"a changelog ({what}) needs source.id, the column of stable ids")
        if self.op is None and self.op_values != OpValues():
            raise ValueError("source.op_values is used only with source.op")
        if self.op is not None and self.permutation is not None:
            raise ValueError("source.permutation cannot be used with source.op: the rows of a change log have an order")
        if self.label is None and self.positive is not None:
            raise ValueError("source.positive needs source.label")
        for name in ("features", "categorical", "path"):
            values = getattr(self, name)
            if isinstance(values, list) and len(set(values)) < len(values):
                raise ValueError(f"source.{name} names something twice")
        if not self.path or (isinstance(self.path, list) and "" in self.path):
            raise ValueError("source.path is empty. Name a file, a folder or a pattern")
        return self

    def data_file(self, place: Place, reading: Reading = CLASSES) -> DataFile:
        """Open one file."""
        return self.file_type(place)

    def open(self, base_dir: str | Path = ".", reading: Reading = CLASSES) -> FileSource:
        """The source; relative paths are relative to ``base_dir``."""
        places = find_files(self.path, base_dir, self.file_type.suffixes)
        make = FileSource if self.permutation is None else PermutedFiles
        return make(self, [self.data_file(place, reading) for place in places], reading=reading)


class ParquetFiles(FileOptions):
    """Parquet files."""

    file_type: ClassVar[type[DataFile]] = ParquetDataFile
    kind: Literal["parquet"] = "parquet"


class ArrowFiles(FileOptions):
    """Arrow IPC files and streams."""

    file_type: ClassVar[type[DataFile]] = ArrowDataFile
    kind: Literal["arrow"] = "arrow"


class CsvFiles(FileOptions):
    """CSV files with a header row."""

    file_type: ClassVar[type[DataFile]] = CsvDataFile
    kind: Literal["csv"] = "csv"
    delimiter: str = Field(",", min_length=1, max_length=1)

    def data_file(self, place: Place, reading: Reading = CLASSES) -> DataFile:
        """Open one file."""
        label = None if reading.regression else self.label
        parts = tuple(part for part in (label, self.id, self.op) if part)
        return CsvDataFile(place, self.delimiter, tuple(self.categorical), parts, self.ts)

    @model_validator(mode="after")
    def _delimits(self) -> CsvFiles:
        if not self.delimiter.isascii() or self.delimiter.isalnum() or self.delimiter in '"\r\n\0.-+':
            raise ValueError(f"source.delimiter cannot be {self.delimiter!r}. Write for example ';' or \"\\t\"")
        return self


class LibsvmFiles(FileOptions):
    """LIBSVM text: a label (column ``y``), then ``index:1`` for each feature that is 1 (column ``indices``)."""

    file_type: ClassVar[type[DataFile]] = LibsvmDataFile
    kind: Literal["libsvm"] = "libsvm"


class SyntheticOptions(_Options):
    """What all generators share; row r is a pure function of these options and r."""

    kind: Literal["synthetic"] = "synthetic"
    n: int = Field(100_000, ge=1, description="rows of the whole stream, over which drifts are spaced")
    seed: int = Field(7, description="any integer")
    noise: float = Field(0.1, ge=0.0, le=1.0, description="probability that a label is flipped")
    limit: int | None = Field(None, ge=1, description="read only so many rows")
    permutation: int | None = Field(None, description="seed of an order in which the rows come; 16 bytes a row")

    def _require_classes(self, reading: Reading) -> None:
        if reading.regression:
            raise ConfigError(
                "source.kind: synthetic draws classes, but the learner wants numbers (learner.objective: "
                "squared_error). Use files, or choose another objective"
            )


class Sea(SyntheticOptions):
    """SEA concepts: three features, the third irrelevant, abrupt drifts."""

    generator: Literal["sea"] = "sea"
    drift: int = Field(3, ge=0, description="abrupt changes of concept, evenly spaced")

    def open(self, base_dir: str | Path = ".", reading: Reading = CLASSES) -> SeaSource:
        """The source."""
        self._require_classes(reading)
        return SeaSource(self)


class Hyperplane(SyntheticOptions):
    """Rotating hyperplane: gradual drift."""

    generator: Literal["hyperplane"] = "hyperplane"
    n_features: int = Field(10, ge=1, description="d")
    drift: int = Field(4, ge=0, description="how often the hyperplane moves on to a new orientation; 0 stands still")

    def open(self, base_dir: str | Path = ".", reading: Reading = CLASSES) -> HyperplaneSource:
        """The source."""
        self._require_classes(reading)
        return HyperplaneSource(self)


class RandCbt(SyntheticOptions):
    """A random binary tree: as many rows in each leaf, uniform in its region."""

    generator: Literal["randcbt"] = "randcbt"
    n: int = Field(500_000, ge=1, description="rows of the whole stream, the same number for each leaf")
    noise: float = Field(0.3, ge=0.0, le=1.0, description="probability that a label is not that of its leaf, 1 - q")
    leaves: int = Field(50, ge=2, le=100_000, description="leaves of the tree; label 1 in left ones, 0 in right ones")
    n_features: int = Field(5, ge=1, description="d")
    drift: int = Field(0, ge=0, description="how often the tree is drawn anew, evenly spaced")

    @model_validator(mode="after")
    def _filled(self) -> RandCbt:
        if self.drift >= self.n:
            raise ValueError(f"source.drift: the {self.n:,} rows of source.n are too few for {self.drift + 1:,} trees")
        return self

    def open(self, base_dir: str | Path = ".", reading: Reading = CLASSES) -> RandCbtSource:
        """The source."""
        self._require_classes(reading)
        return RandCbtSource(self)


class SparseSynthetic(SyntheticOptions):
    """Sparse binary features, few of which have to do with the label: sparse(n, d1, d2, q) of Tatti's paper."""

    generator: Literal["sparse"] = "sparse"
    noise: float = Field(0.0, ge=0.0, le=1.0, description="probability that a label is flipped")
    informative: int = Field(
        10, ge=1, description="d1, features that are the label, each flipped with a probability of its own"
    )
    irrelevant: int = Field(10_000, ge=1, description="d2, features that are 1 at random")
    density: float | None = Field(
        None, ge=0.0, le=1.0, description="q, the probability that such a feature is 1; null takes ten over d2"
    )
    drift: int = Field(0, ge=0, description="how often the informative features are drawn anew, evenly spaced")

    @model_validator(mode="after")
    def _narrow(self) -> SparseSynthetic:
        if self.informative + self.irrelevant > LARGEST_WIDTH:
            raise ValueError(f"source.informative + source.irrelevant is more than {LARGEST_WIDTH} features")
        return self

    def open(self, base_dir: str | Path = ".", reading: Reading = CLASSES) -> SparseSyntheticSource:
        """The source."""
        self._require_classes(reading)
        if not reading.sparse:
            raise ConfigError(
                "source.generator: sparse draws indices of sparse features, which this learner does not take. "
                "Choose another generator"
            )
        return SparseSyntheticSource(self)


#: Options of any source.
SourceOptions = Annotated[
    ParquetFiles
    | ArrowFiles
    | CsvFiles
    | LibsvmFiles
    | Annotated[Sea | Hyperplane | RandCbt | SparseSynthetic, Discriminator("generator")],
    Discriminator("kind"),
]


def open_source(
    options: FileOptions | SyntheticOptions, base_dir: str | Path = ".", reading: Reading = CLASSES
) -> Source:
    """Open the source that ``options`` describe.

    Parameters
    ----------
    options : one of :data:`SourceOptions`
    base_dir : path
        What relative paths are relative to: the folder of the configuration file.
    reading : Reading
        What the learner takes: ``Reading.of(options)`` of the learner's options.

    Raises
    ------
    InputError
        A file or column is missing or cannot be used, or the learner takes no such features.
    ConfigError
        ``positive`` is not a label of the source, or labels cannot be numbers as the learner wants.
    """
    source = options.open(base_dir, reading)
    reading.require(source.features)
    return source
