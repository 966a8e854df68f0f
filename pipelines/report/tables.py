"""The tables of one run's report as rows of text.

Invariant: what was not measured is called so; a time of 0 for work that was done is never shown as a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pipelines.report.folder import RunFolder
from pipelines.report.identity import classes_of, f1_name, feature_count, features_of
from pipelines.report.margins import Margins, expected
from pipelines.report.quality import quality_of
from pipelines.report.rebuilds import COORDINATOR, LEAF_RESET, PLACE_TONES, SHARDS
from pipelines.report.recovery import checkpoints_failed, recovered_in_words, recoveries_of, repeated
from pipelines.report.tree import Names, class_name, depths, feature_name, feature_use
from pipelines.report.verdicts import number
from pipelines.words import ABSENT, count, counted, duration, figure, names, share

CONFUSION_CLASSES = 12
FEATURES_SHOWN = 12
RECOVERIES_SHOWN = 50


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a table: cells as text, and the share that its bar shows, if it has one."""

    cells: tuple[str, ...]
    share: float | None = None
    tone: str = "learner"


@dataclass(frozen=True, slots=True)
class Table:
    """Rows with a remark below them; both may be empty."""

    rows: list[Row]
    remark: str = ""


def recoveries(run: RunFolder) -> Table:
    """A row for each recovery; the remark says what they cost, and is empty if nothing was lost and no write failed."""
    entries = recoveries_of(run.summary)
    rows = [
        Row(
            (
                count(number(entry, "at_update")),
                str(entry.get("what") or ABSENT),
                "by raydt resume" if entry.get("kind") == "resumed" else "by itself",
                _restored(number(entry, "from_update")),
                count(repeated(entry)),
                duration(number(entry, "seconds")),
            )
        )
        for entry in entries[-RECOVERIES_SHOWN:]
    ]
    words, failed = recovered_in_words(run.summary), checkpoints_failed(run.summary)
    said = [f"{words[0].upper()}{words[1:]}."] if words else []
    if words and run.summary.get("model_digest"):
        said.append("The model is that of a run that lost nothing.")
    if len(entries) > len(rows):
        said.append(f"Below are the last {len(rows)} recoveries.")
    if failed:
        said.append(f"{counted(failed, 'checkpoint')} could not be written; log.jsonl says why.")
    return Table(rows, " ".join(said))


def _restored(update: float | None) -> str:
    return ABSENT if update is None else f"checkpoint at update {count(update)}" if update else "the beginning"


def scores(run: RunFolder) -> Table:
    """Every score, with the baselines where they have the same score."""
    values = run.summary.get("metrics") or {}
    quality = quality_of(values)
    titles = {**quality.titles, "f1": f1_name(run)}
    rows = []
    for key in values:
        value, title = number(values, key), titles.get(key, key)
        if value is not None and title:
            beside = [number(run.summary.get("baselines"), name) for name in quality.baselines]
            cells = [quality.form(known) if key == quality.score else ABSENT for known in beside]
            form = quality.form if key == quality.score else quality.compared.get(key, figure)
            rows.append(Row((title, form(value), *cells)))
    return Table(rows)


def confusion(run: RunFolder) -> tuple[list[str], list[Row]] | None:
    """Labels, and one row per true class with the counts of each predicted class; None beyond a dozen classes."""
    matrix = (run.summary.get("metrics") or {}).get("confusion")
    if not isinstance(matrix, list) or not 0 < len(matrix) <= CONFUSION_CLASSES:
        return None
    labels = [class_name(classes_of(run), k) for k in range(len(matrix))]
    rows = []
    for k, line in enumerate(matrix):
        hit = line[k] / sum(line) if sum(line) else None
        rows.append(Row((labels[k], *(count(cell) for cell in line), share(hit)), hit))
    return labels, rows


def rebuild_work(run: RunFolder) -> Table:
    """Where the processing time went: rebuilds that were timed, by place, and the rest. Bars are shares of the time."""
    events, total = run.events, number(run.summary, "seconds")
    seconds = np.nan_to_num(events["seconds"]) if "seconds" in events else np.zeros(len(events["rows"]))
    timed = seconds > 0
    rows = []
    for place, title in ((SHARDS, "Rebuilds by the shards"), (COORDINATOR, "Large rebuilds by the coordinator")):
        here = timed & (events["place"] == place)
        rows.append(_work(title, events["rows"][here], float(seconds[here].sum()), total, PLACE_TONES[place]))
    rest = None if total is None else max(total - float(seconds.sum()), 0.0)
    rows.append(_work("Compiled loop: routing and small rebuilds", events["rows"][~timed], rest, total, "reset"))
    rows.append(Row(("In all", count(len(seconds)), count(events["rows"].sum()), duration(total), "")))
    resets = int((events["place"] == LEAF_RESET).sum())
    return Table(
        rows,
        "Bars are shares of the processing time. Small rebuilds run inside the compiled loop and are counted, but not "
        "timed one by one; the time of the loop is what the timed rebuilds leave, with reading the source and "
        "recording." + (f" {counted(resets, 'rebuild')} only reset a leaf." if resets else ""),
    )


