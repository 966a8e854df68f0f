"""Errors of calls of estimators: parameters, rows, labels and ids.

scikit-learn's own checks search for the words of its messages: "requires y to be passed", "Unknown label type", "is
expecting", "Found array with", "Reshape your data", "not fitted yet". An estimator for river has examples of keys and
values in place of rows.
"""

from raydt.messages import Sentence

_ONE_KIND = "Use either numbers or strings for all labels"
_LISTS = (
    "Pass a sequence of lists of indices, an Arrow column of lists, a frame with such a column, or a scipy sparse "
    "matrix of ones, such as scipy.sparse.csr_matrix(X) of zeros and ones"
)
_FILL = "Fill in another value, or leave out such examples"
_INTERRUPTED = (
    "a change of this {estimator} was interrupted: its model is neither the one before the change nor the one after it"
)

SENTENCES: dict[str, Sentence] = {
    # Weights
    "weight_shape": "sample_weight has shape {shape}, but X has {rows} rows",
    "zero_weights": "all weights in sample_weight are zero: there is nothing to learn",
    "weight_type": "sample_weight must be numbers, got {what}",
    "weight_range": (
        "weight {value} is neither 0 nor from {least:g} to {most:,}",
        "Correct negative and missing weights, and multiply all by one number that brings them into this range",
    ),
    "unknown_class_weight": "class_weight names {labels}, but the classes are {classes}",
    # Parameters
    "invalid_parameter": (
        "Invalid parameter {name!r} for estimator {estimator}",
        "Valid parameters are: {valid!r}",
    ),
    "parameters": "{problems}",
    "n_jobs": ("n_jobs={given!r} is no number of threads", "Use None or -1 for all CPUs, 1 for one, or another number"),
    "no_routing": (
        "this method is only available when metadata routing is enabled",
        "Call sklearn.set_config(enable_metadata_routing=True)",
    ),
    "no_metadata": ("{method} takes no metadata {names}", "It takes {valid}"),
    # Models that cannot do what is asked
    "not_fitted": ("This {estimator} instance is not fitted yet", "Call 'fit' or 'partial_fit' first"),
    "no_rows": (
        "this model has no training rows and can only predict",
        "Save it with with_examples=True to continue learning",
    ),
    "nothing_learned": ("the model has learned no example", "Learn examples before the audit"),
    "interrupted": (
        _INTERRUPTED,
        "Call fit; or call save, which writes a model trained on the examples before the change, and load_model",
    ),
    "interrupted_stream": (_INTERRUPTED, "Make a new estimator, and let it learn the examples again"),
    "interrupted_first": ("there were no examples before the call that was interrupted", "Call fit again"),
    # Shape and type of rows
    "empty": (
        "Found array with 0 {what}(s) (shape={shape}) while a minimum of 1 is required",
        "Pass at least one {what}",
    ),
    "not_2d": ("Expected 2D array, got {dimensions}D array instead", "Reshape your data with .reshape(-1, 1)"),
    "complex": ("Complex data not supported: {what} holds complex numbers", "Convert {what} to real numbers"),
    "not_dense": ("Sparse data was passed, but dense data is required", "Use '.toarray()' to convert it"),
    "not_numbers": ("X needs numbers ({reason})", "Pass text columns in a data frame or an Arrow table"),
    "frame": (
        "values of type {kind} cannot be converted to Arrow: {reason}",
        "Give the column values of one type, floating-point numbers, integers of 64 bits or text: in pandas "
        "X[name].astype(float), of a sparse column X[name].sparse.to_dense(); in polars X.cast({{name: pl.Int64}})",
    ),
    "lazy": ("X is a LazyFrame of polars, which has no rows yet", "Pass X.collect()"),
    "repeated_column": ("X has two columns of this name", "Rename one of them"),
    "other_labels": ("X has {rows} rows and y has {labels}", "Pass one label for each row"),
    "other_ids": ("X has {rows} rows and ids has shape {shape}", "Pass one id for each row"),
    # Columns that differ from those of the first call
    "other_width": "X has {width} features, but {estimator} is expecting {wanted} features as input",
    "no_column": ("X lacks the column {name!r}, which {estimator} was fitted with", "Pass the columns of fit"),
    "other_column": ("the column holds {kind}, but held {was} when the model was fitted", "Convert it to {was}"),
    "was_text": (
        "the column holds {kind}, but held {was} when the model was fitted",
        "Read the column as text, for instance with pandas.read_csv(file, dtype={{{name!r}: str}}): numbers that are "
        "converted to text are written otherwise, 6.0 for 6. Leave missing values missing (None or NaN)",
    ),
    "was_numbers": (
        "the column holds {kind}, but held {was} when the model was fitted",
        "Convert the column to {was}, for instance with pandas.to_numeric(X[{name!r}]); missing values are NaN",
    ),
    # The first words are those of scikit-learn
    "names_lost": (
        "X does not have valid feature names, but {estimator} was fitted with feature names",
        "Pass a frame with the columns of fit; columns are taken by position",
    ),
    "names_new": (
        "X has feature names, but {estimator} was fitted without feature names",
        "Pass an array, or fit with a frame; columns are taken by position",
    ),
    "unseen": (
        "{estimator} has never seen {rows:,} of {all:,} values of the column {name!r}, which go the way of all other "
        "categories at every split",
        "Make sure that values are written as they were when the model was fitted: 6 is not 6.0, nor 06",
    ),
    "wants_frame": ("{estimator} was fitted with a frame with a column of lists", "Pass such a frame"),
    "wants_matrix": ("{estimator} was fitted with a sparse matrix", "Pass a sparse matrix"),
    "text_numbers": "column {name!r} {doubt}, or name the column in categorical_features if its values are names",
    # Sparse features
    "sparse_width": ("X has {width:,} features; at most {most:,} can be sparse", "Hash the features to fewer columns"),
    "not_one": (
        "a sparse matrix may hold only ones, but this one holds {value!r}",
        "Pass X.toarray() if the values matter, or X != 0 if they do not",
    ),
    "no_lists": ("X is {type}, but rows must be lists of indices", _LISTS),
    "bad_lists": ("X is not a list of rows, each the indices of its ones: {reason}", _LISTS),
    "bad_row": "a row is not a list of integers",
    "text_lists": (
        "the column holds lists of text, but lists of indices are needed",
        "Replace every token by its index, as CountVectorizer(binary=True) does",
    ),
    # categorical_features
    "string": ("categorical_features={given!r} is a string", "Give a list, [{given!r}]"),
    "dimensions": ("categorical_features has shape {shape}", "Give a list, or an array of one dimension"),
    "mask_length": (
        "categorical_features has {flags:,} truth values, but X has {columns:,} columns",
        "Give one for each column, or names or positions",
    ),
    "mixed_mask": (
        "categorical_features has {flag} next to names or positions",
        "Give a truth value for each column, or names and positions",
    ),
    "no_position": ("categorical_features has {position}, but X has {columns:,} columns", "Positions are 0 to {last}"),
    "unknown_name": ("categorical_features names {name!r}, which {rows} does not have", "Correct the name"),
    "sparse_categories": (
        "categorical_features names columns, but a sparse matrix has no categorical columns",
        "Leave categorical_features out",
    ),
    "list_categories": (
        "the column holds sparse features, which are not categories",
        "Leave it out of categorical_features",
    ),
    # Labels
    "no_labels": ("This estimator requires y to be passed, but the target y is None", "Pass one label for each row"),
    "label_shape": ("y should be a 1d array, got an array of shape {shape} instead", "Pass one label for each row"),
    "column_vector": ("A column-vector y was passed when a 1d array was expected", "Pass y.ravel()"),
    "label_type": ("Unknown label type: {what}", "Convert the labels to integers of 64 bits, booleans or strings"),
    "unusable_label": ("Input y contains {what}", "Drop rows without a label"),
    "mixed_labels": ("labels {first!r} and {label!r} are of different kinds", _ONE_KIND),
    "mixed_classes": ("label {label!r} does not have the type of the classes {classes}", _ONE_KIND),
    "common_type": (
        "no type of numbers holds the label {label!r} together with the classes {classes}",
        "Use integers of 64 bits for all labels",
    ),
    "nul": ("label {label!r} ends with NUL, which NumPy drops", "Rename the label"),
    "time_labels": ("Input y contains dates, times or lengths of time", "Convert y to numbers"),
    "text_label": ("Input y contains text, {value!r}", "Convert y to numbers"),
    "no_numbers": ("y needs numbers ({reason})", "Convert y to numbers"),
    "label_range": ("y has {value!r}, {range}", "Give y in another unit"),
    "new_class": (
        "label {label!r} is not among the classes given on the first call: {classes}",
        "Give all classes on the first call",
    ),
    # {features} is "with sparse features and these parameters", or only the latter
    "third_class": (
        "{estimator} takes two classes {features}, but {argument} has {label!r} in addition to {first!r} and "
        "{second!r}",
        "Make two classes of the labels, as np.asarray(y) == {first!r} does{instead}",
    ),
    "many_classes": (
        "{estimator} takes {most:,} classes {features}, but {argument} has {label!r} in addition to {most:,} others",
        "Learn numbers with a regressor, or choose another target if the labels are ids",
    ),
    # Ids, and examples that are named by them or by their values
    "id_shape": ("ids has shape {shape}", "Pass one id for each row, in one dimension"),
    "id_type": (
        "{value!r} cannot be used as {what}",
        "Use integers of 64 bits, text, UUIDs or other values that are hashable and no floats",
    ),
    "no_key": ("the {what} is missing", "Give every row its {what}"),
    "unsaved_ids": (
        "{what}s of type {type} cannot be saved with the examples",
        "Use either integers or text for all, or save without the examples",
    ),
    "other_subjects": ("X has {rows} rows and there are {subjects} subjects", "Pass one subject for each row"),
    "subjects_always": (
        "some examples would have a subject and others none",
        "Pass subjects with the first examples and with all others, or never",
    ),
    "no_subjects": ("the examples have no subjects", "Pass subjects=... to fit and partial_fit, or delete by id"),
    "nothing_named": ("forget needs to know what to delete", "Pass ids, subjects or both"),
    "missing_choice": ("missing={given!r} is neither 'error' nor 'skip'", "Pass one of these"),
    "unknown": ("without a live example: {names}", "Delete only what was inserted, or pass missing='skip'"),
    "repeated_id": (
        "id {id} is given twice in one call",
        "Give every id once. The ids are those of the index, if it has a name and ids=None: drop the name with "
        "X.rename_axis(None) to number the rows instead",
    ),
    "refused": ("{subject}: {problem}", "{remedy}"),
    # Models by key
    "not_keyed": (
        "estimator is {given}, but models by key need {wanted} of raydt",
        "Pass one, such as {example}()",
    ),
    "unknown_choice": ("unknown={given!r} is neither 'error' nor 'prior'", "Pass one of these"),
    "no_keys": (
        "nothing says which model each row belongs to",
        "Pass a frame and its column, key='...' of {estimator}, or keys=... with one key for each row",
    ),
    "no_key_column": (
        "X lacks the column {name!r}, which has the key of each row",
        "Pass a frame with this column, or one key for each row as keys",
    ),
    "two_keys": ("X has the column {name!r} of keys, and keys were given, too", "Pass one of them"),
    "other_keys": ("X has {rows} rows and there are {keys} keys", "Pass one key for each row"),
    "key_type": ("{value} cannot be a key", "Convert keys to text or integers of 64 bits"),
    "other_form": (
        "{estimator} was fitted with {was}, but X is {found}",
        "Pass rows of the same kind, so that all models have the same features",
    ),
    "unknown_keys": (
        "{rows:,} of {all:,} rows have a key without a model. Such keys ({keys:,}): {shown}",
        "Leave them out (has_model says which rows have one), or set unknown='prior'",
    ),
    "no_model": ("there is no model of the key {key}", "keys_ lists the keys"),
    "shared_id": ("id {id} is live under the keys {keys}", "Name the key: forget({{key: ids}})"),
    # Examples for river
    "no_features": ("the first example has no features", "Learn an example with at least one"),
    "missing_key": ("the feature is missing, but the first example had it", "Fill in a value"),
    "new_key": (
        "the feature is new: the first example did not have it",
        "Leave the feature out, or include it from the first example on",
    ),
    "no_label": ("the label is missing", "Learn only examples with a label"),
    "class_beyond": (
        "label {label!r} is one class more than the {most:,} that this learner takes",
        "Choose another target if the labels are ids, or make fewer classes of them{instead}",
    ),
    "other_value": ("{value!r} differs in kind from the values before it ({was})", "Convert it to {was}"),
    "inexact": (
        "{value!r} is an integer beyond 2**53, which float64 cannot hold exactly",
        "Scale the feature, or list it under categorical_features",
    ),
    "not_finite": ("{value!r} is not a finite number", _FILL),
    "not_category": ("{value!r} is not a category", _FILL),
}
