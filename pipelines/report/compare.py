"""Comparison of several runs: differences of their configs, their figures, curves and models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.report.charts import ACCURACY, SQUARED_ERROR, Quality, quality_of
from pipelines.report.facts import common_to, compared_figures
from pipelines.report.folder import ReportedRun
from raydt.arrays.elementary import Floats, Ints
from raydt.evaluation.adwin import interval, interval_of_blocks, mcnemar
from raydt.learners.description import Curve, Description
from raydt.messages import message
from raydt.presentation.blocks import Article, Best, Block, Name, Row, Section, Table, Text
from raydt.presentation.charts import (
    ABSENT,
    POINTS,
    WINDOWS,
    Axis,
    Chart,
    Columns,
    Form,
    Mark,
    Panel,
    Series,
    Values,
    boxes,
    clipped,
    count,
    counted,
    curve,
    figure,
    has_curve,
    in_words,
    increments,
    linear,
    look,
    merged,
    names,
    number,
    per_unit,
    share,
    time_axis,
    updates_axis,
)

# Which of several runs wins, by how much, and whether that may be chance.
#
# Two runs are compared in pairs: by the predictions that both made of the same examples, if both wrote them
# (``output.predictions``), else window by window of their metrics, if these are of the same stream. What cannot be
# compared is said in a sentence.

_HEAD = ("seq", "id", "prediction", "truth")

#: Fewest windows of which an interval is made.
LEAST_WINDOWS = 10


class Difference(NamedTuple):
    """The score of a run minus that of another on the same predictions, with its interval."""

    pairs: int  #: Predictions.
    mean: float
    low: float
    high: float
    #: Of classes, from tables of predictions: predictions that only the one, or only the other run has right.
    only: tuple[int, int] | None = None
    windows: int = 0  #: Windows that the interval is made of; 0 if it is made of single predictions.


class Comparison(NamedTuple):
    """The run with the best score, and how it differs from each other run."""

    best: int | None  #: None without two scores.
    others: list[tuple[int, Difference | str]]  #: From the best to the worst; a text is the id of the reason why not.


def compared(runs: Sequence[ReportedRun], quality: Quality) -> Comparison:
    """Return which run is best, the first of equal ones, and its difference from each other."""
    scores = [number(run.summary.get("metrics"), quality.score) for run in runs]
    known = [k for k, score in enumerate(scores) if score is not None]
    if len(known) < 2:
        return Comparison(None, [])
    ranked = sorted(known, key=lambda k: (-1 if quality.more_is_better else 1) * float(scores[k] or 0.0))
    best, *others = ranked
    tables = {k: _predictions(runs[k]) for k in ranked}
    found: list[tuple[int, Difference | str]] = []
    for k in [*others, *(k for k in range(len(runs)) if k not in known)][: CURVES - 1]:
        pair = runs[best], runs[k]
        if any(run.section("stream").get("delayed_labels") for run in pair):
            found.append((k, "reports.delayed"))
        elif tables.get(k) is not None and tables[best] is not None:
            found.append((k, _difference(tables[best], tables[k])))
        else:
            found.append((k, _by_windows(*pair, quality)))
    return Comparison(best, found)


def winner(comparison: Comparison, runs: Sequence[ReportedRun], labels: Sequence[str], quality: Quality) -> Text:
    """Return in a sentence or two who wins, by how much, and with which interval."""
    if comparison.best is None:
        return Text(f"{message('reports.no_winner', quality=quality.name)}.", "verdict plain")
    if len({run.summary.get("source_fingerprint") for run in runs} - {None}) > 1:
        return Text(f"{message('reports.no_common_data')}.", "verdict plain")
    best, (second, difference) = comparison.best, comparison.others[0]
    scores = [quality.form(number(runs[k].summary.get("metrics"), quality.score)) for k in (best, second)]
    said = {"winner": labels[best], "second": labels[second], "quality": quality.name}
    said |= {"score": scores[0], "other": scores[1]}
    if isinstance(difference, str):
        return Text(
            f"{message('reports.ahead', **said, reason=message(difference, run=labels[second]))}.", "verdict plain"
        )
    ends = difference.low, difference.high
    low, high = ends if quality.more_is_better else (-ends[1], -ends[0])  # by how much it is better
    mean = difference.mean if quality.more_is_better else -difference.mean
    said |= {"difference": _amount(mean, quality), "pairs": count(difference.pairs)}
    said |= {"low": _number(low, quality), "high": _number(high, quality)}
    if difference.low == difference.high == 0.0:
        return Text(f"{message('reports.tied', **said)}.", "verdict plain")
    if difference.low <= 0.0 <= difference.high:
        return Text(f"{message('reports.undecided', **said)}.", "verdict plain")
    return Text(f"{message('reports.wins', **said)}.", "verdict good")


def differences(comparison: Comparison, labels: Sequence[str], quality: Quality) -> Table:
    """Return a row for each run but the best: how the best differs from it; the remark says why there is none."""
    if comparison.best is None:
        return Table([])
    known = [(k, found) for k, found in comparison.others if isinstance(found, Difference)]
    paired = any(found.only for _, found in known)
    best, rows = labels[comparison.best], []
    for k, found in known:
        cells = [labels[k], count(found.pairs), _signed(found.mean, quality)]
        cells += [f"{_signed(found.low, quality)} to {_signed(found.high, quality)}"]
        if paired:
            cells += ["", "", ""] if found.only is None else [*map(count, found.only), _p_value(*found.only)]
        rows.append(Row(tuple(cells)))
    by_windows = {found.windows for _, found in known if found.windows}
    remarks = [message("reports.interval")] if any(not found.windows for _, found in known) else []
    remarks += [message("reports.window_interval", windows=count(min(by_windows)))] if by_windows else []
    remarks += [message("reports.mcnemar")] if paired else []
    reasons = _groups(
        [found if isinstance(found, str) else "" for _, found in comparison.others],
        [labels[k] for k, _ in comparison.others],
    )
    remarks += [message(reason, run=names(group, 3)) for reason, group in reasons.items()]
    columns = ["Compared with", "predictions", f"{quality.name}, difference", "95% interval"]
    columns += ["only the best right", "only this right", "McNemar's p"] if paired else []
    remark = " ".join(f"{remark}." for remark in dict.fromkeys(remarks))
    return Table(rows, remark, f"{best}, the best, minus each other run, on the same predictions", columns)


def _predictions(run: ReportedRun) -> Any:
    """Return the scored predictions by update; None if there is no table that can be read."""
    parts = [str(part) for folder in run.folders for part in sorted((folder / "predictions").glob("part-*.parquet"))]
    if not parts:
        return None
    import pyarrow.dataset as ds  # which takes longer than a comparison without predictions

    table = ds.dataset(parts, format="parquet", exclude_invalid_files=True).to_table(columns=[*_HEAD])
    return table.filter(pc.is_valid(table["truth"])).sort_by("seq")


def _difference(first: Any, second: Any) -> Difference | str:
    """Return the difference of two tables of predictions, or the id of the message why there is none."""
    if first.schema != second.schema:
        return "reports.other_kind"
    here, there = _paired(first["id"], second["id"])
    n = len(here)
    if not n:
        return "reports.no_pair"
    truth, other = first["truth"].take(here), second["truth"].take(there)
    if not pc.all(pc.equal(truth, other)).as_py():
        return "reports.other_labels"
    pair = (first, here), (second, there)
    if first.schema.field("truth").type == "double":
        target = truth.to_numpy()
        errors = [(t["prediction"].take(at).to_numpy() - target) ** 2 for t, at in pair]
        changed = errors[0] - errors[1]
        return Difference(n, float(changed.mean()), *interval(changed))
    right = [
        pc.fill_null(pc.equal(t["prediction"].take(at), truth), False).to_numpy(zero_copy_only=False) for t, at in pair
    ]
    changed = right[0].astype(np.float64) - right[1]
    only = int((changed > 0).sum()), int((changed < 0).sum())
    return Difference(n, float(changed.mean()), *interval(changed), only)


def _by_windows(first: ReportedRun, second: ReportedRun, quality: Quality) -> Difference | str:
    """Return the difference of two runs window by window, or the id of the message why there is none.

    The windows are of the same predictions if they end at the same updates, with as many predictions, and the trivial
    predictors score the same in each.
    """
    same = ("seq", "predictions", *(f"window_{name}" for name in quality.baselines))
    if any(name not in run.metrics for run in (first, second) for name in (*same, quality.window)):
        return "reports.no_predictions"
    if not all(np.array_equal(first.metrics[name], second.metrics[name], equal_nan=True) for name in same):
        return "reports.no_predictions"
    sizes = increments(first.metrics["predictions"])
    changed = first.metrics[quality.window] - second.metrics[quality.window]
    scored = np.isfinite(changed) & (sizes > 0)
    if int(scored.sum()) < LEAST_WINDOWS:
        return "reports.few_windows"
    sums, sizes = changed[scored] * sizes[scored], sizes[scored]
    low, high = interval_of_blocks(sums, sizes)
    return Difference(round(sizes.sum()), float(sums.sum() / sizes.sum()), low, high, windows=len(sums))


def _paired(first: Any, second: Any) -> tuple[Ints, Ints]:
    """Return the places of examples in both columns, the k-th of an id with the k-th of it. O(n log n)."""
    ids = pa.chunked_array([*first.chunks, *second.chunks], first.type).dictionary_encode().unify_dictionaries()
    codes = np.concatenate([chunk.indices.to_numpy() for chunk in ids.chunks]) if len(ids) else np.empty(0, np.int64)
    ours, theirs = (_numbered(part.astype(np.int64)) for part in (codes[: len(first)], codes[len(first) :]))
    _, here, there = np.intersect1d(ours, theirs, assume_unique=True, return_indices=True)
    order = np.argsort(here)
    return here[order], there[order]


def _numbered(codes: Ints) -> Ints:
    """Return each code with the number of the same before it, as one integer."""
    order = np.argsort(codes, kind="stable")
    ordered = codes[order]
    begins = np.flatnonzero(np.diff(ordered, prepend=-1))
    before = np.arange(len(codes)) - np.repeat(begins, np.diff(np.append(begins, len(codes))))
    keys = np.empty(len(codes), dtype=np.int64)
    keys[order] = (before << 32) | ordered
    return keys


def _p_value(one: int, other: int) -> str:
    p = mcnemar(one, other)
    return "below 0.0001" if p < 0.0001 else f"{p:.4f}"


def _amount(value: float, quality: Quality) -> str:
    """Return a difference with its unit, for a sentence."""
    return f"{_number(value, quality)} points" if quality.form is share else figure(value)


def _number(value: float, quality: Quality) -> str:
    return f"{100 * value:.2f}" if quality.form is share else figure(value)


def _signed(value: float, quality: Quality) -> str:
    if quality.form is not share:
        return figure(value)
    return ("+" if value > 0 else "") + share(value, 2)


#: Figures that have a best run: the largest, or the smallest.
_RATED = {
    **{title: max for key, title in ACCURACY.titles.items() if key != "alarms"},
    **dict.fromkeys(("Updates/s", SQUARED_ERROR.titles["r2"]), max),
    **{SQUARED_ERROR.titles[key]: min for key in ("mse", "rmse", "mae")},
}
_SECTIONS = ("learner", "stream", "source", "cluster", "checkpoint", "erasure", "output")

#: Runs up to which each has a column of the tables, more have a row; and runs that have curves, the best ones.
COLUMNS, CURVES = 6, 16


def compare(runs: Sequence[ReportedRun], labels: Sequence[str], *, folders: bool = True) -> Article:
    """Return the article that compares at least two runs.

    With ``folders`` it links to an article about each; settings of a sweep have none, and labels that name options.
    """
    quality = quality_of(runs[0].summary.get("metrics"))
    comparison = compared(runs, quality)
    tables: list[Block] = [_beside(table, labels) for table in (_figures(runs, quality), _options(runs))]
    if len(runs) > COLUMNS:
        tables = [scores_of(runs, labels, quality), table_of_runs(runs, labels if folders else (), quality)]
    blocks: list[Block] = [
        differences(comparison, labels, quality),
        *tables,
        failures(runs, labels),
        Text(_models(runs, labels)),
        *_charts(runs, labels, _best(comparison, len(runs))),
    ]
    tones = [look(k)[0] for k in range(len(runs))]
    links = [(f"run-{k}-name", label, tone) for k, (label, tone) in enumerate(zip(labels, tones, strict=True), start=1)]
    return Article(
        f"{len(runs)} runs compared",
        common_to(runs),
        [winner(comparison, runs, labels, quality), Text(_data(runs, labels), "notice bad")],
        [Section("Comparison of the runs", blocks, "compared")],
        links=links if folders else (),
    )


def _best(comparison: Comparison, n: int) -> list[int]:
    """Return at most ``CURVES`` of ``n`` runs, the best ones, in order."""
    if n <= CURVES or comparison.best is None:
        return [*range(min(n, CURVES))]
    return sorted([comparison.best, *(k for k, _ in comparison.others[: CURVES - 1])])


class Differing(NamedTuple):
    """Options or figures as data: what differs by name, with a cell for each run, and a sentence about the others."""

    title: str
    rows: list[tuple[str, list[str]]]
    remark: str


def _figures(runs: Sequence[ReportedRun], quality: Quality, *, brief: bool = False) -> Differing:
    """Return the figures that differ, the best of scores and speed marked; ``brief`` for a terminal."""
    values = [(run.description.columns, run.description.values(run.summary)) for run in runs]
    own = list(dict.fromkeys(one for columns, has in values for one in columns if has[one.name] is not None))
    restarted = any(number(run.summary, "restarts") for run in runs)
    rows, same = [], []
    for column in zip(*(compared_figures(run, quality, own, brief=brief) for run in runs), strict=True):
        name, form = column[0][0], column[0][2]
        if name == "Restarts" and not restarted:
            continue
        found = [value for _, value, _ in column]
        known = [value for value in found if isinstance(value, float)]
        best = _RATED[name](known) if name in _RATED and len(set(known)) > 1 else None
        cells = [str(value) if form is None else form(value) for value in found]
        if len(set(cells)) == 1 and not (brief and name in _RATED):
            same += [f"{name[0].lower()}{name[1:]} {cells[0]}"] if cells[0] != ABSENT else []
            continue
        marked = best is not None
        rows.append(
            (
                name,
                [Best(cell) if marked and value == best else cell for cell, value in zip(cells, found, strict=True)],
            )
        )
    remark = f"{message('reports.all_same', figures=', '.join(same))}." if same else ""
    return Differing("Figures that differ; the best scores are bold", rows, remark)


def _beside(found: Differing, labels: Sequence[str]) -> Table:
    """Return a table with a column per run, in the run's tone."""
    options = any(isinstance(name, Name) for name, _ in found.rows)
    rows = [Row((name, *cells)) for name, cells in found.rows]
    columns = ("Key" if options else "Figure", *labels)
    tones = [look(k)[0] for k in range(len(labels))]
    words = range(1, len(columns) + 1) if options else (1,)
    return Table(rows, found.remark, found.title, columns, words, "runs", tones=tones)


