"""Commands that run streams: demo, train, replay, resume, sweep."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from raydt.messages import WITHHELD, message, one_line

# Options that several commands share, and how a command prints its result.

if TYPE_CHECKING:
    from collections.abc import Callable

    from pipelines.running.replay import RunResult

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
    help="Ray cluster: host:port, auto or local. Default: the config's, else RAY_ADDRESS, else this machine.",
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


def on_error(help: str) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Return the option of commands that stop at a bad row, or pass it over."""
    return click.option("--on-error", type=click.Choice(["fail", "skip"]), default="fail", show_default=True, help=help)


def print_result(result: dict[str, Any], text: str, as_json: bool, *, ok: bool = True) -> int:
    """Print the result of a command as text or JSON; return the exit code, 3 if a guarantee does not hold."""
    # Names of files need not be UTF-8; JSON has an escape for what is not.
    shown = (
        json.dumps(result, indent=2, ensure_ascii=False).encode(errors="backslashreplace").decode() if as_json else text
    )
    click.echo(shown)
    return 0 if ok else 3


def _print_run(result: RunResult, as_json: bool) -> int:
    from pipelines.display import run_lines

    print_result({"path": result.path, **result.summary}, run_lines(result.summary, result.path), as_json)
    return result.exit_code


def with_chain(options: dict[str, Any]) -> dict[str, Any]:
    """Return options with ``receipts``, the chain of ``--receipts``, ``--receipt-key`` and ``--sign``, or None."""
    from pipelines.receipts import ReceiptFile

    receipts, key, sign = (options.pop(name) for name in ("receipts", "receipt_key", "sign"))
    if receipts is None and (key is not None or sign is not None):
        raise click.UsageError(message("commands.no_receipts"))
    if receipts is not None and key is None:
        raise click.UsageError(message("commands.no_key"))
    return {**options, "receipts": ReceiptFile(receipts, key, sign) if receipts is not None else None}


@click.command(short_help="Insert, delete and audit on a local Ray. Needs no input.")
@OUT_RUN
@OVERWRITE_RUN
@JSON
def demo(out: str | None, overwrite: bool, as_json: bool) -> int:
    """Insert and delete examples on a local Ray, audit the trees and write a report. Needs no input.

    \b
    Example:  raydt demo --out runs/demo
    """
    from pipelines.display import reporter
    from pipelines.doctor import run_demo, story

    result = run_demo(out, reporter(), overwrite=overwrite)
    print_result({"path": result.path, **result.summary}, story(result.summary, result.path), as_json)
    return result.exit_code or (0 if result.summary["audit"]["ok"] else 3)


@click.command(short_help="Train one model on all rows of CONFIG's source and score it on a hold-out.")
@click.argument("config", type=click.Path(dir_okay=False))
@HOLDOUT
@SET
@OUT_RUN
@OVERWRITE_RUN
@ADDRESS
@JSON
def train(config: str, out: str | None, as_json: bool, **options: Any) -> int:
    """Train one model on all rows at once and write a run folder. CONFIG needs no stream section.

    A share of the rows is held out first, by a hash of their ids: a model of the same learner is trained on the other
    rows and scored on these. Then all rows train the model of the run, which update, predict and audit take.

    \b
    Example:  raydt train runs/demo/config.yaml --out runs/trained
    """
    from pipelines.display import reporter
    from pipelines.training import train as run

    return _print_run(run(config, out, progress=reporter(), **options), as_json)


@click.command(short_help="Run the stream of CONFIG and write a run folder.")
@click.argument("config", type=click.Path(dir_okay=False))
@SET
@OUT_RUN
@OVERWRITE_RUN
@ADDRESS
@JSON
def replay(config: str, out: str | None, as_json: bool, **options: Any) -> int:
    """Run the stream of CONFIG through its learner and write a run folder.

    \b
    Example:  raydt replay runs/demo/config.yaml --set learner.n_estimators=10 --out runs/first
    """
    from pipelines.display import reporter
    from pipelines.running.replay import replay as run

    return _print_run(run(config, out, progress=reporter(), **options), as_json)


