"""The words and tables of one run's report, from what its folder holds.

Every function takes the run folder and returns plain values for the template; a section without data is empty.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pipelines.report import charts
from pipelines.report.charts import Chart
from pipelines.report.folder import RunFolder
from pipelines.report.formatting import ABSENT, count, duration, figure, moment, names, share, size
from pipelines.report.tree import LEVELS, Node, feature_name, feature_use, top_levels
from pipelines.report.verdicts import BASELINES, AuditView, Verdict, against_baselines, audit_view, number

CONFUSION_CLASSES = 12
FEATURES_SHOWN = 12


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a table: cells as text, and the share that its bar shows, if it has one."""

    cells: tuple[str, ...]
    share: float | None = None
    tone: str = "learner"


@dataclass(slots=True)
class RunView:
    """All that the template shows of one run."""

    prefix: str
    name: str
    what: str
    status: str
    error: str
    notes: list[str]
    facts: list[tuple[str, str]]
    verdict: Verdict
    figures: list[tuple[str, str, str]]
    scores: list[Row]
    confusion: tuple[list[str], list[Row]] | None
    quality_charts: list[Chart]
    stream_charts: list[Chart]
    rebuild_charts: list[Chart]
    times: list[Row]
    shards: list[Row]
    shard_note: str
    shape_charts: list[Chart]
    tree: Node | None
    levels: int
    legend: list[tuple[str, int]]
    features: list[Row]
    features_unused: str
    audit: AuditView
    audit_checked: list[Row]
    audit_worst: list[Row]
    skipped: list[Row]
    skipped_total: int
    config_text: str
    environment: list[tuple[str, str]]
    digests: list[tuple[str, str]] = field(default_factory=list)


def run_view(run: RunFolder, prefix: str = "") -> RunView:
    """Everything the template shows of ``run``; ``prefix`` keeps the anchors of several runs apart."""
    summary, metrics = run.summary, run.metrics
    drawn = bool(len(metrics.get("seq", ())))
    rebuilt = bool(len(run.events.get("rows", ()))) and {"seq", "place"} <= run.events.keys()
    timed = rebuilt and float(np.nansum(run.events.get("seconds", np.zeros(1)))) > 0
    classes = [str(label) for label in summary.get("classes") or []]
    tree = top_levels(run.model, _features(run), classes) if run.model else None
    legend = [
        (classes[k] if k < len(classes) else f"class {k}", k % 8) for k in range(run.model["counts"].shape[1])
    ] if run.model else []  # fmt: skip
    features, unused = _feature_rows(run)
    shards, shard_note = _shard_rows(run)
    rebuild_charts = []
    if rebuilt:
        rebuild_charts.append(charts.rebuild_sizes(run.events))
        if timed:
            rebuild_charts.append(charts.rebuild_sizes(run.events, "seconds"))
        rebuild_charts.append(charts.rebuilds_over_stream(run.events, int(summary.get("updates") or 0)))
    audit = audit_view(summary.get("audit"), run.path)
    return RunView(
        prefix=prefix,
        name=_name(run),
        what=_what(run),
        status=str(summary.get("status") or "unfinished"),
        error=str(summary.get("error") or ""),
        notes=run.notes,
        facts=_facts(run),
        verdict=against_baselines(summary, metrics),
        figures=_figures(run),
        scores=_score_rows(run),
        confusion=_confusion(run, classes),
        quality_charts=[charts.cumulative_quality(metrics, _f1_name(run)), charts.windowed_quality(metrics)]
        if drawn
        else [],
        stream_charts=[charts.live_examples(metrics), charts.work_over_stream(metrics)] if drawn else [],
        rebuild_charts=rebuild_charts,
        times=_time_rows(run) if rebuilt else [],
        shards=shards,
        shard_note=shard_note,
        shape_charts=[charts.tree_shape(metrics)] if drawn else [],
        tree=tree,
        levels=LEVELS,
        legend=legend,
        features=features,
        features_unused=unused,
        audit=audit,
        audit_checked=[Row((key.replace("_", " "), count(value))) for key, value in audit.checked.items()],
        audit_worst=[Row((key.replace("_", " "), figure(value))) for key, value in audit.worst.items()],
        skipped=[
            Row((str(row.get("file") or ABSENT), count(row.get("source_row")), str(row.get("reason") or "")))
            for row in run.quarantine
        ],
        skipped_total=run.quarantined,
        config_text=run.config_text,
        environment=_environment(run),
        digests=[
            (title, str(summary[key]))
            for title, key in (
                ("Model digest", "model_digest"),
                ("Model config hash", "config_hash"),
                ("Source fingerprint", "source_fingerprint"),
            )
            if summary.get(key)
        ],
    )


def _name(run: RunFolder) -> str:
    return str(run.summary.get("name") or run.path.resolve().name)


def _features(run: RunFolder) -> list[dict[str, Any]]:
    return [feature for feature in run.summary.get("features") or [] if isinstance(feature, dict)]


