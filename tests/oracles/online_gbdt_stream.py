"""The stream in front of the slow online GBDT: warm-up, D' by sequence number, what waits, and the state of it all.

An insertion and its deletion in one D' cancel; a deletion and an insertion of the same id after it both happen.
Answers are those of the model as it is: what waits is not in it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from raydt.examples.updates import (
    CARRIES_ROW,
    DELETE,
    DELETE_VALUE,
    DUPLICATE_ID,
    INSERT,
    QUERY,
    TARGET_TOO_FAR,
    UNKNOWN_ID,
    UNKNOWN_VALUE,
    UPDATE,
    History,
    UpdateBatch,
)
from tests.oracles.digests import CategoryBins
from tests.oracles.online_gbdt import UNIT, Node, OnlineGBDT, Row, Work

ALIVE = np.iinfo(np.int64).max
#: Values of ``pending``.
HELD, WAITS, LEAVES = 0, 1, 2


def value(x: tuple[float, ...]) -> bytes:
    """What equal rows have in common; NaN equals NaN."""
    return np.array(x, np.float64).tobytes()


class OnlineGBDTTwin:
    """A model and the updates that wait for it."""

    def __init__(self, categorical: list[bool], options: Any) -> None:
        self.model = OnlineGBDT(categorical, options)
        self.categorical, self.options = categorical, options
        self.inserts: dict[int, Row] = {}  # of the D' that is being collected
        self.deletes: list[int] = []
        self.born: dict[Row, int] = {}
        self.died: dict[Row, int] = {}
        self.ever: list[Row] = []
        self.warmup = self.told = self.seq = 0
        self.begun = 0  # updates before the D' that is being collected
        self.trained = False
        self.weighed = 0  # the update before which the classes were balanced
        self.trained_at = self.trained_rows = self.changes = 0
        self.work = 0, 0  # of the last update in place, and its inserts and deletes
        self.log: list[Work] = []

    # ------------------------------------------------------------------ updates

    def process(self, batch: UpdateBatch, *, skip_refused: bool = False) -> tuple[int, list[float], list[Any]]:
        """How many updates were taken, the predictions (NaN: none), and (position, reason) of refusals."""
        if batch.start == 0:
            self.warmup = self.told = batch.warmup
        predictions, refused, row = [math.nan] * len(batch), [], 0
        for position in range(len(batch)):
            op, x, y, weight = int(batch.op[position]), (), -1.0, UNIT
            if CARRIES_ROW[op]:
                x, y = tuple(batch.X[row].tolist()), float(batch.y[row])
                weight = UNIT if batch.weight is None else int(batch.weight[row])
                row += 1
            seq = batch.start + position
            reason, predictions[position] = self.event(seq, op, int(batch.id[position]), x, y, weight)
            if reason:
                refused.append((position, reason))
                if not skip_refused:
                    return position, predictions, refused
            self.seq = seq + 1
            if self.seq == (self.begun + self.size() if self.seq > self.warmup else self.warmup):
                self.apply()
        return len(batch), predictions, refused

    def finish(self) -> None:
        """Apply what waits."""
        self.warmup = min(self.warmup, self.seq)
        if self.inserts or self.deletes:
            self.apply()

    def event(
        self, seq: int, op: int, id: int, x: tuple[float, ...], y: float, weight: int = UNIT
    ) -> tuple[int, float]:
        """Why an update was refused (0: it was not), and its prediction."""
        if op != DELETE and self.model.squared and self.trained and self.model.is_far(y):
            return TARGET_TOO_FAR, math.nan
        if op == INSERT and self.find(id) is not None:
            return DUPLICATE_ID, math.nan
        if op in (DELETE, UPDATE) and self.find(id) is None:
            return UNKNOWN_ID, math.nan
        if op == DELETE_VALUE:
            equal = [row for row in self.live() if (value(row.x), row.y) == (value(x), y)]
            if not equal:
                return UNKNOWN_VALUE, math.nan
            id = min(equal, key=lambda row: self.born[row]).id
        prediction = math.nan
        if self.trained and op in (INSERT, UPDATE, QUERY):
            prediction = self.model.predict(x)
            if op != QUERY and self.model.squared and self.options.retrain != "always":
                self.model.learn_slope(x, y, weight / UNIT)
        if op in (DELETE, DELETE_VALUE, UPDATE):
            self.died[self.find(id)] = seq
            if id in self.inserts:
                del self.inserts[id]
            else:
                self.deletes.append(id)
        if op in (INSERT, UPDATE):
            row = self.inserts[id] = Row(id, x, y, weight=weight)
            self.born[row] = seq
            self.ever.append(row)
        return 0, prediction

    def find(self, id: int) -> Row | None:
        """The live example of this id."""
        if id in self.inserts:
            return self.inserts[id]
        return None if id in self.deletes else self.model.rows.get(id)

    def live(self) -> list[Row]:
        held = [row for row in self.model.rows.values() if row.id not in self.deletes]
        return held + list(self.inserts.values())

    def apply(self) -> None:
        """The end of a D', or of the warm-up."""
        rows = list(self.inserts.values())
        self.changes += len(self.deletes) + len(rows)
        live = self.live()
        if live and (not self.trained or self.changes >= self.trains_after() or self.is_dear(len(live))):
            self.log.append(Work(len(self.deletes), len(rows), trained=len(live)))
            if self.model.factors is None:
                self.weighed = self.seq
            self.model.train(live)
            self.trained, self.trained_at, self.trained_rows, self.changes = True, self.seq, len(live), 0
            self.work = self.work[0] - math.ceil(self.work[0] / 32), self.work[1]
        elif self.trained:
            self.log.append(self.model.update(self.deletes, rows))
            if self.deletes or rows:
                self.work = self.work_of(self.log[-1]), len(self.deletes) + len(rows)
        else:
            self.log.append(Work(len(self.deletes), len(rows)))
        self.inserts, self.deletes, self.begun = {}, [], self.seq

    def size(self) -> int:
        """Updates of the D' that is being collected."""
        if self.options.update_every != "auto":
            return int(self.options.update_every)
        rows, least = len(self.model.rows), 20 if self.warmup else 100
        if not self.trained:
            return least
        looked_at = (self.options.max_leaf_nodes - 1) * len(self.model.candidates[0]) // 20
        return max(least, min(rows, looked_at) // 20, rows // 200)

    def is_dear(self, live: int) -> bool:
        """Whether an update in place would be as much work as a training, by the last one."""
        work, changes = self.work
        now = len(self.deletes) + len(self.inserts)
        if self.options.retrain != "auto":
            return False
        return changes > 0 and min(now, changes) * work >= changes * live * len(self.model.trees)

    def work_of(self, done: Work) -> int:
        """Work of an update, in rows that a tree is trained on."""
        trees, inner = len(self.model.trees), self.options.max_leaf_nodes - 1
        judged = done.checked * inner * len(self.model.candidates[0])
        return done.rows + done.refreshed * trees // 4 + 2 * (done.deletes + done.inserts) * trees + judged // 20

    def trains_after(self) -> float:
        """Inserts and deletes after which the trees are trained again."""
        return {"always": 1, "never": math.inf, "auto": max(1, self.trained_rows // 8)}[self.options.retrain]

    # ------------------------------------------------------------------ comparison

    def places(self) -> list[tuple[int, int]]:
        """Iteration and class of every tree, in order."""
        return sorted(self.model.trees)

    def state(self) -> dict[str, Any]:
        """A coordinator's state without bins: trees in preorder, rows by id."""
        model, places = self.model, self.places()
        waiting = [(row, WAITS) for row in self.inserts.values()]
        held = [(row, LEAVES if row.id in self.deletes else HELD) for row in model.rows.values()]
        rows = sorted(held + waiting, key=lambda pair: (pair[0].id, pair[1]))
        trees = [list(model.trees[place].preorder()) for place in places]
        within = {v: i for tree in trees for i, v in enumerate(tree)}
        nodes = [v for tree in trees for v in tree]
        small = self.options.max_leaf_nodes * 2 - 1 < 256
        none = 255 if small else 65535

        def of_nodes(dtype: Any, get: Any) -> Any:
            return np.array([get(v) for v in nodes], dtype)

        def of_rows(dtype: Any, get: Any, missing: int) -> Any:
            table = [[missing if kind == WAITS else get(row, place) for place in places] for row, kind in rows]
            return np.array(table, dtype).reshape(len(rows), len(places))

        def child(v: Node | None) -> int:
            return -1 if v is None else within[v]

        squared, unit = model.squared, UNIT if model.squared else 1  # sums of weights have whole ones and a rest
        state = {
            "weight": np.array([row.weight for row, _ in rows], np.uint32),
            "pending": np.array([kind for _, kind in rows], np.int8),
            "id": np.array([row.id for row, _ in rows], np.int64),
            "y": np.array([row.y for row, _ in rows], np.float64 if squared else np.int32),
            "born": np.array([self.born[row] for row, _ in rows], np.int64),
            "seq": np.array([self.seq], np.int64),
            "warmup": np.array([self.warmup], np.int64),
            "begun": np.array([self.begun], np.int64),
            "classes": np.array([-1 if not self.trained else 0 if squared else model.K], np.int64),
            "exponent": np.array([model.exponent], np.int64),
            "trained": np.array([self.trained_at], np.int64),
            "trained_rows": np.array([self.trained_rows], np.int64),
            "changes": np.array([self.changes], np.int64),
            "work": np.array([self.work[0]], np.int64),
            "work_changes": np.array([self.work[1]], np.int64),
        }
        if not self.trained:
            return state
        if model.factors is not None:
            state["class_weight"] = np.array(model.factors, np.int64)
            state["weighed"] = np.array([self.weighed], np.int64)
        return (
            state
            | self.bins()
            | {
                "node_feature": of_nodes(np.int32, lambda v: v.feature),
                "node_cut": of_nodes(np.int32, lambda v: v.cut),
                "node_left": of_nodes(np.int32, lambda v: child(v.left)),
                "node_right": of_nodes(np.int32, lambda v: child(v.right)),
                "node_G": of_nodes(np.int64, lambda v: v.G),
                "node_H": of_nodes(np.int64, lambda v: v.H // unit),
                "node_H_rest": of_nodes(np.uint16, lambda v: v.H % unit),
                "node_value": of_nodes(np.float64, lambda v: v.value),
                "node_tried_g": of_nodes(np.int64, lambda v: 0 if v.tried is None else v.tried[0]),
                "node_tried_h": of_nodes(np.int64, lambda v: -1 if v.tried is None else v.tried[1] // unit),
                "node_tried_h_rest": of_nodes(np.uint16, lambda v: 0 if v.tried is None else v.tried[1] % unit),
                "node_above": of_nodes(np.uint16, lambda v: v.above),
                "node_below": of_nodes(np.uint16, lambda v: v.below),
                "tree_nodes": np.array([len(tree) for tree in trees], np.int32),
                "leaf": of_rows(np.uint8 if small else np.uint16, lambda row, place: within[row.leaf[place]], none),
                "ledger": of_rows(np.int32 if squared else np.uint16, lambda row, place: row.ledger[place], 0),
                "origin": np.array([model.origin], np.float64),
                "slope": np.array(model.fitted, np.float64),
                "drift": np.array([0 if kind == WAITS else row.drift for row, kind in rows], np.uint16),
            }
        )

    def bins(self) -> dict[str, Any]:
        """Bins as a state has them; the default code, which decides nothing, is 0."""
        values: list[list[float]] = []
        ranks: list[list[int]] = []
        seen = []
        for bins in self.model.bins:
            if isinstance(bins, CategoryBins):
                values.append(sorted(bins.kept))
                ranks.append([bins.kept.index(category) for category in values[-1]])
            else:
                values.append(bins.boundaries)
                ranks.append([0] * len(bins.boundaries))
            seen.append(bins.has_other if isinstance(bins, CategoryBins) else bins.has_nan)
        return {
            "bins_kinds": np.array(self.categorical, np.int8),
            "bins_values": np.array([v for part in values for v in part], np.float64),
            "bins_ranks": np.array([r for part in ranks for r in part], np.int32),
            "bins_starts": np.cumsum([0, *(len(part) for part in values)]).astype(np.int64),
            "bins_seen": np.array(seen, np.uint8),
            "bins_default": np.zeros(len(values), np.int32),
        }

    def history(self) -> History:
        """Every example ever inserted."""
        return History(
            id=np.array([row.id for row in self.ever], np.int64),
            X=np.array([row.x for row in self.ever], np.float64).reshape(len(self.ever), len(self.categorical)),
            y=np.array([row.y for row in self.ever], np.float64 if self.model.squared else np.int32),
            inserted=np.array([self.born[row] for row in self.ever], np.int64),
            deleted=np.array([self.died.get(row, ALIVE) for row in self.ever], np.int64),
            warmup=self.told,
            weight=np.array([row.weight for row in self.ever], np.uint32),
        )


def canonical(state: dict[str, Any]) -> dict[str, Any]:
    """What two states have to agree in, whoever made them: plain lists, rows by id, nothing where nothing is meant."""
    order = np.lexsort((state["pending"], state["id"]))
    same = {name: np.asarray(state[name])[order].tolist() for name in ("id", "y", "pending", "born")}
    same["weight"] = np.asarray(state.get("weight", np.full(len(order), UNIT)))[order].tolist()
    same["weighed"] = np.asarray(state.get("weighed", [0])).tolist() if "class_weight" in state else []
    same["class_weight"] = np.asarray(state.get("class_weight", [])).tolist()
    scalars = (
        "seq",
        "warmup",
        "begun",
        "classes",
        "exponent",
        "trained",
        "trained_rows",
        "changes",
        "work",
        "work_changes",
    )
    same |= {name: np.asarray(state[name]).tolist() for name in scalars}
    if state["classes"][0] < 0:
        return same
    inner = np.asarray(state["node_feature"]) >= 0
    tried = np.asarray(state["node_tried_h"]) >= 0
    waits = np.asarray(state["pending"])[order] == WAITS
    none = np.zeros(len(state["node_H"]), np.uint16)
    state = {"node_H_rest": none, "node_tried_h_rest": none, **state}
    names = ("feature", "left", "right", "G", "H", "H_rest", "tried_h", "tried_h_rest", "above", "below")
    same |= {f"node_{name}": np.asarray(state[f"node_{name}"]).tolist() for name in names}
    same["node_cut"] = np.where(inner, state["node_cut"], 0).tolist()
    same["node_value"] = np.where(inner, 0.0, state["node_value"]).tolist()
    same["node_tried_g"] = np.where(tried, state["node_tried_g"], 0).tolist()
    for name in ("leaf", "ledger"):
        same[name] = np.where(waits[:, None], 0, np.asarray(state[name], np.int64)[order]).tolist()
    same["drift"] = np.asarray(state["drift"])[order].tolist()
    bins = ("kinds", "values", "ranks", "starts", "seen")
    same["slope"] = np.asarray(state.get("slope", np.zeros(3))).tolist()
    return same | {
        name: np.asarray(state[name]).tolist() for name in ("tree_nodes", "origin", *(f"bins_{b}" for b in bins))
    }
