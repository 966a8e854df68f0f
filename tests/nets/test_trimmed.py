"""A model that was trimmed, as one of a key without rows for long, goes on as one that was not; memory alone differs.

Trimmed are also models that wait for a warm-up's end, and those that were just restored.
"""

from __future__ import annotations

import copy
import gc
import os
import random
import sys
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

import raydt
from raydt import ExactForestClassifier, ExactForestRegressor
from raydt.arrays.blocks import Compressed
from raydt.examples.updates import Features, UpdateBatch
from raydt.keyed.members import ROUNDS, Awake, apply_all
from raydt.learners.base import NOTHING_DIVIDED, WorkPlan
from raydt.learners.confidence_tree.dynamic_tree import LiveConfidenceTree
from raydt.learners.confidence_tree.options import ConfidenceTreeOptions
from raydt.learners.forest.model import Folded, unfolded
from raydt.sessions.session import InProcessSession
from tests.cases import Trial, every_case, one_of_each

#: Updates before the first model.
WARMUP = 30
#: The file of a line, and its number.
Line = tuple[str, int]
#: The folder of the package that is interrupted.
OURS = f"{Path(raydt.__file__).parent}{os.sep}"


@every_case("trimmed models", often=one_of_each)
def test_a_trimmed_model_goes_on(trial: Trial, tmp_path: Path) -> None:
    draw = random.Random(trial.name)
    stream = trial.stream(tmp_path, 70)
    plain, trimmed = trial.session(stream, 1), trial.session(stream, 1)
    for batch in stream.batches(9):
        if draw.random() < 0.7:
            trimmed.trim()
            if draw.random() < 0.3:  # a copy is as idle
                trimmed = copy.deepcopy(trimmed)
            same(plain, trimmed)
        if draw.random() < 0.2:
            other = trial.session(stream, 1)
            other.restore(*trimmed.state())
            other.trim()
            trimmed = other
        results = [one.take(copy.deepcopy(batch), skip_refused=True) for one in (plain, trimmed)]
        assert results[0].refused == results[1].refused
        np.testing.assert_array_equal(results[0].predictions, results[1].predictions)
        assert plain.digest() == trimmed.digest()
    trimmed.trim()
    same(plain, trimmed)
    assert plain.finish().keys() == trimmed.finish().keys()
    assert plain.digest() == trimmed.digest()
    assert plain.coordinator.statistics() == trimmed.coordinator.statistics()


@every_case("models that are looked at", often=lambda trial: one_of_each(trial) or trial.name.startswith("forest"))
def test_a_look_changes_nothing(trial: Trial, tmp_path: Path) -> None:
    stream = trial.stream(tmp_path, 70)
    features = trial.features(stream.source)
    plain, seen = (InProcessSession(trial.learner, trial.options, features, 1, WorkPlan()) for _ in range(2))
    for batch in stream.batches(9):
        batch = replace(batch, warmup=WARMUP)
        seen.model()
        seen.coordinator.predict(batch.X, batch.sparse)
        results = [one.take(copy.deepcopy(batch), skip_refused=True) for one in (plain, seen)]
        np.testing.assert_array_equal(results[0].predictions, results[1].predictions)
        assert plain.digest() == seen.digest()


#: Calls that change nothing, of which a model may be trimmed before.
LOOKS: dict[str, Callable[[InProcessSession, UpdateBatch], object]] = {
    "trim": lambda session, batch: session.trim(),
    "group": lambda session, batch: session.group(batch),
    "digest": lambda session, batch: session.digest(),
    "model": lambda session, batch: session.model(),
    "state": lambda session, batch: session.state(),
    "predict": lambda session, batch: session.coordinator.predict(batch.X, batch.sparse),
}


@every_case("looks that are interrupted", often=one_of_each)
def test_a_look_that_is_interrupted_changes_nothing(trial: Trial, tmp_path: Path) -> None:
    """Each interrupt comes at a line of ours at which none has come in this look, if one is left."""
    draw = random.Random(trial.name)
    stream = trial.stream(tmp_path, 70)
    features = trial.features(stream.source)
    plain, seen = (InProcessSession(trial.learner, trial.options, features, 1, NOTHING_DIVIDED) for _ in range(2))
    done: dict[str, set[Line]] = {name: set() for name in LOOKS}
    for batch in stream.batches(1):
        batch = replace(batch, warmup=WARMUP)
        for name in draw.choices(list(LOOKS), k=3):
            if draw.random() < 0.5:
                seen.trim()
            passed = list(lines_of(LOOKS[name], copy.deepcopy(seen), batch, None))
            left = [line for line in passed if line not in done[name]] or passed
            if left:
                done[name].add(line := draw.choice(left))
                lines_of(LOOKS[name], seen, batch, line)
        (result,) = apply_all([seen], [copy.deepcopy(batch)], skip_refused=True)
        np.testing.assert_array_equal(result.predictions, plain.apply(batch, skip_refused=True).predictions)
        assert plain.digest() == seen.digest()
    assert sum(map(len, done.values())) > 50


