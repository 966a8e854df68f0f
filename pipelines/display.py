"""Results of commands as blocks for a terminal."""

from __future__ import annotations

import json
import math
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pipelines.report.facts import audit_facts, window_in_words
from pipelines.report.folder import checkpoints_in_words, recovered_in_words
from pipelines.report.holdout import chosen, verdict
from raydt.examples.updates import NUMBERS
from raydt.learners import described
from raydt.messages import WITHHELD, escaped, message
from raydt.parallel import PREPARATION
from raydt.presentation.blocks import Article, Block, Code, Facts, Items, Row, Table, Text, has_content, pairs
from raydt.presentation.charts import count, counted, duration, moment, names, size
from raydt.sessions.receipt_chain import of_origin

# The renderer of blocks for a terminal: aligned lines, an empty line between blocks.


def terminal(*blocks: Text | Facts | Table | Items) -> str:
    """Return blocks as lines of text; items follow the text before them without an empty line."""
    shown = [(isinstance(block, Items), "\n".join(lines(block))) for block in blocks if has_content(block)]
    return "".join(
        f"{'' if i == 0 else chr(10) if items else 2 * chr(10)}{text}" for i, (items, text) in enumerate(shown)
    )


def article_text(article: Article) -> str:
    """Return an article as text, each section under its title; charts and trees are left out."""
    blocks: list[Text | Facts | Table | Items] = [Text(article.title), Text(article.what)]
    blocks += map(_textual, article.head)
    for section in article.sections:
        blocks += [Text(f"{section.title}\n{'-' * len(section.title)}"), *map(_textual, section.blocks)]
    return terminal(*blocks)


def _textual(block: Block) -> Text | Facts | Table | Items:
    if isinstance(block, Code):
        return Text(block.text)
    return block if isinstance(block, (Text, Facts, Table, Items)) else Text("")


def lines(block: Text | Facts | Table | Items) -> list[str]:
    """Return the lines of one block; names from data are escaped."""
    if isinstance(block, Text):
        return [escaped(block.text, keep="\n")]
    if isinstance(block, Items):
        return [f"- {escaped(item)}" for item in block.items]
    if isinstance(block, Facts):
        width = max(len(fact.name) for fact in block.facts) + 2
        return [f"{fact.name:<{width}}{escaped(fact.value)}".rstrip() for fact in block.facts]
    cells = [[escaped(cell) for cell in row] for row in (block.columns, *(row.cells for row in block.rows))]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    aligned = [
        [_padded(cell, width, k in block.words) for k, (cell, width) in enumerate(zip(row, widths, strict=True), 1)]
        for row in cells
    ]
    return [*("  ".join(row).rstrip() for row in aligned), *([block.remark] if block.remark else [])]


def _padded(cell: str, width: int, word: bool) -> str:
    return cell.ljust(width) if word else cell.rjust(width)


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
        ("kernels", _compiled(summary)),
        ("losses", recovered_in_words(summary)),
        ("checkpoints", checkpoints_in_words(summary)),
        ("skipped", f"{skipped}, {refused}; see quarantine/" if summary["refused"] or summary["skipped"] else ""),
        ("digest", summary["model_digest"] or "none"),
        ("report", f"{path}/report.html" if summary["report_seconds"] is not None else ""),
        ("resume", how_to_resume(summary, path) if summary["status"] == "interrupted" else ""),
        ("next", _after_training(summary, path)),
    ]
    return terminal(pairs(rows))


def _compiled(summary: dict[str, Any]) -> str:
    """Return how many kernels this process had to compile, and for how long, as nothing else counts."""
    number, seconds = summary.get("kernels", {"compiled": 0, "seconds": 0.0}).values()  # earlier builds counted none
    return message("runs.compiled", kernels=counted(number, "kernel"), took=duration(seconds)) if number else ""


