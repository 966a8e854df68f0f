"""Reports, wherever the run folders are."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from pipelines.report import write_report
from pipelines.run_folder import RunFolder


def publish_report(folder: RunFolder) -> None:
    """Write ``report.html`` of a run into its folder."""
    with folder.local() as run:
        page = write_report([run], run / "report.html", locations=[folder.location])
        if not folder.is_local:
            folder.receive(page, "report.html")


def report_of(runs: list[str], out: str | None) -> str:
    """Write one report about one or several runs.

    Parameters
    ----------
    runs : list of path or URI
    out : path, optional
        A local file. By default ``report.html`` in the run's folder, or in the working directory for several runs.

    Returns
    -------
    str
        Where it is.
    """
    folders = [RunFolder(run) for run in runs]
    if out is None and len(folders) == 1:
        publish_report(folders[0])
        return f"{folders[0].location}/report.html"
    with ExitStack() as stack:
        local = [stack.enter_context(folder.local()) for folder in folders]
        locations = [folder.location for folder in folders]
        return str(write_report(local, Path(out or "report.html").resolve(), locations=locations))
