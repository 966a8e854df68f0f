"""A state whose arrays cannot be is refused by name, before a kernel follows them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from raydt import FullyDynamicTreeClassifier, load_model
from raydt.errors import ModelFileError
from raydt.examples.features import Features
from raydt.learners import learners
from raydt.sessions.session import InProcessSession

Arrays = dict[str, Any]
LEARNER = learners()["fudyadt"]
FEATURES = Features(("a", "b", "c", "d", "e"), (False,) * 5, groups=3)
RNG = np.random.default_rng(0)
X = RNG.random((300, 5))
Y = (X[:, 0] > 0.5) ^ (X[:, 4] > 0.7)


@pytest.fixture(scope="module")
def tree() -> FullyDynamicTreeClassifier:
    return FullyDynamicTreeClassifier(epsilon=0.5, alpha=0.0, beta=0.0, feature_groups=3).partial_fit(X, Y)


def first(nodes: Any) -> int:
    return int(np.flatnonzero(nodes)[0])


def put(name: str, value: Any, where: Callable[[Arrays], Any] = lambda state: 0) -> Callable[[Arrays, Arrays], None]:
    """Another value in one place of an array of the coordinator."""

    def change(state: Arrays, groups: Arrays) -> None:
        state[name][where(state)] = value

    return change


def whole(name: str, made: Callable[[Any], Any]) -> Callable[[Arrays, Arrays], None]:
    """Another array of the coordinator."""

    def change(state: Arrays, groups: Arrays) -> None:
        state[name] = made(state[name])

    return change


def group(change: Callable[[Arrays], Any]) -> Callable[[Arrays, Arrays], None]:
    """Other feature groups."""
    return lambda state, groups: change(groups)


def shared_leaf(state: Arrays) -> int:
    return first(state["feature"] < 0)


def with_nan(groups: Arrays) -> None:
    groups[1]["X"][3, 0] = np.nan


CASES = {
    "no counts": (whole("counts", lambda a: a * 0), "'counts' has a leaf that does not match"),
    "few counts": (put("counts", 0, lambda s: (slice(None), 0)), "'counts' has a leaf that does not match"),
    "counts of inner nodes": (put("counts", 10**6, lambda s: (0, 0)), "'counts' has a node whose children"),
    "counts of a leaf": (put("counts", 10**6, lambda s: (shared_leaf(s), 1)), "'counts' has a node whose children"),
    "negative counts": (put("counts", -1, lambda s: (0, 0)), "'counts' does not count the classes"),
    "flat counts": (whole("counts", np.ravel), "'counts' does not have a int64 for each node"),
    "no nodes": (whole("feature", lambda a: a[:0]), "'feature' does not have a int32 for each node"),
    "feature": (put("feature", 5), "'feature' names a column"),
    "no dimension": (whole("feature", lambda a: np.array(a[0])), "'feature' does not have"),
    "a loop": (put("left", 0), "'left' and 'right'"),
    "NaN threshold": (put("threshold", np.nan), "'threshold' has a split"),
    "infinite threshold": (put("threshold", -np.inf), "'threshold' has a split"),
    "negative s": (put("s", -1), "'s' has a number that is not from 0 to 2147483647"),
    "s without end": (put("s", 2**62), "'s' has a number"),
    "negative c": (put("c", -1), "'c' has a number"),
    "c without end": (put("c", 2**63 - 1), "'c' has a number"),
    "equal ids": (whole("id", np.zeros_like), "'id' has the same number"),
    "equal born": (put("born", 1), "'born' has the same number"),
    "negative born": (put("born", -1), "'born' names an update"),
    "born in the future": (put("born", 10**6), "'born' names an update"),
    "a class that is not there": (put("y", 2), "'y' names a class"),
    "another class": (whole("y", lambda a: 1 - a), "'counts' has a leaf that does not match"),
    "negative y": (put("y", -1), "'y' names a class"),
    "rows in an inner node": (put("leaf", 0), "'leaf' names a node that is not a leaf"),
    "rows beyond the nodes": (put("leaf", 10**6), "'leaf' names a node that is not a leaf"),
    "rows in another leaf": (
        whole("leaf", lambda a: np.full_like(a, a.max())),
        "'counts' has a leaf that does not match",
    ),
    "ids of another type": (whole("id", lambda a: a.astype(float)), "'id' does not have a int64"),
    "too few ids": (whole("id", lambda a: a[1:]), "'y' does not have a int32 for each live example"),
    "negative seq": (put("seq", -1), "'seq' is not one number"),
    "seq without end": (put("seq", 2**62), "'seq' is not one number"),
    "two warm-ups": (whole("warmup_left", lambda a: np.array([0, 0])), "'warmup_left' is not one number"),
    "a group less": (group(lambda g: g.pop(2)), r"the feature groups are \[0, 1\], not 0 to 2"),
    "a group more": (group(lambda g: g.update({3: g[0]})), r"the feature groups are \[0, 1, 2, 3\], not 0 to 2"),
    "a column less": (group(lambda g: g[1].update(X=g[1]["X"][:, 1:])), "'X' of feature group 1 does not have 2"),
    "a row less": (group(lambda g: g[1].update(X=g[1]["X"][1:])), "'X' of feature group 1"),
    "float32": (group(lambda g: g[1].update(X=g[1]["X"].astype(np.float32))), "'X' of feature group 1"),
    "NaN": (group(with_nan), "'X' of feature group 1"),
}


@pytest.mark.parametrize(("change", "message"), CASES.values(), ids=CASES)
def test_a_state_that_cannot_be_is_refused(
    tree: FullyDynamicTreeClassifier,
    change: Callable[[Arrays, Arrays], None],
    message: str,
    tmp_path: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    state, groups = tree.session_.state()
    groups = {number: {"X": group["X"].copy()} for number, group in groups.items()}
    LEARNER.check(tree._options(), FEATURES, 2, state, groups)
    change(state, groups)
    with pytest.raises(ValueError, match=message):
        LEARNER.check(tree._options(), FEATURES, 2, state, groups)
    monkeypatch.setattr(InProcessSession, "state", lambda session: (state, groups))
    tree.save(tmp_path / "state", with_examples=True)
    with pytest.raises(ModelFileError, match=rf"state: does not hold what a state needs: .*{message}.*Restore the"):
        load_model(tmp_path / "state")


def test_states_that_can_be_pass() -> None:
    """Of a warm-up, of an emptied tree, and after many updates."""
    empty = FullyDynamicTreeClassifier().partial_fit(X[:9], Y[:9])
    empty.forget(empty.row_ids_)
    used = FullyDynamicTreeClassifier(epsilon=0.1).partial_fit(X, Y)
    used.forget(used.row_ids_[::2])
    used.partial_fit(X[:50], Y[:50])
    for tree in (empty, used):
        LEARNER.check(tree._options(), tree._features(), 2, *tree.session_.state())
    report = empty.audit()
    assert (report.checked["nodes"], report.feasibility) == (1, "proven")
    assert "and the only node is feasible on the live examples" in report.reason
