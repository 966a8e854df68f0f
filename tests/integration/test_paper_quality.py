"""The quality that the paper of FuDyADT states on Electricity."""

from __future__ import annotations

from pathlib import Path

import pytest

from raydt.evaluation.classification import Prequential
from raydt.examples.updates import CARRIES_ROW
from raydt.learners import learners
from raydt.sessions.session import InProcessSession
from raydt.sources.divided import open_source
from raydt.sources.options import ParquetFiles
from raydt.streams.options import make_stream
from raydt.streams.windows import Incremental


@pytest.mark.data
@pytest.mark.nightly
@pytest.mark.parametrize(("epsilon", "low", "high"), [(0.5, 81.9, 82.5), (0.15, 83.9, 84.5)])
def test_quality_of_the_paper(epsilon: float, low: float, high: float, data_dir: Path) -> None:
    """Prequential F1 of DOWN, insert-only from empty, h = 10, k = 1 (paper, Table 5: 82.12 at epsilon 0.5)."""
    learner = learners()["fudyadt"]
    source = open_source(ParquetFiles(path=str(data_dir / "electricity.parquet"), label="y", positive="DOWN"))
    options = learner.Options(kind="fudyadt", epsilon=epsilon, alpha=0, beta=0, max_depth=10)
    session = InProcessSession(learner, options, source.features, 1)
    metrics = Prequential(positive=True)
    for batch, result in session.process(make_stream(Incremental(), source).batches(4096)):
        metrics.update(batch.y, result.predictions[CARRIES_ROW[batch.op]])
    assert session.statistics()["active"] == 45312
    assert low <= 100 * metrics.scores()["f1"] <= high