def _streamed(summary: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the updates of a stream and the score of its predictions."""
    return [
        ("updates", updates(summary)),
        ("live", counted(summary["active"], "example")),
        ("window", window_in_words(summary)),
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
    by = chosen(holdout)
    sentences, better = verdict(summary)
    return [
        *trained,
        _quality(metrics, summary["baselines"], holdout.get("constant") or {}),
        ("" if better else "baseline", "" if better else f"{'. '.join(sentences)}."),
        ("scored on", f"{held}, {by}"),
    ]


def where(summary: dict[str, Any]) -> str:
    """Return where the work was done, and how often shards on Ray were asked."""
    place = str(summary.get("where") or summary["backend"])
    if not summary["rounds"] or summary["backend"] == "in_process":
        return place
    return message("runs.where_with_rounds", place=place, times=counted(summary["rounds"], "time"))


def _quality(
    metrics: dict[str, Any], baselines: dict[str, Any], constant: Mapping[str, Any] = MappingProxyType({})
) -> tuple[str, str]:
    """Return the first score with the baselines, then the others, with those of a constant: shares, or errors."""
    written = error if "mse" in metrics else share
    first, *others = (name for name in metrics if name not in ("confusion", "alarms") and "faded" not in name)
    compared = ", ".join(f"{name.replace('_', ' ')} {written(value)}" for name, value in baselines.items())

    def told(name: str) -> str:
        rival, form = constant.get(name), share if name == "r2" else written
        return f"{name} {form(metrics[name])}" + (f" ({form(rival)})" if rival is not None else "")

    rest = "  ".join(map(told, others))
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
    if run is not None and run["status"] != "completed":
        rows.append(("run", f"{run['status']} ({run['exit_reason']}); audited at update {run['updates']:,}"))
    rows += [] if run is None else description.audited(run)
    return terminal(pairs([*rows, *audit_facts(audit, description)]))


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
        ("missing", _lacking(result["missing"], read)),
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


def _lacking(counts: dict[str, int], read: str) -> str:
    """Return how many values of which columns are missing, of the columns with most of them first."""
    most = sorted(counts.items(), key=lambda one: -one[1])
    more = f" and {len(most) - 8} more columns" if len(most) > 8 else ""
    shown = ", ".join(f"{name} {count:,}" for name, count in most[:8])
    return f"{shown}{more} (in the first {read})" if most else ""


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


def sweep_facts(summary: dict[str, Any], path: str) -> list[tuple[str, str]]:
    """Return the outcome of a sweep as names and values, by its ``sweep.json``."""
    failed = f", {summary['failed']:,} failed" if summary["failed"] else ""
    counts = f"{summary['done']:,} of {summary['settings']:,} done{failed}"
    parallel = "one after another" if summary["parallel"] == 1 else f"{summary['parallel']} at a time"
    where = f"on Ray, {parallel}" if summary["backend"] == "ray" else parallel
    trials, best = summary["trials"], summary["best"].get("accuracy")
    rows = [
        ("sweep", path),
        ("settings", f"{counts}, {where}, in {summary['seconds']:.1f} s"),
        ("source", f"{summary['rows']:,} rows, read in {summary['read_seconds']:.1f} s"),
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
    return [*rows, ("status", f"interrupted ({summary['exit_reason']})" if interrupted else "")]


# How far a job is: one bar on a terminal, one line per interval elsewhere; always on stderr.

#: Said before a private Ray is started, which would otherwise look as if nothing happened.
STARTING_RAY = message("runs.starting_ray")


class Reporter:
    """Receives the progress of one job, and shows nothing: the base of those that do."""

    def stage(self, text: str) -> None:
        """Announce something that takes seconds, outside the stream of updates."""

    def start(self, total: int | None, unit: str = "updates", done: int = 0) -> None:
        """Begin the job, or continue it after ``done`` of ``total`` units, if they are known."""
        self._total, self._unit, self._before, self._began = total, unit, done, time.monotonic()

    def update(self, done: int, active: int, size: str, score: tuple[str, float]) -> None:
        """Show that ``done`` updates have been applied; ``size`` is in words, ``score`` a name and a value."""
        # A recovery may have gone back to before the start.
        rate = max(done - self._before, 0) / max(time.monotonic() - self._began, 1e-9)
        self.advance(done, ", ".join(filter(None, (f"{rate:,.0f}/s", f"{active:,} live", size, _score(*score)))))

    def scored(self, updates: int, scores: Mapping[str, float]) -> None:
        """Take the headline score, and the number of live examples, where the metrics have a row: after ``updates``."""

    def advance(self, done: int, detail: str) -> None:
        """Show that ``done`` units are done, with ``detail``."""

    def stop(self) -> None:
        """End the display: the stream has ended."""


class Bar(Reporter):
    """A bar that is redrawn a few times a second, and removed at the end."""

    def __init__(self) -> None:
        from rich.console import Console  # imported where a terminal shows it: a tenth of a second
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

        self._console = Console(stderr=True)
        self._bar = Progress(
            TextColumn("{task.completed:,} {task.fields[unit]}"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[detail]}"),
            TimeRemainingColumn(),
            console=self._console,
            refresh_per_second=5,
            transient=True,
        )
        self._task = self._bar.add_task("job", total=None, unit="", detail="")

    def stage(self, text: str) -> None:
        """Write a line."""
        self._console.print(escaped(text), style="dim", highlight=False)

    def start(self, total: int | None, unit: str = "updates", done: int = 0) -> None:
        """Draw the empty bar."""
        super().start(total, unit, done)
        self._bar.update(self._task, total=total, unit=unit, completed=done)
        self._bar.start()

    def advance(self, done: int, detail: str) -> None:
        """Move the bar."""
        self._bar.update(self._task, completed=done, detail=detail)

    def stop(self) -> None:
        """Remove the bar."""
        self._bar.stop()


class Lines(Reporter):
    """A line now and then: after 1, 2, 4, ... seconds, and from then on every ``interval`` seconds."""

    def __init__(self, interval: float = 30.0) -> None:
        self._interval, self._wait = interval, 1.0

    def stage(self, text: str) -> None:
        """Write a line."""
        _write(text)

    def start(self, total: int | None, unit: str = "updates", done: int = 0) -> None:
        """Remember when the job began."""
        super().start(total, unit, done)
        self._last = self._began

    def advance(self, done: int, detail: str) -> None:
        """Write a line if it is time for one."""
        now = time.monotonic()
        if now - self._last < self._wait:
            return
        self._last, self._wait = now, min(2 * self._wait, self._interval)
        share = f" of {self._total:,} ({done / self._total:.0%})" if self._total else ""
        _write(", ".join(filter(None, [f"{done:,}{share} {self._unit}", detail])))


def _score(name: str, value: float) -> str:
    """Return a score in words: shares with three decimals, errors with four digits; empty before the first one."""
    if math.isnan(value):
        return ""
    return f"{name} {value:.3f}" if name == "accuracy" else f"{name} {value:.4g}"


def _write(line: str) -> None:
    sys.stderr.write(escaped(line) + "\n")
    sys.stderr.flush()


def reporter() -> Reporter:
    """Return the bar if stderr is a terminal, lines otherwise. It also says when kernels have to be compiled."""
    made = Bar() if sys.stderr.isatty() else Lines()
    PREPARATION.heard = _Compiling(made.stage)
    return made


class _Compiling:
    """Says that kernels are compiled, when that begins and every :attr:`_EVERY` seconds."""

    _EVERY = 10.0

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say, self._functions, self._due = say, 0, 0.0

    def __call__(self) -> None:
        """Count a function of Python that begins to compile."""
        seconds = PREPARATION.seconds
        if not self._functions:
            self._say(message("runs.compiling"))
            self._due = seconds + self._EVERY
        elif seconds >= self._due:
            self._say(message("runs.still_compiling", functions=counted(self._functions, "function"), seconds=seconds))
            self._due = seconds + self._EVERY
        self._functions += 1


# Receipts, outcomes of change logs, chains of receipts and purges as blocks for a terminal.

if TYPE_CHECKING:
    from pipelines.updating import ChangesResult
    from raydt.sessions.receipt import Receipt

#: What a state is beside the last receipt of a chain.
_OF_STATE = {True: "commands.last_receipt", False: "commands.other_receipt", None: "commands.other_moment"}


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
        *((f"{kind} {one[kind]}", _asked(one, offset, found.get("older_than"))) for kind, one in asked),
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
        older = found["older_than"]
        rows.append(
            ("state", message("commands.older", receipt=older) if older else message(_OF_STATE[found["equal"]]))
        )
        if "rebuilt" in found:
            rows.append(("retrained", message(rebuilt[found["rebuilt"]])))
    if "live" in found:
        live = message("commands.some_live" if found["live"] else "commands.none_live", live=found["live"])
        rows.append(("deleted ids", live if found["keyed"] else message("commands.maybe_key", live=live)))
    return terminal(pairs(rows))


def _asked(one: dict[str, Any], offset: int | None, older_than: int | None) -> str:
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
            if older_than is not None and event["receipt"] >= older_than:
                return message("commands.id_older", **at)
            return message("commands.id_again", **at)
        note = f" ({event['note']})" if event["note"] else ""
        said = message("commands.id_deleted", **at, note=note)
        if event["place"] is not None:
            said = message("commands.id_requested", said=said, place=event["place"], update=event["update"])
        if event["waits"]:
            said = message("commands.id_waits", said=said)
    elif last is None:
        said = message("commands.subject_unknown" if "subject" in one else "commands.id_unknown")
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


def erasure_lines(found: dict[str, Any]) -> str:
    """Return a table for each id or subject: what each folder holds of it."""
    blocks: list[Text | Table | Items] = []
    for kind, one in [("id", one) for one in found["ids"]] + [("subject", one) for one in found["subjects"]]:
        folders = [(_of_trace(trace), trace) for trace in one["folders"]]
        left = sum(bool(trace["copies"]) or trace["status"] in ("live", "unclear") for _, trace in folders)
        verdict = message("commands.erased" if one["erased"] else "commands.not_erased", places=counted(left, "place"))
        rows = [Row((said, trace["what"], trace["folder"])) for said, trace in folders]
        table = Table(rows, columns=("it holds", "in a", "at"), words=(1, 2, 3))
        reasons = [f"{trace['folder']}: {trace['reason']}" for _, trace in folders if trace["reason"]]
        why = (Text(message("commands.unclear")), Items(reasons)) if reasons else ()
        blocks += [Text(f"{kind} {one[kind]}: {verdict}"), table, *why]
    missing = found["missing"]
    gone = (Text(message("commands.missing")), Items(missing)) if missing else ()
    following = () if found["ok"] else (Text(message("commands.erase")),)
    return terminal(*blocks, *gone, Text(message("commands.elsewhere")), *following)


#: What is said of a folder without copies, and of copies that are no files.
_OF_TRACE = {
    "live": "commands.trace_live",
    "deleted": "commands.trace_deleted",
    "unclear": "commands.trace_unclear",
    "purged": "commands.trace_purged",
    "absent": "commands.trace_absent",
}
_COPIES = {"rows": "commands.copy_rows", "stream": "commands.copy_stream", "key": "commands.copy_key"}


def _of_trace(trace: dict[str, Any]) -> str:
    """Return what one folder holds."""
    copies = ", ".join(message(_COPIES[one]) if one in _COPIES else one for one in trace["copies"])
    if trace["what"] == "model" and trace["status"] == "live":
        return message("commands.trace_learned")
    if copies:
        living = trace["status"] == "live"
        return message("commands.trace_copied" if living else "commands.trace_copies", copies=copies)
    rows = counted(trace["rows"], "row") + (f" under {counted(trace['keys'], 'key')}" if trace["keys"] else "")
    return message(_OF_TRACE[trace["status"]], rows=rows)


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
