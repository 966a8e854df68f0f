"""Every sentence about a bad row: the problem, and what its user can do who has a file, or data in memory.

A sentence names the file (if there is one), the row and the column; ``{value}`` is the value at fault, the other names
are parameters of the fault or of the reader (``known``).
"""

from __future__ import annotations

from collections.abc import Mapping

from raydt.encoding.faults import Fault
from raydt.errors import InputError
from raydt.examples.reading import Reading
from raydt.messages import OR_SKIP, Message
from raydt.redaction import quoted

_CORRECT = "Correct the file" + OR_SKIP
_ROW = "Correct the row"
_FILL = "Fill it in or leave the column out of source.features{takers}" + OR_SKIP
_FINITE = "Fill it in or leave the column out of source.features" + OR_SKIP
_DROP = "Fill or drop such rows"
_SCALE = "Scale the column, or list it under source.categorical"
_LABEL = "Give the row a label" + OR_SKIP
_IDENTITY = "Give the table a primary key or REPLICA IDENTITY FULL, so that deletions carry their id"

#: Problem, remedy for a file, and remedy for data in memory where it can have the fault, by code.
PHRASES: dict[str, tuple[str, str, str]] = {
    # Features
    "no_value": ("no value (null or NaN)", _FILL, _DROP),
    "infinite": ("an infinite value", _FINITE, _DROP),
    "inexact": (
        "an integer beyond 2**53 has no exact float64",
        _SCALE,
        "Scale the column, or pass a data frame and list it under categorical_features",
    ),
    "no_category": ("no value", _FILL, _DROP),
    "infinite_category": ("an infinite value is not a category", _FINITE, _DROP),
    "unsent": (
        "no value, only Debezium's placeholder for a value that was not sent",
        "Set REPLICA IDENTITY FULL for the table, or leave the column out of source.features",
        "",
    ),
    "not_number": ("{value} is not a number", _CORRECT, ""),
    "not_kind": ("{value} is not of the kind of the first rows ({kind})", _CORRECT, ""),
    # Sparse features
    "no_list": ("no list of indices", "Write an empty list for a row in which no feature is 1" + OR_SKIP, _ROW),
    "null_index": ("an index is null", _CORRECT, _ROW),
    "negative_index": ("index {value} is negative", "Count indices from 0" + OR_SKIP, _ROW),
    "index_beyond": (
        "index {value} is beyond the {width} features, which are counted from 0",
        "Say in source.n_features how many there are" + OR_SKIP,
        "Correct the row, or say in the metadata of the schema how many n_features there are",
    ),
    "repeated_index": ("index {value} is repeated", "Give it once" + OR_SKIP, _ROW),
    "no_tokens": ("no list of tokens", "Write an empty list for a row without a token" + OR_SKIP, _ROW),
    "null_token": ("a token is null", _CORRECT, _ROW),
    "token_beyond": (
        "with the token {value} there are more than the {width:,} different ones that n_features, or the files of a "
        "run, set",
        "Say in source.n_features how many there may be" + OR_SKIP,
        "",
    ),
    "unknown_token": (
        "the model does not know the token {value}",
        "",
        "Replay them: a run has room for new tokens with source.n_features",
    ),
    # Labels
    "no_label": ("no label", _LABEL, ""),
    "word_for_nothing": ("no label ({value} among {kind})", _LABEL, ""),
    "infinite_label": ("an infinite label", _LABEL, ""),
    "inexact_label": (
        "an integer beyond 2**53 has no exact float64",
        "Scale the column, or write it as floating-point numbers" + OR_SKIP,
        "",
    ),
    "label_range": ("{range}", "Give the label in another unit" + OR_SKIP, ""),
    "other_label": ("label {value} is neither positive nor one of the others", "Known are {known}", ""),
    "third_class": (
        "label {value} is of a class beyond the {most:,} that this learner takes",
        "Say with source.positive which labels make one class{instead}" + OR_SKIP,
        "",
    ),
    "many_classes": (
        "label {value} is of a class beyond the {most:,} that this learner takes: the rows read so far have {seen:,} "
        "different labels",
        "Name another column in source.label if these are ids, learn them as numbers ({numeric}), or say with "
        "source.positive which labels make one class",
        "",
    ),
    # Ids, times, operations
    "no_id": ("no id", _CORRECT, ""),
    "wide_id": ("the id does not fit into a signed 64-bit integer", _CORRECT, ""),
    "no_time": ("no event time", _CORRECT, ""),
    "far_time": ("an event time beyond {largest} in size", _CORRECT, ""),
    "no_operation": ("no operation", "Known are {operations}; add others under source.op_values", ""),
    "unknown_operation": (
        "unknown operation {value}",
        "Known are {operations}; add others under source.op_values",
        "",
    ),
    "truncate": (
        "{value} empties the table, and a change log names every example it deletes",
        "Write a delete for each live id in its place, or begin the source after it",
        "",
    ),
    # Debezium's envelope
    "no_after": ("it is null, but an insert or update has its row there", _CORRECT, ""),
    "no_before": ("it is null, but a delete names its example there", _IDENTITY, ""),
    "no_key": ("no id", _IDENTITY, ""),
    "moved_id": (
        "the update changes the id to {value}, and an update is of one example",
        "Write it as a delete of the old id and an insert of the new one",
        "",
    ),
}


def error_of(
    fault: Fault,
    *,
    file: str | None = None,
    row: int | None = None,
    stored: Mapping[str, str] | None = None,
    reading: Reading | None = None,
    sparse: bool = False,
) -> InputError:
    """Return the error of a fault.

    Parameters
    ----------
    fault : Fault
    file, row : str and int, optional
        Where the row is; without a file, the data is in memory.
    stored : mapping of str to str, optional
        Names of columns in the file, where they differ.
    reading : Reading, optional
        What the learner takes, for remedies that name another learner.
    sparse : bool
        Whether there are sparse features, for the same.
    """
    problem, of_file, of_frame = PHRASES[fault.code]
    shown = {"value": quoted(fault.value, 40), **fault.more}
    remedy = of_frame if file is None else of_file
    if "{takers}" in remedy:
        shown["takers"] = _takers(reading, sparse)
    if "{numeric}" in remedy:
        from raydt.learners import for_numbers  # needed for messages only: compiled kernels are imported with it

        shown["numeric"] = for_numbers()
    column = (stored or {}).get(fault.column, fault.column)
    problem, remedy = problem.format(**shown), remedy.format(**shown)
    return InputError(Message(problem, remedy, f"rows.{fault.code}", shown), file=file, row=row, column=column)


def _takers(reading: Reading | None, sparse: bool) -> str:
    """Return the learners that take missing values, as a part of a remedy; empty if this one does."""
    if reading is None or reading.missing:
        return ""
    from raydt.learners import for_missing  # needed for messages only: compiled kernels are imported with it

    others = for_missing(reading, sparse=sparse)
    return f", or use {others}" if others else ""
