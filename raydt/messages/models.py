"""Errors of folders of models, states and checkpoints, and of their arrays.

Most sentences follow the name of a folder or a file: ``runs/a/model: has no ...``.
"""

from raydt.messages import Sentence

_AGAIN = "Restore the folder from a copy, or write it again"

SENTENCES: dict[str, Sentence] = {
    # Storage
    "uri": "is not a usable URI: {reason}",
    "not_removed": "cannot be removed: {reason}",
    "other_writer": (
        "{place}: {writer} is writing here",
        "Wait until that process has ended, or end it (a run saves its state on SIGTERM)",
    ),
    # What a folder holds
    "no_model": (
        "there is no model here",
        "Give a folder that save wrote, the folder of a finished run, its checkpoints/ or one of them",
    ),
    "no_manifest": (
        "holds no readable {manifest} (the file {reason}): it is no model or state, or writing it was interrupted"
    ),
    "other_kind": ("is a {found}, not a {wanted}", "A model only predicts; a state also holds the training rows"),
    "incomplete": (
        "this checkpoint is being written, or was removed",
        "The newest complete one is {newest}; {above} always stands for the newest",
    ),
    "later_format": (
        "is of format {format!r}, written by raydt {writer}; this raydt ({version}) reads formats up to {newest}",
        "Use the raydt that wrote it, or a later one",
    ),
    "former_format": (
        "is a sound {kind} of format {format}, written by raydt {writer}; this raydt ({version}) reads such a {kind} "
        "of {learner} from format {oldest} on",
        "Use the raydt that wrote it, or run the replay again. raydt report and raydt purge of its run work",
    ),
    "no_learner": (
        "needs the learner {learner!r}, which this version of raydt does not have",
        "Use the raydt that wrote it",
    ),
    # Damaged files
    "missing": ("is missing", _AGAIN),
    "other_size": ("is damaged: it has {found} bytes, the manifest says {wanted}", _AGAIN),
    "other_hash": ("is damaged: its SHA-256 differs from the manifest's", _AGAIN),
    "broken_seal": ("is damaged: it does not end with its own SHA-256", _AGAIN),
    "not_json": ("is not JSON: {reason}", _AGAIN),
    "not_object": ("is not a JSON object", _AGAIN),
    "not_manifest": ("is not a manifest: {reason}", _AGAIN),
    "other_arrays": ("does not hold the arrays of the manifest: {reason}", _AGAIN),
    "other_array": ("array {name!r} is {found}, the manifest says {wanted}", _AGAIN),
    "segments": ("the row segments do not fit together: {reason}", _AGAIN),
    "unfit": ("does not hold what a {kind} needs: {reason}", _AGAIN),
    # Reasons
    "compressed": "an array is compressed",
    "no_meta": "meta of a {kind} lacks {keys}",
    "no_constant": "{name} is not a JSON value",
    "no_entry": "{name!r} is missing",
    "next_id": "example ids must be smaller than next_id ({next})",
    "unequal_subjects": "ids, births and codes of subjects have different lengths",
    "sparse_last": "sparse features must be the last entry, and the learner must accept them",
    "no_preorder": "the arrays do not describe one tree in preorder",
    "uneven": "{columns} must have an entry for each of {examples} examples",
    "no_segment": "{component} belongs to no segment",
    # What cannot be saved, or not any more
    "dtype": "array {name!r} has dtype {dtype}; only booleans, integers and floats can be saved",
    "segment_removed": "removed since the snapshot",
    "segment_again": "{folder}: {segment} is missing; its examples are written again",
    "interrupted": ("a change of this session was interrupted", "Restore a saved state into a new session"),
}
