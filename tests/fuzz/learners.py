"""Learners whose models and states are mutated."""

from __future__ import annotations

from typing import Any

#: Learners whose models are mutated, by the folder of these; the first is FuDyADT.
LEARNERS: dict[str, dict[str, Any]] = {
    ".": {},
    "confidence tree": {"kind": "confidence_tree", "c": 0.001, "grace_period": 2, "revisit": True},
}
