"""Options of every source of rows in columns: which column plays which part, and where the rows are."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictFloat, StrictInt, model_validator

from raydt.arrays.sparse import LARGEST_WIDTH
from raydt.encoding.operations import OpValues
from raydt.examples.reading import NEWEST_RULES
from raydt.messages import message

Label = StrictBool | StrictInt | StrictFloat | str


class Section(BaseModel):
    """Options that are fixed, and of which none is unknown."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True)


class FileOptions(Section):
    """Options of every source that reads files."""

    #: Whether files of this kind can hold structs.
    has_structs: ClassVar[bool] = True
    #: Whether a deletion needs no key, since an id has one row, whatever its key.
    deletes_by_id: ClassVar[bool] = False

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
    rules: int = Field(
        NEWEST_RULES,
        ge=1,
        le=NEWEST_RULES,
        description="rules by which rows are read; a run keeps the rules that were the newest when it began",
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
