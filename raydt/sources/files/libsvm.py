"""LIBSVM files (also called SVMlight): a line is a label and ``index:value`` for what is not 0; # begins a comment.

Two columns: ``y``, integers if all labels of the first block are, else floating-point numbers, and ``indices``, a list
of the indices whose value is 1, as they stand in the file (most files count from 1; then no row has index 0). Any other
value but 0 makes its row bad. Empty lines are no rows. There is nothing to seek by: a seek parses from the beginning.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from raydt.arrays.kernel import inner_kernel, kernel
from raydt.arrays.sparse import LARGEST_WIDTH
from raydt.errors import InputError
from raydt.sources.columns.encoding import parse
from raydt.sources.files.datafile import DataFile

LABEL, INDICES = "y", "indices"

_BLOCK = 1 << 20
#: A line may be as long as this.
_LONGEST = 1 << 28

#: What is wrong with a line.
_SYNTAX, _VALUE, _LARGE = 1, 2, 3
_PROBLEMS = {
    _SYNTAX: "is not written as index:value",
    _VALUE: "has another value than 0 or 1, and sparse features are binary",
    _LARGE: f"has an index beyond {LARGEST_WIDTH}",
}
_SPACE, _TAB, _RETURN, _NEWLINE, _HASH, _COLON, _ZERO, _ONE, _NINE, _POINT = 32, 9, 13, 10, 35, 58, 48, 49, 57, 46
_PLUS, _MINUS, _E, _SMALL_E = 43, 45, 69, 101


@inner_kernel
def _is_end(sign: int) -> bool:
    return bool(sign in (_SPACE, _TAB, _RETURN, _NEWLINE, _HASH))


@inner_kernel
def _binary(text: Any, start: int, stop: int) -> int:
    """The number written in ``text[start:stop]`` if it is exactly 0 or 1, as in 1, +1.0, 1e0 or 10E-1; else -1."""
    at = start
    negative = at < stop and text[at] == _MINUS
    if negative or (at < stop and text[at] == _PLUS):
        at += 1
    begin, point, one, other = at, -1, -1, False
    while at < stop and (_ZERO <= text[at] <= _NINE or (text[at] == _POINT and point < 0)):
        if text[at] == _POINT:
            point = at
        elif text[at] == _ONE and one < 0:
            one = at
        elif text[at] != _ZERO:
            other = True
        at += 1
    if at - begin - (point >= 0) < 1 or other:
        return -1
    end, power, sign = at, 0, 1
    if at < stop and (text[at] == _E or text[at] == _SMALL_E):
        at += 1
        if at < stop and (text[at] == _MINUS or text[at] == _PLUS):
            sign = -1 if text[at] == _MINUS else 1
            at += 1
        if at == stop:
            return -1
        while at < stop and _ZERO <= text[at] <= _NINE:
            power = min(10 * power + int(text[at]) - _ZERO, 2 * _LONGEST)
            at += 1
    if at < stop:
        return -1
    if one < 0:
        return 0
    # The only digit that is not 0 is a 1, so many places from the units.
    units = (point if point >= 0 else end) - 1
    places = units - one if one <= units else units + 1 - one
    return 1 if places + sign * power == 0 and not negative else -1


@kernel
def _scan(text: Any, lines: Any, ones: Any) -> tuple[int, int]:
    """Read complete lines.

    Fills a row of ``lines`` for each: where its label begins and ends, the number of its ones, and if something is
    wrong what and the token where; and all indices, into ``ones``. Answers how many lines and ones there are.
    """
    n, total, at = 0, 0, 0
    while at < len(text):
        while _is_end(text[at]) and text[at] != _NEWLINE and text[at] != _HASH:
            at += 1
        begin = at
        while not _is_end(text[at]):
            at += 1
        first, wrong, wrong_at, wrong_end, label_end = total, 0, 0, 0, at
        while text[at] != _NEWLINE and text[at] != _HASH:
            if _is_end(text[at]):
                at += 1
                continue
            token, index, digits = at, 0, 0
            while _ZERO <= text[at] <= _NINE:
                index = min(10 * index + int(text[at]) - _ZERO, LARGEST_WIDTH)
                digits += 1
                at += 1
            colon = at
            while not _is_end(text[at]):
                at += 1
            value = _binary(text, colon + 1, at) if colon < at else -1
            fault = 0
            if digits == 0 or text[colon] != _COLON or colon + 1 == at:
                fault = _SYNTAX
            elif value < 0:
                fault = _VALUE
            elif index >= LARGEST_WIDTH:
                fault = _LARGE
            if fault and not wrong:
                wrong, wrong_at, wrong_end = fault, token, at
            if value == 1 and not fault:
                ones[total] = index
                total += 1
        while text[at] != _NEWLINE:
            at += 1
        at += 1
        if label_end > begin:
            lines[n, 0], lines[n, 1], lines[n, 2] = begin, label_end, total - first
            lines[n, 3], lines[n, 4], lines[n, 5] = wrong, wrong_at, wrong_end
            n += 1
    return n, total


class LibsvmDataFile(DataFile):
    """One LIBSVM file, also compressed (by suffix: .gz, .bz2, .zst, .lz4)."""

    kind = "libsvm"
    suffixes = tuple(form + end for form in (".libsvm", ".svm", ".svmlight") for end in ("", ".gz", ".bz2", ".zst"))

    def _open(self) -> None:
        self.schema = pa.schema([(LABEL, pa.int64()), (INDICES, pa.list_(pa.int32()))])
        block = next(self._blocks(), b"")
        labels, _, _ = _parsed(block)
        if not len(labels):
            raise InputError("it has no row", file=self.name, remedy="Check the path")
        if parse(labels, pa.int64())[1] is not None:
            _, wrong = parse(labels, pa.float64())
            if wrong is not None and wrong[0]:
                problem = f"it begins with {labels[0].as_py()[:40]!r}, where a label is expected, a number"
                raise InputError(problem, file=self.name, remedy="Check its kind: source.kind, --kind, or its name")
            self.schema = self.schema.set(0, pa.field(LABEL, pa.float64()))

    def _batches(self, columns: list[str], start: int, size: int) -> Iterator[pa.RecordBatch]:
        row = 0
        for block in self._blocks():
            texts, indices, problems = _parsed(block)
            skip = max(0, start - row)
            if skip < len(texts):
                labels, wrong = parse(texts, self.schema.field(LABEL).type)
                for place in np.flatnonzero(wrong[skip:]).tolist() if wrong is not None else ():
                    text = texts[skip + place].as_py()[:40]
                    self.note_flaw(row + skip + place, f"the label {text!r} is not a number as the first are", LABEL)
                for place, problem in problems.items():
                    if place >= skip:
                        self.note_flaw(row + place, problem, INDICES)
                yield pa.RecordBatch.from_arrays([labels, indices], schema=self.schema).slice(skip)
            row += len(texts)

    def _blocks(self) -> Iterator[bytes]:
        """Whole lines, about as many as fit into a block; the last one ends with a newline too."""
        rest: list[bytes] = []  # of a line that has not ended yet, joined once: a long line takes linear time
        size = 0
        with self.place.filesystem.open_input_stream(self.place.path) as source:
            block = source.read(_BLOCK).removeprefix(codecs.BOM_UTF8)
            while block:
                end = block.rfind(b"\n") + 1
                if end:
                    yield b"".join([*rest, block[:end]])
                    rest, size = [], 0
                rest.append(block[end:])
                size += len(rest[-1])
                if size > _LONGEST:
                    remedy = "Check that it is of this kind: source.kind, --kind, or its name"
                    raise InputError(f"a line is longer than {_LONGEST >> 20} MiB", file=self.name, remedy=remedy)
                block = source.read(_BLOCK)
        last = b"".join(rest)
        if last:
            yield last + b"\n"


def _parsed(block: bytes) -> tuple[pa.Array, pa.Array, dict[int, str]]:
    """Texts of the labels, lists of indices, and what is wrong with some of the rows."""
    text = np.frombuffer(block, dtype=np.uint8).copy()  # writable, or the kernel is compiled once more
    lines = np.empty((block.count(b"\n"), 6), dtype=np.int64)
    ones = np.empty(block.count(b":"), dtype=np.int32)
    n, total = _scan(text, lines, ones)
    lines = lines[:n]
    labels = [block[begin:end].decode(errors="replace").removeprefix("+") for begin, end in lines[:, :2].tolist()]
    offsets = np.zeros(n + 1, dtype=np.int32)
    np.cumsum(lines[:, 2], out=offsets[1:])
    problems = {row: _problem(block, lines[row]) for row in np.flatnonzero(lines[:, 3]).tolist()}
    indices = pa.ListArray.from_arrays(pa.array(offsets), pa.array(ones[:total]))
    if problems:
        indices = pc.if_else(pa.array(~np.isin(np.arange(n), list(problems))), indices, pa.scalar(None, indices.type))
    return pa.array(labels, pa.string()), indices, problems


def _problem(block: bytes, line: npt.NDArray[np.int64]) -> str:
    token = block[line[4] : line[5]].decode(errors="replace")
    return f"{token[:40]!r} {_PROBLEMS[int(line[3])]}"
