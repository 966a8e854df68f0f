"""The article about one receipt of a chain: who asked, when, what was deleted, rebuilt, and where copies may remain.

Invariant: everything on the page is in the entry, or a hash of its line. No id is on it: an entry has hashes of ids.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from raydt.messages import message
from raydt.presentation.blocks import Article, Block, Code, Fact, Facts, Items, Section, Text, pairs
from raydt.presentation.words import count, counted, moment
from raydt.sessions.receipt_chain import Chain
from raydt.sessions.receipt_history import undone_by


def receipt_article(chain: Chain, number: int, file: str) -> Article:
    """Return the article about entry ``number``, from 1 on, of the chain in ``file``."""
    entry, undone = chain.entries[number - 1], undone_by(chain).get(number)
    notes = [message("receipts.undone", by=undone)] if undone is not None else []
    notes += [message("receipts.after_gap")] if number in chain.gaps else []
    head: list[Block] = [
        Text(f"{in_words(entry)}.", "verdict plain" if undone is not None else "verdict good"),
        *(Text(f"{note}.", "notice bad") for note in notes),
        pairs(_facts(entry, number, len(chain.entries))),
    ]
    digests = {
        "Model before": entry["digest_before"],
        "Model after": entry["digest_after"],
        "Options of the learner": entry["options_hash"],
        "This receipt": chain.hashes[number - 1],
        "The receipt before it": entry["previous"],
        "Signed by": entry.get("public_key"),
        "Signature": entry.get("signature"),
    }
    shown = [Fact(name, str(value)) for name, value in digests.items() if value]
    sections = [
        *_sections(entry),
        Section("Digests", [Text(f"{message('receipts.digests')}."), Facts(shown, "digests")], "digests"),
        Section("Check it", [Text(f"{message('receipts.check')}."), Code(_command(file))], "check"),
    ]
    return Article(f"Receipt {number}", message("receipts.of_chain", file=file), head, sections)


def in_words(entry: Mapping[str, Any]) -> str:
    """Return in one sentence what a receipt is about."""
    at = moment(entry["time"])
    if "purged" in entry:
        ids = entry["purged"]["ids"]
        of = message("receipts.of_all") if ids is None else message("receipts.of_rows", rows=counted(len(ids), "row"))
        return message("receipts.what_purged", time=at, of=of)
    if "rolled_back" in entry:
        to = entry["rolled_back"]
        return message("receipts.what_back" if to else "receipts.what_back_first", time=at, to=to)
    if "source" in entry and not entry["deleted"]:
        return message("receipts.what_followed", time=at, updates=_updates(entry))
    deleted, inserted = counted(len(entry["deleted"]), "row"), counted(len(entry["inserted"]), "row")
    if not entry["inserted"]:
        return message("receipts.what_deleted", time=at, rows=deleted)
    return message("receipts.what_changed", time=at, deleted=deleted, inserted=inserted)


def _facts(entry: Mapping[str, Any], number: int, total: int) -> list[tuple[str, str]]:
    """Return who asked, when, and how much; whoever adds what a receipt is about adds a line here."""
    changed = "purged" not in entry and "rolled_back" not in entry
    return [
        ("Asked by, or case", entry.get("note") or message("receipts.no_note")),
        ("Asked for by the source in", entry.get("source", {}).get("place", "")),
        ("Updates of the run", _updates(entry)),
        ("Time", moment(entry["time"])),
        ("Rows deleted", count(len(entry["deleted"])) if changed else ""),
        ("Keys whose models changed", count(len(entry["keys"])) if entry.get("keys") else ""),
        ("Subjects", _subjects(entry)),
        ("Not there", _missing(entry)),
        ("Rows inserted", count(len(entry["inserted"])) if changed else ""),
        ("Rows in the model", f"{count(entry['active_before'])} before, {count(entry['active'])} after"),
        ("Learner", f"{entry['learner']}, raydt {entry['raydt_version']}"),
        ("Receipt", f"{number} of {total}"),
    ]


def _updates(entry: Mapping[str, Any]) -> str:
    """Return the updates of a run that an entry is about, the last one included."""
    first, stop = entry.get("source", {}).get("updates", (0, 0))
    return f"{count(first)} to {count(stop - 1)}" if stop > first else ""


def _subjects(entry: Mapping[str, Any]) -> str:
    """Return of how many persons, or other subjects, all rows were deleted."""
    named = len(entry.get("subjects", ()))
    return message("receipts.subjects", subjects=count(named)) if named else ""


def _missing(entry: Mapping[str, Any]) -> str:
    """Return how much of what was asked for had no live row."""
    named = len(entry.get("missing", ()))
    return message("receipts.missing", names=count(named)) if named else ""


def _sections(entry: Mapping[str, Any]) -> list[Section]:
    """Return what was done to the model, or to files, and where copies may remain."""
    purged = entry.get("purged")
    if purged is not None:
        files = [*purged["replaced"], *purged["rewritten"]]
        done: list[Block] = [Items(files) if files else Text(f"{message('receipts.no_files')}.", "none")]
        return [Section("Files changed", done, "files"), _remaining(purged["out_of_reach"])]
    if "rolled_back" in entry:
        return []
    rebuilt: Block = pairs((name.capitalize(), value) for name, value in entry.get("work", ()))
    if not entry.get("work"):
        said = "receipts.no_work" if "work" in entry else "receipts.not_recorded"
        rebuilt = Text(f"{message(said)}.", "none")
    return [
        Section("What was rebuilt", [rebuilt], "rebuilt"),
        *([_remaining(entry.get("copies"))] if entry["deleted"] else []),
    ]


def _remaining(places: list[str] | None) -> Section:
    """Return where copies of deleted rows may remain; None if the receipt does not say it."""
    blocks: list[Block] = [Text(f"{message('receipts.remains')}:"), Items(places or [])]
    if places is None:
        blocks = [Text(f"{message('receipts.not_recorded')}.", "none")]
    return Section("Where copies may remain", blocks, "copies")


def _command(file: str) -> str:
    return f"raydt verify {file} --id ID --receipt-key KEYFILE"
