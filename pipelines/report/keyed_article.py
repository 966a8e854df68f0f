"""The article about a run with a model for each key: how the keys differ, which are behind, where the time went."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from pipelines.report import facts, recovery, tables
from pipelines.report.folder import ReportedRun
from pipelines.report.quality import Quality, judged
from pipelines.report.verdicts import audit_blocks, audit_figure
from raydt.arrays.types import Bools, Floats, Ints
from raydt.messages import message
from raydt.presentation.blocks import Article, Beside, Block, Code, Fact, Facts, Row, Section, Table, Text, pairs
from raydt.presentation.words import Form, count, counted, duration, figure, share

#: Keys of a table.
SHOWN = 10
_QUANTILES = (
    (0.0, "least"),
    (0.05, "5 %"),
    (0.25, "25 %"),
    (0.5, "median"),
    (0.75, "75 %"),
    (0.95, "95 %"),
    (1, "most"),
)
_BINS = 20


def keyed_article(run: ReportedRun, location: str, label: str = "", prefix: str = "") -> Article:
    """Return the article about a run whose table of keys was read; arguments as of ``run_article``."""
    quality, keys = judged(run.summary), run.keys
    config = Text(f"{message('reports.no_config')}.", "none")
    recovered = tables.recoveries(run)
    sections = [
        Section("Keys", _distribution(keys, quality), "keys"),
        Section("Best and worst", _extremes(keys, quality), "extremes"),
        Section("Behind a baseline", _behind(keys, quality), "behind"),
        Section("Time and rows", _skew(run, keys), "skew"),
        Section("Guarantee", audit_blocks(run, location, None), "guarantee"),
        *([Section("Rows passed over", [tables.skipped_rows(run)], "skipped")] if run.quarantined else []),
        *([Section("Recovery", recovered, "recovery")] if recovered else []),
        Section("Configuration", [Code(run.config_text) if run.config_text else config], "config"),
        Section("Environment and digests", facts.environment(run), "environment"),
    ]
    failed = Text(str(run.summary.get("error") or ""), "notice bad", lead="The run failed.")
    head: list[Block] = [
        failed,
        *(Text(f"{note}.", "notice") for note in run.notes),
        Facts([*_figures(run, keys, quality), audit_figure(run.summary)], "figures"),
        pairs(facts.facts(run, location)),
    ]
    marked = [replace(one, blocks=[recovery.marked(block, run) for block in one.blocks]) for one in sections]
    return Article(label or facts.name_of(run, location), facts.what_ran(run), head, marked, prefix)


def _figures(run: ReportedRun, keys: dict[str, Any], quality: Quality) -> list[Fact]:
    summary = run.summary
    pooled = (summary.get("metrics") or {}).get(quality.score)
    behind = int(np.count_nonzero(_loses(keys, quality)))
    return [
        Fact("keys", count(len(keys["key"])), f"{counted(behind, 'key')} behind a baseline"),
        Fact(quality.name, quality.form(pooled), "over the predictions of all keys"),
        Fact(f"{quality.name} of the median key", quality.form(_median(keys[quality.score])), "each key counts once"),
        Fact("updates", count(summary.get("updates")), f"{count(summary.get('active'))} examples live"),
        Fact("updates per second", figure(summary.get("updates_per_second")), "start-up and report excluded"),
    ]


def _median(values: Floats) -> float | None:
    known = values[~np.isnan(values)]
    return float(np.median(known)) if len(known) else None


def _distribution(keys: dict[str, Any], quality: Quality) -> list[Block]:
    """Return quantiles over keys, and for shares how many keys lie in each tenth."""
    columns: list[tuple[str, str, Form]] = [
        (quality.name, quality.score, quality.form),
        ("updates", "updates", count),
        ("live examples", "active", count),
        ("nodes", "nodes", count),
        ("seconds", "seconds", duration),
    ]
    rows = []
    for title, name, form in columns:
        values = np.asarray(keys[name], dtype=np.float64)
        values = values[~np.isnan(values)]
        if len(values):
            method: Any = "linear" if form is quality.form else "nearest"
            cells = [form(float(np.quantile(values, at, method=method))) for at, _ in _QUANTILES]
            rows.append(Row((title, *cells)))
    quantiles = Table(rows, title="Quantiles over keys", columns=("", *(name for _, name in _QUANTILES)))
    return [quantiles, *([_histogram(keys[quality.score], quality)] if quality.form is share else [])]


def _histogram(scores: Floats, quality: Quality) -> Table:
    known = scores[~np.isnan(scores)]
    counts, edges = np.histogram(known, bins=_BINS, range=(0.0, 1.0))
    most = max(1, int(counts.max(initial=0)))
    there = np.flatnonzero(counts)
    shown = range(int(there[0]), int(there[-1]) + 1) if len(there) else ()
    rows = [Row((f"{edges[i]:.0%} to {edges[i + 1]:.0%}", count(int(counts[i]))), int(counts[i]) / most) for i in shown]
    none = len(scores) - len(known)
    remark = f"{counted(none, 'key')} without a prediction." if none else ""
    title = f"Keys by {quality.name}"
    return Table(rows, remark, title, (quality.name.capitalize(), "Keys"), (1,), "bars", "keys")


def _loses(keys: dict[str, Any], quality: Quality) -> Bools:
    """Return which keys are behind the better baseline."""
    return quality.behind(keys[quality.score], _rival(keys, quality))


def _rival(keys: dict[str, Any], quality: Quality) -> Floats:
    best: Floats = quality.best([keys[name] for name in quality.baselines])
    return best


def _rows(keys: dict[str, Any], quality: Quality, places: Ints) -> list[Row]:
    rival = _rival(keys, quality)
    return [
        Row(
            (
                str(keys["key"][i]),
                quality.form(float(keys[quality.score][i])),
                quality.form(float(rival[i])),
                count(int(keys["predictions"][i])),
                count(int(keys["active"][i])),
            )
        )
        for i in places.tolist()
    ]


def _columns(quality: Quality) -> tuple[str, ...]:
    return ("Key", quality.name.capitalize(), "Better baseline", "Predictions", "Live")


def _extremes(keys: dict[str, Any], quality: Quality) -> list[Block]:
    """Return the best and the worst keys."""
    scores = np.asarray(keys[quality.score], dtype=np.float64)
    known = np.flatnonzero(~np.isnan(scores))
    order = known[np.argsort(-scores[known] if quality.more_is_better else scores[known], kind="stable")]
    if len(order) <= 2 * SHOWN:
        return [Table(_rows(keys, quality, order), title="All keys, the best first", columns=_columns(quality))]
    ends = (("best", order[:SHOWN]), ("worst", order[::-1][:SHOWN]))
    found = [
        Table(_rows(keys, quality, at), title=f"The {SHOWN} {name} keys", columns=_columns(quality))
        for name, at in ends
    ]
    return [Beside(found)]


def _behind(keys: dict[str, Any], quality: Quality) -> list[Block]:
    """Return the keys that lose most against the better baseline."""
    lost = np.flatnonzero(_loses(keys, quality))
    if not len(lost):
        return [Text(f"{message('keyed.none_behind')}.")]
    gap = np.abs(np.asarray(keys[quality.score])[lost] - _rival(keys, quality)[lost])
    worst = lost[np.argsort(-gap, kind="stable")][:SHOWN]
    said = message("keyed.behind", behind=counted(len(lost), "key"), keys=len(keys["key"]))
    title = "Those that lose most" if len(lost) > SHOWN else ""
    return [Text(f"{said}."), Table(_rows(keys, quality, worst), title=title, columns=_columns(quality))]


def _skew(run: ReportedRun, keys: dict[str, Any]) -> list[Block]:
    """Return the keys that took most of the time, and what bounds the speed of more processes."""
    seconds, updates = np.asarray(keys["seconds"]), np.asarray(keys["updates"], dtype=np.float64)
    total, whole = float(seconds.sum()) or 1.0, float(updates.sum()) or 1.0
    order = np.argsort(-seconds, kind="stable")[:SHOWN]
    rows = []
    for i in order.tolist():
        part = float(seconds[i]) / total
        cells = (
            duration(float(seconds[i])),
            share(part, 1),
            count(int(updates[i])),
            share(float(updates[i]) / whole, 1),
        )
        rows.append(Row((str(keys["key"][i]), *cells), part))
    largest = float(seconds.max(initial=0.0)) / total
    said = message("keyed.bound", share=share(largest, 1), times=f"{1 / largest:,.1f}" if largest else "any")
    titles = ("Key", "Time", "Share", "Updates", "Share of updates")
    return [
        Text(f"{said}."),
        Table(rows, "", "Keys that took most of the time", titles, (1,), "bars", "time"),
        *tables.shard_work(run)[1:],
    ]
