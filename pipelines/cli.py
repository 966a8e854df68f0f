"""The command line: ``raydt``, also ``python -m pipelines.cli``.

Results go to stdout, logs and progress to stderr. Exit codes: 0 ok, 1 run failed, 2 bad input or config, 3 guarantee
violated, 130 SIGINT, 143 SIGTERM. Commands import what they need when they run, so that ``--help`` is quick.
"""

from __future__ import annotations

import io
import json
import logging
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import click

import raydt
from pipelines.command_options import ADDRESS, EPILOG, JSON, OUT_RUN, OVERWRITE_RUN, RECEIPT_KEY, RECEIPTS, SET, SIGN
from pipelines.printing import TerminalFormatter, error_text, one_line
from raydt.errors import STORAGE_REMEDIES, RaydtError, shortage

if TYPE_CHECKING:
    from pipelines.receipts import ReceiptFile

#: Formats of files that need no config.
_KINDS = ["parquet", "arrow", "csv", "libsvm"]
#: Formats of exported models, as in ``raydt.export``.
_FORMATS = ["treelite", "onnx", "lightgbm", "sklearn"]


def _print(result: dict[str, Any], text: str, as_json: bool) -> None:
    # Names of files need not be UTF-8; JSON has an escape for what is not.
    shown = (
        json.dumps(result, indent=2, ensure_ascii=False).encode(errors="backslashreplace").decode() if as_json else text
    )
    click.echo(shown)


def _receipt_file(receipts: str | None, key: str | None, sign: str | None) -> ReceiptFile | None:
    """The chain of the options ``--receipts``, ``--receipt-key`` and ``--sign``."""
    from pipelines.receipts import ReceiptFile

    if receipts is None and (key is not None or sign is not None):
        raise click.UsageError("--receipt-key and --sign apply only with --receipts FILE")
    if receipts is not None and key is None:
        raise click.UsageError("--receipts needs --receipt-key FILE, the key that hashes ids")
    return ReceiptFile(receipts, str(key), sign) if receipts is not None else None


#: Commands of earlier versions, and what to use instead.
_RETIRED = {"warmup": "raydt doctor --compile"}


class _Group(click.Group):
    """The commands."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of this name; a retired one is refused with what to use instead."""
        if cmd_name in _RETIRED:
            raise click.UsageError(f"{cmd_name} was retired. Use {_RETIRED[cmd_name]}", ctx)
        return super().get_command(ctx, cmd_name)


@click.group(
    cls=_Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}, epilog=EPILOG
)
@click.version_option(raydt.__version__, prog_name="raydt")
@click.option("-v", "--verbose", is_flag=True, help="Show log messages on stderr.")
def cli(verbose: bool) -> None:
    """Decision trees on Ray that stay correct while training examples are inserted and deleted.

    \b
    First steps:  raydt demo
                  raydt replay configs/fudyadt.yaml
    """
    # The level is the handler's: a run sets the loggers to INFO for its own log.jsonl.
    shown = logging.StreamHandler(sys.stderr)
    shown.setLevel(logging.INFO if verbose else logging.WARNING)
    # main() reports the error that ends a command, once; its traceback is in log.jsonl.
    shown.addFilter(lambda record: verbose or record.exc_info is None)
    shown.setFormatter(TerminalFormatter("%(levelname)s %(message)s"))
    logging.basicConfig(handlers=[shown])


@cli.command(short_help="Insert, delete and audit on a local Ray. Needs no input.")
@OUT_RUN
@OVERWRITE_RUN
@JSON
def demo(out: str | None, overwrite: bool, as_json: bool) -> int:
    """Insert and delete examples on a local Ray, audit the tree and write a report. Needs no input.

    \b
    Example:  raydt demo
    """
    from pipelines.demo import run_demo, story
    from pipelines.progress import reporter

    result = run_demo(out, reporter(), overwrite=overwrite)
    _print({"path": result.path, **result.summary}, story(result.summary, result.path), as_json)
    return result.exit_code or (0 if result.summary["audit"]["ok"] else 3)


