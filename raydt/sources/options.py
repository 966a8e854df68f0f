"""Options of the sources: one strict model per kind, selected by ``kind`` (and ``generator``)."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, StrictBool, StrictFloat, StrictInt, model_validator

from raydt.arrays.sparse import LARGEST_WIDTH
from raydt.encoding.operations import OpValues
from raydt.messages import message

Label = StrictBool | StrictInt | StrictFloat | str


class _Options(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True)


class FileOptions(_Options):
    """Options of every source that reads files."""

    #: Whether files of this kind can hold structs.
    has_structs: ClassVar[bool] = True

    kind: str
    path: str | list[str] = Field(description="file, folder, pattern, URI, or a list of these")
    label: str | None = Field("y", description="label column; null: rows have no labels and are only predicted")
    positive: Label | list[Label] | None = Field(
        None,
        description="labels that become class 1, all others class 0: one or several labels, or majority or minority; "
        "null: every label is a class",
    )
    features: list[str] | None = Field(
        None,
        min_length=1,
        description="feature columns; null: all columns but label, id, subject, key, weight, op and ts",
    )
    exclude: list[str] = Field([], description="columns that are no features, for features: null")
    categorical: list[str] = Field([], description="numeric features to read as categories")
    n_features: int | None = Field(
        None,
        ge=1,
        le=LARGEST_WIDTH,
        description="number of sparse features: indices of a list column, or different tokens it may hold; null: "
        "n_features of the files' metadata, else the largest index + 1 or the number of tokens in the files",
    )
    id: str | None = Field(
        None, description="column of stable ids, integers or strings; null: rows are numbered from 0"
    )
    subject: str | None = Field(
        None,
        description="column that says whose row it is (a person, an account), integers or strings; never a feature. "
        "Deletions may name it; null: rows are deleted by id only",
    )
    key: str | None = Field(
        None,
        description="column that says which model a row belongs to (a store, a machine), integers or strings: one "
        "model for each value; never a feature. null: one model",
    )
    weight: str | None = Field(
        None, description="column of weights: how many rows each row counts for; null: all count 1; never a feature"
    )
    op: str | None = Field(None, description="column of operations; it makes the source a changelog")
    envelope: Literal["debezium"] | None = Field(
        None,
        description="debezium: each row is in the structs before and after, next to op; label, id and features name "
        "their fields",
    )
    op_values: OpValues = OpValues()
    ts: str | None = Field(
        None,
        description="column of event times (timestamps, dates, integers): for time_window and reports, never a feature",
    )
    limit: int | None = Field(None, ge=1, description="number of rows to read; null: all")
    permutation: int | None = Field(
        None, description="seed of a random order of the rows; holds all needed columns in memory; null: file order"
    )

    @model_validator(mode="before")
    @classmethod
    def _op_of_envelope(cls, data: Any) -> Any:
        named = isinstance(data, dict) and data.get("envelope") is not None and data.get("op") is None
        return {**data, "op": "op"} if named else data

    @model_validator(mode="after")
    def _consistent(self) -> FileOptions:
        if self.envelope is not None and not self.has_structs:
            raise ValueError(message("sources.no_structs", kind=self.kind))
        if self.op is not None and self.id is None:
            what = "source.op" if self.envelope is None else "source.envelope"
            raise ValueError(message("sources.no_ids", option=what))
        if self.op is None and self.op_values != OpValues():
            raise ValueError(message("sources.op_values"))
        if self.op is not None and self.permutation is not None:
            raise ValueError(message("sources.permuted_changes"))
        if self.label is None and self.positive is not None:
            raise ValueError(message("sources.positive"))
        if self.exclude and self.features is not None:
            raise ValueError(message("sources.both"))
        for name in ("features", "exclude", "categorical", "path"):
            values = getattr(self, name)
            if isinstance(values, list) and len(set(values)) < len(values):
                raise ValueError(message("sources.twice", option=name))
        if not self.path or (isinstance(self.path, list) and "" in self.path):
            raise ValueError(message("sources.no_path"))
        return self


class ParquetFiles(FileOptions):
    """Parquet files."""

    kind: Literal["parquet"] = "parquet"


class ArrowFiles(FileOptions):
    """Arrow IPC files and streams."""

    kind: Literal["arrow"] = "arrow"


class CsvFiles(FileOptions):
    """CSV files with a header row."""

    has_structs = False
    kind: Literal["csv"] = "csv"
    delimiter: str = Field(",", min_length=1, max_length=1)

    @model_validator(mode="after")
    def _delimits(self) -> CsvFiles:
        if not self.delimiter.isascii() or self.delimiter.isalnum() or self.delimiter in '"\r\n\0.-+':
            raise ValueError(message("sources.delimiter", delimiter=self.delimiter))
        return self


class JsonLinesFiles(FileOptions):
    """JSON Lines: one object in a line."""

    kind: Literal["jsonl"] = "jsonl"


class LibsvmFiles(FileOptions):
    """LIBSVM text: a label (column ``y``), then ``index:1`` for each feature that is 1 (column ``indices``)."""

    has_structs = False
    kind: Literal["libsvm"] = "libsvm"


class SyntheticOptions(_Options):
    """Options of every generator; row r is a pure function of these options and r."""

    kind: Literal["synthetic"] = "synthetic"
    n: int = Field(100_000, ge=1, description="rows of the whole stream; drifts are evenly spaced over them")
    seed: int = Field(7, description="seed of the rows; any integer")
    noise: float = Field(0.1, ge=0.0, le=1.0, description="probability that a label is flipped")
    limit: int | None = Field(None, ge=1, description="number of rows to read; null: all")
    permutation: int | None = Field(
        None, description="seed of a random order of the rows; uses 16 bytes per row; null: as generated"
    )


class Sea(SyntheticOptions):
    """SEA concepts: three features, the third irrelevant, abrupt drifts."""

    generator: Literal["sea"] = "sea"
    drift: int = Field(3, ge=0, description="number of abrupt changes of concept, evenly spaced")


class Hyperplane(SyntheticOptions):
    """Rotating hyperplane: gradual drift."""

    generator: Literal["hyperplane"] = "hyperplane"
    n_features: int = Field(10, ge=1, description="number of features (d)")
    drift: int = Field(4, ge=0, description="number of new orientations the hyperplane rotates to; 0: none")


class RandCbt(SyntheticOptions):
    """A random binary tree: the same number of rows in each leaf, uniform in its region."""

    generator: Literal["randcbt"] = "randcbt"
    n: int = Field(500_000, ge=1, description="rows of the whole stream, equally many per leaf")
    noise: float = Field(0.3, ge=0.0, le=1.0, description="probability that a label differs from its leaf's (1 - q)")
    leaves: int = Field(50, ge=2, le=100_000, description="leaves of the tree; left ones have label 1, right ones 0")
    n_features: int = Field(5, ge=1, description="number of features (d)")
    drift: int = Field(0, ge=0, description="number of times a new tree is drawn, evenly spaced")

    @model_validator(mode="after")
    def _filled(self) -> RandCbt:
        if self.drift >= self.n:
            raise ValueError(message("sources.few_rows", rows=self.n, trees=self.drift + 1))
        return self


class SparseSynthetic(SyntheticOptions):
    """Sparse binary features, few of which depend on the label: sparse(n, d1, d2, q) of Tatti's paper."""

    generator: Literal["sparse"] = "sparse"
    noise: float = Field(0.0, ge=0.0, le=1.0, description="probability that a label is flipped")
    informative: int = Field(
        10, ge=1, description="features that equal the label, each flipped with its own probability (d1)"
    )
    irrelevant: int = Field(10_000, ge=1, description="features that are 1 at random (d2)")
    density: float | None = Field(
        None, ge=0.0, le=1.0, description="probability that an irrelevant feature is 1; null: 10 / d2 (q)"
    )
    drift: int = Field(0, ge=0, description="number of times new informative features are drawn, evenly spaced")

    @model_validator(mode="after")
    def _narrow(self) -> SparseSynthetic:
        if self.informative + self.irrelevant > LARGEST_WIDTH:
            raise ValueError(message("sources.many_features", largest=LARGEST_WIDTH))
        return self


#: Options of any generator.
Generator = Sea | Hyperplane | RandCbt | SparseSynthetic

#: Options of any source.
SourceOptions = Annotated[
    ParquetFiles
    | ArrowFiles
    | CsvFiles
    | JsonLinesFiles
    | LibsvmFiles
    | Annotated[Generator, Discriminator("generator")],
    Discriminator("kind"),
]
