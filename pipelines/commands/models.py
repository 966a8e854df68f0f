"""Commands that use a saved model: predict, serve, export."""

from __future__ import annotations

from typing import Literal

import click

from pipelines.commands.options import JSON, KEY, KINDS, print_result
from pipelines.printing import one_line
from raydt.messages import message
from raydt.redaction import WITHHELD

#: Formats of exported models, as in ``raydt.export``.
_FORMATS = ["treelite", "onnx", "lightgbm", "sklearn"]


@click.command(short_help="Predict the rows of a file with a saved model, or explain one prediction.")
@click.argument("model")
@click.argument("data")
@click.option("--out", metavar="FILE", help="New Parquet file to write; .parquet or .pq. Required without --explain.")
@click.option("--overwrite", is_flag=True, help="Replace the file of --out if it exists.")
@click.option("--id", "id_column", metavar="COLUMN", help="Column of DATA to copy to the output as its first column.")
@click.option(
    "--on-error",
    type=click.Choice(["error", "skip"]),
    default="error",
    show_default=True,
    help="At a bad row: error stops and writes nothing, skip writes null predictions for it.",
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
    overwrite: bool,
    id_column: str | None,
    on_error: Literal["error", "skip"],
    explain: int | None,
    key: str | None,
    tree: int | None,
    kind: str | None,
    as_json: bool,
) -> int:
    """Predict the rows of DATA with MODEL: a run folder, its model/, its checkpoints/ or one of them.

    The output has one row for each row of DATA, in the same order.

    With --explain, predict writes no file. It shows the row's path through one tree in words, and how much each feature
    moves the output from the mean (path-dependent Shapley values of all trees, weighted by the live examples).

    \b
    Example:  raydt predict runs/first new.parquet --id customer_id --out predictions.parquet
              raydt predict runs/first new.parquet --explain 3
    """
    from pipelines.display import explanation_lines
    from pipelines.exporting import explain_row
    from pipelines.prediction import predict_file
    from raydt.presentation.words import counted

    if (out is None) == (explain is None):
        raise click.UsageError(message("commands.out_or_explain"))
    if explain is not None:
        if overwrite or id_column is not None or on_error != "error":
            raise click.UsageError(message("commands.only_with_out"))
        found = explain_row(model, data, explain, tree or 0, kind, key)
        print_result(found, explanation_lines(found), as_json)
        return 0
    if tree is not None or key is not None:
        raise click.UsageError(message("commands.only_with_explain"))
    assert out is not None
    result = predict_file(model, data, out, kind, id_column=id_column, on_error=on_error, overwrite=overwrite)
    if result["skipped"]:
        rows, first = counted(result["skipped"], "bad row"), one_line(result["first_skipped"])
        click.echo(message("commands.skipped_rows", rows=rows, first=first), err=True)
    if result["unseen"]:
        rows, columns = counted(result["unseen"], "row"), one_line(", ".join(result["unseen_columns"]))
        click.echo(message("commands.unseen_categories", rows=rows, columns=columns), err=True)
    if result.get("without_model"):
        rows, keys = counted(result["without_model"], "row"), one_line(", ".join(map(str, result["unknown_keys"])))
        keys = keys if result["unknown_keys"] else WITHHELD
        click.echo(message("commands.without_model", rows=rows, keys=keys), err=True)
    print_result(result, f"{counted(result['rows'] - result['skipped'], 'prediction')} in {result['out']}", as_json)
    return 0


@click.command(short_help="Write a saved model for treelite, ONNX, LightGBM or scikit-learn.")
@click.argument("model", metavar="RUN|STATE")
@click.option(
    "--to", type=click.Choice(_FORMATS), required=True, help="Format; its library is an extra: raydt[FORMAT]."
)
@click.option("--out", required=True, metavar="FILE", help="New file: .tl, .onnx, .txt or .skops, by the format.")
@click.option("--overwrite", is_flag=True, help="Replace FILE and FILE.json if they exist.")
@KEY
@JSON
def export(
    model: str,
    to: Literal["treelite", "onnx", "lightgbm", "sklearn"],
    out: str,
    overwrite: bool,
    key: str | None,
    as_json: bool,
) -> int:
    """Write the model of a RUN, or of a saved STATE, in the format of another library.

    The exported model gives the same outputs, bit for bit in double precision; for boosting, the outputs before the
    link function. FILE.json describes columns and outputs.

    \b
    Example:  raydt export runs/first --to onnx --out model.onnx
    """
    from pipelines.display import export_lines
    from pipelines.exporting import export_model

    written = export_model(model, to, out, key=key, overwrite=overwrite)
    print_result(written, export_lines(written), as_json)
    return 0


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
    from pipelines.serving.job import serve as answer_requests

    result = answer_requests(model, host, port, every=every, say=lambda line: click.echo(one_line(line), err=True))
    print_result(result, message("serving.ended", requests=result["requests"]), as_json)
    return 0