@click.command(short_help="Follow a table or topic: a run that goes on until it is stopped.")
@click.argument("config", metavar="CONFIG|RUN", type=click.Path())
@SET
@OUT_RUN
@OVERWRITE_RUN
@click.option(
    "--until-idle", type=click.FloatRange(0), metavar="SECONDS", help="End when nothing new comes for so long."
)
@ADDRESS
@JSON
def follow(config: str, out: str | None, as_json: bool, **options: Any) -> int:
    """Follow the table or topic of CONFIG's source, and write a run folder. RUN goes on where it has ended.

    The run goes on until SIGTERM or SIGINT, which end it within seconds as an interrupted run. status.json in the run
    folder says how far behind the source it is, what it waits for, or why it has failed.

    \b
    CONFIG, for a Delta table:
      source:  {kind: delta, path: tables/customers, label: churned, id: customer_id}
      stream:  {warmup: 500}

    \b
    Example:  raydt follow live.yaml --out runs/live
              raydt follow runs/live
    """
    from pipelines.display import reporter
    from pipelines.following import follow as run

    return _print_run(run(config, out, progress=reporter(), **options), as_json)


@click.command(short_help="Resume a run that was killed, was interrupted or failed.")
@click.argument("run")
@click.option(
    "--from", "state", metavar="STATE", help="Continue from this state, which update made from RUN or its checkpoints/."
)
@SET
@ADDRESS
@JSON
def resume(run: str, as_json: bool, **options: Any) -> int:
    """Resume RUN from its newest checkpoint. The result is identical to an uninterrupted run.

    With --from, RUN continues from STATE, which has the deletions and insertions of update. STATE replaces all
    checkpoints of RUN. Afterwards you can interrupt and resume RUN like any other run.

    --set may change stream.on_error, cluster, checkpoint (except its path), erasure, output.report and
    output.quote_values, and the folders that hold the data. A completed run is not changed.

    \b
    Example:  raydt resume runs/first --set cluster.shards=4
    """
    from pipelines.display import reporter
    from pipelines.run_folder import fitting
    from pipelines.running.replay import resume as run_on

    result = run_on(run, progress=reporter(), **options)
    with fitting(f"{result.path}/summary.json"):
        return _print_run(result, as_json)


@click.command(short_help="Run many settings of CONFIG in parallel; rows are read once.")
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
def sweep(config: str, grid: tuple[str, ...], out: str | None, as_json: bool, **options: Any) -> int:
    """Run every setting of a grid in parallel, write one table and compare them. Each setting runs as in replay.

    \b
    Example:  raydt sweep runs/demo/config.yaml --grid learner.n_estimators=5,10 --grid stream.window=1000,1500
    Exit code 1 or 2 if a setting failed; all others are complete.
    """
    from pipelines.display import reporter
    from pipelines.sweeping import sweep as run

    result = run(config, grid, out, progress=reporter(), **options)
    printed = {"path": result.path, **result.summary, "table": result.table.to_pylist()}
    print_result(printed, "\n".join(result.lines), as_json)
    return result.exit_code


# Commands that change saved examples: update, purge.


