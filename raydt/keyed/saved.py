"""A model or state folder of models by key: what its manifest says, and each key as a model or state of its own."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from pyarrow import fs

from raydt.arrays.lazy import Lazy
from raydt.arrays.types import Ints
from raydt.encoding.numerals import integer_of
from raydt.errors import ModelFileError
from raydt.folders.arrays import open_folder
from raydt.keyed.groups import GROUPS, Key, digest_of_group, digest_of_groups, group_of
from raydt.keyed.members import classes_of
from raydt.keyed.packing import unpacked
from raydt.keyed.scores import whole
from raydt.learners.base import NOTHING_DIVIDED
from raydt.messages import message
from raydt.redaction import marked, quoted
from raydt.sessions.saved_model import BY_KEY, SavedModel, groups_of, one_of, outlined
from raydt.sessions.session import InProcessSession

#: Entry of the outline's ``meta``: the column of keys, if they are text.
TEXT_KEY = "text_key"

#: Components of groups are called so.
_GROUP = re.compile(r"group-(0\d\d|1\d\d|2[0-4]\d|25[0-5])")


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
        if not isinstance(self.meta.get(BY_KEY, ""), str | None):
            raise ModelFileError(message("models.no_entry", name=BY_KEY), file=self.place)
        for name in self.components:
            if name.startswith("group-") and not _GROUP.fullmatch(name):
                raise ModelFileError(message("keyed.no_group", component=name), file=self.place)

    @property
    def arrays(self) -> dict[str, Any]:
        """The arrays of the coordinator, which belong to no group of keys."""
        return self.components.get("coordinator", {})

    @cached_property
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

    __iter__ = keys

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str | int) and key in self.of_group(group_of(key))

    @cached_property
    def figures(self) -> Figures:
        """Figures of all groups: as the state that an update wrote says, else from the models."""
        if "digests" in self.arrays:
            return Figures(*(self.arrays[name] for name in Figures._fields))
        return self.counted()

    def counted(self) -> Figures:
        """Return figures of all groups, from their models."""
        found = Figures.none()
        for group in self.groups:
            self.count(found, group, self.of_group(group))
        return found

    def count(self, figures: Figures, group: int, held: Mapping[Key, Mapping[str, Any]]) -> None:
        """Enter the figures of a group, from what its keys hold."""
        alive = {key: live(one) for key, one in held.items()}
        digests = {key: str(self.understood(held[key]).session().digest()) for key, n in alive.items() if n}
        figures.keys[group], figures.active[group] = len(alive), sum(alive.values())
        digest = bytes.fromhex(digest_of_group(digests).removeprefix("sha256:"))
        figures.digests[group] = np.frombuffer(digest, dtype=np.uint8) if digest else 0

    @property
    def warmup(self) -> int:
        """Updates of the warm-up of a key."""
        meta = self.meta
        return int(meta["warmup"] if "warmup" in meta else meta.get("config", {}).get("stream", {}).get("warmup", 0))

    @cached_property
    def kind(self) -> Literal["integer", "text"]:
        """Kind of the keys; text if there are none."""
        return "integer" if isinstance(next(self.keys(), ""), int) else "text"

    def named(self, value: Key) -> Key | None:
        """Return the key with a model that a value names, as users write it; None if there is none.

        A text names the key of this text or, without one, that of the integer it writes. An integer names the integer.
        """
        written = integer_of(value) if isinstance(value, str) else None
        return next((key for key in (value, written) if key is not None and key in self), None)

    def find(self, text: str) -> Key:
        """Return the key that a text names, as :meth:`named`; ModelFileError if there is no model for it."""
        key = self.named(text)
        if key is None:
            raise self.unknown(text)
        return key

    def unknown(self, key: Key) -> ModelFileError:
        """Return the error of a key without a model."""
        return ModelFileError(message("keyed.unknown", key=quoted(key)), file=self.place)

    def outline(self) -> SavedModel:
        """Return what all keys have in common: learner, options, features, and all classes and categories."""
        outline = outlined(self.meta, self.components, self.place)
        text = {TEXT_KEY: self.meta[BY_KEY]} if self.kind == "text" else {}
        return replace(outline, meta=outline.meta | text)

    def held(self, key: Key) -> dict[str, Any]:
        """Return what one key holds; ModelFileError if there is no such key."""
        held = self.of_group(group_of(key)).get(key)
        if held is None:
            raise self.unknown(key)
        return held

    def saved(self, key: Key) -> SavedModel:
        """Return one key as a model or state of its own, checked; ModelFileError if there is no such key."""
        with fitting_keys(group_of(key), self.place):
            return self.understood(self.held(key))

    def understood(self, held: Mapping[str, Any]) -> SavedModel:
        """Return what a key holds as a model or state of its own, checked."""
        if self.meta["kind"] == "model":
            own = {"classes": held["classes"], "categories": held["categories"]}
            return one_of(self._outline_of_one, own, {"arrays": held["arrays"]}, self.place)
        held = {**held, "scores": whole(held["scores"])} if "scores" in held else dict(held)
        return one_of(self._outline_of_one, own_meta(held), held, self.place)

    def beginning(self) -> SavedModel:
        """Return the state of a key that has no row yet."""
        labels = self.components["stream"].get("source", {}).get("labels", {})
        labels = labels if "positive" in labels else {"classes": []}
        classes = list(labels.get("names", [])) if "positive" in labels else []
        own = {"classes": classes, "categories": {}, "next_id": 0, "offset": 0}
        none = {"id": np.empty(0, dtype=np.int64), "born": np.empty(0, dtype=np.int64)}
        stream = {"source": {"categories": {}, "labels": labels}}
        common, components = self.outline(), dict[str, dict[str, Any]](coordinator=none, stream=stream)
        meta = self._meta_of_one() | own
        return _Beginning(common.learner, common.options, common.features, classes, {}, meta, components)

    @cached_property
    def _outline_of_one(self) -> SavedModel:
        return outlined(self._meta_of_one(), self.components, self.place)

    def _meta_of_one(self) -> dict[str, Any]:
        return {name: value for name, value in self.meta.items() if name != BY_KEY}


class _Beginning(SavedModel):
    """A state without anything."""

    def session(self) -> InProcessSession:
        """Return a session at its beginning."""
        return InProcessSession(self.learner, self.options, self.features, 1, NOTHING_DIVIDED)


def own_meta(held: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries of ``meta`` that are a key's own, of what it holds: written by an update, or by a run."""
    if "meta" in held:
        return {name: held["meta"][name] for name in ("classes", "categories", "next_id", "offset")}
    stream, recorder = held["stream"], held["recorder"]
    return {
        "classes": classes_of(held),
        "categories": stream["source"]["categories"],
        "next_id": recorder["next_id"],
        "offset": recorder["updates"],
    }


def live(held: Mapping[str, Any]) -> int:
    """Return how many live examples a key of a state has."""
    return len(held["coordinator"]["id"])


class Figures(NamedTuple):
    """Of each group of keys: how many keys and live examples it has, shape (256,), and its digest, shape (256, 32)."""

    keys: Ints
    active: Ints
    digests: npt.NDArray[np.uint8]  #: Zeros of a group without one.

    @classmethod
    def none(cls) -> Figures:
        """Return those of no key."""
        counts = np.zeros((2, GROUPS), dtype=np.int64)
        return cls(counts[0], counts[1], np.zeros((GROUPS, 32), dtype=np.uint8))

    @property
    def digest(self) -> str:
        """The digest over all keys."""
        return digest_of_groups(
            {group: f"sha256:{row.tobytes().hex()}" for group, row in enumerate(self.digests) if row.any()}
        )


def open_keys(path: Any, *, filesystem: fs.FileSystem | None = None) -> SavedKeys | None:
    """Read a folder of models by key; None if it is of one model."""
    meta, components = open_folder(path, filesystem=filesystem)
    return SavedKeys(meta, components, str(path)) if BY_KEY in meta else None