@cli.command(short_help="Run the stream of CONFIG and write a run folder.")
@click.argument("config", type=click.Path(dir_okay=False))
@SET
@OUT_RUN
@OVERWRITE_RUN
@ADDRESS
@JSON
def replay(
    config: str, overrides: tuple[str, ...], out: str | None, overwrite: bool, address: str | None, as_json: bool
) -> int:
    """Run the stream of CONFIG through its learner and write a run folder.

    \b
    Example:  raydt replay configs/fudyadt.yaml --set learner.epsilon=0.2 --out runs/first
    """
    from pipelines.display import run_lines
    from pipelines.progress import reporter
    from pipelines.running.job import replay as run

    result = run(config, out, overrides=overrides, address=address, overwrite=overwrite, progress=reporter())
    _print({"path": result.path, **result.summary}, run_lines(result.summary, result.path), as_json)
    return result.exit_code


@cli.command(short_help="Resume a run that was killed, was interrupted or failed.")
@click.argument("run")
@click.option(
    "--from", "state", metavar="STATE", help="Continue from this state, which update made from RUN or its checkpoints/."
)
@SET
@ADDRESS
@JSON
def resume(run: str, state: str | None, overrides: tuple[str, ...], address: str | None, as_json: bool) -> int:
    """Resume RUN from its newest checkpoint. The result is identical to an uninterrupted run.

    With --from, RUN first takes in what update has deleted and inserted: STATE replaces all checkpoints of RUN, and the
    stream continues after it. Kill or resume RUN afterwards as any other run.

    --set may change cluster, checkpoint (except its path), erasure, output.report and output.quote_values, and the
    folders that hold the data. A completed run is not changed.

    \b
    Example:  raydt resume runs/first --set cluster.shards=4
    """
    from pipelines.display import run_lines
    from pipelines.progress import reporter
    from pipelines.run_folder import fitting
    from pipelines.running.job import resume as run_on

    result = run_on(run, state=state, overrides=overrides, address=address, progress=reporter())
    with fitting(f"{result.path}/summary.json"):
        _print({"path": result.path, **result.summary}, run_lines(result.summary, result.path), as_json)
        return result.exit_code


@cli.command(short_help="Run many settings of CONFIG in parallel; rows are read once.")
@click.argument("config", type=click.Path(dir_okay=False))
@click.option(
    "--grid",
    multiple=True,
    required=True,
    metavar="A.B=VALUES",
    help="Values for one key of learner or stream, as START:STOP:STEP (inclusive) or v1,v2. Repeat for a full grid; "
    "source.seed and source.permutation are repetitions: scores are averaged over them.",
)
@SET
@click.option("--out", metavar="FOLDER", help="Folder, new or empty. Default: runs/<UTC>-<name>-sweep.")
@OVERWRITE_RUN
@ADDRESS
@JSON
def sweep(
    config: str,
    grid: tuple[str, ...],
    overrides: tuple[str, ...],
    out: str | None,
    overwrite: bool,
    address: str | None,
    as_json: bool,
) -> int:
    """Run every setting of a grid in parallel on Ray and write one table and one page. Each setting runs as in replay.

    \b
    Example:  raydt sweep configs/fudyadt.yaml --grid learner.epsilon=0:2:0.1 --grid stream.window=100,1000
    Exit code 1 or 2 if a setting failed; all others are complete.
    """
    from pipelines.display import sweep_lines
    from pipelines.progress import reporter
    from pipelines.sweeping import sweep as run

    result = run(config, grid, out, overrides=overrides, address=address, overwrite=overwrite, progress=reporter())
    printed = {"path": result.path, **result.summary, "table": result.table.to_pylist()}
    _print(printed, sweep_lines(result.summary, result.lines, result.path), as_json)
    return result.exit_code


