"""Commands that change saved examples: update, purge."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

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
    help="Ids or subjects of --delete without a live row: refuse all in one error, or list them in the receipt.",
)
@click.option(
    "--changes",
    multiple=True,
    metavar="FILE",
    help="Change log to apply: Parquet, Arrow, CSV or JSON Lines file, folder or pattern. Can be repeated.",
)
@click.option(
    "--out",
    metavar="STATE2",
    help="New or empty folder for the new state. With --changes a folder of successive states. Default: "
    "STATE, if it is one.",
)
@click.option(
    "--keep",
    type=click.IntRange(min=1),
    metavar="N",
    help="Of a folder of successive states, keep the newest N and remove the others. Default: keep all.",
)
@click.option("--dry-run", is_flag=True, help="Print the receipt and write nothing.")
@click.option("--op", metavar="COLUMN", help="Column of operations of --changes. Default: as before, else op.")
@click.option("--envelope", type=click.Choice(["debezium"]), help="Rows of --changes are in before and after.")
@click.option(
    "--on-error",
    type=click.Choice(["error", "skip"]),
    default="error",
    show_default=True,
    help="At a bad row or a refused update of --changes: error stops and writes nothing, skip passes it over.",
)
@click.option("--label", metavar="COLUMN", help="Label column of the rows. Default: the state's, else y.")
@click.option("--id", "id_column", metavar="COLUMN", help="Id column of the rows. Default: the state's, else none.")
@click.option("--kind", type=click.Choice(KINDS), help="File format of the rows. Default: from its name.")
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
    changes: tuple[str, ...],
    out: str | None,
    keep: int | None,
    dry_run: bool,
    op: str | None,
    envelope: Literal["debezium"] | None,
    on_error: Literal["error", "skip"],
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

    With --changes the files are change logs, whose rows are scored before they are learned, in their order. The new
    state is STATE2/N, after N updates; STATE2/latest names it, and STATE2/report.html shows all states. STATE may be
    STATE2, of which the newest is taken. A file that the state has read is passed over, whatever it is called.

    \b
    Example:  raydt update runs/first --delete requests.csv --insert new.parquet --out states/second
              raydt update runs/first --changes changes/monday.jsonl --out states
              raydt update states --changes changes/
    """
    from pipelines.receipt_lines import changes_lines, receipt_lines
    from pipelines.saved_runs import find_state
    from pipelines.updating import apply_changes
    from pipelines.updating import update as run

    chain = receipt_file(receipts, receipt_key, sign)
    if roll_back:
        if chain is None or insert or delete or changes or out or dry_run:
            raise click.UsageError(message("commands.roll_back"))
        return _roll_back(state, chain, note, as_json)
    common: dict[str, Any] = {"out": out, "dry_run": dry_run, "label": label, "id_column": id_column, "kind": kind}
    common |= {"receipts": chain, "note": note, "keep": keep}
    if changes:
        if insert is not None or delete is not None or missing != "error":
            raise click.UsageError(message("commands.changes_alone"))
        done = apply_changes(state, changes, op=op, envelope=envelope, on_error=on_error, **common)
        print_result({"state": state, **done.as_dict()}, changes_lines(done, state, dry_run=dry_run), as_json)
        return 0
    if op is not None or envelope is not None or on_error != "error":
        raise click.UsageError(message("commands.only_with_changes"))
    receipt = run(state, insert=insert, delete=delete, missing=missing, **common)
    written = None if dry_run else out or find_state(state).folder.location
    print_result({"state": state, "out": written, **receipt.as_dict()}, receipt_lines(receipt, state, written), as_json)
    return 0


def _roll_back(state: str, chain: ReceiptFile, note: str, as_json: bool) -> int:
    from pipelines.receipts import roll_back
    from pipelines.report.receipt import in_words

    entry = roll_back(state, chain, note)
    print_result({"state": state, **entry}, in_words(entry), as_json)
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
    from pipelines.purging import purge as run_purge
    from pipelines.receipt_lines import purge_lines

    chain = receipt_file(receipts, receipt_key, sign)
    done = run_purge(place, ids=ids, older_than=older_than, dry_run=dry_run, receipts=chain, note=note)
    print_result(done, purge_lines(done), as_json)
    return 0
