"""Mutations of bytes: a pure function of a seed and a number, so that each can be made again."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Sequence

INTERESTING = (0, 1, -1, 2, 7, 127, 128, 255, 256, 32767, 65535, 2**31 - 1, -(2**31), 2**32 - 1, 2**63 - 1, -(2**63))
TOKENS = [
    *'",;\t\n\r:[]{}&*!#-|>%@`?~',
    *("\0", "\ufeff", "\xff", "''", '""', "\n\n", ",,", ": ", "- ", "---\n", "...\n", "<<: *a", "&a ", "*a", "!!int "),
    *("nan", "inf", "-inf", "1e999", "1e-999", "-0.0", "0x7f", "0o17", "9007199254740993", "9" * 20, "9" * 400),
    *("null", "true", "no", "x" * 5000, "[" * 300, "{a: " * 300, "é", "\u2028", "😀"),
]


def mutated(data: bytes, others: Sequence[bytes], draw: random.Random, text: bool) -> bytes:
    """``data`` after one to four mutations.

    Parameters
    ----------
    data : bytes
    others : sequence of bytes
        Valid contents to splice in.
    draw : random.Random
    text : bool
        Whether to put in tokens of text formats too.
    """
    out = bytearray(data)
    changes: list[Callable[[bytearray, random.Random], None]] = [
        *(_flip, _set, _integer) * 2,
        _cut,
        _drop,
        _repeat,
        _zero,
        _swap,
    ]
    for _ in range(draw.choice((1, 1, 1, 2, 4))):
        if text and draw.random() < 0.5:
            at = draw.randint(0, len(out))
            out[at:at] = draw.choice(TOKENS).encode()
        elif draw.random() < 0.1:
            other = draw.choice(others)
            at, begin, end = draw.randint(0, len(out)), *_span(other, draw)
            out[at : at + draw.choice((0, end - begin))] = other[begin:end]
        else:
            draw.choice(changes)(out, draw)
    return bytes(out)


def _span(data: bytes | bytearray, draw: random.Random) -> tuple[int, int]:
    begin = draw.randint(0, len(data))
    return begin, min(len(data), begin + draw.choice((1, 4, 8, 64, 500)))


def _flip(out: bytearray, draw: random.Random) -> None:
    for _ in range(draw.choice((1, 1, 2, 8))):
        if out:
            out[draw.randrange(len(out))] ^= 1 << draw.randrange(8)


def _set(out: bytearray, draw: random.Random) -> None:
    if out:
        out[draw.randrange(len(out))] = draw.choice((0, 1, 127, 128, 254, 255))


def _integer(out: bytearray, draw: random.Random) -> None:
    size, form = draw.choice(((2, "H"), (4, "I"), (8, "Q")))
    at = draw.randint(0, max(0, len(out) - size))
    out[at : at + size] = struct.pack(f"<{form}", draw.choice(INTERESTING) % (1 << 8 * size))


def _cut(out: bytearray, draw: random.Random) -> None:
    del out[draw.randint(0, len(out)) :]


def _drop(out: bytearray, draw: random.Random) -> None:
    begin, end = _span(out, draw)
    del out[begin:end]


def _repeat(out: bytearray, draw: random.Random) -> None:
    begin, end = _span(out, draw)
    out[end:end] = out[begin:end] * draw.choice((1, 2, 50))


def _zero(out: bytearray, draw: random.Random) -> None:
    begin, end = _span(out, draw)
    out[begin:end] = bytes(end - begin)


def _swap(out: bytearray, draw: random.Random) -> None:
    (a, b), (c, d) = sorted((_span(out, draw), _span(out, draw)))
    if b <= c:
        out[a:d] = out[c:d] + out[b:c] + out[a:b]
