"""The difference of two runs in the predictions that both made of the same examples.

Needs the tables of predictions (``output.predictions``). What cannot be compared is said in a sentence.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from pipelines.report.folder import ReportedRun
from pipelines.report.quality import ACCURACY, Quality
from raydt.evaluation.significance import interval, mcnemar
from raydt.messages import message
from raydt.presentation.blocks import Row, Table
from raydt.presentation.words import count, figure, share

_HEAD = ("seq", "id", "prediction", "truth")


def differences(runs: Sequence[ReportedRun], labels: Sequence[str], quality: Quality) -> Table:
    """Return a row for each run after the first: how it differs from the first; the remark says why there is none."""
    if any(run.section("stream").get("delayed_labels") for run in runs):
        return Table([], f"{message('reports.delayed')}.")
    tables = [_predictions(run) for run in runs]
    missing = [label for label, table in zip(labels, tables, strict=True) if table is None]
    if missing:
        return Table([], f"{message('reports.no_predictions', runs=', '.join(missing))}.")
    rows, remarks, paired = [], [], quality is ACCURACY
    for label, table in zip(labels[1:], tables[1:], strict=True):
        found = _difference(tables[0], table)
        if isinstance(found, str):
            remarks.append(message(found, run=label))
        else:
            rows.append(Row((label, *found)))
    if rows:
        method = [message("reports.interval"), *([message("reports.mcnemar")] if paired else [])]
        remarks = [*method, *remarks]
    columns = ["Run", "predictions", f"{quality.name} minus that of {labels[0]}", "95% interval"]
    columns += [f"only {labels[0]} right", "only this run right", "McNemar's p"] if paired else []
    return Table(rows, " ".join(f"{remark}." for remark in remarks), "Differences on the same predictions", columns)


def _predictions(run: ReportedRun) -> Any:
    """Return the scored predictions by update; None if there is no table that can be read."""
    folder = run.path / "predictions"
    if not any(folder.glob("part-*.parquet")):
        return None
    table = ds.dataset(folder, format="parquet", exclude_invalid_files=True).to_table(columns=[*_HEAD])
    return table.filter(pc.is_valid(table["truth"])).sort_by("seq")


def _difference(first: Any, second: Any) -> tuple[str, ...] | str:
    """Return the cells of a row, or the id of the message why there are none."""
    if first.schema != second.schema:
        return "reports.other_kind"
    here, there = _paired(first["id"], second["id"])
    n = len(here)
    if not n:
        return "reports.no_pair"
    truth, other = first["truth"].take(here), second["truth"].take(there)
    if not pc.all(pc.equal(truth, other)).as_py():
        return "reports.other_labels"
    if first.schema.field("truth").type == "double":
        target = truth.to_numpy()
        errors = [(t["prediction"].take(at).to_numpy() - target) ** 2 for t, at in ((first, here), (second, there))]
        changed = errors[1] - errors[0]
        low, high = interval(changed)
        return count(n), figure(float(changed.mean())), f"{figure(low)} to {figure(high)}"
    right = [
        pc.fill_null(pc.equal(t["prediction"].take(at), truth), False).to_numpy(zero_copy_only=False)
        for t, at in ((first, here), (second, there))
    ]
    changed = right[1].astype(np.float64) - right[0]
    low, high = interval(changed)
    first_only, second_only = int((changed < 0).sum()), int((changed > 0).sum())
    p = mcnemar(first_only, second_only)
    written = "below 0.0001" if p < 0.0001 else f"{p:.4f}"
    interval_ = f"{_signed(low)} to {_signed(high)}"
    return count(n), _signed(float(changed.mean())), interval_, count(first_only), count(second_only), written


def _paired(first: Any, second: Any) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the places of the examples that both columns of ids name, in the order of the first.

    The k-th prediction of an id belongs to the k-th of the same id. O(n log n).
    """
    ids = pa.chunked_array([*first.chunks, *second.chunks], first.type).dictionary_encode().unify_dictionaries()
    codes = np.concatenate([chunk.indices.to_numpy() for chunk in ids.chunks]) if len(ids) else np.empty(0, np.int64)
    ours, theirs = (_numbered(part.astype(np.int64)) for part in (codes[: len(first)], codes[len(first) :]))
    _, here, there = np.intersect1d(ours, theirs, assume_unique=True, return_indices=True)
    order = np.argsort(here)
    return here[order], there[order]


def _numbered(codes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return each code with the number of the same before it, as one integer."""
    order = np.argsort(codes, kind="stable")
    ordered = codes[order]
    begins = np.flatnonzero(np.diff(ordered, prepend=-1))
    before = np.arange(len(codes)) - np.repeat(begins, np.diff(np.append(begins, len(codes))))
    keys = np.empty(len(codes), dtype=np.int64)
    keys[order] = (before << 32) | ordered
    return keys


def _signed(value: float) -> str:
    """Return a difference of shares with its sign."""
    return ("+" if value > 0 else "") + share(value, 2)
