"""Writes the report about one or several runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pipelines.report.document import document
from pipelines.report.facts import labels
from pipelines.report.folder import ReportedRun, read_run
from pipelines.report.keyed_article import keyed_article
from pipelines.report.run_article import run_article
from pipelines.run_folder import fitting
from raydt.folders.folder import Folder
from raydt.messages import message
from raydt.presentation.blocks import Article


def write_report(
    runs: Sequence[Path], out: Path, *, locations: Sequence[str] | None = None, key: str | None = None
) -> Path:
    """Write one HTML file, at once or not at all, about one run or several; ``locations`` are for commands."""
    if not runs:
        raise ValueError(message("reports.no_runs"))
    page = render(runs, locations, key)
    Folder(out.parent).publish(out.name, page.encode())
    return out


def render(runs: Sequence[Path], locations: Sequence[str] | None = None, key: str | None = None) -> str:
    """Return the page about ``runs``; parameters as in :func:`write_report`."""
    locations = [str(run) for run in runs] if locations is None else locations
    with fitting(", ".join(locations)):
        return _rendered([read_run(run, key) for run in runs], locations)


def _rendered(folders: list[ReportedRun], locations: Sequence[str]) -> str:
    if len(folders) == 1:
        article = _article(folders[0], locations[0])
        return document(article.title, "report", [article])
    from pipelines.report.compare import compare  # it reads data sets, whose import takes longer than one report

    named = labels(folders, locations)
    articles = [
        _article(folder, location, label, f"run-{number}-")
        for number, (folder, location, label) in enumerate(zip(folders, locations, named, strict=True), start=1)
    ]
    return document(f"{len(folders)} runs", "report", articles, compare(folders, named))


def _article(run: ReportedRun, location: str, label: str = "", prefix: str = "") -> Article:
    return (keyed_article if run.keys else run_article)(run, location, label, prefix)
