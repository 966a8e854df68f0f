"""Results as a person reads them: a few aligned lines for stdout."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pipelines.printing import escaped
from pipelines.report.recovery import checkpoints_in_words, recovered_in_words
from raydt.examples.targets import NUMBERS
from raydt.learners import described
from raydt.presentation.words import counted, duration, size
from raydt.quoting import WITHHELD

if TYPE_CHECKING:
    from raydt.sessions.receipt import Receipt


#: Deletions of a receipt that are printed.
SHOWN = 10


def table(rows: Sequence[tuple[str, str]]) -> str:
    """Names and values in two aligned columns."""
    width = max(len(name) for name, _ in rows) + 2
    return "\n".join(f"{name:<{width}}{escaped(value)}".rstrip() for name, value in rows)


def share(value: float | None) -> str:
    """A fraction with three decimals; a dash where it is undefined."""
    return "-" if value is None else f"{value:.3f}"


def error(value: float | None) -> str:
    """An error in the unit of the label, or its square, with four digits; a dash where it is undefined."""
    return "-" if value is None else f"{value:.4g}"


def run_lines(summary: dict[str, Any], path: str) -> str:
    """The outcome of a run."""
    rows = [
        ("run", path),
        ("status", f"{summary['status']} ({summary['exit_reason']})"),
        ("updates", _updates(summary)),
        ("live", counted(summary["active"], "example")),
        _quality(summary["metrics"], summary["baselines"]),
        *described(summary["learner"]).lines(summary),
        ("speed", f"{summary['updates_per_second']:,.0f} updates/s over {summary['seconds']:.2f} s"),
        ("where", where(summary)),
    ]
    recovered, checkpoints = recovered_in_words(summary), checkpoints_in_words(summary)
    rows += [("losses", recovered)] if recovered else []
    rows += [("checkpoints", checkpoints)] if checkpoints else []
    if summary["refused"] or summary["skipped"]:
        skipped, refused = counted(summary["skipped"], "bad row"), counted(summary["refused"], "refused update")
        rows.append(("skipped", f"{skipped}, {refused}; see quarantine/"))
    rows.append(("digest", summary["model_digest"] or "none"))
    if summary["report_seconds"] is not None:
        rows.append(("report", f"{path}/report.html"))
    if summary["status"] == "interrupted":
        rows.append(("resume", how_to_resume(summary, path)))
    return table(rows)


def where(summary: dict[str, Any]) -> str:
    """Which processes had the model, and what the shards had to do with it."""
    shards, rounds = counted(summary["shards"], "shard"), counted(summary["rounds"], "round")
    if summary["backend"] == "in_process":
        of_shards = f" of {shards}, in {rounds}" if summary["rounds"] else ""
        return f"in process: this process did all work{of_shards}"
    alone = "" if summary["rounds"] else ": the coordinator held the whole model"
    return f"{summary['backend'].replace('_', ' ')}, {shards}, {rounds} with them{alone}"


def _quality(metrics: dict[str, Any], baselines: dict[str, Any]) -> tuple[str, str]:
    """The first score with the baselines, then the others: shares, or the errors of a regression."""
    written = error if "mse" in metrics else share
    first, *others = (name for name in metrics if name not in ("confusion", "alarms") and "faded" not in name)
    compared = ", ".join(f"{name.replace('_', ' ')} {written(value)}" for name, value in baselines.items())
    rest = "  ".join(f"{name} {share(metrics[name]) if name == 'r2' else written(metrics[name])}" for name in others)
    return first, f"{written(metrics[first])}  ({compared})  {rest}"


def how_to_resume(summary: dict[str, Any], path: str) -> str:
    """Command that resumes an interrupted run, and the update from which it continues."""
    last = summary["checkpoints"]["last"]
    start = "starts at the first update" if last is None else f"continues from update {last:,}"
    return f"raydt resume {shlex.quote(path)} {start}"


def _updates(summary: dict[str, Any]) -> str:
    """The updates by kind, in parts that add up; an update of an example is one deletion and one insertion."""
    replaced = summary["replaced"]
    parts = [
        (summary["inserts"] - replaced, "inserted"),
        (summary["deletes"] - replaced, "deleted"),
        (replaced, "replaced"),
        (summary["queries"], "only predicted"),
        (summary["refused"], "refused"),
    ]
    shown = [f"{count:,} {name}" for index, (count, name) in enumerate(parts) if count or index < 2]
    return f"{summary['updates']:,}: {', '.join(shown)}"


def receipt_lines(receipt: Receipt, state: str, out: str | None) -> str:
    """Changes made by an update; ``out`` is None if nothing was written."""
    deletes, inserts, words = len(receipt.ids), len(receipt.inserted), receipt.words
    rows = [
        ("state", f"{state} -> {out}" if out is not None else f"{state}; nothing is written"),
        (
            "updates",
            f"{deletes:,} deleted, {inserts:,} inserted" + (f"; {words.counts}" if words.counts else ""),
        ),
        ("live", f"{counted(receipt.active, 'example')}, {receipt.active_before:,} before"),
        *words.lines,
        ("digest before", f"{receipt.digest_before}"),
        ("digest after", f"{receipt.digest_after}"),
    ]
    text = table(rows)
    if deletes:
        more = [f"and {deletes - SHOWN:,} more; --json has all"] if deletes > SHOWN else []
        copies = [f"- {escaped(place)}" for place in receipt.copies]
        text = "\n".join(
            [text, "", *_deletion_lines(receipt), *more, "", "Copies of the deleted examples may remain in:", *copies]
        )
    return text if out is None else f"{text}\n\nnext: raydt audit {shlex.quote(out)}"


def _deletion_lines(receipt: Receipt) -> list[str]:
    """A header and the first deletions, in aligned columns."""
    first = {name: column[:SHOWN].tolist() for name, column in receipt.deletions.items()}
    rebuilds = [first.pop(f"rebuilt_{name}", []) for name in ("depth", "rows", "nodes")]
    caused = [
        "nothing" if depth < 0 else f"{counted(rows, 'row')} at depth {depth}, {counted(n, 'node')}"
        for depth, rows, n in zip(*rebuilds, strict=True)
    ]
    label = "number" if receipt.deletions["label"].dtype == NUMBERS else "class"
    titles = {"id": "deleted id", "label": label, **receipt.words.titles}
    columns = [[titles.get(name, name), *(escaped(str(value)) for value in values)] for name, values in first.items()]
    columns += [["rebuilt because of it", *caused]] if caused else []
    widths = [max(map(len, column)) for column in columns]
    cells = ([cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in zip(*columns, strict=True))
    return ["  ".join(row).rstrip() for row in cells]


def audit_lines(audit: dict[str, Any], run: dict[str, Any] | None) -> str:
    """The two verdicts, and what was checked for them.

    ``run`` is the summary of the run; None for a state on its own.
    """
    description, rows = described((run or {}).get("learner")), []
    if run is not None and run["status"] != "completed":
        rows.append(("run", f"{run['status']} ({run['exit_reason']}); audited at update {run['updates']:,}"))
    rows += [] if run is None else description.audited(run)
    rows += [
        ("conformance", audit["conformance"]),
        ("feasibility", f"{audit['feasibility']}: {audit['reason']}" if audit["reason"] else audit["feasibility"]),
    ]
    rows += [
        (name.replace("_", " "), f"{value:,} checked" if value else "not checked")
        for name, value in audit["checked"].items()
    ]
    for name, value in audit["worst"].items():
        of = f" of {description.shares[name]}" if name in description.shares else ""
        rows.append((f"worst {name.replace('_', ' ')}", f"{value:.6g}{of}"))
    rows += [("failure", failure) for failure in audit["failures"]]
    return table(rows)


def verify_lines(found: dict[str, Any]) -> str:
    """Both digests, and whether they are equal."""
    verdict = "equal: training from scratch gives this model"
    if not found["equal"]:
        which = f"{', '.join(found['different'])} {'is' if len(found['different']) == 1 else 'are'}"
        verdict = f"different: {which} not what the remaining examples give"
    examples = f"{found['examples']:,} live"
    if found["inserted"] is not None:
        examples = f"{found['examples']:,} remain of {found['inserted']:,}"
    rows = [("verdict", verdict), ("examples", examples), ("digest", found["digest"])]
    return table([*rows, ("retrained", found["rebuilt"])])


def receipts_lines(found: dict[str, Any]) -> str:
    """What was found of a chain of receipts, and of the state that it leads to."""
    signed = ", ".join(found["signers"]) or "none"
    rows = [
        (
            "receipts",
            f"{found['receipts']:,}, a complete chain; {counted(found['deletes'], 'deletion')}, "
            f"{counted(found['purges'], 'purge')}",
        ),
        ("signed by", signed if found["all_signed"] or not found["signers"] else f"{signed}, but not all"),
        ("head", found["head"]),
    ]
    if found["gaps"]:
        places = ", ".join(map(str, found["gaps"][:10]))
        rows.append(("gaps", f"the model was changed without a receipt before receipt {places}"))
    if "equal" in found:
        rows.append(
            ("state", "belongs to the last receipt" if found["equal"] else "does not belong to the last receipt")
        )
        unknown = "not possible, since the model depends on its history; run raydt audit"
        verdicts = {True: "the same model", False: "a different model", None: unknown}
        rows.append(("retrained", verdicts[found["rebuilt"]]))
    if "live" in found:
        live = f"{found['live']:,} of them are live in the state" if found["live"] else "none is live"
        live += "" if found["keyed"] else ", if this is their key: receipts of an earlier version do not tell"
        rows.append(("deleted ids", live))
    return table(rows)


def purge_lines(done: dict[str, Any]) -> str:
    """What a purge has replaced, and what lies outside its reach."""
    if done["young"]:
        return f"{escaped(done['folder'])}: younger than --older-than, nothing done"
    removed, rewritten = len(done["replaced"]), len(done["rewritten"])
    files = f"{removed:,} removed, or replaced by a file of another name; {rewritten:,} rewritten"
    if not removed and not rewritten:
        files = "nothing to do: none holds an example that is not live"
        if done["ids"] is not None:
            files = "nothing to do: none holds an example with one of these ids"
    elif done["dry_run"]:
        files += "; nothing changed yet (--dry-run)"
    rows = [
        ("folder", done["folder"]),
        ("live", counted(done["active"], "example")),
        ("digest", f"{done['digest']}, unchanged"),
        ("ids", "all that are not live" if done["ids"] is None else f"{done['ids']:,} given"),
        ("files", files),
    ]
    names = [f"- {escaped(name)}" for name in (*done["replaced"], *done["rewritten"])]
    names = ["", *names] if names else []
    alone = [f"- {escaped(name)}" for name in done["left_alone"]]
    alone = ["", "Left alone, as raydt did not write them:", *alone] if alone else []
    away = [f"- {place}" for place in done["out_of_reach"]]
    return "\n".join([table(rows), *names, *alone, "", "Copies may remain, out of reach, in:", *away])


def export_lines(written: dict[str, Any]) -> str:
    """What an export has written."""
    outputs = ", ".join(map(str, written["outputs"]))
    return table(
        [
            ("model", written["out"]),
            ("interface", written["interface"]),
            ("trees", f"{counted(written['trees'], 'tree')}, {counted(written['nodes'], 'node')}"),
            ("outputs", outputs),
        ]
    )


def explanation_lines(found: dict[str, Any]) -> str:
    """A path in words, then the features that move the output, the largest first."""
    lines = [f"tree {found['tree']} of {counted(found['trees'], 'tree')}, row {found['row']}"]
    lines += [f"  {escaped(sentence)}" for sentence in found["path"]]
    shown = found["values"][:SHOWN]
    rows = [["mean", *(f"{number:.6g}" for number in found["base"])]]
    rows += [[escaped(name), *(f"{number:+.6g}" for number in values)] for name, values in shown]
    if len(found["values"]) > SHOWN:
        rest = [sum(values[k] for _, values in found["values"][SHOWN:]) for k in range(len(found["base"]))]
        others = counted(len(found["values"]) - SHOWN, "other feature")
        rows.append([others, *(f"{number:+.6g}" for number in rest)])
    rows.append(["output", *(f"{number:.6g}" for number in found["output"])])
    names = [found["meaning"], *(escaped(str(name)) for name in found["outputs"])]
    return "\n".join([*lines, "", *columns(names, rows)])


def validation_lines(result: dict[str, Any], config: str) -> str:
    """Data, learner and stream of a config, and whether it is valid."""
    names = [f"{feature['name']} ({feature['kind']})" for feature in result["features"]]
    shown = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
    upper_bound = result["stream"] == "changelog" and result["updates"] is not None  # some rows may be no update
    rows = [
        ("learner", result["learner"]),
        ("guarantee", f"{'promised' if result['promised'] else 'not promised'}: {result['guarantee']}"),
        *([("outlook", result["outlook"])] if result["outlook"] else []),
        ("where", result["where"]),
        ("stream", result["stream"]),
        ("features", f"{sum(feature.get('features', 1) for feature in result['features'])}: {shown}"),
        ("rows", _count(result["rows"])),
        ("updates", ("at most " if upper_bound else "") + _count(result["updates"])),
        ("labels", "numbers")
        if result["classes"] is None
        else ("classes", f"{_classes(result['classes'])} (in the first {counted(result['rows_read'], 'row')})"),
        ("hash", result["config_hash"]),
    ]
    if result["deletions"] is not None:
        rows.append(("deletion log", counted(result["deletions"], "row")))
    if result["ids_checked"] is not None:
        rows.append(("ids", _checked(result)))
    rows += [("warning", message) for message in result["warnings"]]
    rows += [("bad row", message) for message in result["bad_rows"][:10]]
    rows += [("bad update", message) for message in result["bad_updates"]]
    bad = len(result["bad_rows"])
    if bad > 10:
        rows.append(("", f"and {bad - 10:,} more"))
    found = f"{counted(bad, 'bad row')} in the first {counted(result['rows_read'], 'row')}"
    skipped = [found] if bad else []
    if result["refused"]:
        skipped.append(counted(result["refused"], "bad update"))
    if result["stops_at"] is not None:
        verdict = f"not usable: the replay would stop at update {result['stops_at']:,}"
    elif not result["ok"]:
        verdict = f"not usable: {found}"
    else:
        verdict = f"valid; {' and '.join(skipped)} to be skipped" if skipped else "valid"
    rows.append(("config", f"{config}: {verdict}"))
    return table(rows)


def _classes(names: list[str]) -> str:
    return f"{len(names):,}" if WITHHELD in names else ", ".join(names[:20])


def _checked(result: dict[str, Any]) -> str:
    """Of how many updates the ids were checked, and what is to be expected of the others."""
    checked = counted(result["ids_checked"], "update")
    if result["ids_all"]:
        return f"checked, of all {checked}"
    rest = "" if result["stops_at"] is not None else "; the replay checks the others as it goes"
    return f"checked, of the first {checked}{rest}"


def doctor_lines(facts: dict[str, Any]) -> str:
    """Facts about this machine."""
    rows = []
    for name, value in facts.items():
        if name == "listeners":
            rows += [
                (
                    "listens",
                    f"{e['address']}:{e['port']} {e['process']}{'' if e['loopback'] else '  (reachable)'}"
                    f"{'  (/metrics without a token)' if e['metrics'] else ''}",
                )
                for e in value
            ]
        elif name == "copies":
            rows += [("copies of rows may be in", place) for place in value] or [("copies of rows may be in", "-")]
        elif name == "compile_seconds":
            rows += [(f"compiled {kind}", duration(seconds)) for kind, seconds in value.items()]
        elif name == "probe":
            took = ", ".join(f"{step} {duration(seconds)}" for step, seconds in value["seconds"].items())
            free = f"; {size(value['free_bytes'])} free" if value["free_bytes"] is not None else ""
            rows.append(("probe", f"{value['location']} can hold checkpoints: {size(value['bytes'])}: {took}{free}"))
        elif name.endswith("_bytes") and value is not None:
            rows.append((name.removesuffix("_bytes").replace("_", " "), f"{value / 2**30:.1f} GiB"))
        else:
            rows.append((name.replace("_", " "), "-" if value is None else str(value)))
    return table(rows)


def _count(value: int | None) -> str:
    return "not known in advance" if value is None else f"{value:,}"


def columns(names: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A header and rows in aligned columns: all to the right, but the last one, a remark."""
    cells = [[escaped(cell) for cell in row] for row in [names, *rows]]
    widths = [max(len(row[k]) for row in cells) for k in range(len(names))]
    aligned = [[*(cell.rjust(width) for cell, width in zip(row[:-1], widths, strict=False)), row[-1]] for row in cells]
    return ["  ".join(row).rstrip() for row in aligned]


