"""Errors of an update of a saved state and of files of rows for a saved model; places where copies may remain."""

from raydt.messages import Sentence

_RESTORE = "Restore the files. Without them, audit one of the checkpoints/ against the examples in it"

SENTENCES: dict[str, Sentence] = {
    # The command
    "nothing": ("update has nothing to do", "Give --insert FILE, --delete FILE or both, or --changes FILE"),
    "no_target": (
        "update needs a folder for the new state",
        "Give --out STATE2, a STATE that is a folder of successive states, or --dry-run",
    ),
    "nothing_to_keep": (
        "keep is the number of states that stay in a folder of successive states, from 1 on, and cannot be {keep} here",
        "Leave it out, or update such a folder",
    ),
    "no_folder": ("--out {folder}: cannot be a folder: {reason}", "Choose a new folder"),
    "other_base": (
        "{folder} has states already, and what is updated is not the newest of them, {newest}",
        "Update the folder itself: raydt update {folder} --changes FILE",
    ),
    "full_folder": ("--out {folder}: the folder is not empty", "Choose a new or empty folder"),
    # Files of changes
    "no_operations": (
        "no column holds operations",
        "Name it with --op COLUMN; the columns are {columns}",
    ),
    "no_change_ids": ("the state does not know the column of ids of its examples", "Name it with --id COLUMN"),
    "skip_update": "{remedy}; or pass over what cannot be applied with --on-error skip",
    "file_twice": ("the file is given twice", "Give each file once"),
    # Ids to delete
    "positions": ("an update deletes at once, not at positions", "Remove the column, or replay it as a deletion_log"),
    "no_ids": ("the file has no id", "Check the file, or leave out --delete. Nothing has been changed"),
    "unknown_id": ("id {id}: {problem}", "{remedy}"),
    "unknown_ids": ("{count:,} ids have no live example: {ids}", "{remedy}, or take them out with --missing skip"),
    "unknown_subjects": (
        "subjects without a live row ({count:,}): {subjects}",
        "Delete only subjects that have rows, or pass over the others with --missing skip",
    ),
    "repeated_id": ("id {id} is given twice", "Give every id once"),
    # Rows to insert
    "live_id": ("id {id}: {problem}", "Give the row another id, or delete the live example with --delete as well"),
    "text_ids": ("the ids of this state are text", "Name the column of ids with --id"),
    "other_ids": ("the ids are {found}, but those of the state are {wanted}", "Convert the column to {wanted}"),
    "other_subjects": (
        "the subjects are {found}, but those of the state are {wanted}",
        "Convert the column to {wanted}",
    ),
    "refused_label": ("label {label}: {problem}", "{remedy}. Nothing has been changed"),
    "unknown_label": ("the model has no class {label}", "Its classes are {classes}. Nothing has been changed"),
    "other_label": ("label {label} is of another type than the classes {classes}", "Use only numbers or only strings"),
    "other_category": ("category {category} is written unlike the model's, {known}", "Convert the column"),
    # Files of rows for a saved model; {who} names a column, such as --id
    "feature_column": ("{who} names this column, but it is a feature of the model", "Name another column"),
    "no_feature": ("the model needs this column, but the file lacks it", "Its columns are {columns}"),
    "no_column": ("{who} names this column, but the file lacks it", "Its columns are {columns}"),
    "near_column": ("{who} names this column, but the file lacks it", "Did you mean {near}? Its columns are {columns}"),
    "other_column": ("the model knows {known} in this column, but the file has {found}", "Convert it to {known}"),
    # Remedies where there is no config
    "more_features": "Replay with a larger source.n_features, which leaves room for more",
    "correct": "Correct the file",
    # The files of an update, read again for an audit
    "unreadable": ("the update after {updates:,} updates cannot be repeated from {files}: {problem}", _RESTORE),
    "in_memory": (
        "the update after {updates:,} updates was given in memory, so that nobody can read it again",
        "Audit one of the checkpoints/ against the examples in it, or give files to update",
    ),
    "no_ids_in": ("these are no ids: {reason}", "Pass integers, or text"),
    "no_table": (
        "{name} is {type}, but it can be a path, a list of ids, a data frame or an Arrow table",
        "Pass one of these",
    ),
    "changed": ("a file of the update after {updates:,} updates has changed: {files}", _RESTORE),
    # Places of copies
    "copy_state": "the state that is updated: {path}",
    "copy_earlier_state": "an earlier state: {path}",
    "copy_source": "the source of the run: {path}",
    "copy_states": "all states of the run: {path}",
    "copy_predictions": "predictions of the run, with id and label: {path}",
    "copy_quarantine": "skipped rows of the run, if they name the examples: {path}",
    "copy_log": "messages of the run, if they name the examples: {path}",
    "copy_model": "the model of the run, trained on the examples: {path}",
    "copy_of_ray": "object store and spill folders of Ray, on the machines of the run",
    "copy_origin": "the data from which the state was made, and the run or program that made it",
    "copy_rows": "rows of an earlier update: {path}",
    "copy_changes": "the changes: {path}",
    "copy_ids": "the ids of the examples: {path}",
    "copy_categories": "the new state's list of categories: a name that only deleted rows had is still there",
    "copy_classes": "the new state's list of classes: a name that only deleted rows had is still there",
}
