"""``update``: deletions and insertions applied to a saved state, with a receipt, and without replaying its life.

Invariant: the input is only read. The new state is written as a whole after everything has been read, checked and
applied, or not at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from pipelines.operation import in_threads_of_its_run
from pipelines.receipts import ReceiptFile, now, opened_receipts, quoting_as_its_run, require_about
from pipelines.run_folder import RunFolder, is_of_state
from pipelines.saved_runs import Input, find_state, open_members, require_apart, states_of
from pipelines.updating.changes import Input as Given
from pipelines.updating.changes import (
    Missing,
)
from pipelines.updating.members import Asked, UpdateOfLists, save_state
from raydt.errors import ConfigError
from raydt.folders.arrays import MANIFEST, complete, is_folder_file, read_manifest
from raydt.folders.checkpoint import is_checkpoint_folder
from raydt.folders.folder import LOCK, final_name, locked
from raydt.messages import message
from raydt.presentation.blocks import Block, Fact, Facts, Row, Section, Table, Text
from raydt.presentation.charts import ABSENT, Columns, count, counted, moment, names, number
from raydt.sessions.receipt import Receipt, checked_note

# The page about successive states: what each update changed, and how well the model predicted its rows before.


def series_page(meta: Mapping[str, Any], location: str) -> str:
    """Return the page about the states in the lineage of the newest one, whose ``meta`` is given."""
    from pipelines.report.page import document  # drawing is imported where something is drawn

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
    from pipelines.report.charts import quality_charts, quality_of
    from pipelines.report.page import against_baselines
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


# A folder of successive states: each is an entry named by its number of updates, and ``latest`` names the newest.
#
# Invariant: an entry is complete once its manifest is there, and then never changed, only removed where it is one too
# many. ``latest`` and ``report.html`` follow from the newest complete entry: a process that is killed before it writes
# them leaves what the next one puts right.

#: Names the newest entry, in a line of text.
LATEST = "latest"
REPORT = "report.html"


class Series:
    """The folder at a location, which need not exist."""

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder

    @classmethod
    def of_state(cls, location: str | Path) -> Series | None:
        """Return the folder of successive states that a state's location is; None if it is something else."""
        folder = RunFolder(location)
        return cls(folder) if folder.has(LATEST) else None

    @contextmanager
    def open(self, base: RunFolder, taken: Iterable[RunFolder]) -> Iterator[None]:
        """Be the only process that writes the folder, without what a killed one left; ConfigError if it is not free."""
        place = self.folder.location
        require_apart("--out", place, [Input("what is updated", one.location) for one in taken])
        with locked(self.folder):
            names = set(self.folder.names())
            ours = {LOCK, LATEST, REPORT}
            if any(final_name(name) not in ours and not is_checkpoint_folder(name) for name in names):
                raise ConfigError(message("updates.full_folder", folder=place))
            numbers = complete(self.folder)
            if numbers and self.place(numbers[-1]).location != base.location:
                raise ConfigError(message("updates.other_base", folder=place, newest=f"{place}/{numbers[-1]}"))
            for name in names - ours:
                if not is_checkpoint_folder(name):
                    self.folder.delete(name)
                elif int(name) not in numbers:
                    self.folder.inside(name).clear(is_of_state)
                    self.folder.discard(name)
            yield

    @staticmethod
    def require_keep(keep: int | None, series: Series | None) -> None:
        """Refuse (ConfigError) a number of states to keep that is not positive, or where there is no such folder."""
        if keep is not None and (keep < 1 or series is None):
            raise ConfigError(message("updates.nothing_to_keep", keep=keep))

    def place(self, updates: int) -> RunFolder:
        """Return the folder of the state after so many updates."""
        return self.folder.inside(str(updates))

    def point_to_newest(self, keep: int | None = None) -> None:
        """Write ``latest`` and the report, and remove all but the newest ``keep`` states that nobody writes."""
        numbers = complete(self.folder)
        if numbers:
            meta = read_manifest(self.place(numbers[-1])).meta
            self.folder.write_text(REPORT, series_page(meta, self.folder.location))
            self.folder.write_text(LATEST, f"{numbers[-1]}\n")
        for former in numbers[:-keep] if keep is not None else ():
            old = self.place(former)
            with suppress(ConfigError), locked(old):
                old.delete(MANIFEST, lasting=True)  # first: without it the rest is no state, and goes with the next
                old.clear(is_of_state)
            old.discard()


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
    checked_note(note)
    place = find_state(state)
    folder = place.folder
    job = UpdateOfLists(open_members(folder), place)
    taken = [folder]
    if place.run is not None and place.config is not None:
        taken += [place.run, states_of(place.config, place.run)]
    target = _target(out, taken) if out is not None else None
    series = Series.of_state(state) if out is None else None
    if target is None and series is None and not dry_run:
        raise ConfigError(message("updates.no_target"))
    Series.require_keep(keep, series)
    writing = target if not dry_run else None
    writer = series.open(folder, []) if series is not None and not dry_run else _sole_writer(writing)
    with opened_receipts(receipts, dry_run=dry_run) as chain, writer:
        require_about(chain, receipts, job.origin)
        receipt = job.apply(Asked(delete, insert, missing, label, id_column, kind, note))
        if not dry_run:
            meta, components = job.contents()
            if series is not None:
                writing = series.place(meta["offset"])
                meta["lineage"][-1] |= {"time": now(), "active": receipt.active}
            assert writing is not None
            save_state(writing, meta, components, receipt, chain)
            if series is not None:
                series.point_to_newest(keep)
    return receipt


def _target(out: str | Path, taken: list[RunFolder]) -> RunFolder:
    """Return the folder of the new state: an empty one, and not in one that is taken."""
    target = RunFolder(out)
    require_apart("--out", target.location, [Input("what is updated", place.location) for place in taken])
    _require_free(target)
    return target


def _require_free(target: RunFolder) -> None:
    """Refuse a folder with anything in it but the lock and files of an update that has no manifest yet."""
    try:
        names = target.names()
    except OSError as error:  # a file, or no permission to look
        raise ConfigError(message("updates.no_folder", folder=target.location, reason=str(error))) from error
    unfinished = LOCK in names and MANIFEST not in names and all(is_folder_file(name) for name in names if name != LOCK)
    if names and not unfinished:
        raise ConfigError(message("updates.full_folder", folder=target.location))


@contextmanager
def _sole_writer(target: RunFolder | None) -> Iterator[None]:
    """Be the only process that writes the new state, and remove what one that was killed has left of it."""
    if target is None:
        yield
        return
    with locked(target):
        _require_free(target)  # another process may have been quicker
        target.clear(is_of_state)
        yield
