"""Figure 2: accuracy against number of leaves on streams drawn from random trees of 50 leaves.

Two readings of "accuracy at 50 leaves". *Along the stream* is the figure's: the accuracy so far at every logged moment
of every setting, by the leaves of that moment; a setting that stays long at 50 leaves counts most. *At the end* is that
of the whole stream, by the leaves after it: between the settings that end just below and just above 50.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from ctree.command import Request, draw
from ctree.comparison import along, at_end, averaged, difference, lines
from ctree.rules import RULES
from ctree.streams import WARMUP, Setting, random_tree, trial, trials
from kit import show
from paper.chart import Panel

#: Leaves of the drawn trees, at which rules are compared.
LEAVES = 50
#: Least lower bound of the difference, in points, that was set as the goal.
GOAL = -0.2
#: Numbers of leaves of the table.
SIZES = np.array([1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000])

READINGS = {"along the stream": along, "at the end": at_end}


def tree(seed: int, examples: int, settings: int) -> list[Setting]:
    """All settings on the stream of one random tree."""
    return trial({**random_tree(examples), "seed": seed}, settings, examples)


def compare(found: Sequence[Sequence[Setting]]) -> list[list[str]]:
    """Rows of the main table, for each reading and rule."""
    rows, here = [], np.array([LEAVES])
    for reading, of in READINGS.items():
        values = {rule: np.array([of(settings, rule, here)[0] for settings in found]) for rule in RULES}
        ours = values["C-Tree"]
        for rule, theirs in values.items():
            reached = np.isfinite(theirs)
            mean = f"{100 * theirs[reached].mean():.2f}" if reached.any() else ""
            cells = [f"{rule}, {reading}", mean, f"{reached.sum()} of {len(found)}"]
            if rule != "C-Tree":
                over = difference(ours, theirs)
                verdict = "met" if 100 * over.lower >= GOAL else "**missed**"
                cells += [f"{100 * over.mean:+.2f}", f"{100 * over.lower:+.2f}", str(over.trials), verdict]
            rows.append(cells + [""] * (7 - len(cells)))
    return rows


def run(request: Request) -> None:
    """Print the tables, and draw the figure."""
    arguments = [(seed, request.examples, request.settings) for seed in range(request.trees)]
    found = [*trials(tree, arguments, request.jobs)]
    note = (
        f"{request.trees} random trees of {LEAVES} leaves, {request.examples:,} examples each, the first {WARMUP:,} at "
        f"most for the bins; {request.settings} settings of each rule; Gini (CorrH-Tree: error), grace period 100, no "
        "ties. Accuracy in per cent; C-Tree minus the baseline in points, over the trees in which both have trees of "
        f"{LEAVES} leaves, and the lower end of the one-sided 95 % interval (Student's t). Goal: at least {GOAL}."
    )
    header = [f"at {LEAVES} leaves", "accuracy", "trees", "C-Tree minus it", "lower bound", "pairs", "goal"]
    show(f"At {LEAVES} leaves", header, compare(found), note)
    table = []
    for rule in RULES:
        for reading, of in READINGS.items():
            line = averaged([of(settings, rule, SIZES) for settings in found])
            table.append([f"{rule}, {reading}", *(f"{100 * v:.2f}" if np.isfinite(v) else "" for v in line)])
    note = "Accuracy in per cent, mean of the trees, where at least half have such a tree."
    show("By number of leaves", ["leaves", *(f"{size:,}" for size in SIZES)], table, note)
    ends = []
    for place, first in enumerate(found[0]):
        own = [settings[place] for settings in found]
        key = "c" if first.rule == "C-Tree" else "delta"
        leaves, score = (np.mean([getattr(s, name)[-1] for s in own]) for name in ("leaves", "score"))
        us = np.mean([s.us for s in own])
        ends.append([f"{first.rule}, {key} {first.value:g}", f"{leaves:.1f}", f"{100 * score:.2f}", f"{us:.2f}"])
    note = "Means of the trees; CPU time of one core, predictions included."
    show("Settings at the end of the stream", ["", "leaves", "accuracy", "us per example"], ends, note)
    scaled = {rule: [(x, 100 * y) for x, y in line] for rule, line in lines(found).items()}
    draw(request, "figure-2", [[Panel("accuracy so far, per cent", scaled, x="leaves", log_x=True)]])
