"""Options shared by several commands, and the exit codes at the end of the help."""

from __future__ import annotations

import click

JSON = click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")
SET = click.option(
    "--set", "overrides", multiple=True, metavar="A.B=VALUE", help="Set one key of the config. Can be repeated."
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
SIGN = click.option("--sign", metavar="FILE", help="Private Ed25519 key (PEM) that signs the receipt.")

EPILOG = """\b
Exit codes:
  0    ok
  1    the run failed
  2    bad input or config
  3    a guarantee is violated
  130  interrupted (SIGINT)
  143  terminated (SIGTERM)
"""
