"""Reports of runs: pages, words, time axes, and the comparison of two runs."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import pipelines.report
from pipelines import replay
from pipelines.display import run_lines
from pipelines.report import charts
from pipelines.report.charts import ACCURACY, SQUARED_ERROR
from pipelines.report.compare import compare, compared, differences, flat, winner
from pipelines.report.facts import labels, recoveries
from pipelines.report.folder import ReportedRun, checkpoints_in_words, read_run, recovered_in_words
from pipelines.report.page import against_baselines, document, embedded_json, render, run_article, write_report
from pipelines.reporting import publish_report
from pipelines.run_folder import RunFolder
from raydt.evaluation.adwin import EXACT_PAIRS, interval, interval_of_blocks, mcnemar
from raydt.learners.confidence_tree.describe import rule_in_words, why_no_split
from raydt.learners.confidence_tree.options import ConfidenceTreeOptions
from raydt.messages import message
from raydt.presentation import charts as words
from raydt.presentation.blocks import Article, Text
from raydt.presentation.charts import (
    ABSENT,
    Chart,
    Clock,
    Line,
    Series,
    line_panel,
    over_stream,
    time_axis,
    timed,
    whole_windows,
)
from tests.refusals import refused
from tests.unit.fabricated_run import FEATURES, RECOVERED, fabricated_run, fabricated_tree, write_model, write_table
from tests.unit.report_cases import FILE, PAGES, outline

# -- report ----------------------------------------------------------------------------------------------------------
# The pages of runs and sweeps: what they show and may load, and what hostile names and lost files do to them.


class Page(HTMLParser):
    """Elements, visible text and scripts of a page."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.data: list[str] = []
        self.text = ""
        self._inside = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag == "script":
            self._inside = "data" if dict(attrs).get("type") == "application/json" else "script"
        elif tag == "style":
            self._inside = "style"

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside in ("script", "data"):
            (self.scripts if self._inside == "script" else self.data).append(data)
        elif not self._inside:
            self.text += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def ids(self) -> list[str]:
        return [str(attributes["id"]) for _, attributes in self.elements if "id" in attributes]


def page_of(*runs: Path) -> Page:
    return Page(render(runs))


OUTLINES = {
    name: lines
    for name, *lines in (part.rstrip("\n").split("\n") for part in FILE.read_text().split("== ") if part.strip())
}


@pytest.mark.turns(10)
@pytest.mark.parametrize("name", PAGES)
def test_a_page_has_its_outline_and_is_sound(tmp_path: Path, name: str) -> None:
    """``python -m tests.unit.report_cases`` writes the outlines."""
    article = PAGES[name](tmp_path / "run")
    assert list(outline(article)) == OUTLINES[name]
    require_sound(Page(document(article.title, "report", [article])), article)


def require_sound(page: Page, article: Article) -> None:
    """Every anchor leads somewhere, every drawing is described and within its frame, and nothing is loaded."""
    assert len(page.ids) == len(set(page.ids))
    elsewhere = {key for key, *_ in article.links}
    assert {str(link["href"])[1:] for link in page.all("a")} - elsewhere <= set(page.ids)
    assert {section["aria-labelledby"] for section in page.all("section")} <= set(page.ids)
    assert len(page.all("caption")) == len(page.all("table"))
    charts = [a for a in page.all("figure") if "chart" in str(a["class"])]
    described = [a for a in page.all("div") + page.all("svg") if a.get("role") == "img"]
    assert len(charts) == len(described) == len(page.all("figcaption"))
    assert all(len(str(drawing["aria-label"])) > 30 for drawing in described)
    headings = [int(tag[1]) for tag, _ in page.elements if tag in ("h1", "h2", "h3", "h4")]
    assert headings.count(1) == 1
    assert all(deeper <= higher + 1 for higher, deeper in pairwise(headings))
    for path in (str(attributes["d"]) for attributes in page.all("path") if attributes.get("d")):
        assert not re.search("nan|inf|e", path), path[:80]
        for x, y in re.findall(r"[ML](-?[0-9.]+) (-?[0-9.]+)", path):
            assert max(abs(float(x) - 500), abs(float(y) - 500)) <= 500.1, path[:80]
    for readout in map(json.loads, page.data):
        assert len(readout["at"]) == len(readout["names"]) >= 1
        assert all(len(values) in (0, len(readout["at"])) for values in readout["values"])
        assert readout["at"] == sorted(readout["at"])
    for tag, attributes in page.elements:
        for key in ("src", "href", "srcset", "data", "action", "poster", "background", "formaction"):
            value = attributes.get(key)
            own = value is None or value.startswith("data:image/svg+xml,") or (tag == "a" and value.startswith("#"))
            assert own, (tag, key, value)
        assert not re.search(r"@import|url\(", attributes.get("style") or "")


