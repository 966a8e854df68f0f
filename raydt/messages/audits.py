"""Sentences of audits of models: verdicts with their reasons, and every difference that is found.

``{where}`` says at how many nodes, splits or rows, and which is the first, such as "3 nodes, first at node 5", or of
rows the least id, such as "2 times, least id 17".
"""

from raydt.messages import Sentence

#: What to do where an audit cannot be divided.
_ALONE = "Leave out --shards"

SENTENCES: dict[str, Sentence] = {
    # Reasons of verdicts
    "malformed": "the {what} is malformed: {problem}",
    "no_tree": "the warm-up has not built a tree yet",
    "certified": "{nodes} within the guarantee on the live examples, and none is due to be built again",
    "scheduled": "{nodes} within the guarantee on the live examples, and epsilon is below its bound",
    "scores": (
        "no score of the {nodes:,} nodes is above (1 + {finder_alpha:g}) times the lowest of the sparse features by "
        "more than beta ({gap:.4g} at most)"
    ),
    "optimum": (
        "the score of the split, {score:.6g}, is {ratio:.6g} times the lowest of all {features:,} features; {bound:g} "
        "times is allowed"
    ),
    "no_feature": "no feature has been seen",
    "retrained": "all {trees:,} trees equal those trained from scratch on the live examples",
    "some_retrained": "{rebuilt:,} of {trees:,} trees, evenly spaced, equal those trained from scratch on the live "
    "examples",
    "earlier_search": "the split is that of an earlier search, and only the live examples are known",
    "weighed_rows": "the theorems are about independent rows that all have weight 1",
    "earlier_splits": "only the live examples are known, and splits were chosen by all examples of their time",
    "not_replayed": "a split could not be replayed",
    "stale": "stored derivatives of scores farther from the present ones than the tolerance allows: {derivatives:,}",
    # Remarks on reasons
    "live_only": "{what} were not checked, because only the live examples are known",
    "measured_gain": "measured: the gain of a split falls short of the best by up to {gap:.4g}",
    "measured_score": "measured: the score of a node is up to {lack:.4g} above the lowest",
    "measured_rank": (
        "measured: the worst split is number {rank:.0f} among the candidates of its node, and the gain of a split "
        "falls short of the best one of its node by up to {lack:.2%} of that"
    ),
    "measured_splits": "measured: {splits} by the rule, {ties:,} on a tie",
    "least_lead": (
        "over all other splits, the least lead of a split by the rule is {lead:.3g} times the lead that the rule "
        "requires (rival: {rival})"
    ),
    "theorem_lead": "the least lead is {lead:.3g} times the two widths that Theorem 4 requires",
    "no_split": "no leaf is split yet: nothing is to be proven",
    # Examples
    "examples": (
        "the model holds {held:,} examples and the history {live:,}: {missing:,} are missing (first ids "
        "{missing_ids}), {extra:,} are too many (first ids {extra_ids})"
    ),
    "example_value": "the {what} is wrong for {examples:,} examples, first id {id}: {found} instead of {expected}",
    "missing_rows": "live examples of the history that the model lacks: {rows:,}, first id {id}",
    "unknown_rows": "rows unknown to the history: {rows:,}, first id {id}",
    "live_rows": "rows that live in only one of state and history: {rows:,}, first id {id}",
    "repeated_rows": "rows that the state has twice: {rows:,}, first id {id}",
    "waiting_rows": "rows that have waited since an earlier batch D': {rows:,}, first id {id}",
    "stored_value": "values unlike the source: {values:,}, first the {what} of id {id}: {found} instead of {expected}",
    # Audits that are divided by buckets of rows
    "undivided": ("the audit of {learner} needs all rows in one process", _ALONE),
    "divided_past": (
        "an audit is divided only of one model that has read its source from beginning to end: not of models by key, "
        "nor after raydt update, nor of a run that follows a table",
        _ALONE,
    ),
    "divided_state": (
        "a state is audited against the examples in it, in one process",
        "Leave out --shards and --address",
    ),
    "by_value": ("an audit is divided by ids, and the stream deletes rows by their values", _ALONE),
    "many_parts": (
        "each of the {shards} processes would be of a private Ray on this machine, which has {cpus} CPUs",
        "Set --shards to at most {most}, or name a cluster with --address",
    ),
    "part_lost": (
        "a process of the audit was lost: {what}",
        "Audit again; with more --shards each process takes less memory",
    ),
    # Single numbers
    "value": "{name} is {found} instead of {expected}",
    # Nodes
    "node_value": "{array} ({meaning}) is wrong at {where}: {found} instead of {expected}",
    "node_time": "{array} contradicts the history or other nodes at {where}: {time}",
    "overdue": "a rebuild is due, c > epsilon s, at {where}: c = {c}, s = {s}",
    "lemma": "Lemma 3.4 does not hold at {where}",
    "certificate": "a rebuild is due, a certificate has run out, at {where}: {lacks:.9g} of {budget:.9g}",
    "build_leaf": "a split stands where BUILD makes a leaf at {where}",
    "build_split": "a leaf stands where BUILD makes a split at {where}",
    "build_best": (
        "the split was not the best one at BUILD at {where}: feature {feature} at {threshold} instead of feature "
        "{best_feature} at {best_threshold}"
    ),
    "build_score": "the split was not the best one at BUILD at {where}: score {score:.9g}, the lowest is {least:.9g}",
    "due_leaf": "a split has too few or pure examples, or the largest depth, at {where}",
    "gain_gap": "the gain of the split falls short of the best by more than beta at {where}: {gap:.6g}",
    "leaf_gain": "a leaf with g >= alpha has a split that gains more than beta at {where}: {gain:.6g}",
    "score_gap": "a score is more than beta above (1 + finder_alpha) times the lowest at {where}: {gap:.6g}",
    "dense_gap": "a score is more than beta above the best dense split at {where}: {gap:.6g}",
    # Records of splits
    "record": "{name} of the record is wrong at {where}: {recorded} instead of {expected}",
    "record_counts": "the counts of the record contradict each other at {where}: m {m}, own {own}, left {left}, t {t}",
    "rule": "the rule is not met at {where}: phi {phi:.9g}, rival {rival:.9g}, width {width:.9g}, reason {reason}",
    "stamp": "the stamp is not of an insertion here at {where}: {stamp}",
    "lead": "the split of node {node} leads by {lead:.6g}, and two widths are {widths:.6g}",
    # Bins, counters and buckets
    "early": "there are {what} before the end of the warm-up",
    "bins": "the bins of {feature} do not follow from its values in the {source}",
    "group_counts": "the {what} of feature group {group} do not fit the live examples and the tree",
    "bucket": "feature {feature} is in bucket {bucket}, which does not exist",
    "outside": "features of group {group} outside their bucket: {features:,}, first {first} in bucket {bucket}",
    # Trees of forests and of boosting
    "tree_value": "tree {tree} has another {name} at {nodes:,} nodes, first node {node}: {found} instead of {expected}",
    "tree_leaves": "tree {tree} has {leaves:,} leaves, more than {limit:,}",
    "other_table": "{rows:,} live examples are not as the rows of the table at {place}",
    "tree": "tree {tree} has a wrong {array} {where}",
}
