"""Errors of models by key."""

from __future__ import annotations

from raydt.messages import OR_SKIP, Sentence

SENTENCES: dict[str, Sentence] = {
    "stream": (
        "with source.key, no key can have the stream {model} of its own",
        "Set another stream.model (training with stream.holdout: 0), or leave out source.key",
    ),
    "ray": ("models by key work in one process", "Set cluster.backend: in_process"),
    "damaged": "the keys of group {group} do not fit together: {reason}",
    "unknown": ("there is no model for the key {key}", "Keys are written as in the source"),
    "folder": ("the folder has a model for each key", "Name one with --key"),
    "refused": "the models of other keys may have gone on, so the run goes back to its last checkpoint: {error}",
    "more_classes": (
        "label {label} is one class more than the {most} that the learner takes, among the rows of one key",
        "Set source.positive to the labels that make one class" + OR_SKIP,
    ),
}
