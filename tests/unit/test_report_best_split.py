"""What the report says of a sparse best split, on made-up runs: names, lanes, many changes, what is missing."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from fabricated_split import AUDIT, SPARSE, SPLIT, UPDATES, best_split_run, events

from pipelines.report.folder import read_run
from pipelines.report.page import write_report
from pipelines.report.svg import path
from raydt.learners.best_split.describe import gap_of
from raydt.learners.best_split.leader_chart import CHANGES_SHOWN, LANES, Ranked, changes, features, over_time
from raydt.learners.best_split.words import finder_in_words, split_in_words, work_in_words
from raydt.learners.description import Presentation, RunRecords
from raydt.presentation.blocks import Table, Text
from raydt.presentation.charts import Chart
from raydt.presentation.trees import Names
from raydt.presentation.words import ABSENT


def view(folder, **options):
    return presented(best_split_run(folder / "run", **options))


def presented(folder) -> Presentation:
    run = read_run(folder)
    return run.description.present(run.records)


def of_kind(section, kind):
    return [block for block in section.blocks if isinstance(block, kind)]


def ranked(table, updates=UPDATES):
    return Ranked(table, updates, Names(SPARSE))


def test_features_are_called_by_their_tokens(tmp_path):
    found = view(tmp_path)
    names = {row.cells[0] for row in of_kind(found.model, Table)[0].rows}
    assert {"offer", "<b>bold</b>", "words[2]", "w" * 57 + "...", "words[4]"} <= names
    page = write_report([tmp_path / "run"], tmp_path / "page.html").read_text()
    assert "&lt;b&gt;bold&lt;/b&gt;" in page
    assert "<b>bold</b>" not in page
    for text in ("Best split", "Structure", "Buckets and moves", "UPDGINI, a structure for the Gini index; 40 buckets"):
        assert text in page
    words = re.sub(r"<[^>]*>", " ", page.split("<article>")[1])
    for text in ("rebuild", "Rebuild", "leaves"):
        assert text not in words


def test_what_lasted_longest_comes_first():
    table = {
        "seq": np.array([9, 19, 59, 89]),
        "feature": np.array([5, 7, 5, -1]),
        "score": np.array([0.4, 0.3, 0.2, 0.1]),
        "n": np.array([10, 20, 60, 0]),
        "n1": np.array([5, 5, 6, 0]),
    }
    names = ranked(table, 100)
    rows = [row.cells for row in features(table, 100, names).rows]
    assert rows == [
        ("words[5]", "2", "40", "40.0%", "10 to 90"),
        ("words[7]", "1", "40", "40.0%", "20 to 60"),
        ("no feature", "1", "10", "10.0%", "90 to the end"),
    ]
    listed = changes(table, names)
    assert listed.rows[2].cells == ("60", "words[5]", "0.2", "10.0%", "60")
    assert listed.remark.startswith("All 4 changes.")
    lanes = over_time(table, 100, names).panels[0].marks
    assert [(mark.name, mark.now) for mark in lanes] == [
        ("words[5]", "40.0%"),
        ("words[7]", "40.0%"),
        ("no feature", "10.0%"),
    ]
    assert lanes[0].values[15] == "100%"
    assert lanes[0].values[25] == ABSENT


def test_ten_thousand_changes():
    table = events(10_000, 50_000, kinds=3000)
    names = ranked(table, 50_000)
    chart = over_time(table, 50_000, names)
    assert len(chart.panels[0].marks) == LANES + 1
    assert chart.panels[0].marks[-1].name == "2,992 others"
    assert sum(len(path(mark.shape)) for panel in chart.panels for mark in panel.marks) < 60_000
    assert len(changes(table, names).rows) == CHANGES_SHOWN
    # Every update after the first change has one best feature.
    whole = sum(float(mark.now[:-1]) for mark in chart.panels[0].marks)
    assert whole == pytest.approx(100 * (1 - table["seq"][0] / 50_000), abs=1)


@pytest.mark.parametrize("updates", [1, 2, 119, 121])
def test_short_streams(updates):
    table = {name: column[:1] for name, column in events(1, updates, kinds=1).items()}
    chart = over_time(table, updates, ranked(table, updates))
    assert len(chart.at) == len(chart.panels[0].marks[0].values) == min(updates, 120)


def test_a_scan_has_no_structure(tmp_path):
    finder = {"name": "scan", "features": 900, "ones": 10_000, "rows": 500}
    found = view(tmp_path, finder=finder, moves=0, buckets=0)
    [text] = found.work.blocks
    assert "chosen by auto: the 500 rows of the warm-up show 900 features, 45 times the 20 ones of a row" in text.text
    assert text.text.endswith("; it has no buckets.")


def test_a_run_without_an_end_and_without_a_change(tmp_path):
    folder = best_split_run(tmp_path / "run")
    (folder / "summary.json").unlink()
    found = presented(folder)
    assert of_kind(found.model, Text) + of_kind(found.work, Text) == []
    assert len(of_kind(found.model, Table)[1].rows) == CHANGES_SHOWN
    write_report([folder], tmp_path / "page.html")
    empty = view(tmp_path / "empty", number=0, split=None)
    assert of_kind(empty.model, Chart) + of_kind(empty.model, Table) == []
    assert empty.model.blocks[0].text.startswith("Best split at the end: none: no search was run.")
    assert "No search has found a feature" in write_report([tmp_path / "empty/run"], tmp_path / "e.html").read_text()


def test_words():
    assert split_in_words({**SPLIT, "feature": None, "name": None}) == "none: no feature is 1 in any of 200 rows"
    assert split_in_words(SPLIT) == "offer, score 0.25, 1 in 25.0% of 200 rows"
    assert finder_in_words({"name": None}) == "auto, before the end of the warm-up"
    silent = finder_in_words({"name": "scan", "features": 0, "ones": 0, "rows": 3})
    assert silent.endswith("chosen by auto: no feature is 1 in the 3 rows of the warm-up")
    said = work_in_words({"finder": {"name": "updent"}, "buckets": 1, "moves": 30, "updates": 20})
    assert said == "1 bucket filled, 30 moves, 1.5 per update"


def test_the_audit_beside_its_bound(tmp_path):
    gap = gap_of(RunRecords({"audit": AUDIT, "finder": {"name": "updgini"}}, {"alpha": 0.1}))
    assert (gap.value, round(gap.share, 6)) == ("1.04", 0.4)
    assert gap.remark == "score 0.26, the lowest of all features 0.25; up to 1 + alpha = 1.1 is promised"
    scan = gap_of(RunRecords({"audit": AUDIT, "finder": {"name": "scan"}}, {"alpha": 0.1}))
    assert (scan.share, scan.remark.endswith("a scan finds the least itself")) == (None, True)
    folder = best_split_run(tmp_path / "run", audit=AUDIT)
    page = write_report([folder], tmp_path / "page.html").read_text()
    assert "Score of the split over the optimum" in page
    assert json.loads((folder / "summary.json").read_text())["audit"]["worst"]["ratio"] == 1.04