def table_of_runs(
    runs: Sequence[ReportedRun], labels: Sequence[str], quality: Quality, *, brief: bool = False
) -> Table:
    """Return a row for each run, with the options and the figures that differ; ``brief`` for a terminal."""
    options, figures = _options(runs), _figures(runs, quality, brief=brief)
    shown = [*([("Run", labels)] if labels else []), *options.rows, *figures.rows]
    rows = [Row(cells) for cells in zip(*(cells for _, cells in shown), strict=True)]
    words = range(1, len(shown) - len(figures.rows) + 1)
    remark = f"{figures.remark} {options.remark}".strip()
    title = "Runs by the options and figures that differ; the best scores are bold"
    return Table(rows, remark, title, [name for name, _ in shown], words, "dense")


def failures(runs: Sequence[ReportedRun], labels: Sequence[str], *, brief: bool = False) -> Table:
    """Return the runs that failed, and why; ``brief`` for a terminal."""
    rows = []
    for run, label in zip(runs, labels, strict=True):
        error = str(run.summary.get("error") or "")
        if error:
            error = clipped(error.partition("\n")[0], 100) if brief else error
            rows.append(Row((label, count(number(run.summary, "updates")), error)))
    return Table(rows, "", "Failed runs", ("Run", "Updates", "Error"), (1, 3))


