"""The rest of the members of a state after a purge: live examples, and dictionaries with their values.

Invariant: the digest of a model does not change. A category, token or class that no live example has, and a text id
that is not live, may be the deleted example itself. Codes are places in a dictionary, so that a value cannot be
removed: another takes its place, which no data have. A key without a live example leaves with all that is about it: its
name, its model and its rows of the tables. The digest over all keys, in which it has no part, stays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any

import numpy as np
import pyarrow as pa

from pipelines.updating.changes import StateNames, without_a_config
from raydt.arrays.elementary import Arrays
from raydt.encoding.columns import number_of
from raydt.errors import InputError, UpdateError
from raydt.examples.store import Subjects
from raydt.keyed.groups import Key, group_of
from raydt.keyed.members import narrow
from raydt.keyed.packing import Member, SavedKeys, live, packed
from raydt.keyed.session import TOTALS
from raydt.keyed.source import recoded
from raydt.learners import traits_of
from raydt.messages import message, quoted
from raydt.sessions.adaptive_window import SCOUTS
from raydt.sessions.saved_model import SavedModel
from raydt.streams.deletion_log import LoggedDeletions
from raydt.streams.row_stream import AbsentRows

Components = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Scope:
    """Ids whose copies are erased, as the files have them."""

    names: frozenset[Any] | None  #: Integers or text; None: all that are not live.

    def erases(self, name: Any) -> bool:
        """Return whether a purge removes the copies of an example that is not live."""
        return self.names is None or name in self.names


def read_ids(path: str, states: Iterable[SavedModel]) -> Scope:
    """Read ids to erase, of one state at least; InputError if they are unreadable, UpdateError if one is live."""
    log: LoggedDeletions | None = None
    for saved in states:
        names = StateNames.of(saved)
        if log is None:
            keys = names.keys._replace(subject_kind=None)
            with without_a_config():
                log = LoggedDeletions(path, ".", keys, "list of ids", "state")
            if not log.ids:
                raise InputError(message("purges.no_ids"), file=log.file.name)
        live = live_names(saved)
        row = next((row for row, name in enumerate(log.ids) if name in live), None)
        if row is not None:
            said = message("purges.live_id", id=quoted(log.ids[row]))
            raise UpdateError(said, file=log.file.name, row=row, column=log.column)
    assert log is not None
    return Scope(frozenset(log.ids))


def live_names(saved: SavedModel) -> set[Any]:
    """The ids of live examples, as files have them."""
    names, codes = StateNames.of(saved), saved.arrays["id"]
    return set(names.ids.names_of(codes) if names.text_ids else codes.tolist())


def stand_in(code: int, like: Any, taken: set[Any]) -> Any:
    """Return what takes the place of a value, not among those ``taken``; what a purge has put there stays."""
    if isinstance(like, str):
        text = f"erased {code}"
        if like.rstrip("_") == text:
            return like
        while text in taken:
            text += "_"
        return text
    number = -(2**52) - code
    while number in taken and number != like:
        number -= 1
    return float(number) if isinstance(like, float) else number


def erased(values: Sequence[Any], live: set[int]) -> list[Any]:
    """The values of a dictionary, those of live codes as they are; booleans stay, as they can tell nobody apart."""
    taken = set(values)
    return [
        value if code in live or isinstance(value, bool) or value is None else stand_in(code, value, taken)
        for code, value in enumerate(values)
    ]


def live_categories(saved: SavedModel) -> dict[str, set[int]]:
    """Numbers of the categories of live examples, by feature; of sparse features, the indices that are 1."""
    features, found = saved.features, {}
    dense = len(features.names)
    for number, arrays in saved.groups.items():
        owned = features.group_columns(number)
        for place, column in enumerate(owned[owned < dense].tolist()):
            if features.categorical[column]:
                values = arrays["X"][:, place]
                found[features.names[column]] = set(values[~np.isnan(values)].astype(np.int64).tolist())
        if features.sparse and "sparse_values" in arrays:
            found.setdefault(str(features.sparse_column), set()).update(arrays["sparse_values"].tolist())
    return found


def erased_categories(saved: SavedModel, categories: Mapping[str, Sequence[Any]]) -> dict[str, list[Any]]:
    """Categories by feature, with another value in the place of each that no live example has."""
    live, by_value = live_categories(saved), traits_of(saved.options).reading.by_value
    found = {}
    for name, values in categories.items():
        numbers = [number_of(value) for value in values] if by_value else range(len(values))
        kept = {code for code, number in enumerate(numbers) if number in live.get(name, set())}
        found[name] = erased(values, kept)
    return found


def erased_stream(saved: SavedModel, stream: Mapping[str, Any], scope: Scope) -> dict[str, Any]:
    """Return the component ``stream`` without what no live example has, but for text ids out of ``scope``."""
    source = dict(stream["source"])
    stream = {name: part for name, part in stream.items() if not name.startswith(SCOUTS)}  # the stream has ended
    if "categories" not in source:  # examples that are drawn have no dictionaries
        return stream
    source["categories"] = erased_categories(saved, source["categories"])
    source["labels"] = _erased_labels(saved, source["labels"])
    rest = dict(stream)
    if "id_codes" in stream:
        alive, codes = set(saved.arrays["id"].tolist()), stream["id_codes"].tolist()
        kept = [code in alive or not scope.erases(name) for code, name in zip(codes, stream["ids"], strict=True)]
        rest["ids"] = list(compress(stream["ids"], kept))
        rest |= {name: stream[name][np.array(kept, dtype=np.bool_)] for name in ("id_codes", "id_died")}
    if "absent" in stream:
        absent = AbsentRows()
        absent.restore(stream)
        absent.forget(scope.erases)
        rest = {name: value for name, value in rest.items() if name != "absent"} | absent.state()
    if "subject_codes" in stream:
        subjects = Subjects()
        subjects.restore(stream)
        subjects.keep(saved.arrays["id"], saved.arrays["born"])
        rest |= subjects.state()
    return {**rest, "source": source}


def erased_classes(saved: SavedModel) -> list[Any]:
    """The classes of a state; those that its config or its user has named stay."""
    labels = saved.components.get("stream", {}).get("source", {}).get("labels", {})
    if "positive" in labels or saved.meta.get("declared", False) or not saved.classes:
        return saved.classes
    return erased(saved.classes, set(np.unique(saved.arrays["y"]).tolist()))


def _erased_labels(saved: SavedModel, labels: Mapping[str, Any]) -> dict[str, Any]:
    if "positive" in labels:  # which of the other labels live examples have is not known
        return {**labels, "rest": erased(labels["rest"], set())}
    if "classes" in labels:
        known = set(np.unique(saved.arrays["y"]).tolist())
        return {**labels, "classes": erased(labels["classes"], known)}
    return dict(labels)


def next_running(saved: SavedModel) -> int:
    """The next running number of a state; where ids are given none is handed out, and the largest one need not stay."""
    if saved.meta.get("columns", {}).get("id") is None:
        return saved.next_id
    return int(saved.arrays["id"].max(initial=-1)) + 1


def erased_records(saved: SavedModel, recorder: Mapping[str, Any], scores: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return ``recorder`` and ``scores`` of an ended stream without labels and queries of single examples."""
    asked = {name: values[:0] for name, values in recorder.items() if name.startswith("asked_")}
    registers = {"registers": np.zeros_like(scores["registers"])}
    return [{**recorder, **asked, "next_id": next_running(saved)}, {**scores, **registers}]