@cli.command(short_help="Predict the rows of a file with a saved model.")
@click.argument("model")
@click.argument("data")
@click.option("--out", required=True, metavar="FILE", help="New Parquet file to write; .parquet or .pq.")
@click.option("--overwrite", is_flag=True, help="Replace the file of --out if it exists.")
@click.option("--id", "id_column", metavar="COLUMN", help="Column of DATA to copy to the output as its first column.")
@click.option(
    "--on-error",
    type=click.Choice(["error", "skip"]),
    default="error",
    show_default=True,
    help="At a bad row: error stops and writes nothing, skip writes null predictions for it.",
)
@click.option("--kind", type=click.Choice(_KINDS), help="File format of DATA. Default: from its name.")
@JSON
def predict(
    model: str,
    data: str,
    out: str,
    overwrite: bool,
    id_column: str | None,
    on_error: Literal["error", "skip"],
    kind: str | None,
    as_json: bool,
) -> int:
    """Predict the rows of DATA with MODEL: a run folder, its model/, its checkpoints/ or one of them.

    The output has one row for each row of DATA, in the same order.

    \b
    Example:  raydt predict runs/first new.parquet --id customer_id --out predictions.parquet
    """
    from pipelines.prediction import predict_file
    from raydt.presentation.words import counted

    result = predict_file(model, data, out, kind, id_column=id_column, on_error=on_error, overwrite=overwrite)
    if result["skipped"]:
        first = one_line(result["first_skipped"])
        click.echo(f"warning: skipped {counted(result['skipped'], 'bad row')}; {first}", err=True)
    if result["unseen"]:
        click.echo(
            f"warning: {counted(result['unseen'], 'row')} with categories the model has never seen, in "
            f"{one_line(', '.join(result['unseen_columns']))}",
            err=True,
        )
    _print(result, f"{counted(result['rows'] - result['skipped'], 'prediction')} in {result['out']}", as_json)
    return 0


@cli.command(short_help="Write a saved model for treelite, ONNX, LightGBM or scikit-learn.")
@click.argument("model", metavar="RUN|STATE")
@click.option(
    "--to", type=click.Choice(_FORMATS), required=True, help="Format; its library is an extra: raydt[FORMAT]."
)
@click.option("--out", required=True, metavar="FILE", help="New file: .tl, .onnx, .txt or .skops, by the format.")
@click.option("--overwrite", is_flag=True, help="Replace FILE and FILE.json if they exist.")
@JSON
def export(
    model: str, to: Literal["treelite", "onnx", "lightgbm", "sklearn"], out: str, overwrite: bool, as_json: bool
) -> int:
    """Write the model of a RUN, or of a saved STATE, in the format of another library.

    Its outputs before the link are equal in every double. FILE.json says what columns and outputs are.

    \b
    Example:  raydt export runs/first --to onnx --out model.onnx
    """
    from pipelines.display import export_lines
    from pipelines.exporting import export_model

    written = export_model(model, to, out, overwrite=overwrite)
    _print(written, export_lines(written), as_json)
    return 0


@cli.command(short_help="Explain the prediction of one row.")
@click.argument("model", metavar="RUN|STATE")
@click.argument("data")
@click.option("--row", type=int, default=0, show_default=True, help="Number of the row in DATA, from 0.")
@click.option("--tree", type=int, default=0, show_default=True, help="Number of the tree whose path is shown.")
@click.option("--kind", type=click.Choice(_KINDS), help="File format of DATA. Default: from its name.")
@JSON
def explain(model: str, data: str, row: int, tree: int, kind: str | None, as_json: bool) -> int:
    """Explain what the model of a RUN, or of a saved STATE, predicts for one row of DATA.

    Shown are the row's path through one tree in words, and how much each feature moves the output from the mean
    (path-dependent Shapley values of all trees, weighted by the live examples).

    \b
    Example:  raydt explain runs/first new.parquet --row 3
    """
    from pipelines.display import explanation_lines
    from pipelines.exporting import explain_row

    found = explain_row(model, data, row, tree, kind)
    _print(found, explanation_lines(found), as_json)
    return 0


