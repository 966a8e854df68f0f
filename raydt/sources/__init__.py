"""Where examples come from: files on any file system, and generators."""

from raydt.sources.base import Rows, Source
from raydt.sources.options import (
    ArrowOptions,
    CsvOptions,
    FileOptions,
    HyperplaneOptions,
    OpValues,
    ParquetOptions,
    SeaOptions,
    SourceOptions,
    SyntheticOptions,
    open_source,
)

__all__ = [
    "ArrowOptions",
    "CsvOptions",
    "FileOptions",
    "HyperplaneOptions",
    "OpValues",
    "ParquetOptions",
    "Rows",
    "SeaOptions",
    "Source",
    "SourceOptions",
    "SyntheticOptions",
    "open_source",
]
