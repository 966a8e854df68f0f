"""The document of every page: one HTML file with its style, its script and its drawings inside.

The Content-Security-Policy forbids every network request and every script but the one whose hash it names, so that
nothing a file of data or a config says can act in the page, even if it escaped the escaping.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

import raydt
from pipelines.printing import escaped
from pipelines.report import svg
from raydt.presentation.blocks import OPEN_LEVELS, Article, Best, Block, Name, has_content

_HERE = Path(__file__).parent
_ELEMENTS: dict[type, str] = {Best: "strong", Name: "code"}
_ICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16">'
    '<path d="M8 3v3M4 12V9l4-3 4 3v3" fill="none" stroke="#0072b2" stroke-width="1.5"/>'
    '<path d="M8 3h0M4 13h0M12 13h0" stroke="#e69f00" stroke-width="5" stroke-linecap="round"/>'
    "</svg>"
)


def document(title: str, kind: str, articles: Sequence[Article], overview: Article | None = None) -> str:
    """Return the text of a page: a report, a sweep (``kind``). An ``overview`` stands before articles that fold."""
    script = (_HERE / "page.js").read_text(encoding="utf-8")
    return (
        _environment()
        .get_template("page.html")
        .render(
            title=title,
            kind=kind,
            articles=articles,
            overview=overview,
            icon=f"data:image/svg+xml,{quote(_ICON)}",
            version=raydt.__version__,
            style=Markup((_HERE / "page.css").read_text(encoding="utf-8")),
            script=Markup(script),
            policy=_policy(script),
        )
    )


def is_page(file: Path) -> bool:
    """Return True if a file is a page that :func:`document` made, by the generator that its head names."""
    if not file.is_file():
        return False
    with file.open("rb") as stream:
        return b'<meta name="generator" content="raydt">' in stream.read(4096)


@cache
def _environment() -> Environment:
    """Return the templates, compiled once in a process."""
    environment = Environment(
        loader=FileSystemLoader(_HERE),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "grouped": grouped,
        "json_data": embedded_json,
        "svg_path": svg.path,
        "svg_dots": svg.dots_of,
        "svg_kind": svg.kind,
        "svg_grid": svg.grid,
        "svg_uprights": svg.uprights,
        "svg_readout": svg.readout,
    }
    environment.globals["open_levels"] = OPEN_LEVELS
    return environment


def grouped(blocks: Iterable[Block]) -> list[tuple[str, list[Block]]]:
    """Group neighbouring blocks of one kind under the kind's name; empty blocks are left out."""
    groups = groupby((block for block in blocks if has_content(block)), lambda block: type(block).__name__.lower())
    return [(kind, list(group)) for kind, group in groups]


def _shown(value: Any) -> Any:
    """Escape characters of data that would show as others; keep our markup; mark cells that have a meaning."""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    text = escaped(value, keep="\n\t")
    element = _ELEMENTS.get(type(value))
    return Markup("<{0}>{1}</{0}>").format(element, text) if element else text


def _policy(script: str) -> str:
    """Allow nothing from the network; allow the script by its hash; inline style, and the icon."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    rules = (
        "default-src 'none'",
        f"script-src 'sha256-{digest}'",
        "style-src 'unsafe-inline'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
    )
    return "; ".join(rules)


def embedded_json(text: str) -> Markup:
    """Return JSON that can stand inside a script element: no character in it can end the element."""
    return Markup(text.replace("&", r"\u0026").replace("<", r"\u003c").replace(">", r"\u003e"))
