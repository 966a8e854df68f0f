"""Which folders still hold an example, or the rows of a person: runs, their checkpoints, and states made from them.

Invariant: a folder is without a trace only if all in it that names or holds examples was read. Where names of deleted
examples are gone and their rows are not, nobody can say whose these are: that is ``unclear``, never ``absent``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from pipelines.chapters import run_of
from pipelines.config import Config
from pipelines.receipts import may_quote, said
from pipelines.run_folder import MODEL, PURGES, RunFolder, fitting, is_of_run, is_unfinished, read_table
from pipelines.saved_runs import config_of, open_members, states_of
from raydt.arrays.elementary import Ints
from raydt.encoding.columns import integer_of
from raydt.errors import ConfigError, InputError, RaydtError
from raydt.examples.store import Subjects
from raydt.folders.arrays import MANIFEST, complete, newest, open_folder, read_manifest
from raydt.folders.checkpoint import CheckpointStore
from raydt.keyed.packing import Member
from raydt.messages import WITHHELD, message
from raydt.sessions.saved_model import BY_KEY, SavedModel

Kind = Literal["id", "subject"]
Status = Literal["live", "deleted", "unclear", "purged", "absent"]

#: Lists of names in the state of a stream: those of deleted examples may be among them.
_LISTS: Mapping[Kind, Sequence[str]] = {"id": ("ids", "absent", "owned", "table_ids"), "subject": ("subjects",)}


@dataclass
class Asked:
    """An id, or a subject, that is looked for."""

    kind: Kind
    values: frozenset[Any]  #: The name as given and, of text that writes an integer, the integer.
    ids: set[tuple[Member, Any]] = field(default_factory=set)  #: Of a subject: key and id of its rows, where known.

    @classmethod
    def of(cls, kind: Kind, name: Any) -> Asked:
        """Return what a name may be in a state."""
        integer = integer_of(name) if isinstance(name, str) else None
        return cls(kind, frozenset([name] if integer is None else [name, integer]))


class Trace(NamedTuple):
    """The rows and the names of an example, or of a person, in one folder."""

    folder: str
    what: Literal["run", "checkpoint", "model", "state"]
    status: Status
    rows: int  #: That live.
    keys: int  #: Models by key in which they live.
    copies: tuple[str, ...]  #: Where copies of deleted rows, or their names, are.
    reason: str  #: Why it cannot be told.

    @property
    def holds(self) -> bool:
        """Return True unless nothing is left for certain."""
        return self.status in ("live", "unclear") or bool(self.copies)


def verify_erasure(
    places: str | Path | Sequence[str | Path], *, ids: Sequence[Any] = (), subjects: Sequence[Any] = ()
) -> dict[str, Any]:
    """Find out which folders still hold examples, or the rows of persons.

    Parameters
    ----------
    places : path or URI, or a sequence of these
        Runs, chapters, checkpoints, models, states, folders of successive states, or folders that have some of these in
        them. raydt also looks through what the lineages of these name, and through states beside them that updates have
        made from them.
    ids, subjects : sequences of text or integers
        What to look for. A text that writes an integer names the integer, too.

    Returns
    -------
    dict
        ``ids`` and ``subjects``, an entry for each that was asked: its name under ``id`` or ``subject``, ``erased``
        (no folder holds anything of it), and ``folders``, an entry for each run, checkpoint, model and state with
        ``folder``, ``what``, ``rows`` that live, the ``keys`` of models in which they do, ``copies`` of deleted rows
        and their names, by file or folder, a ``reason``, and the ``status``: ``live``; ``deleted``, perhaps with
        copies; ``unclear``, for that reason; ``purged``; ``absent``, without a trace. ``missing``, folders that
        lineages name and that are not there; ``ok``, whether all are erased. Names are withheld if one of the folders
        belongs to a run with ``output.quote_values: false``.

    Raises
    ------
    InputError
        A place is no run, model or state, and has none in it.
    ConfigError
        Nothing is asked for.
    """
    asked = [*(Asked.of("id", one) for one in ids), *(Asked.of("subject", one) for one in subjects)]
    if not asked:
        raise ConfigError(message("verdicts.nobody"))
    related, missing = _related([places] if isinstance(places, str | Path) else places)
    parts = {location: place.parts() for location, place in related.items()}
    for part in (part for some in parts.values() for part in some):
        for one in asked:
            part.learn(one)
    quote = all(may_quote(place) for place in related)
    found: dict[str, Any] = {"ids": [], "subjects": []}
    for name, one in zip((*ids, *subjects), asked, strict=True):
        traces = _with_past(related, {place: [part.traces(one) for part in parts[place]] for place in related})
        entry = {one.kind: name if quote else WITHHELD, "erased": not any(trace.holds for trace in traces)}
        found[f"{one.kind}s"].append({**entry, "folders": [trace._asdict() for trace in traces]})
    ok = all(one["erased"] for one in (*found["ids"], *found["subjects"]))
    return {**found, "missing": missing, "ok": ok}


# Which folders there are.


@dataclass
class SavedPlace:
    """A run, a model or a state on its own."""

    folder: RunFolder
    made_of: tuple[str, ...] = ()  #: Folders that its lineage names.

    @classmethod
    def of(cls, folder: RunFolder) -> SavedPlace:
        """Return a place with its lineage, if that can be read."""
        lineage: list[dict[str, Any]] = []
        with suppress(RaydtError, OSError):
            state = folder
            if not folder.has(MANIFEST):
                state = newest(states_of(config_of(folder.newest()), folder.newest()))
            lineage = read_manifest(state).meta.get("lineage", [])
        names = (_root(str(step["state"])) for step in lineage)
        return cls(folder, tuple(dict.fromkeys(name for name in names if name != folder.location)))

    def parts(self) -> list[SavedPart]:
        """Return the place, or the chapters that it has."""
        return [SavedPart(folder) for folder in self.folder.chapters() or [self.folder]]


def _root(location: str) -> str:
    """Return the location of the run in which a chapter or a checkpoint lies; else the location."""
    run = re.sub(r"/checkpoints(/\d+)?$", "", location)
    run = run if RunFolder(run).has("config.yaml") or not RunFolder(location).has(MANIFEST) else location
    chapter = run_of(RunFolder(run))
    return run if chapter is None else chapter[0].location


def places_in(folder: RunFolder) -> list[SavedPlace]:
    """Return the run, model or state that a folder is, or those that it has as successive states."""
    if folder.has("config.yaml") or folder.has(MANIFEST):
        return [SavedPlace.of(folder)]
    return [SavedPlace.of(folder.inside(str(number))) for number in complete(folder)]


def _related(given: Sequence[str | Path]) -> tuple[dict[str, SavedPlace], list[str]]:
    """Return places by location, those related to them, and locations in lineages at which nothing is."""
    todo: list[SavedPlace] = []
    for one in given:
        folder = RunFolder(_root(RunFolder(one).location))
        there = places_in(folder) or [place for name in folder.names() for place in places_in(folder.inside(name))]
        if not there:
            raise InputError(message("verdicts.no_place"), file=folder.location)
        todo += there
    found: dict[str, SavedPlace] = {}
    missing: dict[str, None] = {}
    beside: dict[str, list[SavedPlace]] = {}
    while todo:
        for place in todo:
            found.setdefault(place.folder.location, place)
        todo = []
        for place in list(found.values()):
            for location in place.made_of:
                if location not in found:
                    there = places_in(RunFolder(location))
                    todo += there
                    missing |= {} if there else {location: None}
            above = place.folder.location.rpartition("/")[0]
            if above not in beside:
                around = RunFolder(above)
                states = (around.inside(name) for name in around.names() if not around.has(f"{name}/config.yaml"))
                beside[above] = [one for state in states for one in places_in(state)]
        todo += [one for some in beside.values() for one in some if not found.keys().isdisjoint(one.made_of)]
        todo = [place for place in todo if place.folder.location not in found]
    return found, list(missing)


def _with_past(related: Mapping[str, SavedPlace], found: Mapping[str, list[list[Trace]]]) -> list[Trace]:
    """Return all traces; where there is none any more, but was one before, in a folder's past, all is deleted."""
    held = {
        place: any(trace.status in ("live", "deleted") for traces in parts for trace in traces)
        for place, parts in found.items()
    }
    settled = []
    for location, parts in found.items():
        past = any(held.get(one, False) for one in related[location].made_of)
        for traces in parts:
            states = []
            for trace in traces[1:] if traces[0].what == "run" else traces:
                gone = trace.status == "absent" and past
                states.append(trace._replace(status="deleted") if gone else trace)
                past = past or trace.status in ("live", "deleted")
            if traces[0].what == "run":
                whole, living = traces[0], any(trace.status == "live" for trace in states[-1:])
                if living and whole.copies:
                    whole = whole._replace(status="live")
                elif whole.status == "absent" and past and not living:
                    whole = whole._replace(status="deleted")
                states.insert(0, whole)
            settled += states
    return settled


