"""Commands that run streams: demo, train, replay, resume, sweep."""

from __future__ import annotations

import click

from pipelines.commands.options import ADDRESS, HOLDOUT, JSON, OUT_RUN, OVERWRITE_RUN, SET, print_result


@click.command(short_help="Insert, delete and audit on a local Ray. Needs no input.")
@OUT_RUN
@OVERWRITE_RUN
@JSON
def demo(out: str | None, overwrite: bool, as_json: bool) -> int:
    """Insert and delete examples on a local Ray, audit the trees and write a report. Needs no input.

    \b
    Example:  raydt demo
    """
    from pipelines.demo import run_demo, story
    from pipelines.progress import reporter

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
def train(
    config: str,
    holdout: float | None,
    overrides: tuple[str, ...],
    out: str | None,
    overwrite: bool,
    address: str | None,
    as_json: bool,
) -> int:
    """Train one model on all rows at once and write a run folder. CONFIG needs no stream section.

    A share of the rows is held out first, by a hash of their ids: a model of the same learner is trained on the other
    rows and scored on these. Then all rows train the model of the run, which update, predict and audit take.

    \b
    Example:  raydt train configs/own-data.yaml --out runs/first
    """
    from pipelines.display import run_lines
    from pipelines.progress import reporter
    from pipelines.training import train as run

    result = run(
        config,
        out,
        holdout=holdout,
        overrides=overrides,
        address=address,
        overwrite=overwrite,
        progress=reporter(),
    )
    print_result({"path": result.path, **result.summary}, run_lines(result.summary, result.path), as_json)
    return result.exit_code


@click.command(short_help="Run the stream of CONFIG and write a run folder.")
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
    print_result({"path": result.path, **result.summary}, run_lines(result.summary, result.path), as_json)
    return result.exit_code


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
def follow(
    config: str,
    overrides: tuple[str, ...],
    out: str | None,
    overwrite: bool,
    until_idle: float | None,
    address: str | None,
    as_json: bool,
) -> int:
    """Follow the table or topic of CONFIG's source, and write a run folder. RUN goes on where it has ended.

    The run goes on until SIGTERM or SIGINT, which end it within seconds as an interrupted run. status.json in the run
    folder says how far behind the source it is, what it waits for, or why it has failed.

    \b
    Example:  raydt follow configs/delta.yaml --out runs/live
    """
    from pipelines.display import run_lines
    from pipelines.following.follow import follow as run
    from pipelines.progress import reporter

    result = run(
        config,
        out,
        overrides=overrides,
        address=address,
        overwrite=overwrite,
        progress=reporter(),
        until_idle=until_idle,
    )
    print_result({"path": result.path, **result.summary}, run_lines(result.summary, result.path), as_json)
    return result.exit_code


@click.command(short_help="Resume a run that was killed, was interrupted or failed.")
@click.argument("run")
@click.option(
    "--from", "state", metavar="STATE", help="Continue from this state, which update made from RUN or its checkpoints/."
)
@SET
@ADDRESS
@JSON
def resume(run: str, state: str | None, overrides: tuple[str, ...], address: str | None, as_json: bool) -> int:
    """Resume RUN from its newest checkpoint. The result is identical to an uninterrupted run.

    With --from, RUN continues from STATE, which has the deletions and insertions of update. STATE replaces all
    checkpoints of RUN. Afterwards you can interrupt and resume RUN like any other run.

    --set may change stream.on_error, cluster, checkpoint (except its path), erasure, output.report and
    output.quote_values, and the folders that hold the data. A completed run is not changed.

    \b
    Example:  raydt resume runs/first --set cluster.shards=4
    """
    from pipelines.display import run_lines
    from pipelines.progress import reporter
    from pipelines.run_folder import fitting
    from pipelines.running.job import resume as run_on

    result = run_on(run, state=state, overrides=overrides, address=address, progress=reporter())
    with fitting(f"{result.path}/summary.json"):
        print_result({"path": result.path, **result.summary}, run_lines(result.summary, result.path), as_json)
        return result.exit_code


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
    print_result(printed, sweep_lines(result.summary, result.lines, result.path), as_json)
    return result.exit_code
