"""Whole runs of change logs, tokens, regressions, tables, and windows of keys."""

from __future__ import annotations

import importlib
import json
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import pipelines
from pipelines import replay
from pipelines.cli import cli
from pipelines.config import load_config
from pipelines.display import validation_lines
from pipelines.prediction import predict_file
from pipelines.running.replay import replay as replay_regression
from pipelines.running.replay import replay as replay_tokens
from pipelines.sweeping.trials import sweep
from pipelines.updating import update
from pipelines.validation import look_at
from raydt import load_model
from raydt.errors import ConfigError, InputError, UpdateError
from raydt.evaluation.classification import Prequential
from raydt.examples.updates import CARRIES_ROW
from raydt.learners import learners
from raydt.messages import message
from raydt.sessions.session import InProcessSession
from raydt.sources.divided import open_source
from raydt.sources.options import ParquetFiles
from raydt.streams.windows import Incremental
from tests.cases import open_state
from tests.refusals import refused
from tests.small_tables import spelled_changelogs as spelled

# -- changelogs ------------------------------------------------------------------------------------------------------
# A change log of another system as a job: the same model as from plain operations, and errors a user can act on.


def changes(n=400, seed=3):
    """Inserts, updates and deletes that all take effect; ids come back."""
    rng, live, found = np.random.default_rng(seed), [], []
    for _ in range(n):
        kind = rng.choice(list("iiud")) if live else "i"
        if kind == "i":
            key = int(rng.choice(np.setdiff1d(np.arange(n), live)))
            live.append(key)
        else:
            key = live[int(rng.integers(len(live)))]
        if kind == "d":
            live.remove(key)
        a, s = float(rng.normal()), str(rng.choice(list("pqr")))
        found.append((str(kind), key, a, s, "yes" if (a > 0) ^ (s == "p") else "no"))
    return found


def run(folder, table, **options):
    pq.write_table(table, folder / "log.parquet", row_group_size=50)
    config = {
        "source": {"kind": "parquet", "path": str(folder / "log.parquet"), "id": "id", "op": "op", **options},
        "stream": {"model": "changelog"},
        "learner": {"kind": "fudyadt"},
        "cluster": {"backend": "in_process", "batch_size": 37},
        "output": {"report": False},
    }
    return replay(config, folder / "run")


def test_a_truncate_stops_the_run_before_it(tmp_path):
    log = spelled(changes(50), "debezium")
    more = pa.concat_tables([log, log.slice(0, 1).set_column(0, "op", pa.array(["t"])), log])
    with refused("rows.truncate", InputError, row=50, column="op", value="'t'"):
        run(tmp_path, more)
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (summary["status"], summary["updates"]) == ("failed", 50)


def test_a_snapshot_of_what_is_live_is_refused(tmp_path):
    log = spelled([("i", 1, 0.0, "p", "no"), ("i", 2, 1.0, "q", "yes"), ("i", 1, 0.0, "p", "no")], "envelope")
    with pytest.raises(InputError, match=r"row 2: update 2: .* is live \(id 1\)"):
        run(tmp_path, log, envelope="debezium")


def test_validate_says_how_many_updates_there_are_at_most(tmp_path):
    table = spelled([("i", 1, 0.0, "p", "no"), ("u", 1, 1.0, "q", "yes")], "flink")
    pq.write_table(table, tmp_path / "log.parquet")
    pacsv.write_csv(table, str(tmp_path / "log.csv"))
    for kind, words in (("parquet", "at most 3"), ("csv", message("commands.unknown_length"))):
        source = {"kind": kind, "path": str(tmp_path / f"log.{kind}"), "id": "id", "op": "op"}
        config = load_config({"source": source, "stream": {"model": "changelog"}, "learner": {"kind": "fudyadt"}})
        lines = [line.split(maxsplit=1) for line in validation_lines(look_at(config), "c").splitlines()]
        assert dict(lines)["updates"].strip() == words


# -- best split tokens -----------------------------------------------------------------------------------------------
# Rows of tokens through all commands: coded in order of first appearance, and called by their names.

N = 400
WORDS = [f"word{i}" for i in range(150)]


