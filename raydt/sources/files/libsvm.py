"""LIBSVM files (also called SVMlight): a line is a label and ``index:value`` for what is not 0; # begins a comment.

Two columns: ``y``, integers if all labels of the first block are, else floating-point numbers, and ``indices``, a list
of the indices whose value is 1, as they stand in the file (most files count from 1; then no row has index 0). Any other
value but 0 makes its row bad. Empty lines are no rows. There is nothing to seek by: a seek parses from the beginning.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Generator, Iterator
from decimal import Decimal, InvalidOperation

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from raydt.arrays.blocks import LARGEST_WIDTH
from raydt.arrays.elementary import Bools, Ints
from raydt.encoding.columns import in_words, parse
from raydt.errors import InputError
from raydt.messages import Message, message, quoted
from raydt.sources.files.datafile import DataFile

# Whole lines of a text file, read in blocks.


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


LABEL, INDICES = "y", "indices"

_BLOCK = 1 << 20
#: A line may be as long as this.
_LONGEST = 1 << 25

_NUMBER = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?", re.ASCII)
#: Indices of more digits, leading zeros aside, are too large.
_DIGITS = len(str(LARGEST_WIDTH))


class LibsvmDataFile(DataFile):
    """One LIBSVM file, also compressed (by suffix: .gz, .bz2, .zst, .lz4)."""

    kind = "libsvm"
    suffixes = tuple(form + end for form in (".libsvm", ".svm", ".svmlight") for end in ("", ".gz", ".bz2", ".zst"))

    def _open(self) -> None:
        self.schema = pa.schema([(LABEL, pa.int64()), (INDICES, pa.list_(pa.int32()))])
        block = next(self._blocks(), b"")
        labels, _ = _split(block, labels_only=True)
        if not len(labels):
            raise InputError(message("files.no_rows"), file=self.name)
        if parse(labels, pa.int64())[1] is not None:
            _, wrong = parse(labels, pa.float64())
            if wrong is not None and wrong[0]:
                raise InputError(message("files.no_label", text=quoted(labels[0].as_py(), 40)), file=self.name)
            self.schema = self.schema.set(0, pa.field(LABEL, pa.float64()))

    def _batches(self, columns: list[str], start: int, size: int) -> Generator[pa.RecordBatch, None, None]:
        row = 0
        for block in self._blocks():
            texts, pairs = _split(block, labels_only=INDICES not in columns)
            skip = max(0, start - row)
            if skip < len(texts):
                kind = self.schema.field(LABEL).type
                labels, wrong = parse(texts, kind)
                for place in np.flatnonzero(wrong[skip:]).tolist() if wrong is not None else ():
                    text = quoted(texts[skip + place].as_py(), 40)
                    said = message("rows.not_kind", value=text, kind=in_words(kind))
                    self.note_flaw(row + skip + place, said, LABEL)
                found = {LABEL: labels}
                if pairs is not None:
                    found[INDICES], problems = _read_rows(pairs)
                    for place, said in problems.items():
                        if place >= skip:
                            self.note_flaw(row + place, said, INDICES)
                yield pa.RecordBatch.from_arrays(list(found.values()), list(found)).slice(skip)
            row += len(texts)

    def _blocks(self) -> Iterator[bytes]:
        """Whole lines, about as many as fit into a block; the last one ends with a newline too."""
        return whole_lines(self, _BLOCK, _LONGEST)


def _split(block: bytes, *, labels_only: bool) -> tuple[pa.Array, pa.Array | None]:
    """Texts of the labels, and the words of each line, label first; None if only labels are wanted, which is faster."""
    text = block.decode(errors="replace")
    if "#" in text:
        text = re.sub(r"#[^\n]*", "", text)
    lines = pc.ascii_trim_whitespace(pc.split_pattern(pa.array([text]), "\n").flatten())
    lines = lines.filter(pc.not_equal(lines, ""))
    words = pc.ascii_split_whitespace(lines, max_splits=1 if labels_only else None)
    labels = pc.replace_substring_regex(pc.list_element(words, 0), r"^\+", "")
    return labels, None if labels_only else words


def _read_rows(words: pa.Array) -> tuple[pa.Array, dict[int, Message]]:
    """Lists of indices of the words of lines, and what is wrong with some of the rows."""
    n, lengths = len(words), pc.list_value_length(words).to_numpy()
    flat, row = words.flatten(), np.repeat(np.arange(n), lengths)
    is_label = np.ones(len(flat), dtype=np.bool_)
    is_label[1:] = row[1:] != row[:-1]
    pairs, row = flat.filter(pa.array(~is_label)), row[~is_label]
    index, is_one, faults = _read(pairs)
    offsets = np.zeros(n + 1, dtype=np.int32)
    np.cumsum(np.bincount(row[is_one], minlength=n), out=offsets[1:])
    indices = pa.ListArray.from_arrays(pa.array(offsets), pa.array(index[is_one].astype(np.int32)))
    problems: dict[int, Message] = {}
    for place, code in faults.items():
        said = message(f"rows.{code}", value=quoted(pairs[place].as_py(), 40), largest=LARGEST_WIDTH)
        problems.setdefault(int(row[place]), said)
    if problems:
        indices = pc.if_else(pa.array(~np.isin(np.arange(n), list(problems))), indices, pa.scalar(None, indices.type))
    return indices, problems


def _read(tokens: pa.Array) -> tuple[Ints, Bools, dict[int, str]]:
    """Index of each ``index:value``, whether its value is 1, and codes of what is wrong by place, in order."""
    before = pc.utf8_slice_codeunits(tokens, 0, -2)
    short = pc.and_(pc.ascii_is_decimal(before), pc.less_equal(pc.binary_length(before), _DIGITS - 1))
    usual = pc.and_(short, pc.ends_with(tokens, ":1"))
    is_one = usual.to_numpy(zero_copy_only=False).copy()
    index = np.zeros(len(tokens), dtype=np.int64)
    index[is_one] = before.filter(usual).cast(pa.int64()).to_numpy()
    others = np.flatnonzero(~is_one)
    parts = pc.extract_regex(tokens.take(pa.array(others)), "^0*(?P<index>[0-9]+):(?P<value>.+)$")
    values = pc.struct_field(parts, "value").dictionary_encode()
    known = np.array([*map(_binary, values.dictionary.to_pylist()), -1])
    value = known[pc.fill_null(values.indices, len(known) - 1).to_numpy()]
    digits = pc.struct_field(parts, "index")
    digits = pc.if_else(pc.less_equal(pc.binary_length(digits), _DIGITS), digits, str(LARGEST_WIDTH))
    index[others] = pc.fill_null(digits, "0").cast(pa.int64()).to_numpy()
    is_one[others] = value == 1
    large = index[others] >= LARGEST_WIDTH
    is_pair = parts.is_valid().to_numpy(zero_copy_only=False)
    faults = {}
    for place in np.flatnonzero(~is_pair | (value < 0) | large).tolist():
        code = "not_pair" if not is_pair[place] else "not_binary" if value[place] < 0 else "large_index"
        faults[int(others[place])] = code
    is_one[list(faults)] = False
    return index, is_one, faults


def _binary(value: str) -> int:
    """1 or 0, however it is written, as in +1.0, 1e0 or 10E-1; -1 for everything else."""
    try:
        number = Decimal(value) if _NUMBER.fullmatch(value) else -1
    except InvalidOperation:  # an exponent of very many digits
        return -1
    return int(number) if number in (0, 1) else -1
