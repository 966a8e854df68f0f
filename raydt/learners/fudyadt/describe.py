"""The description of FuDyADT: its tree with the margin of every node, its rebuilds, and the measured gap."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import ClassVar

import numpy as np

from raydt.arrays.elementary import AnyArray, Floats, Ints
from raydt.errors import RaydtError
from raydt.learners.description import (
    LEAVES_ARE_RESET,
    Presentation,
    RebuildingDescription,
    RunRecords,
    built_note,
    measured,
    rebuild_figures,
    rebuild_section,
    tree_blocks,
    worst_of,
)
from raydt.learners.fudyadt.options import FuDyADTOptions
from raydt.presentation.blocks import Block, Fact, Heading, Note, Row, Section, Table, Text, Tree
from raydt.presentation.charts import (
    Chart,
    Columns,
    bar_chart,
    count,
    counted,
    figure,
    number,
    stacked_bars,
)
from raydt.presentation.trees import NUMBER, Names, depths, live_tree
from raydt.trees.canonical_arrays import CHOICE, RANGE, SUMS, chosen_smoothing
from raydt.trees.counted_tree import LabelRange
from raydt.trees.packed_trees import node_numbers
from raydt.trees.state_schema import unit_of

# The guarantee margin of every node: how many more updates may reach it, and how far its split can be from the best.
#
# The budget of a node is ``floor(epsilon * s)``, its margin what the ``c`` updates since its build leave of that, and
# its split lacks at most ``2 c / n`` to the best gain; by certificates the budget is the updates that a fresh
# certificate surely outlasts, and the gap the mass that it may lack over n (``docs/explanation/guarantees.md``).
# Invariant: budgets of a schedule are exact, also where the float64 product would be rounded up to the next integer.

NEXT_SHOWN = 8
#: Least share of the budget that is left, name and tone, from the widest margin down.
LEVELS = (
    (0.5, "half or more of the budget left", "wide"),
    (0.2, "a fifth to a half left", "half"),
    (0.0, "less than a fifth left", "tight"),
)
SPENT = ("none left: the next update here may rebuild", "spent")
NONE = ("too small for a budget", "none")


@dataclass(frozen=True, slots=True)
class Margins:
    """Budgets of all nodes of a tree.

    With epsilon = 0.1 a node built from 25 examples has a budget of 2: the third update rebuilds it. A node may be
    rebuilt before, with a node above it or one of nearly its size below it (the rule of s_hat).
    """

    epsilon: float
    budget: Ints  #: ``floor(epsilon * s)``, exact; capped at the largest int64
    left: Ints  #: updates that may still reach a node; at 0 the next one rebuilds it
    spent: Floats  #: ``c / (epsilon * s)``, or the used share of a certificate; 0 without a budget
    certified: bool = False  #: splits are rebuilt by certificates, whose budgets are lower bounds

    def share_left(self, node: int) -> float:
        """Return the share of a node's budget that is left; 0 without a budget."""
        budget = int(self.budget[node])
        return max(int(self.left[node]), 0) / budget if budget else 0.0

    def tone(self, node: int) -> str:
        """Return the tone of a node's margin."""
        if self.budget[node] <= 0:
            return NONE[1]
        if self.left[node] <= 0:
            return SPENT[1]
        return next(tone for least, _, tone in LEVELS if self.share_left(node) >= least)

    def words(self, node: int) -> str:
        """Return a node's margin in words."""
        if self.budget[node] <= 0:
            return "no budget"
        return f"{count(max(int(self.left[node]), 0))} of {count(self.budget[node])} left"


