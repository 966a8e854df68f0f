"""The page as a browser gets it: what is in it, what it may load, and what hostile names can do in it."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from fabricated_run import FEATURES, RECOVERED, fabricated_run, fabricated_tree, write_model
from fabricated_split import AUDIT, best_split_run

import pipelines.report
from pipelines.report.document import embedded_json
from pipelines.report.facts import labels
from pipelines.report.folder import read_run
from pipelines.report.page import write_report
from pipelines.report.run_article import run_article
from raydt.errors import InputError
from raydt.presentation.blocks import Section, has_content

SECTIONS = ["quality", "tree", "guarantee", "margins", "audit", "rebuilds", "stream", "shards", "config", "environment"]


class Page(HTMLParser):
    """Elements, visible text and scripts of a page."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.data: list[str] = []
        self.text = ""
        self.size = len(text)
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
        if self._inside == "script":
            self.scripts.append(data)
        elif self._inside == "data":
            self.data.append(data)
        elif not self._inside:
            self.text += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def ids(self) -> list[str]:
        return [str(attributes["id"]) for _, attributes in self.elements if "id" in attributes]

    @property
    def readouts(self) -> list[dict[str, Any]]:
        return [json.loads(text) for text in self.data]

    @property
    def paths(self) -> list[str]:
        return [str(attributes["d"]) for attributes in self.all("path") if attributes.get("d")]

    @property
    def words(self) -> str:
        return " ".join(self.text.split())


