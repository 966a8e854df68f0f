"""What the site has and ``docs/`` has not: pages of the repository's root, shipped configs, links that leave ``docs/``.

A link in a Markdown file is relative to the repository, so that it works there. On the site it leads to the same page,
to the page of configs, or, where the site has no such file, it becomes text. A link to nothing is a warning, by which a
strict build fails.
"""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

log = logging.getLogger("mkdocs.hooks.pages")
ROOT = Path(__file__).parents[2]
#: Pages of the site that are elsewhere in the repository.
ELSEWHERE = {
    "project/contributing.md": "CONTRIBUTING.md",
    "project/changes.md": "CHANGELOG.md",
    "project/tests.md": "tests/README.md",
    "tutorials/examples.md": "examples/README.md",
}
#: Folders whose files are on one page of the site.
EXAMPLES, CONFIGS = "tutorials/examples.md", "reference/configs.md"
ABOUT_CONFIGS = """# Configs

The files of the folder `configs`, with a comment at every key. Those whose source is synthetic run as they are: `raydt
replay configs/fudyadt.yaml`.
"""
CODE = re.compile(r"(^```.*?^```$|`[^`\n]+`)", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are not in ``docs/``."""
    for uri, path in ELSEWHERE.items():
        text = (ROOT / path).read_text(encoding="utf-8")
        if uri == EXAMPLES:
            text += "\n" + _sources("examples", "py", "python")
        files.append(File.generated(config, uri, content=text))
    files.append(File.generated(config, CONFIGS, content=f"{ABOUT_CONFIGS}\n{_sources('configs', 'yaml', 'yaml')}"))
    return files


def _sources(folder: str, suffix: str, language: str) -> str:
    """The files of a folder, each under its name."""
    return "\n".join(
        f"## {path.name}\n\n```{language}\n{path.read_text(encoding='utf-8').rstrip()}\n```\n"
        for path in sorted((ROOT / folder).glob(f"*.{suffix}"))
    )


def on_page_markdown(markdown: str, page: Page, config: Any, files: Files) -> str:
    """Let every link lead to a page of the site."""
    uri = page.file.src_uri
    here = ROOT / ELSEWHERE.get(uri, f"docs/{uri}")

    def replaced(match: re.Match[str]) -> str:
        image, text, target = match.groups()
        place, _, anchor = target.partition("#")
        if "://" in target or not place:
            return match.group()
        there = Path(os.path.normpath(here.parent / place))
        if not there.exists():
            log.warning("%s: there is no %s", here.relative_to(ROOT), target)
        found = _uri(there)
        if found is None:
            return str(text)
        relative = os.path.relpath(found, Path(uri).parent)
        return f"{image}[{text}]({relative}{'#' * bool(anchor)}{anchor})"

    # Code is taken out, so that what looks like a link in it stays, and put back.
    kept: list[str] = []

    def hide(match: re.Match[str]) -> str:
        kept.append(match.group())
        return f"\0{len(kept) - 1}\0"

    shown = LINK.sub(replaced, CODE.sub(hide, markdown))
    return re.sub(r"\0(\d+)\0", lambda match: kept[int(match.group(1))], shown)


def _uri(path: Path) -> str | None:
    """The page or file of the site that shows a path of the repository."""
    name = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else ""
    for uri, elsewhere in ELSEWHERE.items():
        if name == elsewhere:
            return uri
    if name == "README.md":
        return "README.md"
    if name == "configs" or path.suffix == ".yaml":
        return CONFIGS
    if path.suffix == ".py" and path.parent == ROOT / "examples":
        return EXAMPLES
    return name.removeprefix("docs/") if name.startswith("docs/") and path.is_file() else None
