"""The description of the confidence tree: how its leaves predict, and the numbers that decided every split.

Works on the events (an entry for each split), on the arrays of the model, which has the records of the splits, and on
the options. Scores become gains (of the impurity of the node), in the unit of the widths.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np
from pydantic import ValidationError

from raydt.examples.updates import Log
from raydt.learners.confidence_tree.bounds import RULE, TIE, SplitRule
from raydt.learners.confidence_tree.options import ConfidenceTreeOptions
from raydt.learners.confidence_tree.tree import SplitRecord
from raydt.learners.description import (
    Column,
    Description,
    Effects,
    Lines,
    Presentation,
    ReceiptWords,
    RunRecords,
    node_counts,
    remaining,
    tree_blocks,
    tree_figures,
)
from raydt.messages import message
from raydt.presentation.blocks import Block, Fact, Note, Row, Section, Table, Text
from raydt.presentation.charts import (
    Chart,
    Columns,
    Stretches,
    count,
    counted,
    figure,
)
from raydt.presentation.trees import NOTHING, Names, drawable, feature_count, live_tree
from raydt.trees.state_schema import unit_of

#: What the log counts.
COUNTS = ("checks", "splits", "ties")
#: Splits that are listed.
SHOWN = 50
#: Cause of a change: in the table, and its name and tone in charts.
CAUSES = {
    RULE: ("rule", "by the rule", "learner"),
    TIE: ("tie", "on a tie", "f1"),
}
_COLUMNS = {"seq", "depth", "feature", "threshold", "m", "reason", "rival_feature", "rival_threshold"}
_SCORES = {"phi", "rival_phi", "impurity", "epsilon"}
_RECORD = ("stamp", "m", "rival_feature", "reason", "phi", "rival_phi", "impurity", "epsilon")


_IMPURITY = {
    "gini": "Gini index",
    "entropy": "entropy",
    "kearns_mansour": "index of Kearns and Mansour",
    "error": "share of errors",
}
_WIDTH = {
    "hoeffding": "Hoeffding's bound, as VFDT has it",
    "corrected": "Hoeffding's bound, of CorrH-Tree",
    "mcdiarmid": "McDiarmid's bound",
}


#: How each leaf predicts, by the option.
_PREDICTS = {
    "majority": "A leaf predicts the most frequent label of its live examples.",
    "naive_bayes": "A leaf predicts by naive Bayes on what it has counted, not the label that its card names.",
    "adaptive": "A leaf predicts by naive Bayes on what it has counted, not the label that its card names, unless that "
    "label has been right more often there.",
    "adaptive_normal": "A leaf predicts by naive Bayes on what it has counted, with counts of bins or normal "
    "distributions, not the label that its card names, unless that label has been right more often there.",
    "adaptive_inherited": "A leaf predicts by naive Bayes on what it has counted, with counts of bins or normal "
    "distributions, or on all its live examples, not the label that its card names, unless that label has been right "
    "more often there.",
}


class ConfidenceTreeDescription(Description):
    """A tree whose splits were decided by intervals; empty options are unknown ones."""

    measures: ClassVar[Mapping[str, str]] = {
        "lead": "Least lead of a split by the rule over all others, of what the rule asks for over its rival",
        "theorem_lead": "The same, of two widths of Theorem 4",
    }
    shares: ClassVar[Mapping[str, str]] = {
        "lead": "what the rule asks for over its rival",
        "theorem_lead": "two widths of Theorem 4",
    }

    columns: ClassVar[tuple[Column, ...]] = (
        *Description.columns,
        Column("splits", "Splits"),
        Column("checks", "Checks", brief=False),
    )

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = _options(options) if options else None

    def size(self, statistics: Mapping[str, int]) -> str:
        """Return leaves, and how often they were checked."""
        return f"{counted(statistics['leaves'], 'leaf')} after {counted(statistics['checks'], 'check')}"

    def outcome(self, statistics: Mapping[str, int], name: Any) -> dict[str, Any]:
        """Return how the tree came to its splits: the counts."""
        return {key: statistics[key] for key in COUNTS if key in statistics}

    def lines(self, summary: Mapping[str, Any]) -> Lines:
        """Return the size of the tree, and its splits."""
        if "checks" not in summary:
            return super().lines(summary)
        return [*super().lines(summary), ("splits", why_no_split(summary, self._options) or splits_in_words(summary))]

    def receipt(self, effects: Effects) -> ReceiptWords:
        """Return the splits of a call."""
        work = effects.work
        return ReceiptWords(
            short=splits_in_words(work),
            counts=node_counts(effects),
            lines=[("splits", splits_in_words(work)), *remaining(work, "counts_changed", *COUNTS)],
            titles={"path": "nodes changed", "changed": "tree changed"},
        )

    def drawable(self, arrays: Columns) -> Columns:
        """Return the tree; where ``live`` is 0, the saved counts are those of a node above, and become 0."""
        arrays = drawable(arrays)
        if unit_of(arrays) > 1:
            shown = [name for name in ("live", "split_m") if name in arrays]
            arrays |= {name: np.rint(arrays[name] / unit_of(arrays)).astype(np.int64) for name in shown}
        if arrays and len(arrays.get("live", ())) == len(arrays["feature"]):
            return arrays | {"counts": np.where(arrays["live"][:, None] > 0, arrays["counts"], 0)}
        return arrays

    def present(self, run: RunRecords) -> Presentation:
        """Return the tree with the records of its splits, and how they were decided over the stream."""
        options = _options(run.options)
        rule = (options or ConfidenceTreeOptions()).split_rule(max(feature_count(run.names.features), 1))
        blocks = tree_blocks(run)
        if run.model:
            notes = split_notes(run.model, rule, run.names) | leaf_notes(run.model)
            about = (
                ", and of a split the update that it was made at, the examples that decided it, its gain, that of its "
                "rival, and the width of the interval"
            )
            drawn = live_tree(run.model, run.names, lambda node: notes.get(node, NOTHING), about, lines=3)
            predicted = [Text(predictions_in_words(options, run.model))] if options else []
            blocks = tree_blocks(run, *predicted, drawn)
        figures, section = tree_figures(run.summary), Section("Splits", split_blocks(run, options, rule))
        return Presentation([*figures, *_split_figures(run.summary)], Section("Tree", blocks), section)


def _split_figures(summary: Mapping[str, Any]) -> list[Fact]:
    if "checks" not in summary:
        return []
    value, noun, rest = splits_in_words(summary).split(" ", 2)
    return [Fact(noun, value, rest)]


def split_blocks(run: RunRecords, options: ConfidenceTreeOptions | None, rule: SplitRule) -> list[Block]:
    """Return the rule of splits and every split with what decided it; advice if there was none."""
    blocks: list[Block] = [Text(rule_in_words(options))] if options else []
    if not (run.events.keys() >= _COLUMNS | _SCORES and len(run.events["seq"])):
        why = why_no_split(run.summary, options) if "checks" in run.summary else ""
        return [*blocks, Text(f"{why[:1].upper()}{why[1:]}." if why else "The run recorded no split.", "none")]
    made = np.isin(run.events["reason"], list(CAUSES))  # former versions restarted nodes, too
    events = {name: column[made] for name, column in run.events.items()}
    return [*blocks, over_time(events, run.updates, rule), splits(events, rule, run.names)]


def _options(given: Mapping[str, Any]) -> ConfidenceTreeOptions | None:
    """Return the options, or None if they cannot be read."""
    try:
        return ConfidenceTreeOptions.model_validate(given)
    except ValidationError:
        return None


# ---------------------------------------------------------------- words


def splits_in_words(figures: Mapping[str, Any]) -> str:
    """Return the numbers of splits by kind, and of checks."""
    ties = int(figures.get("ties", 0))
    kinds = f" ({count(ties)} on a tie)" if ties else ""
    return f"{counted(figures['splits'], 'split')}{kinds} in {counted(figures['checks'], 'check')}"


def why_no_split(figures: Mapping[str, Any], options: ConfidenceTreeOptions | None = None) -> str:
    """Return advice if there was no split, by the options (None: not known); empty if there was one."""
    if figures.get("splits", 0):
        return ""
    checks = counted(int(figures.get("checks", 0)), "check")
    return message("learners.no_split", checks=checks, sooner=_sooner(options))


def _sooner(options: ConfidenceTreeOptions | None) -> str:
    """Return what makes a tree split sooner."""
    warmup = "a stream.warmup of some hundreds of rows, which make the bins"
    if options is None:
        return (
            "with confidence: practical a smaller c, with confidence: theorem a larger delta, or practical, with rule: "
            f"hoeffding, corrected or mcdiarmid a larger delta or tie_threshold; and with renew_bins: 0 {warmup}"
        )
    bins = "" if options.renewal else f"; and {warmup}"
    if options.rule != "ctree":
        return f"a larger delta or tie_threshold, or rule: ctree{bins}"
    return ("a smaller c" if options.confidence == "practical" else "confidence: practical, or a larger delta") + bins


def predictions_in_words(options: ConfidenceTreeOptions, model: Columns) -> str:
    """Return how leaves predict, and how many of them by naive Bayes now."""
    if options.leaf_prediction == "majority":
        return _PREDICTS["majority"]
    by_naive, leaves = len(model.get("naive_leaf", ())), int((model["feature"] < 0).sum())
    return f"{_PREDICTS[options.leaf_prediction]} At the end {count(by_naive)} of {counted(leaves, 'leaf')} did so."


def rule_in_words(options: ConfidenceTreeOptions) -> str:
    """Return when a leaf is split, in one sentence."""
    rule = options.split_rule(1)
    if options.rule == "ctree":
        practical = f"that of the paper's experiments with c = {figure(options.c)}"
        width = (
            practical if options.confidence == "practical" else f"that of the theorem with delta = {_delta(options)}"
        )
    else:
        width = f"that of {_WIDTH[options.rule]}, with delta = {_delta(options)}"
    rival = "the best one on another feature" if options.rival == "feature" else "the second best"
    lead = "two widths" if rule.widths == 2 else "a width"
    tie = f", or once the width is at most {figure(options.tie_threshold)}" if options.tie_threshold else ""
    unit = ", in bits" if rule.bits else ", in halves of nats" if rule.criterion == "entropy" else ""
    return (
        f"A leaf is checked when it has received {counted(options.grace_period, 'example')} since its last check. "
        f"It is split once its best split leads its rival, {rival}, by {lead}{tie}. The width is {width}; gains are by "
        f"the {_IMPURITY[rule.criterion]}{unit}."
    )


def _delta(options: ConfidenceTreeOptions) -> str:
    return options.delta if isinstance(options.delta, str) else f"{options.delta:g}"


# ---------------------------------------------------------------- splits


def _gains(columns: Mapping[str, Any], rule: SplitRule) -> tuple[Any, Any, Any, Any]:
    """Return gain of each split and of its rival, the lead, and the required lead: arrays."""
    phi, rival, impurity = (columns[name] for name in ("phi", "rival_phi", "impurity"))
    needed = rule.widths * columns["epsilon"]
    return rule.lead(phi, impurity), rule.lead(rival, impurity), rule.lead(phi, rival), needed


def splits(events: Columns, rule: SplitRule, names: Names) -> Table:
    """Return the first changes of the tree, the root's among them, and the last ones, one row each."""
    gain, rival_gain, lead, _ = _gains(events, rule)
    total, rows = len(events["seq"]), []
    half = SHOWN // 2
    for i in range(total) if total <= SHOWN else [*range(half), *range(total - half, total)]:
        reason, depth = int(events["reason"][i]), count(events["depth"][i])
        rival = int(events["rival_feature"][i])
        against = "none" if rival < 0 else _question(names, rival, events["rival_threshold"][i])
        numbers = (figure(column[i]) for column in (rival_gain, lead, events["epsilon"]))
        asked = _question(names, int(events["feature"][i]), events["threshold"][i])
        first = count(events["seq"][i] + 1), depth, asked, count(events["m"][i]), figure(gain[i]), against
        rows.append(Row((*first, *numbers, CAUSES[reason][0])))
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
        "Splits, and what they were decided by",
        ("After update", "Depth", "Split", "Examples", "Gain", "Rival", "Its gain", "Lead", "Width", "Why"),
        words=(1, 3, 6, 10),
    )


