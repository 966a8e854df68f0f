"""Errors of a file or folder that a command is to write: its name, its place, and the storage."""

from raydt.messages import Sentence

SENTENCES: dict[str, Sentence] = {
    # Names
    "not_local": ("--out must be a local file", "Copy the file to remote storage afterwards"),
    "other_name": ("--out must be a {kind} file", "Use a name that ends in {ends}"),
    "is_folder": ("--out is a folder", "Give the name of a new {kind} file"),
    "exists": ("the file exists", "Choose another name, or replace the file with --overwrite"),
    "no_page": ("the file exists, and raydt did not write it", "Choose another name with --out"),
    # Inputs and outputs; {name} is what the user calls an input
    "same": ("{option} {out}: this is {name} itself", "Choose another path"),
    "around_input": ("{option} {out}: {name} lies in it ({path})", "Choose another path"),
    "within_input": ("{option} {out}: it lies in {name} ({path})", "Choose another path"),
    "within_run": ("{option} {out}: it lies in {owner}, a run, model or state of raydt", "Choose another path"),
    # Storage; {what} is what the file holds
    "not_written": ("{what} cannot be written: {reason}", "Choose another path with --out"),
    "log_records": "warning: {file}: the log lacks records: {reason}",
}