def test_the_policy_forbids_the_network_and_names_exactly_the_script_of_the_page(tmp_path: Path) -> None:
    page = page_of(fabricated_run(tmp_path / "run", rows=5, rebuilds=5))
    policy = next(m["content"] for m in page.all("meta") if m.get("http-equiv") == "Content-Security-Policy")
    directives = {part.split()[0]: part.split()[1:] for part in str(policy).split(";")}
    [script] = page.scripts
    assert directives["default-src"] == ["'none'"]
    assert directives["script-src"] == [
        f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
    ]
    assert not any(word.startswith(("http", "*")) for words in directives.values() for word in words)
    assert not re.search(r"fetch|XMLHttpRequest|WebSocket|EventSource|sendBeacon|import\s*\(|innerHTML|eval", script)
    style = (Path(pipelines.report.__file__).parent / "page.css").read_text()
    assert not re.search(r"@import|url\(|src\(|image-set", style)


def test_the_page_of_a_large_run_is_small(tmp_path: Path) -> None:
    folder = fabricated_run(tmp_path / "run", rows=30_000, rebuilds=40_000)
    write_model(folder, fabricated_tree(classes=23, depth=40, rows=300_000))
    text = render([folder])
    assert len(text) < 1_500_000
    assert max(len(json.loads(data)["at"]) for data in Page(text).data) == 400


#: Changes of direction, of which the last is invisible too, and what a terminal obeys.
DECEIVING = "a\u202eb\u2066c\u200f\x1b[2Jd"