# The members of a state, of which a model without keys has one.


@dataclass(frozen=True)
class _Erased:
    """One member without what no live example has."""

    names: set[Any]  #: Ids of live examples, as files have them.
    labels: dict[str, str]  #: Names of classes that change, as text.
    meta: dict[str, Any]  #: Classes, categories, and next running number.

    def within(self, meta: Mapping[str, Any]) -> dict[str, Any]:
        """Return entries that say something of the member with what is left of it."""
        return {**meta, **{name: one for name, one in self.meta.items() if name in meta}}


class Erasure:
    """The members of a state with a live example; that of a model without keys stays without one, too.

    ``model`` has the arrays of the one model, if their format is not read and those of its state stay.
    """

    def __init__(self, members: SavedKeys, scope: Scope, model: Arrays | None = None) -> None:
        self._saved, self._scope, self._model = members, scope, model
        self.members: dict[Member, _Erased] = {}
        #: Counts of the keys that leave; classes and categories of the others.
        self._gone, self._classes, self._categories = Counter[str](), dict[Any, None](), dict[str, set[Any]]()
        for key in members:
            held = members.held(key)
            if key is not None and not live(held):
                counts = held.get("recorder", {})
                self._gone.update({name: int(counts.get(name, 0)) for name in TOTALS})
                continue
            saved = members.saved(key)
            classes, categories = erased_classes(saved), erased_categories(saved, saved.categories)
            labels = {str(old): str(new) for old, new in zip(saved.classes, classes, strict=True)}
            meta = {"classes": classes, "categories": categories, "next_id": next_running(saved)}
            self.members[key] = _Erased(live_names(saved), {a: b for a, b in labels.items() if a != b}, meta)
            self._classes |= dict.fromkeys(_kept(saved.classes, classes))
            for name, values in categories.items():
                self._categories.setdefault(name, set()).update(_kept(saved.categories[name], values))

    def meta(self, meta: Mapping[str, Any]) -> dict[str, Any]:
        """Return ``meta`` of a folder with the classes and categories of live examples only."""
        if None in self.members:
            return self.members[None].within(meta)
        classes = [one for one in meta["classes"] if one in self._classes or isinstance(one, bool)]
        if "positive" in self._saved.components["stream"]["source"].get("labels", {}):
            classes = meta["classes"]
        return {**meta, "classes": classes, "categories": self._live(meta["categories"])}

    def components(self) -> dict[str, dict[str, Any]]:
        """Return the components of the state."""
        if None in self.members:
            return self._state(None)
        found = {name: part for name, part in self._saved.components.items() if not name.startswith("group-")}
        if "keys" in (coordinator := found["coordinator"]):
            keys = coordinator["keys"].copy()
            for key in self._saved:
                keys[group_of(key)] -= key not in self.members
            found["coordinator"] = {**coordinator, "keys": keys}
        if "recorder" in found:
            found["recorder"] = self._counts(found["recorder"])
        return {**found, "stream": self._shared(found["stream"]), **self._groups(self._state)}

    def models(self) -> dict[str, dict[str, Any]]:
        """Return the components of the model folder."""
        if None in self.members:
            return {"arrays": self._saved.saved(None).session().model() if self._model is None else self._model}
        return self._groups(self._key_model)

    def of_keys(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Rows of a table that are about keys with live examples; the batch itself, if these are all."""
        return _chosen(batch, [key in self.members for key in batch.column("key").to_pylist()])

    def predictions(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Predictions of examples that live or are out of scope; what was only asked, without an id, too.

        None where they are numbers: one may be the label of a single deleted example. The batch itself, if all stays.
        """
        if pa.types.is_floating(batch.schema.field("prediction").type):
            return batch.slice(0, 0)
        keys = batch.column("key").to_pylist() if "key" in batch.schema.names else [None] * len(batch)
        kept = [self._keeps(key, one) for key, one in zip(keys, batch.column("id").to_pylist(), strict=True)]
        chosen, whose = _chosen(batch, kept), [*compress(keys, kept)]
        for name in ("prediction", "truth"):
            values = chosen.column(name).to_pylist()
            new = [self.members[key].labels.get(one, one) for key, one in zip(whose, values, strict=True)]
            if new != values:
                field = chosen.schema.field(name)
                chosen = chosen.set_column(chosen.schema.get_field_index(name), field, pa.array(new, field.type))
        return chosen

    def _keeps(self, key: Member, one: Any) -> bool:
        there = self.members.get(key)
        return there is not None and (one is None or one in there.names or not self._scope.erases(one))

    def _groups(self, part: Callable[[Key], dict[str, Any]]) -> dict[str, dict[str, Any]]:
        """Return the components of the groups of keys."""
        groups = {
            group: {key: part(key) for key in self._saved.of_group(group) if key in self.members}
            for group in self._saved.groups
        }
        return {f"group-{group:03d}": packed(held) for group, held in groups.items() if held}

    def _state(self, key: Member) -> dict[str, Any]:
        """Return what a member holds."""
        held, saved = self._saved.held(key), self._saved.saved(key)
        found = dict(held)
        if self._model is None:
            found["coordinator"] = saved.completed()
        if "stream" in held:
            found["stream"] = erased_stream(saved, held["stream"], self._scope)
        if "meta" in held:
            found["meta"] = self.members[key].within(held["meta"])
        if "recorder" in held:
            found["recorder"], scores = erased_records(saved, held["recorder"], saved.components["scores"])
            found["scores"] = scores if key is None else narrow(scores)
        return found

    def _key_model(self, key: Key) -> dict[str, Any]:
        own = self.members[key].within(dict.fromkeys(("classes", "categories")))
        return {"arrays": self._saved.saved(key).session().model(), **own}

    def _live(self, categories: Mapping[str, Iterable[Any]]) -> dict[str, list[Any]]:
        return {
            name: [one for one in values if one in self._categories.get(name, ())]
            for name, values in categories.items()
        }

    def _counts(self, recorder: Mapping[str, Any]) -> dict[str, Any]:
        """Return totals without the keys that leave, which a session does not count any more, and what follows them."""
        found = {**recorder, "totals": {name: count - self._gone[name] for name, count in recorder["totals"].items()}}
        if (requests := recorder.get("requests")) is not None:
            came = {name: requests[name] - self._gone[name] for name in ("inserts", "deletes")}
            found["requests"] = requests | came
        return found

    def _shared(self, stream: Mapping[str, Any]) -> dict[str, Any]:
        """Return the component of the shared dictionaries: no key refers to places in them."""
        source = dict(stream["source"])
        labels = dict(source["labels"])
        if "positive" in labels:
            labels["rest"] = erased(labels["rest"], set())
        elif "classes" in labels:
            labels["classes"] = [one for one in labels["classes"] if one in self._classes]
        source |= {"labels": labels, "categories": self._live(source["categories"])}
        before = source.get("keys", [])
        if "keys" in source:
            source["keys"] = [key for key in before if key in self.members]
        codes = {key: code for code, key in enumerate(source.get("keys", []))}
        kept = {code: codes[key] for code, key in enumerate(before) if key in codes}
        table = recoded(stream, kept, lambda code, one: self._has(None if code is None else before[code], one))
        owners = {"owned": [], "owners": stream["owners"][:0]} if "owners" in stream else {}  # the log has ended
        counts = {"n_classes": len(labels["classes"])} if "n_classes" in stream and "classes" in labels else {}
        return {**stream, "source": source, **owners, **counts, **table}

    def _has(self, key: Key | None, one: Any) -> bool:
        """Return True if an id of the table is that of a live example, or one that is not to be erased."""
        return (key in self.members and one in self.members[key].names) or not self._scope.erases(one)


def _chosen(batch: pa.RecordBatch, kept: Sequence[bool]) -> pa.RecordBatch:
    """Return the rows to keep; the batch itself, if these are all."""
    return batch if all(kept) else batch.filter(pa.array(kept, pa.bool_()))


def _kept(before: Iterable[Any], after: Iterable[Any]) -> list[Any]:
    """Return the values that stay."""
    return [one for one, new in zip(before, after, strict=True) if one == new and type(one) is type(new)]
