"""Errors of the columns of a source: their names, their types, and differences between files."""

from raydt.messages import Sentence

_UNKNOWN = "{option} names a column that does not exist"
_COLUMNS = "The columns are {columns}"
_UNUSABLE = "the column holds {kind}, which raydt cannot use"
_CONVERT = (
    "Convert it (allowed are integers, floating-point numbers, booleans, strings and dictionaries of these), or leave "
    "it out of {features}"
)
_NOT_TIMES = "the column holds {kind}, but event times are timestamps, dates or integers"
_OTHER_TIMES = "Convert it, or set another source.ts"
_NO_STRUCT = "source.envelope: debezium needs this column"
_LACKING = "the column is missing here, but {other} has it"
_SAME_COLUMNS = "Give the files of a source the same columns"
_COMMON = ", or list the common ones under source.features"
_DRIFT = "the column holds {kind} here, but {other_kind} in {other}"
_SAME_KIND = "Convert the column in one of the files, so that its values are of one kind"
_TEXT = "holds text, so each value is a category, but the values look like "

SENTENCES: dict[str, Sentence] = {
    # Names
    "repeated": ("two columns have this name", "Rename one of them"),
    "unknown": (_UNKNOWN, _COLUMNS),
    "misspelt": (_UNKNOWN, "Did you mean {near}? " + _COLUMNS),
    "in_envelope": (_UNKNOWN, "If it is a field of before and after, set source.envelope: debezium. " + _COLUMNS),
    "of_folders": (
        _UNKNOWN,
        "It is in the names of folders, which raydt does not read: write it into the files. " + _COLUMNS,
    ),
    "no_names": (_UNKNOWN, "Is the row of column names missing? " + _COLUMNS),
    "two_parts": ("{first} and {second} name the same column", "Name another column in one of them"),
    "nameless": ("column {place}, counted from 0, has no name", "Name it, or list the others under source.features"),
    "no_features": ("no column is left for features", "List the features under source.features"),
    "categorical_lists": ("source.categorical names this column, but it holds lists", "Remove it there"),
    "not_categorical": ("source.categorical names this column, but it is not a feature", "Remove it there"),
    # What they hold; {features} is the option or the argument that has the features
    "unusable": (_UNUSABLE, _CONVERT),
    "unusable_times": (
        _UNUSABLE,
        _CONVERT + ". If it is the time of the rows, set source.ts: {column}",
    ),
    "not_ids": ("the column holds {kind}, but ids are integers or text", "Convert it, or set another source.id"),
    "not_subjects": (
        "the column holds {kind}, but subjects are integers or text",
        "Convert it, or set another source.subject",
    ),
    "not_keys": (
        "the column holds {kind}, but keys of models are integers or text",
        "Convert it, or set another source.key",
    ),
    "not_times": (_NOT_TIMES, _OTHER_TIMES),
    "text_times": (_NOT_TIMES, _OTHER_TIMES + "; in CSV files, text as 2024-05-31 12:00:00 is read as a timestamp"),
    "not_weights": ("weights are text, but have to be numbers", "Name a column of numbers, or convert it"),
    "not_targets": (
        "the column holds text, but a regression needs numeric labels",
        "Name a column of numbers in source.label, or choose another learner.objective",
    ),
    "like_numbers": (_TEXT + "numbers", "Convert them (Debezium writes them with decimal.handling.mode: double)"),
    "like_times": (_TEXT + "dates or times", "Convert them to numbers, such as days"),
    # Sparse features
    "sparse": (
        "the column holds {kind}, sparse features, which this learner does not take",
        "Use {others}, which take them, or leave it out of {features}",
    ),
    "dense": (
        "the features {names} are numeric or categorical, but this learner takes sparse binary features only",
        "Leave them out (source.features), or use {others}, which takes both",
    ),
    "no_sparse": (
        "no feature is sparse, but a finder needs sparse binary features",
        "Give rows a column of lists of indices, or use {others}",
    ),
    "two_lists": (
        "the column holds {kind}, and so does {other}, but only one column may hold sparse features",
        "Put all sparse features into one column, or leave this one out of {features}",
    ),
    "bad_width": (
        "n_features in the metadata of the schema is {width!r}",
        "Write a number from 1 to {largest}, or set source.n_features",
    ),
    "no_lists": ("source.n_features is set, but no column of features holds lists", "Remove source.n_features"),
    # Debezium's envelope
    "no_struct": (_NO_STRUCT, _COLUMNS + "; if they hold the rows themselves, drop source.envelope and set source.op"),
    "wrapped_struct": (_NO_STRUCT, "Unwrap the column {outer}, which holds it"),
    "not_struct": (
        "the column holds {kind}, but source.envelope: debezium needs a struct with the fields of the row",
        "Write it as a struct (from JSON text: Spark's from_json, DuckDB's json_transform)",
    ),
    # Several files
    "lacking": (_LACKING, _SAME_COLUMNS),
    "lacking_feature": (_LACKING, _SAME_COLUMNS + _COMMON),
    "extra": ("the column is not in {other}", _SAME_COLUMNS + _COMMON),
    "drift": (_DRIFT, _SAME_KIND),
    "drift_of_feature": (_DRIFT, _SAME_KIND + ", or leave it out of source.features"),
}
