"""The formats of files, and which one a name stands for (:func:`find_kind`) where no config tells it."""

from __future__ import annotations

from pathlib import Path

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


def form_of(name: str) -> type[DataFile] | None:
    """Return the format that the ending of a name stands for; None if it stands for none."""
    return next((form for form in FORMATS if name.lower().endswith(form.suffixes)), None)


def find_kind(
    path: str, base_dir: str | Path, kind: str | None = None, *, or_else: str = ""
) -> tuple[type[DataFile], list[Place]]:
    """Return the format of a path's files (:func:`find_files`), and these; InputError if it is unclear."""
    among = [form for form in FORMATS if kind in (None, form.kind)]
    suffixes = tuple(suffix for form in among for suffix in form.suffixes)
    places = find_files(path, base_dir, suffixes)
    if kind is not None:
        return among[0], places
    found: dict[type[DataFile], str] = {}
    for place in places:
        form = form_of(place.name)
        if form is None:
            said = message("files.unclear", suffixes=", ".join(suffixes), or_else=or_else)
            raise InputError(said, file=place.name)
        found.setdefault(form, place.name)
    if len(found) > 1:
        raise InputError(message("files.many_kinds", names=" and ".join(found.values())), file=path)
    return next(iter(found)), places


def open_file(form: type[DataFile], place: Place, as_text: tuple[str, ...]) -> DataFile:
    """Open one file; ``as_text`` are columns that stay text in CSV and JSON, whatever they look like."""
    if form is CsvDataFile:
        return CsvDataFile(place, as_text=as_text)
    return JsonLinesDataFile(place, as_text) if form is JsonLinesDataFile else form(place)