@click.command(short_help="Delete and insert examples in a saved state; print a receipt.")
@click.argument("state")
@click.option(
    "--insert", metavar="FILE", help="Rows to insert: a file of any format that --kind names, with the model's columns."
)
@click.option(
    "--delete",
    metavar="FILE",
    help="Ids to delete, or subjects whose rows to delete: Parquet, Arrow, CSV or JSON Lines file with a column id or "
    "subject, or the name that the source gives it.",
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
@on_error("At a bad row or a refused update of --changes: fail stops and writes nothing, skip passes it over.")
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
    changes: tuple[str, ...],
    out: str | None,
    roll_back: bool,
    as_json: bool,
    **options: Any,
) -> int:
    """Delete and insert examples in STATE, write the new state and print a receipt of the changes.

    STATE is a run folder, its checkpoints/ or one of them, or a folder saved with its examples. It is not changed. All
    deletions precede all insertions, so one call can replace an example. Either all changes take effect or none.

    With --changes the files are change logs, whose rows are scored before they are learned, in their order. The new
    state is STATE2/N, after N updates; STATE2/latest names it, and STATE2/report.html shows all states. STATE may be
    STATE2, of which the newest is taken. A file that the state has read is passed over, whatever it is called.

    \b
    Example:  (echo id; echo 9000) > requests.csv
              raydt update runs/first --delete requests.csv --out states/second
              raydt update runs/first --changes changes/monday.jsonl --out states
              raydt update states --changes changes/
    """
    from pipelines.display import changes_lines, receipt_lines
    from pipelines.saved_runs import find_state
    from pipelines.updating import apply_changes
    from pipelines.updating import update as run

    options = with_chain(options) | {"out": out}
    lists: dict[str, Any] = {"insert": insert, "delete": delete, "missing": options.pop("missing")}
    logs = {name: options.pop(name) for name in ("op", "envelope", "on_error")}
    if roll_back:
        if options["receipts"] is None or insert or delete or changes or out or options["dry_run"]:
            raise click.UsageError(message("commands.roll_back"))
        from pipelines import receipts
        from pipelines.report.page import in_words

        entry = receipts.roll_back(state, options["receipts"], options["note"])
        return print_result({"state": state, **entry}, in_words(entry), as_json)
    if changes:
        if lists != {"insert": None, "delete": None, "missing": "error"}:
            raise click.UsageError(message("commands.changes_alone"))
        done = apply_changes(state, changes, **logs, **options)
        text = changes_lines(done, state, dry_run=options["dry_run"])
        return print_result({"state": state, **done.as_dict()}, text, as_json)
    if logs != {"op": None, "envelope": None, "on_error": "fail"}:
        raise click.UsageError(message("commands.only_with_changes"))
    receipt = run(state, **lists, **options)
    written = None if options["dry_run"] else out or find_state(state).folder.location
    return print_result(
        {"state": state, "out": written, **receipt.as_dict()}, receipt_lines(receipt, state, written), as_json
    )


@click.command(short_help="Rewrite a finished run or a state so that it holds live examples only.")
@click.argument("place", metavar="RUN|STATE")
@click.option(
    "--ids", metavar="FILE", help="Erase only these ids: Parquet, Arrow, CSV or JSON Lines file with a column id."
)
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
def purge(place: str, as_json: bool, **options: Any) -> int:
    """Rewrite or remove every file of RUN, or of a saved STATE, that holds an example that is not live.

    The model, its digest and the live examples stay. If a purge is killed, start it again. purge.json in the folder
    records what the purge has done.

    Example:  raydt purge runs/first --older-than 7d
    """
    from pipelines.display import purge_lines
    from pipelines.purging import purge as run_purge

    done = run_purge(place, **with_chain(options))
    return print_result(done, purge_lines(done), as_json)


# Commands that use a saved model: predict, serve, export.

#: Formats of exported models, as in ``raydt.export``.
_FORMATS = ["treelite", "onnx", "lightgbm", "sklearn"]


