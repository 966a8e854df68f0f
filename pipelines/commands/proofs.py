"""Commands that prove what a run or a state holds: audit, verify."""

from __future__ import annotations

from typing import Any

import click

from pipelines.commands.options import ADDRESS, JSON, KEY, RECEIPT_KEY, print_result
from raydt.messages import message


@click.command(short_help="Check a run's last state against its raw examples.")
@click.argument("run")
@KEY
@click.option(
    "--shards",
    type=click.IntRange(1),
    default=1,
    metavar="N",
    help="Divide the rows among N processes on Ray, each of which reads the source.  [default: 1, no Ray]",
)
@ADDRESS
@JSON
def audit(run: str, key: str | None, shards: int, address: str | None, as_json: bool) -> int:
    """Recompute the last state of RUN from the raw examples, and check the model and its guarantee.

    RUN may also be a state that update wrote: audit then checks it against the examples saved in it.

    \b
    Conformance: the model and its statistics are those of the raw examples.
    Feasibility: the guarantee of the learner holds.

    If one of them is violated, the exit code is 3.

    Example:  raydt audit runs/first

    Divided:  raydt audit runs/first --shards 16
    """
    from pipelines.auditing import audit_run, audit_state
    from pipelines.display import audit_lines
    from pipelines.run_folder import RunFolder, fitting
    from pipelines.running.ending import read_summary
    from pipelines.saved_runs import find_state
    from raydt.folders.manifest import MANIFEST, newest, read_manifest
    from raydt.learners import described

    summary: dict[str, Any] | None = None
    of: dict[str, Any] | None = None
    if newest(RunFolder(run)).has(MANIFEST):
        if shards > 1 or address is not None:
            raise click.UsageError(message("audits.divided_state"))
        report = audit_state(run, key).as_dict()
        learner = read_manifest(find_state(run).folder).meta["learner"]["kind"]
    else:
        report = audit_run(run, key, shards=shards, address=address).as_dict()
        summary = read_summary(RunFolder.existing(run))
        learner = summary.get("learner")
        shown = ("status", "exit_reason", "updates", *described(learner).audited_with)
        of = {name: summary[name] for name in shown if name in summary}
    with fitting(f"{run}/summary.json"):
        text = audit_lines(report, learner, summary)
    print_result({"run": of, **report}, text, as_json)
    return 0 if report["ok"] else 3


@click.command(short_help="Check receipts, or train a model from the remaining examples and compare digests.")
@click.argument("run", metavar="RUN|RECEIPTS")
@click.argument("state", required=False)
@RECEIPT_KEY
@click.option("--public-key", metavar="HEX", help="Ed25519 key by which every receipt must be signed.")
@click.option("--id", "ids", metavar="ID", multiple=True, help="Was ID deleted, when, by which receipt? Repeatable.")
@click.option("--subject", "subjects", metavar="X", multiple=True, help="As --id, of the rows of a subject (person).")
@click.option("--receipt", type=click.IntRange(1), metavar="N", help="Print receipt number N as a text for people.")
@JSON
def verify(
    run: str,
    state: str | None,
    receipt_key: str | None,
    public_key: str | None,
    ids: tuple[str, ...],
    subjects: tuple[str, ...],
    receipt: int | None,
    as_json: bool,
) -> int:
    """Train a model from scratch on the remaining examples of RUN, and compare the digests.

    RUN may also be a saved STATE: verify then uses the examples in it. Given a file of RECEIPTS that update wrote,
    verify checks that chain instead and, with STATE, that STATE belongs to the last receipt.

    This needs a learner whose model is a function of the live examples. Equal digests then prove, to anyone who has the
    remaining examples, that the trees contain nothing of a deleted example. verify compares the digest in the summary,
    the last state and the saved model. Manifests keep the names of categories and classes that only deleted examples
    had.

    If anything differs, the exit code is 3, and the first line names the difference.

    Example:  raydt verify runs/first

    With receipts:  raydt verify receipts.jsonl states/second --receipt-key key.txt

    Was it deleted?  raydt verify receipts.jsonl --id 10017 --receipt-key key.txt

    Did the table that a run follows delete it?  raydt verify runs/live --id 7
    """
    from pathlib import Path

    from pipelines.display import verify_lines
    from pipelines.receipt_lines import receipts_lines
    from pipelines.run_files import RECEIPTS
    from pipelines.verifying import verify_receipts, verify_requests, verify_run

    named: dict[str, Any] = {"key": receipt_key, "public_key": public_key, "ids": ids, "subjects": subjects}
    of_run = (ids or subjects or receipt is not None) and state is None and (Path(run) / RECEIPTS).is_file()
    if of_run:
        checked = verify_requests(run, **named)
        if receipt is None:
            print_result(checked, receipts_lines(checked), as_json)
            return 0 if checked["ok"] else 3
        run = str(Path(run) / RECEIPTS)
    asked = any(given is not None for given in (state, receipt_key, public_key, receipt)) or bool(ids or subjects)
    chain = Path(run).is_file() or (asked and "://" not in run and not Path(run).exists())
    if chain and receipt is not None:
        from pipelines.reporting import receipt_of

        entry, text = receipt_of(run, receipt)
        print_result(entry, text, as_json)
        return 0
    if chain:
        checked = verify_receipts(run, state, **named)
        print_result(checked, receipts_lines(checked), as_json)
        return 0 if checked["ok"] else 3
    if asked:
        lacking = (ids or subjects or receipt is not None) and Path(run).is_dir()
        raise click.UsageError(message("commands.no_chain" if lacking else "commands.not_receipts", run=run))
    found = verify_run(run)
    print_result(found, verify_lines(found), as_json)
    return 0 if found["equal"] else 3
