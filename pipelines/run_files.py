"""Names of the files in a run folder: code that removes or replaces files there touches no others.

A file that a job writes under a name of its own has to be listed here; every net of purges finds one that is not.
"""

from __future__ import annotations

import re

from raydt.folders.checkpoint import is_checkpoint_file, is_checkpoint_folder
from raydt.folders.folder import final_name
from raydt.folders.lock import LOCK
from raydt.folders.manifest import is_folder_file

PURGES = "purge.json"
#: The chain of receipts of requests that came through the source, and the key of the ids in it.
RECEIPTS, RECEIPT_KEY = "receipts.jsonl", "receipts.key"

#: Of a run or a sweep, and its folders.
FILES = frozenset(
    {
        LOCK,
        PURGES,
        RECEIPTS,
        RECEIPT_KEY,
        "config.yaml",
        "log.jsonl",
        "summary.json",
        "report.html",
        "plans.jsonl",
        "status.json",
        f".report.html{LOCK}",
    }
    | {"sweep.json", "sweep.html", "sweep.parquet", "curves.parquet"}
)
#: What there can be of a run before anything that is worth keeping.
BEGINNING = ("config.yaml", "log.jsonl", "plans.jsonl", "status.json", RECEIPTS, RECEIPT_KEY)
TABLES = ("metrics", "events", "predictions", "quarantine", "alarms", "keys")
#: Column of the latest event time, in metrics and alarms of a stream that has times.
TIME = "time"

MODEL, STATES = "model", "checkpoints"
#: Of a run that is kept in chapters, each of which is the folder of a run, too; and how it names them.
CHAPTERS = "chapters"
CHAPTER = re.compile(rf"{CHAPTERS}/(\d{{6,}})")

#: A part of a table, hidden or not; and several while they become one.
PART = re.compile(r"\.?part-(\d{5,})\.parquet")
MERGING = ".merging.parquet"


def is_of_run(path: str) -> bool:
    """Return True if a run writes files of this name, complete or not; checkpoints elsewhere as in ``checkpoints``."""
    folder, _, name = _in_chapter(path).partition("/")
    if not name:
        return final_name(folder) in FILES
    if folder in TABLES:
        return name == MERGING or PART.fullmatch(name) is not None
    if folder == MODEL:
        return is_folder_file(name)
    return folder == STATES and (name == LOCK or is_checkpoint_file(name))


def is_named_by_run(path: str) -> bool:
    """Return True if a run writes files or folders of this name."""
    if path == CHAPTERS or CHAPTER.fullmatch(path):
        return True
    path = _in_chapter(path)
    folder, _, name = path.partition("/")
    of_folder = path in (*TABLES, MODEL, STATES) or (folder == STATES and is_checkpoint_folder(name))
    return of_folder or is_of_run(path)


def _in_chapter(path: str) -> str:
    """Return the name of a file within its chapter, if it is in one."""
    found = CHAPTER.match(path)
    return path[found.end() + 1 :] if found and path[found.end() : found.end() + 1] == "/" else path


def is_of_state(name: str) -> bool:
    """Return True if a state outside a run has files of this name, complete or not."""
    return final_name(name) in (LOCK, PURGES) or is_folder_file(name)


def is_unfinished(name: str) -> bool:
    """Return True if a file has this name only until it is complete; a table's part may be hidden for longer."""
    base = name.rpartition("/")[2]
    return base.startswith(".") and base != LOCK