def rows(n: int, seed: int) -> tuple[list[list[str]], list[str]]:
    """Rows of few words; ``offer``, later ``prize``, goes with spam."""
    rng = np.random.default_rng(seed)
    lists, labels = [], []
    for i in range(n):
        spam = rng.random() < 0.4
        row = [WORDS[j] for j in rng.integers(0, len(WORDS), rng.integers(0, 6))]
        if spam and rng.random() < 0.9:
            row.append("offer" if i < n // 2 else "prize")
        lists.append(row)
        labels.append("spam" if spam else "ham")
    return lists, labels


def write(path: Path, lists: list[list[str]], labels: list[str]) -> Path:
    pq.write_table(pa.table({"text": pa.array(lists, pa.list_(pa.string())), "y": labels}), path)
    return path


def config(data: Path, **cluster: Any) -> dict[str, Any]:
    return {
        "source": {"kind": "parquet", "path": str(data), "positive": "spam", "n_features": 200},
        "stream": {"model": "sliding_window", "window": 100, "warmup": 30},
        "learner": {"kind": "best_split"},
        "cluster": {"backend": "in_process", "shards": 1, **cluster},
        "checkpoint": {"every_updates": 70, "every_seconds": None},
        "output": {"metrics_every": 50},
    }


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("data") / "rows.parquet", *rows(N, 1))


