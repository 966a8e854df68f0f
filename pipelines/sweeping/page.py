"""The page of a sweep, made of the same blocks as the report of a run, and its tables for a terminal."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from pipelines.sweeping.chart import chart_of
from pipelines.sweeping.grid import Axis, written
from pipelines.sweeping.table import Row, best, pooled
from raydt.evaluation.scoring import CLASS_SCORES
from raydt.learners import described
from raydt.messages import message
from raydt.presentation.blocks import Article, Best, Block, Code, Fact, Facts, Section, Table, Text, pairs
from raydt.presentation.blocks import Row as TableRow
from raydt.presentation.words import (
    ABSENT,
    FEATURE_SHOWN,
    Form,
    clipped,
    count,
    counted,
    duration,
    figure,
    moment,
    share,
)

#: Criteria whose best value stands at the top: what it is called, and how it is written.
_FIGURES: dict[str, tuple[str, Form]] = {
    "accuracy": ("best accuracy", share),
    "f1": ("best F1", share),
    "us_per_update": ("fastest, µs per update", figure),
}

#: Scores that a terminal shows.
_BRIEF = {"accuracy", "f1", "kappa"}

#: Columns of the table, of any learner: title, name in the row, how it is written, and whether a terminal shows it.
_COLUMNS: tuple[tuple[str, str, Form, bool], ...] = (
    *((title, name, share if is_share else figure, name in _BRIEF) for name, title, is_share in CLASS_SCORES),
    ("alarms", "alarms", count, False),
    ("no-change", "no_change", share, False),
    ("majority", "majority", share, False),
    ("µs/update", "us_per_update", figure, True),
)
_FORMS: dict[type, Form] = {int: count, float: figure, str: lambda name: clipped(name or "none", FEATURE_SHOWN)}

#: Rows that a terminal shows.
SHOWN = 30


def article(
    axes: Sequence[Axis],
    rows: Sequence[Row],
    summary: dict[str, Any],
    sets: Mapping[str, Any],
    config_text: str,
    location: str,
) -> Article:
    """Return the article about a sweep, by its table and ``sweep.json``.

    ``sets`` makes ``config_text``, the config of the first setting, that of the best one; commands use ``location``.
    """
    axes, rows = pooled(axes, rows)
    winners, failed = best(rows), sum(bool(row.get("error")) for row in rows)
    done, settings = count(summary["done"]), count(summary["settings"])
    notice = f"{message('sweeps.cut_short', reason=summary['exit_reason'], done=done, settings=settings)}."
    good = summary["verdict"] == f"{message('sweeps.all_beat')}."
    head: list[Block] = [
        Text(notice if summary["status"] == "interrupted" else "", "notice"),
        Text(f"{message('sweeps.failed', failed=count(failed))}." if failed else "", "notice bad"),
        Text(summary["verdict"], "verdict good" if good else "verdict bad"),
        Facts([_figure(axes, name, winners[name]) for name in _FIGURES if name in winners], "figures"),
        _facts(summary),
    ]
    chart = chart_of(axes, rows)
    blocks: list[Block] = [
        *([chart] if chart is not None else []),
        Text("" if "accuracy" in winners else f"{message('sweeps.no_accuracy')}.", "none"),
        *tables([axis.key for axis in axes], rows, summary["trials"]),
    ]
    if "accuracy" in winners:
        words = (word for key, value in sets.items() for word in ("--set", f"{key}={written(value)}"))
        command = Code(shlex.join(["raydt", "replay", f"{location}/config.yaml", *words]))
        blocks += [Text(message("sweeps.replay_best")), command]
    sections = [
        Section("Settings", blocks, "settings"),
        Section("Configuration of the first setting", [Code(config_text)], "config"),
    ]
    return Article(summary["name"], _what(axes, summary), head, sections)


def tables(keys: Sequence[str], rows: Sequence[Row], trials: int, *, brief: bool = False) -> list[Table]:
    """Return the table of the scored settings, the best of a column marked, and that of the failed ones.

    For a terminal they are ``brief``: fewer columns and, of a long sweep, only the best settings by accuracy.
    """
    top = {(row["setting"], name) for name, row in best(rows).items()}
    own = dict.fromkeys(column for row in rows for column in described(row.get("learner")).columns)
    shown = [
        *_COLUMNS,
        *((column.title, column.name, _FORMS[column.kind], column.brief) for column in own),
        ("promised", "promised", lambda value: "yes" if value else "no", True),
    ]
    known = {name for _, name, _, _ in shown if any(row.get(name) is not None for row in rows)}  # no last label, e.g.
    shown = [column for column in shown if (column[3] or not brief) and (column[1] in known or not known)]
    scored, failed = [], []
    for row in rows:
        setting = [written(row[key]) if key in row else ABSENT for key in keys]
        if row.get("error"):
            error = clipped(row["error"].partition("\n")[0], 100) if brief else row["error"]
            failed.append(TableRow((*setting, count(row.get("updates")), error)))
            continue
        cells = [(form(row.get(name)), (row["setting"], name) in top) for _, name, form, _ in shown]
        accuracy = -1.0 if row.get("accuracy") is None else row["accuracy"]
        scored.append((accuracy, TableRow((*setting, *(Best(cell) if is_best else cell for cell, is_best in cells)))))
    remarks = [message("sweeps.promised"), *([message("sweeps.means")] if trials > 1 else [])]
    remark = " ".join(f"{sentence}." for sentence in remarks)
    if brief:
        cut = len(scored) > SHOWN
        remark = message("sweeps.best_shown", shown=SHOWN, settings=len(rows)) if cut else ""
        scored = sorted(scored, key=lambda pair: -pair[0])[:SHOWN] if cut else scored
    title, columns = "Results of each setting; the best of a column is bold", (*keys, *(column[0] for column in shown))
    results = Table([row for _, row in scored], remark if scored else "", title, columns, style="dense")
    failures = (*keys, "Updates", "Error")
    return [results, Table(failed, "", "Failed settings", failures, (1, len(failures)))]


def _what(axes: Sequence[Axis], summary: dict[str, Any]) -> str:
    over = ", ".join(f"{counted(len(axis.values), 'value')} of {axis.key}" for axis in axes)
    trials = f", mean of {counted(summary['trials'], 'trial')}" if summary["trials"] > 1 else ""
    learner = "" if any(axis.key == "learner.kind" for axis in axes) else f"{summary['learner']}, "
    return f"{learner}{over}, over {'' if trials else 'the same '}{count(summary['rows'])} rows{trials}"


def _figure(axes: Sequence[Axis], name: str, row: Row) -> Fact:
    """Return the best value of a criterion and the setting that has it."""
    title, form = _FIGURES[name]
    setting = ", ".join(f"{axis.key} {written(row[axis.key])}" for axis in axes if axis.key in row)
    return Fact(title, form(row[name]), setting if row["promised"] else f"{setting}; no guarantee is promised")


def _facts(summary: dict[str, Any]) -> Facts:
    versions = {"raydt": summary["raydt_version"], **summary["versions"]}
    where = "Ray" if summary["backend"] == "ray" else "this process"
    parallel = "one after another" if summary["parallel"] == 1 else f"{summary['parallel']} at a time"
    found = {
        "settings": f"{count(summary['done'])} of {count(summary['settings'])}, {count(summary['failed'])} failed",
        "ran on": f"{where}, {parallel}",
        "time for all": duration(summary["seconds"]),
        "reading, once": duration(summary["read_seconds"]),
        "start-up": duration(summary["startup_seconds"]),
        "label": str(summary["label"] or ABSENT),
        "positive class": ", ".join(map(str, summary["positive"])) if summary["positive"] else ABSENT,
        "started": moment(summary["started"]),
        "versions": ", ".join(f"{n} {v}" for n, v in versions.items()),
    }
    return pairs(found.items())
