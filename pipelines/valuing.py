"""Value of the rows of a saved state, or of groups of them, for the score of the model on validation rows.

Invariant: the state is only read. The table has a line for each row or group, and is there completely or not at all.
An interrupted command that is given again goes on where it stopped, and ends with the same bytes. Models without a row
share nothing, so that tasks on Ray take some rows each, without a message, and the bytes are those of one process.
"""

from __future__ import annotations

import hashlib
import sys
import time
from collections.abc import Generator
from contextlib import closing, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import raydt
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
from raydt.arrays.elementary import AnyArray, Floats
from raydt.attribution.cross_validation import Folds, LabelQuality, held_out, quality_of
from raydt.attribution.leave_one_out import (
    ExampleGroups,
    LeaveOneOut,
    ModelPredictions,
    groups_of,
    of_groups,
    training_rows,
)
from raydt.attribution.scores import ValidationScore
from raydt.encoding.columns import number_of
from raydt.errors import InputError, ProcessLostError
from raydt.estimators import estimator_of
from raydt.examples.store import objects
from raydt.examples.updates import dtype_of, no_targets
from raydt.folders.arrays import MANIFEST
from raydt.folders.folder import Folder
from raydt.learners import traits_of
from raydt.messages import message
from raydt.presentation.blocks import Article, Block, Row, Section, Table, Text
from raydt.presentation.charts import count, counted, figure
from raydt.sessions.saved_model import SavedModel, require_one

#: Rows of each table of the page.
_SHOWN = 25

#: Seconds of work that an interrupt may cost; on Ray that of pieces, of which each CPU gets so many.
_INTERVAL, _PIECES = 10.0, 4


