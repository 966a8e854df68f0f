"""Units of measurement change nothing: features and labels in other units, or counted from elsewhere, for every case.

Times a power of two, numbers have the same bits but for their exponents: trees, predictions and verdicts must be the
same. So must they be of features that are moved; labels that are moved are rounded otherwise, and cost no accuracy.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest

from raydt.examples.updates import NUMERIC, UpdateBatch, history_of_live
from raydt.sessions.session import InProcessSession
from tests import volume
from tests.cases import CASES, Trial, every_case

pytestmark = pytest.mark.share

#: Features times 2 to one of these are normal numbers.
FEATURES = (-1008, -960, -400, -60, -34, 33, 300, 961, 1020)
#: So are labels, and they stay where labels may be.
LABELS = (-440, -200, -40, 40, 200, 440)
REGRESSIONS = [trial for trial in CASES if not trial.case.classes]


class Outcome(NamedTuple):
    """What may not depend on units."""

    predictions: npt.NDArray[Any]
    truth: npt.NDArray[Any]
    shape: tuple[int, ...]
    verdicts: tuple[str, str]


def finer(batch: UpdateBatch, kinds: npt.NDArray[np.int8], numbers: bool) -> UpdateBatch:
    """The small rows with many more values; equal rows stay equal."""
    X, y = batch.X.copy(), batch.y.copy()
    for i in range(len(X)):
        content = X[i].tobytes() + (b"" if batch.sparse is None else batch.sparse.row(i).tobytes())
        steps = random.Random(zlib.crc32(content))
        for j in np.flatnonzero(kinds == NUMERIC):
            X[i, j] += steps.randrange(2**9) / 2**12
        y[i] += steps.randrange(2**9) / 2**12 if numbers else 0
    return replace(batch, X=X, y=y)


def outcome(
    trial: Trial,
    folder: Path,
    of_features: Callable[[Any], Any] = lambda x: x,
    of_labels: Callable[[Any], Any] = lambda y: y,
) -> Outcome:
    """Take the change log of a case with other features and labels."""
    stream, numbers = trial.stream(folder), trial.case.classes == 0
    features = trial.features(stream.source)
    section = trial.section
    if "label_range" in section:
        section["label_range"] = of_labels(np.array(section["label_range"])).tolist()
    options = trial.learner.Options.model_validate(section)
    session = InProcessSession(trial.learner, options, features, 2, trial.case.plan)
    predictions, truth = [], []
    for batch in stream.batches(16):
        batch = finer(batch, features.kinds, numbers)
        columns = features.kinds == NUMERIC
        batch.X[:, columns] = of_features(batch.X[:, columns])
        batch = replace(batch, y=of_labels(batch.y) if numbers else batch.y)
        result = session.apply(batch, skip_refused=True)
        predictions.append(result.predictions)
        truth.append(np.full(len(batch), np.nan))
        carries = np.flatnonzero(np.isin(batch.op, (0, 2, 3, 4)))
        truth[-1][carries] = batch.y
    session.finish()
    state, groups = session.state()
    report = trial.learner.audit(options, features, state, history_of_live(state, groups, features), groups)
    statistics = session.statistics()
    shape = tuple(statistics[name] for name in ("active", "nodes", "leaves", "depth"))
    return Outcome(np.concatenate(predictions), np.concatenate(truth), shape, (report.conformance, report.feasibility))


def chosen(trial: Trial, among: tuple[int, ...], purpose: str) -> tuple[int, ...]:
    """Some exponents, others for each case; all of them nightly."""
    return among if volume.nightly else tuple(random.Random(f"{trial.name} {purpose}").sample(among, 2))


def require_equal(found: Outcome, expected: Outcome, what: str, unit: float = 1.0) -> None:
    """Require the same outcome, of predictions in another unit."""
    np.testing.assert_array_equal(found.predictions, expected.predictions * unit, what)
    assert found.shape == expected.shape, what
    assert found.verdicts == expected.verdicts, what


@every_case("other units")
def test_units_of_features(trial: Trial, tmp_path: Path) -> None:
    expected = outcome(trial, tmp_path)
    assert expected.verdicts[0] == "holds"
    for k in chosen(trial, FEATURES, "features"):
        require_equal(outcome(trial, tmp_path, lambda x, k=k: np.ldexp(x, k)), expected, f"features times 2**{k}")
    for offset in (-4096.0, 2.0**30):
        require_equal(outcome(trial, tmp_path, lambda x, by=offset: x + by), expected, f"features + {offset}")


@pytest.mark.parametrize("trial", REGRESSIONS, ids=lambda trial: trial.name)
def test_units_of_labels(trial: Trial, tmp_path: Path) -> None:
    expected = outcome(trial, tmp_path)
    assert expected.verdicts[0] == "holds"
    for j in chosen(trial, LABELS, "labels"):
        found = outcome(trial, tmp_path, of_labels=lambda y, j=j: np.ldexp(y, j))
        require_equal(found, expected, f"labels times 2**{j}", 2.0**j)


def error(found: Outcome, offset: float = 0.0) -> float:
    """Mean squared error of the predictions in the second half of the stream, in units of the labels' variance."""
    half = len(found.truth) // 2
    truth, predictions = found.truth[half:] - offset, found.predictions[half:] - offset
    known = ~np.isnan(truth) & ~np.isnan(predictions)
    return float(np.mean((truth - predictions)[known] ** 2) / np.var(truth[known]))


@pytest.mark.parametrize("trial", REGRESSIONS, ids=lambda trial: trial.name)
def test_an_offset_of_labels_costs_nothing(trial: Trial, tmp_path: Path) -> None:
    expected = error(outcome(trial, tmp_path))
    for offset in (1e3, -1e6, 1.7e9):
        found = outcome(trial, tmp_path, of_labels=lambda y, by=offset: y + by)
        assert found.verdicts[0] == "holds", offset
        assert error(found, offset) == pytest.approx(expected, abs=0.1), offset
