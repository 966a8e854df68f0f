"""The request of a purge, and the order of its steps: receipt begun, files rewritten, receipt completed.

Invariant: a purge that was killed leaves a receipt that is only begun. The next purge does all of it again, whatever
the age of the files, and its receipt names the files of both. A purge that finds nothing to do writes nothing, but for
the entry of a chain that it was asked for.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any

from pipelines.chapters import purge_chapters, require_free
from pipelines.operation import in_threads_of_its_run
from pipelines.purging.erasure import Scope
from pipelines.purging.runs import Notes, RunPurge, StatePurge, Work
from pipelines.receipts import ReceiptFile, now, opened_receipts, origin_of, quoting_as_its_run, require_about
from pipelines.run_folder import PURGES, RunFolder, fitting
from pipelines.updating.states import Series
from raydt.errors import ConfigError, InputError
from raydt.folders.arrays import MANIFEST, newest
from raydt.folders.folder import locked
from raydt.installation import __version__
from raydt.messages import message
from raydt.sessions.receipt import checked_note, options_hash
from raydt.sessions.receipt_chain import Key
from raydt.streams.base import microseconds

# The receipt of a purge: ``purge.json`` in the folder that was purged, and an entry of a chain.
#
# Invariant: it holds no id and no value of an example: names of files, digests and counts; a chain has keyed hashes of
# the ids that were given.
#
# Format: ``docs/reference/formats.md``.

#: What :data:`~pipelines.run_folder.PURGES` says it is.
FORMAT = "raydt-purges-1"

#: What is read of an entry.
_TYPES = {"status": str, "replaced": list, "rewritten": list}


@dataclass(frozen=True)
class Purged:
    """Result of a purge, or of a dry run."""

    learner: str
    options_hash: str
    digest: str
    active: int  #: Live examples.
    scope: Scope
    #: ``replaced``, ``rewritten``: Files that were removed or replaced by a file of another name, and files of the same
    #: name with new contents.
    replaced: tuple[str, ...]
    rewritten: tuple[str, ...]
    out_of_reach: tuple[str, ...]  #: Where copies may remain.

    @classmethod
    def planned(cls, work: Work, scope: Scope, begun: list[str], *, young: bool) -> Purged:
        """Return what will be done, with the files ``begun`` by a killed purge; nothing if they are ``young``."""
        options, digest = work.saved.options, work.digest()
        notes = Notes() if young else work.plan()
        gone = set(map(work.name_of, notes.gone)) | {name for name in begun if not work.has(name)}
        rewritten = {*map(work.name_of, notes.rewritten), *begun} - gone
        files = tuple(sorted(gone)), tuple(sorted(rewritten))
        return cls(options.kind, options_hash(options), digest, work.active, scope, *files, work.out_of_reach)

    @property
    def changes(self) -> bool:
        """Return True if there is anything to do."""
        return bool(self.replaced or self.rewritten)

    def entry(self, key: Key) -> dict[str, Any]:
        """Return the values of an entry of a chain: a purge changes no model."""
        names = self.scope.names
        return {
            "learner": self.learner,
            "options_hash": self.options_hash,
            "digest_before": self.digest,
            "digest_after": self.digest,
            "active_before": self.active,
            "active": self.active,
            "deleted": [],
            "inserted": [],
            "purged": {"ids": None if names is None else key.hashes(names), **self._lists()},
        }

    def as_dict(self) -> dict[str, Any]:
        """All but the ids as JSON values."""
        return {
            "learner": self.learner,
            "options_hash": self.options_hash,
            "digest": self.digest,
            "active": self.active,
            "ids": None if self.scope.names is None else len(self.scope.names),
            **self._lists(),
        }

    def _lists(self) -> dict[str, list[str]]:
        return {name: list(getattr(self, name)) for name in ("replaced", "rewritten", "out_of_reach")}


class PurgeFile:
    """``purge.json``: an entry for each purge, the last perhaps only ``begun``; InputError if damaged."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder, self._entries = folder, _read(folder)
        last = self._entries[-1] if self._entries else None
        #: Files of a purge that was killed.
        self.begun: list[str] = []
        if last is not None and last["status"] == "begun":
            entry = self._entries.pop()
            self.begun = [*entry["replaced"], *entry["rewritten"]]

    def write(self, status: str, purged: Purged, receipt: str | None = None) -> None:
        """Name the files of a purge: as ``begun`` before the first one is changed, as ``completed`` at the end.

        ``receipt`` is the hash of its line in a chain.
        """
        entry = {"status": status, "time": now(), "raydt_version": __version__, **purged.as_dict()}
        entry |= {} if receipt is None else {"receipt": receipt}
        content = {"format": FORMAT, "purges": [*self._entries, entry]}
        self._folder.write_text(PURGES, json.dumps(content, indent=2) + "\n")


