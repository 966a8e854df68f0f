"""Whole lines of a text file, read in blocks."""

from __future__ import annotations

import codecs
from collections.abc import Iterator

from raydt.errors import InputError
from raydt.messages import message
from raydt.sources.files.datafile import DataFile


def whole_lines(file: DataFile, size: int, longest: int) -> Iterator[bytes]:
    """Yield whole lines of about ``size`` bytes; InputError for a line of more than ``longest`` bytes."""
    rest: list[bytes] = []  # of a line that has not ended yet, joined once: a long line takes linear time
    length, lines = 0, 0
    with file.open_stream() as source:
        block = source.read(size).removeprefix(codecs.BOM_UTF8)
        while block:
            end = block.rfind(b"\n") + 1
            if end:
                lines += block.count(b"\n")
                yield b"".join([*rest, block[:end]])
                rest, length = [], 0
            rest.append(block[end:])
            length += len(rest[-1])
            if length > longest:
                raise InputError(message("files.long_line", line=lines + 1, most=longest >> 20), file=file.name)
            block = source.read(size)
    last = b"".join(rest)
    if last:
        yield last + b"\n"
