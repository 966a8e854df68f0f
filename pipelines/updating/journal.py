"""``update``: insertions and deletions applied to a saved state, with a receipt, and without replaying its life.

A state is a mapping from keys to members; one without keys has one, to which all belongs. What changes it is one source
of changes, lists (:mod:`pipelines.updating.lists`) or change logs (:mod:`pipelines.updating.logs`), told apart by
member.

Invariant: the input is only read. What a member holds afterwards is what the same changes make of a run over the rows
of its key alone. All members are checked and applied in memory before anything is written; groups of keys without a
change are copied. A file of changes whose contents a state has in it is passed over, so that a command that is given
once more, or was killed anywhere, applies each file once.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from pipelines.operation import in_threads_of_its_run
from pipelines.receipts import (
    QUOTE_VALUES,
    ReceiptFile,
    may_quote,
    now,
    opened_receipts,
    origin_of,
    quoting_as_its_run,
    require_about,
)
from pipelines.run_folder import RunFolder
from pipelines.saved_runs import Input, find_state, open_members, require_apart, require_erasable, states_of
from pipelines.updating.changes import (
    RULES,
    StateNames,
    absolute,
    deletions_given,
    rows_given,
    rules_of,
    without_a_config,
)
from pipelines.updating.changes import Input as Given
from pipelines.updating.lists import ListChanges, Lists, Missing, examples_of, open_deletions, open_insertions
from pipelines.updating.logs import (
    COUNTED,
    KEPT,
    ChangeFile,
    LogChanges,
    Logs,
    OnError,
    applied_files,
    find_changes,
    read_before,
    spelling_of,
)
from pipelines.updating.states import Series, copies_of, require_free, save_state, sole_writer
from raydt.arrays.elementary import AnyArray
from raydt.errors import ConfigError
from raydt.folders.arrays import MANIFEST
from raydt.keyed.members import narrow, pooled
from raydt.keyed.packing import Figures, Member
from raydt.learners import traits_of
from raydt.learners.base import WeightSum, too_little_of_keys
from raydt.messages import message
from raydt.sessions.receipt import Method, Receipt, checked_note, receipt_of_keys
from raydt.sessions.receipt_chain import Origin
from raydt.sessions.saved_model import BY_KEY, SavedModel, model_meta, state_components
from raydt.sessions.session import InProcessSession
from raydt.sources.files.jsonl import DIALECT
from raydt.streams.base import known

log = logging.getLogger(__name__)


class Update:
    """An update of the members of a state, in memory until it is saved.

    ``as_series``: ``out`` is a folder of successive states. Once the update is applied: ``updates``, ``counts`` as in a
    summary, and ``scores``, columns of a row of the metrics table.
    """

    def __init__(
        self,
        state: str | Path,
        out: str | Path | None,
        receipts: ReceiptFile | None,
        note: str,
        keep: int | None,
        *,
        dry_run: bool,
        as_series: bool,
    ) -> None:
        self._note, self._receipts, self._keep, self._dry_run = checked_note(note), receipts, keep, dry_run
        self.place = place = find_state(state)
        if out is not None and as_series:
            self._series: Series | None = Series(RunFolder(out))
        else:
            self._series = Series.of_state(state) if out is None else None
        if out is None and self._series is None and not dry_run:
            raise ConfigError(message("updates.no_target"))
        Series.require_keep(keep, self._series)
        self._taken = (
            [] if place.run is None or place.config is None else [place.run, states_of(place.config, place.run)]
        )
        self._target = None if self._series is not None or out is None else _target(out, [place.folder, *self._taken])
        self.members = require_erasable(open_members(place.folder))
        self.common = self.members.outline()
        self.column: str | None = self.members.meta.get(BY_KEY)
        self._changed: dict[Member, dict[str, Any]] = {}  # what a member holds afterwards
        self.updates, self.counts = 0, Counter(dict.fromkeys(COUNTED, 0))
        self.scores: Mapping[str, Any] = {}

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Be the only process that writes the new state, and its receipt; of successive states name the newest."""
        series, dry_run = self._series, self._dry_run
        writer: AbstractContextManager[None] = nullcontext()
        if series is not None and not dry_run:
            writer = series.open(self.place.folder, self._taken)
        elif self._target is not None and not dry_run:
            writer = sole_writer(self._target)
        with opened_receipts(self._receipts, dry_run=dry_run) as self._chain, writer:
            require_about(self._chain, self._receipts, self.origin)
            yield
            if series is not None and not dry_run:
                series.point_to_newest(self._keep)

    def origin(self) -> Origin:
        """Return what a chain has to name of the models."""
        members = self.members
        return origin_of(self.place.folder.location, self.common, lambda: members.total().digest, members.former)

    def apply(self, entry: Lists | Logs, copies: tuple[str, ...]) -> Receipt:
        """Apply a source of changes to each member that it names, and return the receipt of all.

        Errors as of :func:`update` and :func:`apply_changes`. A warning says whose weights are too small to split.
        """
        members, names, self._entry = self.members, entry.names, entry
        receipts, weights, sums = dict[Member, Receipt](), dict[Member, WeightSum](), list[AnyArray]()
        for key in entry.keys:
            begins = key not in members
            saved = members.beginning() if begins else members.saved(key)
            own, session = names if key is None else StateNames.of(saved, names.label, names.id), saved.session()
            changes: ListChanges | LogChanges = entry.of(key, saved, own)
            receipt = changes.apply(session, copies, members.warmup if begins else None)
            updates = changes.seq - int(saved.meta["offset"])
            self.updates += updates
            self.counts.update(changes.counts)
            self.scores = changes.figures
            sums.append(changes.sums)
            if updates or key is None:
                receipts[key], self._changed[key] = receipt, _held(saved, own, changes, session, keyed=key is not None)
                weights[key] = WeightSum.of_live(session.coordinator.store)
        self.counts["skipped"] += entry.skipped
        traits = traits_of(self.common.options)
        if self.column is None:
            little, (whole,) = weights[None].too_little(traits), receipts.values()
        else:
            little, whole = too_little_of_keys(weights.items(), traits), self._together(receipts, copies)
            self._pool(sums)
        if little is not None:
            log.warning(little, extra={"event": "little_weight"})
        return replace(whole, missing=whole.missing or tuple(entry.missing), note=self._note)

    def _together(self, receipts: Mapping[Any, Receipt], copies: tuple[str, ...]) -> Receipt:
        """Return the receipt over all keys; groups and their figures afterwards are known then."""
        members, before = self.members, self.members.figures
        self._groups = members.groups_with(self._changed)
        self._figures = after = Figures(*(column.copy() for column in before))
        for group, held in self._groups.items():
            members.count(after, group, held)
        method = Method.of(self.common.options)
        active, digests = (int(before.active.sum()), int(after.active.sum())), (before.digest, after.digest)
        receipt = receipt_of_keys(method, receipts, active=active, digests=digests, copies=copies)
        return replace(receipt, subjects=tuple(dict.fromkeys(who for one in receipts.values() for who in one.subjects)))

    def _pool(self, sums: Sequence[AnyArray]) -> None:
        """Note the scores over all keys: of these updates, and of all there have been."""
        self._scores: Mapping[str, Any] = self.members.components.get("scores", {})
        here = np.sum(sums, axis=0) if sums else np.zeros(0)
        if not len(here):  # lists are not scored
            return
        numbers = bool(traits_of(self.common.options).reading.regression)
        before = self._scores.get("sums", np.zeros(0))
        every = np.asarray(here + before if len(before) else here, dtype=np.float64)
        window = {f"window_{name}": score for name, score in pooled(here, numbers=numbers).items()}
        self._scores, self.scores = {"sums": every}, known({**pooled(every, numbers=numbers), **window})

    def save(
        self, receipt: Receipt, paths: Mapping[str, str | None], read_as: Mapping[str, Any] | None = None
    ) -> tuple[RunFolder, bool]:
        """Write the new state and its receipt; return its folder, and whether there is anything new.

        ``paths`` are those of the lists, None in memory; change logs were ``read_as`` it says, in a folder of
        successive states.
        """
        meta, components = self._contents(receipt, paths)
        series, target = self._series, self._target
        if series is not None:
            target, step = series.place(meta["offset"]), meta["lineage"][-1]
            if read_as is not None and target.has(MANIFEST):  # nothing to write, and nothing that a receipt could tell
                return target, False
            step |= {"time": now(), "active": receipt.active}
            if read_as is not None:
                counts = {name: self.counts[name] for name in ("replaced", "queries")}
                step |= {"read_as": read_as, "updates": self.updates, **counts, "scores": dict(self.scores)}
                meta |= {"spelling": read_as["spelling"]} if read_as["spelling"] else {}
        assert target is not None
        save_state(target, meta, components, receipt, self._chain)
        return target, True

    def _contents(self, receipt: Receipt, paths: Mapping[str, str | None]) -> tuple[dict[str, Any], Mapping[str, Any]]:
        """Return ``meta`` and components of the new state, whose lineage ends with this update, by its receipt."""
        common, members, names, entry = self.common, self.members, self._entry.names, self._entry
        step = self._step(receipt, entry.files(paths, receipt.missing))
        offset = int(common.meta["offset"]) + self.updates
        components: Mapping[str, Any]
        if self.column is None:
            components = dict(self._changed[None])
            own = components.pop("meta")
            extra = {"next_id": own["next_id"]}
        else:
            own = {"classes": entry.known.classes, "categories": entry.known.categories}
            # Where the run was in its source and log.
            row, at = members.meta.get("row", members.meta["offset"]), members.components.get("stream", {})
            before: Mapping[str, Any] = at if "row" in at else (members.meta.get("lineage") or [{}])[-1]
            step |= {"keys": len(self._changed), "row": row, "deletions": int(before.get("deletions", 0))}
            extra = {BY_KEY: self.column, "warmup": members.warmup, "row": row, "next_id": 0}
            first: dict[str, dict[str, Any]] = {
                "coordinator": members.written(self._figures),
                "stream": {"source": names.dictionaries(entry.known)},
            }
            first |= {"scores": dict(self._scores)} if self._scores else {}
            components = members.regrouped(first, self._groups)
        meta = model_meta(common.options, common.features, own["classes"], own["categories"])
        meta |= {key: common.meta[key] for key in ("named", "declared", DIALECT) if key in common.meta}
        meta |= read_before(common)
        meta |= {"config_hash": None, "source_fingerprint": None, "offset": offset}
        meta |= {"lineage": [*common.meta.get("lineage", []), step], "columns": names.columns}
        meta |= {"numbered": names.numbered} if names.numbered else {}
        meta |= {} if may_quote(self.place.folder.location) else {QUOTE_VALUES: False}
        return meta | extra, components

    def _step(self, receipt: Receipt, files: dict[str, Any]) -> dict[str, Any]:
        """Return the entry of the update for the lineage: it names no example, but the files, with their hashes."""
        meta, run = self.common.meta, self.common.meta.get("run", {}).get("id")
        return {
            "state": self.place.folder.location,
            **({} if run is None else {"run": run}),
            **{key: meta[key] for key in ("config_hash", "source_fingerprint", "offset")},
            "digest_before": receipt.digest_before,
            "digest_after": receipt.digest_after,
            "deletes": len(receipt.ids),
            "inserts": len(receipt.inserted),
            "files": files,
            RULES: rules_of(self.common),
            **({"note": receipt.note} if receipt.note else {}),
        }


