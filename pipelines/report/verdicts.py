"""Verdicts of the report in plain sentences: whether the learner beats the trivial baselines, and what the audit found.

If a learner loses to a baseline, the top of the page states it.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from pipelines.report.quality import Quality, quality_of
from raydt.presentation.series import Columns
from raydt.presentation.words import count, counted, number


@dataclass(frozen=True, slots=True)
class Verdict:
    """One sentence and its colour."""

    tone: Literal["good", "bad", "plain"]
    text: str


def against_baselines(summary: dict[str, Any], metrics: Columns) -> Verdict:
    """Whether the learner's score is better than that of the trivial baselines, and how often window by window."""
    quality = quality_of(summary.get("metrics"))
    score = number(summary.get("metrics"), quality.score)
    known = {key: number(summary.get("baselines"), key) for key in quality.baselines}
    rivals = {key: value for key, value in known.items() if value is not None}
    if score is None:
        return Verdict(
            "plain", f"No {quality.name} was recorded, so there is nothing to compare with the trivial baselines."
        )
    written = f"its {quality.name} is {quality.form(score)}"
    if not rivals:
        return Verdict("plain", f"The {written[4:]}. No trivial baseline was recorded to compare it with.")
    lost = [key for key, value in rivals.items() if quality.behind(score, value)]
    tied = [key for key, value in rivals.items() if score == value]
    won = [key for key, value in rivals.items() if quality.behind(value, score)]

    def against(keys: list[str]) -> str:
        return " and ".join(f"{quality.baselines[key]} ({quality.form(rivals[key])})" for key in keys)

    if lost:
        text = f"The learner loses to {against(lost)}: {written}."
        if won or tied:
            text += f" It {'beats' if won else 'equals'} {against(won or tied)}."
    elif tied:
        text = f"The learner is no better than {against(tied)}: {written}."
    else:
        text = f"The learner beats {against(won)} with {'an' if quality.name[0] in 'aeiou' else 'a'} {quality.name} of "
        text += f"{quality.form(score)}."
    return Verdict("bad" if lost or tied else "good", text + _windows_lost(metrics, quality))


def _windows_lost(metrics: Columns, quality: Quality) -> str:
    """How many windows of the metrics table the learner lost to the better baseline; empty if none was scored."""
    names = [quality.window, *(f"window_{key}" for key in quality.baselines)]
    learner, *rivals = (metrics.get(name, np.array([])) for name in names)
    scored = int(np.isfinite(learner).sum())
    if not scored or any(len(rival) != len(learner) for rival in rivals):
        return ""
    lost = int(quality.behind(learner, quality.best(rivals)).sum())
    if scored == 1:
        return f" In the only window of the stream it was {'' if lost else 'not '}behind the better of the two."
    if not lost:
        return f" In none of the {count(scored)} windows of the stream was it behind."
    return f" In {count(lost)} of {count(scored)} windows of the stream it was behind the better of the two."


@dataclass(frozen=True, slots=True)
class AuditView:
    """The audit as the page shows it: two verdicts, a command, and which moment of an unfinished stream it is about."""

    ran: bool
    conformance: Verdict
    feasibility: Verdict
    reason: str
    checked: dict[str, Any]
    worst: dict[str, Any]
    failures: list[str]
    command: str
    moment: str


_FEASIBILITY: dict[str, tuple[Literal["good", "bad", "plain"], str]] = {
    "proven": ("good", "proven"),
    "violated": ("bad", "violated"),
    "not_promised": ("plain", "not promised by these options"),
}


def audit_view(summary: dict[str, Any], location: str) -> AuditView:
    """The audit of a summary, or how to run one on the folder at ``location``."""
    audit, command, moment = summary.get("audit"), f"raydt audit {shlex.quote(location)}", ""
    if (status := summary.get("status")) in ("failed", "interrupted"):
        ended = "failed" if status == "failed" else "was interrupted"
        updates = counted(int(number(summary, "updates") or 0), "update")
        moment = (
            f"The run {ended} before the end of its stream: an audit checks the model after the last update before "
            f"that, after {updates}."
        )
    if not audit:
        plain = Verdict("plain", "not run")
        return AuditView(False, plain, plain, "", {}, {}, [], command, moment)
    conformance = str(audit.get("conformance"))
    feasibility = str(audit.get("feasibility"))
    tone, text = _FEASIBILITY.get(feasibility, ("plain", feasibility))
    return AuditView(
        True,
        Verdict("good" if conformance == "holds" else "bad", conformance),
        Verdict(tone, text),
        str(audit.get("reason") or ""),
        audit.get("checked") or {},
        audit.get("worst") or {},
        [str(failure) for failure in audit.get("failures") or []],
        command,
        moment,
    )
