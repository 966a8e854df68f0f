"""The pages of runs and sweeps: what they show and may load, and what hostile names and lost files do to them."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipelines.report
from pipelines.display import run_lines
from pipelines.report.compare import compare, flat
from pipelines.report.facts import labels, recoveries
from pipelines.report.folder import checkpoints_in_words, read_run, recovered_in_words
from pipelines.report.page import document, embedded_json, render, write_report
from pipelines.reporting import publish_report
from pipelines.run_folder import RunFolder
from raydt.presentation.blocks import Article, Text
from tests.refusals import refused
from tests.unit.fabricated_run import FEATURES, RECOVERED, fabricated_run, fabricated_tree, write_model, write_table
from tests.unit.report_cases import FILE, PAGES
from tests.unit.report_outline import outline


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