@pytest.fixture(scope="module")
def run_tokens(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(replay_tokens(config(data), tmp_path_factory.mktemp("runs") / "tokens").path)


def summary_of(run: Path) -> dict[str, Any]:
    summary: dict[str, Any] = json.loads((run / "summary.json").read_text())
    return summary


def test_the_best_feature_is_a_word(run_tokens: Path, data: Path) -> None:
    summary = summary_of(run_tokens)
    seen = list(dict.fromkeys(word for row in rows(N, 1)[0] for word in row))
    assert summary["split"]["name"] == "prize"
    assert seen[summary["split"]["feature"]] == "prize"
    ended = CliRunner().invoke(cli, ["audit", str(run_tokens)])
    assert ended.exit_code == 0
    assert "prize" in ended.stdout


def test_predictions_and_updates(run_tokens: Path, tmp_path: Path) -> None:
    new = write(tmp_path / "new.parquet", [["never seen", "prize"], ["never"], []], ["spam", "ham", "ham"])
    predict_file(run_tokens, new, tmp_path / "out.parquet")
    assert pq.read_table(tmp_path / "out.parquet")["prediction"].to_pylist() == ["spam", "ham", "ham"]
    receipt = update(run_tokens, insert=new, out=tmp_path / "second")
    assert receipt.active == 103
    second = load_model(tmp_path / "second")
    table = pq.read_table(new).select(["text"])
    assert second.predict(table).tolist()[0] == "spam"
    # What came last has names of its own, also after a way through an estimator.
    second.save(tmp_path / "third", with_examples=True)
    tokens = json.loads((tmp_path / "third" / "manifest.json").read_text())["meta"]["categories"]["text"]
    assert tokens[-2:] == ["never seen", "never"]
    with refused("rows.unknown_token", InputError, row=0, column="text", value="'nobody'"):
        second.partial_fit(pa.table({"text": pa.array([["nobody"]], pa.list_(pa.string()))}), ["ham"])
    with refused("rows.unknown_token", InputError, value="'nobody'"):
        second.forget_examples(pa.table({"text": pa.array([["nobody"]], pa.list_(pa.string()))}), ["ham"])


def test_indices_are_not_tokens(run_tokens: Path, tmp_path: Path) -> None:
    column = pa.array([[1], []], pa.list_(pa.int32()))
    pq.write_table(pa.table({"text": column, "y": ["ham", "spam"]}), tmp_path / "indices.parquet")
    with pytest.raises(InputError, match="the model knows lists of tokens in this column"):
        predict_file(run_tokens, tmp_path / "indices.parquet", tmp_path / "out.parquet")


def test_too_many_tokens_are_one_clear_error(run_tokens: Path, data: Path, tmp_path: Path) -> None:
    job = config(data)
    job["source"]["n_features"] = 20
    with refused("rows.token_beyond", InputError, file=str(data), column="text", width=20):
        replay_tokens(job, tmp_path / "run")
    lists = [[f"new{i}" for i in range(100)]]
    with refused("rows.token_beyond", InputError, row=0, column="text", width=200):
        update(run_tokens, insert=write(tmp_path / "many.parquet", lists, ["ham"]), out=tmp_path / "second")


# -- regression ------------------------------------------------------------------------------------------------------
# A regression through all commands: replay, predict, update, audit history, report, sweep; numbers in and out.

RNG = np.random.default_rng(8)
X = np.round(RNG.normal(size=(600, 3)), 2)
Y = np.round(2.0 * X[:, 0] - X[:, 1] + 50.0, 3)
LEARNER = {
    "kind": "gbdt",
    "objective": "squared_error",
    "max_iter": 15,
    "max_leaf_nodes": 6,
    "max_bins": 64,
    "update_every": 50,
}


def table(X: np.ndarray, y: np.ndarray | None = None, **columns: Any) -> pa.Table:
    named = {"a": pa.array(X[:, 0], mask=X[:, 0] > 2.0), "b": X[:, 1], "c": X[:, 2], **columns}
    return pa.table(named if y is None else {**named, "y": y})


@pytest.fixture(scope="module")
def config_regression(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("numbers")
    pq.write_table(table(X, Y), folder / "t.parquet")
    return {
        "source": {"kind": "parquet", "path": str(folder / "t.parquet")},
        "stream": {"model": "sliding_window", "window": 300, "warmup": 200},
        "learner": LEARNER,
        "cluster": {"backend": "in_process"},
        "output": {"predictions": True, "metrics_every": 100},
    }


@pytest.fixture(scope="module")
def run_regression(config_regression: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    assert replay_regression(config_regression, folder).status == "completed"
    return folder


def test_summary_tables_and_report(run_regression: Path) -> None:
    summary = json.loads((run_regression / "summary.json").read_text())
    scores = ["mse", "rmse", "mae", "r2"]
    assert list(summary["metrics"]) == [*scores, *(f"faded_{score}" for score in scores)]
    assert list(summary["baselines"]) == ["no_change", "mean"]
    assert summary["metrics"]["mse"] < summary["baselines"]["mean"]
    assert (summary["classes"], summary["positive"]) == ([], None)
    predictions = pq.read_table(run_regression / "predictions").to_pandas()
    assert len(predictions) == summary["predictions"] == 400
    np.testing.assert_array_equal(predictions["truth"], Y[200:])
    error = predictions["truth"] - predictions["prediction"]
    assert (error**2).mean() == pytest.approx(summary["metrics"]["mse"])
    metrics = pq.read_table(run_regression / "metrics").to_pandas()
    assert metrics["mse"].iloc[-1] == summary["metrics"]["mse"]
    assert {"mae", "r2", "window_mse", "no_change", "mean", "window_no_change", "window_mean"} <= set(metrics)
    events = pq.read_table(run_regression / "events").to_pandas()
    assert (events["inserts"] + events["deletes"]).sum() == 900


def test_predictions_of_a_file_are_numbers(run_regression: Path, tmp_path: Path) -> None:
    pq.write_table(table(X[:20]), tmp_path / "new.parquet")
    result = predict_file(run_regression, tmp_path / "new.parquet", tmp_path / "out.parquet")
    assert (result["rows"], result["classes"]) == (20, [])
    out = pq.read_table(tmp_path / "out.parquet")
    assert out.schema == pa.schema([("prediction", pa.float64())])
    assert np.corrcoef(out["prediction"].to_numpy(), Y[:20])[0, 1] > 0.8


def test_an_update_takes_numbers(run_regression: Path, tmp_path: Path) -> None:
    pq.write_table(table(X[:10], Y[:10] + 0.5), tmp_path / "new.parquet")
    pq.write_table(pa.table({"id": [400, 401]}), tmp_path / "gone.parquet")
    files = {"insert": tmp_path / "new.parquet", "delete": tmp_path / "gone.parquet"}
    receipt = update(run_regression, out=tmp_path / "state", **files)
    assert receipt.digest_before != receipt.digest_after
    np.testing.assert_array_equal(receipt.deletions["label"], Y[[400, 401]])
    saved, _ = open_state(tmp_path / "state")
    assert (saved.arrays["y"].dtype, len(saved.arrays["y"]), saved.classes) == (np.float64, 308, [])
    assert set(Y[:10] + 0.5) <= set(saved.arrays["y"].tolist())


def test_an_update_with_a_target_far_away_takes_nothing(run_regression: Path, tmp_path: Path) -> None:
    far = Y[:10].copy()
    far[3] = 1e6
    pq.write_table(table(X[:10], far), tmp_path / "new.parquet")
    pq.write_table(pa.table({"id": [400, 401]}), tmp_path / "gone.parquet")
    files = {"insert": tmp_path / "new.parquet", "delete": tmp_path / "gone.parquet"}
    with refused("updates.refused_label", UpdateError, row=3, column="y", label="1000000.0"):
        update(run_regression, out=tmp_path / "state", **files)
    assert not (tmp_path / "state").exists()


def test_a_sweep_says_that_it_compares_accuracies(config_regression: dict[str, Any], tmp_path: Path) -> None:
    with refused("sweeps.numbers", ConfigError):
        sweep(config_regression, ["learner.max_iter=5,10"], out=tmp_path / "sweep")


# -- ten tables ------------------------------------------------------------------------------------------------------
# Tables from a file to an audited model with a config of at most eight lines (``benchmarks/ten_tables.py``).

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def program() -> ModuleType:
    sys.path.insert(0, str(BENCHMARKS))
    try:
        return importlib.import_module("ten_tables")
    finally:
        sys.path.remove(str(BENCHMARKS))


def walked(program: ModuleType, name: str, rows: int | None, folder: Path) -> list[str]:
    """The cells of a table, taken all the way."""
    table = program.table_of(name, program.DATA, rows)
    if table is None:
        pytest.skip(f"{name} is not in {program.DATA}")
    cells: list[str] = program.walk(name, table, folder)
    return cells


@pytest.mark.parametrize("name", ["noshow", "clinic", "accounts", "sensors"])
def test_a_table_with_times_persons_and_holes(program: ModuleType, name: str, tmp_path: Path) -> None:
    cells = walked(program, name, 600, tmp_path)
    assert cells[-1] == "proven"
    assert ("persons" in cells[-2]) == (program.TRIALS[name].delete == "subject")


@pytest.mark.nightly
def test_all_tables(program: ModuleType, tmp_path: Path) -> None:
    assert len(program.TRIALS) == 10
    for name in program.TRIALS:
        if program.table_of(name, program.DATA, 10) is not None:
            (tmp_path / name).mkdir()
            walked(program, name, None, tmp_path / name)


def test_configs_are_short(program: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    program.main(["--configs"])
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 120
    assert max(trial.config.count("\n") for trial in program.TRIALS.values()) <= 8


# -- paper quality ---------------------------------------------------------------------------------------------------
# The quality that the paper of FuDyADT states on Electricity.


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
    for batch, result in session.process(Incremental().make(source).batches(4096)):
        metrics.update(batch.y, result.predictions[CARRIES_ROW[batch.op]])
    assert session.statistics()["active"] == 45312
    assert low <= 100 * metrics.scores()["f1"] <= high


# -- windows of keys -------------------------------------------------------------------------------------------------
# Hours of many keys in one job with a window of days by event time: each key is as in a run of its rows alone.

NAMES = [f"x{j}" for j in range(10)]
#: Keys, days and days of the window.
SMALL, LARGE = (50, 5, 3), (2_000, 90, 60)


def rows_keys(keys: int, days: int) -> pa.Table:
    """Every key has a row at every hour; the label tells on which side of a plane of the key's own the row is."""
    draw, hours = np.random.default_rng(5), 24 * days
    X = draw.standard_normal((hours, keys, len(NAMES)))
    side = np.einsum("hkj,kj->hk", X, draw.standard_normal((keys, len(NAMES))))
    began = datetime(2026, 1, 1, tzinfo=timezone.utc)
    times = pa.array([began + timedelta(hours=hour) for hour in range(hours)], pa.timestamp("us", "UTC"))
    return pa.table(
        {
            "time": times.take(pa.array(np.repeat(np.arange(hours), keys))),
            "store": np.tile(np.arange(keys), hours),
            **{name: X[:, :, j].ravel() for j, name in enumerate(NAMES)},
            "y": (side + 0.5 * draw.standard_normal(side.shape) > 0).astype(np.int64).ravel(),
        }
    )


def replayed(table: pa.Table, folder: Path, window: int, key: str | None) -> pipelines.RunResult:
    folder.mkdir()
    pq.write_table(table, folder / "rows.parquet")
    config: dict[str, Any] = {
        "source": {"kind": "parquet", "path": str(folder / "rows.parquet"), "label": "y", "key": key, "ts": "time"},
        "stream": {"model": "time_window", "duration": f"{window}d"},
        "learner": {"kind": "fudyadt"},
        "cluster": {"backend": "in_process"},
        "checkpoint": {"every_seconds": None},
        "output": {"report": False},
    }
    return pipelines.replay(config, folder / "run")


def found_in(run: pipelines.RunResult) -> dict[int, dict[str, Any]]:
    return {row["key"]: row for row in ds.dataset(Path(run.path) / "keys").to_table().to_pylist()}


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> tuple[pa.Table, dict[int, dict[str, Any]]]:
    """The large job: its rows, and its table of keys."""
    keys, days, window = LARGE
    whole = rows_keys(keys, days)
    return whole, found_in(replayed(whole, tmp_path_factory.mktemp("windows") / "whole", window, "store"))
