"""What a report shows of a confidence tree: every split with what it was decided by, and how sure these decisions were.

Works on the events (an entry for each split, and for each node that became a leaf again), on the arrays of the model,
which has the records of the splits that stand, and on the options. Scores become gains (of the impurity of the node),
in the unit of the widths.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import ValidationError

from pipelines.report.confidence_words import rule_in_words, why_no_split
from pipelines.report.folder import Columns, RunFolder
from pipelines.report.identity import feature_count, features_of, learner_of
from pipelines.report.plot import Axis, Chart, Mark, Panel, Values, centres, curve, dots, powers, stacked_bars
from pipelines.report.plot import updates_axis as axis_of
from pipelines.report.rebuilds import stretches
from pipelines.report.recovery import marked
from pipelines.report.tables import Row, Table
from pipelines.report.tree import Names
from pipelines.words import ABSENT, count, counted, figure
from raydt.learners.confidence_tree.bounds import PRUNED, REVISIT, RULE, TIE, SplitRule
from raydt.learners.confidence_tree.options import ConfidenceTreeOptions

#: Splits that are listed, and that can be pointed at one by one in a chart.
SHOWN, POINTED = 50, 300
#: What a change was made for: in the table, and its name and tone in charts.
WHY = {RULE: "rule", TIE: "tie", REVISIT: "replaced", PRUNED: "a leaf again"}
_LOOKS = {
    RULE: ("by the rule", "learner"),
    TIE: ("on a tie", "f1"),
    REVISIT: ("in the place of another", "delete"),
    PRUNED: ("a leaf again", "reset"),
}
_COLUMNS = {"seq", "depth", "feature", "threshold", "m", "reason", "rival_feature", "rival_threshold"}
_SCORES = {"phi", "rival_phi", "impurity", "epsilon"}
_RECORD = ("stamp", "m", "rival_feature", "reason", "phi", "rival_phi", "impurity", "epsilon")


@dataclass(frozen=True, slots=True)
class ConfidenceTree:
    """Sections of a run of a confidence tree; those without data are empty.

    Attributes
    ----------
    rule : str
        When a leaf is split.
    told : dict of int to tuple of str
        By inner node of the model when and by what it was split, its gain and width, and its rival's gain.
    charts : list of Chart
    splits : Table
    none : str
        Of a tree that was never split what helps.
    """

    rule: str
    told: dict[int, tuple[str, ...]]
    charts: list[Chart]
    splits: Table
    none: str


def confidence_tree_of(run: RunFolder, names: Names) -> ConfidenceTree | None:
    """What a run of a confidence tree shows; None of other runs."""
    if learner_of(run) != "confidence_tree":
        return None
    options = _options(run)
    rule = (options or ConfidenceTreeOptions()).split_rule(max(feature_count(features_of(run)), 1))
    events = run.events if run.events.keys() >= _COLUMNS | _SCORES and len(run.events["seq"]) else {}
    updates, charts = int(run.summary.get("updates") or 0), []
    if events:
        charts = marked([over_time(events, updates)], run, updates)
        charts += [leads(events, rule)] if (events["reason"] != PRUNED).any() else []
    return ConfidenceTree(
        rule=rule_in_words(options) if options else "",
        told=told(run.model, rule, names) if run.model else {},
        charts=charts,
        splits=splits(events, rule, names) if events else Table([]),
        none=_sentence(why_no_split(run.summary)) if "checks" in run.summary else "",
    )


def _sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}." if words else ""


def _options(run: RunFolder) -> ConfidenceTreeOptions | None:
    """The options, or None where they are not to be read."""
    try:
        return ConfidenceTreeOptions.model_validate(run.learner or run.config.get("learner") or {})
    except ValidationError:
        return None


def _gains(columns: Mapping[str, Any], rule: SplitRule) -> tuple[Any, Any, Any, Any]:
    """Gain of each split and of its rival, the lead, and the lead that was needed: arrays."""
    phi, rival, impurity = (columns[name] for name in ("phi", "rival_phi", "impurity"))
    needed = rule.widths * columns["epsilon"]
    return rule.lead(phi, impurity), rule.lead(rival, impurity), rule.lead(phi, rival), needed


def splits(events: Columns, rule: SplitRule, names: Names) -> Table:
    """The first changes of the tree, among which the root's is, and the last ones, one row each."""
    gain, rival_gain, lead, _ = _gains(events, rule)
    total, rows = len(events["seq"]), []
    half = SHOWN // 2
    for i in range(total) if total <= SHOWN else [*range(half), *range(total - half, total)]:
        reason, depth = int(events["reason"][i]), count(events["depth"][i])
        if reason == PRUNED:
            rows.append(Row((count(events["seq"][i] + 1), depth, "none any more", *[ABSENT] * 6, WHY[reason])))
            continue
        rival = int(events["rival_feature"][i])
        against = "none" if rival < 0 else _question(names, rival, events["rival_threshold"][i])
        numbers = (figure(column[i]) for column in (rival_gain, lead, events["epsilon"]))
        asked = _question(names, int(events["feature"][i]), events["threshold"][i])
        first = count(events["seq"][i] + 1), depth, asked, count(events["m"][i]), figure(gain[i]), against
        rows.append(Row((*first, *numbers, WHY.get(reason, ABSENT))))
    which = (
        f"The first {half} and the last {half} of {count(total)} changes"
        if len(rows) < total
        else f"All {counted(total, 'change')}"
    )
    needed = "two widths are" if rule.widths == 2 else "a width is"
    return Table(
        rows,
        f"{which} of the tree. Examples: those the node had counted itself. Lead: by how much more the split gains "
        f"than its rival; {needed} needed. A node without a rival is compared with no split. The table events/ has "
        "every one.",
    )


