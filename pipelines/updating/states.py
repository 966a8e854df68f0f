"""The states that updates write: one in a folder of its own, or successive ones in a folder with a page about them.

Invariant: a state is written as a whole, just after its receipt, or not at all. No folder but that of the new state is
changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from pipelines.receipts import now
from pipelines.run_folder import RunFolder, is_of_state
from pipelines.saved_runs import Input, StatePlace, require_apart, states_of
from raydt.errors import ConfigError
from raydt.folders.arrays import MANIFEST, complete, is_folder_file, read_manifest, save_folder
from raydt.folders.checkpoint import is_checkpoint_folder
from raydt.folders.folder import LOCK, final_name, locked
from raydt.messages import message
from raydt.presentation.blocks import Block, Fact, Facts, Row, Section, Table, Text
from raydt.presentation.charts import ABSENT, Columns, count, counted, moment, names, number
from raydt.sessions.receipt import Receipt
from raydt.sessions.receipt_chain import OpenChain
from raydt.sessions.saved_model import SavedModel
from raydt.sessions.session import OF_ANY_STATE


def save_state(
    target: RunFolder, meta: dict[str, Any], components: Mapping[str, Any], receipt: Receipt, chain: OpenChain | None
) -> None:
    """Write the new state, unless it is there, and its receipt last but for the manifest; or neither."""

    def keep() -> None:
        if chain is not None:
            chain.append(receipt, time=now())
            meta["lineage"][-1]["receipt"] = chain.head  # the manifest comes after it

    if target.has(MANIFEST):
        keep()
        return
    try:
        save_folder(target, "state", meta, components, before_commit=keep)
    except BaseException:
        target.clear(is_of_state)
        if chain is not None:
            chain.withdraw()
        raise


def copies_of(saved: SavedModel, place: StatePlace, delete: str | None) -> tuple[str, ...]:
    """Return where copies of deleted examples may be, with paths where they are known."""
    run, config = place.run, place.config
    places = [message("updates.copy_state", path=place.folder.location)]
    series, _, _ = place.folder.location.rpartition("/")
    for step in reversed(saved.meta.get("lineage", [])):
        above, _, name = step["state"].rpartition("/")
        if above != series or place.folder.has(f"../{name}/{MANIFEST}"):  # else it was removed
            places.append(message("updates.copy_earlier_state", path=step["state"]))
        files = [*step["files"].get("changes", ()), *(file for kind, file in step["files"].items() if kind == "insert")]
        places += [message("updates.copy_rows", path=file["path"]) for file in files if file["path"] is not None]
    if run is not None and config is not None:
        path = getattr(config.source, "path", None)
        if path is not None:
            places.append(message("updates.copy_source", path=path if isinstance(path, str) else ", ".join(path)))
        places.append(message("updates.copy_states", path=states_of(config, run).location))
        places += [
            message(id, path=f"{run.location}/{name}")
            for id, name in (
                ("updates.copy_predictions", "predictions"),
                ("updates.copy_quarantine", "quarantine"),
                ("updates.copy_log", "log.jsonl"),
            )
            if run.has(name)
        ]
        places.append(message("updates.copy_model", path=f"{run.location}/model"))
        if config.cluster.backend == "ray":
            places.append(message("updates.copy_of_ray"))
    else:
        places.append(message("updates.copy_origin"))
    if delete is not None:
        places.append(message("updates.copy_ids", path=delete))
    if any(saved.features.categorical):
        places.append(message("updates.copy_categories"))
    if saved.classes:
        places.append(message("updates.copy_classes"))
    return (*places, *OF_ANY_STATE)


def require_free(target: RunFolder) -> None:
    """Refuse a folder with anything in it but the lock and files of an update that has no manifest yet."""
    try:
        names = target.names()
    except OSError as error:  # a file, or no permission to look
        raise ConfigError(message("updates.no_folder", folder=target.location, reason=str(error))) from error
    unfinished = LOCK in names and MANIFEST not in names and all(is_folder_file(name) for name in names if name != LOCK)
    if names and not unfinished:
        raise ConfigError(message("updates.full_folder", folder=target.location))


@contextmanager
def sole_writer(target: RunFolder) -> Iterator[None]:
    """Be the only process that writes the new state, and remove what one that was killed has left of it."""
    with locked(target):
        require_free(target)  # another process may have been quicker
        target.clear(is_of_state)
        yield


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
