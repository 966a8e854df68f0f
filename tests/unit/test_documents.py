"""The documents are finished, and what they point at is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_no_placeholder_and_no_dead_link(path: Path) -> None:
    text = path.read_text()
    assert not re.search(r"@[A-Z]+@|TODO|FIXME", text)
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        assert "://" in target or (path.parent / target).exists(), target


def test_ci_runs_the_test_command_of_the_readme() -> None:
    assert "'.[dev]'" in (ROOT / "README.md").read_text()
    assert "README.md" in (ROOT / ".ci" / "run").read_text()