@click.command(short_help="Predict the rows of a file with a saved model, or explain one prediction.")
@click.argument("model")
@click.argument("data")
@click.option("--out", metavar="FILE", help="New Parquet file to write; .parquet or .pq. Required without --explain.")
@click.option("--overwrite", is_flag=True, help="Replace the file of --out if it exists.")
@click.option("--id", "id_column", metavar="COLUMN", help="Column of DATA to copy to the output as its first column.")
@on_error("At a bad row: fail stops and writes nothing, skip writes null predictions for it.")
@click.option(
    "--interval",
    type=float,
    metavar="ALPHA",
    help="Of numbers, also write the ends of intervals outside of which at most 2 ALPHA of the labels lie, about ALPHA "
    "in most data: 0.1. MODEL is a run or a state then.",
)
@click.option("--explain", type=int, metavar="ROW", help="Explain one prediction instead: number of the row, from 0.")
@KEY
@click.option("--tree", type=int, metavar="N", help="Tree whose path --explain shows. Default: 0, the first.")
@click.option("--kind", type=click.Choice(KINDS), help="File format of DATA. Default: from its name.")
@JSON
def predict(
    model: str,
    data: str,
    out: str | None,
    explain: int | None,
    key: str | None,
    tree: int | None,
    as_json: bool,
    **options: Any,
) -> int:
    """Predict the rows of DATA with MODEL: a run folder, its model/, its checkpoints/ or one of them.

    The output has one row for each row of DATA, in the same order.

    With --interval, the columns lower and upper are the ends of a prediction interval (jackknife+), by the model
    without each of its examples, or each subject. Nothing is trained, and the command says what is promised.

    With --explain, predict writes no file. It shows the row's path through one tree in words, and how much each feature
    moves the output from the mean (path-dependent Shapley values of all trees, weighted by the live examples).

    \b
    Example:  raydt predict runs/first new.parquet --id customer_id --out predictions.parquet
              raydt predict runs/first new.parquet --explain 3
    """
    from pipelines.display import explanation_lines
    from pipelines.prediction import explain_row, predict_file
    from raydt.presentation.charts import counted

    if (out is None) == (explain is None):
        raise click.UsageError(message("commands.out_or_explain"))
    if explain is not None:
        kind = options.pop("kind")
        if options != {"overwrite": False, "id_column": None, "on_error": "fail", "interval": None}:
            raise click.UsageError(message("commands.only_with_out"))
        found = explain_row(model, data, explain, tree or 0, kind, key)
        return print_result(found, explanation_lines(found), as_json)
    if tree is not None or key is not None:
        raise click.UsageError(message("commands.only_with_explain"))
    assert out is not None
    result = predict_file(model, data, out, **options)
    if result["skipped"]:
        rows, first = counted(result["skipped"], "bad row"), one_line(result["first_skipped"])
        click.echo(message("commands.skipped_rows", rows=rows, first=first), err=True)
    if result["unseen"]:
        rows, columns = counted(result["unseen"], "row"), one_line(", ".join(result["unseen_columns"]))
        click.echo(message("commands.unseen_categories", rows=rows, columns=columns), err=True)
    if result["last_labels"]:
        click.echo(message("commands.last_labels"), err=True)
    if result.get("without_model"):
        rows, keys = counted(result["without_model"], "row"), one_line(", ".join(map(str, result["unknown_keys"])))
        keys = keys if result["unknown_keys"] else WITHHELD
        click.echo(message("commands.without_model", rows=rows, keys=keys), err=True)
    text = f"{counted(result['rows'] - result['skipped'], 'prediction')} in {result['out']}"
    if "guarantee" in result:
        text = message("attribution.given", text=text, guarantee=result["guarantee"])
    return print_result(result, text, as_json)


@click.command(short_help="Measure which training rows help or harm a saved model.")
@click.argument("state", metavar="RUN|STATE")
@click.argument("validation")
@click.option("--out", metavar="FILE", required=True, help="New Parquet file to write; .parquet or .pq.")
@click.option("--overwrite", is_flag=True, help="Replace the file of --out, and its page, if they exist.")
@click.option(
    "--by",
    metavar="row|subject|COLUMN",
    default="row",
    show_default=True,
    help="Leave out one row at a time, all rows of a subject, or all with one value of a feature.",
)
@click.option(
    "--scoring",
    metavar="NAME",
    help="accuracy, neg_log_loss, neg_brier_score, or a scorer of scikit-learn. "
    "Default: accuracy; of numbers neg_mean_squared_error.",
)
@click.option("--label", metavar="COLUMN", help="Label column of VALIDATION. Default: that of the state.")
@click.option("--kind", type=click.Choice(KINDS), help="File format of VALIDATION. Default: from its name.")
@click.option(
    "--address", metavar="A", help="Divide the rows on Ray: host:port, auto or local. Default: in this process."
)
@JSON
def value(state: str, validation: str, out: str, as_json: bool, **options: Any) -> int:
    """Write how much each training row adds to the score of a model on the labelled rows of VALIDATION.

    The model is that of a state: a run, its checkpoints/ or one of them, or what update wrote. It stays as it is. The
    value of a row is the score with all rows, less the score without this row: below 0, the row harms. The quality of a
    label is what the model without the row thinks of it. A page beside the output shows the labels that may be wrong
    and the ends of the list. An interrupted command that is given again goes on where it stopped.

    \b
    Example:  raydt value runs/first valid.parquet --scoring neg_log_loss --out values.parquet
    """
    from pipelines.valuing import value_rows
    from raydt.presentation.charts import count, counted, figure

    found = value_rows(state, validation, out, **options)
    named = counted(found["rows"], options["by"] if options["by"] in ("row", "subject") else "group")
    shown = {"score": figure(found["score"]), "harmful": count(found["harmful"]), "suspect": ""}
    if "suspect" in found:
        shown["suspect"] = message("attribution.suspected", suspect=counted(found["suspect"], "label"))
    text = message("attribution.valued", named=named, **shown, out=found["out"], page=found["page"])
    return print_result(found, text, as_json)