# What is in them.


class _Names:
    """The names of the examples of one member of a state, live and remembered."""

    def __init__(self, key: Member, saved: SavedModel) -> None:
        self.key, stream = key, saved.components.get("stream", {})
        columns = saved.meta.get("columns", {})
        self.id, self.born = saved.arrays["id"], saved.arrays["born"]
        self.lists = stream
        self.text = columns.get("id_kind") == "text"
        self.names = dict(zip(stream["id_codes"].tolist(), stream["ids"], strict=True)) if "id_codes" in stream else {}
        self._subjects = stream if "subject_codes" in stream else None

    def subjects(self, *, live: bool) -> Subjects:
        """Return whose rows there are: of those that live, or also of others that are remembered."""
        found = Subjects()
        if self._subjects is not None:
            found.restore(self._subjects)
            if live:
                found.keep(self.id, self.born)
        return found

    @cached_property
    def all_subjects(self) -> Subjects:
        """Whose rows there are, live or not."""
        return self.subjects(live=False)

    def named(self, codes: Ints) -> set[Any]:
        """Return ids as files have them, of codes of which they are known."""
        return {self.names[code] for code in codes.tolist() if code in self.names} if self.text else {*codes.tolist()}

    def live(self, asked: Asked) -> int:
        """Return how many rows live."""
        if asked.kind == "subject":
            return len(self.subjects(live=True).rows_of(asked.values)[0])
        codes = [code for code, name in self.names.items() if name in asked.values] if self.text else [*asked.values]
        return int(np.isin(self.id, [code for code in codes if isinstance(code, int)]).sum())


