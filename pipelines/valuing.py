"""Value of the rows of a saved state, or of its subjects, for the score of the model on validation rows.

Invariant: the state is only read. The table has a line for each row or subject, and is there completely or not at all.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.operation import in_threads_of_its_run
from pipelines.receipts import may_quote, quoting_as_its_run
from pipelines.saved_runs import (
    Input,
    find_state,
    new_file,
    open_members,
    require_apart,
    writing_alone,
    written,
)
from pipelines.updating.changes import StateNames, find_rows, open_rows, sound_rows
from raydt.arrays.blocks import concatenated
from raydt.arrays.elementary import AnyArray
from raydt.attribution.leave_one_out import LeaveOneOut, ModelPredictions, groups_of, of_groups
from raydt.attribution.scores import ValidationScore
from raydt.errors import InputError
from raydt.estimators import estimator_of
from raydt.examples.updates import dtype_of, no_targets
from raydt.folders.folder import Folder
from raydt.learners import traits_of
from raydt.messages import message
from raydt.presentation.blocks import Article, Block, Row, Section, Table, Text
from raydt.presentation.charts import count, counted, figure
from raydt.sessions.saved_model import SavedModel, require_one

#: Rows of each table of the page.
_SHOWN = 25


@in_threads_of_its_run
@quoting_as_its_run
def value_rows(
    state: str | Path,
    validation: str | Path,
    out: str | Path,
    *,
    by: Literal["row", "subject"] = "row",
    scoring: str | None = None,
    label: str | None = None,
    kind: str | None = None,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Write how much each row, or subject, of a state adds to the score on the labelled rows of a file.

    ``out`` is a Parquet file with ``id`` or ``subject``, ``value`` and, of rows, ``label``; a page with the ends of the
    list is beside it. Returns ``rows``, ``score``, ``standard``, ``harmful`` (how many have a value below 0), ``out``
    and ``page``.

    InputError for a missing column, a value that cannot be used, or an output that cannot be written; ConfigError for
    a scorer that is none, or an output over an input. Nothing has been written then.
    """
    place = find_state(state).folder
    members = open_members(place)
    require_one(members.meta, members.place)
    saved = members.saved(None)
    target = new_file(out, "Parquet", [".parquet", ".pq"], overwrite=overwrite, beside=[".html"])
    page = target.with_name(f"{target.name}.html")
    require_apart("--out", out, [Input("STATE", str(state)), Input("VALIDATION", str(validation))])
    names = StateNames.of(saved, label)
    files, options = find_rows(
        saved,
        str(validation),
        kind,
        wanted={names.label: "--label or the state"},
        columns={"label": names.label},
        as_text=tuple(name for name in names.text if name == names.label),
    )
    require_apart("--out", out, [Input("a file of VALIDATION", file.name) for file in files])
    source = open_rows(saved, files, options, labels=names.labels)
    chunks = list(sound_rows(source))
    X = np.concatenate([np.empty((0, len(saved.features.names))), *(chunk.X for chunk in chunks)])
    if not len(X):
        raise InputError(message("attribution.no_rows"), file=str(validation))
    y = np.concatenate([no_targets(0, dtype_of(_regression(saved))), *(chunk.y for chunk in chunks)])
    sparse = [chunk.sparse for chunk in chunks if chunk.sparse is not None]
    model = estimator_of(saved.options).from_saved(saved)
    classes = [] if _regression(saved) else source.classes or saved.classes
    found = _values(model, X, {"sparse": concatenated(sparse)} if sparse else {}, y, classes, by, scoring)
    table, labels = _table(found, by), []
    if by == "row":
        labels = _labels(model, found)
        table = table.append_column("label", pa.array(labels))
    shown = found.ids.tolist() if may_quote(state) else None
    text = _page(found, shown, labels, by, str(state), str(validation), scoring)
    with writing_alone(target, "the values", new=[] if overwrite else [target]), written(target, "the values"):
        Folder(target.parent).publish(target.name, _parquet(table))
        Folder(target.parent).publish(page.name, text.encode())
    return {
        "rows": len(found.ids),
        "score": found.score,
        "standard": str(found.standard),
        "harmful": int((found.values < 0).sum()),
        "out": str(target),
        "page": str(page),
    }