@in_threads_of_its_run
@quoting_as_its_run
def value_rows(
    state: str | Path,
    validation: str | Path,
    out: str | Path,
    *,
    by: str = "row",
    scoring: str | None = None,
    label: str | None = None,
    kind: str | None = None,
    overwrite: bool = False,
    address: str | None = None,
) -> dict[str, Any]:
    """Write how much each row, or group of rows, of a state adds to the score on the labelled rows of a file.

    ``by`` is ``row``, ``subject``, or a feature of the model: the rows with one value of the feature are a group then.
    ``out`` is a Parquet file with ``id``, ``subject`` or ``group``, ``value`` and, of rows, ``label``, ``predicted``,
    ``quality`` and ``suspect`` (:func:`raydt.attribution.label_quality`); a page with the ends of the list, and the
    suspect labels, is beside it. Returns ``rows``, ``score``, ``standard``, ``harmful`` (how many have a value below
    0), ``suspect`` (of rows, how many labels), ``out``, ``page`` and ``resumed``: how many values an interrupted
    command with the same state, file and options had found. Such a command leaves them in ``.NAME.unfinished`` beside
    ``out``, and other commands begin anew. With the ``address`` of a Ray cluster its tasks divide the rows.

    InputError for a missing column, a value that cannot be used, or an output that cannot be written; ConfigError for
    a scorer that is none, an output over an input, or one that another process writes. There is no table then.
    """
    place = find_state(state).folder
    members = open_members(place)
    require_one(members.meta, members.place)
    saved = members.saved(None)
    target = new_file(out, "Parquet", [".parquet", ".pq"], overwrite=overwrite)
    page = target.with_name(f"{target.name}.html")
    require_apart("--out", out, [Input("STATE", str(state)), Input("VALIDATION", str(validation))])
    names = StateNames.of(saved, label)
    files, read_as = find_rows(
        saved,
        str(validation),
        kind,
        wanted={names.label: "--label or the state"},
        columns={"label": names.label},
        as_text=tuple(name for name in names.text if name == names.label),
    )
    require_apart("--out", out, [Input("a file of VALIDATION", file.name) for file in files])
    source = open_rows(saved, files, read_as, labels=names.labels)
    chunks = list(sound_rows(source))
    X = np.concatenate([np.empty((0, len(saved.features.names))), *(chunk.X for chunk in chunks)])
    if not len(X):
        raise InputError(message("attribution.no_rows"), file=str(validation))
    y = np.concatenate([no_targets(0, dtype_of(_regression(saved))), *(chunk.y for chunk in chunks)])
    sparse = [chunk.sparse for chunk in chunks if chunk.sparse is not None]
    classes = [] if _regression(saved) else source.classes or saved.classes
    rows = {"sparse": concatenated(sparse)} if sparse else {}
    asked = (saved, by, X, rows, y, classes, scoring)
    valuation = _Valuation(*asked)
    model, groups, width = valuation.model, valuation.groups, valuation.width
    arrays = [X, y, *(part for one in rows.values() for part in (one.indptr, one.indices))]
    options = repr((raydt.__version__, by, scoring, classes, X.shape, width)).encode()
    unfinished = _UnfinishedValues(target, place.read(MANIFEST), options, *(part.tobytes() for part in arrays))
    new = [target] if len(unfinished.read()) else [target, page]  # one interrupted at its end has written the page
    with writing_alone(target, "the values", new=[] if overwrite else new):
        done = unfinished.read().reshape(-1, width)
        resumed = len(done)
        pieces = _here(valuation, resumed)
        if address is not None:
            pieces = _on_ray(address, (unfinished.key, asked), resumed, len(groups.ids))
        with closing(pieces):
            for piece in pieces:
                done = np.concatenate([done, piece])
                unfinished.write(done)
        found, held = valuation.result(done[:, 0].copy()), done[:, 1:]
        table, labels, quality = _table(found, by), [], None
        if by == "row":
            labels = _labels(model, found)
            quality = quality_of(model, groups.slots, held[:, 0].astype(model._store().y.dtype), held[:, 1:])
            columns = {"label": labels, "predicted": quality.predicted.tolist()}
            for name, column in (columns | {"quality": quality.quality, "suspect": quality.suspect}).items():
                table = table.append_column(name, pa.array(column))
        shown = found.ids.tolist() if may_quote(state) else None
        text = _page(found, shown, labels, quality, by, str(state), str(validation), scoring)
        with written(target, "the values"):
            Folder(target.parent).publish(page.name, text.encode())
            Folder(target.parent).publish(target.name, _parquet(table))
            unfinished.delete()
    return {
        "rows": len(found.ids),
        "score": found.score,
        "standard": str(found.standard),
        "harmful": int((found.values < 0).sum()),
        **({} if quality is None else {"suspect": int(quality.suspect.sum())}),
        "out": str(target),
        "page": str(page),
        "resumed": resumed,
    }


def _regression(saved: SavedModel) -> bool:
    return bool(traits_of(saved.options).reading.regression)


def _word(by: str) -> str:
    return by if by in ("row", "subject") else "group"


def _groups(model: Any, saved: SavedModel, by: str) -> ExampleGroups:
    """Return the rows, subjects, or groups of rows by a feature, in the order of its codes or numbers."""
    if _word(by) == by:
        return groups_of(model, None, "all" if by == "subject" else None)
    names = saved.features.names
    if by not in names:
        raise InputError(message("attribution.by", by=by, columns=", ".join(names)))
    slots = model._store().in_order_of_birth()
    codes, group, sizes = np.unique(
        training_rows(model, slots)[0][:, names.index(by)], return_inverse=True, return_counts=True
    )
    known: dict[float, Any] = {code: code for code in codes[~np.isnan(codes)].tolist()}
    if by in saved.categories:
        by_value = traits_of(saved.options).reading.by_value
        known = {number_of(one) if by_value else code: str(one) for code, one in enumerate(saved.categories[by])}
    ids = objects([known.get(code) for code in codes.tolist()])
    return ExampleGroups(ids, np.concatenate([[0], np.cumsum(sizes)]), slots[np.argsort(group, kind="stable")])


