"""Errors of the arrays of a model or a state, and reasons why an audit cannot read trees or bins."""

from raydt.messages import Sentence

SENTENCES: dict[str, Sentence] = {
    # Any array
    "missing": "array {array!r} is missing",
    "published": (
        "array {array!r} is missing: an earlier version wrote this state, by the published schedule",
        "Replay its stream, with learner.schedule: published for the same model",
    ),
    "form": "array {array!r} is not {types} of shape ({shape})",
    "too_small": "array {array!r} has a number that is not at least {low}",
    "too_large": "array {array!r} has a number that is not below {below}",
    "exceeds": "array {array!r} has a number that exceeds {other}",
    "repeated": "array {array!r} has the same number twice",
    "order": "array {array!r} does not ascend",
    "sparse_order": "array {array!r} does not ascend below {features} in every row",
    "addition": "array {array!r} does not add up to {other!r}",
    "number": "array {array!r} is not the number of {what}",
    "unknown": "array {array!r} names an unknown {what}",
    "impossible": "array {array!r} has counts or sums that no examples have",
    "weightless": "array {array!r} has an example of weight 0 in a leaf, or another one in none",
    "option": "array {array!r} does not fit {option}: {value}",
    # Feature groups
    "groups": "the feature groups of array {array!r} are not those of the features",
    "category": "array {array!r} of feature group {group} has a category that is not finite",
    "group_rows": "array {array!r} of feature group {group} has features of another group, or other rows",
    "group_bins": "array {array!r} of a feature group differs from that of all features",
    "group_places": "array {array!r} has another length in another feature group",
    "sparse_only": "array {array!r} needs features that are all sparse",
    # Trees
    "preorder": "array {array!r} does not describe trees in preorder",
    "nodes": "array {array!r} has an entry at a node that should have none, or lacks one",
    "inner_leaf": "array {array!r} names a node that is not a leaf",
    "empty": "array {array!r} has a node without examples",
    "side": "array {array!r} has a side of missing numbers at a node that asks for none",
    "threshold": "array {array!r} has a split at a number that no split has",
    "iteration": "array {array!r} has an iteration that is not complete",
    # Counts and labels
    "columns": "array {array!r} has {columns} columns, which do not fit the labels",
    "unlabelled": "array {array!r} counts a class that has no label",
    "counts": "array {array!r} does not count the live examples of its nodes",
    "children": "array {array!r} has a node whose children do not add up to it",
    "range": "array {array!r} must hold two numbers, the smaller first",
    # Bins
    "kinds": "array {array!r} contradicts the kinds of the features",
    "ranks": "array {array!r} does not number the categories",
    "bin_columns": "array {array!r} does not have a column for each bin",
    # Times
    "warmup": "array {array!r} contradicts whether the warm-up has ended",
    "renewal": "array {array!r} names a renewal of the bins after which another one is overdue",
    "ended_trial": "array {array!r} is of a trial that has ended",
    # Arrays that an audit, a digest or a copy cannot read
    "lengths": "the node arrays are empty or differ in length",
    "node": "node {node} has feature {feature} and children {left}, {right}",
    "reach": "the root reaches {reached} of {nodes} nodes",
    "ledger": "ledger and leaves do not fit {trees} trees, {width} an iteration",
    "digest": "part {part!r} has dtype {dtype}; only booleans, integers and floats have a digest",
    "outside": "rows {rows[0]} to {rows[1]} or columns {first} to {last} ({columns}) exceed a matrix of shape {shape}",
}
