"""The audit of the sparse fully dynamic tree finds each kind of damage; forged states are refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from raydt.examples.history import History, history_of_live
from raydt.learners.sparse_tree.audit import audit
from tests.sparse_tree_streams import LEARNER, MixedStream, long_stream, session_of, twin_of

OPTIONS = {"finder_alpha": 0.1, "alpha": 0.0, "beta": 0.03, "feature_groups": 4}
CASES = {"updgini": ("updgini", 0), "updent": ("updent", 0), "mixed": ("updgini", 2)}


@cache
def case(name: str) -> tuple[MixedStream, dict[str, Any], Any, Any, History]:
    """A stream, options, the state and groups after it, and its history."""
    finder, dense = CASES[name]
    stream = long_stream(5, 300, dense)
    options: dict[str, Any] = {**OPTIONS, "finder": finder, **({"epsilon": 0.004, "alpha": 0.1} if dense else {})}
    session, twin = session_of(stream, options, 2), twin_of(stream, options)
    for mine, whole in zip(stream.batches([40]), stream.columns.batches([40]), strict=True):
        session.apply(mine)
        twin.process(whole)
    history = twin.history()
    X = np.ascontiguousarray(history.X[:, :dense])
    return stream, options, *session.state(), replace(history, X=X, sparse=stream.sparse_of(history.X))


def audited(name: str, state: Any = None, groups: Any = None, history: History | None = None) -> Any:
    stream, options, sound, parts, true = case(name)
    fitted = LEARNER.Options(kind="sparse_tree", **options)
    return LEARNER.audit(fitted, stream.features, state or sound, history or true, groups or parts)


@pytest.mark.parametrize("name", CASES)
def test_a_sound_state_holds_and_is_proven(name: str) -> None:
    stream, _, state, groups, _ = case(name)
    report = audited(name)
    assert report.failures == []
    assert (report.conformance, report.feasibility) == ("holds", "proven")
    assert report.checked["entries"] == sum(len(group["node"]) for group in groups.values()) > 100
    assert report.checked["nodes"] == report.checked["counters"] > 5
    assert report.worst["gap"] <= 0.03
    of_live = audited(name, history=history_of_live(state, groups, stream.features))
    assert of_live.ok
    assert of_live.checked["counters"] == 0
    assert of_live.worst == report.worst


def changed(arrays: Any, name: str, place: int, by: int) -> Any:
    array = arrays[name].copy()
    array.reshape(-1)[place] += by
    return {**arrays, name: array}


@pytest.mark.parametrize(
    ("name", "place", "by", "finding"),
    [
        ("counts", 0, 1, "class counts differ"),
        ("s", 0, 1, "s differs"),
        ("c", 0, 1, "c differs"),
        ("leaf", 0, 1, "leaf of"),
        ("y", 0, 1, "label of"),
        ("built", 0, -2, ""),
    ],
)
def test_damage_to_the_tree_is_found(name: str, place: int, by: int, finding: str) -> None:
    state = changed(case("updgini")[2], name, place, by)
    report = audited("updgini", state)
    assert report.conformance == "violated"
    assert any(finding in failure for failure in report.failures)


def test_another_split_is_found() -> None:
    state = case("updent")[2]
    unused = next(j for j in range(14) if j != state["feature"][0])
    report = audited("updent", changed(state, "feature", 0, unused - int(state["feature"][0])))
    assert report.conformance == "violated"
    assert any("not the best one at BUILD" in failure for failure in report.failures)


@pytest.mark.parametrize("column", ["node", "feature", "n1", "c11", "bucket"])
def test_damage_to_structures_is_found(column: str) -> None:
    groups = case("updgini")[3]
    number = next(g for g, group in groups.items() if len(group["node"]) > 3)
    broken = {**groups, number: changed(groups[number], column, 2, 5)}
    report = audited("updgini", groups=broken)
    assert report.conformance == "violated"
    assert any(f"group {number}" in failure for failure in report.failures)


def test_a_beaten_split_is_infeasible() -> None:
    stream, options, state, groups, history = case("updgini")
    fitted = LEARNER.Options(kind="sparse_tree", **{**options, "beta": 1e-9, "finder_alpha": 0.01})
    report = audit(fitted, stream.features, state, history, groups)
    assert report.feasibility == "violated"
    assert any("lacks more than beta" in failure for failure in report.failures)


def refused(change: Callable[[Any, Any], tuple[Any, Any]], name: str = "mixed", **other: Any) -> str:
    stream, options, state, groups, _ = case(name)
    fitted = LEARNER.Options(kind="sparse_tree", **{**options, **other})
    LEARNER.check(LEARNER.Options(kind="sparse_tree", **options), stream.features, 2, state, groups)
    with pytest.raises((ValueError, KeyError)) as error:
        LEARNER.check(fitted, stream.features, 2, *change(dict(state), dict(groups)))
    return str(error.value)


@pytest.mark.parametrize("column", ["node", "feature", "n1", "c11", "bucket"])
def test_forged_structures_are_refused(column: str) -> None:
    def forged(by: int) -> Callable[[Any, Any], tuple[Any, Any]]:
        def change(state: Any, groups: Any) -> tuple[Any, Any]:
            number = next(g for g, group in groups.items() if len(group["node"]) > 3)
            return state, {**groups, number: changed(groups[number], column, 1, by)}

        return change

    assert column in refused(forged(1000))
    assert column in refused(forged(-1000))


def test_other_forgeries_are_refused() -> None:
    def of_state(**arrays: Any) -> Callable[[Any, Any], tuple[Any, Any]]:
        return lambda state, groups: ({**state, **arrays}, groups)

    def of_group(**arrays: Any) -> Callable[[Any, Any], tuple[Any, Any]]:
        return lambda state, groups: (state, {**groups, 0: {**groups[0], **arrays}})

    _, _, state, groups, _ = case("mixed")
    assert "counts" in refused(of_state(counts=np.pad(state["counts"], ((0, 0), (0, 1)))))
    assert "sparse_values" in refused(of_group(sparse_values=groups[0]["sparse_values"][::-1].copy()))
    assert "sparse" in refused(of_group(sparse_lengths=groups[0]["sparse_lengths"][:-1]))
    other = next(g for g in groups.values() if g is not groups[0] and len(g["sparse_values"]))
    swapped = {name: other[name] for name in ("sparse_lengths", "sparse_values")}
    assert "group" in refused(of_group(**swapped))
    assert "bucket" in refused(of_group(bucket=groups[0]["bucket"].astype(np.int64)))
    assert "max_depth" in refused(lambda state, groups: (state, groups), max_depth=1)
    sparse = np.flatnonzero(state["feature"] >= 2)[0]
    threshold = state["threshold"].copy()
    threshold[sparse] = 0.25
    assert "threshold" in refused(of_state(threshold=threshold))


def test_an_unfinished_warm_up_has_no_structures() -> None:
    stream = long_stream(1, 60)
    stream = replace(stream, columns=replace(stream.columns, warmup=1000))
    options = {**OPTIONS, "finder": "updgini"}
    session = session_of(stream, options, 2)
    for batch in stream.batches([20]):
        session.apply(batch)
    state, groups = session.state()
    fitted = LEARNER.Options(kind="sparse_tree", **options)
    LEARNER.check(fitted, stream.features, 2, state, groups)
    assert sum(len(group["node"]) for group in groups.values()) == 0
    history = history_of_live(state, groups, stream.features)
    report = LEARNER.audit(fitted, stream.features, state, history, groups)
    assert (report.conformance, report.feasibility) == ("holds", "not_promised")
    session.finish()
    state, groups = session.state()
    LEARNER.check(fitted, stream.features, 2, state, groups)
    report = LEARNER.audit(fitted, stream.features, state, history_of_live(state, groups, stream.features), groups)
    assert (report.conformance, report.feasibility) == ("holds", "proven")
