"""Which of several runs wins, by how much, and whether that may be chance.

Two runs are compared in pairs: by the predictions that both made of the same examples, if both wrote them
(``output.predictions``), else window by window of their metrics, if these are of the same stream. What cannot be
compared is said in a sentence.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from pipelines.report.folder import ReportedRun
from pipelines.report.quality import Quality
from raydt.arrays.types import Ints
from raydt.evaluation.significance import interval, interval_of_blocks, mcnemar
from raydt.messages import message
from raydt.presentation.blocks import Row, Table, Text
from raydt.presentation.series import increments
from raydt.presentation.words import count, figure, number, share

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
    for k in [*others, *(k for k in range(len(runs)) if k not in known)]:
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
    remarks += [message(found, run=labels[k]) for k, found in comparison.others if isinstance(found, str)]
    columns = ["Compared with", "predictions", f"{quality.name}, difference", "95% interval"]
    columns += ["only the best right", "only this right", "McNemar's p"] if paired else []
    remark = " ".join(f"{remark}." for remark in dict.fromkeys(remarks))
    return Table(rows, remark, f"{best}, the best, minus each other run, on the same predictions", columns)


def _predictions(run: ReportedRun) -> Any:
    """Return the scored predictions by update; None if there is no table that can be read."""
    parts = [str(part) for folder in run.folders for part in sorted((folder / "predictions").glob("part-*.parquet"))]
    if not parts:
        return None
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
