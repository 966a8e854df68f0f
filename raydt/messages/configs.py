"""Errors and warnings of a config: its file, its keys and values, and sections that do not fit each other."""

from raydt.messages import Sentence

_UNKNOWN = "unknown key"
_INVALID = "not valid YAML: {problem}"

SENTENCES: dict[str, Sentence] = {
    # Values; the parameters are pydantic's
    "mapping": "must be a mapping of keys",
    "least": "must be at least {ge}",
    "more": "must be greater than {gt}",
    "most": "must be at most {le}",
    "less": "must be less than {lt}",
    "integer": "must be a whole number",
    "number": "must be a number",
    "finite": "must be a finite number",
    "text": "must be text",
    "boolean": "must be true or false",
    "list": "must be a list, such as [a, b]",
    "empty_list": "must not be empty",
    "short_text": "must have a length of at least {min_length}",
    "long_text": "must have a length of at most {max_length}",
    "choice": "must be one of {choices}",
    "misspelt_choice": ("must be one of {choices}", "Did you mean {close!r}?"),
    # Ids, subjects and keys, as validate shows them
    "names": "{part} ({column}): {kind}, {why}",
    "typed_names": "as the first rows are",
    "declared_names": "as source.{option} says",
    "unlike_names": "since {value} is not how an integer is written (source.integers, if it is one)",
    # Keys
    "missing_key": ("missing", "Add {example}"),
    "missing_choice": ("missing", "Choose one of {choices}"),
    "unknown_key": (_UNKNOWN, "Valid keys are {keys}"),
    "misspelt_key": (_UNKNOWN, "Did you mean {close}?"),
    "foreign_key": (_UNKNOWN, "It is used only with {users}"),
    # The file
    "unreadable": "the config cannot be read: {reason}",
    "data_file": ("this looks like data, not a config", "Give the YAML file that names the data under source.path"),
    "large_file": ("the file is larger than {most} MiB", "Is it a config?"),
    "not_utf8": ("not UTF-8 text", "Save the file as UTF-8"),
    "no_sections": "a config is a mapping with the sections {sections}; this is {found}",
    # YAML
    "tag": ("tags such as {tag} are not allowed", "Remove the tag"),
    "wide_integer": ("the integer {value} does not fit into 64 bits", "Write a smaller one"),
    "many_values": ("the config has more than {most:,} values", "Use fewer aliases"),
    "endless_value": ("this value contains itself by an alias", "Write out the value"),
    "deep_value": ("values are nested deeper than {most} levels", "Flatten them"),
    "key_kind": ("the key {key!r} is not text", "Write the key in quotes"),
    "repeated_key": ("the key {key!r} appears twice", "Keep one of them"),
    "character": ("the character U+{code:04X} is not allowed in YAML", "Remove it"),
    "tab": ("not valid YAML: a tab where only spaces are allowed", "Indent with spaces"),
    "second_document": ("not valid YAML: a second document", "Keep one"),
    "missing_colon": (_INVALID, "Is a colon missing above, or is the indentation wrong?"),
    "indentation": (_INVALID, "Is the indentation right?"),
    "not_yaml": _INVALID,
    # --set
    "override_utf8": "not UTF-8 text",
    "override": ("must have the form a.b=value", "Write for example --set cluster.shards=4"),
    "long_key": ("no key has {parts:,} parts", "Write a key of the config, such as cluster.shards"),
    "no_section": ("{part} is a value, not a section", "Set it as a whole"),
    # Keys that do not fit each other
    "no_times": (
        "stream.model: time_window needs event times",
        "Name the column that holds them under source.ts",
    ),
    "no_warmup": (
        "stream.warmup = 0: {learner} {reason}",
        "Set stream.warmup to 20 rows or more (some hundreds make a better first model), or stream.model: training for "
        "one model of all rows",
    ),
    "late_checkpoints": (
        "erasure.deadline = {deadline} needs checkpoints that drop deleted examples by then",
        "Set checkpoint.max_age to at most {deadline}",
    ),
    "rare_checkpoints": (
        "max_age = {max_age} needs a checkpoint at least every {max_age}",
        "Set checkpoint.every_seconds to at most {max_age}, in seconds",
    ),
    "no_wait": (
        "stream.on_error: wait is for a source that is followed, where a newer row can repair a bad one; source.kind: "
        "{kind} has an end",
        "Use error or skip, or a source of kind delta or kafka",
    ),
    "no_chapters": (
        "follow.chapter_updates and chapter_hours: source.kind: {kind} has an end, and its run no chapters",
        "Remove them, or use a source of kind delta or kafka",
    ),
    "chapters_elsewhere": (
        "checkpoint.path: a run in chapters keeps its checkpoints in the folder of each chapter",
        "Remove checkpoint.path, or follow.chapter_updates and chapter_hours",
    ),
    "left_out": "left out, as the learner or stream model chosen instead has no such options: {keys}",
    "unused_key": ("{key} is not used in process", "Remove cluster.{key}, or set cluster.backend to ray"),
    "needless_address": (
        "--address {address}: the config runs in this process, without Ray",
        "Remove --address, or add --set cluster.backend=ray",
    ),
    "idle_shards": (
        "cluster.shards = {shards}: {cause} leave work for only {most} shards",
        "Set cluster.shards to at most {most}, or to auto",
    ),
    "many_shards": (
        "cluster.shards = {shards}: each shard is a process of a private Ray on this machine, which has {cpus} CPUs",
        "Set cluster.shards to at most {most}, or name a cluster in cluster.address",
    ),
    # checkpoint.path
    "run_path": (
        "this is the run folder itself",
        "Remove checkpoint.path to use its folder checkpoints, or choose another folder",
    ),
    "file_path": ("{file} is a file", "Set checkpoint.path to a folder, or remove it"),
    "closed_path": ("{folder} cannot be written", "Set checkpoint.path to a folder of your own"),
    "used_path": (
        "the folder holds checkpoints of another run",
        "Choose another folder, or replace the checkpoints with --overwrite",
    ),
    "foreign_path": ("{file} is not part of a checkpoint", "Choose another folder"),
    # Warnings
    "number_like": "column {column!r} {doubt}, or list the column under source.categorical if they are names",
    "unknown_class_weight": (
        "learner.class_weight names {labels}, which no row so far has as its label",
        "Correct the label if it is misspelt: it has no effect until a row has it",
    ),
    "many_classes": (
        "column {column!r} has {classes:,} different labels in the first {rows:,} rows, and each is a class: time and "
        "memory grow with nodes times classes, and more than {most:,} are refused",
        "Name another column in source.label if the labels are ids, learn them as numbers ({numeric}), or list under "
        "source.positive the labels that make one class",
    ),
    "all_warmup": (
        "stream.warmup = {warmup:,} takes all {rows}: no row will be predicted and scored",
        "For one model of all rows with a score, use raydt train",
    ),
    "deleting_stream": (
        "stream.model = {model}: train inserts all rows and deletes none",
        "Use raydt replay, or remove the stream section and delete from the trained model with raydt update",
    ),
    "unbounded_copies": (
        "checkpoint.max_age and erasure.deadline bound checkpoints only: ids and values in {places} stay until raydt "
        "purge after the run",
        "To write no ids and values, set output.predictions: false and output.quote_values: false",
    ),
}