def scores_of(runs: Sequence[ReportedRun], labels: Sequence[str], quality: Quality) -> Chart:
    """Return the score of each run, in their order."""
    places = np.arange(len(runs))
    scores = np.array([number(run.summary.get("metrics"), quality.score) for run in runs], dtype=np.float64)
    x = Axis(-0.5, len(runs) - 0.5, ())
    y = linear([scores], form="share" if quality.form is share else "number")
    known = np.isfinite(scores)
    line = boxes(x.at(places[known]) - 0.4 / len(runs), 0.98 * y.at(scores[known]), 0.8 / len(runs), 0.02)
    panel = Panel(quality.unit, (Mark("run", "learner", line, "", tuple(map(quality.form, scores.tolist()))),), y)
    title = f"{quality.name.capitalize()} of each run"
    return Chart("compared-scores", title, "", (panel,), (), "runs, in order", x.at(places).tolist(), labels)


def flat(config: Any, prefix: str = "") -> dict[str, Any]:
    """Return the leaves of nested mappings by their dotted keys."""
    result: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, dict) and value:
            result |= flat(value, f"{prefix}{key}.")
        else:
            result[f"{prefix}{key}"] = value
    return result


def _options(runs: Sequence[ReportedRun]) -> Differing:
    """Return the keys that differ; the remark counts the others, and options of single learners."""
    leaves = [flat(run.config) for run in runs]
    own = set[str]()
    if len({run.kind for run in runs}) > 1:
        options = [{key for key in config if key.startswith("learner.")} for config in leaves]
        own = {key for config in options for key in config if not all(key in other for other in options)}
    keys = sorted(dict.fromkeys(key for config in leaves for key in config if key not in own), key=_section)
    values = {key: [_word(config.get(key)) for config in leaves] for key in keys}
    rows: list[tuple[str, list[str]]] = [(Name(key), values[key]) for key in keys if len(set(values[key])) > 1]
    same = len(keys) - len(rows)
    remark = f"{counted(same, 'other key')} {'is' if same == 1 else 'are'} the same in all runs."
    remark = f"{message('reports.own_keys', keys=counted(len(own), 'option'))}. {remark}" if own else remark
    return Differing("Differences between the configs", rows, remark if rows else "The runs have the same config.")


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
    if not groups:
        return ""
    if len(groups) == 1 and not unknown:
        ended = "Both runs" if len(runs) == 2 else f"All {len(runs)} runs"
        return f"{message('reports.same_models', runs=ended, same=same)}."
    equal = [names(group, CURVES) for group in groups.values() if len(group) > 1]
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


def _charts(runs: Sequence[ReportedRun], labels: Sequence[str], best: Sequence[int]) -> list[Chart]:
    drawn = {k: labels[k] for k in best if has_curve(runs[k].metrics, "seq")}
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
        have_it = [k for k in best if shown not in own or shown in runs[k].description.curves]
        here = [k for k in have_it if k in drawn and has_curve(runs[k].metrics, shown.column or "seconds")]
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
    if len({str(run.section("stream")) for run in runs}) > 1 and all("inserts" in run.metrics for run in runs):
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