def margins(s: AnyArray, c: AnyArray, epsilon: float) -> Margins:
    """Return the budgets of nodes built from ``s`` examples, with ``c`` updates since."""
    (p, q), most = Fraction(epsilon).as_integer_ratio(), np.iinfo(np.int64).max
    sizes, changes = ([one.as_integer_ratio() for one in some.tolist()] for some in (s, c))
    budget = np.array([min(p * a // (q * b), most) for a, b in sizes], dtype=np.int64)
    both = zip(sizes, changes, strict=True)  # sums of weights are no whole numbers of examples
    left = np.array([min((p * a * d - n * q * b) // (q * b * d), most) for (a, b), (n, d) in both], dtype=np.int64)
    product = epsilon * s.astype(np.float64)
    spent = np.divide(c.astype(np.float64), product, out=np.zeros(len(c)), where=product > 0)
    return Margins(epsilon, budget, left, spent)


def _over(mass: AnyArray, n: AnyArray) -> Floats:
    """Return mass by example, 0 of none; there may be less than one of weight 1."""
    found: Floats = np.divide(mass, n, out=np.zeros(len(n)), where=n > 0)
    return found


def lacks(model: Columns) -> Floats:
    """Return the most mass that each split can leave above the best one, by its certificate; 0 at leaves."""
    counts, inner, square = model["counts"], model["feature"] >= 0, 1.0
    n = counts.sum(axis=1)
    if SUMS in model:
        q, squares = model[SUMS].T
        size, square = np.where(n > 0, n, 1), float(LabelRange.of(*model[RANGE].tolist()).top ** 2) or 1.0
        mean = q // size
        rest = q - mean * n
        mass = (squares - 2 * mean * q + n * mean * mean - rest * rest / size) / square
    else:
        mass = _over(n * n - (counts * counts).sum(axis=1), n)
    own = mass[model["left"]] + mass[model["right"]]
    return np.where(inner, own - np.maximum(0.0, model["m0"] / square - of_an_edit(model) * model["gone"]), 0.0)


def of_an_edit(model: Columns) -> float:
    """Return the mass that one update adds or takes at most."""
    return 1.0 if SUMS in model else 2.0


def certified_margins(model: Columns, epsilon: float, beta: float) -> Margins:
    """Return budgets by certificates (``m0`` and ``gone`` of the model) at splits, by epsilon at leaves."""
    leaves, inner = margins(model["s"], model["c"], epsilon), model["feature"] >= 0
    mass, used = beta * model["counts"].sum(axis=1), lacks(model)
    whole, rest = (
        np.floor(np.maximum(some, 0.0) / (of_an_edit(model) + beta)).astype(np.int64) for some in (mass, mass - used)
    )
    spent = np.divide(used, mass, out=np.zeros(len(used)), where=mass > 0)
    return Margins(
        epsilon,
        np.where(inner, whole, leaves.budget),
        np.where(inner, rest, leaves.left),
        np.where(inner, spent, np.minimum(leaves.spent, 1.0)),  # a leaf that is to stay one is left alone
        certified=True,
    )


def proven_gaps(model: Columns) -> Floats:
    """Return an upper bound on how far each node's split falls short of the best gain, at most 1; 0 at leaves.

    By its certificate, of a model that has them; else ``2 c / n``, of numeric labels ``c / n``.
    """
    live = model["counts"].sum(axis=1)
    mass = lacks(model) if "m0" in model else of_an_edit(model) * model["c"]
    gap: Floats = np.minimum(_over(mass, live), 1.0)
    return np.where((model["feature"] >= 0) & (live > 0), gap, 0.0)


def legend() -> list[tuple[str, str]]:
    """Return name and tone of each kind of margin."""
    return [(name, tone) for _, name, tone in LEVELS] + [SPENT, NONE]


def by_depth(margin: Margins, depth: Ints) -> Chart:
    """Return the nodes of each depth by the share of their budget that is left."""
    bars = {str(level): f"depth {level}" for level in range(int(depth.max()) + 1)}
    tones = np.array([margin.tone(node) for node in range(len(depth))])
    layers = [
        (name, f"margin-{tone}", np.bincount(depth[tones == tone], minlength=len(bars))) for name, tone in legend()
    ]
    return bar_chart(
        "margins-depth",
        "Margins by depth",
        "Nodes at each depth, the root at 0, by how much of their budget is left.",
        bars,
        stacked_bars([*bars], layers, "nodes"),
        "depth",
    )


def expected(margin: Margins, live: AnyArray) -> list[tuple[int, float]]:
    """Return at most ``NEXT_SHOWN`` nodes to be rebuilt first, and within how many updates, earliest first."""
    nodes = np.flatnonzero((margin.budget > 0) & (live > 0)).tolist()
    due = [(node, (max(int(margin.left[node]), 0) + 1) * int(live[0]) / int(live[node])) for node in nodes]
    return sorted(due, key=lambda pair: (pair[1], pair[0]))[:NEXT_SHOWN]


def in_words(margin: Margins, gap: Floats) -> str:
    """Return a summary of a tree's margins and of the proven gaps of its splits."""
    n, none = len(margin.budget), int((margin.budget == 0).sum())
    spent = int(((margin.left <= 0) & (margin.budget > 0)).sum())
    if margin.epsilon == 0:
        return "Epsilon is 0: every update rebuilds the tree from its root, so no node has a margin, and needs none."
    root = counted(max(int(margin.left[0]), 0), "more update")
    first = f"The root takes at most {root} before the whole tree is rebuilt."
    if margin.certified:  # a node of nearly its size below the root may need the rebuild of both before
        first = f"The counts at the root prove its split for at least {root}, and the whole tree stays until then."
    return (
        f"{first} "
        f"Of {counted(n, 'node')}: {count(n - none - spent)} with updates left, {count(spent)} with all used, "
        f"{count(none)} too small to have any. It is proven that no split of this tree now gains more than "
        f"{figure(gap.max(initial=0.0))} less than the best split of its node, whatever was inserted and deleted."
    )


def next_rebuilds(margin: Margins, model: Columns, names: Names) -> Table:
    """Return the nodes to be rebuilt first; bars show what is left of their budgets."""
    live, depth, rows = model["counts"].sum(axis=1), depths(model), []
    due = live
    if margin.certified:  # leaves are built again only if they may be split
        due = np.where(model["feature"] >= 0, live, 0)
    for node, updates in expected(margin, due):
        leaf = model["feature"][node] < 0
        text = f"leaf: {names.words(model, node)}" if leaf else " ".join(names.question(model, node))
        cells = [count(value) for value in (depth[node], live[node], margin.budget[node])]
        cells += [count(max(int(margin.left[node]), 0)), count(updates)]
        rows.append(Row((text, *cells), margin.share_left(node), f"margin-{margin.tone(node)}"))
    return Table(
        rows,
        f"No bar: nothing is left, the next update here {'may rebuild' if margin.certified else 'rebuilds'}. Expected: "
        "within so many updates of the stream, if they fall as the live examples do.",
        "The next rebuilds",
        ("Node", "Depth", "Live", "Budget", "Left", "Expected within"),
        style="bars",
        bar="Share of the budget left",
    )


def with_margin(note: Note, margin: Margins, gap: float, node: int, leaf: bool) -> Note:
    """Return the note of a node with its margin and, at a split, the most that it can lack to the best one."""
    left = margin.words(node)
    words = left if leaf else f"{left} \N{MIDDLE DOT} gap \N{LESS-THAN OR EQUAL TO} {figure(gap)}"
    until = "Updates before it may be rebuilt, at least" if margin.certified and not leaf else ""
    sentences = (*note.sentences, f"{until or 'Updates until it is rebuilt'}: {left}")
    return Note(note.lines, sentences, words, margin.tone(node), margin.share_left(node))


class FuDyADTDescription(RebuildingDescription):
    """An exact tree, rebuilt by schedule."""

    measures: ClassVar[Mapping[str, str]] = {
        "gap": "Gap between a split and the best one",
        "leaf_gini": "Gini index of a leaf that may be split",
        "leaf_variance": "Variance of a leaf that may be split",
        "leaf_gain": "Gain that a leaf leaves unused",
        "change": "Updates since the build, c / s",
        "slack": "Share of its budget that a certificate has used",
    }

    def drawable(self, arrays: Columns) -> Columns:
        """Return the arrays of a saved model, with the predictions of its nodes where labels are numbers."""
        drawn = super().drawable(arrays)
        unit = unit_of(arrays)
        if SUMS in drawn and unit > 1:
            total, squares, rest = drawn[SUMS].T
            drawn = {**drawn, SUMS: np.stack([total / unit, squares + rest / unit], axis=1)}
        return {**drawn, NUMBER: node_numbers(drawn)} if SUMS in drawn else drawn

    def present(self, run: RunRecords) -> Presentation:
        """Return the tree with its margins, and the rebuilds."""
        margin, beta = margins_of(run), number(run.options, "beta")
        gap, figures = number(worst_of(run.summary), "gap"), rebuild_figures(run.summary)
        if margin is not None:
            left, budget = count(max(int(margin.left[0]), 0)), count(margin.budget[0])
            if margin.certified:
                figures.append(
                    Fact("updates before the whole tree may be rebuilt", left, f"at least; {budget} when it was built")
                )
            else:
                figures.append(Fact("updates to a rebuild from the root", left, f"at most, of {budget}"))
        if CHOICE.name in run.model:
            chosen = chosen_smoothing(number(run.options, "smoothing") or 0.0, run.model[CHOICE.name])
            words, why = "none: a leaf's majority", "it would have been right most often lately"
            if SUMS in run.model:
                words, why = "none: a leaf's mean", "it would have had the least squared errors lately"
            words = {0.0: words, math.inf: "all: the mean of all examples"}.get(chosen) or figure(chosen)
            figures.append(Fact("smoothing of predictions", words, why))
        rule = "Once enough updates have reached a node, its subtree is rebuilt."
        if margin is not None and margin.certified:
            rule = "As soon as counts cannot prove any more that a split is within beta of the best, it is rebuilt."
        return Presentation(
            figures,
            Section("Tree", tree_blocks(run, *([_tree(run, margin)] if run.model else []))),
            rebuild_section(run.summary, run.events, f"{rule} {LEAVES_ARE_RESET}"),
            _guarantee(run, margin, beta) if margin is not None else [],
            None if gap is None else measured("Widest gap to the best split", gap, beta),
        )


def margins_of(run: RunRecords) -> Margins | None:
    """Return the margins of a run's tree, exact; None without a tree, counters or an epsilon. O(n)."""
    if not {"s", "c"} <= run.model.keys():
        return None
    try:
        options = FuDyADTOptions.model_validate(run.options)
        epsilon = options.resolved_epsilon()
    except (ValueError, RaydtError):
        return None  # options of another version: the tree is shown without margins
    if not options.certified:
        return margins(run.model["s"], run.model["c"], epsilon)
    return certified_margins(run.model, epsilon, options.beta) if {"m0", "gone"} <= run.model.keys() else None


def _tree(run: RunRecords, margin: Margins | None) -> Tree:
    """Return the live tree, whose cards tell when a node was built and, with margins, when it is to be rebuilt."""
    model = run.model
    when = "at which update it was built, from how many examples"
    if margin is None:
        return live_tree(model, run.names, lambda node: built_note(model, node), f", and {when}")
    gaps = proven_gaps(model)
    drawn = live_tree(
        model,
        run.names,
        lambda node: with_margin(built_note(model, node), margin, gaps[node], node, model["feature"][node] < 0),
        ", how many more updates may reach it before it is rebuilt, how far its split can be from the best one, and "
        + when,
    )
    return replace(drawn, margins=legend())


def _guarantee(run: RunRecords, margin: Margins, beta: float | None) -> list[Block]:
    """Return the margins of all nodes."""
    following = next_rebuilds(margin, run.model, run.names)
    rule = (
        "A node that was built from s examples is rebuilt, at the latest, by the first update after which more "
        f"than epsilon s = {figure(margin.epsilon)} s updates have reached it. It is rebuilt sooner with a node above "
        "it, or with one of nearly its size below it."
    )
    if margin.certified:
        edit = count(of_an_edit(run.model))
        rule = (
            "The counts at a split of n examples bound how far the split falls short of the best one. The split is "
            f"rebuilt when this bound exceeds beta = {figure(beta or 0.0)}. An update uses at most ({edit} + beta) / n "
            "of it; an insertion usually uses much less, and the deletion of a later example at most beta / n. A split "
            "is rebuilt sooner with a node above it, or with one of nearly its size below it, or if its examples "
            "become too few or all equal in label. A leaf that was built from s examples and may be split is rebuilt "
            f"after epsilon s = {figure(margin.epsilon)} s updates."
        )
    return [
        Heading("margins", "Margins"),
        Text(f"{rule} {in_words(margin, proven_gaps(run.model))}"),
        by_depth(margin, depths(run.model)),
        *([following] if following.rows else []),
    ]
