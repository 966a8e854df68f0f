"""Options that several commands share, and how a command prints its result."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from raydt.messages import message

if TYPE_CHECKING:
    from pipelines.receipts import ReceiptFile

JSON = click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")
KEY = click.option("--key", metavar="KEY", help="Of models by key (source.key): the model of this key.")
SET = click.option(
    "--set", "overrides", multiple=True, metavar="A.B=VALUE", help="Set one key of the config. Can be repeated."
)
HOLDOUT = click.option(
    "--holdout",
    type=float,
    metavar="SHARE",
    help="Share of the rows to hold out for the score; 0: none. Default: the config's stream.holdout, else 0.2.",
)
OUT_RUN = click.option("--out", metavar="RUN", help="New or empty run folder. Default: runs/<UTC>-<name>.")
OVERWRITE_RUN = click.option("--overwrite", is_flag=True, help="Delete the run in --out first, if there is one.")
ADDRESS = click.option(
    "--address",
    metavar="A",
    help="Ray cluster: host:port, auto or local. Default: the config's, else RAY_ADDRESS, else local.",
)
RECEIPT_KEY = click.option(
    "--receipt-key", metavar="FILE", help="Key by which receipts hash ids: 64 hexadecimal digits."
)
RECEIPTS = click.option("--receipts", metavar="FILE", help="Append the receipt to this chain; needs --receipt-key.")
NOTE = click.option(
    "--note", metavar="TEXT", default="", help="Who asked, or the case: CASE-17. Readable in the receipt."
)
SIGN = click.option("--sign", metavar="FILE", help="Private Ed25519 key (PEM) that signs the receipt.")
#: Formats of files that need no config.
KINDS = ["parquet", "arrow", "csv", "jsonl", "libsvm"]


def print_result(result: dict[str, Any], text: str, as_json: bool) -> None:
    """Print the result of a command as text or JSON."""
    # Names of files need not be UTF-8; JSON has an escape for what is not.
    shown = (
        json.dumps(result, indent=2, ensure_ascii=False).encode(errors="backslashreplace").decode() if as_json else text
    )
    click.echo(shown)


def receipt_file(receipts: str | None, key: str | None, sign: str | None) -> ReceiptFile | None:
    """The chain of the options ``--receipts``, ``--receipt-key`` and ``--sign``."""
    from pipelines.receipts import ReceiptFile

    if receipts is None and (key is not None or sign is not None):
        raise click.UsageError(message("commands.no_receipts"))
    if receipts is not None and key is None:
        raise click.UsageError(message("commands.no_key"))
    return ReceiptFile(receipts, str(key), sign) if receipts is not None else None