def _regression(saved: SavedModel) -> bool:
    return bool(traits_of(saved.options).reading.regression)


def _values(
    model: Any, X: Any, sparse: dict[str, Any], y: AnyArray, classes: list[Any], by: str, scoring: str | None
) -> LeaveOneOut:
    groups = groups_of(model, None, "all" if by == "subject" else None)
    known = ModelPredictions(model, X, sparse)
    truth, given = y, y
    if classes:  # those of the model, and labels that none of its rows has
        truth, given = np.where(y < len(model.classes_), y, -1), np.array(classes)[y]
    return of_groups(known, groups, ValidationScore(model, scoring, X, given, truth, known.predicted, known.shares))


def _table(found: LeaveOneOut, by: str) -> pa.Table:
    ids = pa.array(found.ids.tolist())
    return pa.table({"subject" if by == "subject" else "id": ids, "value": pa.array(found.values)})


def _labels(model: Any, found: LeaveOneOut) -> list[Any]:
    """Return the label that each row has in the model."""
    y = model._store().y[model._asked(found.ids.tolist(), None, "error").slots]
    labels: list[Any] = (y if not hasattr(model, "classes_") else model.classes_[y]).tolist()
    return labels


def _parquet(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    written_bytes: bytes = sink.getvalue().to_pybytes()
    return written_bytes


def _page(
    found: LeaveOneOut, ids: list[Any] | None, labels: list[Any], by: str, state: str, data: str, scoring: str | None
) -> str:
    """Return the page: the most harmful and the most useful rows, and sums by label; without ids, only the sums."""
    from pipelines.report.page import document  # drawing is imported where something is drawn

    harmful, useful = (found.values < 0).sum(), (found.values > 0).sum()
    named = counted(len(found.ids), by)
    said = message(
        "attribution.page", named=named, harmful=count(harmful), useful=count(useful), score=figure(found.score)
    )
    head: list[Block] = [
        Text(f"{said}."),
        Text(f"{message('attribution.standard', standard=found.standard)}.", "quiet"),
    ]
    order = np.argsort(found.values, kind="stable")
    heading = (by.capitalize(), *(("Label",) if labels else ()), "Value")
    words = (1, 2) if labels else (1,)

    def ends(places: Any, title: str, key: str) -> Section:
        if ids is None:
            return Section(title, [Text(f"{message('attribution.withheld')}.", "none")], key)
        rows = [
            Row((str(ids[place]), *((str(labels[place]),) if labels else ()), figure(float(found.values[place]))))
            for place in places.tolist()
        ]
        empty: Block = Text(f"{message('attribution.none_such')}.", "none")
        return Section(title, [Table(rows, columns=heading, words=words) if rows else empty], key)

    low, high = order[found.values[order] < 0][:_SHOWN], order[::-1][found.values[order[::-1]] > 0][:_SHOWN]
    sections = [
        ends(low, "Without these the score is better", "harmful"),
        ends(high, "Without these the score is worse", "useful"),
    ]
    if labels and ids is not None and len(set(labels)) <= _SHOWN:
        rows = []
        for label in dict.fromkeys(labels):
            of_label = found.values[[one == label for one in labels]]
            cells = (str(label), count(len(of_label)), count((of_label < 0).sum()), figure(float(of_label.sum())))
            rows.append(Row(cells))
        columns = ("Label", "Rows", "Value below 0", "Sum of values")
        sections.append(Section("By label", [Table(rows, columns=columns, words=(1,))], "labels"))
    title = f"Value of the {by}s of {state}"
    what = message("attribution.measured", data=data, scoring=scoring or "the default score")
    return document(title, "value", [Article(title, what, head, sections)])