class _State:
    """A state that was read: what its members say, and rows that are stored in it and do not live."""

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder
        with fitting(folder.location):
            members = open_members(folder)
            self.meta, self.shared = members.meta, members.components.get("stream", {})
            self.members = [_Names(key, members.saved(key)) for key in members]
            meta, components = open_folder(folder.root, "state", filesystem=folder.filesystem)
            stored = [components[name] for name in components if name.startswith("rows-")] if BY_KEY not in meta else []
            rows = [(part["id"], part["born"]) for part in stored if "id" in part and "born" in part]
            none = np.empty(0, dtype=np.int64)
            self.id, self.born = (np.concatenate([none, *column]) for column in zip((none, none), *rows, strict=True))
            dead = ~np.isin(self.born, np.concatenate([none, *(one.born for one in self.members)]))
            self.id, self.born = self.id[dead], self.born[dead]

    @property
    def knows_subjects(self) -> bool:
        """Return whether a state says whose its rows are."""
        return self.meta.get("columns", {}).get("subject_kind") is not None

    def remembered(self, asked: Asked) -> Iterator[str]:
        """Yield where the name is, beside live rows: lists of the stream, and a key without rows that is called so."""
        for lists in (self.shared, *(one.lists for one in self.members)):
            if any(_has(lists.get(name, ()), asked.values) for name in _LISTS[asked.kind]):
                yield "stream"
                break
        else:
            live = {(one.key, name) for one in self.members for name in one.named(one.id)}
            if any((one.key, name) in asked.ids - live for one in self.members for name in one.names.values()):
                yield "stream"
        if any(one.key in asked.values and not len(one.id) for one in self.members):  # a model that a purge removes
            yield "key"


