"""The splits of a confidence tree in words, from a summary or a receipt: on the page and on stdout."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipelines.words import count, counted, figure
from raydt.learners.confidence_tree.options import OUTCOME, ConfidenceTreeOptions

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


def splits_in_words(figures: Mapping[str, Any]) -> str:
    """How many splits there were, of what kinds and out of how many checks; ``figures`` name them either way."""
    ties, replaced, pruned = (
        int(figures.get(OUTCOME.get(name, name), figures.get(name, 0))) for name in ("ties", "replaced", "pruned")
    )
    parts = [f"{count(ties)} on a tie"] if ties else []
    parts += [f"{count(replaced)} in the place of another"] if replaced else []
    kinds = f" ({', '.join(parts)})" if parts else ""
    again = f"; {counted(pruned, 'node')} became {'a leaf' if pruned == 1 else 'leaves'} again" if pruned else ""
    return f"{counted(figures['splits'], 'split')}{kinds} in {counted(figures['checks'], 'check')}{again}"


def why_no_split(figures: Mapping[str, Any]) -> str:
    """What helps where there was no split at all; empty where there was one."""
    if figures.get("splits", 0):
        return ""
    checks = int(figures.get("checks", 0))
    often = " (a leaf is checked once grace_period examples have come to it)" if not checks else ""
    return (
        f"no split in {counted(checks, 'check')}{often}. What splits sooner: a smaller c, confidence: practical, a "
        "larger delta, another rule; and stream.warmup of some hundreds of rows, for the bins"
    )


def rule_in_words(options: ConfidenceTreeOptions) -> str:
    """When a leaf is split, in one sentence."""
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
        f"A leaf is checked when {counted(options.grace_period, 'example')} have come to it since it was checked last. "
        f"It is split once its best split leads its rival, {rival}, by {lead}{tie}. The width is {width}; gains are by "
        f"the {_IMPURITY[rule.criterion]}{unit}."
    )


def _delta(options: ConfidenceTreeOptions) -> str:
    return options.delta if isinstance(options.delta, str) else f"{options.delta:g}"
