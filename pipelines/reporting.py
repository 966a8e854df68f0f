"""Reports, wherever the run folders are."""

from __future__ import annotations

import os
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any

from pipelines.receipts import may_quote, quoting
from pipelines.run_folder import RunFolder
from pipelines.saved_runs import require_apart, writing_alone, written
from raydt.errors import ConfigError, InputError
from raydt.folders.folder import Folder
from raydt.messages import message
from raydt.presentation.charts import counted
from raydt.sessions.receipt_chain import Chain, read_chain


def publish_report(folder: RunFolder) -> None:
    """Write ``report.html`` of a run into its folder."""
    from pipelines.report.page import write_report  # drawing is imported where something is drawn

    with folder.local() as run:
        page = write_report([run], run / "report.html", locations=[folder.location])
        if not folder.is_local:
            folder.receive(page, "report.html")


def report_of(runs: list[str], out: str | None, key: str | None = None) -> str:
    """Write one report about one or several runs, and return its place: ``out``, or that in the run's folder.

    Of models by key it is about one ``key``, if that is given. Only a page of raydt is replaced. ConfigError if ``out``
    may not be written; InputError if a folder is no run.
    """
    from pipelines.report.page import write_report

    folders = [RunFolder(run) for run in runs]
    locations = [folder.location for folder in folders]
    for folder in folders:
        if folder.has("sweep.json") and not folder.has("summary.json"):  # which looks like a run that died
            raise InputError(message("reports.sweep"), file=folder.location)
    if len(set(locations)) < len(locations):
        twice = next(location for location in locations if locations.count(location) > 1)
        raise InputError(message("reports.same_run"), file=twice)
    if key is not None and (out is None or len(folders) > 1):
        raise ConfigError(message("keyed.page"))
    in_run = out is None and len(folders) == 1
    target = f"{locations[0]}/report.html"
    if in_run:
        own_lock = writing_alone(Path(target), "the report") if folders[0].is_local else nullcontext()
        with written(target, "the report"), own_lock:
            publish_report(folders[0])
        return target
    target = str(_target(out or "report.html"))
    own = f"{os.path.realpath(folders[0].root)}/report.html"
    if target != own or len(folders) > 1:
        require_apart("--out", target, [])
    with written(target, "the report"), writing_alone(Path(target), "the report"), ExitStack() as stack:
        stack.enter_context(quoting(all(map(may_quote, locations))))
        local = [stack.enter_context(folder.local()) for folder in folders]
        write_report(local, Path(target), locations=locations, key=key)
    return target


def receipt_pages(chain: str, out: str | None, number: int | None = None) -> str:
    """Write a page for each receipt of a chain, or for one; return their folder, named as the chain."""
    from pipelines.report.page import document, receipt_article

    read = _chain_of(chain, number)
    folder = Path(out).expanduser() if out is not None else Path(chain).with_suffix("")
    numbers = range(1, len(read.entries) + 1) if number is None else (number,)
    for one in numbers:
        target = _target(str(folder / f"receipt-{one}.html"))
        article = receipt_article(read, one, Path(chain).name)
        with written(target, "the page"):
            target.parent.mkdir(parents=True, exist_ok=True)
            Folder(target.parent).publish(target.name, document(article.title, "receipt", [article]).encode())
    return str(folder)


def receipt_of(chain: str, number: int) -> tuple[dict[str, Any], str]:
    """Return a receipt of a chain, and the same as text for people; errors as of :func:`receipt_pages`."""
    from pipelines.display import article_text
    from pipelines.report.page import receipt_article

    read = _chain_of(chain, number)
    return read.entries[number - 1], article_text(receipt_article(read, number, Path(chain).name))


def _chain_of(file: str, number: int | None) -> Chain:
    read = read_chain(file)
    total = len(read.entries)
    if number is not None and number > total:
        said = message("receipts.no_receipt", number=number, receipts=counted(total, "receipt"), total=total)
        raise InputError(said, file=file)
    return read


def _target(out: str) -> Path:
    """Return the place of a page; a file that is not a page is never replaced."""
    from pipelines.report.page import is_page

    target = Path(out).expanduser().resolve()
    if target.suffix.lower() not in (".html", ".htm"):
        raise InputError(message("outputs.other_name", kind="HTML", ends=".html"), file=str(target))
    with written(target, "the page"):
        if target.exists() and not is_page(target):
            raise InputError(message("outputs.no_page"), file=str(target))
    return target
