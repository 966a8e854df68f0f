"""Comparison of several runs: differences of their configs, their figures, curves and models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from pipelines.report.difference import compared, differences, winner
from pipelines.report.facts import common_to, compared_figures
from pipelines.report.folder import ReportedRun
from pipelines.report.quality import ACCURACY, SQUARED_ERROR, Quality, quality_of
from raydt.arrays.types import Floats
from raydt.learners.description import Curve, Description
from raydt.messages import message
from raydt.presentation.blocks import Article, Best, Block, Name, Row, Section, Table, Text
from raydt.presentation.charts import (
    POINTS,
    WINDOWS,
    Axis,
    Chart,
    Panel,
    Series,
    Values,
    curve,
    has_curve,
    linear,
    look,
    updates_axis,
)
from raydt.presentation.clock import in_words, time_axis
from raydt.presentation.series import Columns, merged, per_unit
from raydt.presentation.words import ABSENT, Form, count, counted, figure, names, number, share

#: Figures that have a best run: the largest, or the smallest.
_RATED = {
    **{title: max for key, title in ACCURACY.titles.items() if key != "alarms"},
    **dict.fromkeys(("Updates/s", SQUARED_ERROR.titles["r2"]), max),
    **{SQUARED_ERROR.titles[key]: min for key in ("mse", "rmse", "mae")},
}
_SECTIONS = ("learner", "stream", "source", "cluster", "checkpoint", "erasure", "output")


def compare(runs: Sequence[ReportedRun], labels: Sequence[str]) -> Article:
    """Return the article that compares at least two runs."""
    quality = quality_of(runs[0].summary.get("metrics"))
    comparison = compared(runs, quality)
    tones = [look(k)[0] for k in range(len(runs))]
    blocks: list[Block] = [
        differences(comparison, labels, quality),
        _figures(runs, labels, quality),
        Text(_models(runs, labels)),
        _differing(runs, labels),
        *_charts(runs, labels),
    ]
    links = [(f"run-{k}-name", label, tone) for k, (label, tone) in enumerate(zip(labels, tones, strict=True), start=1)]
    return Article(
        f"{len(runs)} runs compared",
        common_to(runs),
        [winner(comparison, runs, labels, quality), Text(_data(runs, labels), "notice bad")],
        [Section("Comparison of the runs", blocks, "compared")],
        links=links,
    )


def _figures(runs: Sequence[ReportedRun], labels: Sequence[str], quality: Quality) -> Table:
    """Return a row per figure that differs, the best of scores and speed marked; the remark has the others."""
    own = list(dict.fromkeys(name for run in runs for name, _ in run.description.compared(run.summary)))
    restarted = any(number(run.summary, "restarts") for run in runs)
    rows, same = [], []
    for column in zip(*(compared_figures(run, quality, own) for run in runs), strict=True):
        name, form = column[0][0], column[0][2]
        if name == "Restarts" and not restarted:
            continue
        values = [value for _, value, _ in column]
        known = [value for value in values if isinstance(value, float)]
        best = _RATED[name](known) if name in _RATED and len(set(known)) > 1 else None
        cells = [str(value) if form is None else form(value) for value in values]
        if len(set(cells)) == 1:
            same += [f"{name[0].lower()}{name[1:]} {cells[0]}"] if cells[0] != ABSENT else []
            continue
        at = [k for k, value in enumerate(values) if best is not None and value == best]
        rows.append(Row((name, *(Best(cell) if k in at else cell for k, cell in enumerate(cells)))))
    remark = f"{message('reports.all_same', figures=', '.join(same))}." if same else ""
    return _beside("Figures that differ; the best scores are bold", "Figure", labels, rows, remark)


def _beside(title: str, first: str, labels: Sequence[str], rows: list[Row], remark: str = "") -> Table:
    """Return a table with a column per run, in the run's tone."""
    words = range(1, len(labels) + 2) if first == "Key" else (1,)
    tones = [look(k)[0] for k in range(len(labels))]
    return Table(rows, remark, title, (first, *labels), words, "runs", tones=tones)


