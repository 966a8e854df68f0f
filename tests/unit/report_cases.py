"""Pages and their outlines: ``python -m tests.unit.report_cases > tests/unit/reports.txt`` writes those of now."""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import pipelines
from pipelines.auditing import audit_run
from pipelines.report.compare import compare
from pipelines.report.folder import ReportedRun, read_run
from pipelines.report.page import run_article
from pipelines.sweeping.grid import read_grid, settings_of
from raydt.presentation.blocks import Article, Beside, Best, Facts, Section, Table, Text, Tree, has_content
from raydt.presentation.charts import ABSENT, Chart
from tests.cases import CASES
from tests.golden.small import CONFIGS, HERE, SMALL
from tests.unit.fabricated_run import (
    AUDIT,
    RECOVERED,
    best_split_run,
    fabricated_run,
    fabricated_sweep,
    failed,
    rows_of,
    write_table,
)

# -- report outline --------------------------------------------------------------------------------------------------
# What a page shows, in a form without words: sections, blocks, their shapes and their numbers.

_NUMBER = re.compile(r"[-+]?\d[\d,]*(?:\.\d+)?(?:e-?\d+)?%?")
_FIRST, _LAST = 12, 2  #: rows of a table that are listed


def numbers(text: str) -> str:
    """Return the numbers of a text."""
    return " ".join(_NUMBER.findall(text.replace(ABSENT, "0")))


def outline(article: Article) -> Iterator[str]:
    """Return a line for each section, block, series and row of an article."""
    for section in (Section("", article.head, "head"), *article.sections):
        yield f"[{section.key}]"
        for block in filter(has_content, section.blocks):
            yield from (f"  {line}".rstrip() for line in _block(block))


