"""Errors of the keys of any section of a config."""

from __future__ import annotations

from raydt.messages import Sentence

SENTENCES: dict[str, Sentence] = {
    "retired": ("{name} was retired", "{instead}"),
    "number_or_auto": "must be at least 1, or auto",
}