def flat(config: Any, prefix: str = "") -> dict[str, Any]:
    """Return the leaves of nested mappings by their dotted keys."""
    result: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, dict) and value:
            result |= flat(value, f"{prefix}{key}.")
        else:
            result[f"{prefix}{key}"] = value
    return result


def _differing(runs: Sequence[ReportedRun], labels: Sequence[str]) -> Table:
    """Return a row per key that differs; the remark counts the others, and options of single learners."""
    leaves = [flat(run.config) for run in runs]
    own = set[str]()
    if len({run.kind for run in runs}) > 1:
        options = [{key for key in config if key.startswith("learner.")} for config in leaves]
        own = {key for config in options for key in config if not all(key in other for other in options)}
    keys = sorted(dict.fromkeys(key for config in leaves for key in config if key not in own), key=_section)
    values = {key: [_word(config.get(key)) for config in leaves] for key in keys}
    rows = [Row((Name(key), *values[key])) for key in keys if len(set(values[key])) > 1]
    same = len(keys) - len(rows)
    remark = f"{counted(same, 'other key')} {'is' if same == 1 else 'are'} the same in all runs."
    remark = f"{message('reports.own_keys', keys=counted(len(own), 'option'))}. {remark}" if own else remark
    return _beside(
        "Differences between the configs", "Key", labels, rows, remark if rows else "The runs have the same config."
    )


def _section(key: str) -> int:
    """Return the rank of a key's section: what makes a model comes before where it was made."""
    section = key.partition(".")[0]
    return _SECTIONS.index(section) if section in _SECTIONS else len(_SECTIONS)


def _word(value: Any) -> str:
    """Return a value of a config as text; null, empty and absent mean the same."""
    if isinstance(value, list):
        return names([str(part) for part in value], 4) or ABSENT
    return ABSENT if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _groups(values: Sequence[Any], labels: Sequence[str]) -> dict[Any, list[str]]:
    """Return the labels of the runs that share a value; runs without one are left out."""
    groups: dict[Any, list[str]] = {}
    for value, label in zip(values, labels, strict=True):
        if value:
            groups.setdefault(value, []).append(label)
    return groups


def _models(runs: Sequence[ReportedRun], labels: Sequence[str]) -> str:
    """Return which runs ended with the same model, in the words of their learners if these agree."""
    groups = _groups([run.summary.get("model_digest") for run in runs], labels)
    unknown = len(runs) - sum(map(len, groups.values()))
    rest = f" {message('reports.no_digest', runs=counted(unknown, 'run'))}." if unknown else ""
    descriptions = {run.description.same for run in runs}
    same, another = descriptions.pop() if len(descriptions) == 1 else Description.same
    if len(groups) == 1 and not unknown:
        ended = "Both runs" if len(runs) == 2 else f"All {len(runs)} runs"
        return f"{message('reports.same_models', runs=ended, same=same)}."
    equal = [", ".join(group) for group in groups.values() if len(group) > 1]
    if not equal:
        return f"{message('reports.other_models', another=another)}.{rest}"
    return f"{message('reports.some_models', same=same.capitalize(), groups='; '.join(equal))}.{rest}"


def _data(runs: Sequence[ReportedRun], labels: Sequence[str]) -> str:
    """Return a warning if the runs have not read the same data."""
    groups = _groups([run.summary.get("source_fingerprint") for run in runs], labels)
    if len(groups) < 2:
        return ""
    listed = "; ".join(f"({k}) {', '.join(group)}" for k, group in enumerate(groups.values(), start=1))
    return f"{message('reports.other_sources', sources=len(groups), groups=listed)}."