def _question(names: Names, feature: int, threshold: float) -> str:
    return " ".join(names.asked(feature, float(threshold)))


def split_notes(model: Columns, rule: SplitRule, names: Names) -> dict[int, Note]:
    """Return by inner node when it was split, from how many examples, its gain, the width, and its rival's gain."""
    inner = np.flatnonzero(model["feature"] >= 0)
    columns = {name: model.get(f"split_{name}", np.empty(0)) for name in _RECORD}
    if any(len(column) != len(inner) for column in columns.values()):
        return {}
    gain, rival_gain, _, _ = _gains(columns, rule)
    found: dict[int, Note] = {}
    for i, node in enumerate(inner.tolist()):
        rival, at = int(columns["rival_feature"][i]), count((int(columns["stamp"][i]) >> 1) + 1)
        rival_text = "none" if rival < 0 else f"{names.feature(rival)} {figure(rival_gain[i])}"
        tie = ", on a tie" if columns["reason"][i] == TIE else ""
        width = f"\N{GREEK SMALL LETTER EPSILON} {figure(columns['epsilon'][i])}"
        lines = (
            f"at update {at}, from {counted(int(columns['m'][i]), 'example')}{tie}",
            f"gain {figure(gain[i])}, {width}",
            f"rival {rival_text}",
        )
        found[node] = Note(lines, (", ".join(lines),))
    return found


