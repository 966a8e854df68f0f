"""Receipts, outcomes of change logs, chains of receipts and purges as blocks for a terminal."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pipelines.display import error, share, updates
from pipelines.terminal import lines, terminal
from raydt.examples.targets import NUMBERS
from raydt.messages import message
from raydt.presentation.blocks import Items, Row, Table, Text, pairs
from raydt.presentation.words import counted, moment, names
from raydt.sessions.receipt_chain import of_origin

if TYPE_CHECKING:
    from pipelines.updating import ChangesResult
    from raydt.sessions.receipt import Receipt

#: What a state is beside the last receipt of a chain.
_OF_STATE = {True: "commands.last_receipt", False: "commands.other_receipt", None: "commands.other_moment"}
#: Deletions of a receipt, and names that were not there, that are printed.
SHOWN = 10


def receipt_lines(receipt: Receipt, state: str, out: str | None) -> str:
    """Return the changes made by an update; ``out`` is None if nothing was written."""
    deletes, inserts, words = len(receipt.ids), len(receipt.inserted), receipt.words
    rows = [
        ("state", f"{state} -> {out}" if out is not None else f"{state}; nothing is written"),
        ("updates", f"{deletes:,} deleted, {inserts:,} inserted" + (f"; {words.counts}" if words.counts else "")),
        *_keys_rows(receipt),
        *([("subjects", f"{len(receipt.subjects):,}, all of whose rows are deleted")] if receipt.subjects else ()),
        *([("not there", _missing(receipt))] if receipt.missing else ()),
        *_model_rows(receipt),
    ]
    following = Text("" if out is None else f"next: raydt audit {shlex.quote(out)}")
    return terminal(pairs(rows), *_deletion_blocks(receipt), following)


def changes_lines(done: ChangesResult, state: str, *, dry_run: bool) -> str:
    """Return the outcome of change logs: what they changed, and how well their rows were predicted before."""
    known, receipt = names(done.known, 3), done.receipt
    if receipt is None:
        told = message("commands.no_updates", files=names(done.files, 3)) if done.files else ""
        told = told or message("commands.known_files", files=known)
        return terminal(pairs([("state", done.state), ("files", told)]))
    skipped = [f"{done.counts['skipped']:,} bad rows"] * bool(done.counts["skipped"])
    changed, more = updates({**done.counts, "updates": done.updates}), receipt.words.counts
    rows = [
        ("state", f"{state}; nothing is written" if dry_run else f"{state} -> {done.state}"),
        ("files", names(done.files, 3)),
        ("passed over", message("commands.passed_over", files=known) if done.known else ""),
        *_keys_rows(receipt),
        ("updates", ", ".join([changed, *skipped]) + (f"; {more}" if more else "")),
        *_model_rows(receipt, _windowed(done.scores)),
        ("report", "" if dry_run else done.state.rpartition("/")[0] + "/report.html"),
    ]
    return terminal(pairs(rows), *_deletion_blocks(receipt))


def _keys_rows(receipt: Receipt) -> list[tuple[str, str]]:
    """Return how many of the models by key have changed."""
    return [("models", f"{counted(len(receipt.by_key), 'key')} changed")] if receipt.by_key else []


def _windowed(scores: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the score of the rows of an update and of all before, beside those of the trivial predictors."""
    name, written, rival = ("mse", error, "mean") if "mse" in scores else ("accuracy", share, "majority")
    rows = []
    for title, prefix in (("now", "window_"), ("so far", "")):
        if scores.get(prefix + name) is not None:
            value, last, best = (written(scores[prefix + one]) for one in (name, "no_change", rival))
            rows.append((f"{name} {title}", f"{value}  (no change {last}, {rival} {best})"))
    return rows


def _model_rows(receipt: Receipt, scores: Sequence[tuple[str, str]] = ()) -> list[tuple[str, str]]:
    """Return what the call did to the model; ``scores`` are those of its rows."""
    return [
        ("live", f"{counted(receipt.active, 'example')}, {receipt.active_before:,} before"),
        *scores,
        *receipt.words.lines,
        ("note", receipt.note),
        ("digest before", str(receipt.digest_before)),
        ("digest after", str(receipt.digest_after)),
    ]


def _deletion_blocks(receipt: Receipt) -> list[Table | Text | Items]:
    """Return the first deletions, and where copies may remain; nothing if there are none."""
    if not len(receipt.ids):
        return []
    return [_deletions(receipt), Text(message("commands.copies")), Items(receipt.copies)]


def _missing(receipt: Receipt) -> str:
    """Return what a request named that had no live example: deleted before, or never inserted."""
    first, more = ", ".join(map(str, receipt.missing[:SHOWN])), len(receipt.missing) - SHOWN
    return f"{len(receipt.missing):,} without a live row, passed over: {first}" + (
        f", ... {more:,} more" if more > 0 else ""
    )