def _charts(runs: Sequence[ReportedRun], labels: Sequence[str]) -> list[Chart]:
    drawn = {k: label for k, label in enumerate(labels) if has_curve(runs[k].metrics, "seq")}
    if not drawn:
        return []
    ruler = _ruler([runs[k] for k in drawn])
    quality = quality_of(runs[min(drawn)].metrics)
    own = list(dict.fromkeys(curve for run in runs for curve in run.description.curves))
    name, speed = f"Prequential {quality.name}", Curve("speed", "Updates per second", "", "updates/s")
    wanted: list[tuple[Curve, Form]] = [
        (Curve("window", f"{name}, window by window", quality.window, quality.unit), quality.form),
        (Curve(quality.score, f"{name} so far", quality.score, quality.unit), quality.form),
        *((curve, figure) for curve in own if curve.rate),
        (speed, figure),
        *((curve, count) for curve in own if not curve.rate),
    ]
    charts = []
    for shown, form in wanted:
        have_it = [k for k, run in enumerate(runs) if shown not in own or shown in run.description.curves]
        here = [k for k in have_it if k in drawn and (not shown.column or has_curve(runs[k].metrics, shown.column))]
        if here:
            lines = [(k, labels[k], runs[k]) for k in here]
            charts.append(_overlaid(shown, form, lines, len(have_it) - len(here), ruler))
    return charts


class _Ruler(NamedTuple):
    """The horizontal axis of all charts: event time, updates, or insertions."""

    axis: Axis
    unit: str
    places: Callable[[ReportedRun, Columns], Floats]  #: where the rows of a run's table lie
    word: Callable[[float], str]
    updates: int  #: of the axis


def _ruler(runs: Sequence[ReportedRun]) -> _Ruler:
    """Return event time where all streams have it, and else updates.

    The same rows are other updates where the streams differ, as a window makes two of one row: then insertions.
    """
    clocks = [run.clock for run in runs]
    known = [clock for clock in clocks if clock is not None]
    last = max(int(run.metrics["seq"][-1]) for run in runs)
    if len(known) == len(clocks) and len({clock.moments for clock in known}) == 1:
        low, high = min(clock.ends[0] for clock in known), max(clock.ends[1] for clock in known)
        by_run, word = {id(run): clock for run, clock in zip(runs, known, strict=True)}, known[0].word
        axis, unit = time_axis(low, high, known[0].moments), in_words(low, max(clock.latest for clock in known), word)
        return _Ruler(axis, unit, lambda run, table: by_run[id(run)].at(table["seq"]), word, last)
    steps, one = "seq", "update"
    if len({str(run.section("stream")) for run in runs}) > 1:
        steps, one = "inserts", "insertion"
        last = max(int(run.metrics[steps][-1]) for run in runs)
    axis = updates_axis(last)
    return _Ruler(axis, f"{one}s", lambda run, table: table[steps], lambda place: f"{one} {count(place)}", last)


def _overlaid(
    drawn: Curve, form: Form, runs: list[tuple[int, str, ReportedRun]], left_out: int, ruler: _Ruler
) -> Chart:
    """Return one curve per run; a run that ended earlier ends earlier."""
    whole = bool(drawn.column) and not drawn.rate and not drawn.column.startswith("window")
    at = np.linspace(0, 1, WINDOWS + 1)[1:]
    tables = [merged(run.metrics, POINTS if whole else WINDOWS) for *_, run in runs]
    series = [_series(table, drawn) for table in tables]
    x, low, high = ruler.axis, ruler.axis.low, ruler.axis.high
    places = low + at * (high - low)
    y = linear(
        series,
        zero=form is not share,
        within=(0.0, 1.0) if form is share else None,
        whole=form is count,
        form="share" if form is share else "number",
    )
    marks = []
    for (index, label, run), table, values in zip(runs, tables, series, strict=True):
        tone, dash = look(index)
        here = ruler.places(run, table)
        line = curve((x, y), here, Series(values, label, tone, dash), form)
        marks.append(line.read_at(here, places))
    return Chart(
        f"compared-{drawn.key}",
        drawn.title,
        (f"{counted(left_out, 'run')} with fewer than two points left out. " if left_out else "")
        + ("Since the point before." if drawn.key == "window" else ""),
        (Panel(drawn.unit, tuple(marks), y, 15.0),),
        x.ticks,
        ruler.unit,
        at.tolist(),
        [ruler.word(place) for place in places.tolist()],
        ruler.updates,
    )


def _series(table: Columns, drawn: Curve) -> Values:
    if not drawn.column:
        return per_unit(table["seq"], table["seconds"])
    return per_unit(table[drawn.column], table["seq"]) if drawn.rate else table[drawn.column]
