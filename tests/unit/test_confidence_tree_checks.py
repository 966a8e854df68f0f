"""A state of a confidence tree whose arrays cannot be is refused by name, before a kernel follows them."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numpy as np
import pytest

from raydt import ConfidenceTreeClassifier, load_model
from raydt.errors import ModelFileError
from raydt.learners.confidence_tree.learner import LEARNER
from raydt.learners.confidence_tree.model import predictive
from raydt.sessions.session import InProcessSession
from tests.unit.confidence_cases import CASES, case

Arrays = dict[str, Any]
Change = Callable[[Arrays, dict[int, Arrays]], None]


def put(name: str, value: Any, where: Any = 0) -> Change:
    """Another value in one place of an array of the coordinator; ``where`` may depend on the state."""

    def change(state: Arrays, groups: dict[int, Arrays]) -> None:
        state[name][where(state) if callable(where) else where] = value

    return change


def add(name: str, value: Any, where: Any = 0) -> Change:
    """As :func:`put`, of a sum."""

    def change(state: Arrays, groups: dict[int, Arrays]) -> None:
        state[name][where(state) if callable(where) else where] += value

    return change


def made(name: str, how: Callable[[Any], Any]) -> Change:
    """Another array of the coordinator."""

    def change(state: Arrays, groups: dict[int, Arrays]) -> None:
        state[name] = how(state[name])

    return change


def group(name: str, how: Callable[[Any], Any], number: int = 1) -> Change:
    """Another array of a feature group."""

    def change(state: Arrays, groups: dict[int, Arrays]) -> None:
        groups[number][name] = how(groups[number][name])

    return change


def more(where: Any, by: int) -> Callable[[Any], Any]:
    def change(array: Any) -> Any:
        array = array.copy()
        array[where] += by
        return array

    return change


def leaf(state: Arrays) -> int:
    """The leaf that has counted the most."""
    return int(np.where(state["feature"] < 0, state["own"].sum(axis=1), -1).argmax())


def tried(state: Arrays) -> int:
    """The node whose trial has counted the most."""
    return int(state["trial_own"].sum(axis=1).argmax())


def drop_kinds(state: Arrays, groups: dict[int, Arrays]) -> None:
    state.pop("bins_kinds")


def drop_a_group(state: Arrays, groups: dict[int, Arrays]) -> None:
    groups.pop(2)


FORGED: dict[str, tuple[str, Change, str]] = {
    "feature": ("gini", put("feature", 3), "'feature' names a column"),
    "a loop": ("gini", put("left", 0), "'left' and 'right'"),
    "NaN threshold": ("gini", put("threshold", np.nan), "'threshold' has a split at no number"),
    "minus infinity": ("gini", put("threshold", -np.inf), "'threshold' has a split at no number"),
    "another threshold": ("gini", add("threshold", 0.01), "'threshold' is not that of the cut"),
    "a cut that is not there": ("gini", put("cut", 1000), "'cut' names a cut"),
    "a negative cut": ("gini", put("cut", -1), "'cut' names a cut"),
    "a cut of a leaf": ("gini", put("cut", 0, leaf), "'cut' has a leaf"),
    "cut of a sparse feature": ("sparse", put("cut", 1, lambda s: s["feature"] >= 3), "'cut' names a cut"),
    "negative counts": ("gini", put("counts", -1), "'counts' does not count the classes"),
    "counts of the root": ("gini", add("counts", 1, (0, 0)), "'counts' has a node whose children"),
    "another class": ("gini", made("y", lambda y: 1 - y), "'counts' has a leaf that does not match"),
    "a class that is not there": ("gini", put("y", 2), "'y' names a class"),
    "own": ("gini", add("own", 1, lambda s: (leaf(s), 0)), "'own' does not count"),
    "own of an inner node": ("gini", put("own", 1), "'own' does not count"),
    "own of a restarted tree": ("drift", add("own", 1, (0, 0)), "'own' does not count"),
    "what a trial counts": ("drift", add("trial_own", 1, lambda s: (tried(s), 0)), "'trial_own' does not count"),
    "flat trials": ("drift", made("trial_own", np.ravel), "'trial_own' is not int64"),
    "a trial in the future": ("drift", put("trial_began", 10**6 + 1, lambda s: tried(s)), "'trial_began' is no comp"),
    "a restart in the future": ("drift", put("trial_restarted", 10**6 + 1), "'trial_restarted' is no comp"),
    "negative tallies": ("drift", put("trial_better", -1), "'trial_better' is below 0"),
    "more errors than examples": ("drift", put("trial_wrong", 10**6), "'trial_wrong' is more than"),
    "more errors before": ("drift", put("trial_wrong_before", 10**6), "'trial_wrong_before' is more than"),
    "better than possible": ("drift", put("trial_better", 10**6), "'trial_better' is more than"),
    "worse than possible": ("drift", put("trial_worse", 10**6), "'trial_worse' is more than"),
    "a trial too long": ("drift", put("trial_seen", 10**6), "'trial_seen' is of a"),
    "no place of a trial": ("drift", put("trial_place", -1, lambda s: tried(s)), "'trial_place' is not of the nodes"),
    "compared in the future": ("drift", put("compared", 10**6), "'compared' is not among"),
    "flat own": ("gini", made("own", np.ravel), "'own' does not have"),
    "own of fewer classes": ("gini", made("own", lambda a: a[:, :1]), "'own' does not count the classes"),
    "created": ("gini", add("created", 2, leaf), "'created' is not when"),
    "created of the root": ("gini", put("created", 1), "'created' is not when"),
    "since": ("gini", put("since", 15, leaf), "'since' is not below"),
    "negative since": ("gini", put("since", -1, leaf), "'since' is not below"),
    "since of an inner node": ("gini", put("since", 1), "'since' is of a node that counts nothing"),
    "a place twice": ("gini", put("place", 0, lambda s: s["feature"] < 0), "'place' has the same number"),
    "no place": ("gini", put("place", -1, leaf), "'place' is not of the nodes that count"),
    "a place of an inner node": ("gini", put("place", 999), "'place' is not of the nodes that count"),
    "a place far away": ("gini", put("place", 2**31 - 1, leaf), "'totals' lacks a place"),
    "a place far away of an empty leaf": (
        "gini", lambda s, g: (put("place", 10**6, s["own"].sum(axis=1).tolist().index(0))(s, g)), "'place' is",
    ),
    "rows in an inner node": ("gini", put("leaf", 0), "'leaf' names a node that is not a leaf"),
    "equal born": ("gini", put("born", 0, slice(0, 2)), "'born' has the same number"),
    "born in the future": ("gini", put("born", 10**6), "'born' names an update"),
    "another born": ("gini", put("born", 1, lambda s: int(s["born"].argmax())), "'own' does not count"),
    "equal ids": ("gini", made("id", np.zeros_like), "'id' has the same number"),
    "negative t": ("gini", put("t", -1), "'t' is not one number"),
    "t": ("gini", put("t", 10**6), "'t' counts more examples"),
    "t before a split": ("gini", put("t", 1), "'split_t' is not from 1"),
    "one class": ("gini", put("classes", 1), "'classes' is not the number"),
    "three classes": ("gini", put("classes", 3), "'classes' is not the number"),
    "another warm-up": ("gini", put("warmup", 10**6), "'bins_kinds' is there before"),
    "two sequences": ("gini", made("seq", lambda a: np.array([1, 2])), "'seq' is not one number"),
    "no bins": ("gini", drop_kinds, "'bins_kinds' is there before"),
    "kinds": ("gini", put("bins_kinds", 1), "'bins_kinds' does not have the kinds"),
    "boundaries": ("gini", made("bins_values", lambda a: a[::-1].copy()), "'bins_values' does not ascend"),
    "starts": ("gini", put("bins_starts", 10**9, 1), "'bins_starts' does not ascend"),
    "ranks": ("gini", put("bins_ranks", 99, -1), "'bins_ranks' does not number"),
    "seen": ("gini", put("bins_seen", 2), "'bins_seen' is not of 0 and 1"),
    "bins of a group": ("gini", group("bins_values", more(0, -1)), "'bins_values' of a feature group"),
    "m": ("gini", add("split_m", 1), "'split_m' does not sum up"),
    "left": ("gini", put("split_left", 10**6), "'split_left' has a side"),
    "own of a split": ("gini", add("split_own", 1), "'split_m' does not sum up"),
    "stamp": ("gini", add("split_stamp", 1), "'split_stamp' names an insertion"),
    "another stamp": ("gini", add("split_stamp", 2), "'created' is not when"),
    "t of a split": ("gini", put("split_t", 0), "'split_t' is not from 1"),
    "classes of a split": ("gini", put("split_classes", 9), "'split_classes' is not from 2"),
    "rival": ("gini", put("split_rival_feature", 3), "'split_rival_feature' names a feature"),
    "cut of the rival": ("gini", put("split_rival_cut", 10**6), "'split_rival_cut' names a cut"),
    "reason": ("gini", put("split_reason", 3), "'split_reason' is none"),
    **{name: ("gini", put(f"split_{name}", np.nan), f"'split_{name}' has a score")
       for name in ("phi", "rival_phi", "impurity", "epsilon")},
    "a record less": ("gini", made("split_phi", lambda a: a[1:]), "'split_phi' is not float64"),
    "a group less": ("gini", drop_a_group, "'X' is not that of all feature groups"),
    "a row less": ("gini", group("X", lambda a: a[1:]), "'X' is not float64"),
    "infinity": ("gini", group("X", lambda a: np.where(a == a[0, 0], np.inf, a)), "'X' of feature group 1"),
    "NaN of a category": ("gini", group("X", lambda a: a * np.nan, 2), "'X' of feature group 2"),
    "totals": ("gini", group("totals", more((0, 0), 1)), "'totals' is not what the nodes"),
    "flat totals": ("gini", group("totals", np.ravel), "'totals' is not int64 by place"),
    "more classes": ("gini", group("totals", lambda a: np.pad(a, ((0, 0), (0, 1)))), "'totals' does not count"),
    "fewer places": ("gini", group("totals", lambda a: a[:1]), "'totals' lacks|'bins' is not int32"),
    "bins": (
        "gini",
        lambda s, g: group("bins", more((s["place"][leaf(s)], 0, 0), 1))(s, g),
        "'bins' does not count the rows",
    ),
    "negative bins": ("gini", group("bins", more((0, 0, 0), -(10**6))), "'bins' does not count the rows"),
    "bins of another type": ("gini", group("bins", lambda a: a.astype(np.int64)), "'bins' is not int32"),
    "fewer bins": ("gini", group("bins", lambda a: a[:, 1:]), "'bins' is not int32"),
    "no sparse rows": ("sparse", group("sparse_lengths", lambda a: a + 1), "sparse_lengths"),
    **{f"seen {name}": ("sparse", group(name, more(0, 1)), f"'{name}' is not that of the rows")
       for name in ("place", "feature", "n1", "c11")},
    "a counter less": ("sparse", group("n1", lambda a: a[1:]), "'n1' is not int32"),
    "who was right": ("gini", put("was_right", 4), "'was_right' is not from 0 to 3"),
    "nobody was right": ("gini", made("was_right", lambda a: a[1:]), "'was_right' is not uint8"),
    "renewed in the future": ("renewed", put("renewed", 10**6), "'renewed' is more than"),
    "more lived": ("renewed", put("lived", 10**6), "'lived' is more than"),
    "a cut of no bins": ("renewed", put("cut", 2**16), "'cut' names a cut"),
    "a cut of a rival of no bins": ("renewed", put("split_rival_cut", -2), "'split_rival_cut' names a cut"),
    "totals in a warm-up": ("warming", lambda s, g: g[0].update(totals=np.zeros((1, 2))), "'totals' is there before"),
    "since in a warm-up": ("warming", put("since", 1), "'since' is of a node that counts nothing"),
    "own in a warm-up": ("warming", add("own", 1), "'own' does not count"),
}  # fmt: skip


@pytest.mark.parametrize(("name", "change", "message"), FORGED.values(), ids=FORGED)
def test_a_state_that_cannot_be_is_refused(name: str, change: Change, message: str) -> None:
    options, features, classes, state, groups, _ = case(name)
    state, groups = deepcopy(state), deepcopy(groups)
    change(state, groups)
    with pytest.raises(ValueError, match=message):
        LEARNER.check(options, features, classes, state, groups)


def cell(name: str, value: Any) -> Callable[[Arrays], None]:
    def change(model: Arrays) -> None:
        model[name] = model[name].copy()
        model[name].reshape(-1)[0] = value

    return change


FORGED_MODELS: dict[str, tuple[Callable[[Arrays], None], str]] = {
    "an inner node": (cell("naive_leaf", 0), "'naive_leaf' names an inner node"),
    "a leaf that is not there": (cell("naive_leaf", -1), "'naive_leaf' names"),
    "a place": (cell("naive_cell_leaf", 10**6), "'naive_cell_leaf' is out of range"),
    "a feature": (cell("naive_cell_feature", 99), "'naive_cell_feature' is out of range"),
    "a group": (cell("naive_cell_group", 10**6), "'naive_cell_group' is out of range"),
    "a class": (cell("naive_cell_class", 9), "'naive_cell_class' is out of range"),
    "a logarithm": (cell("naive_cell_log", -1), "'naive_cell_log' is no logarithm"),
    "a large logarithm": (cell("naive_prior", 2**40), "'naive_prior' is no logarithm"),
    "bins": (cell("bins_starts", 5), "'bins_starts' does not ascend"),
    "a table less": (lambda m: m.update(naive_prior=m["naive_prior"][1:]), "'naive_prior' is not int64"),
    "an order": (lambda m: m.update(naive_cell_log=m["naive_cell_log"][1:]), "is not int"),
}


@pytest.mark.parametrize(("change", "message"), FORGED_MODELS.values(), ids=FORGED_MODELS)
def test_a_model_that_cannot_be_is_refused(change: Callable[[Arrays], None], message: str) -> None:
    options, features, classes, state, groups, _ = case("renewed sparse")
    session = InProcessSession(LEARNER, options, features, 2)
    session.restore(state, groups)
    model = session.model()
    LEARNER.check(options, features, classes, model, None)
    change(model)
    with pytest.raises(ValueError, match=message):
        LEARNER.check(options, features, classes, model, None)


@pytest.mark.parametrize("name", CASES)
def test_states_and_models_that_can_be_pass_and_go_on(name: str) -> None:
    options, features, classes, state, groups, _ = case(name)
    LEARNER.check(options, features, classes, state, groups)
    LEARNER.check(options, features, classes, predictive(state), None)
    session = InProcessSession(LEARNER, options, features, 3)
    session.restore(state, groups)
    again, parts = session.state()
    LEARNER.check(options, features, classes, again, parts)
    assert all(np.array_equal(again[key], state[key], equal_nan=True) for key in state)


def test_every_byte_of_a_random_kind_is_refused_or_harmless() -> None:
    """Random whole numbers anywhere: refused with an error that is no accident, or a state that can go on."""
    rng = np.random.default_rng(3)
    refused = 0
    for name in ("gini", "drift sparse", "sparse"):
        options, features, classes, state, groups, _ = case(name)
        for _ in range(150):
            arrays, parts = dict(state), {g: dict(part) for g, part in groups.items()}
            target = arrays if rng.random() < 0.6 else parts[int(rng.integers(len(parts)))]
            key = sorted(target)[int(rng.integers(len(target)))]
            array = target[key].copy()
            if not array.size:
                continue
            value = rng.choice([-(2**31), -1, 0, 1, 7, 2**15, 2**31 - 1])
            array.reshape(-1)[int(rng.integers(array.size))] = np.array(value).astype(array.dtype)
            target[key] = array
            try:
                LEARNER.check(options, features, classes, arrays, parts)
            except (KeyError, ValueError):
                refused += 1
                continue
            session = InProcessSession(LEARNER, options, features, 2)
            session.restore(arrays, parts)
            session.digest()
    assert refused > 200


def test_a_forged_file_is_refused(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    X = rng.random((200, 2))
    tree = ConfidenceTreeClassifier(grace_period=20, c=0.02, renew_bins=0).fit(X, X[:, 0] > 0.5)
    state, groups = tree.session_.state()
    assert len(state["feature"]) > 1
    state["threshold"] = state["threshold"] + 1
    monkeypatch.setattr(InProcessSession, "state", lambda session: (state, groups))
    tree.save(tmp_path / "state", with_examples=True)
    with pytest.raises(ModelFileError, match="'threshold' is not that of the cut"):
        load_model(tmp_path / "state")
