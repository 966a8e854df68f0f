"""The tables of one run's report as rows of text.

Invariant: what was not measured is called so; a time of 0 for work that was done is never shown as a time.
"""

from __future__ import annotations

from pipelines.report.folder import RunFolder
from pipelines.report.identity import f1_name
from pipelines.report.quality import quality_of
from pipelines.report.recovery import checkpoints_failed, recovered_in_words, recoveries_of, repeated
from raydt.presentation.blocks import Row, Table
from raydt.presentation.trees import class_name, feature_name
from raydt.presentation.words import ABSENT, count, counted, duration, figure, names, number, share

CONFUSION_CLASSES = 12
RECOVERIES_SHOWN = 50
ALARMS_SHOWN = 20
ALARM_COLUMNS = ("seq", "predictions", "error_before", "error_after")


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
    sentences = [f"{words[0].upper()}{words[1:]}."] if words else []
    if words and run.summary.get("model_digest"):
        sentences.append("The model is identical to that of an uninterrupted run.")
    if len(entries) > len(rows):
        sentences.append(f"The table shows the last {len(rows)} recoveries.")
    if failed:
        sentences.append(f"{counted(failed, 'checkpoint')} could not be written; see log.jsonl for the cause.")
    return Table(rows, " ".join(sentences))


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
            baselines = [number(run.summary.get("baselines"), name) for name in quality.baselines]
            cells = [quality.form(known) if key == quality.score else ABSENT for known in baselines]
            form = quality.form if key == quality.score else quality.compared.get(key, figure)
            rows.append(Row((title, form(value), *cells)))
    return Table(rows)


def alarms(run: RunFolder) -> Table:
    """The last alarms of ADWIN; the remark counts all."""
    found = run.alarms
    total = len(found.get("seq", ()))
    columns = [found[name][-ALARMS_SHOWN:].tolist() for name in ALARM_COLUMNS] if total else [[]] * 4
    rows = [
        Row((count(seq), count(predictions), share(before), share(after)))
        for seq, predictions, before, after in zip(*columns, strict=True)
    ]
    cut = f", the last {count(len(rows))} shown" if len(rows) < total else ""
    return Table(rows, f"Alarms of ADWIN, the share of errors has risen: {count(total)} in all{cut}")


def confusion(run: RunFolder) -> tuple[list[str], list[Row]] | None:
    """Labels, and one row per true class with the counts of each predicted class; None beyond a dozen classes."""
    matrix = (run.summary.get("metrics") or {}).get("confusion")
    if not isinstance(matrix, list) or not 0 < len(matrix) <= CONFUSION_CLASSES:
        return None
    labels = [class_name(run.names.classes, k) for k in range(len(matrix))]
    rows = []
    for k, line in enumerate(matrix):
        hit = line[k] / sum(line) if sum(line) else None
        rows.append(Row((labels[k], *(count(cell) for cell in line), share(hit)), hit))
    return labels, rows


def shard_work(run: RunFolder) -> Table:
    """Return the columns and work of each shard."""
    work = [entry for entry in run.summary.get("work") or [] if isinstance(entry, dict)]
    if not work:
        return Table([], "The run recorded no work by shards.")
    features = run.names.features
    sparse = any(feature.get("kind") == "sparse" for feature in features)
    seconds = [number(entry, "seconds") or 0.0 for entry in work]
    total = sum(seconds)
    rows = []
    for index, (entry, spent) in enumerate(zip(work, seconds, strict=True)):
        columns = [int(column) for column in entry.get("columns") or []]
        owned = names([feature_name(features, column) for column in columns], 6) if columns else ""
        others = [run.description.owned(index, len(work)), "sparse features" if sparse else ""]
        owned = " and ".join(part for part in (owned, *others) if part) or "none"
        part = spent / total if total else None
        first = (str(entry.get("shard", ABSENT)), count(entry.get("requests")), duration(spent), share(part, 1))
        rows.append(Row((*first, count(len(columns)), owned), part, "shards"))
    if not any(entry.get("requests") for entry in work):
        return Table(
            rows,
            f"The shard{' was' if len(work) == 1 else 's were'} given no work: the model stayed below "
            "cluster.local_work_limit, so the coordinator held all of it.",
        )
    if not total or len(work) == 1:
        return Table(rows)
    times = figure(max(seconds) * len(work) / total)
    return Table(
        rows,
        "All shards worked equally long." if times == "1" else f"The busiest shard worked {times} times the mean.",
    )


def skipped_rows(run: RunFolder) -> Table:
    """The first rows and updates that were passed over, and why."""
    rows = [
        Row((str(row.get("file") or ABSENT), count(row.get("source_row")), str(row.get("reason") or ABSENT)))
        for row in run.quarantine
    ]
    cut = f", the first {count(len(rows))} shown" if len(rows) < run.quarantined else ""
    return Table(rows, f"{count(run.quarantined)} in all{cut}")
