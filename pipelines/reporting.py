"""Reports, wherever the run folders are."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from pipelines.report import write_report
from pipelines.run_folder import RunFolder
from raydt.errors import InputError


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

    Raises
    ------
    InputError
        A folder that is no run, or a report that cannot be written.
    """
    folders = [RunFolder(run) for run in runs]
    target = (
        f"{folders[0].location}/report.html"
        if out is None and len(runs) == 1
        else str(Path(out or "report.html").resolve())
    )
    try:
        if out is None and len(folders) == 1:
            publish_report(folders[0])
        else:
            with ExitStack() as stack:
                local = [stack.enter_context(folder.local()) for folder in folders]
                write_report(local, Path(target), locations=[folder.location for folder in folders])
    except OSError as error:
        remedy = "Give a place that can be written with --out"
        raise InputError(
            f"the report cannot be written: {error.strerror or error}", file=target, remedy=remedy
        ) from error
    return target
