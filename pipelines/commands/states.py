"""Commands that change saved examples: update, purge."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import click

from pipelines.commands.options import JSON, KINDS, NOTE, RECEIPT_KEY, RECEIPTS, SIGN, print_result, receipt_file
from raydt.messages import message

if TYPE_CHECKING:
    from pipelines.receipts import ReceiptFile


@click.command(short_help="Delete and insert examples in a saved state; print a receipt.")
@click.argument("state")
@click.option(
    "--insert", metavar="FILE", help="Rows to insert: Parquet, Arrow, CSV or LIBSVM file with the model's columns."
)
@click.option(
    "--delete",
    metavar="FILE",
    help="Ids to delete, or subjects whose rows to delete: Parquet, Arrow or CSV file with a column id or subject, or "
    "the name that the source gives it.",
)
@click.option(
    "--missing",
    type=click.Choice(["error", "skip"]),
    default="error",
    show_default=True,
    help="Ids or subjects without a live row: refuse them all in one error, or list them in the receipt.",
)
@click.option("--out", metavar="STATE2", help="New or empty folder for the new state.")
@click.option("--dry-run", is_flag=True, help="Print the receipt and write nothing.")
@click.option("--label", metavar="COLUMN", help="Label column of --insert. Default: the state's, else y.")
@click.option("--id", "id_column", metavar="COLUMN", help="Id column of --insert. Default: the state's, else none.")
@click.option("--kind", type=click.Choice(KINDS), help="File format of --insert. Default: from its name.")
@RECEIPTS
@RECEIPT_KEY
@SIGN
@NOTE
@click.option(
    "--roll-back", is_flag=True, help="Only record in --receipts that STATE, an older state, is in use again."
)
@JSON
def update(
    state: str,
    insert: str | None,
    delete: str | None,
    missing: Literal["error", "skip"],
    out: str | None,
    dry_run: bool,
    label: str | None,
    id_column: str | None,
    kind: str | None,
    receipts: str | None,
    receipt_key: str | None,
    sign: str | None,
    note: str,
    roll_back: bool,
    as_json: bool,
) -> int:
    """Delete and insert examples in STATE, write the new state and print a receipt of the changes.

    STATE is a run folder, its checkpoints/ or one of them, or a folder saved with its examples. It is not changed. All
    deletions precede all insertions, so one call can replace an example. Either all changes take effect or none.

    \b
    Example:  raydt update runs/first --delete requests.csv --insert new.parquet --out states/second
    """
    from pipelines.display import receipt_lines
    from pipelines.updating import update as run

    chain = receipt_file(receipts, receipt_key, sign)
    if roll_back:
        if chain is None or insert or delete or out or dry_run:
            raise click.UsageError(message("commands.roll_back"))
        return _roll_back(state, chain, note, as_json)
    receipt = run(
        state,
        insert=insert,
        delete=delete,
        missing=missing,
        out=out,
        dry_run=dry_run,
        label=label,
        id_column=id_column,
        kind=kind,
        receipts=chain,
        note=note,
    )
    written = None if dry_run else out
    print_result({"state": state, "out": written, **receipt.as_dict()}, receipt_lines(receipt, state, written), as_json)
    return 0


def _roll_back(state: str, chain: ReceiptFile, note: str, as_json: bool) -> int:
    from pipelines.receipts import roll_back
    from pipelines.report.receipt import rollback_in_words

    entry = roll_back(state, chain, note)
    print_result({"state": state, **entry}, rollback_in_words(entry), as_json)
    return 0


@click.command(short_help="Rewrite a finished run or a state so that it holds live examples only.")
@click.argument("place", metavar="RUN|STATE")
@click.option("--ids", metavar="FILE", help="Erase only these ids: Parquet, Arrow or CSV file with a column id.")
@click.option(
    "--older-than",
    metavar="AGE",
    help="Purge only if RUN ended, or STATE was written, at least this long ago: 7d, 12h.",
)
@click.option("--dry-run", is_flag=True, help="Show which files would be replaced, and change nothing.")
@RECEIPTS
@RECEIPT_KEY
@SIGN
@NOTE
@JSON
def purge(
    place: str,
    ids: str | None,
    older_than: str | None,
    dry_run: bool,
    receipts: str | None,
    receipt_key: str | None,
    sign: str | None,
    note: str,
    as_json: bool,
) -> int:
    """Rewrite or remove every file of RUN, or of a saved STATE, that holds an example that is not live.

    The model, its digest and the live examples stay. If a purge is killed, start it again. purge.json in the folder
    records what the purge has done.

    Example:  raydt purge runs/first --older-than 7d
    """
    from pipelines.display import purge_lines
    from pipelines.purging import purge as run_purge

    chain = receipt_file(receipts, receipt_key, sign)
    done = run_purge(place, ids=ids, older_than=older_than, dry_run=dry_run, receipts=chain, note=note)
    print_result(done, purge_lines(done), as_json)
    return 0
