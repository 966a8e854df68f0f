"""The page about successive states: what each update changed, and how well the model predicted its rows before."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

import numpy as np

from raydt.messages import message
from raydt.presentation.blocks import Block, Fact, Facts, Row, Section, Table, Text
from raydt.presentation.series import Columns
from raydt.presentation.words import ABSENT, count, counted, moment, names, number


def series_page(meta: Mapping[str, Any], location: str) -> str:
    """Return the page about the states in the lineage of the newest one, whose ``meta`` is given."""
    from pipelines.report.document import document  # drawing is imported where something is drawn

    article = _article(meta, location)
    return document(article.title, "states", [article])


def scores_of(lineage: list[dict[str, Any]]) -> Columns:
    """Return scores of updates by change logs as columns of a metrics table; ``seq`` counts from the first on."""
    steps = [step for step in lineage if step.get("scores")]
    begin = steps[0]["offset"] if steps else 0
    columns: Columns = {"seq": np.array([step["offset"] + step["updates"] - begin for step in steps], dtype=np.int64)}
    for name in steps[-1]["scores"] if steps else ():
        values = [step["scores"].get(name) for step in steps]
        columns[name] = np.array([np.nan if value is None else value for value in values], dtype=np.float64)
    return columns


def _article(meta: Mapping[str, Any], location: str) -> Any:
    from pipelines.report.charts import quality_charts
    from pipelines.report.quality import quality_of
    from pipelines.report.verdicts import against_baselines
    from raydt.presentation.blocks import Article

    lineage = meta.get("lineage", [])
    scores = scores_of(lineage)
    last: Mapping[str, Any] = next((step["scores"] for step in reversed(lineage) if step.get("scores")), {})
    quality = quality_of(last)
    figures = [
        Fact("updates", count(meta.get("offset")), f"{counted(len(lineage), 'state')} since {lineage[0]['state']}"),
        Fact("live examples", count(_live(lineage)), ""),
        Fact(quality.name, quality.form(number(last, quality.window)), "in the last update"),
        Fact(quality.name, quality.form(number(last, quality.score)), "of all predictions so far"),
    ]
    head: list[Block] = [
        against_baselines({"metrics": last, "baselines": last}, scores),
        Facts([fact for fact in figures if fact.value != ABSENT], "figures"),
    ]
    charts = quality_charts(scores, None)
    sections = [Section("States", [_states(lineage, quality)], "states")]
    if charts:
        sections.append(
            Section("Quality", [Text(f"{message('reports.before_learned')}.", "quiet"), *charts], "quality")
        )
    kind = str(meta.get("learner", {}).get("kind", ""))
    return Article(PurePosixPath(location).name, f"successive states of a {kind} model", head, sections)


def _live(lineage: list[dict[str, Any]]) -> int | None:
    return next((step["active"] for step in reversed(lineage) if "active" in step), None)


def _states(lineage: list[dict[str, Any]], quality: Any) -> Table:
    """Return a row for each update, the newest first."""
    rows = []
    for step in reversed(lineage):
        scores = step.get("scores") or {}
        updates = step.get("updates", step.get("deletes", 0) + step.get("inserts", 0))
        files = step.get("files", {})
        paths = [one["path"] for one in files.get("changes", [])] or [
            one["path"] for name, one in files.items() if name != "changes"
        ]
        rows.append(
            Row(
                (
                    str(step["offset"] + updates),
                    moment(step.get("time")),
                    names([PurePosixPath(path).name if path is not None else "in memory" for path in paths], 3),
                    count(step.get("inserts")),
                    count(step.get("deletes")),
                    count(step.get("active")),
                    quality.form(number(scores, quality.window)),
                    *(quality.form(number(scores, f"window_{key}")) for key in quality.baselines),
                )
            )
        )
    rivals = [name.capitalize() for name in quality.baselines.values()]
    columns = ("State", "When", "Files", "Inserted", "Deleted", "Live", quality.name.capitalize(), *rivals)
    return Table(rows, title="What each update changed", columns=columns, words=(1, 2, 3))
