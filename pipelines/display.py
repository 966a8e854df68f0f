"""Results of commands as blocks for a terminal."""

from __future__ import annotations

import json
import shlex
from typing import Any

from pipelines.printing import escaped
from pipelines.report.recovery import checkpoints_in_words, recovered_in_words
from pipelines.terminal import terminal
from raydt.learners import described
from raydt.messages import message
from raydt.presentation.blocks import Row, Table, Text, pairs
from raydt.presentation.words import count, counted, duration, size
from raydt.redaction import WITHHELD

#: Features of an explanation that are printed.
SHOWN = 10


def share(value: float | None) -> str:
    """Return a fraction with three decimals; a dash where it is undefined."""
    return "-" if value is None else f"{value:.3f}"


def error(value: float | None) -> str:
    """Return an error in the unit of the label, or its square, with four digits; a dash where it is undefined."""
    return "-" if value is None else f"{value:.4g}"


def run_lines(summary: dict[str, Any], path: str) -> str:
    """Return the outcome of a run."""
    skipped, refused = counted(summary["skipped"], "bad row"), counted(summary["refused"], "refused update")
    streamed = summary.get("holdout") is None
    speed = f"{summary['updates_per_second']:,.0f} updates/s over {summary['seconds']:.2f} s"
    rows = [
        ("run", path),
        ("status", f"{summary['status']} ({summary['exit_reason']})"),
        ("keys", count(summary["keys"]) if "keys" in summary else ""),
        *(_streamed(summary) if streamed else _trained(summary)),
        *described(summary["learner"]).lines(summary),
        ("speed", speed if streamed else ""),
        ("where", where(summary)),
        ("losses", recovered_in_words(summary)),
        ("checkpoints", checkpoints_in_words(summary)),
        ("skipped", f"{skipped}, {refused}; see quarantine/" if summary["refused"] or summary["skipped"] else ""),
        ("digest", summary["model_digest"] or "none"),
        ("report", f"{path}/report.html" if summary["report_seconds"] is not None else ""),
        ("resume", how_to_resume(summary, path) if summary["status"] == "interrupted" else ""),
        ("next", _after_training(summary, path)),
    ]
    return terminal(pairs(rows))


