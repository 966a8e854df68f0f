"""What is wrong with the arrays of a model or a state, and why an audit cannot read its trees or bins."""

from __future__ import annotations

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
    "row_lengths": "array {array!r} does not have the lengths of the rows",
    "unknown": "array {array!r} names a {what} that does not exist",
    "impossible": "array {array!r} has counts or sums that no examples have",
    # Feature groups
    "groups": "the feature groups of array {array!r} are not those of the features",
    "category": "array {array!r} of feature group {group} has a category that is not finite",
    "group_rows": "array {array!r} of feature group {group} has features of another group, or other rows",
    "group_bins": "array {array!r} of a feature group differs from that of all features",
    "group_places": "array {array!r} has another length in another feature group",
    "counters": "array {array!r} does not count the rows",
    "sparse_only": "array {array!r} needs features that are all sparse",
    # Trees
    "trees": "array {array!r} has {trees} trees, and the options ask for {wanted}",
    "whole_trees": "array {array!r} does not consist of whole trees",
    "preorder": "arrays {array!r} and {other!r} are not those of trees in preorder",
    "leaf_child": "array {array!r} gives a child to a leaf",
    "depth": "array {array!r} has a node deeper than max_depth {limit}",
    "leaves": "array {array!r} has a tree of more than {limit} leaves",
    "empty": "array {array!r} has a node without examples",
    "threshold": "array {array!r} has a split at a number that is not finite",
    "sparse_threshold": "array {array!r} has a split of a sparse feature that is not at 0.5",
    "uncut": "array {array!r} names a feature that has no cut",
    "cut": "array {array!r} has a cut at a leaf, or none at a split",
    "splits": "array {array!r} does not have an entry for each split",
    "iteration": "array {array!r} has an iteration that is not complete",
    "per_iteration": "array {array!r} is not the number of trees of an iteration",
    # Counts and labels
    "columns": "array {array!r} has {columns} columns, which do not fit the labels",
    "unlabelled": "array {array!r} counts a class that has no label",
    "children": "array {array!r} has a node whose children do not add up to it",
    "leaf_counts": "array {array!r} has a leaf that does not match 'leaf' and 'y'",
    "inner_leaf": "array {array!r} names a node that is not a leaf",
    "classes": "array {array!r} is not the number of classes",
    "range": "array {array!r} is not a smaller and a larger number",
    # Bins
    "kinds": "array {array!r} does not have the kinds of the features",
    "ranks": "array {array!r} does not number the categories",
    "bin_columns": "array {array!r} does not have a column for each bin",
    # Finders
    "finder": "array {array!r} names a finder that the options do not allow",
    "filled": "array {array!r} is not the number of buckets with features",
    # Warm-ups, batches and renewals
    "warmup": "array {array!r} is there before the end of the warm-up, or missing after it",
    "early_split": "array {array!r} has a split before the end of the warm-up",
    "built": "array {array!r} is not 0, although the tree has been built",
    "untrained": "array {array!r} has a row in a model that has not been trained",
    "waiting": "array {array!r} names a node of a row that waits to be inserted",
    "renewal": "array {array!r} names a renewal of the bins after which another one is overdue",
    "since": "array {array!r} does not count the live examples that arrived since its time",
    "places": "array {array!r} does not belong to the nodes that count examples",
    "node_totals": "array {array!r} does not match what the nodes have counted",
    "ended_trial": "array {array!r} is of a trial that has ended",
    # Arrays that an audit cannot read
    "lengths": "the node arrays are empty or differ in length",
    "node": "node {node} has feature {feature} and children {left}, {right}",
    "cut_node": "node {node} has feature {feature}, cut {cut} and children {left}, {right}",
    "reach": "the root reaches {reached} of {nodes} nodes",
    "ledger": "ledger and leaves do not fit {trees} trees, {width} an iteration",
    "bins": "the bins do not match the features",
    "sparse_bins": "the sparse features with bins do not ascend",
    "bins_order": "the bins of the features do not follow one another",
    "categories": "the categories of feature {feature} do not have the bins 0 to {last}",
}
