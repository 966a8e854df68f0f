"""The purge of models by key: of each key what the purge of a run of its rows alone erases, and the keys that are gone.

Invariant: as of :mod:`pipelines.purging.runs`. A key without a live example leaves with all that is about it: its name,
its model and its rows of the tables. The digest over all keys, in which it has no part, stays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from pipelines.purging.runs import (
    PREDICTIONS,
    QUARANTINE,
    Components,
    RunPurge,
    Scope,
    StatePurge,
    erased,
    erased_categories,
    erased_classes,
    erased_records,
    erased_stream,
    live_names,
    next_running,
)
from pipelines.run_folder import RunFolder
from pipelines.saved_runs import open_members
from raydt.folders.arrays import OF_THE_FOLDER
from raydt.keyed.groups import Key, group_of
from raydt.keyed.members import narrow
from raydt.keyed.packing import Figures, KeyedStore, SavedKeys, live, packed
from raydt.keyed.session import TOTALS
from raydt.keyed.source import recoded
from raydt.sessions.saved_model import SavedModel

#: Tables of figures of keys.
_OF_KEYS = ("metrics", "alarms", "keys")


class ErasedKeys:
    """Models by key without what no live example has."""

    def __init__(self, keys: SavedKeys, scope: Scope) -> None:
        self._keys, self._scope = keys, scope
        self._before = keys.components["stream"]  # read before its file is replaced
        self.figures = Figures(*(column.copy() for column in keys.figures))
        self.names: dict[Key, set[Any]] = {}  #: Ids of live examples, as files have them.
        self.changes: dict[Key, dict[str, str]] = {}  #: Names of classes that change, as text.
        classes, categories = dict[Any, None](), dict[str, set[Any]]()
        for key in keys:
            if not live(keys.held(key)):
                self.figures.keys[group_of(key)] -= 1
                continue
            saved = keys.saved(key)
            self.names[key] = live_names(saved)
            after = erased_classes(saved)
            pairs = zip(saved.classes, after, strict=True)
            self.changes[key] = {str(old): str(new) for old, new in pairs if str(old) != str(new)}
            classes |= dict.fromkeys(_kept(saved.classes, after))
            for name, values in erased_categories(saved, saved.categories).items():
                categories.setdefault(name, set()).update(_kept(saved.categories[name], values))
        self._classes, self._categories = classes, categories

    def groups(self, *, state: bool) -> dict[str, dict[str, Any]]:
        """Return the components of the groups, of a state or of a model."""
        found: dict[str, dict[str, Any]] = {}
        for group in self._keys.groups:
            there = [key for key in self._keys.of_group(group) if key in self.names]
            if there:
                found[f"group-{group:03d}"] = packed(
                    {key: (self._state if state else self._model)(key) for key in there}
                )
        return found

    def _state(self, key: Key) -> dict[str, Any]:
        held, saved = self._keys.held(key), self._keys.saved(key)
        rest: dict[str, Any] = {
            "coordinator": saved.completed(),
            "stream": erased_stream(saved, held["stream"], self._scope),
        }
        if "meta" in held:
            rest["meta"] = held["meta"] | self._own(saved) | {"next_id": next_running(saved)}
        if "recorder" in held:
            recorder, scores = erased_records(saved, held["recorder"], saved.components["scores"])
            rest |= {"recorder": recorder, "scores": narrow(scores)}
        return {**held, **rest}

    def _own(self, saved: SavedModel) -> dict[str, Any]:
        return {"classes": erased_classes(saved), "categories": erased_categories(saved, saved.categories)}

    def _model(self, key: Key) -> dict[str, Any]:
        saved = self._keys.saved(key)
        return {"arrays": saved.session().model(), **self._own(saved)}

    def meta(self, meta: Mapping[str, Any]) -> dict[str, Any]:
        """Return ``meta`` of a folder with the classes and categories of live examples only."""
        classes = [one for one in meta["classes"] if one in self._classes or isinstance(one, bool)]
        if "positive" in self._before["source"].get("labels", {}):
            classes = meta["classes"]
        return {**meta, "classes": classes, "categories": self._live(meta["categories"])}

    def _live(self, categories: Mapping[str, Iterable[Any]]) -> dict[str, list[Any]]:
        return {
            name: [one for one in values if one in self._categories.get(name, ())]
            for name, values in categories.items()
        }

    def stream(self) -> dict[str, Any]:
        """Return the component of the shared dictionaries: no key refers to places in them."""
        stream = self._before
        source = dict(stream["source"])
        labels = dict(source["labels"])
        if "positive" in labels:
            labels["rest"] = erased(labels["rest"], set())
        elif "classes" in labels:
            labels["classes"] = [one for one in labels["classes"] if one in self._classes]
        source |= {"labels": labels, "categories": self._live(source["categories"])}
        before = source.get("keys", [])
        if "keys" in source:
            source["keys"] = [key for key in before if key in self.names]
        codes = {key: code for code, key in enumerate(source.get("keys", []))}
        kept = {code: codes[key] for code, key in enumerate(before) if key in codes}
        table = recoded(stream, kept, lambda code, one: self._has(None if code is None else before[code], one))
        owners = {"owned": [], "owners": stream["owners"][:0]} if "owners" in stream else {}  # the log has ended
        counts = {"n_classes": len(labels["classes"])} if "n_classes" in stream and "classes" in labels else {}
        return {**stream, "source": source, **owners, **counts, **table}

    def _has(self, key: Key | None, one: Any) -> bool:
        """Return True if an id of the table is that of a live example, or one that is not to be erased."""
        live_ids = () if key is None else self.names.get(key, ())
        return one in live_ids or not self._scope.erases(one)

    def coordinator(self, before: Mapping[str, Any]) -> dict[str, Any]:
        """Return what is said of the groups."""
        return {**before, **{name: one for name, one in self.figures._asdict().items() if name in before}}

    def of_keys(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Rows of a table that are about keys with live examples; the batch itself, if these are all."""
        known = batch.column("key").to_pylist()
        kept = np.array([key in self.names for key in known], dtype=np.bool_)
        return batch if kept.all() else batch.filter(pa.array(kept))

    def predictions(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """As :meth:`pipelines.purging.runs.RunPurge._live_rows`, within each key."""
        if pa.types.is_floating(batch.schema.field("prediction").type):
            return batch.slice(0, 0)
        rows = list(zip(batch.column("key").to_pylist(), batch.column("id").to_pylist(), strict=True))
        kept = np.array([self._keeps(key, one) for key, one in rows], dtype=np.bool_)
        chosen = batch if kept.all() else batch.filter(pa.array(kept))
        whose = [key for (key, _), there in zip(rows, kept.tolist(), strict=True) if there]
        for name in ("prediction", "truth"):
            values = chosen.column(name).to_pylist()
            new = [self.changes[key].get(one, one) for key, one in zip(whose, values, strict=True)]
            if new != values:
                field = chosen.schema.field(name)
                chosen = chosen.set_column(chosen.schema.get_field_index(name), field, pa.array(new, field.type))
        return chosen

    def _keeps(self, key: Key, one: Any) -> bool:
        there = self.names.get(key)
        return there is not None and (one is None or one in there or not self._scope.erases(one))


def _kept(before: Iterable[Any], after: Iterable[Any]) -> list[Any]:
    """Return the values that stay."""
    return [one for one, new in zip(before, after, strict=True) if one == new and type(one) is type(new)]


class KeyedRunPurge(RunPurge):
    """The purge of a run with a model for each key."""

    def _open(self, place: RunFolder) -> None:
        self._keys = self.members = open_members(place)
        self.saved, self._digest = self._keys.outline(), self._keys.digest()

    def prepare(self, scope: Scope) -> None:
        """Find out what dictionaries and texts will be, and which tables change."""
        self._erased = erased = ErasedKeys(self._keys, scope)
        self._names = {}
        self._listed = self._components["recorder"]["tables"]
        self._chosen = dict.fromkeys(_OF_KEYS, erased.of_keys)
        self._chosen |= {PREDICTIONS: erased.predictions, QUARANTINE: lambda batch: batch.slice(0, 0)}
        # Made before anything is written: the files that it is read from will be replaced.
        self._groups, self._models = erased.groups(state=True), erased.groups(state=False)
        self._coordinator = erased.coordinator(self._keys.components["coordinator"])
        self._stream = erased.stream() | self._purges()
        self._find_changes()

    def _purges(self) -> dict[str, Any]:
        """Return where keys have been removed, this purge included: an audit knows there that they begin anew."""
        stream = self._keys.components["stream"]
        before = list(stream.get("purges", ()))
        if len(self._erased.names) == sum(1 for _ in self._keys):
            return {"purges": before} if before else {}
        here = [int(stream["row"]), int(stream.get("deletions", 0)), len(self._keys.meta.get("lineage", []))]
        return {"purges": [*before, here]}

    def _write_alone(self, states: RunFolder, meta: dict[str, Any], components: Components) -> None:
        KeyedStore(states, 1).write_alone(self._checkpoint.number, meta, components)

    def _state(self, meta: dict[str, Any], tables: dict[str, Any]) -> tuple[dict[str, Any], Components]:
        recorder, scores = self._components["recorder"], self._components["scores"]
        rest = {"stream": self._stream, "recorder": {**recorder, **self._counts(recorder), "tables": tables}}
        rest |= {"scores": scores}
        return self._erased.meta(meta), {"coordinator": self._coordinator, **rest, **self._groups}

    def _counts(self, recorder: Mapping[str, Any]) -> dict[str, Any]:
        """Return totals without the keys that leave, which a session does not count any more, and what follows them."""
        keys, left = self._keys, self._erased.names
        gone = Counter[str]()
        for key in keys:
            if key not in left:
                gone.update({name: int(keys.held(key)["recorder"].get(name, 0)) for name in TOTALS})
        totals = {name: count - gone[name] for name, count in recorder["totals"].items()}
        if "requests" not in recorder:
            return {"totals": totals}
        requests = recorder["requests"]
        return {"totals": totals, "requests": requests | {n: requests[n] - gone[n] for n in ("inserts", "deletes")}}

    def _model_of(self, meta: dict[str, Any]) -> tuple[dict[str, Any], Components]:
        named = {name: self._checkpoint.meta[name] for name in ("key",)}
        return self._erased.meta(meta) | named, self._models

    def _told(self, summary: dict[str, Any]) -> dict[str, Any]:
        kept = {str(one) for one in self._erased.meta(self._checkpoint.meta)["classes"]}
        classes = [one for one in summary.get("classes", []) if one in kept]
        return {**summary, "keys": len(self._erased.names), **({"classes": classes} if "classes" in summary else {})}


class KeyedStatePurge(StatePurge):
    """The purge of a state with a model for each key."""

    def prepare(self, scope: Scope) -> None:
        """Find out what the dictionaries will be."""
        erased, before = ErasedKeys(self.members, scope), self.members.components
        self._meta = erased.meta({name: one for name, one in self.members.meta.items() if name not in OF_THE_FOLDER})
        rest = {name: before[name] for name in before if not name.startswith("group-")}
        rest |= {"coordinator": erased.coordinator(before["coordinator"]), "stream": erased.stream()}
        self._components = {**rest, **erased.groups(state=True)}
