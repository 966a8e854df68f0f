"""Where examples come from: files on any file system, and generators."""

from raydt.encoding.operations import IGNORED, OpValues
from raydt.encoding.times import TimeColumn
from raydt.examples.reading import Reading
from raydt.sources.base import Rows, Source
from raydt.sources.opening import open_source
from raydt.sources.options import (
    ArrowFiles,
    CsvFiles,
    FileOptions,
    Hyperplane,
    ParquetFiles,
    RandCbt,
    Sea,
    SourceOptions,
    SparseSynthetic,
    SyntheticOptions,
)

__all__ = [
    "IGNORED",
    "ArrowFiles",
    "CsvFiles",
    "FileOptions",
    "Hyperplane",
    "OpValues",
    "ParquetFiles",
    "RandCbt",
    "Reading",
    "Rows",
    "Sea",
    "Source",
    "SourceOptions",
    "SparseSynthetic",
    "SyntheticOptions",
    "TimeColumn",
    "open_source",
]