def sweep_lines(summary: dict[str, Any], table_lines: Sequence[str], path: str) -> str:
    """The outcome of a sweep: its table, and where the rest is."""
    done, total, failed = summary["done"], summary["settings"], summary["failed"]
    counts = f"{done:,} of {total:,} done" + (f", {failed:,} failed" if failed else "")
    where = f"on Ray, {summary['parallel']} at a time" if summary["backend"] == "ray" else "one after another"
    rows = [("sweep", path), ("settings", f"{counts}, {where}, in {summary['seconds']:.1f} s")]
    if summary["trials"] > 1:
        rows.append(("trials", f"{summary['trials']:,}; numbers are their means"))
    best = summary["best"].get("accuracy")
    if best is not None:
        keys = ", ".join(f"{key}={json.dumps(value)}" for key, value in best["values"].items())
        baselines = ", ".join(f"{name.replace('_', ' ')} {share(best[name])}" for name in ("no_change", "majority"))
        no = "" if best["promised"] else ", no guarantee promised"
        rows.append(("best", f"accuracy {share(best['value'])} with {keys}{no}  ({baselines})"))
        rows.append(("baselines", summary["verdict"]))
    if summary["status"] == "interrupted":
        rows.append(("status", f"interrupted ({summary['exit_reason']})"))
    rows.append(("page", f"{path}/sweep.html"))
    return "\n".join([*table_lines, "", table(rows)])
