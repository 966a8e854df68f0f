"""A model or state folder of models by key: what its manifest says, and each key as a model or state of its own."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyarrow import fs

from raydt.arrays.lazy import Lazy
from raydt.errors import ModelFileError
from raydt.folders.arrays import open_folder
from raydt.keyed.groups import Key, group_of
from raydt.keyed.members import classes_of
from raydt.keyed.packing import unpacked
from raydt.messages import message
from raydt.redaction import marked, quoted
from raydt.sessions.saved_model import SavedModel, groups_of, outlined, understood

#: Entry of ``meta`` that names the column of keys, in folders of models by key only.
BY_KEY = "key"

#: Components of groups are called so, and a text that can be an integer.
_GROUP, _INTEGER = re.compile(r"group-(0\d\d|1\d\d|2[0-4]\d|25[0-5])"), re.compile(r"-?[0-9]{1,20}")


@contextlib.contextmanager
def fitting_keys(group: int, place: str) -> Iterator[None]:
    """Context in which values of keys that are missing, or of another kind, are damage of a folder."""
    try:
        yield
    except ModelFileError:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        missing = message("models.no_entry", name=str(error.args[0])) if isinstance(error, KeyError) else None
        reason = missing or marked("; ".join(str(error).splitlines()[:3]), type(error).__name__)
        raise ModelFileError(message("keyed.damaged", group=group, reason=reason), file=place) from error


def keys_of(arrays: Mapping[str, Any], group: int, place: str) -> dict[Key, dict[str, Any]]:
    """Return what each key of a group holds; ModelFileError names the folder if that cannot be."""
    with fitting_keys(group, place):
        held = unpacked(arrays)
        for key in held:
            if group_of(key) != group:
                raise ValueError(message("keyed.stranger", key=quoted(key)))
    return held


@dataclass
class SavedKeys:
    """Contents of a folder; ``components`` are as read, those of groups whenever they are asked for."""

    meta: dict[str, Any]
    components: Mapping[str, dict[str, Any]]
    place: str
    _read: dict[int, dict[Key, dict[str, Any]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse (ModelFileError) components that cannot be."""
        if not isinstance(self.meta.get(BY_KEY, ""), str):
            raise ModelFileError(message("models.no_entry", name=BY_KEY), file=self.place)
        for name in self.components:
            if name.startswith("group-") and not _GROUP.fullmatch(name):
                raise ModelFileError(message("keyed.no_group", component=name), file=self.place)

    @property
    def arrays(self) -> dict[str, Any]:
        """What does not belong to a group."""
        return self.components.get("coordinator", {})

    @property
    def groups(self) -> Mapping[int, dict[str, Any]]:
        """Packed keys by group, read when they are asked for."""
        return groups_of(self.components)

    @property
    def buckets(self) -> Mapping[Any, Any]:
        """None."""
        return Lazy([], lambda _: {})

    def of_group(self, group: int) -> dict[Key, dict[str, Any]]:
        """Return what each key of a group holds; the group read last is kept."""
        if group not in self._read:
            self._read = {group: keys_of(self.groups[group], group, self.place) if group in self.groups else {}}
        return self._read[group]

    def keys(self) -> Iterator[Key]:
        """Yield all keys, group by group."""
        for group in sorted(self.groups):
            yield from self.of_group(group)

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str | int) and key in self.of_group(group_of(key))

    def find(self, text: str) -> Key:
        """Return the key that a text names, as users write it; ModelFileError if there is no model for it."""
        keys: list[Key] = [text, *([int(text)] if _INTEGER.fullmatch(text) else [])]
        for key in keys:
            if key in self:
                return key
        raise self.unknown(text)

    def unknown(self, key: Key) -> ModelFileError:
        """Return the error of a key without a model."""
        return ModelFileError(message("keyed.unknown", key=quoted(key)), file=self.place)

    def outline(self) -> SavedModel:
        """Return what all keys have in common: learner, options, features, and all classes and categories."""
        return outlined(self.meta, self.components, self.place)

    def saved(self, key: Key) -> SavedModel:
        """Return one key as a model or state of its own, checked; ModelFileError if there is no such key."""
        group = group_of(key)
        held = self.of_group(group).get(key)
        if held is None:
            raise self.unknown(key)
        meta = {name: value for name, value in self.meta.items() if name != BY_KEY}
        with fitting_keys(group, self.place):
            if meta["kind"] == "model":
                meta |= {"classes": held["classes"], "categories": held["categories"]}
                return understood(meta, {"arrays": held["arrays"]}, self.place)
            meta |= {
                "classes": classes_of(held),
                "categories": held["stream"]["source"]["categories"],
                "next_id": held["recorder"]["next_id"],
                "offset": held["recorder"]["updates"],
            }
            return understood(meta, held, self.place)


def open_keys(path: Any, *, filesystem: fs.FileSystem | None = None) -> SavedKeys | None:
    """Read a folder of models by key; None if it is of one model."""
    meta, components = open_folder(path, filesystem=filesystem)
    return SavedKeys(meta, components, str(path)) if BY_KEY in meta else None
