"""A model or state folder of models by key: what its manifest says, and each key as a model or state of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyarrow import fs

from raydt.arrays.lazy import Lazy
from raydt.errors import ModelFileError
from raydt.folders.arrays import open_folder
from raydt.keyed.groups import Key, group_of
from raydt.keyed.packing import unpacked
from raydt.messages import message
from raydt.sessions.saved_model import SavedModel, groups_of, outlined, understood

#: Entry of ``meta`` that names the column of keys, in folders of models by key only.
BY_KEY = "key"


@dataclass
class SavedKeys:
    """Contents of a folder; ``components`` are as read, those of groups whenever they are asked for."""

    meta: dict[str, Any]
    components: Mapping[str, dict[str, Any]]
    place: str
    _read: dict[int, dict[Key, dict[str, Any]]] = field(default_factory=dict)

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
            try:
                held = unpacked(self.groups[group]) if group in self.groups else {}
            except (KeyError, ValueError, TypeError, AttributeError) as error:
                raise ModelFileError(
                    message("keyed.damaged", group=group, reason=str(error)), file=self.place
                ) from error
            self._read = {group: held}
        return self._read[group]

    def keys(self) -> Iterator[Key]:
        """Yield all keys, group by group."""
        for group in sorted(self.groups):
            yield from self.of_group(group)

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str | int) and key in self.of_group(group_of(key))

    def find(self, text: str) -> Key:
        """Return the key that a text names, as users write it; ModelFileError if there is no model for it."""
        if text in self:
            return text
        if text.lstrip("-").isdigit() and int(text) in self:
            return int(text)
        raise ModelFileError(message("keyed.unknown", key=text), file=self.place)

    def outline(self) -> SavedModel:
        """Return what all keys have in common: learner, options, features, and all classes and categories."""
        return outlined(self.meta, self.components, self.place)

    def saved(self, key: Key) -> SavedModel:
        """Return one key as a model or state of its own, checked; ModelFileError if there is no such key."""
        held = self.of_group(group_of(key)).get(key)
        if held is None:
            raise ModelFileError(message("keyed.unknown", key=str(key)), file=self.place)
        meta = {name: value for name, value in self.meta.items() if name != BY_KEY}
        if meta["kind"] == "model":
            meta |= {"classes": held["classes"], "categories": held["categories"]}
            return understood(meta, {"arrays": held["arrays"]}, self.place)
        stream, recorder = held["stream"], held["recorder"]
        labels = stream["source"]["labels"]
        classes = labels.get("classes", labels.get("names", []))
        meta |= {
            "classes": classes[: stream["n_classes"]],
            "categories": stream["source"]["categories"],
            "next_id": recorder["next_id"],
            "offset": recorder["updates"],
        }
        return understood(meta, held, self.place)


def open_keys(path: Any, *, filesystem: fs.FileSystem | None = None) -> SavedKeys | None:
    """Read a folder of models by key; None if it is of one model."""
    meta, components = open_folder(path, filesystem=filesystem)
    return SavedKeys(meta, components, str(path)) if BY_KEY in meta else None
