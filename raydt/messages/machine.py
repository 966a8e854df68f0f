"""Shortages of a process on its machine: memory, open files, room on a disk, packages."""

from raydt.messages import Sentence

SENTENCES: dict[str, Sentence] = {
    "no_memory": ("out of memory{asked}", "End other programs, or use a machine with more memory"),
    "process_files": ("too many open files", "Raise the limit of open files of this process (ulimit -n)"),
    "machine_files": ("too many open files in system", "End other programs: this machine has too many open files"),
    "other_package": (
        "raydt needs its own package {name!r}, but {origin} was imported under that name",
        "Run raydt in a process of its own, such as the command raydt",
    ),
    # What can be done about an error of a filesystem
    "forbidden": "Choose a folder that this user may write to",
    "read_only": "It is mounted read-only: choose another folder",
    "full": "Free some space, or choose another disk",
    "quota": "The quota of this user is used up: free some space, or choose another disk",
    "not_folder": "A part of the path is a file: choose another path",
    # Storage, after the place
    "not_written": "cannot be written: {reason}",
    "not_read": "cannot be read: {reason}",
}