class _UnfinishedValues:
    """What is known of the first groups of a command that has not ended, in a file beside its output.

    Its first bytes are a hash of what the values are of and of the values: those of another command, or damaged ones,
    are none.
    """

    def __init__(self, target: Path, *of: bytes) -> None:
        self._target, self._folder, self._name = target, Folder(target.parent), f".{target.name}.unfinished"
        #: Hashes of what the values are of.
        self.key = b"".join(hashlib.sha256(part).digest() for part in of)

    def read(self) -> Floats:
        """Return the values that are there, shape (n,); none if there are none of these."""
        with written(self._target, "the values"):
            data = self._folder.read(self._name) if self._folder.has(self._name) else b""
        values = data[32:]
        return np.frombuffer(values if data == self._hash(values) + values else b"", dtype=np.float64)

    def write(self, values: Floats) -> None:
        with written(self._target, "the values"):
            self._folder.publish(self._name, self._hash(values.tobytes()) + values.tobytes())

    def delete(self) -> None:
        self._folder.delete(self._name)

    def _hash(self, values: bytes) -> bytes:
        return hashlib.sha256(self.key + values).digest()


class _Valuation:
    """The model of a state, groups of its rows, and their values for the score on validation rows."""

    def __init__(
        self,
        saved: SavedModel,
        by: str,
        X: Any,
        sparse: dict[str, Any],
        y: AnyArray,
        classes: list[Any],
        scoring: str | None,
    ) -> None:
        self.model: Any = estimator_of(saved.options).from_saved(saved)
        self.groups = _groups(self.model, saved, by)
        #: Numbers of each group: its value and, of rows, what is predicted without the row, and its shares.
        self.width = 2 + len(self.model._classes) if by == "row" else 1
        self._known = ModelPredictions(self.model, X, sparse)
        truth, given = y, y
        if classes:  # those of the model, and labels that none of its rows has
            truth, given = np.where(y < len(self.model.classes_), y, -1), np.array(classes)[y]
        known = self._known.predicted, self._known.shares
        self._score = ValidationScore(self.model, scoring, X, given, truth, *known)

    def values(self, begin: int, end: int) -> Floats:
        """Return the numbers of the groups from ``begin`` to before ``end``, shape (groups, width)."""
        some = self.groups.part(begin, end)
        held = held_out(self.model, Folds(some, some)) if self.width > 1 else ()
        return np.column_stack([of_groups(self._known, some, self._score).values, *held])

    def result(self, values: Floats) -> LeaveOneOut:
        """Return the values of all groups with what they are of."""
        return LeaveOneOut(self.groups.ids, values, self._score.value, self._known.standard)


