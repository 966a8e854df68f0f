"""The formats of files, and which one a name stands for (:func:`find_kind`) where no config tells it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from raydt.errors import InputError
from raydt.messages import message
from raydt.sources.files.arrow import ArrowDataFile
from raydt.sources.files.csv import CsvDataFile
from raydt.sources.files.datafile import DataFile, Place, find_files
from raydt.sources.files.jsonl import JsonLinesDataFile
from raydt.sources.files.libsvm import LibsvmDataFile
from raydt.sources.files.parquet import ParquetDataFile

FORMATS: tuple[type[DataFile], ...] = (
    ParquetDataFile,
    ArrowDataFile,
    CsvDataFile,
    JsonLinesDataFile,
    LibsvmDataFile,
)


class Dialect(NamedTuple):
    """How the files of a run's source are written, for the files that its later commands are given."""

    kind: str | None = None  #: Of files whose names have no ending of a format.
    delimiter: str | None = None  #: Of CSV files; a file without it in its header is one of the usual kind.

    @classmethod
    def of(cls, meta: Mapping[str, Any]) -> Dialect:
        """Return the dialect that ``meta`` of a model or state records; what earlier builds wrote has a config."""
        source = meta.get(DIALECT) or meta.get("config", {}).get("source", {})
        kind = source.get("kind")
        return cls(kind, source.get("delimiter")) if any(form.kind == kind for form in FORMATS) else cls()

    @classmethod
    def recorded(cls, options: Any) -> dict[str, Any]:
        """Return the entry of ``meta`` for the options of a source; none if it has no files."""
        found = cls.of({DIALECT: {"kind": options.kind, "delimiter": getattr(options, "delimiter", None)}})
        return {DIALECT: found._asdict()} if found.kind else {}


#: Of files of which nothing but their names is known.
USUAL = Dialect()

#: The entry of a manifest for the fields of :class:`Dialect`.
DIALECT = "dialect"


def form_of(name: str) -> type[DataFile] | None:
    """Return the format that the ending of a name stands for; None if it stands for none."""
    return next((form for form in FORMATS if name.lower().endswith(form.suffixes)), None)


def find_kind(
    path: str,
    base_dir: str | Path,
    kind: str | None = None,
    *,
    or_else: str = "",
    dialect: Dialect = USUAL,
) -> tuple[type[DataFile], list[Place]]:
    """Return the format of a path's files (:func:`find_files`), and these; InputError if it is unclear."""
    own = next((form for form in FORMATS if form.kind == dialect.kind), None)
    among = [form for form in FORMATS if kind in (None, form.kind)]
    suffixes = tuple(suffix for form in among for suffix in form.suffixes)
    places = find_files(path, base_dir, suffixes)
    if kind is not None:
        return among[0], places
    found: dict[type[DataFile], str] = {}
    for place in places:
        form = form_of(place.name) or own
        if form is None:
            said = message("files.unclear", suffixes=", ".join(suffixes), or_else=or_else)
            raise InputError(said, file=place.name)
        found.setdefault(form, place.name)
    if len(found) > 1:
        raise InputError(message("files.many_kinds", names=" and ".join(found.values())), file=path)
    return next(iter(found)), places


def open_file(form: type[DataFile], place: Place, as_text: tuple[str, ...], dialect: Dialect = USUAL) -> DataFile:
    """Open one file; ``as_text`` are columns that stay text in CSV and JSON, whatever they look like."""
    try:
        if form is CsvDataFile:
            return CsvDataFile(place, as_text=as_text, likely=dialect.delimiter)
        return JsonLinesDataFile(place, as_text) if form is JsonLinesDataFile else form(place)
    except InputError as error:
        if form_of(place.name) is None and form.kind == dialect.kind:
            raise error.but(remedy=message("files.assumed", kind=form.kind)) from None
        raise