@click.command(short_help="Write a saved model for treelite, ONNX, LightGBM or scikit-learn.")
@click.argument("model", metavar="RUN|STATE")
@click.option(
    "--to", type=click.Choice(_FORMATS), required=True, help="Format; its library is an extra: raydt[FORMAT]."
)
@click.option("--out", required=True, metavar="FILE", help="New file: .tl, .onnx, .txt or .skops, by the format.")
@click.option("--overwrite", is_flag=True, help="Replace FILE and FILE.json if they exist.")
@KEY
@JSON
def export(model: str, as_json: bool, **options: Any) -> int:
    """Write the model of a RUN, or of a saved STATE, in the format of another library.

    The exported model gives the same outputs, bit for bit in double precision; for boosting, the outputs before the
    link function. FILE.json describes columns and outputs.

    \b
    Example:  raydt export runs/first --to onnx --out model.onnx
    """
    from pipelines.display import export_lines
    from pipelines.prediction import export_model

    written = export_model(model, **options)
    return print_result(written, export_lines(written), as_json)


@click.command(short_help="Answer requests over HTTP with the newest model of a run, also while it goes on.")
@click.argument("model", metavar="RUN|MODEL|STATE")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen at; any but loopback: a token.")
@click.option("--port", type=click.IntRange(0, 65535), default=8765, show_default=True, help="Port; 0: a free one.")
@click.option(
    "--every", type=click.FloatRange(0.1, 3600), default=1.0, show_default=True, help="Seconds between two looks."
)
@JSON
def serve(model: str, host: str, port: int, every: float, as_json: bool) -> int:
    """Answer requests with the newest complete snapshot of RUN: its model, or the last of its checkpoints.

    POST /predict takes one row as a JSON object, {"rows": [...]} or {"columns": {...}}. An answer names the digest,
    update and age of its snapshot. GET /health describes the model, GET /metrics counts for Prometheus.

    RAYDT_SERVE_TOKEN, or a token that is printed once, is required at any address but loopback. SIGTERM ends the
    server.

    \b
    Example:  raydt serve runs/first
              curl -d '{"age": 41, "city": "Kiel"}' http://127.0.0.1:8765/predict
    """
    from pipelines.serving.application import serve as answer_requests

    result = answer_requests(model, host, port, every=every, say=lambda line: click.echo(one_line(line), err=True))
    return print_result(result, message("serving.ended", requests=result["requests"]), as_json)


# Commands that prove what a run or a state holds: audit, verify.


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
    from raydt.folders.arrays import MANIFEST, newest, read_manifest
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
    return print_result({"run": of, **report}, text, as_json, ok=report["ok"])


