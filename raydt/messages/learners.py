"""Sentences of learners: options and batches that are refused, promises, and the outlook of a run."""

from raydt.messages import Sentence

SENTENCES: dict[str, Sentence] = {
    # Learners of other packages
    "repeated_entry": (
        "the entry point {name} = {value!r} of the group raydt.learners: another learner has the same kind",
        "Uninstall one of the two packages",
    ),
    "broken_entry": (
        "the entry point {name} = {value!r} of the group raydt.learners cannot be loaded: {error}",
        "Repair or uninstall its package",
    ),
    "other_entry": (
        "the entry point {name} = {value!r} of the group raydt.learners is not a learner of kind {name!r}",
        "Repair or uninstall its package",
    ),
    # Options
    "truth_value": "must not be true or false",
    "no_weights": (
        "{kind} takes no weights, but {what} gives some",
        "Remove {what}, or use {takers}, which takes weights",
    ),
    "unused": ("{key} applies only to {users}", "Remove {key}, or set it to null"),
    "finder_criterion": (
        "criterion: {criterion} does not fit finder: {finder}, which minimises {own}",
        "Remove criterion, or set finder to {other}, scan or auto",
    ),
    "rule_criterion": ("criterion: {criterion} has no interval under rule: {rule}", "Set criterion to {fitting}"),
    "delta": "must be a number between 0 and 1, or 1/t",
    "majority_drift": (
        "drift_period: {period} compares leaves that predict adaptively",
        "Set leaf_prediction to adaptive_inherited, or drift_period to 0",
    ),
    "max_features": "max_features must be at least 1",
    "epsilon": "epsilon must be a number from 0 to {most:g}, or auto",
    "no_epsilon": (
        "no epsilon has a guarantee with alpha = {alpha:g} and beta = {beta:g}",
        "Increase alpha or beta, or give epsilon a number",
    ),
    "certificate_epsilon": (
        "schedule: certificate rebuilds by certificates, not after epsilon",
        "Remove epsilon, or set schedule: published",
    ),
    "dense_epsilon": (
        "epsilon applies only to dense features with finder: updgini; a node is rebuilt when its split is beaten",
        "Remove epsilon",
    ),
    "certificate_beta": (
        "beta must be at least {least:g} by certificates, which leave 1e-12 for rounding",
        "Set a larger beta, or schedule: published",
    ),
    "no_beta": "beta must be greater than 0, or every update would rebuild a node",
    "class_range": (
        "label_range applies only to numeric labels",
        "Remove label_range, or set criterion: squared_error",
    ),
    "label_range": "label_range must be two finite numbers, the smaller first, not {low:g} and {high:g}",
    # Batches
    "classes": ("{found:,} classes: {what} takes at most {most:,}", "Set source.positive to the labels of class 1"),
    "no_warmup": (
        "stream.warmup = 0: {kind} {needs}",
        "Set stream.warmup to their number, 20 or more; some hundreds make a better first model",
    ),
    "unknown_range": ("the range of the labels is not known", "Set label_range, or begin with a warm-up that has it"),
    "examples": (
        "{examples:,} live examples {what} are more than the {most:,} that a model can hold",
        "Keep fewer examples live, or fewer classes (source.positive), or lower sample_share",
    ),
    "trees_elsewhere": "the trees are with the shards: gather them first",
    # Explanations and exports
    "no_trees": "this model is not a sum of trees, so it can be neither exported nor explained",
    "no_cover": (
        "an earlier version saved this model without the numbers of examples at its nodes",
        "Save it again from its examples, or explain a state",
    ),
    "naive_leaves": (
        "naive Bayes predicts at {leaves} of the tree, so predictions do not follow from the splits alone, and can be "
        "neither explained nor exported",
        "To explain predictions or to export the tree, train again with leaf_prediction: majority",
    ),
    # What the first rows are needed for, after the kind of the learner
    "needs_sparsity": "with finder: auto chooses by how sparse the first rows are",
    "needs_bins": "derives the bins of its features from the first rows",
    "needs_range": "takes the range of the labels, unless label_range gives it, from its first rows",
    "needs_classes": "finds the weights of the classes, as class_weight is balanced, from its first rows",
    "needs_model": "builds its first model of the first rows at once",
    # Promises
    "exact_trees": "every tree equals the one trained from scratch on its live examples, bit for bit",
    "certified": (
        "after every update, each split gains at most {beta:g} (beta) less than the best split of its node would. The "
        "class counts of a node prove this for some updates ahead; before they stop proving it, raydt builds its "
        "subtree again. A leaf may come to need a split: raydt looks for one after as many inserts and deletes in the "
        "leaf as {epsilon:.3%} of its rows (epsilon, which follows from alpha {alpha:g}, beta {beta:g} and "
        "min_samples_split {samples})"
    ),
    "small_epsilon": (
        "epsilon {epsilon:.6g} is below the bound {bound:.6g} up to which the guarantee is proven for alpha {alpha:g}, "
        "beta {beta:g} and min_samples_split {samples}"
    ),
    "large_epsilon": "epsilon {epsilon:.6g} is not below {bound:.6g}, up to which the guarantee is proven",
    "beaten_splits": (
        "a node is rebuilt as soon as its score is more than beta {beta:g} above the finder's best split, which is at "
        "most {bound:g} times the lowest score of all sparse features"
    ),
    "scan": "a scan evaluates every seen feature",
    "structure": "the finder finds a split whose score is at most {bound:g} times the lowest of all features",
    "bounded_derivatives": (
        "every tree stores for each row the gradient of a score that is at most {tolerance:g} (derivative_tolerance) "
        "away from the score that the row has now"
    ),
    "old_derivatives": ("with derivatives: {derivatives} stored derivatives may belong to scores of any earlier time"),
    "proven_splits": (
        "each split beats all others by two widths of Theorem 4 with delta {delta}. If examples and deletions are "
        "independent, with a probability of at most delta a random example is routed via a suboptimal split; of what a "
        "leaf counted, the rows of the warm-up chose the cuts too"
    ),
    "proven_ties": (
        "each split either beats all others by two widths of Theorem 4 with delta {delta}, or was taken on a tie. If "
        "examples and deletions are independent, with a probability of at most delta a random example is routed via "
        "one of the former that is not the best, or one of the latter that lacks more than {lack:g}; of what a leaf "
        "counted, the rows of the warm-up chose the cuts too"
    ),
    "rule": ("rule: {rule} has a width for one comparison at one time; no theorem of the paper bounds its splits"),
    "practical": "confidence: practical leaves out the constants of the theorems",
    "rival": "rival: feature compares only with splits on other features, and Theorem 4 with all",
    "falling_delta": "delta: 1/t decreases, and a split keeps the 1/t of the time it was made",
    "restarts": "restarted nodes count examples that were compared before (drift_period)",
    "ties": (
        "tie_threshold {threshold:g} lets a split fall short by twice as much, and with two classes {criterion} is "
        "never above {limit:.3g}"
    ),
    "renewals": "bins are made again from rows that leaves have counted (renew_bins)",
    "many_checks": "grace_period below 20 checks leaves more often than delta is divided for",
    "many_bins": "max_bins above 1,024 may cut a feature into more parts than a leaf has examples",
    # What to expect of a run
    "copies": "{copies:,} of {trees:,} trees hold each example",
    "few_rows": (
        "the bins are made once, from {rows}: leaves are split only between the values of these rows",
        "Let some hundreds of rows make the bins, or set renew_bins: 100",
    ),
    "unexplained": (
        "leaves predict by naive Bayes where that is better, and such a model can be neither explained nor exported",
        "Set leaf_prediction: majority for a model that can be both",
    ),
    "always_trained": "each batch of {updates} trains all trees again, on about {rows:,} rows",
    "never_trained": "a batch of {updates} changes {iterations} in place; the trees are never trained again",
    "sometimes_trained": (
        "a batch of {updates} changes {iterations} in place. After {after:,} inserts and deletes, which is every "
        "{batches:,} batches, or as soon as changing the trees would be as much work, all trees are trained again "
        "instead"
    ),
    "no_split": ("no split in {checks} (a leaf is checked after grace_period examples)", "To split sooner: {sooner}"),
    # What stays in a model of deleted examples
    "stays": "the model itself: splits and thresholds chosen with these examples stay until their subtree is rebuilt",
    "stays_split": (
        "the model itself: a split chosen with these examples stays until the next search, and the bucket of a "
        "feature, within its limits, depends on earlier updates"
    ),
    "stays_boosted": (
        "the model itself: splits chosen with these examples stay as long as they are among the best, values of leaves "
        "follow from derivatives computed with these examples, and bins were made from all rows of the last training "
        "of all trees"
    ),
    "stays_records": "the model itself: splits chosen with these examples stay, with the records of what decided them",
    "stays_restart": "counts of their errors stay, with their split, until the node is restarted (drift_period)",
    "stays_bins": "bins made with these examples stay",
    "stays_renewal": "bins made with these examples stay until bins are made again (renew_bins)",
    "stays_choices": "which prediction of a leaf was right about other examples stays",
}
