"""Errors of the files of a source: of finding and reading them, and of their content."""

from raydt.messages import Sentence

_KIND = "Check its kind: source.kind, --kind, or the ending of its name"
_AGAIN = "Copy or write it again"
_COMPLETE = "Check that the file is complete and readable"
_START_AGAIN = "Start the run again, and leave the files of the source as they are until it has ended"
_ONE_COLUMN = "the header is one column, {header}"

SENTENCES: dict[str, Sentence] = {
    # Finding them
    "nothing": ("no such file", "Check the path; in a folder, raydt reads {suffixes}"),
    "no_file": (
        "this is a pipe or a device; raydt reads rows more than once, and shards read them, too",
        "Write its content to a file, and name that",
    ),
    "web": (
        "raydt reads no rows from web servers, which need not give the same bytes twice",
        "Download the file, and name the copy",
    ),
    "absent": ("the file does not exist", "Check the path"),
    "twice": ("two entries of source.path name this file, {first!r} and {second!r}", "Name each file once"),
    "nul": ("the path holds a NUL character", "Correct the path"),
    "no_home": ("this user has no home directory", "Write the path in full"),
    "unclear": ("the kind of the file is unclear", "End its name in one of {suffixes}{or_else}"),
    "assumed": (
        "Its name says no format, so it was read as {kind}, as the source of the model. Rename it by its format, for "
        "example .csv, or add --kind where the command has it"
    ),
    "many_kinds": ("files of several kinds are here, such as {names}", "Name files of one kind"),
    "table": (
        "this folder is {form} (it has {log}), and its files hold rows that the table deleted",
        "Read the table with {reader}. Write its rows to a Parquet file outside the folder, and name it{or_else}",
    ),
    # Reading them
    "removed": ("the file was removed after it had been found", _START_AGAIN),
    "changed": ("the file was changed after it had been found", _START_AGAIN),
    "unreadable": ("the file cannot be read ({reason})", _COMPLETE),
    "unreadable_as": ("the file cannot be read as {kind} ({reason})", _COMPLETE),
    "unreadable_from": ("from this row on, the file cannot be read as {kind} ({reason})", _COMPLETE),
    "no_table": (
        "the files cannot be put into one table ({reason})",
        "Give their columns the same types, or drop source.permutation",
    ),
    # What is in them
    "empty": ("the file is empty (0 bytes)", "Write it again, or check the path"),
    "no_rows": ("the file has no rows", "Check source.path"),
    "encrypted": (
        "the Parquet file is encrypted, and raydt has no keys for it",
        "Write the rows to a file that is not encrypted, with a program that has the keys",
    ),
    "cut_off": ("the file is cut off: its end is missing", _AGAIN),
    "no_beginning": ("the beginning of the file is missing", _AGAIN),
    "other_kind": ("the file is {found}, not {wanted}", _KIND),
    "not_kind": ("the file is not {wanted}", _KIND),
    "no_header": ("the file has no row of column names", "Write it as the first row"),
    "undecoded_name": ("the column name {name} is not UTF-8 text", "Rename the column"),
    "delimiter": (_ONE_COLUMN, "Set source.delimiter: {delimiter}"),
    "no_tabs": (_ONE_COLUMN, "Separate the columns by tabs, as the name of the file says, or rename the file"),
    "no_commas": (_ONE_COLUMN, "Separate the columns by commas, or by tabs in a file called .tsv"),
    "decimal_comma": (
        "{value} looks like a number with a decimal comma",
        "Write decimal points, or list the column under source.categorical if its values are names",
    ),
    "long_line": ("line {line:,} is longer than {most} MiB", _KIND),
    "json_array": ("the file is one JSON array", "Write one JSON object in each line"),
    "no_label": ("the file begins with {text}, but each line must begin with a label, a number", _KIND),
}
