"""Commands that prove what a run or a state holds: audit, verify."""

from __future__ import annotations

from typing import Any

import click

from pipelines.commands.options import JSON, RECEIPT_KEY, print_result
from raydt.messages import message


@click.command(short_help="Check a run's last state against its raw examples.")
@click.argument("run")
@JSON
def audit(run: str, as_json: bool) -> int:
    """Recompute RUN's last state from the raw examples and check that the model and its guarantee are right.

    RUN may also be a state written by update: it is checked against the examples saved in it.

    \b
    Conformance: the model and its statistics are those of the raw examples. Feasibility: its guarantee holds.

    Exit code 3 if conformance is violated or feasibility is refuted.
    Example:  raydt audit runs/first
    """
    from pipelines.auditing import audit_run, audit_state
    from pipelines.display import audit_lines
    from pipelines.run_folder import RunFolder, fitting
    from pipelines.running.ending import read_summary
    from raydt.folders.manifest import MANIFEST, newest
    from raydt.learners import described

    summary: dict[str, Any] | None = None
    of: dict[str, Any] | None = None
    if newest(RunFolder(run)).has(MANIFEST):
        report = audit_state(run).as_dict()
    else:
        report = audit_run(run).as_dict()
        summary = read_summary(RunFolder.existing(run))
        shown = ("status", "exit_reason", "updates", *described(summary.get("learner")).audited_with)
        of = {name: summary[name] for name in shown if name in summary}
    with fitting(f"{run}/summary.json"):
        text = audit_lines(report, summary)
    print_result({"run": of, **report}, text, as_json)
    return 0 if report["ok"] else 3


@click.command(short_help="Check receipts, or train a model from the remaining examples and compare digests.")
@click.argument("run", metavar="RUN|RECEIPTS")
@click.argument("state", required=False)
@RECEIPT_KEY
@click.option("--public-key", metavar="HEX", help="Ed25519 key by which every receipt must be signed.")
@JSON
def verify(run: str, state: str | None, receipt_key: str | None, public_key: str | None, as_json: bool) -> int:
    """Train the model of RUN from nothing on the examples that remain, and compare the digests.

    RUN may also be a state: its own examples are then used. Given a file of RECEIPTS that update wrote, verify checks
    that chain instead and, with STATE, that it is the state of the last receipt.

    \b
    For learners whose model is a function of the live examples: equal digests prove that nothing of a deleted
    example is left in the trees, to anyone who holds the remaining ones. Compared are the digest in the summary,
    the last state and the saved model. Names of categories and classes that only deleted examples had stay in
    the manifests.

    Exit code 3 if anything differs, and the first line says what.

    Example:  raydt verify runs/first

    With receipts:  raydt verify receipts.jsonl states/second --receipt-key key.txt
    """
    from pathlib import Path

    from pipelines.display import receipts_lines, verify_lines
    from pipelines.verifying import verify_receipts, verify_run

    if Path(run).is_file():
        checked = verify_receipts(run, state, key=receipt_key, public_key=public_key)
        print_result(checked, receipts_lines(checked), as_json)
        return 0 if checked["ok"] else 3
    if state is not None or receipt_key is not None or public_key is not None:
        raise click.UsageError(message("commands.not_receipts", run=run))
    found = verify_run(run)
    print_result(found, verify_lines(found), as_json)
    return 0 if found["equal"] else 3
