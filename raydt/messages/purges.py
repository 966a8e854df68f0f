"""Errors of a purge: the folder, its ids, its age, and its receipt."""

from raydt.messages import Sentence

SENTENCES: dict[str, Sentence] = {
    # Ids
    "no_ids": ("the file has no id", "Check that it is the right file"),
    "live_id": (
        "id {id}: its example is live in this folder, and a purge deletes no live example",
        "Delete it with raydt update --delete, which writes another state, and then remove this folder. Nothing has "
        "been changed",
    ),
    # Age; {clock} is what says when the run ended, or the state was written
    "older_than": "--older-than {given}: a length of time {problem}",
    "clocks": (
        "{clock} is {then}, later than the time of this machine ({here}), so the age for --older-than is unknown",
        "Set the clock of this machine if it is slow, or else purge without --older-than. Nothing has been changed",
    ),
    # Folder
    "not_completed": ("the run is {status}, not completed", "Complete it with raydt resume, or remove the folder"),
    "end_time": "ended is not a time ({reason})",
    "other_digest": ("the last state has another digest than the summary", "Run raydt audit to find what was changed"),
    "checkpoint": ("this is a checkpoint of a run, whose rows lie elsewhere", "Give the folder of the run"),
    "successive": (
        "these are successive states",
        "Give the newest, {newest}. The next raydt update {folder} with --keep 1 removes the older ones, in which "
        "deleted rows live",
    ),
    "link": (
        "this is a symbolic link, and a purge follows no links",
        "Put the target of the link in its place, or remove the link. Nothing has been changed",
    ),
    "deleted_in_state": "{state}, which raydt update made from this run by {deletes} deletions: these examples live "
    "in the run and stay in it. To delete them here, too: raydt resume {run} --from {state}, then purge the run again",
    "arrays": "arrays of the state: this version knows the rows of its format only",
    # Chapters
    "needed_chapter": (
        "the next chapter goes on from this one, and has no checkpoint of its own yet",
        "Purge it once the next chapter has written a checkpoint",
    ),
    "no_chapter": ("no chapter has ended that can be purged", "Purge the run once a chapter is closed"),
    "chain_of_chapters": (
        "--receipts: each chapter is a model of its own, with a receipt of its own",
        "Purge one chapter after the other, RUN/chapters/000001 and so on",
    ),
    "later_deleted": "states of the chapters: examples that were deleted in a later chapter stay there until the "
    "chapter expires (follow.keep, follow.keep_hours), or its state does (checkpoint.max_age)",
    # Receipt
    "damaged": ("the file is damaged ({reason})", "Restore it from a copy, or move it away"),
    "other_format": "the format is {found!r}, this version reads {wanted!r}",
    "entry": "an entry has values of other types",
}
