"""Options that several commands share, and what their help ends with."""

from __future__ import annotations

import click

JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
SET = click.option(
    "--set", "overrides", multiple=True, metavar="A.B=VALUE", help="Change one key of the config. May be repeated."
)
OUT_RUN = click.option("--out", metavar="RUN", help="Run folder, new or empty. Default: runs/<UTC>-<name>.")
OVERWRITE_RUN = click.option("--overwrite", is_flag=True, help="Remove the run that --out holds, if it holds one.")
ADDRESS = click.option(
    "--address", metavar="A", help="Ray cluster: host:port, auto or local. Default: the config's, RAY_ADDRESS, local."
)

EPILOG = """\b
Exit codes:
  0    ok
  1    the run failed
  2    bad input or config
  3    a guarantee is violated
  130  interrupted (SIGINT)
  143  terminated (SIGTERM)
"""
