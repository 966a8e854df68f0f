"""Reasons why a model cannot be exported to another library, or explained."""

from raydt.messages import Sentence

_OTHER = "Choose another format"

SENTENCES: dict[str, Sentence] = {
    # Formats and files
    "no_format": ("there is no format {format!r}", "Choose one of {formats}"),
    "no_library": ("an export to {format} needs {libraries} ({reason})", "Run pip install 'raydt[{format}]'"),
    "not_written": ("the model cannot be written: {reason}", "Choose another path"),
    # Models without a description
    "unknown_width": (
        "the number of sparse features is not known, and exports and explanations have an entry for each",
        "Set n_features, or fit a scipy sparse matrix",
    ),
    "one_class": (
        "the model has seen only one class, so its outputs for another class have no label",
        "Insert examples of a second class first",
    ),
    "no_tree": ("there is no tree {tree}", "The model has {trees} trees, numbered from 0"),
    # Models that a format cannot hold
    "tiny_threshold": (
        "a threshold is {value!r}, but LightGBM treats numbers up to {zero:g} in size as 0",
        "Scale the column, or choose another format",
    ),
    "large_category": (
        "categories of this model are numbers up to {largest:,.0f}, but LightGBM keeps a bit for each number",
        _OTHER,
    ),
    "treelite_category": ("a set of categories has numbers that treelite cannot hold", _OTHER),
    "skops": ("skops cannot write this model: {reason}", _OTHER),
}
