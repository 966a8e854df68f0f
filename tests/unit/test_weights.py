"""Weights of rows and classes, counts of them, and the trees that count them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import sparse

import raydt
from pipelines import apply_changes, replay, update
from pipelines.auditing import audit_run, audit_state
from pipelines.config import load_config
from pipelines.validation import look_at
from raydt import (
    ConfidenceTreeClassifier,
    ExactForestClassifier,
    ExactForestRegressor,
    FullyDynamicTreeClassifier,
    FullyDynamicTreeRegressor,
    KeyedClassifier,
    KeyedRegressor,
)
from raydt import OnlineGradientBoostingClassifier as Boosting
from raydt import OnlineGradientBoostingRegressor as Regression
from raydt.errors import ConfigError, InputError
from raydt.estimators import estimator_of
from raydt.estimators.base import Regressor
from raydt.examples.store import ExampleStore
from raydt.examples.updates import (
    INSERT,
    UNIT,
    balanced,
    by_label,
    fixed,
    of_labels,
    out_of_range,
    products,
    sums_by_class,
    unknown_labels,
)
from raydt.learners.base import Traits
from raydt.learners.batch_coordinator import ClassWeight
from raydt.learners.forest import Forest
from raydt.messages import text as plain
from raydt.sources.divided import open_source
from raydt.sources.options import ParquetFiles
from tests.cases import Trial, first_cases
from tests.nets.test_interrupts import Data
from tests.refusals import refused, warned

# -- weights ---------------------------------------------------------------------------------------------------------
# Weights of rows and of classes: where they come from, where they go, and what is refused.

DRAW = np.random.default_rng(5)
X = DRAW.integers(0, 6, (120, 3)).astype(np.float64)
Y = X[:, 0] + DRAW.integers(0, 3, 120) > 5
W = DRAW.uniform(0.1, 4.0, 120)
SMALL: dict[str, Any] = {"max_iter": 4, "max_leaf_nodes": 5, "max_bins": 16, "n_jobs": 1}


# ---------------------------------------------------------------- numbers


def test_fixed_point() -> None:
    assert fixed(np.array([1.0, 0.5, 2.0**-16, 0.0, 65535.0])).tolist() == [UNIT, UNIT // 2, 1, 0, 65535 * UNIT]
    given = np.array([0.0, 1.0, 2.0**-17, -1.0, np.nan, np.inf, 65536.0])
    assert out_of_range(given).tolist() == [False, False, True, True, True, True, True]
    assert products(3 * UNIT, np.array([UNIT // 2, 10 * UNIT])).tolist() == [3 * UNIT // 2, 30 * UNIT]
    assert products(fixed(np.array([60000.0])), np.array([2 * UNIT])).tolist() == [2**32 - 1]


def test_balanced_factors_are_those_of_scikit_learn() -> None:
    from sklearn.utils.class_weight import compute_class_weight

    y = np.array([0] * 90 + [2] * 7 + [3] * 3, np.int32)
    expected = compute_class_weight("balanced", classes=np.array([0, 2, 3]), y=y)
    found = balanced(sums_by_class(None, y, 4))
    np.testing.assert_allclose(found[[0, 2, 3]] / UNIT, expected, atol=2.0**-16)
    assert found[1] == UNIT
    twice = np.repeat(y, 2), np.full(100, 2 * UNIT, np.uint32)
    assert balanced(sums_by_class(None, twice[0], 4)).tolist() == balanced(sums_by_class(twice[1], y, 4)).tolist()


def test_labels_are_compared_as_text() -> None:
    weights = by_label({1: 2.0, "no": 0.5, 4.0: 5}) + by_label({True: 3})
    assert dict(weights) == {"1": 2.0, "true": 3.0, "no": 0.5, "4": 5.0}
    assert (of_labels(weights, [1, True, "no", "4", "other"]) / UNIT).tolist() == [2.0, 3.0, 0.5, 5.0, 1.0]


# ---------------------------------------------------------------- estimators


@pytest.mark.parametrize(
    "make",
    [partial(one, **more) for one, more in ((Boosting, SMALL), (Regression, SMALL), (ConfidenceTreeClassifier, {}))],
)
def test_rows_of_weight_0_make_no_bins(make: Any) -> None:
    y = X[:, 1] if make.func is Regression else Y
    far = np.concatenate([X, X[:40] + 100.0, np.full((5, 3), np.nan)])
    weights = np.repeat([1.0, 0.0], [120, 45])
    plain, more = make().fit(X, y), make().fit(far, np.concatenate([y, y[:45]]), sample_weight=weights)
    of_plain, of_more = (one.session_.state()[0] for one in (plain, more))
    bins = [name for name in of_plain if name.startswith("bins_")]
    assert bins
    assert all(np.array_equal(of_plain[name], of_more[name]) for name in bins)
    assert more.audit().failures == []


def test_weights_of_one_leave_no_array() -> None:
    for make in (partial(Boosting, **SMALL), partial(Regression, **SMALL), number_tree, number_forest):
        y = Y if isinstance(make(), Boosting) else X[:, 1]
        plain, ones = make().fit(X, y), make().fit(X, y, sample_weight=np.ones(120))
        assert ones.digest() == plain.digest()
        assert not ones.session_.coordinator.store.uneven
    pairs = Boosting(**SMALL, class_weight={True: 1.0}).fit(X, Y)
    assert pairs.digest() == Boosting(**SMALL).fit(X, Y).digest()


def test_no_weight_remains_once_all_rows_of_other_weights_are_deleted() -> None:
    """A model is trained again by each call, so that it depends on the live rows alone."""
    plain, weighted = (Boosting(**SMALL, retrain="always").fit(X[:80], Y[:80]) for _ in range(2))
    plain.partial_fit(X[80:], Y[80:])
    weighted.partial_fit(X[80:], Y[80:], sample_weight=W[80:])
    assert weighted.digest() != plain.digest()
    assert "weight" in weighted.session_.state()[0]
    for model in (plain, weighted):
        model.forget(range(80, 120))
    assert "weight" not in weighted.session_.state()[0]
    assert weighted.digest() == plain.digest()


def test_weights_of_classes_multiply_those_of_rows() -> None:
    both = Boosting(**SMALL, class_weight={True: 3.0}).fit(X, Y, W)
    rows = Boosting(**SMALL).fit(X, Y, fixed(W) / UNIT * np.where(Y, 3.0, 1.0))
    assert both.digest() == rows.digest()
    assert both.predict(X).sum() > Boosting(**SMALL).fit(X, Y, W).predict(X).sum()


def test_a_weight_of_a_class_that_does_not_occur() -> None:
    with refused("estimators.unknown_class_weight", ConfigError, labels=["maybe"]):
        Boosting(**SMALL, class_weight={"maybe": 3.0}).fit(X, Y)


def test_balanced_weights_are_found_once() -> None:
    model = Boosting(**SMALL, class_weight="balanced", retrain="always").fit(X[:60], Y[:60])
    before = model.session_.state()[0]["class_weight"].tolist()
    model.partial_fit(X[60:], np.ones(60, bool))
    model.partial_fit(X[:1], np.array([True]))
    assert model.session_.state()[0]["class_weight"].tolist() == before
    assert model.audit().failures == []
    assert model.fit(X[60:], Y[60:]).session_.state()[0]["class_weight"].tolist() != before


def test_a_weight_of_zero_counts_like_no_row() -> None:
    weights = np.where(np.arange(120) % 3, 1.0, 0.0)
    zeros = Boosting(**SMALL).fit(X, Y, weights)
    fewer = Boosting(**SMALL).fit(X[weights > 0], Y[weights > 0])
    np.testing.assert_array_equal(zeros.predict_proba(X), fewer.predict_proba(X))
    for make, y in ((Boosting, Y), (Regression, X[:, 1])):
        assert make(**SMALL).partial_fit(X, y, sample_weight=np.zeros(120)).audit().failures == []
        with refused("estimators.zero_weights", ValueError):
            make(**SMALL).fit(X, y, np.zeros(120))


@pytest.mark.parametrize(
    ("weights", "id", "error"),
    [
        (np.ones(3), "estimators.weight_shape", ValueError),
        ([], "estimators.weight_shape", ValueError),
        (["a"] * 120, "estimators.weight_type", ValueError),
        ([10**400] * 120, "estimators.weight_type", ValueError),
        (np.full(120, -1.0), "estimators.weight_range", InputError),
        (np.full(120, np.nan), "estimators.weight_range", InputError),
        (np.full(120, 70000.0), "estimators.weight_range", InputError),
    ],
)
def test_weights_that_cannot_be_used(weights: Any, id: str, error: type[Exception]) -> None:
    model = Boosting(**SMALL).fit(X, Y)
    before = model.digest()
    with refused(id, error):
        model.partial_fit(X, Y, sample_weight=weights)
    with refused(id, error):
        model.fit(X, Y, sample_weight=weights)
    assert model.digest() == before


def test_a_sum_of_weights_that_is_too_large() -> None:
    with refused("examples.heavy", InputError):
        Boosting(**SMALL).fit(np.repeat(X, 600, axis=0), np.repeat(Y, 600), np.full(72000, 65535.0))


@pytest.mark.parametrize("given", [{}, {"a": "b"}, {"a": -1}, "other", {1: 1, "1": 2}, {"a": True}, {"a": 10**400}, 3])
def test_weights_of_classes_that_cannot_be_used(given: Any) -> None:
    with pytest.raises(ConfigError):
        Boosting(class_weight=given).fit(X, Y)


@pytest.mark.parametrize("labels", [np.array([False, True]), np.array([1, 2]), np.array(["a", "b"])])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
def test_weights_of_classes_may_be_those_of_numpy(labels: Any, dtype: Any) -> None:
    """As ``dict(zip(classes, compute_class_weight(...)))`` gives them."""
    given = dict(zip(labels, np.array([2, 3], dtype=dtype), strict=True))
    plain = dict(zip(labels.tolist(), [2.0, 3.0], strict=True))
    options = Boosting(class_weight=given)._options()
    assert options.weights_by_label == Boosting(class_weight=plain)._options().weights_by_label
    assert unknown_labels(options.weights_by_label, labels.tolist()) == []


def test_a_learner_without_weights_refuses_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of ours take weights; one of another package may not."""
    own = Forest.traits

    def traits(self: Forest, options: Any) -> Traits:
        found = own(self, options)
        return replace(found, reading=replace(found.reading, weights=False))

    monkeypatch.setattr(Forest, "traits", traits)
    forest = raydt.ExactForestRegressor()
    takers = "fudyadt with criterion: squared_error or gbdt with objective: squared_error"  # whose labels are numbers
    with refused("learners.no_weights", ConfigError, what="sample_weight", takers=takers):
        forest.fit(X, X[:, 1], sample_weight=W)
    with pytest.raises(TypeError):
        forest.fit(X, Y, other=1)
    pq.write_table(pa.table({"a": X[:, 0], "w": W, "y": Y}), tmp_path / "rows.parquet")
    config = {"source": {"kind": "parquet", "path": str(tmp_path / "rows.parquet"), "weight": "w"}}
    learner: dict[str, Any] = {"kind": "forest", "criterion": "squared_error"}
    with refused("sources.no_weights", ConfigError, takers=takers):
        replay({**config, "learner": learner}, tmp_path / "run")
    with pytest.raises(ConfigError, match="class_weight"):
        load_config({"source": config["source"], "learner": {**learner, "class_weight": "balanced"}})
    assert "class_weight" in ClassWeight.model_fields


