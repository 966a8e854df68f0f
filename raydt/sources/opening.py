"""From the options of a source to the source: the one place that knows which class reads which kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from raydt.errors import ConfigError
from raydt.examples.reading import CLASSES, Reading
from raydt.examples.weights import of_labels
from raydt.messages import message
from raydt.sources.base import Source, require
from raydt.sources.file_options import FileOptions
from raydt.sources.file_source import FileSource
from raydt.sources.files.csv import CsvDataFile
from raydt.sources.files.datafile import DataFile, Place, find_files
from raydt.sources.files.formats import FORMATS
from raydt.sources.files.jsonl import JsonLinesDataFile
from raydt.sources.live.base import LiveOptions
from raydt.sources.live.followed import FollowedSource
from raydt.sources.options import (
    CsvFiles,
    Hyperplane,
    JsonLinesFiles,
    RandCbt,
    Sea,
    SparseSynthetic,
    SyntheticOptions,
)
from raydt.sources.permuted import PermutedFiles
from raydt.sources.synthetic.numeric import HyperplaneSource, SeaSource, SyntheticSource
from raydt.sources.synthetic.randcbt import RandCbtSource
from raydt.sources.synthetic.sparse import SparseSyntheticSource

_FORMATS = {form.kind: form for form in FORMATS}

#: The generator of each type of options.
_GENERATORS: dict[type[SyntheticOptions], Any] = {
    Sea: SeaSource,
    Hyperplane: HyperplaneSource,
    RandCbt: RandCbtSource,
    SparseSynthetic: SparseSyntheticSource,
}


def open_source(
    options: FileOptions | SyntheticOptions, base_dir: str | Path = ".", reading: Reading = CLASSES
) -> Source:
    """Open the source that ``options`` describe, for a learner that takes rows as ``reading`` says.

    InputError if a file or column cannot be used; ConfigError if labels cannot be what the options want.
    """
    if isinstance(options, FileOptions) and options.weight is not None and not reading.weights:
        from raydt.learners import for_weights  # needed for messages only: compiled kernels are imported with it

        raise ConfigError(message("sources.no_weights", takers=for_weights(reading.regression)))
    source: Source
    if isinstance(options, LiveOptions):
        source = FollowedSource(options, options.open(reading), reading)
    elif isinstance(options, FileOptions):
        source = _open_files(options, base_dir, reading)
    else:
        source = _draw(options, reading)
    require(reading, source.features)
    return source


def open_file(options: FileOptions, place: Place, reading: Reading = CLASSES) -> DataFile:
    """Open one file of a source."""
    if isinstance(options, CsvFiles):
        label = None if reading.regression else options.label
        named = tuple(column for column in (options.id, options.subject, options.key) if column)
        classes = (label,) if label else ()
        mixed = (*classes, *named, *((options.op,) if options.op else ()))
        if options.rules < 4:
            return CsvDataFile(place, options.delimiter, tuple(options.categorical), mixed, options.ts)
        as_text = (*options.categorical, *options.text)
        return CsvDataFile(place, options.delimiter, as_text, mixed, options.ts, named, classes, options.integers)
    if isinstance(options, JsonLinesFiles):
        as_text = tuple(column for column in (options.label, options.id, options.key, options.op) if column)
        return JsonLinesDataFile(place, (*as_text, *options.categorical), options.rules >= 4)
    return _FORMATS[options.kind](place)


def files_of(options: FileOptions, base_dir: str | Path = ".") -> list[Place]:
    """Return the files of a source; InputError if nothing is there."""
    return find_files(options.path, base_dir, _FORMATS[options.kind].suffixes)


def _open_files(options: FileOptions, base_dir: str | Path, reading: Reading) -> FileSource:
    places = files_of(options, base_dir)
    make = FileSource if options.permutation is None else PermutedFiles
    files = [open_file(options, place, reading) for place in places]
    of_text = [file for file in files if isinstance(file, CsvDataFile)]
    for name in {name for file in of_text for name in file.unlike}:
        for file in of_text:  # nothing is lost, since values are read as text
            if name in file.names:
                file.read_as_text(name)
    return make(options, files, reading=reading)


def _draw(options: SyntheticOptions, reading: Reading) -> Source:
    if reading.regression:
        raise ConfigError(message("sources.generated_classes"))
    if isinstance(options, SparseSynthetic) and not reading.sparse:
        raise ConfigError(message("sources.generated_indices"))
    source: SyntheticSource = _GENERATORS[type(options)](options)
    if reading.class_weight:
        source.class_weight = of_labels(reading.class_weight, source.classes)
    return source