def lines_of(
    look: Callable[..., object], session: InProcessSession, batch: UpdateBatch, last: Line | None
) -> dict[Line, None]:
    """Return the lines of ours that a look passes, in order; it is interrupted at the ``last``."""
    passed: dict[Line, None] = {}

    def trace(frame: FrameType, event: str, _: object) -> Any:
        line = frame.f_code.co_filename, frame.f_lineno
        if OURS not in line[0]:
            return None
        if event == "line":
            passed[line] = None
            if line == last:
                sys.settrace(None)
                raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:
        look(session, batch)
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(None)
    return passed


def same(one: InProcessSession, other: InProcessSession) -> None:
    """Assert that models, states and statistics are equal; nothing of that wakes an idle one for good."""
    (whole, groups), (given, others) = one.state(), other.state()
    assert groups.keys() == others.keys()
    for mine, theirs in [(whole, given), (one.model(), other.model()), *((groups[g], others[g]) for g in groups)]:
        assert mine.keys() == theirs.keys()
        for name in mine:
            if name not in ("leaf", "position", "slot"):
                np.testing.assert_array_equal(mine[name], theirs[name], err_msg=name)
    assert one.coordinator.statistics() == other.coordinator.statistics()


def test_idle_keys_are_told_once() -> None:
    awake = Awake()
    assert awake.use(["a", "b"]) == []
    told = [awake.use(["b"]) for _ in range(2 * ROUNDS)]
    assert told == [["a"] if round_ == ROUNDS - 1 else [] for round_ in range(2 * ROUNDS)]
    assert awake.use(["a"]) == []


def test_an_idle_forest_is_small() -> None:
    rng, rows, columns = np.random.default_rng(0), 1000, 10
    X = rng.normal(size=(rows, columns))
    y = X[:, 0] + 0.5 * rng.normal(size=rows) > 0

    def idle() -> ExactForestClassifier:
        model = ExactForestClassifier(n_estimators=10).fit(X, y)
        model.predict(X[:3])
        model._trim()
        return model

    tracemalloc.start()
    try:
        models, held = [], []
        for _ in range(4):
            models.append(idle())
            gc.collect()
            held.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    of_one = (held[-1] - held[1]) / 2  # the first ones load what is kept for all
    assert of_one - 8 * rows * (columns + 3) < 50 * 1024
    np.testing.assert_array_equal(models[0].predict(X), ExactForestClassifier(n_estimators=10).fit(X, y).predict(X))


@pytest.mark.parametrize("kind", ["classes", "numbers", "weights", "not added up"])
def test_a_folded_forest_has_the_arrays_that_it_was_given(kind: str) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 4)).round(1)
    y = rng.integers(0, 3, 200) if kind == "classes" else rng.normal(size=200)
    weight = rng.uniform(0.5, 2.0, 200).round(2) if kind == "weights" else None
    forest = ExactForestClassifier if kind == "classes" else ExactForestRegressor
    model = forest(n_estimators=5).fit(X, y, sample_weight=weight).session_.model()
    if kind == "not added up":
        model["totals"][0] += 1
    again = unfolded(Folded(model))
    assert list(again) == list(model)
    for name, array in model.items():
        assert again[name].dtype == array.dtype
        np.testing.assert_array_equal(again[name], array, err_msg=name)


def test_a_trim_that_is_broken_off_leaves_room_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_memory(*given: Any) -> None:
        raise MemoryError

    options = ConfidenceTreeOptions(kind="confidence_tree", feature_groups=1)
    live = LiveConfidenceTree(options, Features(("a",), (False,), groups=1))
    live.reserve(10)
    live.store.fill(np.arange(10), np.zeros(10, dtype=np.int32), np.arange(10))
    monkeypatch.setattr(Compressed, "__init__", no_memory)
    with pytest.raises(MemoryError):
        live.trim()
    live.reserve(20)
    assert min(len(live.right), len(live.members)) >= live.store.capacity > 10
