"""The audit of a run that is kept in chapters: of each that has ended."""

from __future__ import annotations

from collections.abc import Callable

from pipelines.run_files import STATES
from pipelines.run_folder import RunFolder
from raydt.audits.audit_report import AuditReport
from raydt.errors import InputError
from raydt.folders.manifest import complete
from raydt.messages import message


def audit_chapters(run: RunFolder, audit: Callable[[str], AuditReport]) -> AuditReport:
    """Audit all chapters that have ended and have a state; return the report on the newest, with failures of all."""
    found = {folder: audit(folder.location) for folder in run.chapters() if _can_be_audited(folder)}
    if not found:
        raise InputError(message("runs.no_summary"), file=run.location)
    *_, report = found.values()
    failures = [
        f"{folder.location.rpartition('/')[2]}: {said}" for folder, one in found.items() for said in one.failures
    ]
    if any(one.conformance == "violated" for one in found.values()):
        report.conformance = "violated"
    if any(one.feasibility == "violated" for one in found.values()):
        report.feasibility = "violated"
    report.checked, report.failures = {**report.checked, "chapters": len(found)}, failures
    return report


def _can_be_audited(folder: RunFolder) -> bool:
    return folder.has("summary.json") and bool(complete(folder.inside(STATES)))
