"""GBDT: its estimator, options, audit and retraining."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from raydt import OnlineGradientBoostingClassifier, OnlineGradientBoostingRegressor, load_model
from raydt.audits.recorded_tree import AuditReport
from raydt.errors import ModelFileError, UpdateError
from raydt.examples.updates import (
    CARRIES_ROW,
    DELETE,
    INSERT,
    MOST_CLASSES,
    QUERY,
    UPDATE,
    Features,
    History,
    UpdateBatch,
)
from raydt.learners import learners
from raydt.learners.base import WorkPlan
from raydt.learners.gbdt import LEARNER, ensemble
from raydt.learners.gbdt.audit import audit, largest_lack
from raydt.learners.gbdt.candidates import exact_parts
from raydt.learners.gbdt.options import GBDTOptions
from raydt.learners.gbdt.recompute import RecomputedTree
from raydt.learners.gbdt.update import TrainingRecord
from raydt.sessions.session import InProcessSession
from raydt.sources.divided import open_source
from raydt.sources.options import Hyperplane
from raydt.streams.windows import Incremental
from tests.fuzz.mutations import with_arrays
from tests.oracles.online_gbdt_stream import OnlineGBDTTwin
from tests.refusals import findings
from tests.strategies import Stream, gbdt_options, gbdt_streams
from tests.volume import examples

# -- gbdt estimator --------------------------------------------------------------------------------------------------
# OnlineGradientBoostingClassifier and -Regressor: scikit-learn's checks, one batch D' a call, stages, saving.

RNG = np.random.default_rng(11)
X = np.round(RNG.normal(size=(400, 4)), 1)
CLASSES = (X[:, 0] + X[:, 1] > 0).astype(int) + (X[:, 2] > 1)
NUMBERS = 3.0 * X[:, 0] - X[:, 1] ** 2 + 100.0
SMALL: dict[str, Any] = {"max_iter": 12, "max_leaf_nodes": 6, "max_bins": 64}
BOTH = [(OnlineGradientBoostingClassifier, CLASSES), (OnlineGradientBoostingRegressor, NUMBERS)]
each = pytest.mark.parametrize(("make", "y"), BOTH, ids=["classifier", "regressor"])


@each
def test_stages_end_with_the_prediction(make: Any, y: np.ndarray) -> None:
    model = make(**SMALL).fit(X, y)
    stages = list(model.staged_predict(X))
    assert len(stages) == model.n_iter_ == 12
    np.testing.assert_array_equal(stages[-1], model.predict(X))
    assert model.score(X, y) > 0.7
    assert model.feature_importances_.sum() == pytest.approx(1.0)
    assert model.feature_importances_[:2].sum() > model.feature_importances_[3] >= 0.0


@pytest.mark.parametrize("labels", [CLASSES, CLASSES > 0, np.zeros(400, dtype=int)], ids=["three", "two", "one"])
def test_stages_of_shares(labels: np.ndarray) -> None:
    model = OnlineGradientBoostingClassifier(**SMALL).fit(X, labels)
    stages = list(model.staged_predict_proba(X))
    np.testing.assert_array_equal(stages[-1], model.predict_proba(X))
    assert stages[0].shape == (400, len(np.unique(labels)))
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1.0)


def test_early_stopping_makes_fewer_trees() -> None:
    noise = RNG.integers(0, 2, 400)
    model = OnlineGradientBoostingClassifier(early_stopping=True, n_iter_no_change=2, max_bins=64).fit(X, noise)
    assert model.n_iter_ < 100


@pytest.mark.parametrize("classes", [2, 3])
def test_a_new_class_gives_leaves_another_value_also_where_no_derivative_changes(classes: int) -> None:
    """With saturated probabilities: the factor (K-1)/K and the sign of the mirrored trees change all the same."""
    X = np.arange(60.0)[:, None]
    y = np.arange(60) // (60 // classes)
    boosting = OnlineGradientBoostingClassifier(max_iter=60, learning_rate=1.0, l2_regularization=0.0, max_leaf_nodes=8)
    boosting.fit(X, y)
    boosting.partial_fit([[1000.0]], [classes])
    assert boosting.audit().conformance == "holds"


@pytest.mark.parametrize("unit", [2.0**-40, 2.0**40])
def test_early_stopping_does_not_depend_on_the_unit_of_targets(unit: float) -> None:
    draws = np.random.default_rng(2)
    X = draws.random((300, 3))
    y = X[:, 0] + draws.normal(0.0, 0.3, 300)
    # Few bins: more than 256 would take kernels of their own.
    first = OnlineGradientBoostingRegressor(early_stopping=True, tol=1e-3, max_bins=64).fit(X, y)
    other = OnlineGradientBoostingRegressor(early_stopping=True, tol=1e-3, max_bins=64).fit(X, y * unit)
    assert 1 < first.n_iter_ < 100
    assert other.n_iter_ == first.n_iter_
    np.testing.assert_array_equal(other.predict(X), first.predict(X) * unit)


def test_equal_targets_have_a_scale_of_their_own() -> None:
    """The mean of three times 0.1 is not 0.1: rounding is no distance that others could be too far by."""
    boosting = OnlineGradientBoostingRegressor(max_iter=2).fit(X[:3], [0.1] * 3)
    assert boosting.predict(X).tolist() == [0.1] * len(X)
    assert boosting.partial_fit(X[:1], [0.2]).audit().ok
    small = OnlineGradientBoostingRegressor(retrain="never").fit(X[:3], [1e-9] * 3)
    assert small.partial_fit(X[:3], [3e-9] * 3).predict(X[:3]) == pytest.approx([2e-9] * 3, rel=0.2)


@given(st.lists(st.floats(-1e200, 1e200)), st.integers(1, 5))
@examples(200)
def test_sums_of_losses_do_not_depend_on_whose_rows_they_are(values: list[float], owners: int) -> None:
    parts = np.concatenate([exact_parts(values[owner::owners]) for owner in range(owners)])
    assert math.fsum(parts) == math.fsum(values)
    assert len(exact_parts(np.round(np.array(values) % 1, 3).tolist())) <= 2


# -- gbdt options ----------------------------------------------------------------------------------------------------
# Options of the GBDT that follow from the stream, and what they say of a run.


@pytest.mark.parametrize(
    ("rows", "warmup", "candidates", "every"),
    [
        (0, 0, 0, 100), (4000, 0, None, 200), (30, 30, None, 20), (30, 400, None, 20), (4000, 30, None, 200),
        (1000, 30, 10**6, 50), (4000, 30, 1000, 47), (4000, 0, 1000, 100), (4000, 30, 10, 20), (40_000, 30, 10, 200),
    ],
)  # fmt: skip
def test_the_size_of_a_batch_follows_its_cost(rows: int, warmup: int, candidates: int | None, every: int) -> None:
    assert GBDTOptions().every(rows, warmup, candidates) == every
    assert GBDTOptions(update_every=7).every(rows, warmup, candidates) == 7


def test_a_state_of_an_earlier_version_continues_its_batch() -> None:
    """It does not say where the batch began; all batches are of one size, and none has begun that is in the trees."""
    rows = {"born": np.array([1240, 1255]), "pending": np.array([0, 1])}
    state = {"seq": np.array([1299]), "warmup": np.array([1000]), **rows}
    assert [GBDTOptions().begun(state), GBDTOptions(update_every=70).begun(state)] == [1250, 1280]
    assert GBDTOptions().begun(state | {"pending": np.array([0, 0])}) == 1256, "the run had ended after an insertion"
    early = {"seq": np.array([999]), "warmup": np.array([1000]), "born": np.array([998]), "pending": np.array([1])}
    assert GBDTOptions().begun(early) == 0
    assert GBDTOptions().begun(state | {"begun": np.array([1260])}) == 1260


def test_a_truth_value_is_not_a_number() -> None:
    with pytest.raises(ValidationError, match="max_iter"):
        GBDTOptions(max_iter=True)
    assert GBDTOptions(early_stopping=True).early_stopping


@pytest.mark.parametrize(
    ("options", "expected", "parameters"),
    [
        ({}, "sometimes_trained", {"updates": "200 updates", "batches": 3, "after": 500}),
        ({"retrain": "never"}, "never_trained", {"updates": "200 updates"}),
        ({"retrain": "always"}, "always_trained", {"updates": "200 updates", "rows": 4000}),
        ({"update_every": 5000}, "always_trained", {"updates": "5,000 updates"}),
        ({"update_every": 500}, "always_trained", {"updates": "500 updates"}),  # an eighth of the rows
        ({"update_every": 499}, "sometimes_trained", {"batches": 2}),
        (
            {"update_every": 800, "retrain": "never"},
            "never_trained",
            {"updates": "800 updates", "iterations": "100 iterations"},
        ),
    ],
)
def test_the_outlook(options: dict[str, object], expected: str, parameters: dict[str, object]) -> None:
    outlook = learners()["gbdt"].outlook(GBDTOptions(**options), 4000)
    assert outlook.id == f"learners.{expected}"
    assert outlook.parameters.items() >= parameters.items()


def test_a_binary_objective_is_of_two_classes() -> None:
    """With a third class it would be multiclass, which is not what was asked for."""
    reading = learners()["gbdt"].traits(GBDTOptions(objective="binary")).reading
    assert (reading.classes, reading.sparse_classes, reading.with_classes) == (2, 2, "objective: multiclass")
    for objective in ("auto", "multiclass"):
        assert learners()["gbdt"].traits(GBDTOptions(objective=objective)).reading.classes == MOST_CLASSES


def test_keys_without_effect_are_named() -> None:
    """A sweep does not list them beside settings that they do not belong to."""
    stopping = ("validation_fraction", "n_iter_no_change", "tol")
    assert GBDTOptions().unused == stopping
    assert GBDTOptions(derivatives="never", early_stopping=True).unused == ("derivative_tolerance",)


def test_a_state_of_this_format_says_where_its_batch_began(tmp_path: Path) -> None:
    X = np.arange(60.0).reshape(30, 2)
    model = OnlineGradientBoostingClassifier(max_iter=2, max_leaf_nodes=3).fit(X, np.arange(30) % 2)
    folder = tmp_path / "model"
    model.save(folder, with_examples=True)

    def without(components: dict[str, dict[str, Any]]) -> None:
        next(arrays for arrays in components.values() if "begun" in arrays).pop("begun")

    contents = {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}
    for name, content in with_arrays(contents, without).items():
        (folder / name).write_bytes(content)
    with pytest.raises(ModelFileError, match="begun"):
        load_model(folder)


# -- gbdt audit ------------------------------------------------------------------------------------------------------
# The audit of the online GBDT passes what the twin makes, and finds every single thing that is wrong with it.

CATEGORICAL = (False, True, False)
FEATURES = Features(("a", "b", "c"), CATEGORICAL)
WARMUP = 60


def options(objective: str, **others: Any) -> GBDTOptions:
    settings = {"max_iter": 4, "max_leaf_nodes": 5, "max_bins": 8, "candidate_fraction": 0.5, "update_every": 20}
    settings["retrain"] = "never"
    return GBDTOptions(**{**settings, "objective": objective, **others})


def updates(objective: str, n: int = 117, seed: int = 3) -> UpdateBatch:
    """A stream whose label depends on all three features, with NaN, and every kind of change after the warm-up."""
    rng = np.random.default_rng(seed)
    live: list[int] = []
    op, key, X, y = [], [], [], []
    for i in range(n):
        kind = INSERT if i < WARMUP else int(rng.choice([INSERT, DELETE, UPDATE]))
        x = [rng.integers(12) / 4 if rng.random() < 0.9 else np.nan, rng.integers(-1, 4), rng.integers(40) / 8]
        label = int(x[0] > 1.5) + int(x[1] == 2 and x[2] > 2.0)
        chosen = i if kind == INSERT else live[int(rng.integers(len(live)))]
        live.append(chosen) if kind == INSERT else kind == DELETE and live.remove(chosen)
        op.append(kind)
        key.append(chosen)
        if CARRIES_ROW[kind]:
            X.append(x)
            y.append(min(label, 1) if objective == "auto" else label)
    ops = np.array(op, np.int8)
    targets = np.array(y) * 1.7 - 0.3 if objective == "squared_error" else np.array(y, np.int32)
    return UpdateBatch(0, ops, np.array(key), np.array(X, np.float64), targets, 3, np.full(n, -1), warmup=WARMUP)


@cache
def sound(objective: str = "multiclass") -> OnlineGBDTTwin:
    twin = OnlineGBDTTwin(list(CATEGORICAL), options(objective))
    assert twin.process(updates(objective))[2] == []
    assert twin.inserts
    assert twin.deletes  # some wait
    return twin


def audited(
    state: dict[str, Any], history: History | None = None, objective: str = "multiclass", **o: Any
) -> AuditReport:
    return audit(options(objective, **o), FEATURES, state, history or sound(objective).history())


# ---------------------------------------------------------------------- what is right passes


def test_old_derivatives_are_measured() -> None:
    twin = OnlineGBDTTwin(list(CATEGORICAL), options("multiclass", derivatives="never"))
    twin.process(updates("multiclass"))
    model = twin.model
    old = [
        abs(row.ledger[m, k] - entry)
        for row in model.rows.values()
        for m in range(4)
        for k, entry in enumerate(model.fresh(row, m))
    ]
    report = audited(twin.state(), twin.history(), derivatives="never")
    assert report.failures == []
    assert report.worst["stale"] == max(old) / 65536 > 0
    assert report.feasibility == "not_promised"
    for kind in ("bounded", "changed_leaves"):
        report = audited(twin.state(), twin.history(), derivatives=kind, derivative_tolerance=0.01)
        assert (report.conformance, report.feasibility) == ("holds", "violated")
        assert report.reason.id == "audits.stale"


def measured(twin: OnlineGBDTTwin) -> tuple[int, float]:
    """The worst rank of a split, and the largest share of the best gain that one lacks."""
    model, rank, lack = twin.model, 0, 0.0
    for place, root in model.trees.items():
        for v in root.preorder():
            if not v.is_leaf:
                gains = model.gains(*place, model.rows_below(v))
                own = gains[v.feature, v.cut]
                rank = max(rank, 1 + sum(gain > own for gain in gains.values()))
                lack = max(
                    lack, (max(gains.values()) - own) / max(gains.values()) if max(gains.values()) > own else 0.0
                )
    return rank, lack


@examples(60)
@given(st.data())
def test_every_model_of_the_twin_is_sound(data: st.DataObject) -> None:
    regression = data.draw(st.booleans())
    stream: Stream = data.draw(gbdt_streams(regression=regression, max_events=15))
    chosen = GBDTOptions(**data.draw(gbdt_options(*(("squared_error",) if regression else ("auto", "multiclass")))))
    twin = OnlineGBDTTwin(list(stream.categorical), chosen)
    for batch in stream.batches([len(stream)]):
        twin.process(batch)
    report = audit(chosen, stream.features, twin.state(), twin.history())
    assert report.failures == []
    assert (report.worst["rank"], report.worst["lack"]) == pytest.approx(measured(twin))


# ---------------------------------------------------------------------- what is wrong is found


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"robustness_tolerance": 0.0}, "audits.tree:split (ranks below 1)"),
        ({"max_leaf_nodes": 3}, "audits.tree_leaves"),
        ({"learning_rate": 0.2}, "audits.tree:node_value"),
        ({"l2_regularization": 0.5}, "audits.tree:node_value"),
        ({"max_bins": 6}, "audits.bins"),
        ({"random_state": 1}, "audits.tree:one-sided split"),
    ],
    ids=str,
)
def test_a_model_of_other_options_is_found(changed: dict[str, Any], expected: str) -> None:
    objective = "multiclass"
    twin = OnlineGBDTTwin(list(CATEGORICAL), options(objective, robustness_tolerance=1.0))
    twin.process(updates(objective))
    assert audited(twin.state(), twin.history(), robustness_tolerance=1.0).ok
    report = audited(twin.state(), twin.history(), **{"robustness_tolerance": 1.0, **changed})
    assert report.conformance == "violated"
    assert expected in findings(report)


def test_where_no_split_gains_anything_none_lacks_a_share_of_it() -> None:
    """A gain of 0 may be computed as slightly less, and another split of the node then beats it."""
    none, zero = np.zeros(2, np.int64), np.zeros(2)
    tree = RecomputedTree(none, none, np.array([1, 0]), np.array([-1e-17, 0.0]), zero)
    assert largest_lack(tree) == 0.0
    assert largest_lack(replace(tree, gain=np.array([1.5, 0.0]), best=np.array([2.0, 0.0]))) == 0.25


# -- gbdt retraining -------------------------------------------------------------------------------------------------
# When a batch trains all trees again, and that what was done is shown.


def record(changes: int, work: int = 0, work_changes: int = 0) -> TrainingRecord:
    return TrainingRecord(trained=900, trained_rows=900, changes=changes, work=work, work_changes=work_changes)


@pytest.mark.parametrize(
    ("now", "changes", "due"),
    [
        (record(10), 10, False),
        (record(111), 10, False),
        (record(112), 10, True),  # an eighth of the 900 rows of the last training
        (record(100, 1000, 100), 100, False),
        (record(50, 9000, 50), 50, True),  # 10 trees of 900 rows
        (record(50, 8999, 50), 50, False),
        (record(25, 9000, 50), 25, False),  # half of it
        (record(25, 18000, 50), 25, True),
        (record(100, 8999, 50), 100, False),  # a larger batch is not more work in proportion
    ],
)
def test_auto_compares_counts(now: TrainingRecord, changes: int, due: bool) -> None:
    assert now.is_due(GBDTOptions(), changes, live=900, trees=10) == due
    assert not now.is_due(GBDTOptions(retrain="never"), changes, live=900, trees=10)
    assert now.is_due(GBDTOptions(retrain="always"), changes, live=900, trees=10)


def test_auto_tries_an_update_again_after_some_trainings() -> None:
    """Sooner if the last one was little more work than a training: 10 trees of 900 rows."""
    for work, trainings in ((8999, 0), (9000, 1), (10_000, 4), (18_000, 22), (90_000, 73)):
        now = record(0, work, 50)
        done = 0
        while now.is_due(GBDTOptions(), 50, live=900, trees=10):
            now.add_training(1000 + done, 900)
            done += 1
        assert done == trainings


def test_a_training_takes_over_classes_categories_missing_values_and_scale() -> None:
    rng = np.random.default_rng(1)
    X = np.column_stack([rng.normal(size=300), rng.integers(0, 3, 300)])
    y = np.array(["a", "b"])[(X[:, 0] > 0).astype(int)]
    boosting = OnlineGradientBoostingClassifier(max_iter=5, categorical_features=[1]).fit(X, y)
    new = X.copy()
    new[:, 1] += 3
    new[::7, 0] = np.nan
    labels = np.where(new[:, 1] == 5, "c", y)
    boosting.replace_examples(boosting.row_ids_[:250], new[:250], labels[:250])
    assert boosting.last_update_["trained"] == 300
    assert boosting.score(new, labels) > 0.9
    assert boosting.audit().feasibility == "proven"

    regressor = OnlineGradientBoostingRegressor(max_iter=5, max_bins=100).fit(X, 100 * X[:, 0])
    regressor.replace_examples(regressor.row_ids_[:299], X[:299], X[:299, 0])
    regressor.replace_examples(regressor.row_ids_[:299], X[:299], X[:299, 0])
    assert (regressor.last_update_["trained"], regressor.audit().conformance) == (300, "holds")
    with pytest.raises(UpdateError, match="32 times as far"):
        regressor.partial_fit(X[:1], [1e6])


def test_an_empty_model_is_trained_again() -> None:
    rng = np.random.default_rng(2)
    X = rng.normal(size=(100, 2))
    y = X[:, 0] > 0
    boosting = OnlineGradientBoostingClassifier(max_iter=5).fit(X, y)
    boosting.forget(boosting.row_ids_)
    assert (boosting.last_update_["trained"], boosting.audit().conformance) == (0, "holds")
    boosting.partial_fit(X, y)
    assert (boosting.last_update_["trained"], boosting.score(X, y)) == (100, 1.0)


@pytest.mark.parametrize(
    ("make", "classes"),
    [
        (OnlineGradientBoostingClassifier, 2),
        (OnlineGradientBoostingClassifier, 3),
        (OnlineGradientBoostingRegressor, 9),
    ],
)
def test_a_large_ledger_is_written_when_it_is_read(make: Any, classes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first training leaves it out; what breaks off the writing leaves it to the next update."""
    X = np.random.default_rng(4).normal(size=(300, 3))
    y = np.digitize(X[:, 0] + X[:, 1] ** 2, np.arange(classes - 1))

    def fitted(large: int) -> Any:
        monkeypatch.setattr(ensemble, "LARGE_LEDGER", large)
        return make(max_iter=5).fit(X, y)

    model, other = fitted(300 * 5), fitted(300 * 50)
    shards = [one.session_.driver.shards[0].worker for one in (model, other)]
    assert [shard.own.ensemble._ledger.any() for shard in shards] == [False, True]
    with monkeypatch.context() as broken:
        broken.setattr(ensemble, "run", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            model.forget(model.row_ids_[:3])
    for one in (model, other):
        one.forget(one.row_ids_[:3])
    assert model.digest() == other.digest()


@pytest.mark.parametrize("stopping", [{}, {"early_stopping": True, "n_iter_no_change": 1, "tol": 1e9}])
def test_shards_drop_the_scores_of_a_training_at_its_end(stopping: dict[str, Any]) -> None:
    """Eight bytes for each row and column of scores, for as long as no update follows."""
    options = GBDTOptions.model_validate({"max_iter": 3, "feature_groups": 2, "retrain": "never", **stopping})
    source = open_source(Hyperplane(n=200, n_features=4))
    plan = WorkPlan(local_work_limit=0, row_cache_bytes=0)
    session = InProcessSession(learners()["gbdt"], options, replace(source.features, groups=2), 2, plan)
    (batch,) = Incremental(warmup=200).make(source).batches(200)
    session.apply(batch)
    workers: list[Any] = [shard.worker for shard in session.shards]
    assert [len(worker.own.ensemble.trees.feature) for worker in workers] == [1 if stopping else 3] * 2
    assert [(worker._training.size, worker._scores.size) for worker in workers] == [(0, 0)] * 2


# -- gbdt before the model -------------------------------------------------------------------------------------------
# The online GBDT before it has trees, and a state as a predictor: what is predicted follows from the updates alone.

FEATURES_MODEL = Features(("a",), (False,))
#: Kind, id, label.
UPDATES = [
    (INSERT, 0, 1), (QUERY, 0, -1), (DELETE, 0, -1), (INSERT, 1, 0), (QUERY, 0, -1), (INSERT, 2, 1), (DELETE, 1, -1),
    (QUERY, 0, -1),
]  # fmt: skip


def batch_of(start: int, updates: list[Any], warmup: int, dtype: Any = np.int32) -> UpdateBatch:
    op = np.array([kind for kind, *_ in updates], dtype=np.int8)
    rows = [update for update in updates if update[0] != DELETE]
    X = np.array([[float(number)] for _, number, _ in rows]).reshape(-1, 1)
    y = np.array([label for *_, label in rows], dtype=dtype)
    classes = 0 if dtype is np.float64 else 2
    return UpdateBatch(start, op, np.array([n for _, n, _ in updates]), X, y, classes, np.full(len(op), -1), warmup)


@pytest.mark.parametrize("size", [1, 3, 8])
def test_a_query_sees_what_lives_then_whatever_the_batch_deletes_later(size: int) -> None:
    session = InProcessSession(LEARNER, GBDTOptions(max_iter=2), FEATURES_MODEL)
    found = []
    for begin in range(0, len(UPDATES), size):
        found += session.apply(batch_of(begin, UPDATES[begin : begin + size], 100)).predictions.tolist()
    assert found == [-1, 1, -1, -1, 0, -1, -1, 1]


def test_a_query_whose_label_is_far_is_predicted() -> None:
    options = GBDTOptions(max_iter=2, objective="squared_error", update_every=5)
    session = InProcessSession(LEARNER, options, FEATURES_MODEL)
    session.apply(batch_of(0, [(INSERT, i, float(i)) for i in range(10)], 10, np.float64))
    result = session.apply(batch_of(10, [(QUERY, 0, 1e9)], 10, np.float64))
    assert not result.refused
    assert np.isfinite(result.predictions).all()