def test_a_weight_of_a_label_that_no_row_has_is_doubtful(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": X[:, 0], "y": np.where(Y, "yes", "no")}), tmp_path / "rows.parquet")
    source = {"kind": "parquet", "path": str(tmp_path / "rows.parquet")}
    for weights, expected in (({"yes": 2.0}, []), ({"yes": 2.0, "Yes": 3.0}, ["configs.unknown_class_weight"])):
        learner = {"kind": "gbdt", "class_weight": weights}
        config = load_config({"source": source, "stream": {"model": "incremental", "warmup": 20}, "learner": learner})
        assert [one.id for one in look_at(config)["warnings"]] == expected


# ---------------------------------------------------------------- sources and runs


@pytest.mark.parametrize(("value", "id"), [(None, "rows.no_weight"), (-1.0, "rows.weight_range")])
def test_a_bad_weight_is_a_bad_row(value: Any, id: str, tmp_path: Path) -> None:
    from raydt.examples.updates import Reading

    pq.write_table(pa.table({"a": [1.0, 2.0], "w": [1.0, value], "y": [0, 1]}), tmp_path / "rows.parquet")
    source = open_source(ParquetFiles(path="rows.parquet", weight="w"), tmp_path, Reading(weights=True))
    (rows,) = source.rows()
    assert source.features.names == ("a",)
    assert rows.weight is not None
    assert rows.weight.tolist() == [UNIT, UNIT]
    assert list(rows.bad) == [1]
    with refused(id, InputError, column="w", row=1):
        raise rows.bad[1]


def test_a_run_reads_weights_updates_and_audits(tmp_path: Path) -> None:
    columns = {"id": np.arange(120), "a": X[:, 0], "b": X[:, 1], "w": np.round(W, 2), "y": np.where(Y, "yes", "no")}
    pq.write_table(pa.table({name: column[:100] for name, column in columns.items()}), tmp_path / "rows.parquet")
    pq.write_table(pa.table({name: column[100:] for name, column in columns.items()}), tmp_path / "more.parquet")
    pq.write_table(pa.table({"id": [70, 71]}), tmp_path / "gone.parquet")
    options = {name: value for name, value in SMALL.items() if name != "n_jobs"}
    digests = set()
    for shards in (1, 2):
        config = {
            "source": {"kind": "parquet", "path": str(tmp_path / "rows.parquet"), "id": "id", "weight": "w"},
            "stream": {"model": "sliding_window", "window": 60, "warmup": 40},
            "learner": {"kind": "gbdt", "class_weight": {"yes": 2.5}, **options},
            "cluster": {"backend": "in_process", "shards": shards, "memory_limit": 0 if shards > 1 else None},
        }
        run = tmp_path / f"run{shards}"
        digests.add(replay(config, run).summary["model_digest"])
        assert audit_run(run).failures == []
    assert len(digests) == 1
    update(tmp_path / "run1", delete=tmp_path / "gone.parquet", insert=tmp_path / "more.parquet", out=tmp_path / "next")
    assert audit_state(tmp_path / "next").failures == []
    state = raydt.load_model(tmp_path / "next").session_.state()[0]
    inserted = state["weight"][np.isin(state["id"], columns["id"][100:])]
    assert inserted.tolist() == products(fixed(columns["w"][100:]), np.where(Y[100:], 5 * UNIT // 2, UNIT)).tolist()


LITTLE = [trial for trial in first_cases() if trial.learner.traits(trial.learner.Options()).least_weight[1]]


@pytest.mark.parametrize("trial", LITTLE, ids=lambda trial: trial.learner.kind)
def test_weights_that_sum_to_less_than_the_least_that_splits_are_warned_of(trial: Trial) -> None:
    """By the sum over the rows so far, while it is too small; whatever the learner, and by key for the key."""
    data = Data(trial)
    kind: Any = estimator_of(trial.options)
    option = trial.learner.traits(trial.learner.Options()).least_weight[0]
    model = kind(**{option: 30})
    (X, y), (more, of_more) = data.both(data.first), data.both(data.others)
    n, m = len(y), len(of_more)
    little = np.full(n, 1 / n)
    with warned("learners.little_weight", rows=n, option=option, least=30, factor=pytest.approx(n, rel=1e-2)):
        model.fit(X, y, little)
    with warned("learners.little_weight", rows=n + m, least=30):
        model.partial_fit(more, of_more, sample_weight=np.full(m, 1 / n))
    model.partial_fit(more, of_more, sample_weight=np.full(m, 2.0))
    model.partial_fit(more, of_more, sample_weight=np.full(m, 1 / n))
    kind(**{option: 30}).fit(X, y)
    keyed: Any = (KeyedRegressor if issubclass(kind, Regressor) else KeyedClassifier)(kind(**{option: 30}))
    with warned("learners.little_weight", rows=n):
        keyed.fit(X, y, little, keys=["a"] * n)


@pytest.mark.parametrize("by_key", [False, True], ids=["one model", "by key"])
def test_the_commands_warn_of_little_weight(by_key: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """``validate``, a run, and updates by lists and by changes, each once, with the sum of what it has seen."""
    n = 40
    rows = {"id": range(n), "a": X[:n, 0], "y": np.where(Y[:n], "u", "v"), "w": np.full(n, 1 / n)}
    rows["shop"] = np.full(n, 7)
    if by_key:  # the second and third key have too little, too
        rows = {name: [*values, *values, *values] for name, values in rows.items()}
        rows |= {"id": range(3 * n), "shop": np.repeat([7, 8, 9], n)}
    table = pa.table(rows)
    pq.write_table(table, tmp_path / "rows.parquet")
    source = {"kind": "parquet", "path": str(tmp_path / "rows.parquet"), "id": "id", "label": "y", "weight": "w"}
    source |= {"features": ["a"], **({"key": "shop"} if by_key else {})}
    config = {"source": source, "learner": {"kind": "fudyadt"}, "cluster": {"backend": "in_process"}}
    config |= {"stream": {"model": "incremental", "warmup": 20}, "output": {"report": False}}
    keys = "key 7 and 2 more: " if by_key else ""

    def found() -> list[str]:
        said = [plain(one.getMessage()) for one in caplog.records if getattr(one, "event", "") == "little_weight"]
        caplog.clear()
        return [one.partition(" rows ")[0] for one in said]

    asked = [one for one in look_at(load_config(config))["warnings"] if one.id == "learners.little_weight"]
    assert [plain(one).partition(" rows ")[0] for one in asked] == [f"{keys}the weights of {n}"]
    run = replay(config, tmp_path / "run")
    assert found() == [f"{keys}the weights of {n}"]
    trained = replay(config | {"stream": {"model": "training", "holdout": 0}}, tmp_path / "trained")
    assert found() == [f"{keys}the weights of {n}"]
    pq.write_table(pa.table({"id": [3]}), tmp_path / "gone.parquet")
    update(run.path, delete=tmp_path / "gone.parquet", out=tmp_path / "less")
    of_one = keys.replace(" and 2 more", "")
    assert found() == [f"{of_one}the weights of {n - 1}"]
    change = table.slice(4, 1).append_column("op", pa.array(["d"]))
    pq.write_table(change, tmp_path / "change.parquet")
    apply_changes(trained.path, [str(tmp_path / "change.parquet")], op="op", out=tmp_path / "changed")
    assert found() == [f"{of_one}the weights of {n - 1}"]
    heavy = table.set_column(3, "w", pa.array(np.ones(len(table))))
    pq.write_table(heavy, tmp_path / "rows.parquet")
    assert not [one for one in look_at(load_config(config))["warnings"] if one.id == "learners.little_weight"]
    replay(config, tmp_path / "heavy")
    assert found() == []


# -- weighted counts -------------------------------------------------------------------------------------------------
# Weights of the learners that count rows: confidence tree, sparse tree and best split, as estimators.

DRAW_COUNTS = np.random.default_rng(7)
ONES = DRAW_COUNTS.random((160, 12)) < 0.3
Y_COUNTS = (ONES[:, 0] | ONES[:, 3]) ^ (DRAW_COUNTS.random(160) < 0.1)
W_COUNTS = DRAW_COUNTS.choice((0.5, 1.0, 1.25, 3.0), 160)

MAKERS: dict[str, Callable[..., Any]] = {
    "confidence tree": lambda **given: raydt.ConfidenceTreeClassifier(c=0.001, grace_period=5, n_jobs=1, **given),
    "sparse tree": lambda **given: raydt.SparseDynamicTreeClassifier(beta=0.02, n_jobs=1, **given),
    "best split": lambda **given: raydt.SparseBestSplit(finder="updent", n_jobs=1, **given),
}
every = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())


def rows(part: Any) -> Any:
    return sparse.csr_array(ONES[part].astype(np.float64))


@every
def test_weights_of_one_leave_no_trace(make: Callable[..., Any]) -> None:
    plain = make().fit(rows(slice(160)), Y_COUNTS)
    assert make().fit(rows(slice(160)), Y_COUNTS, np.ones(160)).digest() == plain.digest()
    assert "unit" not in plain.session_.state()[0]


@every
def test_weights_of_classes_multiply_counts_of_rows(make: Callable[..., Any]) -> None:
    both = make(class_weight={True: 3.0}).fit(rows(slice(160)), Y_COUNTS, W_COUNTS)
    by_rows = make().fit(rows(slice(160)), Y_COUNTS, fixed(W_COUNTS) / 65536 * np.where(Y_COUNTS, 3.0, 1.0))
    assert both.digest() == by_rows.digest()


@every
def test_all_that_weighs_is_deleted(make: Callable[..., Any]) -> None:
    """Counts stay masses; the rows that remain count one row each."""
    model = make().fit(rows(slice(80)), Y_COUNTS[:80])
    model.partial_fit(rows(slice(80, 160)), Y_COUNTS[80:], sample_weight=W_COUNTS[80:])
    model.forget(range(80, 160))
    state = model.session_.state()[0]
    assert state["unit"][0] == 65536
    assert "weight" not in state
    assert model.audit().failures == []


#: Learners of dense rows that count rows.
DENSE = {"FuDyADT": raydt.FullyDynamicTreeClassifier, "forest": raydt.ExactForestClassifier}


@pytest.mark.parametrize("name", [*MAKERS, *DENSE])
def test_a_restored_model_without_a_weight_takes_rows(name: str, tmp_path: Path) -> None:
    """A state has no weights if all that live are 1, though counts are masses."""
    X = rows(slice(160)) if name in MAKERS else ONES.astype(np.float64)
    model = MAKERS[name]() if name in MAKERS else DENSE[name](n_jobs=1)
    model.fit(X[:80], Y_COUNTS[:80]).partial_fit(X[80:120], Y_COUNTS[80:120], sample_weight=W_COUNTS[80:120])
    model.forget(range(80, 120))
    model.save(tmp_path / "model", with_examples=True)
    again = raydt.load_model(tmp_path / "model")
    for one in (model, again):
        one.partial_fit(X[120:], Y_COUNTS[120:])
        one.forget(range(10))
    assert again.digest() == model.digest()
    assert again.audit().failures == []


# -- weighted trees --------------------------------------------------------------------------------------------------
# Weights of the classification tree FuDyADT and of the exact forest, through their estimators.

#: Sums of weights in models, in units if there is one.
SUMS = ("counts", "s", "c", "gone", "totals")
#: What weights do not scale.
TREES = ("tree_nodes", "feature", "threshold", "left", "right", "exponent")


def rows_trees(n: int, classes: int = 2) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features with ties and holes, labels that follow them with noise, and small whole weights."""
    draws = np.random.default_rng(n)
    X = draws.integers(0, 6, (n, 3)).astype(float)
    y = ((X[:, 0] > 2).astype(int) + (draws.random(n) < 0.2)) % classes
    X[draws.random(X.shape) < 0.1] = np.nan
    w = draws.integers(1, 4, n)
    y[:classes], w[:classes] = np.arange(classes), 2  # classes appear in their order, whatever is left out
    return X, y, w


def in_rows(model: dict[str, np.ndarray]) -> dict[str, list[Any]]:
    """A model in rows of weight 1, without the times of its builds."""
    unit = int(model["unit"][0]) if "unit" in model else 1
    found = {name: array // unit if name in SUMS else array for name, array in model.items()}
    return {name: found[name].tolist() for name in sorted(found.keys() - {"unit", "built"})}


def forest(**options: Any) -> ExactForestClassifier:
    return ExactForestClassifier(n_estimators=5, min_samples_split=2, **options)


def number_tree(**options: Any) -> FullyDynamicTreeRegressor:
    return FullyDynamicTreeRegressor(n_jobs=1, **options)


def number_forest(**options: Any) -> ExactForestRegressor:
    return ExactForestRegressor(n_estimators=5, min_samples_split=2, **options)


def tree(**options: Any) -> FullyDynamicTreeClassifier:
    return FullyDynamicTreeClassifier(**options)


@pytest.mark.parametrize("new", [tree, forest, ConfidenceTreeClassifier])
def test_a_digest_that_is_kept_up_knows_when_all_counts_become_masses(new: Any) -> None:
    """Nodes that no update has reached count units, too."""
    X, y, w = rows_trees(90)
    kept, made = new().fit(X[:80], y[:80]), new().fit(X[:80], y[:80])
    kept.digest()
    for model in (kept, made):
        model.partial_fit(X[80:], y[80:], sample_weight=w[80:])
    assert kept.digest() == made.digest()


@pytest.mark.parametrize("new", [tree, forest])
def test_balanced_classes_are_weights_that_stay_as_they_were_found(new: Any) -> None:
    X, y, w = rows_trees(90)
    sums = np.bincount(y[:60], w[:60])
    factors = np.rint(UNIT * sums.sum() / (2 * sums)) / UNIT
    own, given = new(class_weight="balanced"), new()
    own.fit(X[:60], y[:60], sample_weight=w[:60])
    given.fit(X[:60], y[:60], sample_weight=(w * factors[y])[:60])
    for model, weights in ((own, w), (given, w * factors[y])):
        model.forget(model.row_ids_[5:25])
        model.partial_fit(X[60:], y[60:], sample_weight=weights[60:])
        assert model.audit().ok
    assert in_rows(own.session_.model()) == in_rows(given.session_.model())
    assert own.predict_proba(X).tolist() == given.predict_proba(X).tolist()


def test_whole_weights_equal_repeated_rows_where_every_tree_has_all() -> None:
    X, y, w = rows_trees(80, 3)
    copies = np.repeat(np.arange(len(X)), w)
    own, repeated = forest(sample_share=1.0), forest(sample_share=1.0)
    own.fit(X, y, sample_weight=w)
    repeated.fit(X[copies], y[copies])
    gone = np.arange(10, 40)
    own.forget(gone)
    repeated.forget(np.flatnonzero(np.isin(copies, gone)))
    assert in_rows(own.session_.model()) == in_rows(repeated.session_.model())
    assert own.predict_proba(X).tolist() == repeated.predict_proba(X).tolist()


def test_a_forest_whose_last_other_weight_is_gone_is_one_that_never_had_any() -> None:
    X, y, w = rows_trees(60)
    own, never = forest(), forest()
    own.fit(X, y, sample_weight=np.where(w == 3, 0.25, 1.0))
    own.forget(np.flatnonzero(w == 3))
    never.fit(X[w < 3], y[w < 3], ids=np.flatnonzero(w < 3))
    assert own.digest() == never.digest()
    assert "unit" not in own.session_.model()


@pytest.mark.parametrize("new", [tree, forest])
def test_the_heaviest_rows_are_counted_exactly(new: Any) -> None:
    """More than 2^43 units: shares, and votes of a forest, are those of rows of weight 1."""
    X, y, _ = rows_trees(2100)
    heavy, light = (new().fit(X, y, sample_weight=weight) for weight in (65535, 1))
    names = {"feature", "threshold", "left", "right"}
    first, second = (one.session_.model() for one in (heavy, light))
    assert {name: first[name].tolist() for name in names} == {name: second[name].tolist() for name in names}
    if new is forest:
        assert heavy.predict_proba(X).tolist() == light.predict_proba(X).tolist()
    assert heavy.audit().ok


def test_a_row_of_weight_0_is_predicted_and_deleted_but_counts_nothing() -> None:
    X, y, w = rows_trees(60)
    for new in (tree, forest):
        own, without = new(), new()
        own.fit(X, y, sample_weight=w - 1)
        without.fit(X[w > 1], y[w > 1], sample_weight=(w - 1)[w > 1], ids=np.flatnonzero(w > 1))
        assert in_rows(own.session_.model()) == in_rows(without.session_.model())
        receipt = own.forget(np.flatnonzero(w == 1))
        assert receipt.active == np.count_nonzero(w > 1)
        assert own.digest() == without.digest()
        assert own.audit().ok


SHAPE = ("feature", "threshold", "left", "right", "missing", "m0")


def test_whole_weights_of_numbers_equal_repeated_rows() -> None:
    X, _, w = rows_trees(120)
    y, copies = X[:, 0] * 1.7 - np.nan_to_num(X[:, 1]), np.repeat(np.arange(len(X)), w)
    y = np.nan_to_num(y)
    own = number_tree().fit(X, y, sample_weight=w)
    repeated = number_tree().fit(X[copies], y[copies])
    assert own.predict(X).tolist() == repeated.predict(X).tolist()
    model, other = (one.session_.model() for one in (own, repeated))
    assert {name: model[name].tolist() for name in SHAPE} == {name: other[name].tolist() for name in SHAPE}
    sums, whole, rest = model["sums"].T
    assert np.stack([sums // UNIT, whole], axis=1).tolist() == other["sums"].tolist()
    assert not rest.any()
    assert own.explain(X[:3]).values.tolist() == repeated.explain(X[:3]).values.tolist()


def test_whole_weights_of_numbers_equal_repeated_rows_in_forests() -> None:
    X, _, w = rows_trees(120)
    y = np.nan_to_num(X[:, 0] * 1.7 - X[:, 1])
    for offset in (0.0, 1.7e9):  # sums in one word, and in two
        copies = np.repeat(np.arange(len(X)), w)
        own, repeated = number_forest(sample_share=1.0), number_forest(sample_share=1.0)
        own.fit(X, y + offset, sample_weight=w)
        repeated.fit(X[copies], y[copies] + offset)
        assert own.explain(X[:3]).values.tolist() == repeated.explain(X[:3]).values.tolist()
        gone = np.arange(10, 40)
        own.forget(gone)
        repeated.forget(np.flatnonzero(np.isin(copies, gone)))
        assert same_sums(own, repeated)
        assert own.predict(X).tolist() == repeated.predict(X).tolist()
        assert own.feature_importances_.tolist() == repeated.feature_importances_.tolist()
        assert own.audit().failures == []


def same_sums(own: ExactForestRegressor, repeated: ExactForestRegressor) -> bool:
    """Whether two forests have the same trees, with sums of numbers of whole weights and of rows."""
    model, other = (one.session_.model() for one in (own, repeated))
    assert {name: model[name].tolist() for name in TREES} == {name: other[name].tolist() for name in TREES}
    sums = model["totals"].astype(object) / UNIT
    total = sums[:, 1] if sums.shape[1] == 2 else sums[:, 1] * 2**20 + sums[:, 2]
    return bool((np.stack([sums[:, 0], total], axis=1) == other["totals"][:, :2]).all())


def test_a_forest_of_numbers_whose_last_other_weight_is_gone_is_one_that_never_had_any() -> None:
    """Also one whose first weights come late; rows of weight 0 do not move the scale of labels."""
    X, _, w = rows_trees(60)
    for offset in (0.0, 1.7e9):
        y = np.nan_to_num(X[:, 0] / 3) + offset
        own, never = number_forest(), number_forest()
        own.fit(X[w < 3], y[w < 3], ids=np.flatnonzero(w < 3))
        digest, model = own.digest(), own.session_.model()
        own.partial_fit(X[w == 3], 1e3 * y[w == 3], sample_weight=np.zeros((w == 3).sum()), ids=np.flatnonzero(w == 3))
        assert own.predict(X).tolist() == never.fit(X[w < 3], y[w < 3], ids=np.flatnonzero(w < 3)).predict(X).tolist()
        own.forget(np.flatnonzero(w == 3))
        own.partial_fit(X[w == 3], 1e3 * y[w == 3], sample_weight=w[w == 3] / 7, ids=np.flatnonzero(w == 3))
        assert "unit" in own.session_.model()
        assert own.audit().failures == []
        own.forget(np.flatnonzero(w == 3))
        assert own.digest() == digest == never.digest()
        assert {k: v.tolist() for k, v in own.session_.model().items()} == {k: v.tolist() for k, v in model.items()}


def test_weights_of_numbers_may_add_up_to_as_much_as_there_may_be_rows() -> None:
    """Of the heaviest rows, half at either end of the range, sums are exact; one row more is refused."""
    X, y = np.arange(256.0)[:, None], np.tile([0.0, 65536.0], 128)
    y[:6] = 1.0
    model = number_tree(label_range=(0.0, 65536.0), smoothing=0).fit(X, y, sample_weight=np.full(256, 65535.0))
    total, whole, rest = model.session_.model()["sums"][0].tolist()
    weight = 65535 * UNIT
    assert total == weight * int(y.sum())
    assert whole * UNIT + rest == weight * int((y * y).sum())
    assert model.audit().failures == []
    before = model.digest()
    with refused("examples.heavy", InputError, most=2**24):
        model.partial_fit(X[:1], y[:1], sample_weight=[257.0])
    assert model.digest() == before
    light = number_tree(label_range=(0.0, 65536.0), smoothing=0).fit(X, y)
    assert light.predict(X).tolist() == model.predict(X).tolist()


def test_weights_of_a_forest_of_numbers_may_add_up_to_as_much_as_there_may_be_rows() -> None:
    X, y = np.arange(32.0)[:, None], np.tile([-1.0, 1.0], 16)
    for offset in (0.0, 1.7e9):
        model = number_forest().fit(X, y + offset, sample_weight=np.full(32, 65535.0))
        assert model.audit().failures == []
        before = model.digest()
        with refused("examples.heavy", InputError, most=2**21):
            model.partial_fit(X[:1], y[:1], sample_weight=[33.0])
        assert model.digest() == before
        assert model.predict(X).tolist() == number_forest().fit(X, y + offset).predict(X).tolist()


def test_without_memory_for_weights_nothing_of_a_batch_is_applied(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y, w = rows_trees(90)
    model = tree().fit(X[:60], y[:60])
    before, session = model.digest(), model.session_

    def fails(store: ExampleStore) -> None:
        raise MemoryError

    monkeypatch.setattr(ExampleStore, "weigh", fails)
    op, weight = np.full(30, INSERT, dtype=np.int8), fixed(w[60:].astype(np.float64))
    batch = model._next_batch(op, np.arange(60, 90), X[60:], y[60:].astype(np.int32), None, weight=weight)
    with pytest.raises(MemoryError):
        session.apply(batch)
    assert session.whole
    assert model.digest() == before