def _work(title: str, sizes: npt.NDArray[Any], seconds: float | None, total: float | None, tone: str) -> Row:
    """One row of :func:`rebuild_work`, about rebuilds of ``sizes`` rows."""
    part = seconds / total if total and seconds is not None else None
    return Row((title, count(len(sizes)), count(sizes.sum()), duration(seconds), share(part, 1)), part, tone)


def shard_work(run: RunFolder) -> Table:
    """What each shard owns and has done."""
    work = [entry for entry in run.summary.get("work") or [] if isinstance(entry, dict)]
    if not work:
        return Table([], "The run recorded no work of shards.")
    features = features_of(run)
    sparse = any(feature.get("kind") == "sparse" for feature in features)
    seconds = [number(entry, "seconds") or 0.0 for entry in work]
    total = sum(seconds)
    rows = []
    for entry, spent in zip(work, seconds, strict=True):
        columns = [int(column) for column in entry.get("columns") or []]
        owned = names([feature_name(features, column) for column in columns], 6) if columns else ""
        owned = " and ".join([*([owned] if owned else []), *(["sparse features"] if sparse else [])]) or "none"
        part = spent / total if total else None
        first = (str(entry.get("shard", ABSENT)), count(entry.get("requests")), duration(spent), share(part, 1))
        rows.append(Row((*first, count(len(columns)), owned), part, "shards"))
    if not any(entry.get("requests") for entry in work):
        return Table(
            rows,
            f"The shard{' was' if len(work) == 1 else 's were'} asked nothing: every rebuild was below "
            "cluster.local_work_limit, so the coordinator did it from its row cache.",
        )
    if not total or len(work) == 1:
        return Table(rows)
    times = figure(max(seconds) * len(work) / total)
    return Table(
        rows,
        "All shards worked equally long." if times == "1" else f"The busiest shard worked {times} times the mean.",
    )


def features_used(run: RunFolder) -> Table:
    """The features most examples are asked about."""
    if not run.model:
        return Table([])
    features = features_of(run)
    used = feature_use(run.model, Names(features, [], run.categories))
    most = max((entry["rows"] for entry in used), default=0)
    rows = [
        Row((entry["name"], count(entry["splits"]), count(entry["rows"])), entry["rows"] / most if most else None)
        for entry in used[:FEATURES_SHOWN]
    ]
    total = feature_count(features)
    more, unused = len(used) - len(rows), total - len(used)
    remarks = [f"{count(more)} more {'is' if more == 1 else 'are'} used."] if more > 0 else []
    if unused > 0:
        remarks.append(f"{count(unused)} of {counted(total, 'feature')} {'is' if unused == 1 else 'are'} not used.")
    return Table(rows, " ".join(remarks))


def next_rebuilds(run: RunFolder, margin: Margins | None, names: Names) -> Table:
    """The nodes to be rebuilt first; bars show what is left of their budgets."""
    if margin is None:
        return Table([])
    live, depth, rows = run.model["counts"].sum(axis=1), depths(run.model), []
    for node, updates in expected(margin, live):
        leaf = run.model["feature"][node] < 0
        what = f"leaf: {names.words(run.model, node)}" if leaf else " ".join(names.question(run.model, node))
        cells = [count(value) for value in (depth[node], live[node], margin.budget[node])]
        cells += [count(max(int(margin.left[node]), 0)), count(updates)]
        rows.append(Row((what, *cells), margin.share_left(node), f"margin-{margin.tone(node)}"))
    return Table(rows)


def skipped_rows(run: RunFolder) -> Table:
    """The first rows and updates that were passed over, and why."""
    rows = [
        Row((str(row.get("file") or ABSENT), count(row.get("source_row")), str(row.get("reason") or ABSENT)))
        for row in run.quarantine
    ]
    cut = f", the first {count(len(rows))} shown" if len(rows) < run.quarantined else ""
    return Table(rows, f"{count(run.quarantined)} in all{cut}")
