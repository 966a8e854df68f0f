"""Writes the report about one or several runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pipelines.report.compare import compare
from pipelines.report.document import document
from pipelines.report.folder import RunFolder as ReadRun
from pipelines.report.folder import read_run
from pipelines.report.identity import labels
from pipelines.report.sections import run_view
from pipelines.run_folder import fitting
from raydt.folders.folder import Folder


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
    Folder(out.parent).publish(out.name, page.encode())
    return out


def render(runs: Sequence[Path], locations: Sequence[str] | None = None) -> str:
    """The page about ``runs`` as text; parameters as in :func:`write_report`."""
    locations = [str(run) for run in runs] if locations is None else locations
    with fitting(", ".join(locations)):
        return _rendered([read_run(run) for run in runs], locations)


def _rendered(folders: list[ReadRun], locations: Sequence[str]) -> str:
    several = len(folders) > 1
    views = [
        run_view(folder, location, label, f"run-{number}-" if several else "")
        for number, (folder, location, label) in enumerate(
            zip(folders, locations, labels(folders, locations), strict=True), start=1
        )
    ]
    return document(
        Path(__file__).with_name("report.html"),
        title=views[0].name if not several else f"{len(views)} runs",
        kind="report",
        runs=views,
        several=several,
        compared=compare(folders, [view.label for view in views]) if several else None,
    )