@click.command(short_help="Find who is still in which folder, check receipts, or train again and compare digests.")
@click.argument("places", nargs=-1, required=True, metavar="RUN...|RECEIPTS [STATE]")
@RECEIPT_KEY
@click.option("--public-key", metavar="HEX", help="Ed25519 key by which every receipt must be signed.")
@click.option(
    "--id",
    "ids",
    metavar="ID",
    multiple=True,
    help="Of RUN...: which folders still hold ID? Of RECEIPTS: was ID deleted, when, by which receipt? Repeatable.",
)
@click.option("--subject", "subjects", metavar="X", multiple=True, help="As --id, of the rows of a subject (person).")
@click.option("--receipt", type=click.IntRange(1), metavar="N", help="Print receipt number N as a text for people.")
@JSON
def verify(places: tuple[str, ...], receipt: int | None, as_json: bool, **named: Any) -> int:
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

    Which folders still hold a person?  raydt verify runs states --subject ana

    The last looks through RUN, its checkpoints, and the states beside RUN that update made from it; RUN may also be a
    state, or a folder with runs and states in it, and there may be several. The exit code is 3 unless all that is asked
    is gone from all of them. If one RUN has receipts of its own, the exit code is that of the receipts.
    """
    from pathlib import Path

    from pipelines.auditing import verify_receipts, verify_requests, verify_run
    from pipelines.display import erasure_lines, receipts_lines, verify_lines
    from pipelines.run_folder import RECEIPTS
    from pipelines.whereabouts import verify_erasure

    named["key"], ids, subjects = named.pop("receipt_key"), named["ids"], named["subjects"]
    run, *others = places
    state = others[0] if others else None
    is_folder = "://" in run or Path(run).is_dir()  # a run or a state, no file of receipts
    if (ids or subjects or receipt is not None) and not others and (Path(run) / RECEIPTS).is_file():
        checked = verify_requests(run, **named)
        if receipt is None:
            found = verify_erasure(run, ids=ids, subjects=subjects)
            text = receipts_lines(checked) + "\n\n" + erasure_lines(found)
            return print_result({**checked, "erasure": found}, text, as_json, ok=checked["ok"])
        run = str(Path(run) / RECEIPTS)
    elif (ids or subjects) and receipt is None and not (named["key"] or named["public_key"]) and is_folder:
        found = verify_erasure(places, ids=ids, subjects=subjects)
        return print_result(found, erasure_lines(found), as_json, ok=found["ok"])
    if len(others) > 1:
        raise click.UsageError(message("commands.one_state", others=len(others)))
    asked = any(given not in (None, ()) for given in (state, receipt, *named.values()))
    chain = Path(run).is_file() or (asked and "://" not in run and not Path(run).exists())
    if chain and receipt is not None:
        from pipelines.reporting import receipt_of

        entry, text = receipt_of(run, receipt)
        return print_result(entry, text, as_json)
    if chain:
        checked = verify_receipts(run, state, **named)
        return print_result(checked, receipts_lines(checked), as_json, ok=checked["ok"])
    if asked:
        lacking = (ids or subjects or receipt is not None) and Path(run).is_dir()
        raise click.UsageError(message("commands.no_chain" if lacking else "commands.not_receipts", run=run))
    found = verify_run(run)
    return print_result(found, verify_lines(found), as_json, ok=found["equal"])


# Commands that look at runs, configs and the machine: report, validate, doctor.


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
    Example:  raydt report runs/demo runs/first --out comparison.html
    """
    from pathlib import Path

    from pipelines.reporting import receipt_pages, report_of

    if len(runs) == 1 and Path(runs[0]).is_file():
        where = receipt_pages(runs[0], out, receipt)
    elif receipt is not None:
        raise click.UsageError(message("commands.no_pages", run=runs[0]))
    else:
        where = report_of(list(runs), out, key)
    return print_result({"report": where}, where, as_json)


@click.command(short_help="Check a config, the first rows of its data, and its ids.")
@click.argument("config", required=False, type=click.Path(dir_okay=False))
@SET
@click.option("--train", "as_training", is_flag=True, help="Check CONFIG as train would run it: all rows at once.")
@click.option("--schema", is_flag=True, help="Print the JSON Schema of configs, for editors, and exit.")
@JSON
def validate(config: str | None, overrides: tuple[str, ...], as_training: bool, schema: bool, as_json: bool) -> int:
    """Check CONFIG, the columns and first rows of its data, and the ids of up to a million updates. Nothing is run.

    \b
    Example:  raydt validate runs/demo/config.yaml
              raydt validate runs/demo/config.yaml --train
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
    from pipelines.display import STARTING_RAY, doctor_lines
    from pipelines.doctor import compile_all, examine
    from pipelines.doctor import probe as try_out

    tried = {"probe": try_out(probe)} if probe is not None else {}
    if with_ray:
        click.echo(STARTING_RAY, err=True)
    compiled = {"compile_seconds": compile_all()} if with_kernels else {}
    facts = {**examine(with_ray), **tried, **compiled}
    return print_result(facts, doctor_lines(facts), as_json)


# The commands by topic. Each imports what it needs when it runs, so that ``--help`` is quick.
