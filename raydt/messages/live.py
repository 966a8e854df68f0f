"""Sources that a run follows: tables and topics."""

from raydt.messages import Sentence

SENTENCES: dict[str, Sentence] = {
    "no_library": (
        "this source needs the library {library}, which is not installed",
        "Install it: pip install 'raydt[{extra}]'",
    ),
    "no_width": ("sparse features of a live source need source.n_features", "Set it to the number there can be"),
    # Delta
    "no_delta": ("this is no Delta table that can be read ({reason})", "Name the folder that has _delta_log in it"),
    "unreadable": (
        "the library deltalake cannot read this Delta table: {reason}",
        "Upgrade deltalake, or drop from the table the feature that deltalake does not read",
    ),
    "unreadable_version": (
        "version {version} cannot be read: {reason}",
        "Correct the table or the access to it, and resume the run; or begin a new run from a version that can be read",
    ),
    "feature": (
        "version {version} has a table feature that raydt does not read: {feature}",
        "Drop the feature (ALTER TABLE ... DROP FEATURE) and begin a new run, or read a copy of the table without it",
    ),
    "lost_column": (
        "the file {path} has no column {column}, although the log of the table counts values in the column",
        "Have the table be written again with the names that its columns have now, and begin a new run",
    ),
    "outside": (
        "the file {path} is outside of the folder of the table, as in a shallow clone",
        "Follow the table that was cloned, or a deep clone",
    ),
    "history_gone": (
        "files that the changes before version {version} need are gone: vacuum removed them, or the log's retention",
        "Begin a new run, whose first state is the newest version, and keep files for as long as the run may be away",
    ),
    "other_table": (
        "another table is in the place of the one that the run has read up to version {version}",
        "Begin a new run",
    ),
    "no_column": (
        "version {version} has no column {column} any more, which the run reads",
        "Begin a new run without the column, or bring the column back",
    ),
    "other_type": (
        "version {version} has values that do not fit the types that columns have now: {reason}",
        "Begin a new run, whose first state is the newest version",
    ),
    "away": "the source does not answer ({reason})",
    # Kafka
    "no_topic": ("this names no topic", "Write source.path as kafka://HOST:PORT,HOST:PORT/TOPIC"),
    "no_broker": (
        "the topic cannot be read ({reason})",
        "Check the brokers and the topic of source.path, and source.properties",
    ),
    "no_properties": ("the file of source.properties cannot be read ({reason})", "Correct the path"),
    "expired": (
        "offset {offset} of partition {partition} is gone: the retention of the topic was shorter",
        "Begin a new run, and have retention.ms of the topic be longer than a run may be away",
    ),
    "beyond_end": (
        "partition {partition} ends before offset {offset}, up to which the run has read: the topic was deleted and "
        "made again, or lost messages",
        "Begin a new run",
    ),
    "other_topic": (
        "the topic was deleted and made again since the run has read {place}",
        "Begin a new run",
    ),
    "no_partition": "the brokers do not know partition {partition} of the topic now",
    "no_row": (
        "the message is no JSON object with values of these types: {text}",
        "Correct what writes the topic, or set stream.on_error: skip",
    ),
    "rounded": (
        "column {column!r} has an integer beyond 2**53, which float64 cannot hold exactly: {text}",
        "Scale the column where the topic is written, list it under source.text, or set stream.on_error: skip",
    ),
    "no_change": (
        "the message has neither an operation nor before nor after, so it is no change in Debezium's envelope: {text}",
        "Set value.converter.schemas.enable=false for its JSON converter, or stream.on_error: skip",
    ),
    # Following
    "has_an_end": (
        "source.kind: {kind} has an end, and only a table or topic that goes on can be followed",
        "Use raydt replay, or a source of kind delta or kafka",
    ),
    "remote_run": (
        "the folder of a run of a live source has to be on a local disk, where a plan is safe before it is used",
        "Choose a local folder; checkpoint.path may be a URI",
    ),
    "damaged_plans": ("a line of the plans of the run is damaged", "Begin a new run"),
    "waiting": "{error}; the run waits for it",
    "waiting_row": "{error}; the run waits until a newer row of this id is good, or deletes it",
    "repaired": "the bad row was repaired, after {duration}",
    "back": "the source answers again, after {duration}",
}