def _question(names: Names, feature: int, threshold: float) -> str:
    return " ".join(names.asked(feature, float(threshold)))


def told(model: Columns, rule: SplitRule, names: Names) -> dict[int, tuple[str, ...]]:
    """Of each inner node when it was split and by how many examples, its gain, the width, and its rival's gain."""
    inner = np.flatnonzero(model["feature"] >= 0)
    columns = {name: model.get(f"split_{name}", np.empty(0)) for name in _RECORD}
    if any(len(column) != len(inner) for column in columns.values()):
        return {}
    gain, rival_gain, _, _ = _gains(columns, rule)
    found: dict[int, tuple[str, ...]] = {}
    for i, node in enumerate(inner.tolist()):
        rival, at = int(columns["rival_feature"][i]), count((int(columns["stamp"][i]) >> 1) + 1)
        beside = "none" if rival < 0 else f"{names.feature(rival)} {figure(rival_gain[i])}"
        tie = ", on a tie" if columns["reason"][i] == TIE else ""
        width = f"\N{GREEK SMALL LETTER EPSILON} {figure(columns['epsilon'][i])}"
        found[node] = (
            f"at update {at}, from {counted(int(columns['m'][i]), 'example')}{tie}",
            f"gain {figure(gain[i])}, {width}",
            f"rival {beside}",
        )
    return found


# ---------------------------------------------------------------- charts


def over_time(events: Columns, updates: int) -> Chart:
    """Changes of the tree in stretches of the stream, by what they were made for."""
    parts = stretches(events, updates)
    x = axis_of(int(parts.edges[-1]))
    kinds = [reason for reason in _LOOKS if (events["reason"] == reason).any()]
    layers = [(*_LOOKS[reason], parts.total((events["reason"] == reason).astype(np.float64))) for reason in kinds]
    names = [
        f"updates {count(np.ceil(low))} to {count(np.ceil(high) - 1)}"
        for low, high in zip(parts.edges[:-1], parts.edges[1:], strict=True)
    ]
    total = len(events["seq"])
    return Chart(
        "splits",
        "Splits over the stream",
        f"{counted(total, 'change')} of the tree, summed over {counted(parts.n, 'stretch')} of the stream.",
        f"Bars of the numbers of changes over the stream, {count(total)} in all, by what they were made for.",
        (stacked_bars([""] * parts.n, layers, "changes", height=9.0),),
        x.ticks,
        "updates",
        centres(parts.n),
        names,
    )


def leads(events: Columns, rule: SplitRule) -> Chart:
    """By how many times what was needed each split led its rival, by the examples it was decided by."""
    split = np.flatnonzero(events["reason"] != PRUNED)
    split = split[np.argsort(events["m"][split], kind="stable")]
    table = {name: column[split] for name, column in events.items()}
    _, _, lead, needed = _gains(table, rule)
    times = np.divide(lead, needed, out=np.full(len(split), np.nan), where=needed > 0)
    known = times[np.isfinite(times)]
    x, y = powers(float(table["m"].max()), float(table["m"].min())), powers(float(known.max(initial=1.0)))
    of_all = len(split) > POINTED
    marks = []
    for reason, (name, tone) in _LOOKS.items():
        here = table["reason"] == reason
        if here.any():
            marks.append(_points((x, y), table["m"], np.where(here, times, np.nan), name, tone, of_all))
    width = "two widths" if rule.widths == 2 else "one width"
    names = [
        f"update {count(seq + 1)}, {counted(m, 'example')}"
        for seq, m in zip(table["seq"].tolist(), table["m"].tolist(), strict=True)
    ]
    tied = " A split on a tie leads by less, and lies at the lower edge." if (table["reason"] == TIE).any() else ""
    return Chart(
        "split-leads",
        "How sure the splits were",
        f"{counted(len(split), 'split')}: the lead of each over its rival, as a multiple of the {width} that the rule "
        f"asks for, by the examples its node had counted. At 1 it was just enough.{tied}",
        f"Points of the lead of each split over what was needed, by examples; half of them led by "
        f"{figure(np.median(known)) if len(known) else ABSENT} times what was needed or more.",
        (Panel("lead / needed", tuple(marks), y, 13.0),),
        x.ticks,
        "examples at the node",
        () if of_all else x.at(table["m"]).tolist(),
        () if of_all else names,
        over_stream=False,
    )


def _points(axes: tuple[Axis, Axis], x: Values, y: npt.NDArray[Any], name: str, tone: str, of_all: bool) -> Mark:
    """Dots, each with its value to be pointed at unless they are too many."""
    if of_all:
        there = np.isfinite(y)
        return Mark(name, tone, "dots", dots(axes[0].at(x[there]), axes[1].at(y[there])))
    line = curve(axes, x, y, name, tone, figure, dotted=True)
    return replace(line, kind="dots", path=line.points, points="", now="")