def _deletions(receipt: Receipt) -> Table:
    first = {name: column[:SHOWN].tolist() for name, column in receipt.deletions.items()}
    rebuilds = [first.pop(f"rebuilt_{name}", []) for name in ("depth", "rows", "nodes")]
    caused = [
        "nothing" if depth < 0 else f"{counted(rows, 'row')} at depth {depth}, {counted(n, 'node')}"
        for depth, rows, n in zip(*rebuilds, strict=True)
    ]
    label = "number" if receipt.deletions["label"].dtype == NUMBERS else "class"
    titles = {"id": "deleted id", "label": label, **receipt.words.titles}
    columns = {titles.get(name, name): [*map(str, values)] for name, values in first.items()}
    columns |= {"rebuilt because of it": caused} if caused else {}
    rows = [Row(cells) for cells in zip(*columns.values(), strict=True)]
    more = len(receipt.ids) - SHOWN
    return Table(
        rows, f"and {more:,} more; --json has all" if more > 0 else "", "", [*columns], range(len(columns) + 1)
    )


def receipts_lines(found: dict[str, Any]) -> str:
    """Return what was found of a chain of receipts, and of the state that it leads to."""
    deletes, purges = counted(found["deletes"], "deletion"), counted(found["purges"], "purge")
    receipts = message("commands.receipts", receipts=found["receipts"], deletions=deletes, purges=purges)
    if found["rollbacks"]:
        rollbacks = counted(found["rollbacks"], "rollback")
        receipts = message("commands.and_rollbacks", receipts=receipts, rollbacks=rollbacks)
    offset, named = found.get("offset"), found["origin"]
    asked = [(kind, one) for kind in ("id", "subject") for one in found.get(f"{kind}s", ())]
    rows = [
        *((f"{kind} {one[kind]}", _asked(one, offset)) for kind, one in asked),
        *([("about", of_origin(named))] if named else ()),
        ("receipts", receipts),
        (
            "signed by",
            (", ".join(found["signers"]) or "none")
            + ("" if found["all_signed"] or not found["signers"] else ", but not all"),
        ),
        ("head", found["head"]),
    ]
    if found["gaps"]:
        places = ", ".join(map(str, found["gaps"][:10]))
        rows.append(("gaps", message("commands.gaps", receipts=places)))
    if "equal" not in found and "state" in found:
        rows.append(("state", message("commands.no_state")))
    if "equal" in found:
        rebuilt = {True: "commands.same_model", False: "commands.other_model", None: "commands.history"}
        rows += [
            ("state", message(_OF_STATE[found["equal"]])),
            ("retrained", message(rebuilt[found["rebuilt"]])),
        ]
    if "live" in found:
        live = message("commands.some_live" if found["live"] else "commands.none_live", live=found["live"])
        rows.append(("deleted ids", live if found["keyed"] else message("commands.maybe_key", live=live)))
    return terminal(pairs(rows))


def _asked(one: dict[str, Any], offset: int | None) -> str:
    """Return what a chain says of an id or a subject: deleted or not, when, and by which receipt."""
    last = one["events"][-1] if one["events"] else None
    counting = [event for event in one["events"] if event["counts"]]
    if counting and one["receipt"] is not None:  # the last one that counts is a deletion
        event = counting[-1]
        at = {"receipt": event["receipt"], "time": moment(event["time"])}
        if one.get("contradicts"):
            return message("commands.id_against", **at)
        if one.get("live"):
            if event["update"] is not None and offset is not None and event["update"] >= offset:
                return message("commands.id_later", **at, update=event["update"], offset=offset)
            return message("commands.id_again", **at)
        note = f" ({event['note']})" if event["note"] else ""
        said = message("commands.id_deleted", **at, note=note)
        if event["place"] is not None:
            said = message("commands.id_requested", said=said, place=event["place"], update=event["update"])
        if event["waits"]:
            said = message("commands.id_waits", said=said)
    elif last is None:
        said = message("commands.id_unknown")
    elif counting:
        event = counting[-1]
        at = {"receipt": event["receipt"], "time": moment(event["time"]), "what": event["what"]}
        said = message("commands.id_kept", **at)
    else:
        at = {"receipt": last["receipt"], "time": moment(last["time"]), "by": last["undone_by"]}
        said = message("commands.id_missing" if last["undone_by"] is None else "commands.id_undone", **at)
    if "live" not in one:
        return said
    if one.get("returned"):
        return message("commands.subject_returned", said=said)
    return message("commands.id_there" if one["live"] else "commands.id_absent", said=said)


def purge_lines(done: dict[str, Any]) -> str:
    """Return what a purge has replaced, and what lies outside its reach."""
    if done["young"]:
        return terminal(Text(message("commands.young", folder=done["folder"])))
    removed, rewritten = len(done["replaced"]), len(done["rewritten"])
    files = message("commands.files", removed=removed, rewritten=rewritten)
    if not removed and not rewritten:
        files = message("commands.no_dead" if done["ids"] is None else "commands.no_ids")
    elif done["dry_run"]:
        files = message("commands.dry_run", files=files)
    rows = [
        ("folder", done["folder"]),
        ("live", counted(done["active"], "example")),
        ("digest", f"{done['digest']}, unchanged"),
        ("ids", "all that are not live" if done["ids"] is None else f"{done['ids']:,} given"),
        ("files", files),
    ]
    names = Text("\n".join(lines(Items([*done["replaced"], *done["rewritten"]]))))
    left = done["left_alone"]
    alone = (Text(message("commands.left_alone")), Items(left)) if left else ()
    away = Text(message("commands.out_of_reach")), Items(done["out_of_reach"])
    return terminal(pairs(rows), names, *alone, *away)