def _has(names: Any, values: frozenset[Any]) -> bool:
    return not values.isdisjoint(names.tolist() if isinstance(names, np.ndarray) else names)


class SavedPart:
    """A run, one of its chapters, a model or a state, and what it says."""

    def __init__(self, folder: RunFolder) -> None:
        self.folder, self.is_run = folder, not folder.has(MANIFEST)
        self.config: Config | None = None
        self.damage: dict[str, str] = {}  #: What cannot be read, and why.
        self.states: dict[str, _State] = {}
        self.model: list[str] = []
        self.left: list[str] = []  #: Files that an interrupted write has left, or one under way: nobody reads them.
        places = [folder]
        if self.is_run:
            places, self.model = [], [folder.inside(MODEL).location] if folder.has(f"{MODEL}/{MANIFEST}") else []
            with self._reading(folder):
                self.config = config_of(folder)
                states = states_of(self.config, folder)
                places = [states.inside(str(number)) for number in complete(states)]
                self.left = CheckpointStore(states, 1).left_over()
                self.left += [path for path in folder.files() if is_unfinished(path) and is_of_run(path)]
        for place in places:
            with self._reading(place):
                if read_manifest(place).kind == "model":
                    self.model.append(place.location)
                else:
                    self.states[place.location] = _State(place)

    @contextmanager
    def _reading(self, place: RunFolder) -> Iterator[None]:
        """Context in which what cannot be read is noted."""
        try:
            yield
        except (RaydtError, OSError) as error:
            self.damage[place.location] = said(error, may_quote(place.location))

    def learn(self, asked: Asked) -> None:
        """Learn the ids of a subject's rows from whoever knows them."""
        for state in self.states.values() if asked.kind == "subject" else ():
            for one in state.members:
                codes = one.all_subjects.rows_of(asked.values)[0]
                asked.ids |= {(one.key, name) for name in one.named(codes)}

    def traces(self, asked: Asked) -> list[Trace]:
        """Return what the folder of a run, each state in the order of updates, and the model hold."""
        found = [self._of_run(asked)] if self.is_run else []
        found += [self._of_state(place, state, asked) for place, state in self.states.items()]
        found += [
            self._trace(place, "checkpoint" if self.is_run else "state", "unclear", reason=why)
            for place, why in self.damage.items()
        ]
        living = bool(self.states) and found[len(self.states) - (not self.is_run)].status == "live"
        for place in self.model:
            reason = "" if self.is_run else message("verdicts.of_model")
            status: Status = "unclear" if reason else "live" if living else "absent"
            found.append(self._trace(place, "model", status, reason=reason))
        return found

    def _trace(
        self, place: str, what: Any, status: Status, rows: int = 0, keys: int = 0, *, copies: Any = (), reason: str = ""
    ) -> Trace:
        purged = status == "absent" and self._is_purged
        return Trace(place, what, "purged" if purged else status, rows, keys, tuple(copies), reason)

    @cached_property
    def _is_purged(self) -> bool:
        """Return True if the last purge of the folder was completed."""
        try:
            return self.folder.has(PURGES) and bool(
                json.loads(self.folder.read_text(PURGES))["purges"][-1]["status"] == "completed"
            )
        except (OSError, ValueError, LookupError, TypeError):
            return False

    def _of_state(self, place: str, state: _State, asked: Asked) -> Trace:
        what = "checkpoint" if self.is_run else "state"
        living = [n for one in state.members if (n := one.live(asked))]
        if living:
            keys = len(living) if BY_KEY in state.meta else 0
            return self._trace(place, what, "live", sum(living), keys)
        if asked.kind == "subject" and not state.knows_subjects:
            return self._trace(place, what, "unclear", reason=message("verdicts.no_subjects"))
        mine, unknown = self._dead(state, asked)
        copies = [*state.remembered(asked), *(["rows"] if mine else [])]
        if unknown and not copies:
            return self._trace(place, what, "unclear", reason=message("verdicts.whose_rows", rows=unknown))
        return self._trace(place, what, "deleted" if copies else "absent", copies=copies)

    def _dead(self, state: _State, asked: Asked) -> tuple[bool, int]:
        """Return whether a stored row that does not live is what is asked, and of how many nobody can say."""
        others = [one for other in self.states.values() for one in other.members]
        if asked.kind == "subject":
            known = [one.all_subjects for one in others]
            mine = np.concatenate([np.empty(0, dtype=np.int64), *(one.rows_of(asked.values)[1] for one in known)])
            every = np.concatenate([np.empty(0, dtype=np.int64), *(one.rows_of(one.known)[1] for one in known)])
            return bool(np.isin(state.born, mine).any()), int((~np.isin(state.born, every)).sum())
        if not any(one.text for one in state.members):
            return not asked.values.isdisjoint(state.id.tolist()), 0
        names = {code: name for one in others for code, name in one.names.items()}
        told = [names.get(code) for code in state.id.tolist()]
        return not asked.values.isdisjoint(told), told.count(None)

    # ---------------------------------------------------------------- tables and texts of a run

    def _of_run(self, asked: Asked) -> Trace:
        copies, reason = list[str](), ""
        with self._reading(self.folder), fitting(self.folder.location):
            copied, unknown = self._predicted(asked)
            copies += ["predictions"] * copied
            if self.left:
                reason = message("verdicts.left_over", files=len(self.left))
            elif unknown and not copied:
                reason = message("verdicts.whose_predictions", rows=unknown)
            for name, texts in self._texts():
                if any(_quotes(text, asked.values) for text in texts):
                    copies.append(name)
        status: Status = "deleted" if copies else "unclear" if reason else "absent"
        return self._trace(self.folder.location, "run", status, copies=copies, reason=reason if not copies else "")

    def _predicted(self, asked: Asked) -> tuple[bool, int]:
        """Return whether predictions name what is asked, and of how many nobody can say."""
        named = {(key, one) for key, one in self._column("predictions", "key", "id") if one is not None}
        if not named:
            return False, 0
        if asked.kind == "id":
            return any(one in asked.values for _, one in named), 0
        newest_state = list(self.states.values())[-1:]
        living = {(one.key, name) for state in newest_state for one in state.members for name in one.named(one.id)}
        known = {
            (one.key, name)
            for state in self.states.values()
            for one in state.members
            for name in one.named(one.all_subjects.rows_of(one.all_subjects.known)[0])
        }
        mine = asked.ids & named
        if self._is_purged:  # what is left is of live examples, of which one may have the id again
            mine -= living
        return bool(mine), len(named - known - living)

    def _column(self, table: str, *names: str) -> Iterator[tuple[Any, ...]]:
        """Yield values of columns of a table; None of a column that it does not have."""
        for part in read_table(self.folder, table):
            none = [None] * len(part)
            yield from zip(
                *(part.column(one).to_pylist() if one in part.schema.names else none for one in names), strict=True
            )

    def _texts(self) -> Iterator[tuple[str, list[str]]]:
        """Yield what may quote values: messages of the log that are not about events, and reasons of bad rows."""
        if self.folder.has("log.jsonl"):
            records = [json.loads(line) for line in self.folder.read_text("log.jsonl").splitlines()]
            told = [one for one in records if one.get("level") != "INFO" or one.get("event") is None]
            yield "log.jsonl", [str(one.get("message", "")) for one in told]
        yield "quarantine", [str(reason) for (reason,) in self._column("quarantine", "reason")]


def _quotes(text: str, values: frozenset[Any]) -> bool:
    """Return True if a message quotes a value, as :func:`raydt.messages.quoted` writes it."""
    return any(
        repr(value[:60]) in text if isinstance(value, str) else re.search(rf"(?<![\w.-]){value}(?![\w.])", text)
        for value in values
    )
