"""Reports, wherever the run folders are."""

from __future__ import annotations

import os
from contextlib import ExitStack, nullcontext
from pathlib import Path

from pipelines.outputs import require_apart, writing_alone
from pipelines.run_folder import RunFolder
from raydt.errors import InputError
from raydt.messages import message


def publish_report(folder: RunFolder) -> None:
    """Write ``report.html`` of a run into its folder."""
    from pipelines.report.page import write_report  # drawing is imported where something is drawn

    with folder.local() as run:
        page = write_report([run], run / "report.html", locations=[folder.location])
        if not folder.is_local:
            folder.receive(page, "report.html")


def report_of(runs: list[str], out: str | None) -> str:
    """Write one report about one or several runs, and return its place.

    ``out`` is a local file whose name ends in .html; only a page of raydt is replaced. By default the report is
    ``report.html`` in the run's folder, or in the working directory for several runs. ConfigError if ``out`` lies in a
    run, a model or a state, or another process writes it; InputError for a folder that is no run or given twice, a name
    that is not for a page, or a report that cannot be written.
    """
    from pipelines.report.page import write_report

    folders = [RunFolder(run) for run in runs]
    locations = [folder.location for folder in folders]
    for folder in folders:
        _require_run(folder)
    if len(set(locations)) < len(locations):
        twice = next(location for location in locations if locations.count(location) > 1)
        raise InputError(message("reports.same_run"), file=twice)
    in_run = out is None and len(folders) == 1
    target = f"{locations[0]}/report.html"
    try:
        if in_run:
            with writing_alone(Path(target), "the report") if folders[0].is_local else nullcontext():
                publish_report(folders[0])
        else:
            target = str(_target(out or "report.html"))
            own = f"{os.path.realpath(folders[0].root)}/report.html"
            if target != own or len(folders) > 1:
                require_apart("--out", target, [])
            with writing_alone(Path(target), "the report"), ExitStack() as stack:
                local = [stack.enter_context(folder.local()) for folder in folders]
                write_report(local, Path(target), locations=locations)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise InputError(message("outputs.not_written", what="the report", reason=reason), file=target) from error
    return target


def _require_run(folder: RunFolder) -> None:
    """Refuse the folder of a sweep: it looks like a run that died."""
    if folder.has("sweep.json") and not folder.has("summary.json"):
        raise InputError(message("reports.sweep"), file=folder.location)


def _target(out: str) -> Path:
    """Return the place of a page; a file that is not a page is never replaced."""
    from pipelines.report.document import is_page

    target = Path(out).expanduser().resolve()
    if target.suffix.lower() not in (".html", ".htm"):
        raise InputError(message("outputs.other_name", kind="HTML", ends=".html"), file=str(target))
    if target.exists() and not is_page(target):
        raise InputError(message("outputs.no_page"), file=str(target))
    return target
