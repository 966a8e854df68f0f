"""The confidence tree for river: predictions of a replay, probabilities of the other estimator, forgetting."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines import replay
from raydt import ConfidenceTreeClassifier, RiverConfidenceTreeClassifier
from raydt.errors import ConfigError, InputError, UpdateError
from raydt.examples.updates import DELETE_VALUE, INSERT
from raydt.learners.confidence_tree.coordinator import ConfidenceTreeCoordinator
from tests.oracles.confidence_tree import ConfidenceTwin
from tests.unit.test_confidence_deletions import faults, unsplit

SOON: dict[str, Any] = {"grace_period": 20, "c": 0.02}
WARMUP = 20
CLASSES = ["down", "level", "up"]  # they appear in this order, so that codes are the same for all estimators


def examples(n: int, seed: int = 0) -> tuple[list[dict[str, Any]], list[str]]:
    """Three classes; numbers and categories, some missing; another feature decides in the second half."""
    rng = np.random.default_rng(seed)
    a, b, c = np.round(rng.normal(size=n), 1), rng.integers(0, 6, n), rng.integers(0, 4, n)
    signal = np.where(np.arange(n) < n // 2, a > 0.2, b > 2)
    label = np.where(rng.random(n) < 0.1, rng.integers(0, 3, n), signal + (c == 2))
    xs = []
    for i in range(n):
        lost = rng.random(2) < 0.05
        xs.append(
            {
                "kind": None if lost[1] and i else "wxyz"[c[i]],
                "a": None if lost[0] else float(a[i]),
                "b": int(b[i]),
            }
        )
    codes = {k: code for code, k in enumerate(dict.fromkeys(label.tolist()))}
    return xs, [CLASSES[codes[k]] for k in label.tolist()]


def learned(xs: list[dict[str, Any]], ys: list[Any], **parameters: Any) -> Any:
    tree = RiverConfidenceTreeClassifier(**parameters)
    for x, y in zip(xs, ys, strict=True):
        tree.learn_one(x, y)
    return tree


def test_parameters_that_do_not_fit_are_named() -> None:
    with pytest.raises(ConfigError, match="delta applies only to confidence: theorem"):
        RiverConfidenceTreeClassifier(delta=0.1).learn_one({"a": 1}, True)


@pytest.mark.parametrize(
    "parameters",
    [{}, {"drift_period": 20}, {"leaf_prediction": "majority"}, {"leaf_prediction": "naive_bayes", "renew_bins": 30}],
    ids=str,
)
def test_predictions_and_tree_are_those_of_a_replay(parameters: dict[str, Any], tmp_path: Path) -> None:
    """Bit for bit, though each example is also predicted twice, and probabilities are asked for."""
    xs, ys = examples(1500)
    table = pa.table({key: [x[key] for x in xs] for key in sorted(xs[0])} | {"y": ys})
    pq.write_table(table, tmp_path / "rows.parquet")
    run = replay(
        {
            "source": {"kind": "parquet", "path": str(tmp_path / "rows.parquet"), "label": "y"},
            "stream": {"model": "incremental", "warmup": WARMUP},
            "learner": {"kind": "confidence_tree", **SOON, **parameters},
            "cluster": {"backend": "in_process", "batch_size": 70},
            "output": {"report": False, "predictions": True},
        },
        tmp_path / "run",
    )
    theirs = pq.read_table(tmp_path / "run" / "predictions").to_pydict()
    tree, mine = RiverConfidenceTreeClassifier(**SOON, **parameters), []
    for x, y in zip(xs, ys, strict=True):
        mine.append(tree.predict_one(x))
        shares = tree.predict_proba_one(x)
        assert not shares or max(shares, key=lambda label: shares[label]) == mine[-1]
        tree.learn_one(x, y)
    assert mine[WARMUP:] == theirs["prediction"]
    assert tree._session.digest() == run.summary["model_digest"]
    statistics = tree._session.statistics()
    assert statistics["splits"] > 4
    assert (statistics["restarted"] > 0) == ("drift_period" in parameters)


@pytest.mark.parametrize("leaf_prediction", ["adaptive", "naive_bayes", "majority"])
def test_probabilities_are_those_of_the_other_estimator(leaf_prediction: Any) -> None:
    """Also of categories never seen and values missing, of leaves that are empty, and after everything is forgotten."""
    xs, ys = examples(300)
    xs += [{"kind": "new", "a": math.nan, "b": 9}, {"kind": None, "a": 99.0, "b": -1}]
    tree = learned(xs[:WARMUP], ys[:WARMUP], **SOON, leaf_prediction=leaf_prediction)
    frame = pd.DataFrame(xs).astype({"a": float})[["a", "b", "kind"]]
    other = ConfidenceTreeClassifier(**SOON, leaf_prediction=leaf_prediction)
    other.partial_fit(frame[:WARMUP], ys[:WARMUP], classes=CLASSES)

    def compare() -> None:
        shares = other.predict_proba(frame)
        for x, row in zip(xs, shares.tolist(), strict=True):
            assert tree.predict_proba_one(x) == dict(zip(CLASSES[: len(tree._labels)], row, strict=False))

    compare()
    for begin in range(WARMUP, 300, 40):
        for i in range(begin, min(300, begin + 40)):
            tree.learn_one(xs[i], ys[i])
        other.partial_fit(frame[begin : begin + 40][: 300 - begin], ys[begin : begin + 40])
        compare()
    gone = sorted(range(300), key=lambda i: (xs[i]["b"] > 2, i))
    for begin in range(0, 300, 100):
        for i in gone[begin : begin + 100]:
            tree.forget_one(xs[i], ys[i])
        other.forget_examples(frame.iloc[gone[begin : begin + 100]], [ys[i] for i in gone[begin : begin + 100]])
        compare()
    assert tree._session.statistics()["nodes"] > 2
    assert set(tree.predict_proba_one(xs[0]).values()) == {1 / 3}


def test_a_prediction_does_not_gather_all_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    xs, ys = examples(300)
    tree = learned(xs, ys, **SOON)
    monkeypatch.setattr(ConfidenceTreeCoordinator, "gather", None)
    monkeypatch.setattr(ConfidenceTreeCoordinator, "predict_proba", None)
    assert sum(tree.predict_one(x) == y for x, y in zip(xs, ys, strict=True)) > 200


@pytest.mark.parametrize("parameters", [{}, {"drift_period": 15}], ids=str)
def test_forgetting_leaves_the_counts_of_the_examples_that_remain(parameters: dict[str, Any]) -> None:
    """Counted anew in the same structure, from the remaining examples alone; the bins made when they were."""
    options = {"grace_period": 10, "c": 0.005, "max_bins": 6, "renew_bins": 40, **parameters}
    xs, ys = examples(500)
    tree = RiverConfidenceTreeClassifier(**options)
    twin = ConfidenceTwin((False, False, True), unsplit(options))
    twin.warmup_left, twin.n_classes, seq, checked, labels = WARMUP, 3, 0, 0, list(dict.fromkeys(ys))
    kept: list[int] = []
    draws = np.random.default_rng(3)

    def event(op: int, i: int) -> None:
        nonlocal seq
        x, codes = xs[i], tree._categories["kind"]
        number = math.nan if x["a"] is None else x["a"]
        row = number, float(x["b"]), -1.0 if x["kind"] is None else float(codes[x["kind"]])
        twin.event(seq, op, i, row, labels.index(ys[i]))
        seq += 1

    for i, (x, y) in enumerate(zip(xs, ys, strict=True)):
        tree.learn_one(x, y)
        event(INSERT, i)
        kept.append(i)
        while len(kept) > WARMUP and draws.random() < (0.2 if i < 250 else 0.55):
            wanted = kept[int(draws.integers(len(kept)))]
            oldest = next(j for j in kept if xs[j] == xs[wanted] and ys[j] == ys[wanted])
            tree.forget_one(xs[wanted], ys[wanted])
            event(DELETE_VALUE, wanted)
            kept.remove(oldest)
        if i % 50 == 49:
            stream: Any = SimpleNamespace(features=tree._features(), dense=3)
            assert faults(tree._session, stream, twin) == []
            assert tree.audit().conformance == "holds"
            checked += tree._session.statistics()["splits"] > 2
    assert checked > 5
    state = tree._session.state()[0]
    assert np.sort(state["id"]).tolist() == kept
    assert len(kept) < 400


def test_the_majority_predicts_until_enough_examples_are_live() -> None:
    """Those that are forgotten before do not count."""
    xs = [{"a": float(i % 7), "b": float(i)} for i in range(600)]
    ys = [i % 7 > 3 for i in range(600)]
    for parameters, enough in (({}, 20), ({"renew_bins": 0}, 200), ({"confidence": "theorem"}, 200)):
        tree = RiverConfidenceTreeClassifier(leaf_prediction="naive_bayes", **parameters)
        for i in range(enough + 4):
            tree.learn_one(xs[i], ys[i])
            if i % 5 == 0 and i < 25:
                tree.forget_one(xs[i], ys[i])
            live = i + 1 - min(i // 5 + 1, 5)
            assert (tree.predict_one({"a": 6.0, "b": 0.0}) is True) == (live >= enough)
            assert (tree._session.coordinator.live.bins is not None) == (live >= enough)
        assert tree.audit().conformance == "holds"


def test_a_class_too_many_is_refused() -> None:
    xs, _ = examples(6)
    tree = learned(xs[:4], [0, 1, 0, 1], criterion="kearns_mansour")
    before = tree._session.digest()
    with pytest.raises(
        InputError, match=r"label 2 is of a class beyond the 2 that this learner takes\. .* or use criterion: gini"
    ):
        tree.learn_one(xs[4], 2)
    assert tree._session.digest() == before
    tree.learn_one(xs[4], 0)
    assert tree.predict_proba_one(xs[4]) == {0: 0.6, 1: 0.4}
    with pytest.raises(UpdateError, match="no live example equals this one"):
        tree.forget_one(xs[4], 2)