@cli.command(short_help="Delete and insert examples in a saved state; print a receipt.")
@click.argument("state")
@click.option(
    "--insert", metavar="FILE", help="Rows to insert: Parquet, Arrow, CSV or LIBSVM file with the model's columns."
)
@click.option("--delete", metavar="FILE", help="Ids to delete: Parquet, Arrow or CSV file with a column id.")
@click.option("--out", metavar="STATE2", help="New or empty folder for the new state.")
@click.option("--dry-run", is_flag=True, help="Print the receipt and write nothing.")
@click.option("--label", metavar="COLUMN", help="Label column of --insert. Default: the state's, else y.")
@click.option("--id", "id_column", metavar="COLUMN", help="Id column of --insert. Default: the state's, else none.")
@click.option("--kind", type=click.Choice(_KINDS), help="File format of --insert. Default: from its name.")
@RECEIPTS
@RECEIPT_KEY
@SIGN
@JSON
def update(
    state: str,
    insert: str | None,
    delete: str | None,
    out: str | None,
    dry_run: bool,
    label: str | None,
    id_column: str | None,
    kind: str | None,
    receipts: str | None,
    receipt_key: str | None,
    sign: str | None,
    as_json: bool,
) -> int:
    """Delete and insert examples in STATE, write the new state and print a receipt of the changes.

    STATE is a run folder, its checkpoints/ or one of them, or a folder saved with its examples. It is not changed. All
    deletions precede all insertions, so that an example can be replaced. Either all changes take effect or none.

    \b
    Example:  raydt update runs/first --delete requests.csv --insert new.parquet --out states/second
    """
    from pipelines.display import receipt_lines
    from pipelines.updating import update as run

    receipt = run(
        state,
        insert=insert,
        delete=delete,
        out=out,
        dry_run=dry_run,
        label=label,
        id_column=id_column,
        kind=kind,
        receipts=_receipt_file(receipts, receipt_key, sign),
    )
    written = None if dry_run else out
    _print({"state": state, "out": written, **receipt.as_dict()}, receipt_lines(receipt, state, written), as_json)
    return 0


@cli.command(short_help="Check a run's last state against its raw examples.")
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
    _print({"run": of, **report}, text, as_json)
    return 0 if report["ok"] else 3


@cli.command(short_help="Check receipts, or train a model from the remaining examples and compare digests.")
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
        _print(checked, receipts_lines(checked), as_json)
        return 0 if checked["ok"] else 3
    if state is not None or receipt_key is not None or public_key is not None:
        raise click.UsageError(
            f"{run} is not a file of receipts: STATE, --receipt-key and --public-key apply only to one"
        )
    found = verify_run(run)
    _print(found, verify_lines(found), as_json)
    return 0 if found["equal"] else 3


@cli.command(short_help="Rewrite a finished run or a state so that it holds live examples only.")
@click.argument("place", metavar="RUN|STATE")
@click.option("--ids", metavar="FILE", help="Erase only these ids: Parquet, Arrow or CSV file with a column id.")
@click.option("--older-than", metavar="AGE", help="Do nothing if RUN ended, or STATE was written, later: 7d, 12h.")
@click.option("--dry-run", is_flag=True, help="Show which files would be replaced, and change nothing.")
@RECEIPTS
@RECEIPT_KEY
@SIGN
@JSON
def purge(
    place: str,
    ids: str | None,
    older_than: str | None,
    dry_run: bool,
    receipts: str | None,
    receipt_key: str | None,
    sign: str | None,
    as_json: bool,
) -> int:
    """Rewrite or remove every file of RUN, or of a saved STATE, that holds an example that is not live.

    The model, its digest and the live examples stay. A purge that was killed can be started again. purge.json in the
    folder says what was done.

    Example:  raydt purge runs/first --older-than 7d
    """
    from pipelines.display import purge_lines
    from pipelines.purging import purge as run_purge

    chain = _receipt_file(receipts, receipt_key, sign)
    done = run_purge(place, ids=ids, older_than=older_than, dry_run=dry_run, receipts=chain)
    _print(done, purge_lines(done), as_json)
    return 0


