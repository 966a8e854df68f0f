"""The adapters for river: the same tree as of the other estimators, one example at a time; river's own checks."""

from __future__ import annotations

import ast
import math
import subprocess
import sys
import textwrap
import threading
from collections import Counter, OrderedDict, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import raydt
from raydt import RiverTreeClassifier
from raydt.errors import ConfigError, InputError
from raydt.estimators.river import RiverClassifier
from tests import volume
from tests.refusals import refused

PUBLIC = [getattr(raydt, name) for name in raydt.__all__]
ADAPTERS = [each for each in PUBLIC if isinstance(each, type) and issubclass(each, RiverClassifier)]
#: Adapters that river's own checks take longest with: they are left to the night, as all adapters have one base.
SLOW = (raydt.RiverForestClassifier, raydt.RiverGradientBoostingClassifier)
OPTIONS = {"epsilon": 0.3, "alpha": 0.0, "beta": 0.0, "max_depth": 6, "smoothing": 5.0}


def examples(n: int, seed: int = 0) -> tuple[list[dict[str, Any]], list[bool]]:
    rng = np.random.default_rng(seed)
    a, b = rng.integers(0, 9, n), rng.integers(0, 4, n)
    y = ((a > 4) ^ (b == 2) ^ (rng.random(n) < 0.1)).tolist()
    return [{"b": "wxyz"[j], "a": i / 2} for i, j in zip(a.tolist(), b.tolist(), strict=True)], y


def arrays(tree: Any) -> dict[str, list[Any]]:
    session = tree._session if isinstance(tree, RiverTreeClassifier) else tree.session_
    return {name: array.tolist() for name, array in session.model().items()}


def test_labels_are_what_they_were() -> None:
    for labels in ([True, False], ["up", "down"], [7, 3], [np.bool_(True), np.bool_(False)]):
        tree = RiverTreeClassifier()
        for i, y in enumerate(labels * 5):
            tree.learn_one({"a": i % 2}, y)
        assert [tree.predict_one({"a": i}) for i in (0, 1)] == labels
        assert tree.predict_proba_one({"a": 0}) == {labels[0]: 1.0, labels[1]: 0.0}
        assert not isinstance(tree.predict_one({"a": 0}), np.generic)


def test_a_class_too_many_is_refused_before_it_is_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raydt.estimators.river.MOST_CLASSES", 3)
    tree = RiverTreeClassifier()
    for i in range(6):
        tree.learn_one({"a": i}, i % 3)
    before = arrays(tree)
    with refused("estimators.class_beyond", InputError, label=3, most=3):
        tree.learn_one({"a": 9}, 3)
    assert arrays(tree) == before


def test_the_order_of_keys_does_not_matter() -> None:
    xs, ys = examples(120)
    tree, turned = RiverTreeClassifier(**OPTIONS), RiverTreeClassifier(**OPTIONS)
    for i, (x, y) in enumerate(zip(xs, ys, strict=True)):
        tree.learn_one(x, y)
        turned.learn_one(dict(sorted(x.items(), reverse=i % 2 == 0)), y)
    assert arrays(tree) == arrays(turned)


def test_numbers_may_be_categories_and_keys_need_not_be_text() -> None:
    tree = RiverTreeClassifier(categorical_features=(1,))
    for i in range(40):
        tree.learn_one({1: i % 4, 0: -0.0}, int(i % 4 == 2))
    assert len(arrays(tree)["feature"]) == 3
    assert [tree.predict_one({0: 0, 1: value}) for value in (1, 2, 3, 99)] == [0, 1, 0, 0]
    with refused("estimators.unknown_name", InputError, name=5, rows="the first example"):
        RiverTreeClassifier(categorical_features=(5,)).learn_one({1: 2}, 0)


@pytest.mark.parametrize(
    ("x", "y", "name", "parameters"),
    [
        ({"a": 1.0}, 0, "missing_key", {"column": "b"}),
        ({"a": 1.0, "b": "w", "c": 2}, 0, "new_key", {"column": "c"}),
        ({"a": math.inf, "b": "w"}, 0, "not_finite", {"column": "a", "value": math.inf}),
        ({"a": 10**400, "b": "w"}, 0, "not_finite", {"column": "a", "value": 10**400}),
        ({"a": 2**53 + 1, "b": "w"}, 0, "inexact", {"column": "a", "value": 2**53 + 1}),
        ({"a": np.int64(-(2**53) - 1), "b": "w"}, 0, "inexact", {"column": "a", "value": -(2**53) - 1}),
        ({"a": "1", "b": "w"}, 0, "other_value", {"column": "a", "value": "1", "was": "numbers"}),
        ({"a": 1.0, "b": 3}, 0, "other_value", {"column": "b", "value": 3, "was": "text"}),
        ({"a": 1.0, "b": "new"}, None, "no_label", {}),
        ({"a": 1.0, "b": "new"}, math.nan, "no_label", {}),
        ({"a": 1.0, "b": "new"}, "text", "mixed_labels", {"first": 0, "label": "text"}),
        ({}, 0, "missing_key", {"column": "a"}),
    ],
)
def test_a_bad_example_has_no_effect(x: dict[str, Any], y: Any, name: str, parameters: dict[str, Any]) -> None:
    tree = RiverTreeClassifier()
    for i in range(8):
        tree.learn_one({"a": i, "b": "wx"[i % 2]}, i % 2)
    before = arrays(tree)
    with refused(f"estimators.{name}", InputError, **parameters):
        tree.learn_one(x, y)
    assert arrays(tree) == before
    with refused(f"estimators.{name}", InputError, **parameters):
        tree.forget_one(x, y)
    assert arrays(tree) == before
    assert tree._categories == {"b": {"w": 0, "x": 1}}


