"""How trees present themselves whose parts are rebuilt: how often, their log, and what each deletion caused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from raydt.arrays.types import AnyArray, Ints
from raydt.learners.description import (
    Call,
    Column,
    Curve,
    Description,
    Effects,
    Lines,
    ReceiptWords,
    node_counts,
    remaining,
    tree_figures,
)
from raydt.presentation.blocks import Block, Fact, Note, Section, Text
from raydt.presentation.rebuilds import rebuild_work, sizes, timeline
from raydt.presentation.series import Columns
from raydt.presentation.words import count, counted, number

#: What happens at leaves of trees whose subtrees are rebuilt.
LEAVES_ARE_RESET = "A leaf that stays a leaf is only reset."


class RebuildingDescription(Description):
    """A tree, or trees, of which parts are rebuilt."""

    curves: ClassVar[tuple[Curve, ...]] = (
        Curve("work", "Rows rebuilt per update", "rebuilt_rows", "rows/update", rate=True),
        *Description.curves,
    )
    columns: ClassVar[tuple[Column, ...]] = (
        Column("rebuilds", "rebuilds"),
        Column("rebuilt_rows", "rows rebuilt", brief=False),
        *Description.columns,
    )
    figures: ClassVar[tuple[tuple[str, str], ...]] = (
        *Description.figures,
        ("Rebuilds", "rebuilds"),
        ("Rows rebuilt", "rebuilt_rows"),
    )

    def lines(self, summary: Mapping[str, Any]) -> Lines:
        """Return the size of the tree, and how much of it was rebuilt."""
        rebuilt = f"{summary['rebuilds']:,} of {counted(summary['rebuilt_rows'], 'row')} in all"
        return [*super().lines(summary), ("rebuilds", rebuilt)]

    def effects(self, call: Call) -> Effects:
        """Return the path of each deletion, and the rebuild that it caused, by the log: depth, rows and nodes."""
        log = call.result.log
        return Effects(
            {"path": call.path, **rebuilds_of(call.seq, log)},
            call.work,
            rebuilds=len(log["rows"]) if "rows" in log else 0,
            rebuilt_rows=int(log["rows"].sum()) if "rows" in log else 0,
            rebuilt_nodes=int(log["nodes"].sum()) if "nodes" in log else 0,
        )

    def receipt(self, effects: Effects) -> ReceiptWords:
        """Return rebuilds, and what else the call took."""
        rows, nodes = counted(effects.rebuilt_rows, "row"), counted(effects.rebuilt_nodes, "node")
        return ReceiptWords(
            short=f"{counted(effects.rebuilds, 'rebuild')} of {rows}",
            counts=node_counts(effects),
            lines=[
                ("rebuilds", f"{counted(effects.rebuilds, 'subtree')} of {rows} and {nodes} in all"),
                *remaining(effects.work, "counts_changed"),
            ],
            titles={"path": "nodes changed"} if effects.columns else {},
        )


def rebuilds_of(seq: Ints, log: Mapping[str, AnyArray]) -> dict[str, AnyArray]:
    """Return depth, rows and nodes of the rebuild that each of some updates caused; ``seq`` ascends."""
    columns: dict[str, AnyArray] = {
        "rebuilt_depth": np.full(len(seq), -1, dtype=np.int32),
        "rebuilt_rows": np.zeros(len(seq), dtype=np.int64),
        "rebuilt_nodes": np.zeros(len(seq), dtype=np.int64),
    }
    if len(seq) and log:
        at = np.searchsorted(seq, log["seq"]).clip(max=len(seq) - 1)
        caused = seq[at] == log["seq"]
        for name, column in columns.items():
            column[at[caused]] = log[name.removeprefix("rebuilt_")][caused]
    return columns


def rebuild_figures(summary: Mapping[str, Any]) -> list[Fact]:
    """Return size and rebuilds as key figures."""
    rebuilt, rows = count(summary.get("rebuilds")), count(summary.get("rebuilt_rows"))
    return [*tree_figures(summary), Fact("rebuilds", rebuilt, f"{rows} rows in all")]


def rebuild_section(
    summary: Mapping[str, Any], metrics: Columns, events: Columns, rule: str, *, timed: bool = True
) -> Section:
    """Return when, how large and how deep rebuilds were and, if ``timed``, their times; ``rule`` is for the text."""
    if not len(events.get("rows", ())) or not {"seq", "place", "depth"} <= events.keys():
        return Section("Rebuilds", [Text("The run recorded no rebuilds.", "none")])
    updates = int(summary.get("updates") or 0)
    several = len(events["rows"]) > 1
    charts: list[Block] = [timeline(events, metrics, updates), *sizes(events)] if several else []
    blocks = [Text(rule), *charts]
    work = [rebuild_work(events, number(summary, "seconds"))] if timed else []
    return Section("Rebuilds", [*blocks, *work])


def built_note(model: Columns, node: int) -> Note:
    """Return when a node was built, from how many examples, and the updates since, two half ones each."""
    if not {"built", "s", "c"} <= model.keys():
        return Note()
    stamp, since = int(model["built"][node]), int(model["c"][node])
    when = "at the start" if stamp < 0 else f"at {count(stamp >> 1)}"
    built = f"built {when} from {count(model['s'][node])}"
    return Note((built,), (f"{built}, {counted(since, 'update')} since",))
