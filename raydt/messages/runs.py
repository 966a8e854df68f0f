"""Sentences about runs: their folders and states, where they work, how they are resumed, checkpointed and ended."""

from raydt.messages import Sentence

_NEW_FOLDER = "Choose a new or empty folder"
_RESUME = "If no process works on it any more, resume it: raydt resume {run}"
_CHECKPOINTS = _RESUME + ". Until then, give its checkpoints/, of which the newest complete one is taken"
_RESTORE = "Restore the run folder from a copy, or run the replay again"
_REPLAYED = "Give the folder that replay wrote"
_STATES = "Give a run folder, its checkpoints/ or one of them, or a folder that save wrote with_examples=True"
_LAST_STATE = "Update its last state: raydt update {run} --out STATE"
_NEW_RUN = "Start a new run, of data without the deleted examples"
_MAY_CHANGE = (
    "Only cluster, checkpoint (except its path), erasure, output.report, output.quote_values and the folders of the "
    "data may change. For any other change, start a new run with raydt replay"
)
_CHANGE = "{key} = {now} here, {then} in the run"
_ALONE = "on Ray, the coordinator does all work"
_IN_PROCESS = "Set cluster.backend: in_process to avoid the start of Ray"

SENTENCES: dict[str, Sentence] = {
    # The folder of a run
    "relative_folder": "--out {out}: inside a Ray job the run folder must be an absolute path or a URI",
    "inaccessible": "cannot be accessed: {reason}",
    "file": ("this is a file", _NEW_FOLDER),
    "other_files": ("the folder is not empty, and holds no run", _NEW_FOLDER),
    "other_run": (
        "the folder is not empty: it holds a run ({status})",
        _NEW_FOLDER + ", or replace the run with --overwrite",
    ),
    "not_created": "cannot be created: {reason}",
    "not_writable": ("cannot be written", "Choose a folder of your own"),
    "other_writer": ("another process has written here", _NEW_FOLDER),
    "removed": ("the run folder was removed or replaced during the run; the run is lost", "Start the run again"),
    # No run, no state, no model
    "no_run": ("there is no run here", _REPLAYED),
    "no_summary": ("there is no finished run here", _REPLAYED),
    "saved_model": ("this is a model or a state, not a run", _REPLAYED),
    "sweep": ("this is a sweep, not a run, and a sweep cannot be resumed", "Run the sweep again with --overwrite"),
    "not_ended": ("the run has not ended", _RESUME),
    "unsaved": ("the run has not ended", _CHECKPOINTS),
    "interrupted": ("the run was interrupted, and left neither model nor last state", _CHECKPOINTS),
    "failed": ("the run has failed, and left neither model nor last state: {error}", _CHECKPOINTS),
    "no_states": ("there is no complete state here", "Run the replay again"),
    "no_state": ("there is no state here", _STATES),
    "model_only": ("this is a model without training rows and can only predict", _STATES),
    # Damage
    "damaged_config": ("the config of the run is damaged ({reason})", _RESTORE),
    "damaged_summary": ("the summary of the run is damaged: {problem}", _RESTORE),
    "missing_keys": "it lacks {keys}",
    "missing_part": ("is missing: a checkpoint lists it with {size} bytes", _RESTORE),
    "other_size": ("has {found} bytes: a checkpoint lists it with {size} bytes", _RESTORE),
    "table_schema": "the schema of a table cannot be read: {error}",
    "unfit": (
        "does not hold what a run needs: {reason}",
        "Restore the folder from a copy. If the folder is sound, this is a defect of raydt: please report it",
    ),
    "unexpected": ("unexpected {error}", "If the run has begun its log.jsonl, the place in the code is there"),
    # Where the work is done; {shards} is their number, if it is known, and what limits it
    "in_process": "one process does all the work",
    "where_with_rounds": "{place}; it asked its shards {times}",
    "with_shards": "on Ray: a coordinator and {shards}",
    "no_faster": _ALONE + ": shards would not make {learner} faster, and cluster.memory_limit sets no limit",
    "few_shards": _ALONE + ": {shards} would be no faster (auto: {reason})",
    "small": (_ALONE + ": shards would be faster from {size} on, and there are at most {live:,}", _IN_PROCESS),
    "fits": (_ALONE + ": shards would hold the examples from {size} on, and there are at most {live:,}", _IN_PROCESS),
    "shards_faster": _ALONE + " below {size}, and {shards} from there on, where shards are faster",
    "beyond_limit": _ALONE + " below {size}, and {shards} from there on, where the examples take more memory than "
    "cluster.memory_limit",
    "rows_read": "each shard reads for itself, of the first {rows}, {what}",
    "rows_read_there": (
        "each shard reads for itself, of the first {rows}, {what}, if every node has these files at the same path; "
        "otherwise the driver reads all rows and sends them"
    ),
    "own_columns": "the columns that it owns",
    "all_columns": "all columns",
    "rows_sent": "the driver reads all rows and sends them: {why}",
    "whole_rows": "the coordinator of {learner} needs whole rows",
    "unknown_ones": "the coordinator holds the ones of sparse features, as long as they are below cluster.memory_limit",
    "idle_shards": "more shards would have no work",
    "most_shards": "more shards have not been measured",
    "full_cluster": "the cluster has no room for more shards",
    "full_machine": "this machine has {cpus}",
    # Progress
    "starting_ray": "starting Ray on this machine, which takes some seconds",
    "starting": "starting {learner}: {where}",
    "holding_out": "training on {rest:.0%} of the rows, to score the {share:.0%} held out",
    "completed": "the run has completed; there is nothing to do",
    "report_missing": "the run has completed, only its report is missing",
    "from_beginning": "there is no complete checkpoint: starting at the first update",
    "continuing": "resuming from {unit} {place:,}",
    "continuing_checkpoint": "resuming from {unit} {place:,} (checkpoint of {time:%H:%M:%S})",
    "recovered": "recovered in {duration}, resuming from {unit} {place:,}",
    # Resuming with another config or other data
    "other_model": ("cannot resume with a different model config:", _MAY_CHANGE),
    "no_update_of_chapters": (
        "--from: a run that is kept in chapters takes in no state",
        "Change the table or topic that it follows, or start a new run from there",
    ),
    "other_tables": ("cannot resume with a different kind of tables or checkpoint path:", _MAY_CHANGE),
    "change": _CHANGE,
    "chapters_change": _CHANGE + " (a run is kept in chapters from its beginning to its end, or not at all)",
    "path_change": _CHANGE + " (the checkpoints of the run are there)",
    "predictions_change": _CHANGE + " (the table would begin or end in the middle of the run)",
    "rows_change": _CHANGE + " (the rows of the table would not be of one kind)",
    "more_changes": "and {changes} more",
    "edited_config": ("the checkpoint has another model config", "Restore config.yaml as the run wrote it"),
    "other_data": (
        "the data differ from those of the checkpoint:",
        "Restore the data (they may be in another folder: {options}), or start a new run",
    ),
    "other_fingerprint": "the fingerprints differ",
    # Updates between the parts of a run
    "updated_state": (
        "raydt update wrote this state, not a run",
        "Move the state out of the checkpoints, and give its folder to raydt resume with --from",
    ),
    "updated_since": (
        "raydt update has changed the run after update {update:,}, and no checkpoint has this change",
        "Give the state that raydt update wrote: raydt resume RUN --from STATE",
    ),
    "not_updated": (
        "raydt update has not changed this state",
        "Give the folder that raydt update --out wrote, or leave out --from",
    ),
    "unknown_state": (
        "{run} has no checkpoint that the state was made from: it is another run, or has been resumed since",
        _LAST_STATE,
    ),
    "later_tables": (
        "{run} no longer has the tables of the state: it is another run, or has been resumed since",
        _LAST_STATE,
    ),
    "other_digest": (
        "the state was not made from {checkpoint}: the digests differ",
        "Update the last state of this run",
    ),
    "running_numbers": (
        "raydt update has numbered the rows it inserted, and the next rows of the source have the same numbers",
        _NEW_RUN,
    ),
    # A warm-up that ends early
    "early_warmup": (
        "the warm-up ended after {updates:,} of {warmup:,} updates, at the first {op}",
        "If the first model needs more rows, insert them before it; else set stream.warmup to {updates}",
    ),
    # Checkpoints
    "checkpoint_failed": "a checkpoint could not be written: {error}",
    "no_checkpoint": (
        "the last {failed} checkpoints could not be written, and there is none before them: {cause}",
        "Fix the cause, then run raydt resume",
    ),
    "old_checkpoint": (
        "the last {failed} checkpoints could not be written, and the one before them is of update {last:,}: {cause}",
        "Fix the cause, then run raydt resume",
    ),
    "deadline_missed": (
        "erasure.deadline = {deadline} is missed: checkpoints may have held a deleted example for {age}. {cause}",
        "Fix the cause, then run raydt resume with --set erasure.deadline=null, and raydt purge",
    ),
    "late_checkpoint": "No checkpoint was written in time, or the clock was wrong when a process began",
    "checkpoint_skipped": ("checkpoint skipped: {problem}", "Using the one before"),
    "bad_checkpoints": (
        "no checkpoint can be used; the newest: {error}",
        "To start at the first update instead, move {folder} away, then run raydt resume {run}",
    ),
    "checkpoints_unreadable": "the checkpoints cannot be read: {error}",
    # Losses
    "no_rollback": "{lost}, and the run cannot roll back to a checkpoint now: {folder}: {error}",
    "cluster_gone": (
        "the Ray cluster at {address} no longer answers",
        "Start it again, or name another one with --address, then run raydt resume",
    ),
    "after_loss": "after the loss of a process, {error}; then run raydt resume",
    "restarts_spent": ("{restarts} in {minutes} did not help: {losses}", "{remedy}"),
    "intact_checkpoint": "The last checkpoint (update {update:,}) is intact. Resume from it: raydt resume {run}",
    "missing_checkpoint": "There is no checkpoint yet. Start at the first update: raydt resume {run}",
    "driver_lost": "the driver was lost",
    "resumed": "resumed after {ended}",
    "resumed_with_files": "resumed with new files of the change log",
    # The end
    "kept_model": "{updates} in {run} (model and state)",
    "kept_tables": "{updates} in {run} (tables, but no model)",
    "resume": "raydt resume {run} continues from update {update:,}",
    "resume_start": "raydt resume {run} starts at the first update",
    "interrupted_at": "interrupted at update {update:,}; {resume}",
    "no_report": (
        "the report could not be written: {error}",
        "The run is complete. Write its report: raydt report {run}",
    ),
    # Updates that a model refuses; {key} is the id, {later} the row that comes too late
    "refused": ("update {update}: {problem}{key}", "{remedy}; or set stream.on_error: skip"),
    "refused_id": (
        "update {update}: {problem}{key}",
        "{remedy}; or, if no later update names this id, set stream.on_error: skip",
    ),
    "early_deletion": (
        "update {update}: {problem}{key}; {later} inserts it later",
        "Move the deletion after the insertion",
    ),
    "early_insertion": (
        "update {update}: {problem}{key}; {later} deletes it later",
        "Move the deletion before the insertion",
    ),
    "unknown_update": "Update only live ids, and send the first row of an id as an insert",
}
