"""Benchmarks of the confidence trees (benchmarks/ctree): their statistics, and each at a small size."""

from __future__ import annotations

import importlib
import math
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from raydt.learners import learners
from raydt.learners.base import WorkPlan
from raydt.sessions.session import InProcessSession
from raydt.sources import RandCbt, open_source
from raydt.streams import Incremental, make_stream

pytestmark = pytest.mark.nightly

ROOT = Path(__file__).parents[2]
NAN = float("nan")


@pytest.fixture(autouse=True)
def _kit(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))


@pytest.fixture
def drawn(monkeypatch, tmp_path):
    """Pictures go to a folder of their own, without matplotlib."""
    import kit

    monkeypatch.setattr(kit, "svg", lambda grid, styles: str(len(grid)))
    monkeypatch.setattr(kit, "PICTURES", tmp_path / "pictures")
    return tmp_path / "pictures"


def setting(rule, leaves, score, value=0.1):
    from ctree.streams import Setting

    return Setting(rule, value, np.array(leaves), np.array(score), 1.0)


def tables(text):
    """Cells of the printed tables, one table after another; every row is as wide as its header."""
    found = [[]]
    for line in text.splitlines():
        if line.startswith("|"):
            found[-1].append([cell.strip() for cell in line.strip("|").split("|")])
        elif found[-1]:
            found.append([])
    assert all(len(a) == len(b) for rows in found for a, b in pairwise(rows))
    return [rows for rows in found if rows]


def test_every_command_has_its_module():
    from ctree.command import COMMANDS

    for module, what in COMMANDS.values():
        assert what
        assert callable(importlib.import_module(f"ctree.{module}").run)


def test_grids_go_through_the_same_widths_and_are_valid():
    from ctree.rules import COMMON, REAL, grids

    ctree, others = grids(12, REAL)
    options = learners()["confidence_tree"].Options
    for c, delta in zip(ctree["learner.c"], others["learner.delta"], strict=True):
        assert math.sqrt(math.log(1 / delta) / 2) == pytest.approx(10 * c, rel=1e-3)
        options(**COMMON, rule="ctree", c=c)
        for rule in others["learner.rule"]:
            options(**COMMON, rule=rule, delta=delta)
    assert (10 * ctree["learner.c"][0], 10 * ctree["learner.c"][-1]) == pytest.approx(REAL)


def test_both_readings_of_a_made_up_trial():
    from ctree.comparison import along, at_end

    settings = [
        setting("C-Tree", [1, 40, 60], [0.5, 0.6, 0.7]),
        setting("C-Tree", [1, 40, 40], [0.5, 0.64, 0.62]),
        setting("H-Tree", [1, 1, 30], [0.5, 0.5, 0.9]),
    ]
    places = np.array([1, 40, 50, 60, 61])
    np.testing.assert_allclose(along(settings, "C-Tree", places), [0.5, 0.62, 0.66, 0.7, NAN])
    np.testing.assert_allclose(at_end(settings, "C-Tree", places), [NAN, 0.62, 0.66, 0.7, NAN])
    assert np.isnan(along(settings, "H-Tree", places)[1:]).all()


def test_a_difference_is_the_paired_t_interval_of_the_trials_that_have_both():
    from ctree.comparison import difference
    from scipy.stats import ttest_rel

    rng = np.random.default_rng(2)
    ours, theirs = rng.normal(0.6, 0.01, 50), rng.normal(0.59, 0.02, 50)
    ours[3], theirs[7] = NAN, NAN
    kept = np.isfinite(ours) & np.isfinite(theirs)
    test = ttest_rel(ours[kept], theirs[kept], alternative="greater")
    found = difference(ours, theirs)
    assert found.trials == 48
    assert found.mean == pytest.approx(np.mean(ours[kept] - theirs[kept]))
    assert found.lower == pytest.approx(test.confidence_interval(0.95).low)
    assert difference(ours[:1], theirs[:1]).lower == -math.inf
    assert difference(ours[3:4], theirs[3:4]).trials == 0


def test_the_tuned_setting_is_the_best_on_average_over_trials():
    from ctree.comparison import best

    trials = [
        [setting("C-Tree", [1, 2], [0.5, 0.9], 0.1), setting("C-Tree", [1, 5], [0.5, 0.8], 0.2)],
        [setting("C-Tree", [1, 3], [0.5, 0.5], 0.1), setting("C-Tree", [1, 7], [0.5, 0.8], 0.2)],
    ]
    value, scores, leaves = best(trials, "C-Tree")
    assert (value, scores.tolist(), leaves.tolist()) == (0.2, [0.8, 0.8], [5.0, 7.0])


