"""Where examples come from: files on any file system, and generators."""

from raydt.sources.base import IGNORED, Reading, Rows, Source
from raydt.sources.operations import OpValues
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
    open_source,
)
from raydt.sources.times import TimeColumn

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