def _held(
    saved: SavedModel, names: StateNames, changes: ListChanges | LogChanges, session: InProcessSession, *, keyed: bool
) -> dict[str, Any]:
    """Return what a member holds after its changes, scores of those of keys in little room."""
    held: dict[str, Any] = state_components(*session.state())
    live, after = (held["coordinator"]["id"], held["coordinator"]["born"]), changes.saved
    held["stream"] = changes.component(live)
    if changes.scores:
        held["scores"] = narrow(changes.scores) if keyed else changes.scores
    own: dict[str, Any] = {"classes": after.classes, "categories": after.categories}
    own["next_id"] = max(names.next_id, int(changes.inserted.max(initial=-1)) + 1)
    before: Mapping[str, int] = saved.components.get("meta", {}).get("counts", {})
    kept = {name: changes.counts[name] for name in KEPT if name in changes.counts}
    counts = {name: before.get(name, 0) + kept.get(name, 0) for name in {**before, **kept}}
    return {**held, "meta": {**own, "offset": changes.seq, "counts": counts}}


@in_threads_of_its_run
@quoting_as_its_run
def update(
    state: str | Path,
    *,
    insert: Given | None = None,
    delete: Given | None = None,
    missing: Missing = "error",
    out: str | Path | None = None,
    dry_run: bool = False,
    label: str | None = None,
    id_column: str | None = None,
    kind: str | None = None,
    receipts: ReceiptFile | None = None,
    note: str = "",
    keep: int | None = None,
) -> Receipt:
    """Delete and insert examples: first all deletions, then all insertions, so that an id can be replaced.

    Parameters
    ----------
    state : path or URI
        A run folder (its last state), one of its ``checkpoints/``, or a folder that ``update`` or
        ``save(..., with_examples=True)`` wrote.
    insert : path, URI, data frame or Arrow table, optional
        Parquet, Arrow IPC or CSV rows with the model's columns; of a frame, a named index is a column.
    delete : path, URI, list of ids, mapping, data frame or Arrow table, optional
        The ids to delete in a column ``id``, or the subjects whose rows are deleted in a column ``subject``; each may
        have the name that the source gives it. A repeated one counts once. Who gives it in memory cannot audit a run
        that continues from the state, since an audit reads the files again.
    missing : {"error", "skip"}
        What is done about ids and subjects that have no live example: refuse them, all in one error, or pass over them
        and list them in the receipt.
    out : path or URI
        New or empty folder for the new state; may be left out of a dry run, and if ``state`` is a folder of successive
        states (:func:`pipelines.apply_changes`), whose next one is then written.
    dry_run : bool
        Find out everything and write nothing.
    label, id_column : str, optional
        Columns of ``insert``: by default those the state was made with; for a state saved by an estimator those that a
        series or a named index said, else ``y``, and running ids.
    kind : {"parquet", "arrow", "csv", "jsonl", "libsvm"}, optional
        Of ``insert``; by default from the end of its name.
    receipts : ReceiptFile, optional
        Where to append the receipt: just before the new state is complete, so that no state is without its receipt.
    note : str
        Who asked, or the number of the case: it stands in the receipt, readable for everybody, and in the lineage.
    keep : int, optional
        Of a folder of successive states: how many of the newest to keep, at least 1. Receipts stay. By default all.

    Returns
    -------
    Receipt

    Raises
    ------
    ConfigError
        Nothing to do, an ``out`` that cannot be used or that another process writes, or a key that cannot be used.
    InputError
        No usable state, or a file that cannot be applied as a whole. Nothing has been written.

    Notes
    -----
    Where the state belongs to a run with ``output.quote_values: false``, errors quote no ids or values.
    Reading and writing take O(live examples x features), and the first digest a pass over the live examples.
    """
    if insert is None and delete is None:
        raise ConfigError(message("updates.nothing"))
    job = Update(state, out, receipts, note, keep, dry_run=dry_run, as_series=False)
    with job.opened():
        names = StateNames.of(job.common, label, id_column)
        ids = None if delete is None else deletions_given(delete, names.keys)
        rows = None if insert is None else rows_given(insert)
        given = {"delete": ids, "insert": rows}
        paths = {name: absolute(one) if isinstance(one, str) else None for name, one in given.items()}
        common, column, members = job.common, job.column, job.members
        lists = Lists(common, names, column, members.kind, partial(examples_of, members), missing)
        if ids is not None:
            lists.delete(open_deletions(ids, names), members)
        if rows is not None:
            lists.insert(open_insertions(rows, kind, common, names, column))
        receipt = job.apply(lists, copies_of(common, job.place, paths["delete"]))
        if not dry_run:
            job.save(receipt, paths)
    return receipt


