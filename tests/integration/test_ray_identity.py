"""One model (P1), on Ray: digest, predictions, metrics, log and statistics are those of the run in this process."""

from collections import Counter

import numpy as np
import pytest
from pydantic import TypeAdapter

from actors.session import RaySession
from raydt.evaluation.classification import Prequential
from raydt.examples.updates import CARRIES_ROW, INSERT, UPDATE
from raydt.learners import learners
from raydt.learners.base import WorkPlan
from raydt.sessions.session import InProcessSession
from raydt.sources.opening import open_source
from raydt.sources.options import SourceOptions
from raydt.streams.options import StreamOptions, make_stream

pytestmark = [pytest.mark.ray, pytest.mark.nightly]

LEARNER = learners()["fudyadt"]


def outcome(session, stream):
    """All that must be the same, and the number of rebuilds by place, which need not be."""
    predictions, metrics, log, places = [], Prequential(positive=True), {}, Counter()
    for batch, result in session.process(stream):
        predictions += result.predictions.tolist()
        learned = np.isin(batch.op, (INSERT, UPDATE))
        metrics.update(batch.y[learned[CARRIES_ROW[batch.op]]], result.predictions[learned])
        places.update(result.log.pop("place").tolist())
        for name in result.log.keys() - {"seconds"}:
            log.setdefault(name, []).extend(result.log[name].tolist())
    session.finish()
    statistics = session.statistics()
    same = {
        "digest": session.digest(),
        "predictions": predictions,
        # The AUC needs the scores of class 1, which are not asked for here.
        "metrics": {name: score for name, score in metrics.scores().items() if "auc" not in name},
        "baselines": metrics.snapshot(),
        "log": log,
        "statistics": {name: statistics[name] for name in ("active", "nodes", "leaves", "depth", "rebuilds")},
    }
    return same, places


@pytest.mark.data
def test_all_of_electricity(cluster, data_dir):
    """45,312 insertions; some rebuilds on the shards, and a cache for a third of the rows at the coordinator."""

    def source():
        options = {"kind": "parquet", "path": str(data_dir / "electricity.parquet"), "label": "y", "positive": "DOWN"}
        return open_source(TypeAdapter(SourceOptions).validate_python(options))

    def stream():
        return make_stream(TypeAdapter(StreamOptions).validate_python({"model": "incremental"}), source()).batches(4096)

    what = LEARNER, LEARNER.Options(kind="fudyadt", epsilon=0.5, alpha=0, beta=0, max_depth=10), source().features
    expected, _ = outcome(InProcessSession(*what), stream())
    assert len(expected["predictions"]) == expected["statistics"]["active"] == 45_312
    session = RaySession(cluster, *what, shards=2, plan=WorkPlan(40_000, 1_000_000))
    try:
        same, places = outcome(session, stream())
        assert same == expected
        assert places[1] > 0
        assert places[2] > 0
        assert [entry["requests"] > 0 for entry in session.work()] == [True, True]
    finally:
        session.close()
