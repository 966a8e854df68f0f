"""The receipt of a purge: ``purge.json`` in the folder that was purged, and an entry of a chain.

Invariant: it holds no id and no value of an example: names of files, digests and counts; a chain has keyed hashes of
the ids that were given.

Format: ``docs/reference/formats.md``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from pipelines.purging.dictionaries import Scope
from pipelines.purging.rehearsal import Notes
from pipelines.purging.work import Work
from pipelines.receipts import now
from pipelines.run_files import PURGES
from pipelines.run_folder import RunFolder
from raydt.errors import InputError
from raydt.messages import message
from raydt.sessions.receipt import options_hash
from raydt.sessions.receipt_chain import Key
from raydt.version import __version__

#: What :data:`~pipelines.run_files.PURGES` says it is.
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
        """Whether there is anything to do."""
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