def test_a_curve_is_what_a_session_says_along_the_stream():
    from ctree.figure2 import tree
    from ctree.rules import COMMON
    from ctree.streams import MOMENTS

    first, *_, last = tree(4, 4_000, 2)
    learner = learners()["confidence_tree"]
    for found, key in ((first, "c"), (last, "delta")):
        rule = {"C-Tree": "ctree", "CorrH-Tree": "corrected"}[found.rule]
        options = learner.Options(**COMMON, rule=rule, **{key: found.value})
        source = open_source(RandCbt(n=4_000, seed=4))
        stream = make_stream(Incremental(warmup=400), source)
        session = InProcessSession(learner, options, source.features, 1, WorkPlan(2**62))
        hits, scored, leaves, score = 0, 0, [], []
        for batch in stream.batches(4_000 // MOMENTS):
            result = session.apply(batch)
            hits += int((result.predictions == batch.y).sum())
            scored += int((result.predictions >= 0).sum())
            leaves.append(result.statistics["leaves"])
            score.append(hits / scored if scored else NAN)
        assert found.leaves.tolist() == leaves
        np.testing.assert_array_equal(found.score, score)


def test_a_goal_is_met_where_the_interval_does_not_reach_below_it():
    """Means 0.1 and 0.3 points below with hardly any spread, and 0.1 below with so much that nothing is sure."""
    from ctree.figure2 import compare

    def trial(ours, h_tree, corrh_tree):
        ends = {"C-Tree": ours, "H-Tree": h_tree, "CorrH-Tree": corrh_tree}
        return [setting(rule, [1, 50], [0.5, score]) for rule, score in ends.items()]

    sure = [trial(0.7 + 0.01 * i, 0.701 + 0.01 * i, 0.703 + 0.01 * i) for i in range(4)]
    verdicts = {row[0]: row[6] for row in compare(sure)}
    for reading in ("along the stream", "at the end"):
        assert verdicts[f"C-Tree, {reading}"] == ""
        assert verdicts[f"H-Tree, {reading}"] == "met"
        assert verdicts[f"CorrH-Tree, {reading}"] == "**missed**"
    unsure = [trial(0.7 + 0.01 * (-1) ** i, 0.701, 0.6) for i in range(4)]
    verdicts = {row[0]: row[6] for row in compare(unsure)}
    assert verdicts["H-Tree, at the end"] == "**missed**"
    assert verdicts["CorrH-Tree, at the end"] == "met"


def test_figure_2_at_its_small_size(capsys, drawn):
    """3 trees x 50,000 examples x 5 settings."""
    from ctree import figure2
    from ctree.command import Request
    from ctree.rules import RULES

    kept = []
    original = figure2.trials
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figure2, "trials", lambda *given: (kept.append(one) or one for one in original(*given)))
        figure2.run(Request("figure2", trees=3, examples=50_000, settings=5, plot=True))
    assert len(kept) == 3
    here = np.array([50])
    for settings in kept:
        alone = settings[4]  # C-Tree with the widest intervals
        assert alone.leaves[-1] == 1
        for rule in RULES:
            own = [setting for setting in settings if setting.rule == rule]
            ends = [int(setting.leaves[-1]) for setting in own]
            assert ends == sorted(ends, reverse=True)  # wider intervals, fewer splits
            assert ends[0] > 100
            assert all((np.diff(setting.leaves) >= 0).all() for setting in own)
            assert figure2.along(settings, rule, here)[0] > alone.score[-1] + 0.01
    compared, sizes, ends = tables(capsys.readouterr().out)
    assert [row[2] for row in compared[2:]] == ["3 of 3"] * 6
    means = {row[0]: float(row[1]) for row in compared[2:]}
    for row in compared[2:]:
        if not row[0].startswith("C-Tree"):
            reading = row[0].split(", ")[1]
            assert float(row[3]) == pytest.approx(means[f"C-Tree, {reading}"] - means[row[0]], abs=0.02)
            assert float(row[4]) < float(row[3])
            assert row[6] in ("met", "**missed**")
    assert len(sizes) == 2 + 6
    assert len(ends) == 2 + 15
    assert (drawn / "ctree" / "figure-2.svg").read_text() == "1"


def test_figure_3_on_a_small_data_set(capsys, drawn, monkeypatch, tmp_path):
    from ctree import figure3, streams
    from ctree.command import Request

    rng = np.random.default_rng(1)
    X = rng.random((6_000, 3))
    y = np.where((X[:, 0] < 0.5) & (X[:, 1] < 0.6), "rare", "usual")
    columns = {f"x{j}": X[:, j] for j in range(3)} | {"y": y}
    pq.write_table(pa.table(columns), tmp_path / "small.parquet")
    for module in (streams, figure3):
        monkeypatch.setattr(module, "DATA", tmp_path)
    monkeypatch.setitem(streams.SETS, "a9a", streams.DataSet("Small", ("small",), "minority", "f1"))
    figure3.run(Request("figure3", ("a9a",), seeds=2, settings=3, plot=True))
    tuned, sizes = tables(capsys.readouterr().out)
    assert [row[0].split(",")[0] for row in tuned[2:]] == ["C-Tree", "H-Tree", "CorrH-Tree"]
    assert all(float(row[1]) > 90.0 for row in tuned[2:4])
    assert len(sizes) == 2 + 3
    assert (drawn / "ctree" / "figure-3.svg").exists()


def test_beside_river(capsys, monkeypatch, tmp_path):
    pytest.importorskip("river", reason="a peer of the benchmarks: pip install -e '.[bench]'")
    from ctree import river
    from ctree.command import Request

    rng = np.random.default_rng(1)
    X = rng.random((4_000, 3))
    y = ((X[:, 0] < 0.5) ^ (rng.random(4_000) < 0.05)).astype(np.int32)
    columns = {f"x{j}": X[:, j] for j in range(3)} | {"y": np.array(["UP", "DOWN"])[y]}
    pq.write_table(pa.table(columns), tmp_path / "electricity.parquet")
    read = river.electricity
    monkeypatch.setattr(river, "electricity", lambda: read(tmp_path))
    monkeypatch.setattr(river, "DATA", tmp_path)
    river.run(Request("river", seeds=1))
    (table,) = tables(capsys.readouterr().out)
    accuracy = [float(row[2]) for row in table[2:]]
    assert accuracy[1] == accuracy[0]  # the replay is of the same tree
    assert min(accuracy) > 85.0
    assert [row[4] for row in table[2:]][2] == ""
