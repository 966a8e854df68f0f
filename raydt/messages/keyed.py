"""Errors of models by key."""

from __future__ import annotations

from raydt.messages import OR_SKIP, Sentence

SENTENCES: dict[str, Sentence] = {
    "more_classes": (
        "label {label} is one class more than the {most} that the learner takes, among the rows of one key",
        "Set source.positive to the labels that make one class" + OR_SKIP,
    ),
}
