"""Errors of examples that a model cannot take or give back, and of labels and features that no learner takes."""

from raydt.messages import Sentence

SENTENCES: dict[str, Sentence] = {
    # Updates
    "unknown_id": ("no live example has this id", "Delete only ids that were inserted and not deleted before"),
    "live_id": (
        "an id must name one row only, and a row with this id is live",
        "Give each row its own id, delete the live row first, or send the new one as an update (op: update)",
    ),
    "unknown_value": ("no live example equals this one", "Delete by value needs the exact features and label"),
    "far_target": (
        "the target is more than 32 times as far from the mean as any of the rows that the trees were trained on last",
        "Correct the value, or train on rows that cover its range",
    ),
    # Numbers that rows without ids get
    "no_numbers": ("no number is left for new rows", "Give the rows their own ids"),
    "numbered": (
        "id {id} was not given: it numbers a row of a data frame whose index has a name",
        "Insert the rows with their ids (ids=X.index), or delete them by value",
    ),
    "heavy": (
        "the weights of the live examples add up to more than {most:,}",
        "Divide all weights by the same number",
    ),
    # Labels and features
    "label_range": "a label that is neither 0 nor from {least:g} to {most:g} in absolute value",
    "many_features": (
        "{dense} dense and {sparse:,} sparse features are more than {largest:,} together",
        "Set a smaller source.n_features, or hash the indices to fewer bits",
    ),
}
