"""Where sparse learners end: widths, alphas, options that mean nothing, and trees that no tree can be."""

from __future__ import annotations

import numpy as np
import pytest
from pydantic import ValidationError

from raydt.arrays.blocks import LARGEST_WIDTH, SparseRows
from raydt.examples.updates import INSERT, Features, UpdateBatch
from raydt.finders.pool import buckets_of
from raydt.learners.best_split.options import BestSplitOptions
from raydt.learners.sparse_tree.learner import LEARNER
from raydt.learners.sparse_tree.options import SparseTreeOptions
from raydt.sessions.session import InProcessSession


def _session(n_features: int, dense: int, **options: object) -> InProcessSession:
    names = tuple(f"x{j}" for j in range(dense))
    features = Features(names, (False,) * dense, 3, n_features)
    return InProcessSession(LEARNER, SparseTreeOptions(finder="updgini", **options), features, 2)


def _insert(session: InProcessSession, rows: list[list[int]], y: list[int], n_features: int, dense: int = 0) -> None:
    n = len(rows)
    sparse = SparseRows.of_lengths(
        [len(row) for row in rows], np.array([j for row in rows for j in row], dtype=np.int32), n_features
    )
    op, ids = np.full(n, INSERT, dtype=np.int8), np.arange(n)
    X = np.zeros((n, dense))
    session.apply(UpdateBatch(0, op, ids, X, np.array(y, dtype=np.int32), 2, np.full(n, -1), 0, None, sparse))


@pytest.mark.parametrize("alpha", [0.01, 0.009, 1e3, 1001.0, float("inf"), float("nan")])
@pytest.mark.parametrize(("options", "name"), [(BestSplitOptions, "alpha"), (SparseTreeOptions, "finder_alpha")])
def test_alphas_have_bounds(options: type, name: str, alpha: float) -> None:
    if 0.01 <= alpha <= 1e3:
        assert getattr(options(finder="updgini", **{name: alpha}), name) == alpha
    else:
        with pytest.raises(ValidationError, match=f"\\n{name}\\n"):
            options(finder="updgini", **{name: alpha})


@pytest.mark.parametrize("dense", [0, 2])
def test_the_last_feature_that_fits_is_split_by(dense: int) -> None:
    width = LARGEST_WIDTH - dense
    session = _session(width, dense, alpha=0.1, beta=0.2)
    _insert(session, [[width - 1], []] * 20, [1, 0] * 20, width, dense)
    assert session.model()["feature"].tolist() == [LARGEST_WIDTH - 1, -1, -1]


@pytest.mark.parametrize("finder", ["updgini", "updent"])
def test_buckets_of_the_extreme_alphas_are_numbers(finder: str) -> None:
    for alpha in (0.01, 1e3):
        buckets = buckets_of(finder, alpha)  # type: ignore[arg-type]
        assert all(np.isfinite(array).all() for array in buckets[1:])
        BestSplitOptions(finder=finder, alpha=alpha)
        SparseTreeOptions(finder=finder, finder_alpha=alpha)
