"""Errors of a stream of updates: its options, its rows in their order, and deletion logs."""

from raydt.messages import OR_SKIP, Sentence

SENTENCES: dict[str, Sentence] = {
    # Options
    "step": "must be a number of rows, or a share of all with a decimal point: more than 0, at most 1.0",
    "mixed_steps": ("stream.steps mixes shares with the whole number 1, one row", "Write 1.0 for all rows"),
    "warmup_beyond_step": "stream.warmup ({warmup}) must not exceed the first of stream.steps ({first})",
    "warmup_beyond_rows": (
        "stream.warmup = {warmup} exceeds the first of stream.steps, {first} of {rows} rows",
        "Set stream.warmup to at most {first}",
    ),
    "warmup_beyond_window": "stream.warmup ({warmup}) must not exceed stream.window ({window})",
    "no_duration": "stream.duration must be longer than 0",
    "mixed_units": "stream.duration and stream.lateness must both have a unit, or both be plain numbers",
    "lateness_beyond_duration": "stream.lateness ({lateness}) must be less than stream.duration ({duration})",
    "duration_of_other_kind": (
        "stream.duration = {duration}: column {column!r} (source.ts) holds {what}",
        "Write durations {wanted}",
    ),
    "time_or_number": (
        "must be a number with a unit of us, ms, s, m (or min), h, d, such as 1h30m; or a whole number, in the unit of "
        "an integer time column"
    ),
    "whole_microseconds": "must be a whole number of microseconds",
    "longest_time": "must be at most 146,000 years",
    "length_of_time": "must be a length of time with a unit of ms, s, m (or min), h, d, such as 12h or 7d",
    # Streams and sources that do not fit each other
    "changelog_source": ("source.op makes the source a change log", "Set stream.model: changelog or drop source.op"),
    "no_changelog": "stream.model: changelog needs source.op, the column of operations, and source.id",
    "no_label_column": "source.label: null reads rows for prediction only; a stream needs the label column",
    "batches_after_update": (
        "stream.model: batches inserts its rows again and again, including rows that an update has deleted, so the run "
        "cannot continue from an update"
    ),
    # Rows in their order
    "live_id": (
        "id {id}: {problem}",
        "Give every row its own id, or remove source.id to number the rows" + OR_SKIP,
    ),
    "nothing_live": (
        "this {op} comes before the first insertion, by which the warm-up begins",
        "Begin with an insertion" + OR_SKIP,
    ),
    "late_row": (
        "it is late: its time is {by} before the latest so far, stream.lateness allows {lateness}",
        "Sort the rows by time or raise stream.lateness" + OR_SKIP,
    ),
    # Deletion logs, and other files of ids; {what} is what the file is, {owner} whose ids it holds
    "many_logs": ("{files} files are here, but a {what} is one file", "Name one, or merge them in the order you want"),
    "no_id_column": ("a {what} needs this column", "Its columns are {columns}; rename the one that holds the ids"),
    "ids_and_subjects": ("the file names subjects here and ids in column {ids}", "Keep the column that is meant"),
    "no_subjects": (
        "the {owner} does not say whose row each is",
        "Set source.subject to the column of persons, or give the ids of the rows in a column id",
    ),
    "no_subject": (
        "subject {subject} has no live row",
        "Delete only subjects that have rows, and each once" + OR_SKIP,
    ),
    "repeated_column": ("two columns have this name", "Correct the {what}"),
    "other_ids": ("the ids are {found}, but those of the {owner} are {wanted}", "{remedy}"),
    "no_id": ("no id", "Correct the {what}"),
    "not_integer": ("{value} is not an integer, as the {owner}'s ids are", "Correct the {what}"),
    "wide_id": ("the id does not fit into a signed 64-bit integer", "Correct the {what}"),
    "other_kind": ("{value} differs in kind from the rows before it ({kind})", "Correct the {what}"),
    "no_positions": ("it holds {kind}, not numbers of rows", "Correct the {what}"),
    "not_position": ("it must be a number of rows, 0 or more", "Correct the {what}"),
    "changed_log": (
        "the deletion log {file} has changed since this position was saved",
        "Put back the log as it was, or start a new run",
    ),
}
