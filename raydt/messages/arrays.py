"""What is wrong with an array that is to be cut or digested."""

from __future__ import annotations

from raydt.messages import Sentence

SENTENCES: dict[str, Sentence] = {
    "outside": (
        "rows {rows[0]} to {rows[1]} and {columns} neighbouring columns, {first} to {last}, are not a part of a matrix "
        "of shape {shape}"
    ),
    "no_digest": "part {part!r} has dtype {dtype}; only booleans, integers and floats have a digest",
}