def _block(block: Any) -> Iterator[str]:
    kind = type(block).__name__.lower()
    if isinstance(block, Text):
        yield f"text {block.tone}: {numbers(block.text)}"
    elif isinstance(block, Facts):
        shown = [] if block.kind == "digests" else block.facts
        values = (f"{f.tone} {numbers(f'{f.value} {f.remark} {f.share or str()}')}".strip() for f in shown)
        yield f"facts {block.kind} {len(block.facts)}: {'; '.join(values)}"
    elif isinstance(block, Beside):
        for table in filter(has_content, block.tables):
            yield from _block(table)
    elif isinstance(block, Table):
        yield f"table {block.style} {len(block.rows)} x {len(block.columns)}: {numbers(block.remark)}"
        for row in [*block.rows[:_FIRST], *block.rows[_FIRST:][-_LAST:]]:
            bar = "" if row.share is None else f" {row.tone} {row.share:.4g}"
            yield "  " + "|".join("*" * isinstance(cell, Best) + numbers(cell) for cell in row.cells) + bar
    elif isinstance(block, Chart):
        words = numbers(f"{block.caption} {block.label}")
        yield f"chart {block.key} {len(block.at)} {block.span} {len(block.uprights)}: {words}"
        for panel in block.panels:
            ticks = " ".join(numbers(tick.label) for tick in panel.axis.ticks)
            yield f"  panel {panel.height:g}{' shaded' if panel.shade else ''}: {ticks}"
            for mark in panel.marks:
                shape, n = type(mark.shape).__name__.lower(), len(mark.values)
                some = " ".join(numbers(value) for value in mark.values[:: max(1, -(-n // 5))])
                yield f"    {shape} {mark.tone} {mark.dash} {numbers(mark.now)} of {n}: {some}"
    elif isinstance(block, Tree):
        yield f"tree {len(block.legend)} {len(block.margins)} {block.lines}: {numbers(block.about + block.remark)}"
        root = block.root
        cards = [root, *root.children, *(deeper for child in root.children for deeper in child.children)]
        yield f"  {root.cards()} cards"
        for card in cards:
            yield f"    {card.answer} {card.tone} {card.hidden} {card.note.margin_tone}: {numbers(card.detail)}"
    else:
        yield kind + (f" {block.key}" if kind == "heading" else "")


# -- report cases ----------------------------------------------------------------------------------------------------
# Pages of which ``reports.txt`` has the outline: made-up runs and sweeps, and small runs of every learner.
#
# ``python -m tests.unit.report_cases > tests/unit/reports.txt`` writes the outlines of this version.

FILE = Path(__file__).with_name("reports.txt")

#: Cases of numeric labels: what they are scored by has other tables and charts.
NUMERIC = [trial for trial in CASES if trial.shipped and trial.reading.regression]


def made_up(**changes: Any) -> Callable[[Path], Article]:
    """Return what makes the article about a made-up run."""
    return lambda folder: run_article(read_run(fabricated_run(folder, **changes)), "run")


def timeless(run: ReportedRun) -> ReportedRun:
    """Return a run whose figures do not depend on the machine."""
    for times, scale in ((run.metrics, 1e-4), (run.events, 1e-6)):
        if "seconds" in times:
            times["seconds"] = scale * (1.0 + np.arange(len(times["seq"])))
    for entry in run.summary.get("work") or []:
        entry |= {"seconds": 0.5 + entry["shard"], "requests": 10}
    run.summary |= {"seconds": 2.0, "updates_per_second": 100.0, "startup_seconds": 0.5, "rounds": 9}
    run.summary |= {
        "started": None,
        "peak_rss_bytes": 10**8,
        "raydt_version": None,
        "checkpoints": None,
        "versions": {},
    }
    for row in run.quarantine:
        row["file"] = "changes"
    run.config_text = "a config"
    return run


def replayed(config: Any, folder: Path, overrides: list[str]) -> ReportedRun:
    """Replay and audit a config."""
    run = pipelines.replay(config, folder, overrides=overrides)
    audit_run(run.path)
    return timeless(read_run(Path(run.path)))


def shipped(name: str) -> Callable[[Path], Article]:
    """Return what makes the article about a shipped config with few rows."""
    sets = [*SMALL[name], *HERE, "output.metrics_every=50"]
    return lambda folder: run_article(replayed(CONFIGS / f"{name}.yaml", folder, sets), "run")


def compared(*changes: dict[str, Any]) -> Callable[[Path], Article]:
    """Return what compares made-up runs."""

    def made(folder: Path) -> Article:
        runs = [read_run(fabricated_run(folder / str(k), rebuilds=20, **one)) for k, one in enumerate(changes)]
        return compare(runs, [f"run {k}" for k in range(len(runs))])

    return made


def alarmed(folder: Path) -> Article:
    """Show alarms of ADWIN, and skipped rows."""
    run, n = fabricated_run(folder, rows=20, rebuilds=40), 30
    before = {"seq": np.arange(n) * 60, "predictions": np.arange(n) + 50}
    write_table(run / "alarms", {**before, "error_before": np.full(n, 0.1), "error_after": np.full(n, 0.25)})
    skipped = {"seq": np.full(n, -1), "source_row": np.arange(n), "file": ["rows.csv"] * n, "reason": ["bad"] * n}
    write_table(run / "quarantine", skipped)
    return run_article(read_run(run), "run")


def numeric(folder: Path) -> Article:
    """Compare runs of numeric labels."""
    scores = [{"mse": 2.0, "rmse": 1.4, "mae": 1.0, "r2": 0.5}, {"mse": 1.0, "rmse": 1.0, "mae": 2.0, "r2": 0.7}]
    runs = [fabricated_run(folder / str(k), rows=9, rebuilds=9, metrics=one) for k, one in enumerate(scores)]
    return compare([read_run(run) for run in runs], ["one", "two"])


def kinds(folder: Path) -> Article:
    """Compare a tree with two best splits."""
    splits = [best_split_run(folder / name, finder={"name": name}) for name in ("updgini", "scan")]
    runs = [read_run(run) for run in (fabricated_run(folder / "tree", rows=20, rebuilds=20), *splits)]
    return compare(runs, ["tree", "updgini", "scan"])


def predicted(folder: Path) -> Article:
    """Compare two runs that wrote their predictions."""
    sets = [*SMALL["fudyadt"], *HERE, "output.metrics_every=50", "output.predictions=true"]
    depths = [[], ["learner.max_depth=2"]]
    runs = [replayed(CONFIGS / "fudyadt.yaml", folder / str(k), sets + more) for k, more in enumerate(depths)]
    for run in runs:  # how many other keys there are is of no interest
        run.config = {"learner": {"max_depth": run.config["learner"]["max_depth"]}}
    return compare(runs, ["deep", "flat"])


def swept(*grid: str, broken: tuple[int, ...] = (), trials: int = 1, **columns: Any) -> Callable[[Path], Article]:
    """Return what makes the article about a sweep of made-up rows."""

    def made(folder: Path) -> Article:
        settings = settings_of(read_grid(grid))
        axes, rows = rows_of(list(grid), [0.5 + 0.01 * (k % 31) for k in range(len(settings))])
        rows = [{**row, **columns} for row in rows]
        for k in broken:
            rows[k] = failed(k, {axis.key: rows[k][axis.key] for axis in axes if axis.key in rows[k]})
        return fabricated_sweep(axes, rows, trials=trials)

    return made


PAGES: dict[str, Callable[[Path], Article]] = {
    "complete": made_up(),
    "recovered": made_up(rows=100, rebuilds=50, **RECOVERED),
    "failed": made_up(rows=1, rebuilds=1, status="failed", error="e", audit=None),
    "interrupted": made_up(rows=20, rebuilds=40, status="interrupted", exit_reason="SIGINT", refused=3, skipped=1234),
    "behind": made_up(rows=20, rebuilds=40, metrics={"accuracy": 0.6}, baselines={"no_change": 0.6, "majority": 0.5}),
    "alarmed": alarmed,
    "best split, made up": lambda folder: run_article(read_run(best_split_run(folder, audit=AUDIT)), "run"),
    **{name: shipped(name) for name in SMALL if name not in ("cluster", "laptop")},
    **{
        trial.name: lambda folder, trial=trial: run_article(  # type: ignore[misc]
            replayed(trial.config(folder.parent), folder, []), "run"
        )
        for trial in NUMERIC
    },
    "two compared": compared({"rows": 40}, {"rows": 20, "updates_per_second": 5.0, **RECOVERED}),
    "three compared": compared({"rows": 40}, {"rows": 1}, {"rows": 10, "source_fingerprint": "x"}),
    "learners compared": kinds,
    "numbers compared": numeric,
    "predictions compared": predicted,
    "sweep": swept("learner.epsilon=0:1:0.1", broken=(3,)),
    "sweep over two keys": swept("learner.epsilon=0.01,1,100", "stream.window=1:20:1"),
    "sweep of trials": swept("source.seed=1,2", "learner.epsilon=auto,0.1", trials=2),
    "sweep of splits": swept("learner.alpha=1,2", learner="best_split", best_feature="w" * 100, score=0.25, changes=9),
}


def main() -> None:
    """Print the outlines of all pages."""
    for name, made in PAGES.items():
        with tempfile.TemporaryDirectory() as folder:
            sys.stdout.write("\n".join([f"== {name}", *outline(made(Path(folder) / "run"))]) + "\n")


if __name__ == "__main__":
    main()
