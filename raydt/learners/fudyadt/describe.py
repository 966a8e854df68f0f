"""How FuDyADT presents itself: its tree with the margin of every node, its rebuilds, and the gap an audit measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

import numpy as np

from raydt.errors import RaydtError
from raydt.learners.description import Presentation, RunRecords, measured, tree_blocks, worst_of
from raydt.learners.fudyadt.margin_report import (
    Margins,
    by_depth,
    by_size,
    certified_margins,
    in_words,
    legend,
    margins,
    next_rebuilds,
    of_an_edit,
    proven_gaps,
    with_margin,
)
from raydt.learners.fudyadt.options import FuDyADTOptions
from raydt.learners.rebuild_description import (
    LEAVES_ARE_RESET,
    RebuildingDescription,
    built_note,
    rebuild_figures,
    rebuild_section,
)
from raydt.presentation.blocks import Block, Fact, Heading, Section, Text, Tree
from raydt.presentation.series import Columns
from raydt.presentation.trees import NUMBER, depths, live_tree
from raydt.presentation.words import count, figure, number
from raydt.trees.canonical_arrays import SUMS
from raydt.trees.predictor import node_numbers
from raydt.trees.state_schema import unit_of


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
        rule = "Once enough updates have reached a node, its subtree is rebuilt."
        if margin is not None and margin.certified:
            rule = "As soon as counts cannot prove any more that a split is within beta of the best, it is rebuilt."
        return Presentation(
            figures,
            Section("Tree", tree_blocks(run, *([_tree(run, margin)] if run.model else []))),
            rebuild_section(run.summary, run.metrics, run.events, f"{rule} {LEAVES_ARE_RESET}"),
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
        by_size(margin, run.model, beta),
        *([following] if following.rows else []),
    ]
