"""Puts the report together: one HTML file with its style, its scripts and its data inside.

The Content-Security-Policy forbids every network request and every script but the two whose hashes it names, so that
nothing a file of data or a config says can act in the page, even if it escaped the escaping.
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from pipelines.report.charts import compared_quality, has_curve
from pipelines.report.folder import read_run
from pipelines.report.identity import labels
from pipelines.report.sections import run_view

_HERE = Path(__file__).parent


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
    drawn = [
        (view.label, folder.metrics)
        for view, folder in zip(views, folders, strict=True)
        if has_curve(folder.metrics, "accuracy")
    ]
    scripts = [get_plotlyjs(), (_HERE / "charts.js").read_text(encoding="utf-8")]
    environment = Environment(
        loader=FileSystemLoader(_HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["json_data"] = embedded_json
    return environment.get_template("template.html").render(
        title=views[0].name if not several else f"{len(views)} runs",
        runs=views,
        several=several,
        compared=compared_quality(drawn, len(views) - len(drawn)) if several and drawn else None,
        style=Markup((_HERE / "style.css").read_text(encoding="utf-8")),
        scripts=[Markup(script) for script in scripts],
        policy=_policy(scripts),
    )


def _policy(scripts: Sequence[str]) -> str:
    """Nothing from the network; scripts by hash; inline style and images made in the page (Plotly's downloads)."""
    hashes = " ".join(f"'sha256-{_digest(script)}'" for script in scripts)
    rules = (
        "default-src 'none'",
        f"script-src {hashes}",
        "style-src 'unsafe-inline'",
        "img-src data: blob:",
        "base-uri 'none'",
        "form-action 'none'",
    )
    return "; ".join(rules)


@cache
def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def embedded_json(text: str) -> Markup:
    """JSON that can stand inside a script element: no character in it can end the element."""
    return Markup(text.replace("&", r"\u0026").replace("<", r"\u003c").replace(">", r"\u003e"))
