"""Options of the sources: one strict model per kind, selected by ``kind`` (and ``generator``)."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, model_validator

from raydt.arrays.blocks import LARGEST_WIDTH
from raydt.messages import message
from raydt.sources.base import FileOptions, OptionSection
from raydt.sources.live.base import kinds


class ParquetFiles(FileOptions):
    """Parquet files."""

    kind: Literal["parquet"] = "parquet"


class ArrowFiles(FileOptions):
    """Arrow IPC files and streams."""

    kind: Literal["arrow"] = "arrow"


class _TextFiles(FileOptions):
    """Files in which numbers are written as text, or may be."""

    null_values: list[str] | None = Field(
        None,
        description="texts that are missing values of numeric features; null: those of "
        "pandas (NULL, null, NA, N/A, n/a, #N/A, <NA>, NaN, nan, None and others)",
    )


class CsvFiles(_TextFiles):
    """CSV files with a header row."""

    has_structs = False
    kind: Literal["csv"] = "csv"
    delimiter: str = Field(",", min_length=1, max_length=1)
    text: list[str] = Field(
        [],
        description="columns of id, subject, key or label that hold text, whatever they look like: 007 and 7 are two",
    )
    integers: list[str] = Field(
        [],
        description="columns of id, subject or key that hold integers, however they are written: 007 is 7. In neither "
        "list: integers if the first rows (1 MB) write all of them as usual, else text",
    )

    @model_validator(mode="after")
    def _delimits(self) -> CsvFiles:
        if not self.delimiter.isascii() or self.delimiter.isalnum() or self.delimiter in '"\r\n\0.-+':
            raise ValueError(message("sources.delimiter", delimiter=self.delimiter))
        return self

    @model_validator(mode="after")
    def _kinds(self) -> CsvFiles:
        named = {self.id, self.subject, self.key}
        for option, among in (("text", {*named, self.label}), ("integers", named - {*self.text})):
            if odd := [name for name in getattr(self, option) if name not in among]:
                raise ValueError(message("sources.no_such_kind", option=option, column=odd[0]))
        return self


class JsonLinesFiles(_TextFiles):
    """JSON Lines: one object in a line."""

    kind: Literal["jsonl"] = "jsonl"


class LibsvmFiles(FileOptions):
    """LIBSVM text: a label (column ``y``), then ``index:1`` for each feature that is 1 (column ``indices``)."""

    has_structs = False
    kind: Literal["libsvm"] = "libsvm"


class SyntheticOptions(OptionSection):
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

_IN_COLUMNS = (ParquetFiles, ArrowFiles, CsvFiles, JsonLinesFiles, LibsvmFiles, *kinds())


def _with_kind(source: Any) -> Any:
    """Add the kind of files that the ending of their ``path`` stands for, where none is given."""
    path = source.get("path") if isinstance(source, dict) and "kind" not in source else None
    names = [path] if isinstance(path, str) else path
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        return source
    from raydt.sources.files.jsonl import form_of  # it imports pyarrow, which most errors in a config do not need

    forms = {form_of(name) for name in names}
    form = forms.pop()
    return source if form is None or forms else {"kind": form.kind, **source}


#: Options of any source: those of files, of each live source (:mod:`raydt.sources.live`), and of generators.
SourceOptions: Any = Annotated[
    reduce(or_, _IN_COLUMNS, Annotated[Generator, Discriminator("generator")]),
    Discriminator("kind"),
    BeforeValidator(_with_kind),
]