@cli.command(short_help="Write the HTML report of one run, or compare several.")
@click.argument("runs", nargs=-1, required=True, metavar="RUN [RUN ...]")
@click.option(
    "--out",
    metavar="FILE",
    help="HTML file to write. Default: report.html in RUN, or in the working directory for several runs.",
)
@JSON
def report(runs: tuple[str, ...], out: str | None, as_json: bool) -> int:
    """Write the HTML report of one run, or a comparison of several, and print its path.

    An existing file is replaced only if raydt wrote it.

    \b
    Example:  raydt report runs/first runs/second --out comparison.html
    """
    from pipelines.reporting import report_of

    where = report_of(list(runs), out)
    _print({"report": where}, where, as_json)
    return 0


@cli.command(short_help="Check a config, the first rows of its data, and its ids.")
@click.argument("config", required=False, type=click.Path(dir_okay=False))
@SET
@click.option("--schema", is_flag=True, help="Print the JSON Schema of configs, for editors, and exit.")
@JSON
def validate(config: str | None, overrides: tuple[str, ...], schema: bool, as_json: bool) -> int:
    """Check CONFIG, the columns and first rows of its data, and the ids of up to a million updates. Nothing is run.

    \b
    Example:  raydt validate configs/fudyadt.yaml
    """
    from pipelines.config import json_schema, load_config
    from pipelines.display import validation_lines
    from pipelines.validation import look_at

    if schema:
        click.echo(json.dumps(json_schema(), indent=2))
        return 0
    if config is None:
        raise click.UsageError("give a CONFIG, or --schema")
    result = look_at(load_config(config, overrides))
    _print(result, validation_lines(result, config), as_json)
    return 0 if result["ok"] else 2


@cli.command(short_help="Show versions, memory, caches and Ray's security settings.")
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
    _print(facts, doctor_lines(facts), as_json)
    return 0


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command and exit with its code; without ``arguments``, the command line of this process."""
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.encoding.lower() != "utf-8":
        sys.stdout.reconfigure(errors="backslashreplace")  # as stderr does: a name never ends a command
    try:
        code = cli.main(args=arguments, prog_name="raydt", standalone_mode=False)
    except click.ClickException as error:
        vars(error)["message"] = one_line(error.message)
        error.show()
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        code = 130
    except SystemExit as ended:  # a signal with nothing to save, or a second signal
        click.echo("interrupted" if ended.code == 130 else "terminated", err=True)
        code = ended.code
    except RaydtError as error:
        click.echo(f"error: {error_text(error)}", err=True)
        if error.kept:
            click.echo(f"kept: {one_line(error.kept)}", err=True)
        code = error.exit_code
    except UnicodeEncodeError as error:  # pages and tables are UTF-8, so that only names of files are left
        used = sys.getfilesystemencoding()
        remedy = "Rename the file" if used == "utf-8" else "Set LC_ALL=C.UTF-8 and unset PYTHONUTF8"
        problem = f"{error.object!r} cannot be used, since this process encodes the names of files as {used}"
        click.echo(f"error: {one_line(problem)}. {remedy}", err=True)
        code = 2
    except (MemoryError, OSError) as error:  # the machine or the storage failed, not the program
        short = shortage(error)
        if short is None and getattr(error, "errno", None) not in STORAGE_REMEDIES:
            raise
        text = error_text(short) if short else f"{one_line(str(error))}. {STORAGE_REMEDIES[getattr(error, 'errno', 0)]}"
        click.echo(f"error: {text}", err=True)
        code = 1
    if arguments is None and code in (130, 143):
        # Nothing is left to do, and the sender of the signal should not wait for a slow interpreter shutdown.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


if __name__ == "__main__":
    main()
