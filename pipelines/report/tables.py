"""The tables of one run's report as rows of text.

Invariant: what was not measured is called so; a time of 0 for work that was done is never shown as a time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pipelines.report.charts import PLACE_TONES
from pipelines.report.folder import RunFolder
from pipelines.report.formatting import ABSENT, count, duration, figure, names, share
from pipelines.report.identity import classes_of, f1_name, features_of
from pipelines.report.tree import class_name, feature_name, feature_use
from pipelines.report.verdicts import BASELINES, number

CONFUSION_CLASSES = 12
FEATURES_SHOWN = 12


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


def scores(run: RunFolder) -> Table:
    """Every score, with the baselines where they have the same score."""
    values = run.summary.get("metrics") or {}
    titles = {"accuracy": "Accuracy", "f1": f1_name(run), "macro_f1": "Macro F1", "kappa": "Kappa"}
    rows = []
    for key in values:
        value, title = number(values, key), titles.get(key, key)
        if value is not None and title:
            beside = [number(run.summary.get("baselines"), name) for name in BASELINES]
            cells = [share(known) if key == "accuracy" else ABSENT for known in beside]
            rows.append(Row((title, share(value) if key in ("accuracy", "f1", "macro_f1") else figure(value), *cells)))
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


def is_timed(run: RunFolder) -> bool:
    """Whether every rebuild that did more than reset a leaf has a time of its own."""
    seconds = run.events.get("seconds")
    return seconds is not None and bool((seconds[run.events["place"] != 0] > 0).all())


def rebuild_work(run: RunFolder) -> Table:
    """Where the processing time went: rebuilds by place, and everything else.

    The bar is the share of the time if every rebuild is timed, else the share of the rows.
    """
    events, total, timed = run.events, number(run.summary, "seconds"), is_timed(run)
    seconds = np.nan_to_num(events["seconds"]) if "seconds" in events else np.zeros(len(events["rows"]))
    all_rows, spent = int(events["rows"].sum()), float(seconds.sum())
    titles = ("Leaf resets", "Rebuilds by the coordinator", "Rebuilds by the shards")
    rows = []
    for code, (title, tone) in enumerate(zip(titles, PLACE_TONES, strict=True)):
        here = events["place"] == code
        number_of, measured = int(here.sum()), int((seconds[here] > 0).sum())
        part = float(events["rows"][here].sum()) / all_rows if all_rows else 0.0
        time = duration(float(seconds[here].sum()))
        if number_of and measured < number_of:
            time = f"{time} for {count(measured)} of them" if measured else "not timed singly"
        of_time = float(seconds[here].sum()) / total if total else None
        cells = (title, count(number_of), count(events["rows"][here].sum()), share(part, 1), time if number_of else "")
        rows.append(Row(cells, of_time if timed else part, tone))
    if total:
        rest = max(total - spent, 0.0)
        rows.append(Row(("Everything else", "", "", "", duration(rest)), rest / total if timed else None, "rule"))
        rows.append(Row(("In all", count(len(seconds)), count(all_rows), "100.0%", duration(total))))
    if timed:
        return Table(
            rows,
            "The bars are shares of the processing time; everything else is routing, counting and predicting.",
        )
    return Table(
        rows,
        "The bars are shares of the rows rebuilt. Rebuilds inside the coordinator's compiled loop are counted, "
        "but not timed one by one: their time is in everything else.",
    )


def shard_work(run: RunFolder) -> Table:
    """What each shard owns and has done."""
    work = [entry for entry in run.summary.get("work") or [] if isinstance(entry, dict)]
    if not work:
        return Table([], "The run recorded no work of shards.")
    features, seconds = features_of(run), [number(entry, "seconds") or 0.0 for entry in work]
    total = sum(seconds)
    rows = []
    for entry, spent in zip(work, seconds, strict=True):
        columns = [int(column) for column in entry.get("columns") or []]
        owned = names([feature_name(features, column) for column in columns], 6) if columns else "none"
        part = spent / total if total else None
        first = (str(entry.get("shard", ABSENT)), count(entry.get("requests")), duration(spent), share(part, 1))
        rows.append(Row((*first, count(len(columns)), owned), part, "shards"))
    if not any(entry.get("requests") for entry in work):
        return Table(
            rows,
            "The shards were asked nothing: every rebuild was below cluster.local_work_limit, so the coordinator "
            "did it from its row cache.",
        )
    busiest = f"The busiest shard worked {figure(max(seconds) * len(work) / total)} times the mean." if total else ""
    return Table(rows, busiest if len(work) > 1 else "")


def features_used(run: RunFolder) -> Table:
    """The features most examples are asked about."""
    if not run.model:
        return Table([])
    features = features_of(run)
    used = feature_use(run.model, features)
    most = max((entry["rows"] for entry in used), default=0)
    rows = [
        Row((entry["name"], count(entry["splits"]), count(entry["rows"])), entry["rows"] / most if most else None)
        for entry in used[:FEATURES_SHOWN]
    ]
    more, unused = len(used) - len(rows), len(features) - len(used)
    remarks = [f"{count(more)} more are used."] if more > 0 else []
    remarks += [f"{count(unused)} of {count(len(features))} features are not used."] if unused > 0 else []
    return Table(rows, " ".join(remarks))


def skipped_rows(run: RunFolder) -> Table:
    """The first rows that were skipped, and why."""
    rows = [
        Row((str(row.get("file") or ABSENT), count(row.get("source_row")), str(row.get("reason") or ABSENT)))
        for row in run.quarantine
    ]
    return Table(rows, f"{count(run.quarantined)} in all, the first {count(len(rows))} shown")
