"""Scores of rows held out against scikit-learn, which rows are held out, and what a training run says of both."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from sklearn.calibration import calibration_curve
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.metrics import (
    accuracy_score,
    average_precision_score,
    brier_score_loss,
    f1_score,
    log_loss,
    mean_absolute_error,
    mean_squared_error,
    precision_score,
    r2_score,
    recall_score,
)

import pipelines
from pipelines.display import run_lines
from pipelines.report.holdout import verdict
from pipelines.report.page import render
from pipelines.training import training_config
from raydt.errors import ConfigError
from raydt.evaluation.classification import Prequential
from raydt.evaluation.holdout import Graded, HoldOutScores
from raydt.evaluation.regression import PrequentialErrors
from raydt.examples.updates import UNIT, Features
from raydt.sources.base import Rows
from raydt.sources.divided import open_source
from raydt.streams.windows import HoldOut, Training, TrainingStream, good_rows
from tests.refusals import refused

N = 600
FEATURES = Features(("a", "b"), (False, True))


def predicted_rows(classes: int, seed: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Labels, and probabilities with ties that tell something of them."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(classes, size=N).astype(np.int32)
    raw = rng.integers(1, 9, size=(N, classes)).astype(np.float64)
    raw[np.arange(N), truth] += rng.integers(4, size=N)
    return truth, raw / raw.sum(axis=1, keepdims=True)


def rows_of(truth: np.ndarray, weight: np.ndarray | None = None, subject: np.ndarray | None = None) -> Rows:
    n = len(truth)
    X = np.column_stack([np.arange(n) % 40, np.arange(n) % 3]).astype(np.float64)
    return Rows(np.arange(n), X, truth, np.arange(n), weight=weight, subject=subject)


def held(truth: np.ndarray, shares: np.ndarray, cuts: Any = (), unit: int = 1, **given: Any) -> HoldOutScores:
    """Predictions of the most probable class, added in parts that end at ``cuts``."""
    prior = np.bincount(truth[: N // 2], minlength=shares.shape[1]) / (N // 2)
    found = HoldOutScores((Prequential(weighted=unit > 1), Prequential(weighted=unit > 1)), prior, FEATURES, unit)
    found.observe(lambda: np.array([0.7, 0.3]))
    rows = rows_of(truth, **given)
    for begin, end in zip([0, *cuts], [*cuts, N], strict=True):
        at = np.arange(begin, end)
        rival = np.full(len(at), prior.argmax(), dtype=np.int32)
        found.add(rows[at], shares[at].argmax(axis=1).astype(np.int32), shares[at], rival)
    return found


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("classes", [2, 3])
def test_scores_are_those_of_scikit_learn(classes: int, weighted: bool) -> None:
    truth, shares = predicted_rows(classes)
    weight = np.random.default_rng(5).integers(1, 5, size=N)
    units = {"unit": UNIT, "weight": (weight * UNIT).astype(np.uint32)} if weighted else {}
    given = {"sample_weight": weight} if weighted else {}
    model, constant = held(truth, shares, **units).scores()
    dummy = DummyClassifier(strategy="prior").fit(np.zeros((N // 2, 1)), truth[: N // 2])
    prior = dummy.predict_proba(np.zeros((N, 1)))
    for scores, of in ((model, shares), (constant, prior)):
        labels = of.argmax(axis=1)
        probability = of[:, 1] if classes == 2 else of
        assert scores["accuracy"] == pytest.approx(accuracy_score(truth, labels, **given), rel=1e-12)
        assert scores["macro_f1"] == pytest.approx(f1_score(truth, labels, average="macro", **given), rel=1e-12)
        assert scores["log_loss"] == pytest.approx(log_loss(truth, of, **given), rel=1e-12)
        expected = brier_score_loss(truth, probability, **given)
        assert scores["brier"] == pytest.approx(expected, rel=1e-12)
        if classes == 2:
            expected = average_precision_score(truth, probability, **given)
            assert scores["average_precision"] == pytest.approx(expected, rel=1e-12)
        else:
            assert "average_precision" not in scores


def test_certain_and_wrong_probabilities_have_a_finite_loss() -> None:
    truth, shares = predicted_rows(2)
    shares = np.eye(2)[shares.argmax(axis=1)]
    model, _ = held(truth, shares).scores()
    assert model["log_loss"] == pytest.approx(log_loss(truth, shares), rel=1e-12)


def test_curves_are_those_of_scikit_learn() -> None:
    truth, shares = predicted_rows(2)
    curves = held(truth, shares).curves()
    observed, predicted = calibration_curve(truth, shares[:, 1], n_bins=10)
    assert [one["observed"] for one in curves["calibration"]] == pytest.approx(observed.tolist(), rel=1e-12)
    assert [one["predicted"] for one in curves["calibration"]] == pytest.approx(predicted.tolist(), rel=1e-12)
    assert sum(one["rows"] for one in curves["calibration"]) == N
    for one in curves["gains"]:
        chosen = shares[:, 1] >= one["threshold"]
        assert (one["rows"], one["share"]) == (chosen.sum(), chosen.mean())
        assert one["precision"] == precision_score(truth, chosen)
        assert one["recall"] == recall_score(truth, chosen)
    assert curves["gains"][-1]["share"] == 1.0


def test_no_figure_depends_on_the_parts_in_which_rows_come() -> None:
    truth, shares = predicted_rows(2)
    subject = np.array([f"p{i % 90}" for i in range(N)], dtype=np.object_)
    one, other = (held(truth, shares, cuts, subject=subject) for cuts in ((), (1, 17, 400)))
    names = {"b": {0.0: "u", 1.0: "v", 2.0: "w"}}
    for figures in (
        HoldOutScores.scores,
        HoldOutScores.curves,
        HoldOutScores.difference,
        lambda held_out: held_out.segments(names),
    ):
        assert figures(one) == figures(other)


def test_segments_count_ranges_and_categories() -> None:
    truth, shares = predicted_rows(2)
    by_number, by_category = held(truth, shares).segments({"b": {0.0: "u", 1.0: "v", 2.0: "w"}})
    right, a = shares.argmax(axis=1) == truth, np.arange(N) % 40
    assert (by_number["feature"], by_category["feature"]) == ("a", "b")
    assert [one["name"] for one in by_category["segments"]] == ["u", "v", "w"]
    first = by_number["segments"][0]
    assert (first["name"], first["rows"]) == ("up to 10", np.count_nonzero(a <= 10))
    assert first["score"] == pytest.approx(right[a <= 10].mean(), rel=1e-12)
    assert sum(one["rows"] for one in by_number["segments"]) == N


def test_numbers_have_the_scores_of_the_mean_beside_them() -> None:
    rng = np.random.default_rng(1)
    truth = rng.normal(size=N)
    guess = truth + rng.normal(size=N)
    found = HoldOutScores((PrequentialErrors(), PrequentialErrors()), np.zeros(0), FEATURES)
    found.observe(None)
    for evaluation in (found.model, found.constant):
        evaluation.rivals(truth[:1])
    mean = np.full(N, truth[:300].mean())
    found.add(rows_of(truth), guess, None, mean)
    dummy = DummyRegressor().fit(np.zeros((300, 1)), truth[:300]).predict(np.zeros((N, 1)))
    for scores, of in zip(found.scores(), (guess, dummy), strict=True):
        assert scores["mse"] == pytest.approx(mean_squared_error(truth, of), rel=1e-12)
        assert scores["mae"] == pytest.approx(mean_absolute_error(truth, of), rel=1e-12)
        assert scores["r2"] == pytest.approx(r2_score(truth, of), rel=1e-9, abs=1e-12)
    low, high = found.difference()
    assert low < mean_squared_error(truth, dummy) - mean_squared_error(truth, guess) < high
    assert found.curves() == {"calibration": [], "gains": []}


def test_average_precision_needs_a_positive_example() -> None:
    graded = Graded.of(np.array([0.2, 0.9]), np.zeros(2, dtype=np.bool_), np.ones(2, dtype=np.int64))
    assert np.isnan(graded.average_precision())


# Which rows are held out.


def table(folder: Path) -> Path:
    """Rows of 60 persons, in the order of days that have ten rows each."""
    at = np.arange(N)
    columns = {
        "a": (at * 7) % 41,
        "b": np.where(at % 5, "u", "v"),
        "person": (at * 37) % 60,
        "day": pa.array(at // 10 * 86_400_000_000, pa.timestamp("us")),
        "y": np.where((at * 7) % 41 + at % 3 > 20, "yes", "no"),
    }
    pq.write_table(pa.table(columns), folder / "rows.parquet")
    return folder / "rows.parquet"


def config_of(folder: Path, **stream: Any) -> dict[str, Any]:
    return {
        "source": {"kind": "parquet", "path": str(table(folder)), "subject": "person", "ts": "day", "positive": "yes"},
        "learner": {"kind": "fudyadt", "max_depth": 4},
        "stream": {"model": "training", **stream},
        "output": {"report": True},
    }


def divided(folder: Path, **stream: Any) -> tuple[Rows, np.ndarray, HoldOut]:
    """All rows, which are held out, and what decided it."""
    config = training_config(config_of(folder, **stream))
    assert isinstance(config.stream, Training)
    source = open_source(config.source)
    holdout = HoldOut(config.stream, source)
    rows = Rows.joined(list(good_rows(source, 1000)))
    return rows, holdout.of(rows), holdout


def test_a_subject_is_on_one_side(tmp_path: Path) -> None:
    for by in ("auto", "subject"):
        rows, out, holdout = divided(tmp_path, holdout_by=by)
        assert holdout.by == "subject"
        assert rows.subject is not None
        assert not {*rows.subject[out].tolist()} & {*rows.subject[~out].tolist()}
        assert 0 < out.mean() < 0.5
        eighth, half = (holdout.rest(rows, part) for part in (0.125, 0.5))
        assert not (eighth & ~half).any()
        assert not (half & out).any()
        assert (holdout.rest(rows, 1.0) == ~out).all()


@pytest.mark.parametrize("by", ["time", "order"])
def test_the_latest_rows_are_held_out(by: str, tmp_path: Path) -> None:
    rows, out, holdout = divided(tmp_path, holdout_by=by, holdout=0.25)
    assert (out == (np.arange(N) >= 450)).all()
    _, fewer, _ = divided(tmp_path, holdout_by=by, holdout=0.205)
    assert (fewer == (np.arange(N) >= (480 if by == "time" else 477))).all()
    assert (holdout.rest(rows, 1.0) == ~out).all()


def test_what_decides_has_to_be_in_the_source(tmp_path: Path) -> None:
    for by, column, said in (
        ("subject", "subject", "streams.holdout_without_subject"),
        ("time", "ts", "sources.no_times"),
    ):
        config = config_of(tmp_path, holdout_by=by)
        config["source"]["exclude"] = [config["source"].pop(column)]
        with refused(said, ConfigError):
            pipelines.train(config, tmp_path / f"run-{by}")


def test_a_rest_without_subjects_goes_by_id(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    del config["source"]["subject"]
    stream = training_config(config).stream
    assert isinstance(stream, Training)
    made = stream.make(open_source(training_config(config).source))
    assert isinstance(made, TrainingStream)
    assert made.rest().holdout.by == "id"


def test_a_training_run_says_where_it_does_not_beat_the_constant(tmp_path: Path) -> None:
    config = config_of(tmp_path, holdout_by="time", learning_curve=True)
    run = pipelines.train(config, tmp_path / "run")
    holdout = run.summary["holdout"]
    assert (holdout["by"], holdout["rows"], holdout["trained_on"]) == ("time", 120, 480)
    assert [one["trained_on"] for one in holdout["learning_curve"]] == sorted(
        one["trained_on"] for one in holdout["learning_curve"]
    )
    assert holdout["learning_curve"][-1]["accuracy"] == run.metrics["accuracy"]
    assert holdout["constant"]["accuracy"] == run.summary["baselines"]["majority"]
    json.dumps(run.summary, allow_nan=False)
    page = render([Path(run.path)])
    assert all(f">{title}</h2>" in page for title in ("Hold-out", "Calibration", "Gains", "Errors by segment"))
    assert "null" not in page.split(">Configuration</h2>")[1].split("</pre>")[0]
    assert "over the stream" not in page
    assert page.index("<summary>Show the tree</summary>") < page.index('class="tree')

    constant = {**config, "learner": {"kind": "fudyadt", "max_depth": 0}}
    lost = pipelines.train(constant, tmp_path / "lost").summary
    assert "does not beat majority" in " ".join(run_lines(lost, "lost").split())


def test_a_verdict_names_each_score_that_is_no_better() -> None:
    summary: dict[str, Any] = {
        "metrics": {"accuracy": 0.9, "auc": 0.8, "log_loss": 0.9},
        "baselines": {"majority": 0.8},
        "holdout": {"constant": {"accuracy": 0.8, "auc": 0.5, "log_loss": 0.5}, "difference": [0.05, 0.15]},
    }
    sentences, better = verdict(summary)
    assert not better
    assert [sentence.split(" ")[1] for sentence in sentences] == ["learner", "is", "is"]
    assert "beats majority" in sentences[0]
    assert "AUC" in sentences[1]
    assert "no better" in sentences[2]
    assert "log loss" in sentences[2]
    summary["metrics"]["log_loss"] = 0.4
    assert verdict(summary)[1]


# -- by key ----------------------------------------------------------------------------------------------------------


def table_of_keys(folder: Path, *, numbers: bool = False) -> pa.Table:
    """Rows of three keys of unequal rules, sizes and labels, of which one has a row only."""
    rng = np.random.default_rng(11)
    key = np.array(["north"] * 300 + ["south"] * 120 + ["once"])[rng.permutation(421)]
    a, b = rng.random(421).round(3), rng.choice(["p", "q"], 421)
    rule = np.where(key == "north", a > 0.4, b == "q") ^ (rng.random(421) < 0.1)
    label = np.where(key == "north", "x", "z").astype(object)
    label[rule] = "y"
    y = a + rule if numbers else label
    table = pa.table({"id": [f"r{i}" for i in range(421)], "key": key, "a": a, "b": b, "y": y})
    pq.write_table(table, folder / "all.parquet")
    return table


@pytest.mark.parametrize("numbers", [False, True])
@pytest.mark.parametrize("batch_size", [7, 4096])
def test_each_key_is_scored_as_its_rows_alone_are(tmp_path: Path, numbers: bool, batch_size: int) -> None:
    table = table_of_keys(tmp_path, numbers=numbers)
    objective = {"objective": "squared_error"} if numbers else {}
    learner = {"kind": "gbdt", "max_iter": 5, **objective}

    def trained(name: str, **source: Any) -> pipelines.RunResult:
        given = {"kind": "parquet", "path": str(tmp_path / f"{name}.parquet"), "id": "id", **source}
        cluster = {"batch_size": batch_size if source.get("key") else 4096}
        config = {
            "source": given,
            "learner": learner,
            "cluster": cluster,
            "output": {"report": bool(source.get("key"))},
        }
        return pipelines.train(config, tmp_path / f"run-{name}")

    of_all = trained("all", key="key")
    keys = {row["key"]: row for row in pq.read_table(tmp_path / "run-all" / "keys").to_pylist()}
    rows, good, behind = 0, 0.0, 0.0
    score, rival = ("mse", "mean") if numbers else ("accuracy", "majority")
    for key in ("north", "south"):
        pq.write_table(table.filter(pc.equal(table["key"], key)).drop_columns(["key"]), tmp_path / f"{key}.parquet")
        alone = trained(key)
        assert keys[key]["predictions"] == alone.summary["holdout"]["rows"] > 0
        assert keys[key][score] == pytest.approx(alone.metrics[score], rel=1e-12)
        assert keys[key][rival] == pytest.approx(alone.summary["baselines"][rival], rel=1e-12)
        n = alone.summary["holdout"]["rows"]
        rows, good = rows + n, good + n * alone.metrics[score]
        behind += n * alone.summary["baselines"][rival]
    held_out = of_all.summary["holdout"]
    assert held_out["rows"] == rows
    assert held_out["rows"] + held_out["trained_on"] + held_out["without_model"] == len(table)
    assert of_all.metrics[score] == pytest.approx(good / rows, rel=1e-12)
    assert of_all.summary["baselines"][rival] == pytest.approx(behind / rows, rel=1e-12)
    assert "of_keys" not in held_out
    assert "scored on" in run_lines(of_all.summary, "run")


def test_persons_and_times_are_held_out_of_all_keys(tmp_path: Path) -> None:
    table = table_of_keys(tmp_path)
    table = table.append_column("who", pa.array([f"p{i % 40}" for i in range(len(table))]))
    pq.write_table(table.append_column("day", pa.array(range(len(table)))), tmp_path / "all.parquet")
    source = {"kind": "parquet", "path": str(tmp_path / "all.parquet"), "id": "id", "key": "key"}
    source |= {"subject": "who", "ts": "day"}
    for by, stream in (("subject", {}), ("time", {"holdout_by": "time"}), ("order", {"holdout_by": "order"})):
        config = {"source": source, "stream": {"model": "training", **stream}, "learner": {"kind": "fudyadt"}}
        found = pipelines.train({**config, "output": {"report": False}}, tmp_path / by).summary["holdout"]
        assert found["by"] == by
        assert 40 < found["rows"] + found["without_model"] < 130
        if by != "subject":
            assert found["rows"] + found["without_model"] == 84
