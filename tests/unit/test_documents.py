"""The documents are finished: links and paths lead somewhere, and what they show runs.

Links of the pages under ``docs`` are checked by the strict build of the site (``.ci/run``).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import raydt
from tests import pages

ROOT = Path(__file__).parents[2]
#: Pages that are not on the site, and those that are.
OUTSIDE = sorted([*ROOT.glob("*.md"), ROOT / "examples" / "README.md", ROOT / "tests" / "README.md"])
#: The tutorial after which a reader has what the guides take for granted: data, a config, runs.
FIRST = ROOT / "docs" / "tutorials" / "own-data.md"
GUIDES = sorted((ROOT / "docs" / "how-to").glob("*.md"))
#: Pages for readers who do what they say, top to bottom in one folder. Of other pages every block runs, too.
WHOLE = [ROOT / "README.md", *sorted((ROOT / "docs" / "tutorials").glob("*.md")), *GUIDES]
DOCUMENTS = [*OUTSIDE, *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "benchmarks").rglob("*.md"))]

RUN = [*WHOLE, *(p for p in DOCUMENTS if p not in WHOLE and any(pages.blocks(p)))]

LINK = re.compile(r"\]\(([^()\s]+)\)")
#: A path of the repository in prose or code; what has a variable part (``<kind>``, ``*``, ``NAME``) is none.
MENTION = re.compile(
    r"(?<![\w/.:-])((?:raydt|actors|pipelines|tests|configs|docs|benchmarks|examples)/[\w./-]*\w)(?![\w*<>{|-])"
)
FENCE = re.compile(r"^```(.*)\n((?:.*\n)*?)```$", re.MULTILINE)
#: Made when they are needed, and ignored by git.
GENERATED = {"benchmarks/results", "raydt/_packages"}


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def prose(text: str) -> str:
    return FENCE.sub("", text)


def anchors(path: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", prose(path.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", DOCUMENTS, ids=name)
def test_nothing_is_left_to_do(path: Path) -> None:
    assert not re.search(r"@[A-Z]+@|TODO|FIXME", prose(path.read_text()))


@pytest.mark.parametrize("path", OUTSIDE, ids=name)
def test_links_lead_to_pages_and_headings(path: Path) -> None:
    text = prose(path.read_text())
    for target in LINK.findall(text):
        if "://" not in target:
            page, _, anchor = target.partition("#")
            there = (path.parent / page).resolve() if page else path
            assert there.exists(), target
            assert not anchor or anchor in anchors(there), target


@pytest.mark.parametrize("path", DOCUMENTS, ids=name)
def test_paths_in_prose_exist(path: Path) -> None:
    mentions = set(MENTION.findall(path.read_text())) - GENERATED
    assert not [mention for mention in mentions if not (ROOT / mention).exists()]


def test_documents_named_in_code_and_configs_exist() -> None:
    folders = ("raydt", "actors", "pipelines", "tests", "benchmarks", "configs")
    files = [path for folder in folders for kind in ("*.py", "*.yaml") for path in (ROOT / folder).rglob(kind)]
    texts = [path.read_text(errors="replace") for path in files]  # the corpus has files that are not UTF-8
    mentions = {mention for text in texts for mention in re.findall(r"\bdocs/[\w./-]+\.md", text)}
    assert mentions
    assert not [mention for mention in mentions if not (ROOT / mention).exists()]


def test_the_page_of_keys_has_the_keys_of_now() -> None:
    """In a process of its own, which knows no learner of the tests."""
    command = [sys.executable, "docs/.site/reference.py", "--check"]
    alone = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=ROOT, env=alone, check=False)
    assert not done.returncode, "python docs/.site/reference.py writes the keys anew"


@pytest.mark.parametrize("path", DOCUMENTS, ids=name)
def test_prose_is_wrapped(path: Path) -> None:
    lines = prose(path.read_text()).splitlines()
    # Tables and headings are one line each; equations stay together.
    assert not [line for line in lines if len(line) > 125 and not line.startswith(("|", "#")) and " " in line.strip()]


def runs() -> Iterator[Any]:
    """Every page; nightly once more those with blocks that start Ray or take long."""
    for path in RUN:
        yield pytest.param(path, id=name(path))
        if path in WHOLE and any(block.comment == "nightly" for block in pages.blocks(path)):
            yield pytest.param(path, id=f"{name(path)}, with Ray", marks=[pytest.mark.nightly, pytest.mark.ray])


@pytest.fixture(scope="session")
def after_the_tutorial(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a reader of :data:`FIRST`."""
    folder = tmp_path_factory.mktemp("reader")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        pages.run(FIRST)
    return folder