@pytest.mark.parametrize(
    ("hostile", "shown"),
    [
        *((text, text) for text in ("<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "</script><b>")),
        *((text, text) for text in ("{{ 7 * 7 }}", "a & b")),
        (DECEIVING, r"a\u202eb\u2066c\u200f\x1b[2Jd"),
    ],
)
def test_hostile_names_stay_text(tmp_path: Path, hostile: str, shown: str) -> None:
    same = dict.fromkeys(("name", "label", "learner", "status", "error", "exit_reason", "model_digest"), hostile)
    folder = fabricated_run(
        tmp_path / "run",
        rows=20,
        rebuilds=50,
        **same,
        classes=[hostile, hostile],
        features=[{"name": hostile, "kind": "numeric"}] * len(FEATURES),
        versions={hostile: hostile},
        audit={"conformance": hostile, "feasibility": hostile, "reason": hostile, "failures": [hostile],
               "checked": {hostile: 1}, "worst": {hostile: 0.5}},
        recoveries=[{**RECOVERED["recoveries"][0], "what": hostile}],
    )  # fmt: skip
    config = json.dumps({"source": {"path": hostile}, "learner": {"kind": hostile}}, ensure_ascii=False)
    (folder / "config.yaml").write_text(config)
    text = render([folder])
    page = Page(text)
    assert len(page.scripts) == 1
    assert not page.all("img")
    assert all("onerror" not in attributes for _, attributes in page.elements)
    assert page.text.count(shown) > 15
    assert f"{shown} \u2264 " in page.text
    assert all(character in "\n\t" or character.isprintable() for character in text)


def test_no_text_of_a_figure_can_end_its_element() -> None:
    hostile = json.dumps({"name": "</script><script>alert(1)</script><!-- &lt;"})
    embedded = embedded_json(hostile)
    assert not set("<>&") & set(embedded)
    assert json.loads(embedded) == json.loads(hostile)


def test_the_same_run_gives_the_same_bytes_and_leaves_nothing_else(tmp_path: Path) -> None:
    folder = fabricated_run(tmp_path / "run", rows=10, rebuilds=20)
    first = write_report([folder], tmp_path / "new folder" / "a.html")
    assert first.read_bytes() == write_report([folder], tmp_path / "b.html").read_bytes()
    assert sorted(path.name for path in first.parent.iterdir()) == ["a.html"]


def test_what_is_no_run_folder_is_refused(tmp_path: Path) -> None:
    with refused("reports.no_run"):
        write_report([tmp_path], tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()
    with refused("reports.no_runs"):
        write_report([], tmp_path / "report.html")


# ---------------------------------------------------------------- runs that lack something


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return fabricated_run(tmp_path / "run", rows=20, rebuilds=40)


def emptied(run: Path, table: str) -> None:
    """Leave a table its columns, and no row."""
    columns = getattr(read_run(run), table)
    shutil.rmtree(run / table)
    write_table(run / table, {key: values[:0] for key, values in columns.items()})


def truncated(file: Path, size: int = -1) -> None:
    file.write_bytes(file.read_bytes()[:size])


def unlinked(run: Path, **children: int) -> None:
    """Write a tree whose root has other children."""
    tree = fabricated_tree(classes=3, depth=4, rows=500)
    for name, value in children.items():
        tree[name][0] = value
    write_model(run, tree)


#: What is done to a run, and what its only note names.
DAMAGES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "nothing": (lambda run: None, ""),
    "no metrics": (lambda run: shutil.rmtree(run / "metrics"), "no metrics"),
    "no events": (lambda run: shutil.rmtree(run / "events"), ""),
    "no model": (lambda run: shutil.rmtree(run / "model"), "no model"),
    "no config": (lambda run: (run / "config.yaml").unlink(), "config.yaml"),
    "no summary": (lambda run: (run / "summary.json").unlink(), "summary.json"),
    "empty metrics": (lambda run: emptied(run, "metrics"), "no metrics"),
    "empty events": (lambda run: emptied(run, "events"), ""),
    "half a part": (lambda run: truncated(run / "metrics/part-00002.parquet", 100), "metrics/part-00002.parquet"),
    "damaged summary": (lambda run: (run / "summary.json").write_text("{"), "summary.json"),
    "damaged config": (lambda run: (run / "config.yaml").write_text("a: ["), "config.yaml"),
    "damaged model": (lambda run: truncated(next((run / "model").glob("arrays.*.npz"))), "arrays"),
    "a circle": (lambda run: unlinked(run, left=0), "preorder"),
    "a child that is not there": (lambda run: unlinked(run, left=-1), "preorder"),
    "a node of two parents": (lambda run: unlinked(run, left=1, right=1), "preorder"),
    "another shape": (lambda run: write_model(run, {"leaf_values": np.zeros(3)}), ""),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_is_missing_or_damaged_is_named_and_the_rest_shows(run: Path, damage: str) -> None:
    act, named = DAMAGES[damage]
    act(run)
    notes = read_run(run).notes
    assert (named in notes[0]) if named else notes == []
    assert len(notes) == bool(named)
    page = page_of(run)
    assert {"quality", "tree", "rebuilds", "stream", "shards", "config", "environment"} <= set(page.ids)
    assert not re.search(r"\b(nan|None|inf)\b", page.text)


@pytest.mark.parametrize(
    "damaged",
    [
        {"recoveries": "two", "checkpoints": 5, "restarts": None},
        {"recoveries": [7, None, {}], "checkpoints": {"written": "many", "failed": None}, "restarts": "x"},
        {"recoveries": [{"at_update": "x", "what": "y", "seconds": True, "from_update": -1}]},
        {"metrics": dict.fromkeys(("accuracy", "f1")), "baselines": {"no_change": None, "majority": None}},
        {"metrics": None, "baselines": None, "work": None, "audit": None, "versions": None},
        {"work": [{"shard": 0, "columns": [0], "requests": 0, "seconds": 0.0}]},
        {"audit": {"conformance": "violated", "feasibility": "violated", "failures": ["node 7"]}},
    ],
)
def test_a_summary_of_another_version_still_gets_its_page(tmp_path: Path, damaged: dict[str, Any]) -> None:
    page = page_of(fabricated_run(tmp_path / "run", rows=20, rebuilds=20, **damaged))
    assert "environment" in page.ids
    assert not re.search(r"\b(nan|None|inf)\b", page.text)


@pytest.mark.parametrize(("by_key", "unit"), [({}, "update"), ({"keys": 3}, "row")])
def test_recoveries_count_the_rows_of_a_run_by_key(by_key: dict[str, int], unit: str, tmp_path: Path) -> None:
    summary = {**RECOVERED, **by_key}
    last = f"{summary['checkpoints']['last']:,}"
    assert f"{unit}s repeated" in recovered_in_words(summary)
    assert checkpoints_in_words(summary).endswith(f"the last at {unit} {last}")
    summary["recoveries"] = [{**RECOVERED["recoveries"][0], "from_update": 2000}]
    run = read_run(fabricated_run(tmp_path / "run", rows=100, rebuilds=50))
    table = recoveries(replace(run, summary=summary))[-1]
    assert table.columns[0] == f"After {unit}"
    assert table.rows[0].cells[3] == f"checkpoint at {unit} 2,000"


def test_a_recovery_beyond_the_end_is_not_drawn_and_one_without_an_end_where_it_went_on(tmp_path: Path) -> None:
    first = RECOVERED["recoveries"][0]
    for change, drawn in (
        ({"at_update": 10_001}, set()),
        ({"at_update": None, "from_update": 5000}, {"M500 0V1000"}),
        ({}, {"M370 0V1000"}),
    ):
        page = page_of(fabricated_run(tmp_path / "run", rows=100, rebuilds=50, recoveries=[{**first, **change}]))
        assert {a["d"] for a in page.all("path") if a.get("class") == "upright"} == drawn


def test_a_terminal_says_what_was_lost(tmp_path: Path) -> None:
    for changes, said in (
        (RECOVERED, r"^losses .* 5,804 .*\n^checkpoints .*12 .* 1 failed"),
        ({}, "^checkpoints .* 7"),
    ):
        folder = fabricated_run(tmp_path / "run", rows=100, rebuilds=50, **changes)
        summary = {"replaced": 0, "queries": 0, **json.loads((folder / "summary.json").read_text())}
        assert re.search(said, run_lines(summary, "run"), re.MULTILINE)
        assert ("losses" in run_lines(summary, "run")) == bool(changes)


def test_a_report_of_a_remote_run_names_its_uri(run: Path) -> None:
    folder = RunFolder(run)
    folder.is_local, folder.location = False, "s3://bucket/runs/first"
    publish_report(folder)
    page = (run / "report.html").read_text(encoding="utf-8")
    assert "raydt audit s3://bucket/runs/first<" in page
    assert "raydt-" not in page.split("<main")[1].split("<script")[0]  # nothing of the temporary copy


# ---------------------------------------------------------------- several runs


def test_several_runs_are_compared_and_their_anchors_kept_apart(tmp_path: Path) -> None:
    page = page_of(*(fabricated_run(tmp_path / name, rows=30, rebuilds=50, name=name) for name in ("first", "second")))
    assert {"compared", *(f"run-{n}-{key}" for n in (1, 2) for key in ("name", "quality", "audit"))} <= set(page.ids)
    assert len(page.ids) == len(set(page.ids))
    assert {str(link["href"])[1:] for link in page.all("a")} <= set(page.ids)


def test_runs_are_told_apart_by_name_folder_or_location(tmp_path: Path) -> None:
    labelled = [("monday", "my"), ("tuesday", "my"), ("friday", "other"), ("elsewhere/friday", "third")]
    runs = [fabricated_run(tmp_path / place, rows=1, rebuilds=1, name=name) for place, name in labelled]
    folders, places = [read_run(run) for run in runs], [str(run) for run in runs]
    assert labels(folders[:3], places[:3]) == ["monday", "tuesday", "other (friday)"]
    assert labels(folders[2:], places[2:]) == [f"other ({places[2]})", f"third ({places[3]})"]


@pytest.mark.parametrize(
    ("digests", "words"),
    [
        (["a", "a"], "Both.*the same model"),
        (["a", "a", "a"], "All 3.*the same model"),
        (["a", "b", "c"], "a different model"),
        (["a", "b", "a"], "0, 2.* differ"),
        (["a", None, "a"], "0, 2.*1 run"),
    ],
)
def test_equal_digests_are_equal_models(tmp_path: Path, digests: list[str | None], words: str) -> None:
    runs = [fabricated_run(tmp_path / str(k), rows=2, rebuilds=2, model_digest=d) for k, d in enumerate(digests)]
    article = compare([read_run(run) for run in runs], [str(k) for k in range(len(runs))])
    said = [block.text for block in article.sections[0].blocks if isinstance(block, Text)]
    assert re.search(words, " ".join(said))


def test_leaves_of_a_config() -> None:
    assert flat({"a": {"b": 1, "c": {"d": [2]}}, "e": {}}) == {"a.b": 1, "a.c.d": [2], "e": {}}


# -- report words ----------------------------------------------------------------------------------------------------
# Numbers as people read them, and verdicts.


@pytest.mark.parametrize(
    ("form", "value", "text"),
    [
        (words.count, 1234567, "1,234,567"),
        (words.count, np.int64(12), "12"),
        (words.count, None, ABSENT),
        (words.share, 0.88049, "88.05%"),
        (words.share, math.nan, ABSENT),
        (words.figure, 315234.7, "315,000"),
        (words.figure, 0.7336, "0.734"),
        (words.figure, 9.999, "10"),
        (words.figure, 100, "100"),
        (words.figure, -0.25, "-0.25"),
        (words.figure, 3e-7, "3e-07"),
        (words.figure, True, ABSENT),
        (words.threshold, 0.0704794999, "0.07048"),
        (words.threshold, 12345.678, "12,346"),
        (words.threshold, 1.5e-9, "1.5e-09"),
        (words.brief, 0.0, "0"),
        (words.brief, 1500.0, "1.5k"),
        (words.brief, 20_000_000, "20M"),
        (words.duration, 0.0000032, "3.2 µs"),
        (words.duration, 0.284, "284 ms"),
        (words.duration, 59.96, "60 s"),
        (words.duration, 252, "4 min 12 s"),
        (words.duration, 3599.9, "1 h 0 min"),
        (words.duration, 0, "0 s"),
        (words.size, 312_400_000, "312 MB"),
        (words.size, 999, "999 B"),
        (words.moment, "2025-03-04T09:15:27.123456Z", "2025-03-04 09:15:27 UTC"),
        (words.moment, "2025-03-04T09:15:27+02:00", "2025-03-04 09:15:27 +0200"),
        (words.moment, "yesterday", "yesterday"),
        (words.moment, None, ABSENT),
        (lambda value: words.names(value, 2), ["a", "b", "c"], "a, b, c"),
        (lambda value: words.names(value, 2), ["a", "b", "c", "d"], "a, b and 2 more"),
        (lambda value: words.counted(value, "leaf"), 1, "1 leaf"),
        (lambda value: words.counted(value, "leaf"), 2, "2 leaves"),
        (lambda value: words.counted(value, "batch"), 1200, "1,200 batches"),
    ],
)
def test_numbers_for_people(form: Any, value: Any, text: str) -> None:
    assert form(value) == text


WINDOWS = {
    "window_accuracy": np.array([np.nan, 0.9, 0.7, 0.8]),
    "window_no_change": np.array([np.nan, 0.8, 0.6, 0.9]),
    "window_majority": np.array([np.nan, 0.8, 0.8, np.nan]),
}


@pytest.mark.parametrize(
    ("accuracy", "baselines", "windows", "tone", "said"),
    [
        (0.9, {"no_change": 0.8, "majority": 0.6}, {}, "good", ["beats", "80.00%", "60.00%", "90.00%"]),
        (0.7, {"no_change": 0.8, "majority": 0.6}, {}, "bad", ["loses", "80.00%", "70.00%", "beats", "60.00%"]),
        (0.6, {"no_change": 0.5, "majority": 0.6}, {}, "bad", ["no better", "60.00%"]),
        (None, {}, {}, "plain", []),
        (0.7, {}, {}, "plain", []),
        (0.8, {"no_change": 0.7}, WINDOWS, "good", ["2 of 3"]),
        (0.8, {"no_change": 0.7}, {key: column[1:2] for key, column in WINDOWS.items()}, "good", ["only", "not"]),
    ],
)
def test_the_verdict_about_the_baselines(accuracy: Any, baselines: Any, windows: Any, tone: str, said: Any) -> None:
    verdict = against_baselines({"metrics": {"accuracy": accuracy}, "baselines": baselines}, windows)
    assert verdict.tone == f"verdict {tone}"
    at = 0
    for word in said:
        at = verdict.text.index(word, at)


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        ({"max_bins": 64}, "a smaller c"),
        ({"renew_bins": 0}, "warmup"),
        ({"rule": "hoeffding"}, "tie_threshold"),
        ({"confidence": "theorem"}, "practical"),
    ],
)
def test_advice_about_a_tree_without_splits_goes_by_its_options(options: dict[str, Any], advice: str) -> None:
    none = {"checks": 1, "splits": 0}
    assert advice in why_no_split(none, ConfidenceTreeOptions(**options))
    assert why_no_split({"splits": 1}) == ""
    assert "grace_period" in why_no_split({"checks": 0, "splits": 0})
    assert "delta = 1/t" in rule_in_words(ConfidenceTreeOptions(rule="hoeffding", delta="1/t", tie_threshold=0.05))


# -- report clock ----------------------------------------------------------------------------------------------------
# Charts over time: an axis of event times, ticks at round dates, and no last window of a handful of rows.

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def seconds(*date: int) -> float:
    return (datetime(*date, tzinfo=timezone.utc) - EPOCH).total_seconds()  # type: ignore[arg-type,misc]


@pytest.mark.parametrize(
    ("low", "high", "labels"),
    [
        ((2013, 5, 1, 10), (2013, 5, 1, 10, 5), ["10:00", "10:01", "10:02", "10:03", "10:04", "10:05"]),
        ((2013, 5, 1, 22), (2013, 5, 2, 4), ["22:00", "23:00", "2 May", "01:00", "02:00", "03:00", "04:00"]),
        (
            (2013, 4, 29),
            (2013, 5, 3),
            ["29 Apr", "12:00", "30 Apr", "12:00", "1 May", "12:00", "2 May", "12:00", "3 May"],
        ),
        ((2012, 12, 20), (2013, 1, 30), ["24 Dec", "31 Dec", "7 Jan", "14 Jan", "21 Jan", "28 Jan"]),
        ((2012, 10, 2), (2013, 4, 2), ["Nov", "Dec", "2013", "Feb", "Mar", "Apr"]),
        ((2010, 6, 1), (2017, 6, 1), ["2011", "2012", "2013", "2014", "2015", "2016", "2017"]),
    ],
)
def test_ticks_are_round_dates(low: tuple[int, ...], high: tuple[int, ...], labels: list[str]) -> None:
    axis = time_axis(seconds(*low), seconds(*high), True)
    assert [tick.label for tick in axis.ticks] == labels
    assert all(0 <= tick.at <= 1 for tick in axis.ticks)


@given(st.floats(-6e10, 2e11), st.floats(1, 6e10))
def test_no_span_has_many_ticks(low: float, span: float) -> None:
    assert len(time_axis(low, low + span, True).ticks) <= 10


def test_updates_of_one_date_share_its_day() -> None:
    day = 86_400_000_000
    seq, times = np.array([10, 20, 30, 40, 50, 60]), np.array([0, 0, 1, 1, 1, 2]) * day
    clock = Clock.of(seq, times, True, 0.0)
    assert clock is not None
    assert clock.ends == (0.0, 2 * 86_400.0)
    assert clock.at([0, 15, 30, 45, 60]).tolist() == [0.0, 43_200.0, 86_400.0, 129_600.0, 172_800.0]
    assert Clock.of(seq, np.array([0, 0, np.nan, 1, 1, 1]), True, None) is None
    assert Clock.of(seq, np.zeros(6), True, 0.0) is None
    assert Clock.of(seq, times * 10**9, True, 0.0) is None  # beyond the calendar
    assert Clock.of(seq, times, False, None) is not None


def test_a_chart_over_updates_becomes_one_over_time() -> None:
    table = {"seq": np.array([10, 20, 30, 40]), "a": np.array([1.0, 2.0, 3.0, 4.0])}
    chart = over_stream("k", "t", "c", table, (line_panel(table, [Series(table["a"], "a", "learner")], "u", 1.0),))
    chart = replace(chart, uprights=(0.5,))
    clock = Clock.of(table["seq"], np.array([100, 100 + 30, 100 + 300, 100 + 400]), False, 100)
    found = timed(chart, clock)
    assert isinstance(found, Chart)
    places = found.across(found.at).tolist()
    assert places == pytest.approx([0.0375, 0.075, 0.75, 1.0])  # update 10 has the time of the first
    line = found.panels[0].marks[0].shape
    assert isinstance(line, Line)
    assert found.across(line.x).tolist() == pytest.approx(places)
    assert re.findall(r"[ML]([\d.]+) ", charts.path(line, found.across)) == ["37.5", "75", "750", "1000"]
    assert found.across(found.uprights).tolist() == pytest.approx([0.075])
    assert charts.uprights(found) == "M75 0V1000"
    assert json.loads(charts.readout(found))["at"] == [0.0375, 0.075, 0.75, 1.0]
    assert found.names[-1] == "update 40, 500"
    assert found.unit == "event time, from 100 to 500"
    assert timed(chart, None) is chart


def test_the_report_of_models_by_key_says_how_the_run_ended_and_lists_its_chapters() -> None:
    names = ("accuracy", "no_change", "majority", "predictions", "updates", "active", "nodes", "seconds")
    keys = {"key": np.array(["a", "b"]), **{name: np.array([0.25, 0.75]) for name in names}}
    summary = {"status": "interrupted", "exit_reason": "SIGTERM", "keys": 2}
    article = run_article(ReportedRun(summary, keys=keys, chapters=[{"folder": "run/chapters/1"}]), "run")
    ended = f"{message('reports.interrupted', reason='SIGTERM')}."
    assert ended in [block.text for block in article.head if isinstance(block, Text)]
    assert "chapters" in [section.key for section in article.sections]


def test_a_short_last_window_is_merged() -> None:
    columns = {"seq": [100, 200, 300, 310], "predictions": [50, 100, 150, 155], "window_accuracy": [0.5, 0.6, 0.8, 0.2]}
    metrics = {name: np.array(values, dtype=float) for name, values in columns.items()} | {"nodes": np.arange(4)}
    found = whole_windows(metrics)
    assert found["seq"].tolist() == [100, 200, 310]
    assert found["nodes"].tolist() == [0, 1, 3]
    assert found["window_accuracy"].tolist() == pytest.approx([0.5, 0.6, (0.8 * 50 + 0.2 * 5) / 55])
    metrics["seq"][-1], metrics["predictions"][-1] = 350, 175  # half a window is shown as one
    assert whole_windows(metrics) is metrics


@pytest.mark.parametrize(
    "model", [{"model": "time_window", "duration": "3d"}, {"model": "sliding_window", "window": 50}]
)
def test_a_run_with_times_has_a_report_over_time(tmp_path: Path, model: dict[str, object]) -> None:
    """A row without a time is bad in a window of time only; anywhere else it is as good as others."""
    n, rng = 300, np.random.default_rng(0)
    when: list[datetime | None] = [datetime(2013, 5, 1) + timedelta(hours=k) for k in range(n)]
    when[5] = None
    x = rng.normal(size=n)
    pq.write_table(pa.table({"x": x, "y": x * (np.arange(n) < 150) > 0, "at": when}), tmp_path / "rows.parquet")
    config = {
        "source": {"kind": "parquet", "path": str(tmp_path / "rows.parquet"), "label": "y", "ts": "at"},
        "stream": {**model, "on_error": "skip"},
        "learner": {"kind": "fudyadt"},
        "cluster": {"backend": "in_process"},
        "output": {"metrics_every": 40},
    }
    summary = replay(config, tmp_path / "run").summary
    assert summary["skipped"] == (model["model"] == "time_window")
    assert summary["times"]["column"] == "at"
    run = read_run(tmp_path / "run")
    assert run.clock is not None
    assert run.clock.ends == (seconds(2013, 5, 1), seconds(2013, 5, 13, 11))
    metrics = pq.read_table(tmp_path / "run" / "metrics").column("time").to_pylist()
    assert metrics == sorted(metrics)
    assert metrics[-1] == datetime(2013, 5, 13, 11, tzinfo=timezone.utc)
    page = render([tmp_path / "run"])
    assert "event time, from 2013-05-01 to 2013-05-13 11:00" in page
    assert "2013-05-01 to 2013-05-13 11:00 (at)" in page


# -- difference ------------------------------------------------------------------------------------------------------
# McNemar's test and the bootstrap interval against scipy, and the differences of two runs as the report shows them.


@pytest.mark.parametrize(("first", "second"), [(0, 0), (3, 3), (0, 6), (40, 61), (500, 499)])
def test_few_pairs_are_tested_exactly(first: int, second: int) -> None:
    n = first + second
    expected = stats.binomtest(first, n).pvalue if n else 1.0
    assert mcnemar(first, second) == pytest.approx(expected, rel=1e-10)
    assert mcnemar(first, second) == mcnemar(second, first)


def test_many_pairs_are_tested_by_chi_squared() -> None:
    first, second = EXACT_PAIRS, 900
    statistic = (abs(first - second) - 1) ** 2 / (first + second)
    assert mcnemar(first, second) == pytest.approx(stats.chi2.sf(statistic, 1), rel=1e-10)
    assert mcnemar(1000, 1000) == 1.0


def test_the_interval_is_that_of_the_mean_where_neighbours_are_independent() -> None:
    values = np.random.default_rng(1).normal(0.3, 2.0, 20_000)
    low, high = interval(values)
    assert (low, high) == interval(values)
    error = 1.96 * values.std() / np.sqrt(len(values))
    assert low == pytest.approx(values.mean() - error, abs=0.1 * error)
    assert high == pytest.approx(values.mean() + error, abs=0.1 * error)


def test_the_interval_is_wider_where_neighbours_go_together() -> None:
    values = np.repeat(np.random.default_rng(2).normal(size=1000), 20)
    mixed = np.random.default_rng(3).permutation(values)
    width, independent = (np.diff(interval(column))[0] for column in (values, mixed))
    assert width > 2 * independent


def run_with(folder: Path, score: float = 0.5, **columns: Any) -> Any:
    metrics = (
        {"mse": score} if "double" in {str(pa.array(one).type) for one in columns.values()} else {"accuracy": score}
    )
    fabricated_run(folder, rows=5, rebuilds=2, metrics=metrics)
    if columns:
        (folder / "predictions").mkdir()
        pq.write_table(pa.table(columns), folder / "predictions" / "part-00000.parquet")
    return read_run(folder)


def test_runs_are_compared_example_by_example(tmp_path: Path) -> None:
    """Ids pair the predictions: the updates have other numbers, and one id comes twice. The better run comes first."""
    ids = [3, 4, 5, 4, 9]
    truth = ["a", "b", "a", "a", "b"]
    first = run_with(
        tmp_path / "a", 0.4, seq=[0, 1, 2, 3, 4], id=ids, prediction=["a", "a", "a", "b", "b"], truth=truth
    )
    shuffled = [1, 0, 2, 4, 3]
    more = {"id": [ids[i] for i in shuffled] + [77], "truth": [truth[i] for i in shuffled] + ["a"]}
    second = run_with(
        tmp_path / "b", 0.6, seq=[10, 20, 30, 40, 60, 70], prediction=["b", "a", "b", "b", "a", "a"], **more
    )
    comparison = compared([first, second], ACCURACY)
    table = differences(comparison, ["one", "two"], ACCURACY)
    [row] = table.rows
    assert row.cells[:2] == ("one", "5")
    # Only the first is right on id 5, only the second on both predictions of id 4.
    assert row.cells[2] == "+20.00%"
    assert row.cells[4:] == ("2", "1", "1.0000")
    assert len(table.columns) == len(row.cells)
    said = winner(comparison, [first, second], ["one", "two"], ACCURACY)
    assert re.match(
        r"No winner: the accuracy of two is 60.00%, that of one 40.00%.* 5 predictions, 20.00 points", said.text
    )


def test_what_cannot_be_compared_is_said(tmp_path: Path) -> None:
    columns = {"seq": [0, 1], "id": [1, 2], "prediction": ["a", "a"]}
    first = run_with(tmp_path / "a", 0.9, **columns, truth=["a", "b"])
    other = run_with(tmp_path / "b", 0.8, **columns, truth=["a", "a"])
    numbers = run_with(tmp_path / "c", 0.7, seq=[0, 1], id=[1, 2], prediction=[0.5, 1.0], truth=[1.0, 2.0])
    numbers.summary["metrics"] = {"accuracy": 0.7}
    apart = run_with(tmp_path / "d", 0.6, seq=[0, 1], id=[8, 9], prediction=["a", "a"], truth=["a", "b"])
    table = differences(compared([first, other, numbers, apart], ACCURACY), ["a", "b", "c", "d"], ACCURACY)
    assert table.rows == []
    assert re.fullmatch(r"b: .*other labels.* c: .*kind.* d: .*no example.*", table.remark)
    runs = [first, run_with(tmp_path / "e", 0.1)]
    comparison = compared(runs, ACCURACY)
    assert "output.predictions" in differences(comparison, ["a", "e"], ACCURACY).remark
    assert "is not known" in winner(comparison, runs, ["a", "e"], ACCURACY).text
    assert compared(runs[:1], ACCURACY).best is None


def test_errors_of_numbers_get_an_interval(tmp_path: Path) -> None:
    columns = {"seq": [0, 1, 2], "id": [1, 2, 3], "truth": [1.0, 2.0, 3.0]}
    first = run_with(tmp_path / "a", 0.0, **columns, prediction=[1.0, 2.0, 3.0])
    second = run_with(tmp_path / "b", 1.0, **columns, prediction=[2.0, 3.0, 4.0])
    comparison = compared([second, first], SQUARED_ERROR)
    table = differences(comparison, ["b", "a"], SQUARED_ERROR)
    [row] = table.rows
    assert len(table.columns) == len(row.cells)
    assert row.cells == ("b", "3", "-1", "-1 to -1")
    said = winner(comparison, [second, first], ["b", "a"], SQUARED_ERROR).text
    assert "a wins" in said
    assert "difference is 1, with a 95% interval from 1 to 1" in said


def test_without_predictions_windows_are_compared(tmp_path: Path) -> None:
    """The interval is that of the windows as blocks; without the same windows there is none."""
    runs = [read_run(fabricated_run(tmp_path / name, rows=40, rebuilds=2)) for name in ("a", "b")]
    runs[0].summary["metrics"] = {"accuracy": 0.9}
    runs[1].summary["metrics"] = {"accuracy": 0.8}
    sizes = np.diff(runs[0].metrics["predictions"], prepend=0).astype(float)
    lost = np.random.default_rng(0).integers(0, 3, 40) / np.maximum(sizes, 1)
    runs[1].metrics["window_accuracy"] = runs[0].metrics["window_accuracy"] - lost
    [(other, found)] = compared(runs, ACCURACY).others
    assert not isinstance(found, str)
    scored = np.isfinite(runs[1].metrics["window_accuracy"]) & (sizes > 0)
    expected = (lost * sizes)[scored]
    assert (other, found.pairs, found.windows) == (1, round(sizes[scored].sum()), int(scored.sum()))
    assert found.mean == pytest.approx(expected.sum() / sizes[scored].sum())
    assert (found.low, found.high) == pytest.approx(interval_of_blocks(expected, sizes[scored]))
    assert found.low > 0
    runs[1].metrics["window_majority"] = runs[1].metrics["window_majority"] + 0.1
    assert compared(runs, ACCURACY).others == [(1, "reports.no_predictions")]
