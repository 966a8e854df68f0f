"""Errors of models by key."""

from raydt.messages import OR_SKIP, Sentence

SENTENCES: dict[str, Sentence] = {
    "stream": (
        "with source.key, no key can have the stream {model} of its own",
        "Set another stream.model (training with stream.holdout: 0), or leave out source.key",
    ),
    "by_processes": "{actors} on Ray, each with the models of its own keys",
    "damaged": "the keys of group {group} do not fit together: {reason}",
    "uneven": "{name} does not fit the keys",
    "stranger": "the key {key} belongs to another group",
    "no_group": "there is no group of keys {component}",
    "unknown": ("there is no model for the key {key}", "Keys are written as in the source"),
    "folder": (
        "the folder has a model for each key, and one model is wanted",
        "Name a key with --key, where the command takes one",
    ),
    "several_keys": (
        "the id {id} lives under several keys: {keys} (ids of the list that do: {count})",
        "Add a column {column!r} with the key of each row that is meant",
    ),
    # The report
    "none_behind": "No key is behind a trivial baseline",
    "behind": "{behind} of {keys:,} are behind the better trivial baseline of their own rows",
    "bound": "The slowest key takes {share} of the time of all keys: more processes are at most {times} times as fast "
    "as one",
    "page": "a page about one key needs a place of its own: give --out FILE",
    # Audits
    "no_rows": "the source has no row of the key {key}",
    "lost": "the rows of the key {key} have no model",
    "failure": "key {key}: {failure}",
    "none": "there is no key",
    "verdicts": "the models of all {keys:,} keys are within the guarantee",
    "verdicts_failed": "{failed:,} of {keys:,} keys fail",
    "one": ("the folder has one model, and no keys", "Leave out --key"),
    "live_elsewhere": ("insertion of the id {id}, whose row has another key: {problem}", "{remedy}"),
    "no_owner": ("deletion of the id {id}: {problem}", "{remedy}"),
    "no_ids": (
        "with source.key, a deletion log needs ids of its own: rows without ids are numbered within their key",
        "Set source.id",
    ),
    "by_subject": (
        "with source.key, a deletion log that names subjects cannot be replayed",
        "Delete them afterwards: raydt update RUN --delete FILE",
    ),
    "refused": "the models of other keys may have gone on, so the run goes back to its last checkpoint: {error}",
    "more_classes": (
        "label {label} is one class more than the {most} that the learner takes, among the rows of one key",
        "Set source.positive to the labels that make one class" + OR_SKIP,
    ),
}
