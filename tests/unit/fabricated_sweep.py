"""Rows of a sweep as its settings would give them, made up, for tests of what shows them."""

from __future__ import annotations

from typing import Any

from pipelines.display import sweep_facts
from pipelines.report.page import document
from pipelines.sweeping.grid import Axis, Row, Settings, read_grid, settings_of
from raydt.evaluation.scoring import CLASS_SCORES
from raydt.presentation.blocks import Article


def row(setting: int, keys: dict[str, Any], accuracy: float, us: float = 2.0) -> Row:
    """A setting that was scored."""
    scores = dict.fromkeys((score.name for score in CLASS_SCORES), accuracy)
    work = dict.fromkeys(("updates", "rebuilds", "rebuilt_rows", "nodes", "leaves", "depth", "alarms"), 5)
    levels = {"no_change": 0.7, "majority": 0.5, "promised": accuracy < 0.6}
    return {
        "setting": setting,
        "learner": "fudyadt",
        **keys,
        "us_per_update": us,
        **scores,
        **work,
        **levels,
    }


def failed(setting: int, keys: dict[str, Any], error: str = "a <b>bad</b> update\nmore") -> Row:
    """A setting that failed."""
    return {"setting": setting, "learner": "fudyadt", **keys, "updates": 3, "error": error, "exit_code": 2}


def rows_of(grid: list[str], accuracies: list[float]) -> tuple[list[Axis], list[Row]]:
    """The axes of a grid and a row for each setting."""
    axes = read_grid(grid)
    return axes, [row(i, keys, a) for i, (keys, a) in enumerate(zip(settings_of(axes), accuracies, strict=True))]


def fabricated_sweep(
    axes: list[Axis],
    rows: list[Row],
    text: str = "some",
    verdict: str = "",
    trials: int = 1,
) -> Article:
    """The article about an interrupted sweep; ``text`` is what names and labels say."""
    summary = {
        "name": text, "learner": "fudyadt", "rows": 9, "status": "interrupted", "exit_reason": "SIGINT",
        "done": len(rows), "settings": len(rows) + 1, "failed": sum("error" in row for row in rows),
        "verdict": verdict, "backend": "ray", "parallel": 2, "seconds": 1.0, "read_seconds": 1.0, "trials": trials,
        "best": {},
    }  # fmt: skip
    config = {section: {"kind": text} for section in ("learner", "stream", "source")}
    runs = Settings(axes, rows, {0: config}, {})
    return runs.article(summary, sweep_facts(summary, "/x"), f"raydt replay --set {text}", f"a: {text}")


def fabricated_page(*arguments: Any, **options: Any) -> str:
    """The page of such a sweep."""
    shown = fabricated_sweep(*arguments, **options)
    return document(shown.title, "sweep", [shown])