@pytest.mark.turns(6)
@pytest.mark.parametrize("path", list(runs()))
def test_every_block_of_a_page_runs(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """In the order of the page; a block that is not run says why."""
    monkeypatch.chdir(tmp_path)
    if path.name == "README.md":
        own_data()
    if path in GUIDES:
        shutil.copytree(request.getfixturevalue("after_the_tutorial"), tmp_path, dirs_exist_ok=True)
    executed = pages.run(path)
    assert executed or all(block.comment for block in pages.blocks(path) if block.language in ("bash", "python"))


def own_data() -> None:
    """The files that the README takes for granted, as of its reader."""
    ids, ages = list(range(800)), [18 + i * i % 70 for i in range(800)]
    rows = {"customer_id": ids, "age": ages, "churned": ["yes" if age > 50 else "no" for age in ages]}
    pq.write_table(pa.table(rows), "customers.parquet")
    pq.write_table(pa.table({"id": [3, 5]}), "deletions.parquet")
    Path("requests.csv").write_text("id\n17\n")


PAGE = """```csv title="a.csv"\none\n```\n```bash\ncat a.csv\n```\n```\none\n```\n"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("```\none", "```\ntwo"),
        (' title="a.csv"', ""),
        ("cat a.csv", "cat b.csv"),
        ("cat a.csv", "raydt audit nowhere"),
    ],
    ids=["another output", "a block without a purpose", "a command that fails", "a command of ours that fails"],
)
def test_a_page_that_is_wrong_fails(old: str, new: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    assert pages.run(page) == 1
    page.write_text(PAGE.replace(old, new))
    with pytest.raises(AssertionError, match=r"page\.md, line"):
        pages.run(page)


@pytest.mark.parametrize("path", DOCUMENTS, ids=name)
def test_no_page_installs_raydt_from_an_index(path: Path) -> None:
    """It is not published: ``pip install raydt`` finds nothing, or what somebody else has published."""
    assert not re.findall(r"pip install [^`\n&]*\braydt\b(?![\[./*-])", path.read_text())


def test_every_page_is_in_an_index() -> None:
    """The home page, or the index of a folder that the home page links."""
    docs = ROOT / "docs"
    indexes = [docs / "README.md", docs / "development" / "README.md", docs / "explanation" / "guarantees.md"]
    linked = {
        (index.parent / target.partition("#")[0]).resolve()
        for index in indexes
        for target in LINK.findall(index.read_text())
    }
    assert not [name(page) for page in docs.rglob("*.md") if page != indexes[0] and page.resolve() not in linked]


@pytest.mark.parametrize("path", sorted((ROOT / "docs" / "explanation").rglob("*.md")), ids=name)
def test_an_explanation_can_be_finished(path: Path) -> None:
    assert len(path.read_text().split()) <= 2500


def test_one_version_everywhere() -> None:
    assert f"version: {raydt.__version__}" in (ROOT / "CITATION.cff").read_text().splitlines()
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest
    assert newest.group(1) == raydt.__version__


def test_ci_runs_the_test_command_of_the_readme() -> None:
    lines = [line for line in (ROOT / "README.md").read_text().splitlines() if "'.[dev]'" in line]
    assert len(lines) == 1
    assert lines[0].startswith("python3 -m venv .venv && ")
    steps = (ROOT / ".ci" / "run").read_text().splitlines()
    assert set(lines[0].split(" && ")) <= set(steps)


@pytest.mark.parametrize("path", DOCUMENTS, ids=name)
def test_each_row_of_a_table_has_the_cells_of_its_head(path: Path) -> None:
    """A row more on the same line is lost on the site, which takes the first cells only."""
    cells, wrong = 0, []
    for number, line in enumerate(
        FENCE.sub(lambda found: "\n" * found.group().count("\n"), path.read_text()).splitlines(), 1
    ):
        found = len(re.findall(r"(?<!\\)\|", line)) if line.startswith("|") else 0
        wrong += [number] if cells and found and found != cells else []
        cells = (cells or found) if found else 0
    assert not wrong
