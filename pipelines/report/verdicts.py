"""Verdicts of the report in plain sentences: whether the learner beats the trivial baselines, and what the audit found.

If a learner loses to a baseline, the top of the page states it.
"""

from __future__ import annotations

import shlex
from typing import Any, Literal

import numpy as np

from pipelines.report.folder import ReportedRun
from pipelines.report.quality import Quality, judged
from raydt.messages import Message, message
from raydt.presentation.blocks import Beside, Block, Code, Fact, Facts, Items, Row, Table, Text
from raydt.presentation.series import Columns
from raydt.presentation.words import count, counted, figure, number


def against_baselines(summary: dict[str, Any], metrics: Columns) -> Text:
    """Compare the learner's score with the trivial baselines, in the whole and window by window."""
    quality = judged(summary)
    score = number(summary.get("metrics"), quality.score)
    known = {key: number(summary.get("baselines"), key) for key in quality.baselines}
    rivals = {key: value for key, value in known.items() if value is not None}
    if score is None:
        return Text(f"{message('reports.no_score', quality=quality.name)}.", "verdict plain")
    written = {"quality": quality.name, "score": quality.form(score)}
    if not rivals:
        return Text(f"{message('reports.no_baseline', **written)}.", "verdict plain")
    lost = [key for key, value in rivals.items() if quality.behind(score, value)]
    tied = [key for key, value in rivals.items() if score == value]
    won = [key for key, value in rivals.items() if quality.behind(value, score)]

    def against(keys: list[str]) -> str:
        return " and ".join(f"{quality.baselines[key]} ({quality.form(rivals[key])})" for key in keys)

    if lost:
        said = [message("reports.loses", rivals=against(lost), **written)]
        if won or tied:
            other = "reports.beats_another" if won else "reports.equals_another"
            said.append(message(other, rivals=against(won or tied)))
    else:
        said = [message("reports.equals" if tied else "reports.beats", rivals=against(tied or won), **written)]
    text = " ".join(f"{sentence}." for sentence in [*said, *_windows_lost(metrics, quality)])
    return Text(text, "verdict bad" if lost or tied else "verdict good")


def _windows_lost(metrics: Columns, quality: Quality) -> list[Message]:
    """Count the windows of the metrics table that the learner lost to the better baseline; empty if none was scored."""
    names = [quality.window, *(f"window_{key}" for key in quality.baselines)]
    learner, *rivals = (metrics.get(name, np.array([])) for name in names)
    scored = int(np.isfinite(learner).sum())
    if not scored or any(len(rival) != len(learner) for rival in rivals):
        return []
    lost = int(quality.behind(learner, quality.best(rivals)).sum())
    if scored == 1:
        return [message("reports.window_lost" if lost else "reports.window_kept")]
    if not lost:
        return [message("reports.windows_kept", scored=count(scored))]
    return [message("reports.windows_lost", lost=count(lost), scored=count(scored))]


_FEASIBILITY: dict[str, tuple[Literal["good", "bad", "plain"], str]] = {
    "proven": ("good", "proven"),
    "violated": ("bad", "violated"),
    "not_promised": ("plain", "not promised by these options"),
}


def _verdicts(summary: dict[str, Any]) -> list[Fact]:
    """Return the two verdicts of an audit; none of a run without an audit."""
    audit = summary.get("audit")
    if not audit:
        return []
    conformance, feasibility = str(audit.get("conformance")), str(audit.get("feasibility"))
    tone, text = _FEASIBILITY.get(feasibility, ("plain", feasibility))
    holds: Literal["good", "bad"] = "good" if conformance == "holds" else "bad"
    return [
        Fact("Conformance", conformance, "Is the model what its algorithm says?", holds),
        Fact("Feasibility", text, "Does the published guarantee hold?", tone),
    ]


def audit_figure(summary: dict[str, Any]) -> Fact:
    """Return the audit as a key figure."""
    verdicts = _verdicts(summary)
    if not verdicts:
        return Fact("audit", "not run", "see the command below", "plain")
    conformance, feasibility = verdicts
    return Fact("audit", conformance.value, f"guarantee: {feasibility.value}", conformance.tone)


def audit_blocks(run: ReportedRun, location: str, gap: Fact | None) -> list[Block]:
    """Return the audit of a run, or how to run one on the folder at ``location``."""
    summary, command = run.summary, f"raydt audit {shlex.quote(location)}"
    moment = Text(_moment(summary))
    audit, verdicts = summary.get("audit"), _verdicts(summary)
    if not audit:
        return [moment, Text(message("reports.no_audit")), Code(command)]
    reason, failures = audit.get("reason"), [str(failure) for failure in audit.get("failures") or []]
    measures = run.description.measures
    worst = {
        measures.get(key, key.replace("_", " ")): figure(value) for key, value in (audit.get("worst") or {}).items()
    }
    checked = {key.replace("_", " "): count(value) for key, value in (audit.get("checked") or {}).items()}
    return [
        moment,
        Facts([*verdicts, *([gap] if gap else [])], "verdicts"),
        Text(f"{'Proven' if audit.get('feasibility') == 'proven' else 'Reason'}: {reason}." if reason else ""),
        Text("What failed:" if failures else ""),
        Items(failures),
        Beside(
            [
                Table([*map(Row, worst.items())], title="Measured", columns=("Measure", "Value")),
                Table([*map(Row, checked.items())], title="What was checked", columns=("Check", "Number")),
            ]
        ),
        Text("To repeat the audit:", "quiet"),
        Code(command),
    ]


def _moment(summary: dict[str, Any]) -> str:
    """Return the moment of an unfinished stream that an audit checks; empty of a complete one."""
    status = summary.get("status")
    if status not in ("failed", "interrupted"):
        return ""
    updates = counted(int(number(summary, "updates") or 0), "update")
    ended = "failed" if status == "failed" else "was interrupted"
    return f"{message('reports.unfinished', ended=ended, updates=updates)}."