def leaf_notes(model: Columns) -> dict[int, Note]:
    """Return a note for each leaf that predicts by naive Bayes."""
    note = Note(("naive Bayes",), ("It predicts by naive Bayes",))
    return dict.fromkeys(model.get("naive_leaf", np.empty(0, dtype=np.int32)).tolist(), note)


# ---------------------------------------------------------------- charts


def over_time(events: Columns, updates: int, rule: SplitRule) -> Chart:
    """Return the changes of the tree over the stream, by cause; the caption has how sure the splits were."""
    parts, reason = Stretches.by(events, updates), events["reason"]
    kinds = {name: (tone, reason == code) for code, (_, name, tone) in CAUSES.items() if (reason == code).any()}
    _, _, lead, needed = _gains(events, rule)
    times = lead[needed > 0] / needed[needed > 0]
    sure = f" Half of the splits led by {figure(np.median(times))} times what was needed or more." if len(times) else ""
    caption = f"{counted(len(reason), 'change')} of the tree, in {counted(parts.n, 'stretch')} of the stream.{sure}"
    return parts.chart("splits", "Splits over the stream", caption, [parts.bars(kinds, "changes")], wide=False)


# The log of what changed the tree: one entry for each split.


class Logged(NamedTuple):
    """One entry of the log."""

    stamp: int  #: ``stamp``, ``depth``, ``feature``: When, where, and what the split compares.
    depth: int
    feature: int
    split: SplitRecord
    threshold: float
    rival_threshold: float


def logged(entries: list[Logged]) -> Log:
    """The columns of the log, in the order of the entries: ``seq``, ``depth``, ``feature``, the record's."""
    if not entries:
        return {}
    records = [entry.split for entry in entries]
    log: Log = {"seq": np.array([entry.stamp >> 1 for entry in entries], dtype=np.int64)}
    whole = "depth", "feature", "m", "t", "rival_feature", "reason"
    for name in (*whole, "threshold", "rival_threshold", "phi", "rival_phi", "impurity", "epsilon"):
        rows = entries if name in Logged._fields else records
        log[name] = np.array([getattr(row, name) for row in rows], dtype=np.int64 if name in whole else np.float64)
    return log