def _here(valuation: _Valuation, begin: int) -> Generator[Floats, None, None]:
    """Yield the numbers of the groups from ``begin`` on, in pieces of some seconds."""
    size = 1
    while begin < len(valuation.groups.ids):
        started = time.monotonic()
        yield valuation.values(begin, begin + size)
        begin += size
        size = size * 2 if time.monotonic() - started < _INTERVAL / 2 else max(1, size // 2)


def _on_ray(
    address: str, asked: tuple[bytes, tuple[Any, ...]], begin: int, groups: int
) -> Generator[Floats, None, None]:
    """Yield the same from tasks on Ray, each of which takes a piece and makes the model of the state."""
    from actors.cluster import connect, cpus

    with redirect_stdout(sys.stderr):  # Ray prints warnings of its raylet to stdout, which belongs to results
        cluster = connect(address, [{"CPU": 1.0}])
        try:
            from actors.keyed_session import run_tasks

            size = max(1, -(-(groups - begin) // (_PIECES * max(1, cpus()))))
            parts = [(at, at + size) for at in range(begin, groups, size)]
            found: dict[int, Floats] = {}
            turn = 0
            for place, answer in run_tasks(cluster, values_of, [(asked, parts)]):
                if isinstance(answer, ProcessLostError):
                    raise answer
                found[place] = answer
                while turn in found:
                    yield found.pop(turn)
                    turn += 1
        finally:
            cluster.close()


#: What the last task of this process was asked of, by what tells commands apart.
_OPEN: dict[bytes, _Valuation] = {}


def values_of(shared: tuple[bytes, tuple[Any, ...]], part: tuple[int, int]) -> Floats:
    """Return the numbers of some groups, in a task; the model is made for the first task of a command in a process."""
    key, asked = shared
    if key not in _OPEN:
        _OPEN.clear()
        _OPEN[key] = _Valuation(*asked)
    return _OPEN[key].values(*part)


def _table(found: LeaveOneOut, by: str) -> pa.Table:
    ids = pa.array(found.ids.tolist())
    return pa.table({"id" if by == "row" else _word(by): ids, "value": pa.array(found.values)})


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
    found: LeaveOneOut,
    ids: list[Any] | None,
    labels: list[Any],
    quality: LabelQuality | None,
    by: str,
    state: str,
    data: str,
    scoring: str | None,
) -> str:
    """Return the page: the most harmful and useful rows, suspect labels, and sums by label; without ids, only these."""
    from pipelines.report.page import document  # drawing is imported where something is drawn

    harmful, useful = (found.values < 0).sum(), (found.values > 0).sum()
    named = counted(len(found.ids), _word(by))
    said = message(
        "attribution.page", named=named, harmful=count(harmful), useful=count(useful), score=figure(found.score)
    )
    head: list[Block] = [
        Text(f"{said}."),
        Text(f"{message('attribution.standard', standard=found.standard)}.", "quiet"),
    ]
    order = np.argsort(found.values, kind="stable")
    beside: dict[str, Any] = {"Label": labels} if labels else {}

    def ends(places: Any, title: str, key: str, words: dict[str, Any] = beside, **numbers: Floats) -> Section:
        """Return a table of some rows: columns of ``words``, and of ``numbers``."""
        if ids is None:
            return Section(title, [Text(f"{message('attribution.withheld')}.", "none")], key)
        rows = [
            Row((
                str(ids[place]),
                *(str(one[place]) for one in words.values()),
                *(figure(float(one[place])) for one in numbers.values()),
            ))
            for place in places.tolist()
        ]  # fmt: skip
        empty: Block = Text(f"{message('attribution.none_such')}.", "none")
        heading = (_word(by).capitalize(), *words, *numbers)
        return Section(
            title, [Table(rows, columns=heading, words=tuple(range(1, len(words) + 2))) if rows else empty], key
        )

    low, high = order[found.values[order] < 0][:_SHOWN], order[::-1][found.values[order[::-1]] > 0][:_SHOWN]
    sections = [
        ends(low, "Without these the score is better", "harmful", Value=found.values),
        ends(high, "Without these the score is worse", "useful", Value=found.values),
    ]
    if quality is not None:
        places = np.flatnonzero(quality.suspect)
        places = places[np.argsort(quality.quality[places], kind="stable")][:_SHOWN]
        both = {**beside, "Predicted": quality.predicted}
        sections.insert(0, ends(places, "Mislabelled candidates", "suspect", both, Quality=quality.quality))
        said = message("attribution.suspects", suspect=counted(quality.suspect.sum(), "label"))
        head.append(Text(f"{said}."))
    if labels and ids is not None and len(set(labels)) <= _SHOWN:
        rows = []
        for label in dict.fromkeys(labels):
            of_label = found.values[[one == label for one in labels]]
            cells = (str(label), count(len(of_label)), count((of_label < 0).sum()), figure(float(of_label.sum())))
            rows.append(Row(cells))
        columns = ("Label", "Rows", "Value below 0", "Sum of values")
        sections.append(Section("By label", [Table(rows, columns=columns, words=(1,))], "labels"))
    title = f"Value of the {by}s of {state}" if by == _word(by) else f"Value of groups by {by} of {state}"
    what = message("attribution.measured", data=data, scoring=scoring or "the default score")
    return document(title, "value", [Article(title, what, head, sections)])
