"""Several runs beside each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from fabricated_run import fabricated_run, table_named
from fabricated_split import best_split_run

from pipelines.report.compare import compare, flat
from pipelines.report.folder import read_run
from raydt.presentation.blocks import Article, Best
from raydt.presentation.charts import Chart


def compared(tmp_path: Path, *runs: dict[str, Any]) -> Article:
    """Runs whose summaries and configs are changed as each says."""
    folders = []
    for index, changes in enumerate(runs):
        config = changes.pop("config", {})
        folder = fabricated_run(tmp_path / str(index), rows=changes.pop("rows", 20), rebuilds=20, **changes)
        content = yaml.safe_load((folder / "config.yaml").read_text())
        for section, values in config.items():
            content.setdefault(section, {}).update(values)
        (folder / "config.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
        folders.append(read_run(folder))
    return compare(folders, [f"run {index}" for index in range(len(runs))])


def figures_of(article: Article) -> dict[str, tuple[str, ...]]:
    return {name: tuple(cells) for name, *cells in (row.cells for row in table_named(article, "Figures").rows)}


def charts_of(article: Article) -> list[Chart]:
    return [block for section in article.sections for block in section.blocks if isinstance(block, Chart)]


def test_only_keys_that_differ_are_shown_the_model_first(tmp_path: Path) -> None:
    view = compared(
        tmp_path,
        {"config": {"source": {"limit": None}}},
        {"config": {"learner": {"epsilon": 0.3}, "cluster": {"shards": 4}, "source": {"features": ["a", "b"]}}},
    )
    differing = table_named(view, "Differences between")
    assert [tuple(row.cells) for row in differing.rows] == [
        ("learner.epsilon", "0.1", "0.3"),
        ("source.features", "\u2013", "a, b"),
        ("cluster.shards", "2", "4"),
    ]
    assert differing.remark.endswith("other keys are the same in all runs.")


def test_leaves_of_a_config() -> None:
    assert flat({"a": {"b": 1, "c": {"d": [2]}}, "e": {}}) == {"a.b": 1, "a.c.d": [2], "e": {}}


def test_the_best_scores_are_marked_and_nothing_else(tmp_path: Path) -> None:
    scores = [{"accuracy": value, "f1": 0.5, "macro_f1": None} for value in (0.8, 0.9, 0.9)]
    view = compared(tmp_path, *({"metrics": score, "updates_per_second": 100.0} for score in scores))
    figures = figures_of(view)
    assert figures["Accuracy"] == ("80.00%", "90.00%", "90.00%")
    assert figures["Macro F1"] == ("\u2013",) * 3
    assert figures["Audit"] == ("not promised",) * 3
    assert [isinstance(cell, Best) for cell in figures["Accuracy"]] == [False, True, True]
    assert sum(isinstance(cell, Best) for cells in figures.values() for cell in cells) == 2


@pytest.mark.parametrize(
    ("digests", "said"),
    [
        (["a", "a"], "Both runs ended with the same model, bit for bit: their digests are equal."),
        (["a", "a", "a"], "All 3 runs ended with the same model, bit for bit: their digests are equal."),
        (["a", "b", "c"], "Every run ended with another model: no two digests are equal."),
        (["a", "b", "a"], "The same model, bit for bit: run 0, run 2. All other digests differ."),
        (
            ["a", None, "a"],
            "The same model, bit for bit: run 0, run 2. All other digests differ. 1 run left no digest.",
        ),
    ],
)
def test_whether_models_are_equal(tmp_path: Path, digests: list[str | None], said: str) -> None:
    assert compared(tmp_path, *({"model_digest": digest} for digest in digests)).what == said


def test_best_splits_are_compared_by_their_splits(tmp_path: Path) -> None:
    """They have no tree, and their digests cover split, counts and examples, not the structure."""
    runs = [best_split_run(tmp_path / name, finder={"name": name}) for name in ("updgini", "scan")]
    view = compare([read_run(run) for run in runs], ["a", "b"])
    figures = figures_of(view)
    assert figures["Best feature"] == ("offer",) * 2
    assert figures["Score"] == ("0.25",) * 2
    assert figures["Changes"] == ("7",) * 2
    assert not {"Nodes", "Depth", "Rebuilds", "Rows rebuilt"} & figures.keys()
    assert view.what == "Both runs ended with the same split, counts and examples: their digests are equal."
    keys = [chart.key.removeprefix("compared-") for chart in charts_of(view)]
    assert keys == ["window", "accuracy", "moves", "speed", "buckets"]


def test_a_tree_beside_a_best_split(tmp_path: Path) -> None:
    runs = fabricated_run(tmp_path / "tree", rows=20, rebuilds=20), best_split_run(tmp_path / "split")
    view = compare([read_run(run) for run in runs], ["tree", "split"])
    figures = figures_of(view)
    assert figures["Best feature"] == ("\u2013", "offer")
    assert figures["Nodes"][1] == "\u2013" != figures["Nodes"][0]
    assert "1 run with" not in " ".join(chart.caption for chart in charts_of(view))


def test_different_data_is_said(tmp_path: Path) -> None:
    assert compared(tmp_path / "same", {}, {}).head[0].text == ""
    said = compared(tmp_path / "other", {}, {"source_fingerprint": "x"}, {}).head[0].text
    assert "2 different data sources" in said
    assert said.endswith("(1) run 0, run 2; (2) run 1.")


def test_curves_are_laid_over_each_other_and_end_where_their_runs_end(tmp_path: Path) -> None:
    view = compared(tmp_path, {"rows": 40}, {"rows": 10}, {"rows": 1})
    assert [chart.key for chart in charts_of(view)] == [
        "compared-window",
        "compared-accuracy",
        "compared-work",
        "compared-speed",
        "compared-nodes",
    ]
    long, short = charts_of(view)[0].panels[0].marks
    assert (long.name, short.name) == ("run 0", "run 1")
    assert short.values[len(short.values) // 2] == "\u2013"
    assert long.values[len(long.values) // 2] != "\u2013"
    assert "1 run with fewer than two points left out." in charts_of(view)[0].caption


def test_curves_of_different_streams_are_drawn_over_insertions(tmp_path: Path) -> None:
    """A window makes two updates of one row: at the same update it is at another row."""
    same = compared(tmp_path / "same", {}, {"config": {"learner": {"max_depth": 3}}})
    assert {chart.unit for chart in charts_of(same)} == {"updates"}
    other = compared(tmp_path / "other", {}, {"config": {"stream": {"model": "incremental"}}})
    assert {chart.unit for chart in charts_of(other)} == {"insertions"}
    chart = charts_of(other)[0]
    assert chart.span < charts_of(same)[0].span  # the same runs: 20 rows of the table, fewer insertions than updates
    assert chart.names[-1].startswith("insertion ")


def test_ten_runs_have_ten_looks(tmp_path: Path) -> None:
    view = compared(tmp_path, *({} for _ in range(10)))
    marks = charts_of(view)[0].panels[0].marks
    assert len({(mark.tone, mark.dash) for mark in marks}) == 10
    tones = [mark.tone for mark in marks]
    assert [tone for _, _, tone in view.links] == [*table_named(view, "Figures").tones] == tones
