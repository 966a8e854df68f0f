"""Whose copies a purge erases, and what it leaves out of dictionaries and texts.

A category, token or class that no live example has, and a text id that is not live, may be the deleted example itself.
Codes are places in a dictionary, so that a value cannot be removed: another takes its place, which no data have.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any

import numpy as np

from pipelines.updating.changes import StateNames
from pipelines.updating.model_data import without_a_config
from raydt.encoding.columns import number_of
from raydt.errors import InputError, UpdateError
from raydt.examples.subjects import Subjects
from raydt.learners import traits_of
from raydt.messages import message
from raydt.redaction import quoted
from raydt.sessions.saved_model import SavedModel
from raydt.streams.absent import AbsentRows
from raydt.streams.deletion_log import LoggedDeletions


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
    if "categories" not in source:  # examples that are drawn have no dictionaries
        return dict(stream)
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
