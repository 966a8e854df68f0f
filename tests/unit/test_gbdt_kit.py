"""Verification kit and benchmarks of the in-place GBDT (benchmarks/gbdt): their core at tiny sizes."""

from __future__ import annotations

import importlib
from functools import partial
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

pytestmark = pytest.mark.nightly

ROOT = Path(__file__).parents[2]
#: Commands that start neither Ray nor a process of their own.
WITHOUT_OTHER_PROCESSES = (
    *("training", "updates", "backdoor", "membership", "poisoning", "similarity", "leaf-scores", "ranks", "ablation"),
    *("batches", "tenths", "streams"),
)
TINY = {"max_iter": 3, "max_leaf_nodes": 4, "max_bins": 16}


@pytest.fixture(autouse=True)
def _kit(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    contestants = importlib.import_module("gbdt.contestants")

    def ours(split, rows=None, **_):
        return contestants.fitted(split, rows, **TINY)

    for module in ("poisoning", "cumulative", "ablation"):
        kit = importlib.import_module(f"gbdt.{module}")
        if not find_spec("lightgbm"):  # a peer is a dependency of the benchmarks only
            monkeypatch.setattr(kit, "lightgbm", ours)
    speed = importlib.import_module("gbdt.speed")
    monkeypatch.setattr(speed, "CONTESTANTS", dict.fromkeys(("LightGBM", "XGBoost", "ours"), ours))
    streams = importlib.import_module("gbdt.streams")
    monkeypatch.setattr(streams, "PEERS", dict.fromkeys(("LightGBM", "XGBoost"), ours))


def _data(classes: int, rows: int = 150, missing: bool = False):
    from gbdt.data import Split

    rng = np.random.default_rng(3)
    X = rng.normal(size=(rows + 60, 4)).round(1)
    score = X[:, 0] + X[:, 1] + 0.2 * rng.normal(size=len(X))
    X[:, 3] = X[:, 3] > 0
    if missing:
        X[rng.random(len(X)) < 0.1, 2] = np.nan
    y = score if classes == 0 else np.searchsorted(np.linspace(-1.0, 1.0, classes - 1), score)
    return Split("tiny", X[:rows], y[:rows], X[rows:], y[rows:], classes == 0)


def _stream(classes: int):
    data = _data(classes)
    return type(data)("tiny", data.X, data.y, data.X[:0], data.y[:0])


@pytest.fixture(params=[2, 3], ids=["binary", "multiclass"])
def split(request):
    return _data(request.param, missing=True)


def test_every_command_has_its_module():
    from gbdt.command import COMMANDS

    for module, what in COMMANDS.values():
        assert what
        assert callable(importlib.import_module(f"gbdt.{module}").run)


@pytest.mark.parametrize("name", WITHOUT_OTHER_PROCESSES)
def test_a_command_prints_its_tables(monkeypatch, capsys, name):
    from gbdt import ablation, cumulative, poisoning, streams
    from gbdt.command import COMMANDS, Request
    from gbdt.data import SERIES, SETS, STREAMS

    import raydt

    monkeypatch.setitem(SETS, "adult", lambda: _data(2))
    monkeypatch.setitem(SETS, "pendigits", lambda: _data(3))
    monkeypatch.setitem(SERIES, "demand", lambda seed: _data(0))
    for number, stream in enumerate(("electricity", "poker")):
        monkeypatch.setitem(STREAMS, stream, lambda classes=number + 2: _stream(classes))
    windows = [(stream, 60) for stream in ("electricity", "poker")]
    cases = [streams.Case(stream, window, 20, None, 3, 4) for stream, window in (*windows, ("adult", 0))]
    monkeypatch.setattr(streams, "CASES", cases)
    monkeypatch.setattr(poisoning, "FLIPPED", 30)
    monkeypatch.setattr(ablation, "SWEEPS", {"max_leaf_nodes": ("Figure 11", (3,))})
    for kind in ("Classifier", "Regressor"):
        whole = getattr(raydt, f"OnlineGradientBoosting{kind}")
        monkeypatch.setattr(raydt, f"OnlineGradientBoosting{kind}", partial(_small, whole))
    data = {"tenths": "demand", "membership": "pendigits", "backdoor": "pendigits"}.get(name, "adult")
    if name == "batches":
        monkeypatch.setattr(cumulative, "BATCHES", 3)
    chosen = ("electricity", "poker", "adult") if name == "streams" else (data,)
    request = Request(name, chosen, () if name == "updates" else ("never",), seeds=1)
    importlib.import_module(f"gbdt.{COMMANDS[name][0]}").run(request)
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert len(lines) >= 3
    headers = [i + 1 for i, line in enumerate(lines[1:]) if set(line) <= set("| -:")]
    for i, (line, after) in enumerate(pairwise(lines)):
        assert line.count("|") == after.count("|") or i + 2 in headers
    assert "nan" not in " ".join(lines)


def _small(kind, **options):
    return kind(**{**options, **TINY})


def test_columns_and_labels_of_a_table():
    from gbdt.data import columns, labels

    text = pa.array(["b", "a", "b"]).dictionary_encode()
    table = pa.table({"n": [1.0, None, 3.0], "c": text, "y": pa.array(["no", "yes", "no"]).dictionary_encode()})
    assert np.array_equal(columns(table), [[1, 0, 1], [np.nan, 1, 0], [3, 0, 1]], equal_nan=True)
    assert labels(table).tolist() == [0, 1, 0]


@pytest.mark.parametrize("classes", [0, 2, 3])
def test_times_and_quality_of_training_and_updates(classes):
    from gbdt.contestants import SIZES, trivial
    from gbdt.speed import training, updates

    data = _data(classes)
    found = training(data, 1)
    assert all(seconds > 0 for seconds, _ in found.values())
    better = np.less if data.regression else np.greater
    assert better(found["ours"][1], trivial(data))
    times = updates(data, "never", 1)
    assert times.keys() >= {(operation, size) for operation in ("delete", "add") for size in SIZES}
    assert all(value > 0 for value in times.values())


@pytest.mark.parametrize("classes", [0, 2, 3])
@pytest.mark.parametrize("peer", ["lightgbm", "xgboost"])
def test_peers_answer_in_our_terms(peer, classes):
    pytest.importorskip(peer, reason="a peer of the benchmarks: pip install -e '.[bench]'")
    from gbdt import contestants

    data = _data(classes)
    model = getattr(contestants, peer)(data, iterations=20)
    said = contestants.predicted(model, data)
    assert said.shape == data.y_test.shape
    if classes:
        assert set(said.tolist()) <= set(range(classes))
    better = np.less if data.regression else np.greater
    assert better(contestants.quality(model, data), contestants.trivial(data))


def test_arrays_are_counted_once():
    from measure import stored_bytes

    class Slotted:
        __slots__ = ("array", "unset")

    whole, thing = np.zeros(1000), Slotted()
    thing.array = whole[10:20]
    assert stored_bytes({"a": whole, "views": [whole[:5], thing]}) == 8000
    assert stored_bytes(thing, (np.zeros(3, dtype=np.int8),)) == 8003


def test_the_forest_is_read_as_it_was_trained(split):
    from gbdt.contestants import fitted
    from gbdt.forest import Forest
    from gbdt.leaf_scores import error

    forest = Forest(fitted(split, **TINY))
    codes = forest.codes(split.X[forest.ids])
    assert np.array_equal(forest.route(codes), forest.leaf)
    assert error(forest, forest.leaf, forest.y) < 1e-4
    assert np.mean(forest.ledger_of(forest.leaf) != forest.ledger) < 1e-3


@pytest.mark.parametrize("operation", ["add", "delete"])
def test_leaf_scores_and_ranks(split, operation):
    from gbdt.leaf_scores import trial
    from gbdt.ranks import COLUMNS, ROBUST, measure

    updated, untouched, trained = trial(split, operation, 0.1, 0, **TINY)
    assert trained < 1e-4
    assert 0 <= updated < untouched
    for values in measure(split, operation, 0, candidate_fraction=0.5, **TINY).values():
        assert values["first when trained"] == 1.0
        assert values["within tolerance"] + values["beyond"] == pytest.approx(1.0)
        assert values["mean rank"] >= 1.0
        assert all(0 <= values[name] <= 1 for name in (*COLUMNS[:4], *ROBUST))
        assert values["Definition 2, any feature"] <= values["Definition 2, same feature"]
        assert len(values["by iteration"]) == TINY["max_iter"]


def test_a_backdoor_is_planted_in_its_rows_only():
    from gbdt.backdoor import STAGES, TARGET, poisoned, trial

    data = _data(3, 400)
    planted, clean, rows = poisoned(data, 0)
    assert sorted([*clean, *rows]) == list(range(400))
    assert (planted.y[rows] == TARGET).all()
    assert np.array_equal(planted.X[clean], data.X[clean])
    assert (planted.X[rows][:, :3] == data.X[:, :3].max(axis=0)).all()
    assert tuple(trial(data, 0, **TINY)) == STAGES


def test_membership_asks_about_all_parts_at_every_stage():
    from gbdt.membership import PARTS, STAGES, trial, whole

    data = whole(_data(3, 400))
    assert len(data) == 460
    found = trial(data, 0, **TINY)
    assert list(found) == [(stage, part) for stage in STAGES for part in PARTS]
    assert all(0 <= share <= 1 for share in found.values())


def test_poison_harms_and_its_deletion_mends():
    from gbdt.poisoning import trial

    found = trial(_data(2, 400), 0, 160, positives=True, **{**TINY, "max_iter": 10})
    assert found["clean"][1:] == (1.0, 1.0)
    assert found["poison inserted"][1] == 0.0
    assert found["poison inserted"][2] < 0.85 < 0.95 < found["deleted again"][2]  # agreement with the clean model


def test_similarity_counts_each_kind_of_difference():
    from gbdt.similarity import MODELS, compare, trial

    truth, retrained, other = (np.array(v) for v in ([0, 0, 0, 0, 0], [0, 0, 1, 1, 1], [0, 1, 0, 2, 1]))
    assert compare(truth, retrained, other) == pytest.approx((0.2, 0.2, 0.2, 0.4))
    assert trial(_data(2), "delete", 0.0, 0, **TINY).keys() == set(MODELS)


def test_a_point_of_the_ablation():
    from gbdt.ablation import SWEEPS, sweep

    from raydt.learners.gbdt.options import GBDTOptions

    assert SWEEPS.keys() <= GBDTOptions.model_fields.keys()
    small, large = sweep(_data(2), "max_leaf_nodes", (2, 4), 1, **TINY)
    assert small.keys() == large.keys()
    assert {"train", "LightGBM", "phi", "no-op", "delete 1 row, s", "add 1 %, nodes"} <= small.keys()


@pytest.mark.parametrize("grow_first", [True, False])
def test_a_walk_goes_to_the_other_end_and_back(grow_first):
    from gbdt.cumulative import MODELS, walk

    data = _data(2, 160)
    found = walk(data, np.array_split(np.arange(160), 4), grow_first, compared=(3,), **TINY)
    up, down = [0.25, 0.5, 0.75, 1.0], [0.75, 0.5, 0.25]
    assert [share for share, _ in found] == ([*up, *down] if grow_first else [1.0, *down, *up[1:]])
    assert found[3][1].keys() == set(MODELS)
    assert found[1][1].keys() == {"updated", "first model"}


@pytest.mark.parametrize("classes", [0, 2, 3])
def test_rounds_are_counted_per_update(classes):
    from gbdt.rounds import measure, open_session

    found = measure(_data(classes), open_session(_data(classes), "never", **TINY))
    assert len(found) == 6
    assert all(one["rounds"] >= 1 for one in found.values())
    assert all(one["bytes_exchanged"] > 0 for one in found.values())


def test_a_picture_names_its_axis(monkeypatch, tmp_path):
    pytest.importorskip("matplotlib", reason="the benchmarks' own dependency: pip install -e '.[bench]'")
    import kit
    from gbdt import command
    from paper.chart import Panel, Style

    monkeypatch.setattr(kit, "PICTURES", tmp_path)
    panel = Panel("rank", {"1 row": [(0.0, 1.0), (1.0, 2.0)]}, x="iteration")
    command.draw(command.Request("ranks"), "no", [[panel]], {"1 row": Style("#123456")})
    command.draw(command.Request("ranks", plot=True), "yes", [[panel]], {"1 row": Style("#123456")})
    assert [path.name for path in (tmp_path / "gbdt").iterdir()] == ["yes.svg"]
    assert ">iteration<" in (tmp_path / "gbdt" / "yes.svg").read_text()
