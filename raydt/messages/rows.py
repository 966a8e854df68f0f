"""Faults of a row of data, by their codes: the problem and the remedy.

The remedy of a pair is for rows of files. :data:`IN_MEMORY` has the remedies for data in memory, where some of the
faults can occur.
"""

from raydt.messages import OR_SKIP, Sentence

_CORRECT = "Correct the file" + OR_SKIP
_REPLACE = "Replace the value or leave the column out of source.features" + OR_SKIP
_FILL = "Fill in the value or leave the column out of source.features" + OR_SKIP
_LABEL = "Give the row a label" + OR_SKIP
_OPERATION = "Known are {operations}; add others under source.op_values"
_IDENTITY = "Give the table a primary key or REPLICA IDENTITY FULL, so that deletions carry their id"
_INEXACT = "float64 cannot hold an integer beyond 2**53 exactly"
_NO_ID = "no id"
_CLASS = "label {value} is one class more than the {most:,} that this learner takes"
_LENGTH = "the row has {values} values but the header has {columns}"

SENTENCES: dict[str, Sentence] = {
    # Features
    "no_value": ("no value (null or NaN)", _FILL),
    "infinite": ("an infinite value", _REPLACE),
    "inexact": (_INEXACT, "Scale the column, or list it under source.categorical"),
    "no_category": ("no value", _FILL),
    "infinite_category": ("an infinite value is not a category", _REPLACE),
    "unsent": (
        "no value, only Debezium's placeholder for a value that was not sent",
        "Set REPLICA IDENTITY FULL for the table, or leave the column out of source.features",
    ),
    "not_number": ("{value} is not a number", _CORRECT),
    "not_json": ("the line {line} is not JSON: {reason}", _CORRECT),
    "not_object": ("{value} is not a JSON object", _CORRECT),
    "not_kind": ("{value} differs in kind from the first rows, which hold {kind}", _CORRECT),
    "lost": (
        "column {column!r} had values, and has none any more in the rows that come now, which are read as missing",
        "Look whether it was renamed where the rows come from",
    ),
    "other_spelling": (
        "{value} is not how an integer is written, as all of the first rows are",
        "List the column under source.text if 007 and 7 are two values, or under source.integers if they are one",
    ),
    # Sparse features
    "no_list": ("no list of indices", "Write an empty list for a row in which no feature is 1" + OR_SKIP),
    "null_index": ("an index is null", _CORRECT),
    "negative_index": ("index {value} is negative", "Count indices from 0" + OR_SKIP),
    "index_beyond": (
        "index {value} is beyond the {width} features, whose indices begin at 0",
        "Set source.n_features to the number of features" + OR_SKIP,
    ),
    "repeated_index": ("index {value} is repeated", "Give each index once" + OR_SKIP),
    "no_tokens": ("no list of tokens", "Write an empty list for a row without a token" + OR_SKIP),
    "null_token": ("a token is null", _CORRECT),
    "token_beyond": (
        "token {value} is one more than the {width:,} different tokens that n_features, or the files of the run, allow",
        "Set source.n_features to the number of tokens there may be" + OR_SKIP,
    ),
    "unknown_token": "the model does not know the token {value}",
    "not_pair": ("{value} is not written as index:value", _CORRECT),
    "not_binary": ("{value} has another value than 0 or 1, but sparse features are binary", _CORRECT),
    "large_index": ("{value} has an index beyond {largest}", _CORRECT),
    # Labels
    "no_label": ("no label", _LABEL),
    "word_for_nothing": ("no label: {value} among {kind} stands for a missing value", _LABEL),
    "infinite_label": ("an infinite label", _LABEL),
    "inexact_label": (_INEXACT, "Scale the column, or write it as floating-point numbers" + OR_SKIP),
    "label_range": ("{range}", "Give the label in another unit" + OR_SKIP),
    "other_label": ("label {value} is neither positive nor one of the other labels", "Known are {known}"),
    "third_class": (_CLASS, "Set source.positive to the labels that make one class{instead}" + OR_SKIP),
    "many_classes": (
        _CLASS + ": the rows read so far have {seen:,} different labels",
        "Set source.label to another column if the labels are ids, learn them as numbers ({numeric}), or set "
        "source.positive to the labels that make one class",
    ),
    # Weights
    "no_weight": ("no weight", _CORRECT),
    "weight_range": (
        "weight {value} is neither 0 nor from {least:g} to {most:,}",
        "Correct negative and missing weights, and multiply all by one number that brings them into this range"
        + OR_SKIP,
    ),
    # Ids, times, operations
    "no_id": (_NO_ID, _CORRECT),
    "no_subject": (
        "no subject: a deletion by subject would not find the row",
        "Fill in whose row it is, such as nobody" + OR_SKIP,
    ),
    "no_model_key": ("no key: it says which model a row belongs to", _CORRECT),
    "wide_model_key": ("the key does not fit into a signed 64-bit integer", _CORRECT),
    "wide_subject": ("the subject does not fit into a signed 64-bit integer", _CORRECT),
    "not_whole": (
        "{value} is not a whole number below 2^{bits}, as ids, subjects and keys in floating point have to be",
        _CORRECT,
    ),
    "wide_id": ("the id does not fit into a signed 64-bit integer", _CORRECT),
    "no_time": ("no event time", _CORRECT),
    "far_time": ("the event time is beyond {largest} in absolute value", _CORRECT),
    "no_operation": ("no operation", _OPERATION),
    "unknown_operation": ("unknown operation {value}", _OPERATION),
    "truncate": (
        "operation {value} empties the table, but a change log must name each example that it deletes",
        "Write a delete for each live id in its place, or begin the source after it",
    ),
    # Debezium's envelope
    "no_after": ("the struct is null, but an insert or update needs its row in it", _CORRECT),
    "no_before": ("the struct is null, but a delete needs the id of its example in it", _IDENTITY),
    "no_key": (_NO_ID, _IDENTITY),
    "moved_id": (
        "the update changes the id to {value}, but an update must keep the id of its example",
        "Write a delete of the old id and an insert of the new one",
    ),
    # Rows that a file does not give as a whole
    "length": (_LENGTH + ": {text}", _CORRECT),
    "open_quote": (_LENGTH + ": {text}, over several lines", "Close the quote that is open here"),
    "undecoded_length": (_LENGTH + ", and bytes that are not UTF-8", "Correct the file"),
    "not_utf8": ("{value} is not UTF-8 text", _CORRECT),
    "code_beyond": ("code {value} is beyond the column's dictionary of {size} values", _CORRECT),
}

#: What can be done about a fault of data in memory, where it can have the fault.
IN_MEMORY: dict[str, str] = {
    **dict.fromkeys(("no_value", "infinite", "no_category", "infinite_category"), "Fill or drop such rows"),
    **dict.fromkeys(("no_list", "null_index", "negative_index", "repeated_index"), "Correct the row"),
    **dict.fromkeys(("no_tokens", "null_token"), "Correct the row"),
    "inexact": "Scale the column, or pass a data frame and list it under categorical_features",
    "index_beyond": "Correct the row, or set n_features in the metadata of the schema",
    "unknown_token": "Replay the rows: a run has room for new tokens with source.n_features",
}