def _streamed(summary: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the updates of a stream and the score of its predictions."""
    return [
        ("updates", updates(summary)),
        ("live", counted(summary["active"], "example")),
        _quality(summary["metrics"], summary["baselines"]),
    ]


def _trained(summary: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the rows of a training run, and the score of those held out."""
    holdout, rows = summary["holdout"], counted(summary["active"], "row")
    trained = [("trained", f"on {rows} in {duration(summary['seconds'])}")]
    if not holdout["rows"]:
        return [*trained, ("score", message("commands.no_holdout", share=holdout["share"]))]
    held = message("commands.holdout", rows=holdout["rows"], rest=holdout["trained_on"])
    metrics = {name: value for name, value in summary["metrics"].items() if value is not None}
    return [*trained, _quality(metrics, summary["baselines"]), ("scored on", held)]


def where(summary: dict[str, Any]) -> str:
    """Return where the work was done, and how often the shards were asked."""
    place = str(summary.get("where") or summary["backend"])
    if not summary["rounds"]:
        return place
    return message("runs.where_with_rounds", place=place, times=counted(summary["rounds"], "time"))


def _quality(metrics: dict[str, Any], baselines: dict[str, Any]) -> tuple[str, str]:
    """Return the first score with the baselines, then the others: shares, or errors."""
    written = error if "mse" in metrics else share
    first, *others = (name for name in metrics if name not in ("confusion", "alarms") and "faded" not in name)
    compared = ", ".join(f"{name.replace('_', ' ')} {written(value)}" for name, value in baselines.items())
    rest = "  ".join(f"{name} {share(metrics[name]) if name == 'r2' else written(metrics[name])}" for name in others)
    return first, f"{written(metrics[first])}  ({compared})  {rest}"


def _after_training(summary: dict[str, Any], path: str) -> str:
    if summary.get("holdout") is None or summary["status"] != "completed":
        return ""
    return message("commands.after_training", run=shlex.quote(path))


def how_to_resume(summary: dict[str, Any], path: str) -> str:
    """Return the command that resumes an interrupted run, and the update from which it continues."""
    last = summary["checkpoints"]["last"]
    return message("runs.resume_start" if last is None else "runs.resume", run=shlex.quote(path), update=last)


def updates(summary: dict[str, Any]) -> str:
    """Return the updates by kind, in parts that add up; an update of an example is one deletion and one insertion."""
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


def audit_lines(audit: dict[str, Any], learner: Any, run: dict[str, Any] | None) -> str:
    """Return the two verdicts, and what was checked for them, of a ``learner`` as a summary or manifest describes it.

    ``run`` is the summary of the run, if there is one.
    """
    description, rows = described(learner), []
    measures = description.measures
    if run is not None and run["status"] != "completed":
        rows.append(("run", f"{run['status']} ({run['exit_reason']}); audited at update {run['updates']:,}"))
    rows += [] if run is None else description.audited(run)
    rows += [
        ("conformance", audit["conformance"]),
        ("feasibility", feasibility_in_words(audit["feasibility"], audit["reason"])),
    ]
    for name, value in audit["checked"].items():
        rows.append((name.replace("_", " "), f"{value:,} checked" if value else "not checked"))
    for name, value in audit["worst"].items():
        of = f" of {description.shares[name]}" if name in description.shares else ""
        of += f": {measures[name][0].lower()}{measures[name][1:]}" if name in measures else ""
        rows.append((f"worst {name.replace('_', ' ')}", f"{value:.6g}{of}"))
    return terminal(pairs([*rows, *(("failure", failure) for failure in audit["failures"])]))


def feasibility_in_words(feasibility: str, reason: str) -> str:
    """Return the verdict on the guarantee, and what it is about."""
    if not reason:
        return feasibility
    return f"proven that {reason}" if feasibility == "proven" else f"{feasibility.replace('_', ' ')}: {reason}"


def verify_lines(found: dict[str, Any]) -> str:
    """Return both digests, and whether they are equal."""
    verdict, inserted = message("commands.equal"), found["inserted"]
    if not found["equal"]:
        verdict = message("commands.different", parts=", ".join(found["different"]))
    rows = [
        ("verdict", verdict),
        ("examples", f"{found['examples']:,} {'live' if inserted is None else f'remain of {inserted:,}'}"),
        ("digest", found["digest"]),
        ("retrained", found["rebuilt"]),
    ]
    return terminal(pairs(rows))


def export_lines(written: dict[str, Any]) -> str:
    """Return what an export has written."""
    rows = [
        ("model", written["out"]),
        ("interface", written["interface"]),
        ("trees", f"{counted(written['trees'], 'tree')}, {counted(written['nodes'], 'node')}"),
        ("outputs", ", ".join(map(str, written["outputs"]))),
    ]
    return terminal(pairs(rows))


def explanation_lines(found: dict[str, Any]) -> str:
    """Return a path in words, then the features that move the output, the largest first."""
    path = [f"tree {found['tree']} of {counted(found['trees'], 'tree')}, row {found['row']}"]
    path += [f"  {escaped(sentence)}" for sentence in found["path"]]
    shown, others = found["values"][:SHOWN], [values for _, values in found["values"][SHOWN:]]
    if others:
        shown = [*shown, (counted(len(others), "other feature"), [sum(column) for column in zip(*others, strict=True)])]
    rows = [
        Row(["mean", *(f"{number:.6g}" for number in found["base"])]),
        *(Row([name, *(f"{number:+.6g}" for number in values)]) for name, values in shown),
        Row(["output", *(f"{number:.6g}" for number in found["output"])]),
    ]
    names = [found["meaning"], *map(str, found["outputs"])]
    return terminal(Text("\n".join(path)), Table(rows, columns=names, words=(len(names),)))


def validation_lines(result: dict[str, Any], config: str) -> str:
    """Return data, learner and stream of a config, and whether it is valid."""
    names = [f"{feature['name']} ({feature['kind']})" for feature in result["features"]]
    shown = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
    upper_bound = result["stream"] == "changelog" and result["updates"] is not None  # some rows may be no update
    read, bad = counted(result["rows_read"], "row"), len(result["bad_rows"])
    rows = [
        ("learner", result["learner"]),
        ("guarantee", f"{'promised' if result['promised'] else 'not promised'}: {result['guarantee']}"),
        ("outlook", result["outlook"]),
        ("where", result["where"]),
        ("reading", result["reading"] or ""),
        ("stream", result["stream"]),
        ("features", f"{sum(feature.get('features', 1) for feature in result['features'])}: {shown}"),
        *(("named by", one) for one in result["names"]),
        ("rows", _count(result["rows"])),
        ("updates", ("at most " if upper_bound else "") + _count(result["updates"])),
        ("labels", "numbers")
        if result["classes"] is None
        else ("classes", f"{_classes(result['classes'])} (in the first {read})"),
        ("hash", result["config_hash"]),
        ("deletion log", "" if result["deletions"] is None else counted(result["deletions"], "row")),
        ("ids", "" if result["ids_checked"] is None else _checked(result)),
        *(("warning", message) for message in result["warnings"]),
        *(("bad row", message) for message in result["bad_rows"][:10]),
        *(("bad update", message) for message in result["bad_updates"]),
        ("", f"and {bad - 10:,} more" if bad > 10 else ""),
    ]
    found = message("commands.first_rows", bad=counted(bad, "bad row"), rows=read)
    skipped: list[str] = [found] if bad else []
    if result["refused"]:
        skipped.append(counted(result["refused"], "bad update"))
    if result["stops_at"] is not None:
        verdict = message("commands.stops", update=result["stops_at"])
    elif not result["ok"]:
        verdict = message("commands.bad_rows", bad=found)
    else:
        verdict = message("commands.valid_but" if skipped else "commands.valid", skipped=" and ".join(skipped))
    return terminal(pairs([*rows, ("config", f"{config}: {verdict}")]))


def _classes(names: list[str]) -> str:
    return f"{len(names):,}" if WITHHELD in names else ", ".join(names[:20])


def _checked(result: dict[str, Any]) -> str:
    """Return how many updates had their ids checked, and what to expect of the others."""
    checked = counted(result["ids_checked"], "update")
    wrong = counted(result["refused"], "update")
    found = message("commands.wrong_ids", wrong=wrong) if result["refused"] else message("commands.right_ids")
    if result["ids_all"]:
        return message("commands.all_ids", updates=checked, found=found)
    said = "commands.other_ids" if result["stops_at"] is None else "commands.first_ids"
    return message(said, updates=checked, found=found)


def doctor_lines(facts: dict[str, Any]) -> str:
    """Return facts about this machine."""
    return terminal(pairs(row for name, value in facts.items() for row in _doctor_rows(name, value)))


def _doctor_rows(name: str, value: Any) -> list[tuple[str, str]]:
    title = name.replace("_", " ")
    if name == "listeners":
        return [
            (
                "listens",
                f"{e['address']}:{e['port']} {e['process']}{'' if e['loopback'] else '  (reachable)'}"
                f"{'  (/metrics without a token)' if e['metrics'] else ''}",
            )
            for e in value
        ]
    if name == "copies":
        return [("copies of rows may be in", place) for place in value or ["-"]]
    if name == "compile_seconds":
        return [(f"compiled {kind}", duration(seconds)) for kind, seconds in value.items()]
    if name == "probe":
        took = ", ".join(f"{step} {duration(seconds)}" for step, seconds in value["seconds"].items())
        free = f"; {size(value['free_bytes'])} free" if value["free_bytes"] is not None else ""
        return [("probe", f"{value['location']} can hold checkpoints: {size(value['bytes'])}: {took}{free}")]
    if name.endswith("_bytes") and value is not None:
        return [(title.removesuffix(" bytes"), f"{value / 2**30:.1f} GiB")]
    return [(title, "-" if value is None else str(value))]


def _count(value: int | None) -> str:
    return message("commands.unknown_length") if value is None else f"{value:,}"


def sweep_lines(summary: dict[str, Any], table_lines: list[str], path: str) -> str:
    """Return the outcome of a sweep: its table, and where the rest is."""
    failed = f", {summary['failed']:,} failed" if summary["failed"] else ""
    counts = f"{summary['done']:,} of {summary['settings']:,} done{failed}"
    parallel = "one after another" if summary["parallel"] == 1 else f"{summary['parallel']} at a time"
    where = f"on Ray, {parallel}" if summary["backend"] == "ray" else parallel
    trials, best = summary["trials"], summary["best"].get("accuracy")
    rows = [
        ("sweep", path),
        ("settings", f"{counts}, {where}, in {summary['seconds']:.1f} s"),
        ("trials", f"{trials:,}; numbers are their means" if trials > 1 else ""),
    ]
    if best is not None:
        keys = ", ".join(f"{key}={json.dumps(value)}" for key, value in best["values"].items())
        known = [name for name in ("no_change", "majority") if best[name] is not None]
        baselines = ", ".join(f"{name.replace('_', ' ')} {best[name]:.2%}" for name in known)
        no = "" if best["promised"] else ", no guarantee promised"
        rows.append(("best", f"accuracy {best['value']:.2%} with {keys}{no}  ({baselines})"))
        rows.append(("baselines", summary["verdict"]))
    interrupted = summary["status"] == "interrupted"
    rows.append(("status", f"interrupted ({summary['exit_reason']})" if interrupted else ""))
    return terminal(Text("\n".join(table_lines)), pairs([*rows, ("page", f"{path}/sweep.html")]))
