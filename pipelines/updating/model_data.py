"""Files of rows read under the columns of a saved model: to predict them, or to insert them.

Invariant: what is opened here has every column that was asked for, with the model's features in its order.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

import numpy as np
from pydantic import TypeAdapter

from raydt.arrays.types import Floats
from raydt.encoding.columns import holds_text
from raydt.encoding.indices import holds_indices, is_empty_list
from raydt.encoding.numerals import integer_of
from raydt.encoding.tokens import holds_tokens
from raydt.errors import InputError
from raydt.examples.features import Features
from raydt.learners import traits_of
from raydt.messages import message
from raydt.redaction import marked, quoted_columns
from raydt.sessions.saved_model import SavedModel
from raydt.sources.file_options import FileOptions
from raydt.sources.file_source import FileSource
from raydt.sources.files.csv import CsvDataFile
from raydt.sources.files.datafile import DataFile
from raydt.sources.files.formats import Dialect, find_kind, open_file
from raydt.sources.options import SourceOptions

#: Live examples that say which features have values.
_SHOWN = 1 << 14


@contextmanager
def without_a_config() -> Iterator[None]:
    """Errors in the block do not advise to set keys of a config, since there is none."""
    try:
        yield
    except InputError as error:
        error = error.without_skipping()
        if error.remedy is None or "source." not in error.remedy:
            raise error from None
        wider = "source.n_features" in error.remedy
        raise error.but(remedy=message("updates.more_features" if wider else "updates.correct")) from None


def find_rows(
    saved: SavedModel,
    data: str | DataFile,
    kind: str | None,
    *,
    wanted: Mapping[str, str],
    columns: Mapping[str, str | None] = MappingProxyType({}),
    as_text: tuple[str, ...] = (),
) -> tuple[list[DataFile], FileOptions]:
    """Find the files that ``data`` (a file, folder or pattern, or an open file) stands for, and how to read them.

    They have the features and the columns ``wanted``, with what names each for messages. ``columns`` are others, by
    keys of a source; those ``as_text``, and categories, stay text in CSV. InputError if a file or column is missing.
    """
    features = saved.features
    needed = [*features.names, *([features.sparse_column] if features.sparse else [])]
    for name in wanted:
        if name in needed:
            said = message("updates.feature_column", who=wanted[name])
            raise InputError(said, file=data.name if isinstance(data, DataFile) else data, column=name)
    categorical = features.categorical_names
    values: dict[str, Any] = {"label": None, **columns, "features": needed, "categorical": categorical}
    values["n_features"] = features.sparse or None
    if isinstance(data, DataFile):
        files = [data]
        values |= {"kind": data.kind, "path": data.name}
    else:
        with without_a_config():
            or_else, dialect = ", or add --kind parquet, arrow, csv, jsonl or libsvm", Dialect.of(saved.meta)
            form, places = find_kind(data, ".", kind, or_else=or_else, dialect=dialect)
            files = [open_file(form, place, (*categorical, *as_text), dialect) for place in places]
        values |= {"kind": form.kind, "path": data}
    options: FileOptions = TypeAdapter[Any](SourceOptions).validate_python(values)
    for file in files:
        require_columns(file, needed, wanted)
    return files, options


def require_columns(file: DataFile, needed: Sequence[str], wanted: Mapping[str, str]) -> None:
    """Refuse (InputError) a file that lacks a feature ``needed``, or a column ``wanted`` as of :func:`find_rows`."""
    for name in [*needed, *wanted]:
        if name not in file.names:
            there, near = quoted_columns(file.names), difflib.get_close_matches(name, file.names, 1)
            said = message("updates.no_feature", columns=there)
            if name in wanted and near:
                other = marked(repr(near[0]), "another column")
                said = message("updates.near_column", who=wanted[name], near=other, columns=there)
            elif name in wanted:
                said = message("updates.no_column", who=wanted[name], columns=there)
            raise InputError(said, file=file.name, column=name)


def open_rows(saved: SavedModel, files: list[DataFile], options: FileOptions, **dictionaries: Any) -> FileSource:
    """Open files as a source that codes categories as the model does, and new ones beyond; ``dictionaries`` go on."""
    features = saved.features
    for file in files:
        types = {name: file.schema.field(name).type for name in options.features or ()}
        tokens = features.sparse_column in saved.categories
        lists = [
            n for n, kind in types.items() if is_empty_list(kind) or (holds_tokens if tokens else holds_indices)(kind)
        ]
        odd_one = set(lists) ^ ({features.sparse_column} if features.sparse else set())
        if odd_one and file.n_rows != 0:
            known = "numbers" if not features.sparse else "lists of tokens" if tokens else "lists of indices"
            said = message("updates.other_column", known=known, found="something else")
            raise InputError(said, file=file.name, column=min(odd_one))
    with without_a_config():
        source = FileSource(options, files, reading=traits_of(saved.options).reading)
    require_numbers(features, source, files[0])
    source.restore({**source.state(), "categories": known_categories(saved, files), **dictionaries})
    return source


def require_numbers(features: Features, source: FileSource, file: DataFile) -> None:
    """Refuse (InputError) text in a column in which the model knows numbers."""
    text = set(source.features.categorical_names) - set(features.categorical_names)
    if text:
        odd = next(name for name in features.names if name in text)
        raise InputError(message("updates.other_column", known="numbers", found="text"), file=file.name, column=odd)


def known_categories(saved: SavedModel, files: list[DataFile]) -> dict[str, list[Any]]:
    """Return the model's categories as the files write them: a column of text has text, also of digits."""
    schema = files[0].schema
    text = {field.name for field in schema if isinstance(files[0], CsvDataFile) or holds_text(field.type)}
    tokens = saved.features.sparse_column if saved.features.sparse else None  # text, whatever it looks like
    return {
        name: values if name == tokens else _as_in_file(values, name in text)
        for name, values in saved.categories.items()
    }


def _as_in_file(values: list[Any], as_text: bool) -> list[Any]:
    if as_text:
        return [str(value) if isinstance(value, int) else value for value in values]
    whole = [integer_of(value) if isinstance(value, str) else None for value in values]
    return values if None in whole else whole


def live_features(saved: SavedModel) -> Floats:
    """Return features of the first live examples of a state, shape (n, d); none of a model."""
    features = saved.features
    d = len(features.names)
    given = {number: arrays["X"][:_SHOWN] for number, arrays in saved.groups.items() if "X" in arrays}
    X = np.full((max(map(len, given.values()), default=0), d), np.nan)
    for number, values in given.items():
        owned = features.group_columns(number)
        X[: len(values), owned[owned < d]] = values
    return X
