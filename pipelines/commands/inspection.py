"""Commands that look at runs, configs and the machine: report, validate, doctor."""

from __future__ import annotations

import json

import click

from pipelines.commands.options import JSON, KEY, SET, print_result
from raydt.messages import message


@click.command(short_help="Write the HTML report of one run, compare several, or write pages of receipts.")
@click.argument("runs", nargs=-1, required=True, metavar="RUN [RUN ...]")
@click.option(
    "--out",
    metavar="FILE",
    help="HTML file to write. Default: report.html in RUN, or in the working directory for several runs. "
    "For receipts, the folder of the pages.",
)
@click.option(
    "--receipt", type=click.IntRange(1), metavar="N", help="Of a file of receipts, only the page of receipt N."
)
@KEY
@JSON
def report(runs: tuple[str, ...], out: str | None, receipt: int | None, key: str | None, as_json: bool) -> int:
    """Write the HTML report of one run, or a comparison of several, and print its path.

    Given a file of receipts that update wrote, write a page for each receipt: who asked, when, what was deleted and
    rebuilt, and where copies may remain.

    An existing file is replaced only if raydt wrote it.

    \b
    Example:  raydt report runs/first runs/second --out comparison.html
    """
    from pathlib import Path

    from pipelines.reporting import receipt_pages, report_of

    if len(runs) == 1 and Path(runs[0]).is_file():
        where = receipt_pages(runs[0], out, receipt)
    elif receipt is not None:
        raise click.UsageError(message("commands.no_pages", run=runs[0]))
    else:
        where = report_of(list(runs), out, key)
    print_result({"report": where}, where, as_json)
    return 0


@click.command(short_help="Check a config, the first rows of its data, and its ids.")
@click.argument("config", required=False, type=click.Path(dir_okay=False))
@SET
@click.option("--train", "as_training", is_flag=True, help="Check CONFIG as train would run it: all rows at once.")
@click.option("--schema", is_flag=True, help="Print the JSON Schema of configs, for editors, and exit.")
@JSON
def validate(config: str | None, overrides: tuple[str, ...], as_training: bool, schema: bool, as_json: bool) -> int:
    """Check CONFIG, the columns and first rows of its data, and the ids of up to a million updates. Nothing is run.

    \b
    Example:  raydt validate configs/fudyadt.yaml
              raydt validate configs/own-data.yaml --train
    """
    from pipelines.config import json_schema, load_config
    from pipelines.display import validation_lines
    from pipelines.training import training_config
    from pipelines.validation import look_at

    if schema:
        click.echo(json.dumps(json_schema(), indent=2))
        return 0
    if config is None:
        raise click.UsageError(message("commands.no_config"))
    checked = training_config(config, overrides) if as_training else load_config(config, overrides)
    result = look_at(checked)
    print_result(result, validation_lines(result, config), as_json)
    return 0 if result["ok"] else 2


@click.command(short_help="Show versions, memory, caches and Ray's security settings.")
@click.option("--ray", "with_ray", is_flag=True, help="Also start a local Ray and list the ports it listens on.")
@click.option(
    "--probe", metavar="FOLDER", help="Also write, read and delete a file in FOLDER, a folder or URI for checkpoints."
)
@click.option(
    "--compile", "with_kernels", is_flag=True, help="Also compile all kernels into Numba's cache, for an image."
)
@JSON
def doctor(with_ray: bool, probe: str | None, with_kernels: bool, as_json: bool) -> int:
    """Show versions, processors, memory, caches and Ray's security settings.

    \b
    Example:  raydt doctor --ray
              raydt doctor --probe s3://bucket/checkpoints
              raydt doctor --compile
    """
    from pipelines.display import doctor_lines
    from pipelines.doctor import compile_all, examine
    from pipelines.doctor import probe as try_out
    from pipelines.progress import STARTING_RAY

    tried = {"probe": try_out(probe)} if probe is not None else {}
    if with_ray:
        click.echo(STARTING_RAY, err=True)
    compiled = {"compile_seconds": compile_all()} if with_kernels else {}
    facts = {**examine(with_ray), **tried, **compiled}
    print_result(facts, doctor_lines(facts), as_json)
    return 0
