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
    "history_gone": (
        "files that the changes before version {version} need are gone: vacuum removed them, or the log's retention",
        "Begin a new run, whose first state is the newest version, and keep files for as long as the run may be away",
    ),
    "other_table": (
        "the table has no version {version} any more, which the run has read: another table is in its place",
        "Begin a new run",
    ),
    "away": "the source does not answer ({reason})",
}
