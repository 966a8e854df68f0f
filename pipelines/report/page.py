"""Puts the report together: one HTML file with its style, its script and its drawings inside.

The Content-Security-Policy forbids every network request and every script but the one whose hash it names, so that
nothing a file of data or a config says can act in the page, even if it escaped the escaping.
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

import raydt
from pipelines.report.compare import compare
from pipelines.report.folder import read_run
from pipelines.report.identity import labels
from pipelines.report.sections import run_view

_HERE = Path(__file__).parent
_ICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16">'
    '<path d="M8 3v3M4 12V9l4-3 4 3v3" fill="none" stroke="#0072b2" stroke-width="1.5"/>'
    '<path d="M8 3h0M4 13h0M12 13h0" stroke="#e69f00" stroke-width="5" stroke-linecap="round"/>'
    "</svg>"
)


def write_report(runs: Sequence[Path], out: Path, *, locations: Sequence[str] | None = None) -> Path:
    """Write one HTML file about one or several runs.

    Parameters
    ----------
    runs : sequence of Path
        Run folders; at least one. Several are compared before each is shown.
    out : Path
        The file to write; its folder is made. It appears complete or not at all.
    locations : sequence of str, optional
        What commands on the page call the run folders, if not by ``runs``: the URIs of folders copied from there.

    Returns
    -------
    Path
        ``out``.

    Raises
    ------
    InputError
        If one of ``runs`` is not a run folder.
    ValueError
        If ``runs`` is empty.
    """
    if not runs:
        raise ValueError("a report needs at least one run folder")
    page = render(runs, locations)
    out.parent.mkdir(parents=True, exist_ok=True)
    unfinished = out.with_name(f".{out.name}.{os.getpid()}")
    unfinished.write_text(page, encoding="utf-8", newline="\n")
    unfinished.replace(out)
    return out


def render(runs: Sequence[Path], locations: Sequence[str] | None = None) -> str:
    """The page about ``runs`` as text; parameters as in :func:`write_report`."""
    folders = [read_run(run) for run in runs]
    locations = [str(run) for run in runs] if locations is None else locations
    several = len(folders) > 1
    views = [
        run_view(folder, location, label, f"run-{number}-" if several else "")
        for number, (folder, location, label) in enumerate(
            zip(folders, locations, labels(folders, locations), strict=True), start=1
        )
    ]
    script = (_HERE / "page.js").read_text(encoding="utf-8")
    return (
        _environment()
        .get_template("page.html")
        .render(
            title=views[0].name if not several else f"{len(views)} runs",
            runs=views,
            several=several,
            compared=compare(folders, [view.label for view in views]) if several else None,
            icon=f"data:image/svg+xml,{quote(_ICON)}",
            version=raydt.__version__,
            style=Markup((_HERE / "page.css").read_text(encoding="utf-8")),
            script=Markup(script),
            policy=_policy(script),
        )
    )


@cache
def _environment() -> Environment:
    """The templates, compiled once in a process."""
    environment = Environment(
        loader=FileSystemLoader(_HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["json_data"] = embedded_json
    return environment


def _policy(script: str) -> str:
    """Nothing from the network; the script by its hash; inline style, and the icon."""
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
    """JSON that can stand inside a script element: no character in it can end the element."""
    return Markup(text.replace("&", r"\u0026").replace("<", r"\u003c").replace(">", r"\u003e"))