def _read(folder: RunFolder) -> list[dict[str, Any]]:
    if not folder.has(PURGES):
        return []
    try:
        content = json.loads(folder.read_text(PURGES))
        if content["format"] != FORMAT:
            raise ValueError(message("purges.other_format", found=content["format"], wanted=FORMAT))
        entries = content["purges"]
        if any([type(entry[key]) for key in _TYPES] != list(_TYPES.values()) for entry in entries):
            raise ValueError(message("purges.entry"))
    except (OSError, ValueError, LookupError, TypeError) as error:
        reason = message("models.no_entry", name=error.args[0]) if isinstance(error, KeyError) else str(error)
        raise InputError(message("purges.damaged", reason=reason), file=f"{folder.location}/{PURGES}") from error
    return list(entries)


#: Seconds by which the clocks of two machines may differ without anyone having set one wrong.
_CLOCKS_DIFFER = 300.0


@in_threads_of_its_run
@quoting_as_its_run
def purge(
    place: str | Path,
    *,
    ids: str | Path | None = None,
    older_than: str | None = None,
    dry_run: bool = False,
    receipts: ReceiptFile | None = None,
    note: str = "",
) -> dict[str, Any]:
    """Rewrite or remove every file of a run, or of a saved state, that holds an example that is not live.

    ``place`` is the folder of a completed run, of one in chapters, of which all that have ended are purged, or of a
    state that ``update`` or ``save(..., with_examples=True)`` wrote. ``ids``, a file with a column ``id`` of which none
    may be live, limits the erasure to predictions and text ids of these examples. With ``older_than``, such as ``7d``,
    a younger run or state is left as it is. ``dry_run`` finds out what would be done; ``receipts`` is the chain to
    which the receipt is appended, with the ``note``.

    Returns the ``digest`` of the model, the same before and after; ``active`` examples; ``ids``, how many were given,
    or None; files ``replaced`` (removed, or replaced by a file of another name) and ``rewritten``, the same with and
    without ``dry_run``, both empty if there is nothing to do; ``out_of_reach``; ``young``: nothing was done, because
    the files are younger than ``older_than``; ``left_alone``: files in the folder that raydt did not write.

    ConfigError if ``older_than`` is no length of time, a key cannot be used, or another process writes in the folder;
    InputError if there is no completed run and no state, the folder is damaged, its state is not the one of its
    summary, a link is in the place of a file, or the age is in the future; UpdateError if an id is live.
    """
    checked_note(note)
    folder, least = RunFolder(place), _seconds(older_than)
    if folder.chapters():
        if receipts is not None:
            raise ConfigError(message("purges.chain_of_chapters").at(folder.location))

        def one(chapter: RunFolder, rehearsed: bool) -> dict[str, Any]:
            return purge(chapter.location, ids=ids, older_than=older_than, dry_run=rehearsed, note=note)

        return purge_chapters(folder, one, dry_run=dry_run)
    require_free(folder)
    place_lock = locked(_existing(folder), needed=not dry_run)
    with opened_receipts(receipts, dry_run=dry_run) as chain, place_lock:
        with fitting(folder.location):
            work = StatePurge(folder) if folder.has(MANIFEST) else RunPurge(folder)
            origin = partial(origin_of, folder.location, work.saved, work.digest, work.former)
            require_about(chain, receipts, origin)
            scope = Scope(None) if ids is None else work.read_ids(str(ids))
            file = PurgeFile(folder)
            work.prepare(scope)
            young = least is not None and not file.begun and _age(work) < least
            done = Purged.planned(work, scope, file.begun, young=young)  # by doing it without writing
        if not young and not dry_run:
            if done.changes:
                file.write("begun", done)
                work.rewrite()
            if chain is not None:
                chain.append_values({**done.entry(chain.key), **({"note": note} if note else {})}, time=now())
            if done.changes:
                file.write("completed", done, None if chain is None else chain.head)
        alone = sorted(map(work.name_of, work.foreign))
        return {"folder": folder.location, "dry_run": dry_run, "young": young, **done.as_dict(), "left_alone": alone}


def _existing(folder: RunFolder) -> RunFolder:
    """A folder that holds a state or a finished run."""
    if Series.of_state(folder.location) is not None:
        raise InputError(message("purges.successive", folder=folder.location, newest=newest(folder).location))
    return folder if folder.has(MANIFEST) else RunFolder.existing(folder.location)


def _seconds(older_than: str | None) -> float | None:
    if older_than is None:
        return None
    try:
        return microseconds(older_than) / 1e6
    except ValueError as error:
        raise ConfigError(message("purges.older_than", given=older_than, problem=str(error))) from error


def _age(work: Work) -> float:
    """Return the seconds since a run ended or a state was written; InputError if that is in the future."""
    now = datetime.now(timezone.utc)
    age = (now - work.since).total_seconds()
    if age < -_CLOCKS_DIFFER:
        then, here = (time.isoformat(timespec="seconds") for time in (work.since, now))
        raise InputError(message("purges.clocks", clock=work.clock, then=then, here=here), file=work.folder.location)
    return age
