"""Errors of the options of a source, and differences from the data of an earlier run."""

from raydt.messages import Sentence

SENTENCES: dict[str, Sentence] = {
    # Options
    "no_path": ("source.path is empty", "Name a file, a folder or a pattern"),
    "twice": ("source.{option} names something twice", "Name each once"),
    "both": ("source.exclude has no effect beside source.features", "Remove one of them"),
    "delimiter": ("source.delimiter cannot be {delimiter!r}", "Write for example ';' or \"\\t\""),
    "no_structs": ("source.envelope needs structs, which {kind} files cannot hold", "Use Parquet"),
    "no_ids": "a change log ({option}) needs source.id, the column of stable ids",
    "op_values": "source.op_values applies only with source.op",
    "no_such_kind": (
        "source.{option} names {column!r}, which is not the column of source.id, subject or key, or is in both lists"
    ),
    "two_meanings": "op_values gives {value!r} two meanings",
    "permuted_changes": "source.permutation cannot be used with source.op: the order of a change log matters",
    "few_rows": "source.drift: the {rows:,} rows of source.n are too few for {trees:,} trees",
    "many_features": "source.informative + source.irrelevant is more than {largest} features",
    "no_weights": (
        "source.weight gives weights, which this learner does not take",
        "Remove source.weight, or use {takers}, which takes weights",
    ),
    # Labels
    "positive": "source.positive needs source.label",
    "no_labels": "source.positive: {positive} needs at least one row with a label",
    "unknown_label": ("source.positive: {wanted!r} is not a label of the source", "The labels are {labels}"),
    "ambiguous_label": ("source.positive: {wanted!r} could mean {found}", "The labels are {labels}"),
    "positive_numbers": (
        "source.positive makes two classes of the labels, but the learner needs numeric labels (squared_error)",
        "Remove source.positive, or choose another criterion or objective of the learner",
    ),
    "generated_classes": (
        "source.kind: synthetic draws classes, but the learner needs numeric labels (learner.objective: squared_error)",
        "Use files, or choose another objective",
    ),
    # Features and event times
    "generated_indices": (
        "source.generator: sparse draws indices of sparse features, which this learner does not take",
        "Choose another generator",
    ),
    "no_times": ("source.ts is not set, but the stream needs event times", "Set it to the column that holds them"),
    "generated_times": ("the stream needs event times, but generated rows have none", "Use files, with source.ts"),
    "stored_times": "the rows were stored without times",
    # Why the features are read by the driver and sent, instead of by each shard
    "other_here": "{name} does not find the files that the driver reads",
    "shard_unread": "shard {shard} cannot read on: {problem}",
    "shard_unlike": "shard {shard} finds {rows} rows where the driver finds {length}",
    # Differences from the data of an earlier run
    "differs": "{what}: {then} then, {now} now",
    "gone": "{what} is gone",
    "new": "{what} is new",
    "other_order": "the {what} come in another order: {then} then, {now} now",
    "unknown_description": "the description of the data cannot be understood: another version of raydt wrote it",
    "other_files": "{then} files then, {now} now",
    "other_length": "{file}: {lengths}",
    "other_contents": "{file}: the same length, other contents",
}