def _section(run: RunFolder, key: str) -> dict[str, Any]:
    section = run.config.get(key)
    return section if isinstance(section, dict) else {}


def _learner(run: RunFolder) -> str:
    return str(run.summary.get("learner") or _section(run, "learner").get("kind") or "a learner")


def _data(run: RunFolder) -> str:
    source = _section(run, "source")
    path = source.get("path")
    if isinstance(path, list):
        return names([Path(str(part)).name for part in path], 3)
    if path:
        return Path(str(path)).name
    kind = str(source.get("kind") or "")
    return f"{kind} ({source['generator']})" if source.get("generator") else kind or "an unknown source"


def _stream(run: RunFolder) -> str:
    stream = _section(run, "stream")
    model = str(stream.get("model") or "unknown").replace("_", " ")
    details = {
        "sliding window": ("window", "of {} examples"),
        "random updates": ("insert_probability", "with insert probability {}"),
    }
    key, text = details.get(model, ("", ""))
    value = stream.get(key)
    return f"{model} {text.format(figure(value) if key != 'window' else count(value))}" if value is not None else model


def _what(run: RunFolder) -> str:
    return f"{_learner(run)} on {_data(run)}, {_stream(run)}"


def _f1_name(run: RunFolder) -> str | None:
    """``F1 (label)`` of the positive class, or None where the run has none."""
    if number(run.summary.get("metrics"), "f1") is None or "f1" not in run.metrics:
        return None
    classes = run.summary.get("classes") or []
    return f"F1 ({classes[1]})" if len(classes) > 1 else "F1"


def _facts(run: RunFolder) -> list[tuple[str, str]]:
    summary = run.summary
    labels = [str(label) for label in summary.get("classes") or []]
    shards = summary.get("shards")
    backend = str(summary.get("backend") or ABSENT).replace("_", " ")
    facts = [
        ("Learner", _learner(run)),
        ("Data", _data(run)),
        ("Stream", _stream(run)),
        ("Features", count(len(_features(run))) if summary.get("features") else ABSENT),
        (
            "Label",
            f"{summary.get('label') or ABSENT}: {names(labels)}" if labels else str(summary.get("label") or ABSENT),
        ),
        ("Started", moment(summary.get("started"))),
        ("Processing time", duration(summary.get("seconds"))),
        ("Start-up", duration(summary.get("startup_seconds"))),
        ("Backend", f"{backend}, {shards} shard{'' if shards == 1 else 's'}" if shards is not None else backend),
        ("Status", str(summary.get("status") or "unfinished")),
    ]
    if summary.get("exit_reason"):
        facts.append(("Ended because", str(summary["exit_reason"])))
    if summary.get("restarts"):
        facts.append(("Restarts", count(summary["restarts"])))
    return facts


def _figures(run: RunFolder) -> list[tuple[str, str, str]]:
    """Value, name and remark of each key figure."""
    summary = run.summary
    scores, baselines = summary.get("metrics") or {}, summary.get("baselines") or {}
    beside = ", ".join(
        f"{BASELINES[key]} {share(number(baselines, key))}" for key in BASELINES if number(baselines, key) is not None
    )
    figures = [
        (
            count(summary.get("updates")),
            "updates",
            f"{count(summary.get('inserts'))} inserts, {count(summary.get('deletes'))} deletes",
        ),
        (figure(summary.get("updates_per_second")), "updates per second", "start-up and report excluded"),
        (share(number(scores, "accuracy")), "accuracy", beside or "no baseline recorded"),
    ]
    f1 = _f1_name(run)
    if f1 is not None:
        figures.append(
            (share(number(scores, "f1")), f1, f"macro F1 {share(number(scores, 'macro_f1'))}, kappa "
             f"{figure(number(scores, 'kappa'))}")
        )  # fmt: skip
    else:
        figures.append((share(number(scores, "macro_f1")), "macro F1", f"kappa {figure(number(scores, 'kappa'))}"))
    figures += [
        (count(summary.get("active")), "live examples", f"of {count(summary.get('inserts'))} inserted"),
        (
            count(summary.get("nodes")),
            "nodes",
            f"{count(summary.get('leaves'))} leaves, depth {count(summary.get('depth'))}",
        ),
        (count(summary.get("rebuilds")), "rebuilds", f"{count(summary.get('rebuilt_rows'))} rows in all"),
        (
            count(summary.get("rounds")),
            "rounds with shards",
            f"{size(summary.get('bytes_exchanged'))} exchanged",
        ),
    ]
    return figures


def _environment(run: RunFolder) -> list[tuple[str, str]]:
    summary = run.summary
    versions = summary.get("versions") if isinstance(summary.get("versions"), dict) else {}
    rows = [("raydt", str(summary.get("raydt_version") or ABSENT))]
    rows += [(str(name), str(version)) for name, version in (versions or {}).items()]
    rows.append(("Peak memory of the driver process", size(summary.get("peak_rss_bytes"))))
    return rows
