"""How the sparse tree presents itself: its tree, its rebuilds, and the gap its audit has measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from raydt.learners.description import Presentation, RunRecords, measured, tree_blocks, worst_of
from raydt.learners.rebuild_description import (
    LEAVES_ARE_RESET,
    RebuildingDescription,
    built_note,
    rebuild_figures,
    rebuild_section,
)
from raydt.presentation.blocks import Section
from raydt.presentation.trees import live_tree
from raydt.presentation.words import number

_RULE = (
    "After every update, raydt rebuilds the topmost node of its path whose score is more than beta above that of the "
    "best sparse feature the finder keeps, with its subtree."
)
_SCHEDULE = (
    " It also rebuilds a node built from s examples once more than epsilon s updates have reached it, because of "
    "the features that are not sparse."
)


class SparseTreeDescription(RebuildingDescription):
    """A tree whose splits a finder watches."""

    measures: ClassVar[Mapping[str, str]] = {
        "gap": "Score above (1 + finder_alpha) times the least",
        "lack": "Score above the least",
        "dense_gap": "Gap to the best split by a number or category",
        "leaf_gini": "Gini index of a leaf that may be split",
        "leaf_gain": "Gain that a leaf leaves unused",
        "change": "Updates since the build, c / s",
    }

    def present(self, run: RunRecords) -> Presentation:
        """Return the tree, and the rebuilds."""
        model, gap = run.model, number(worst_of(run.summary), "gap")
        about = ", and at which update it was built, from how many examples"
        drawn = [live_tree(model, run.names, lambda node: built_note(model, node), about)] if model else []
        dense = any(feature.get("kind") != "sparse" for feature in run.names.features)
        title = "Score above (1 + finder_alpha) times the least"
        return Presentation(
            rebuild_figures(run.summary),
            Section("Tree", tree_blocks(run, *drawn)),
            rebuild_section(
                run.summary, run.metrics, run.events, f"{_RULE}{_SCHEDULE if dense else ''} {LEAVES_ARE_RESET}"
            ),
            gap=None if gap is None else measured(title, gap, number(run.options, "beta")),
        )
