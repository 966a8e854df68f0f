"""Mutants made from the schema of every learner: each array that cannot be is refused before a kernel follows it.

The forged arrays are of other types, lengths and bounds than declared, link nodes to a cycle or out of the tree, or
count something else. Other changes within the bounds are for checks and audit together (``test_audit_mutants``).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from raydt.arrays.blocks import SparseRows
from raydt.examples.updates import DELETE, Features, UpdateBatch
from raydt.trees.state_schema import Array, check_arrays
from tests.cases import CASES, Trial, every_case

#: By these kernels make room, look numbers up in tables, or take a tree for one leaf: larger ones are refused, too.
COUNTED = ("counts", "own", "trial_own", "totals", "bins", "n1", "c11", "warmup_left")


def with_first(array: np.ndarray, value: Any) -> np.ndarray | None:
    """A copy whose first number is another; None if the type has no such number."""
    copy = array.copy()
    try:
        copy.flat[0] = value
    except (OverflowError, ValueError):
        return None
    return copy


def forged(of: Array, array: np.ndarray, lengths: dict[str, int], shared: Counter[str]) -> dict[str, Any]:
    """What the declaration of one array forbids; ``shared`` counts the arrays of each length."""
    mutants: dict[str, Any] = {
        "another type": array.astype(np.float32 if array.dtype.kind == "f" else np.uint64),
        "another dimension": array[None],
    }
    if not array.size:
        return mutants
    number, below = array.dtype.kind == "f", lengths[of.below] if isinstance(of.below, str) else of.below
    for axis, n in enumerate(of.shape):
        if isinstance(n, int) or shared[n] > 1:
            mutants[f"longer on axis {axis}"] = np.concatenate([array, array.take([-1], axis)], axis)
    if of.low is not None:
        mutants["below its bound"] = with_first(array, -np.inf if number else of.low - 1)
    if below is not None:
        mutants["above its bound"] = with_first(array, below)
    if of.low is not None and number and not of.missing:
        mutants["NaN"] = with_first(array, np.nan)
    if of.unique and array.size > 1:
        mutants["a number twice"] = with_first(array, array.flat[1])
    return {what: mutant for what, mutant in mutants.items() if mutant is not None}


def linked(arrays: dict[str, np.ndarray]) -> Iterator[tuple[str, str, np.ndarray]]:
    """Cycles, children of leaves, nodes that are left out, and rows in inner nodes."""
    prefix = "node_" if "node_feature" in arrays else ""
    if f"{prefix}left" not in arrays:
        return
    feature = arrays[f"{prefix}feature"]
    for name in (f"{prefix}left", f"{prefix}right"):
        for at in (*np.flatnonzero(feature >= 0)[:2].tolist(), *np.flatnonzero(feature < 0)[:1].tolist()):
            for child in {0, at, len(feature) - 1, -1} - {int(arrays[name][at])}:
                mutant = arrays[name].copy()
                mutant[at] = child
                yield name, f"of node {at} is {child}", mutant
    if "leaf" in arrays and arrays["leaf"].size and feature[0] >= 0:
        yield "leaf", "is the root", np.zeros_like(arrays["leaf"])


@every_case("forged arrays")
@pytest.mark.parametrize("where", ["model", "state", "group"])
def test_every_forged_array_is_refused(trial: Trial, where: str, sound: Callable[[Trial], Any]) -> None:
    features, classes, state, groups, _, model = sound(trial)
    learner, options = trial.learner, trial.options
    number = max(groups, key=lambda number: sum(array.size for array in groups[number].values()))
    arrays = {"model": model, "state": state, "group": groups[number]}[where]
    schema = learner.schema(options, features, model if where == "model" else state, state=where != "model")
    declared = schema.group if where == "group" else schema.arrays
    lengths = {"features": len(features), "dense": len(features.names), "sparse": features.sparse, "labels": classes}
    check_arrays(arrays, declared, lengths)
    if where != "group":
        assert arrays.keys() == {of.name for of in declared}, "every array is declared"
    shared = Counter(n for of in declared for n in of.shape if isinstance(n, str))

    def refused(mutant: dict[str, np.ndarray]) -> bool:
        parts = {"model": (mutant, None), "state": (mutant, groups), "group": (state, {**groups, number: mutant})}
        try:
            learner.check(options, features, classes, *parts[where])
        except (KeyError, ValueError):
            return True
        return False

    mutants = [
        (of.name, what, mutant)
        for of in declared
        for what, mutant in forged(of, arrays[of.name], lengths, shared).items()
    ]
    mutants += linked(arrays) if where != "group" else ()
    counted = [name for name in COUNTED if trial.shipped and name in arrays and arrays[name].size]
    mutants += [
        (name, "one more", with_first(arrays[name], arrays[name].flat[0] + 1)) for name in counted if where != "model"
    ]
    assert not refused(arrays)
    assert [f"{name}: {what}" for name, what, mutant in mutants if not refused({**arrays, name: mutant})] == []


#: Names by which a model or state shows that it has optional arrays.
EVERY_OPTIONAL_ARRAY = dict.fromkeys(
    ("m0", "bins_kinds", "bins_sparse", "naive_leaf", "tree_nodes", "node_count", "weight", "node_H_rest", "unit"),
    np.empty(0),
)
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "formats.md"
#: Rows of its tables: names of arrays, and their type.
ROW = re.compile(r"^\| (`\w+`(?:, `\w+`)*) \| (u?int\d+|float64)", re.MULTILINE)


def test_the_page_of_formats_has_every_array_with_its_type() -> None:
    text = PAGE.read_text(encoding="utf-8")
    types = {(name, dtype) for names, dtype in ROW.findall(text) for name in re.findall(r"\w+", names)}
    assert len(types) > 25
    for trial in (trial for trial in CASES if trial.shipped):
        features = Features(("a", "b"), (False, True), 1, sparse=3 * trial.case.sparse)
        for state in (False, True):
            schema = trial.learner.schema(trial.options, features, EVERY_OPTIONAL_ARRAY, state=state)
            for of in (*schema.arrays, *schema.group):
                assert f"`{of.name.removeprefix('trial_')}`" in text, f"{trial.name}: {of.name}"
                found = {dtype for name, dtype in types if name == of.name}
                assert not found or found & {dtype.name for dtype in of.dtypes}, f"{trial.name}: {of.name}"


@every_case("sound states")
@pytest.mark.parametrize("warmup", [None, 30, 200])
def test_no_state_on_the_way_is_refused(trial: Trial, warmup: int | None, tmp_path: Path) -> None:
    """Before, in and after a warm-up, in one that never ends, and once all examples are deleted."""
    trial = trial if warmup is None else replace(trial, case=replace(trial.case, warmup=warmup))
    stream = trial.stream(tmp_path, 90)
    session, features = trial.session(stream), trial.features(stream.source)

    def check() -> None:
        trial.learner.check(trial.options, features, len(stream.source.classes), *session.state())

    seq = 0
    for batch in stream.batches(11):
        session.apply(batch, skip_refused=True)
        seq = batch.start + len(batch)
        check()
    state, _ = session.state()
    live = np.unique(state["id"])  # those that wait to be deleted are not known any more
    nothing = np.empty((0, len(features.names)))
    y = np.empty(0, dtype=state["y"].dtype)
    op, rows = np.full(len(live), DELETE, dtype=np.int8), np.full(len(live), -1)
    sparse = SparseRows.empty(features.sparse, 0) if features.sparse else None
    classes, warmup = len(stream.source.classes), batch.warmup
    session.apply(UpdateBatch(seq, op, live, nothing, y, classes, rows, warmup, sparse=sparse), skip_refused=True)
    check()
    session.finish()
    check()
    trial.learner.check(trial.options, features, len(stream.source.classes), session.model(), None)