def _target(out: str | Path, taken: list[RunFolder]) -> RunFolder:
    """The place of the new state: a folder with nothing in it, and not in one that is taken."""
    target = RunFolder(out)
    require_apart("--out", target.location, [Input("what is updated", place.location) for place in taken])
    require_free(target)
    return target


@dataclass(frozen=True, slots=True)
class ChangesResult:
    """Outcome of :func:`apply_changes`."""

    state: str  #: The new state; the newest one there was, if no file was new; empty of a dry run.
    receipt: Receipt | None  #: None if no file was new, or the new ones have no update.
    files: list[str]  #: Files that were applied.
    known: list[str]  #: Files passed over, since the state has their contents.
    updates: int = 0
    counts: dict[str, int] = field(default_factory=dict)  #: As in a summary: ``inserts``, ``replaced``, ``refused``...
    scores: dict[str, Any] = field(default_factory=dict)  #: Columns of a row of the metrics table.

    def as_dict(self) -> dict[str, Any]:
        """Everything as JSON values."""
        told = {"out": self.state or None, "files": self.files, "known": self.known, "updates": self.updates}
        receipt = {} if self.receipt is None else self.receipt.as_dict()
        return {**told, **self.counts, "scores": self.scores, **receipt}


@in_threads_of_its_run
@quoting_as_its_run
def apply_changes(
    state: str | Path,
    changes: str | Path | Sequence[str | Path],
    *,
    out: str | Path | None = None,
    dry_run: bool = False,
    op: str | None = None,
    envelope: Literal["debezium"] | None = None,
    label: str | None = None,
    id_column: str | None = None,
    kind: str | None = None,
    on_error: OnError = "fail",
    receipts: ReceiptFile | None = None,
    note: str = "",
    keep: int | None = None,
) -> ChangesResult:
    """Apply change logs to a saved state, and score each row before the model learns it.

    Parameters
    ----------
    state : path or URI
        As of :func:`pipelines.update`, or a folder of successive states, of which the newest is taken.
    changes : path or URI, or a sequence of these
        Files, folders or patterns: Parquet, Arrow IPC, CSV or JSON Lines, in the order in which they are applied. A
        file whose contents the state has in it is passed over.
    out : path or URI, optional
        Folder of successive states, new, empty or the one that ``state`` is: the new state is its entry named by the
        number of updates, its file ``latest`` names that entry, and ``report.html`` shows them all. By default the
        folder that ``state`` is.
    op, envelope : str, optional
        As in ``source``. By default as the changes before were written, else by the columns of the file.
    kind : {"parquet", "arrow", "csv", "jsonl"}, optional
        By default from the end of each name.
    on_error : {"fail", "skip"}
        At a row that cannot be used, or an update that the model refuses: stop and write nothing, or pass it over.
    dry_run, label, id_column, receipts, note, keep : optional
        As of :func:`pipelines.update`.

    Raises
    ------
    ConfigError
        An ``out`` that cannot be used or that another process writes, or a key that cannot be used.
    InputError, UpdateError
        No usable state, a bad row or a refused update. Nothing has been written.
    """
    paths = [str(one) for one in ([changes] if isinstance(changes, str | Path) else changes)]
    job = Update(state, out, receipts, note, keep, dry_run=dry_run, as_series=True)
    with job.opened():
        names = StateNames.of(job.common, label, id_column)
        new, old = _split(find_changes(paths, kind, job.common, names), applied_files(job.common.meta))
        files, known_files = [one.path for one in new], [one.path for one in old]
        if not new:
            return ChangesResult(job.place.folder.location, None, [], known_files)
        spelling = spelling_of(job.common, op, envelope)
        copies = (
            *copies_of(job.common, job.place, None),
            *(message("updates.copy_changes", path=one) for one in files),
        )
        with without_a_config():
            receipt = job.apply(Logs(new, job.common, names, spelling, on_error, job.column), copies)
        result = ChangesResult("", receipt, files, known_files, job.updates, dict(job.counts), dict(job.scores))
        if dry_run:
            return result
        read_as = {"spelling": spelling, "label": names.label, "id": names.id, "on_error": on_error}
        read_as |= {} if names.weight is None else {"weight": names.weight}
        target, is_new = job.save(receipt, {}, read_as)
        return replace(result, state=target.location, receipt=receipt if is_new else None)


def _split(found: Sequence[ChangeFile], known_files: set[str]) -> tuple[list[ChangeFile], list[ChangeFile]]:
    """Return the files that are new, and those whose contents the state, or a file before them, has."""
    new: list[ChangeFile] = []
    old: list[ChangeFile] = []
    seen = set(known_files)
    for one in found:
        (old if one.sha256 in seen else new).append(one)
        seen.add(one.sha256)
    return new, old