def test_a_bad_first_example_decides_nothing() -> None:
    tree = RiverTreeClassifier()
    for x, name, column in (
        ({}, "no_features", None),
        ({"a": math.inf}, "not_finite", "a"),
    ):
        with refused(f"estimators.{name}", InputError, column=column):
            tree.learn_one(x, 1)
        assert tree.predict_one({"a": 1}) is None
    tree.learn_one({"c": 1}, 1)
    assert tree.predict_one({"c": 2}) == 1


def test_calls_take_turns() -> None:
    """A reader waits for a change of another thread to be complete."""
    tree = RiverTreeClassifier()
    for i in range(10):
        tree.learn_one({"a": i}, i > 4)
    read: list[Any] = []
    readers = [
        threading.Thread(target=lambda call=call: read.append(call({"a": 9})))
        for call in (tree.predict_one, tree.predict_proba_one)
    ]
    with tree._lock:  # as a call has it that changes the tree
        for reader in readers:
            reader.start()
        readers[0].join(0.2)
        assert not read
    for reader in readers:
        reader.join(10)
    assert len(read) == 2


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_numbers_of_any_kind_are_the_same_example(adapter: Any) -> None:
    """Truth values, NumPy's numbers and integers; and mappings that are no dictionaries, or make up what they lack."""
    tree, plain = adapter(), adapter()
    for i in range(30):
        a, b = i % 7, i % 2
        tree.learn_one([{"a": a, "b": bool(b)}, {"a": np.float32(a), "b": np.int8(b)}, OrderedDict(b=b, a=a)][i % 3], b)
        plain.learn_one({"a": float(a), "b": float(b)}, b)
    assert tree._session.digest() == plain._session.digest()
    tree.forget_one({"b": np.True_, "a": 1}, 1)
    plain.forget_one({"a": 1.0, "b": 1.0}, 1)
    assert tree._session.digest() == plain._session.digest()
    for lacking in (Counter(a=1, c=1), defaultdict(float, a=1.0)):
        with refused("estimators.missing_key", InputError, column="b"):
            tree.learn_one(lacking, 1)
    assert tree._session.digest() == plain._session.digest()


def test_a_trimmed_tree_takes_single_rows() -> None:
    """The models behind river's adapters are updated without a batch, by arguments that a trim lets go of."""
    xs, ys = examples(60)
    for adapter in (raydt.RiverConfidenceTreeClassifier, RiverTreeClassifier):
        plain, trimmed = adapter(), adapter()
        for x, y in zip(xs, ys, strict=True):
            for one in (plain, trimmed):
                one.learn_one(x, y)
            trimmed._session.trim()
            assert trimmed.predict_one(x) == plain.predict_one(x)
        assert trimmed._session.digest() == plain._session.digest()


def test_missing_values_are_learned_and_forgotten() -> None:
    tree = RiverTreeClassifier()
    for i in range(40):
        tree.learn_one({"a": None if i % 4 == 0 else float(i % 4), "b": None if i % 8 == 4 else "w"}, int(i % 4 == 0))
    assert [tree.predict_one({"a": a, "b": "w"}) for a in (math.nan, None, 1.0, 3.0)] == [1, 1, 0, 0]
    tree.forget_one({"a": math.nan, "b": "w"}, 1)
    assert tree.audit().ok


def test_a_string_is_no_list_of_features() -> None:
    with refused("estimators.string", ConfigError, given="ab"):
        RiverTreeClassifier(categorical_features="ab").learn_one({"a": 1, "b": 2}, 0)


def test_it_works_without_river() -> None:
    script = """
        import sys
        sys.modules["river"] = None
        from raydt import RiverTreeClassifier
        tree = RiverTreeClassifier()
        for i in range(10):
            tree.learn_one({"a": i}, i > 4)
        tree.forget_one({"a": 9}, True)
        assert (tree.predict_one({"a": 8}), tree.predict_one({"a": 1})) == (True, False)
        assert not any("river" in kind.__module__.split(".")[:1] for kind in RiverTreeClassifier.__mro__)
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=True, timeout=200)


# ---------------------------------------------------------------------- with river


def test_every_adapter_is_public_and_found() -> None:
    defined = [
        (path.stem, node.name)
        for path in Path(raydt.__file__).parent.glob("estimators/*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef) and "RiverClassifier" in map(ast.unparse, node.bases)
    ]
    assert sorted((each.__module__.rpartition(".")[2], each.__name__) for each in ADAPTERS) == sorted(defined)
    assert len(ADAPTERS) >= 3


@pytest.mark.share
@pytest.mark.filterwarnings("default")  # what river and its data sets warn of is not ours
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "adapter", [pytest.param(each, marks=[pytest.mark.nightly] if each in SLOW else []) for each in ADAPTERS]
)
def test_checks_of_river(adapter: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    checks = pytest.importorskip("river.checks", reason="river is not installed")
    tree = adapter()
    with monkeypatch.context() as patch:
        if not volume.nightly:  # this one takes longer than all others; by day ``tests/nets/test_memory.py`` must do
            skips = tree._unit_test_skips() | {"check_bounded_memory_growth"}
            patch.setattr(adapter, "_unit_test_skips", lambda tree: skips)
        checks.check_estimator(tree)
    # Features that come and go are refused, and these checks want them.
    names = {check.__name__ for check in checks.yield_checks(tree)}
    assert tree._unit_test_skips() <= names
    assert len(names) > 20


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("adapter", ADAPTERS)
def test_they_take_part_in_progressive_validation(adapter: Any) -> None:
    pytest.importorskip("river", reason="river is not installed")
    from river import datasets, evaluate, metrics

    score = evaluate.progressive_val_score(datasets.Phishing(), adapter().clone(), metrics.Accuracy())
    assert score.get() > 0.85
