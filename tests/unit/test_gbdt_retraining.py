"""When a batch trains all trees again, and that what was done is shown."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from raydt import OnlineGradientBoostingClassifier, OnlineGradientBoostingRegressor
from raydt.errors import UpdateError
from raydt.learners import learners
from raydt.learners.base import WorkPlan
from raydt.learners.gbdt.options import GBDTOptions
from raydt.learners.gbdt.update import TrainingRecord
from raydt.sessions.session import InProcessSession
from raydt.sources.divided import open_source
from raydt.sources.options import Hyperplane
from raydt.streams.options import make_stream
from raydt.streams.windows import Incremental


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


@pytest.mark.parametrize("stopping", [{}, {"early_stopping": True, "n_iter_no_change": 1, "tol": 1e9}])
def test_shards_drop_the_scores_of_a_training_at_its_end(stopping: dict[str, Any]) -> None:
    """Eight bytes for each row and column of scores, for as long as no update follows."""
    options = GBDTOptions.model_validate({"max_iter": 3, "feature_groups": 2, "retrain": "never", **stopping})
    source = open_source(Hyperplane(n=200, n_features=4))
    plan = WorkPlan(local_work_limit=0, row_cache_bytes=0)
    session = InProcessSession(learners()["gbdt"], options, replace(source.features, groups=2), 2, plan)
    (batch,) = make_stream(Incremental(warmup=200), source).batches(200)
    session.apply(batch)
    workers: list[Any] = [shard.worker for shard in session.shards]
    assert [len(worker.own.ensemble.trees.feature) for worker in workers] == [1 if stopping else 3] * 2
    assert [(worker._training.size, worker._scores.size) for worker in workers] == [(0, 0)] * 2