def page_of(run: Path, *others: Path) -> Page:
    return Page(write_report([run, *others], run / "report.html").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Page:
    return page_of(fabricated_run(tmp_path_factory.mktemp("report") / "run"))


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Page:
    folder = fabricated_run(tmp_path_factory.mktemp("large") / "run", rows=30_000, rebuilds=40_000)
    write_model(folder, fabricated_tree(classes=23, depth=40, rows=300_000))
    return page_of(folder)


def test_nothing_is_loaded_from_anywhere(page: Page) -> None:
    for tag, attributes in page.elements:
        for name in ("src", "href", "srcset", "data", "action", "poster", "background", "formaction"):
            value = attributes.get(name)
            assert value is None or value.startswith("data:image/svg+xml,") or (tag == "a" and value.startswith("#")), (
                tag,
                name,
                value,
            )
        assert "@import" not in (attributes.get("style") or "")
        assert "url(" not in (attributes.get("style") or "")
    style = (Path(pipelines.report.__file__).parent / "page.css").read_text()
    assert not re.search(r"@import|url\(|src\(|image-set", style)
    assert not re.search(
        r"fetch|XMLHttpRequest|WebSocket|EventSource|sendBeacon|import\s*\(|innerHTML|eval", page.scripts[0]
    )


def test_the_policy_forbids_the_network_and_names_exactly_the_scripts_of_the_page(page: Page) -> None:
    policy = next(m["content"] for m in page.all("meta") if m.get("http-equiv") == "Content-Security-Policy")
    directives = {part.split()[0]: part.split()[1:] for part in str(policy).split(";")}
    assert directives["default-src"] == ["'none'"]
    assert "connect-src" not in directives
    assert len(page.scripts) == 1
    hashes = [f"'sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}'" for s in page.scripts]
    assert directives["script-src"] == hashes
    assert not any("http" in word for words in directives.values() for word in words)


def outline(folder: Path) -> dict[str, str]:
    """Return the kinds of the blocks of each section, and the anchors of its headings and charts."""

    def word(block: Any) -> str:
        return getattr(block, "key", "") or type(block).__name__.lower()

    article = run_article(read_run(folder), "run")
    sections = [Section("", article.head, "head"), *article.sections]
    return {section.key: " ".join(word(b) for b in section.blocks if has_content(b)) for section in sections}


#: The outline of the fabricated run, and what differs of others.
OUTLINE = {
    "head": "text facts facts",
    "quality": "text quality-window quality-cumulative quality-kappa beside",
    "tree": "tree shape table",
    "guarantee": "margins text margins-depth margins-size table audit facts text beside text code",
    "rebuilds": "text rebuild-timeline rebuild-sizes-rebuilds rebuild-sizes-rows table",
    "stream": "live work",
    "shards": "text table",
    "config": "code",
    "environment": "facts text facts",
}
OTHERS: dict[str, tuple[Callable[[Path], Path], dict[str, str]]] = {
    "complete": (fabricated_run, {}),
    "recovered": (lambda folder: fabricated_run(folder, **RECOVERED), {"recovery": "text table"}),
    "failed": (
        lambda folder: fabricated_run(folder, rows=1, rebuilds=1, status="failed", error="e", audit=None),
        {
            "head": "text text facts facts",
            "quality": "text text beside",
            "tree": "tree table",
            "guarantee": "margins text margins-depth margins-size table audit text text code",
            "rebuilds": "text table",
            "stream": "text",
        },
    ),
    "best split": (
        lambda folder: best_split_run(folder, audit=AUDIT),
        {
            "tree": "text best-feature table table",
            "guarantee": "audit facts beside text code",
            "rebuilds": "text structure",
            "environment": "facts text facts",
        },
    ),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_articles_have_their_sections_and_blocks(tmp_path: Path, kind: str) -> None:
    make, other = OTHERS[kind]
    assert outline(make(tmp_path / "run")) == OUTLINE | other


def test_every_anchor_leads_somewhere(page: Page) -> None:
    assert {*SECTIONS, *OUTLINE} - {"head"} <= set(page.ids)
    assert len(page.ids) == len(set(page.ids))
    assert {str(link["href"])[1:] for link in page.all("a")} <= set(page.ids)
    assert {section["aria-labelledby"] for section in page.all("section")} <= set(page.ids)


def test_tables_have_captions_and_charts_are_described(page: Page) -> None:
    assert len(page.all("caption")) == len(page.all("table")) > 5
    charts = [a for a in page.all("figure") if "chart" in str(a["class"])]
    described = [a for a in page.all("div") + page.all("svg") if a.get("role") == "img"]
    assert len(charts) == len(described) == len(page.all("figcaption")) == 12
    assert all(len(str(drawing["aria-label"])) > 30 for drawing in described)
    assert len(page.data) == 10  # of the others one is a drawing of dots, one of the tree


def test_no_chart_goes_beyond_its_drawing(page: Page) -> None:
    assert len(page.paths) > 60
    for path in page.paths:
        assert not re.search("nan|inf|e", path), path[:80]
        for x, y in re.findall(r"[ML](-?[0-9.]+) (-?[0-9.]+)", path):
            assert -0.1 <= float(x) <= 1000.1, path[:80]
            assert -0.1 <= float(y) <= 1000.1, path[:80]


def test_every_position_of_a_chart_has_a_name_and_all_values(page: Page) -> None:
    for readout in page.readouts:
        assert len(readout["at"]) == len(readout["names"]) > 1
        assert all(len(values) in (0, len(readout["at"])) for values in readout["values"])
        assert readout["at"] == sorted(readout["at"])


def test_the_page_of_a_large_run_is_small(large: Page) -> None:
    assert large.size < 1_500_000
    assert "399 of " in large.words


def test_key_figures_are_beside_the_baselines(page: Page) -> None:
    for text in (
        "electricity-window",
        "fudyadt on electricity.parquet, sliding window of 1,000",
        "45,000",
        "2025-03-04 09:15:27 UTC",
        "The learner beats no-change",
        "ray, 2 shards",
        "312 MB",
        "F1 (DOWN)",
        "sha256:3f3f",
        "Rebuilds by the shards",
        "vicprice, vicdemand, transfer, weekday",
        "not promised by these options",
        "the theorem needs both to be positive",
        "gain gap",
        "local_work_limit: 5000",
        "pyarrow",
    ):
        assert text in page.words, text


LABELLED = [("monday", "my"), ("tuesday", "my"), ("friday", "other"), ("elsewhere/friday", "third")]
#: Changes of direction, of which the last is invisible too, and what a terminal obeys.
DECEIVING = "a\u202eb\u2066c\u200f\x1b[2Jd"


@pytest.mark.parametrize(
    "hostile", ["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "</script><b>", "{{ 7 * 7 }}", "a & b"]
)
def test_hostile_names_stay_text(tmp_path: Path, hostile: str) -> None:
    folder = fabricated_run(
        tmp_path / "run",
        rows=20,
        rebuilds=50,
        name=hostile,
        label=hostile,
        learner=hostile,
        status=hostile,
        error=hostile,
        exit_reason=hostile,
        classes=[hostile, hostile],
        features=[{"name": hostile, "kind": "numeric"}] * len(FEATURES),
        versions={hostile: hostile},
        model_digest=hostile,
        audit={"conformance": hostile, "feasibility": hostile, "reason": hostile, "failures": [hostile],
               "checked": {hostile: 1}, "worst": {hostile: 0.5}},
    )  # fmt: skip
    config = json.dumps({"source": {"path": hostile}, "learner": {"kind": hostile}})
    (folder / "config.yaml").write_text(config)
    page = page_of(folder)
    assert len(page.scripts) == 1
    assert not page.all("img")
    assert all("onerror" not in attributes for _, attributes in page.elements)
    assert page.text.count(hostile) > 15
    assert f"{hostile} \u2264 " in page.text
    assert config in page.text


def test_names_that_would_show_as_others_are_escaped(tmp_path: Path) -> None:
    folder = fabricated_run(
        tmp_path / "run",
        rows=20,
        rebuilds=50,
        name=DECEIVING,
        label=DECEIVING,
        learner=DECEIVING,
        error=f"{DECEIVING}\nand a second line",
        classes=[DECEIVING, f"{DECEIVING}2"],
        features=[{"name": DECEIVING, "kind": "numeric"}] * len(FEATURES),
        versions={DECEIVING: DECEIVING},
        audit={"conformance": "holds", "feasibility": DECEIVING, "reason": DECEIVING, "failures": [DECEIVING],
               "checked": {DECEIVING: 1}, "worst": {DECEIVING: 0.5}},
    )  # fmt: skip
    (folder / "config.yaml").write_text(json.dumps({"source": {"path": DECEIVING}}, ensure_ascii=False))
    page = page_of(folder)
    assert page.text.count(r"a\u202eb\u2066c\u200f\x1b[2Jd") > 15
    assert "and a second line" in page.text
    raw = (folder / "report.html").read_text(encoding="utf-8")
    readouts = [name for readout in page.readouts for name in readout["names"]]
    assert all(character in "\n\t" or character.isprintable() for character in raw + "".join(readouts))


def test_no_text_of_a_figure_can_end_its_element() -> None:
    hostile = json.dumps({"name": "</script><script>alert(1)</script><!-- &lt;"})
    embedded = embedded_json(hostile)
    assert not set("<>&") & set(embedded)
    assert json.loads(embedded) == json.loads(hostile)


def test_curves_are_thinned_and_the_page_says_so(large: Page) -> None:
    assert max(len(readout["at"]) for readout in large.readouts) == 400
    assert "Drawn from 30,000 rows merged into 400: one point per about 7,500 updates." in large.words
    assert "40,000 rebuilds, summed over 120 stretches of the stream." in large.words


def test_the_same_run_gives_the_same_bytes(tmp_path: Path) -> None:
    folder = fabricated_run(tmp_path / "run", rows=10, rebuilds=20)
    first = write_report([folder], tmp_path / "new folder" / "a.html")
    second = write_report([folder], tmp_path / "b.html")
    assert first == tmp_path / "new folder" / "a.html"
    assert first.read_bytes() == second.read_bytes()
    assert sorted(path.name for path in first.parent.iterdir()) == ["a.html"]


def test_several_runs_are_compared_and_their_anchors_kept_apart(tmp_path: Path) -> None:
    runs = [fabricated_run(tmp_path / name, rows=30, rebuilds=50, name=name) for name in ("first", "second")]
    page = page_of(*runs)
    assert "Comparison of the runs" in page.words
    assert {f"run-{n}-{key}" for n in (1, 2) for key in SECTIONS} <= set(page.ids)
    assert len(page.ids) == len(set(page.ids))
    assert len(page.scripts) == 1
    headings = [int(tag[1]) for tag, _ in page.elements if tag in ("h1", "h2", "h3", "h4")]
    assert headings.count(1) == 1
    assert all(deeper <= higher + 1 for higher, deeper in pairwise(headings))


def test_runs_are_told_apart_by_name_folder_or_location(tmp_path: Path) -> None:
    runs = [fabricated_run(tmp_path / place, rows=1, rebuilds=1, name=name) for place, name in LABELLED]
    folders, places = [read_run(run) for run in runs], [str(run) for run in runs]
    assert labels(folders[:3], places[:3]) == ["monday", "tuesday", "other (friday)"]
    assert labels(folders[2:], places[2:]) == [f"other ({places[2]})", f"third ({places[3]})"]


def test_what_is_no_run_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"neither summary\.json nor config\.yaml"):
        write_report([tmp_path], tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()
    with pytest.raises(ValueError, match="at least one"):
        write_report([], tmp_path / "report.html")
