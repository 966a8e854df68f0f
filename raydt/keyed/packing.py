"""The states of many keys as one component of a folder: arrays of one name one after another, values as JSON.

Invariant: :func:`unpacked` gives what :func:`packed` was given, bit for bit.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from pyarrow import fs

from raydt.arrays.blocks import Column, Lazy
from raydt.arrays.elementary import AnyArray, Arrays, Ints
from raydt.encoding.columns import Dictionary, integer_of
from raydt.errors import ModelFileError
from raydt.examples.digest import DIGEST_2
from raydt.exchange.messages import Parts, Segment, Snapshot
from raydt.folders.arrays import FileEntry, open_folder, parsed, publish_component, read_manifest
from raydt.folders.checkpoint import BESIDE, ROWS, Checkpoint, CheckpointContent, CheckpointStore
from raydt.folders.folder import Folder
from raydt.folders.segments import CheckpointPlace, PartsElsewhere, Written
from raydt.keyed.groups import GROUPS, Key, bytes_of, digest_of, digest_of_group, digest_of_groups, group_of, in_order
from raydt.keyed.members import classes_of, whole
from raydt.keyed.source import WholeSource
from raydt.learners import traits_of
from raydt.learners.base import NOTHING_DIVIDED
from raydt.messages import marked, message, quoted
from raydt.sessions.saved_model import BY_KEY, SavedModel, groups_of, one_of, outlined
from raydt.sessions.session import InProcessSession
from raydt.sources.file_source import StoredSource
from raydt.streams.row_stream import labels_before

#: Between the names of nested values.
_SEPARATOR = "/"
#: Most values, of which it takes long to ask whether they are a Mapping.
_PLAIN = (int, float, str, list, type(None))

#: Places of keys and their arrays, by path, type and number of dimensions.
_Found = defaultdict[tuple[str, str, int], list[tuple[int, AnyArray]]]


def packed(values: Mapping[Key, Mapping[str, Any]], columns: Mapping[str, Column] | None = None) -> Arrays:
    """Return nested mappings of arrays and JSON values, by key, as arrays; ``columns`` have others, by path.

    ``json`` has the keys and what is no array, as UTF-8. For each path of names under which some key has an array there
    are ``<path>`` (all of the one dtype, one after another), ``<path>#shape`` (n, dimensions) and ``<path>#key`` (n,),
    the places of the keys that have one. O(values).
    """
    keys = sorted(values, key=bytes_of)
    found: _Found = defaultdict(list)
    rest = [[key, _taken_apart(values[key], "", place, found)] for place, key in enumerate(keys)]
    text = json.dumps(rest, allow_nan=False, separators=(",", ":"))
    whole: Arrays = {"json": np.frombuffer(text.encode(), dtype=np.uint8)}
    for (path, dtype, dimensions), parts in found.items():
        name = f"{path}#{dtype[1:]}#{dimensions}"
        places, arrays = zip(*parts, strict=True)
        shapes = [length for part in arrays for length in part.shape] if dimensions != 1 else list(map(len, arrays))
        whole[name] = np.concatenate(arrays, axis=None if dimensions != 1 else 0)
        whole[f"{name}#shape"] = np.array(shapes, dtype=np.int64).reshape(len(parts), -1)
        whole[f"{name}#key"] = np.array(places, dtype=np.int64)
    for path, (one, shape, place) in (columns or {}).items():
        name = f"{path}#{one.dtype.str[1:]}#{shape.shape[1]}"
        whole |= {name: one, f"{name}#shape": shape, f"{name}#key": place}
    return whole


def _taken_apart(value: Mapping[str, Any], path: str, place: int, found: _Found) -> dict[str, Any]:
    """Return the JSON value without its arrays, which are noted by name, behind a path, with the place of their key."""
    rest: dict[str, Any] = {}
    for name, one in value.items():
        if isinstance(one, np.ndarray):
            found[f"{path}{name}", one.dtype.str, one.ndim].append((place, one))
        elif isinstance(one, dict) or (not isinstance(one, _PLAIN) and isinstance(one, Mapping)):
            rest[name] = _taken_apart(one, f"{path}{name}{_SEPARATOR}", place, found)
        else:
            rest[name] = one
    return rest


def unpacked(arrays: Mapping[str, AnyArray]) -> dict[Key, dict[str, Any]]:
    """Return what was packed, by key; ValueError or TypeError if no :func:`packed` has made it. O(values)."""
    rest = _entries(arrays["json"])
    values = [value for _, value in rest]
    names = [name for name in arrays if name.count("#") == 2]
    wanted = {"json", *(f"{name}{part}" for name in names for part in ("", "#shape", "#key"))}
    if wanted != arrays.keys():
        raise ValueError(message("keyed.uneven", name=min(wanted.symmetric_difference(arrays))))
    for name in names:
        whole, shapes, places = arrays[name], arrays[f"{name}#shape"], arrays[f"{name}#key"]
        path, dtype, dimensions = name.split("#")
        if (
            (whole.dtype.str[1:], whole.ndim, shapes.ndim, shapes.dtype) != (dtype, 1, 2, places.dtype)
            or (places.dtype, places.shape, str(shapes.shape[1])) != (np.dtype(np.int64), shapes.shape[:1], dimensions)
            or not _ascending(places, len(values))
            or shapes.min(initial=0) < 0
        ):
            raise ValueError(message("keyed.uneven", name=name))
        begin = 0
        for place, shape in zip(places.tolist(), shapes.tolist(), strict=True):
            end = begin + math.prod(shape)
            _put(values[place], path.split(_SEPARATOR), whole[begin:end].reshape(shape).copy())
            begin = end
        if begin != len(whole):
            raise ValueError(message("keyed.uneven", name=name))
    return dict(rest)


def _entries(text: AnyArray) -> list[tuple[Key, dict[str, Any]]]:
    """Return the keys, each once and in their order, and what is no array of each."""
    if text.dtype != np.uint8:
        raise ValueError(message("keyed.uneven", name="json"))
    try:
        rest = parsed(text.tobytes())
    except RecursionError as error:
        raise ValueError(str(error)) from error
    for key, value in rest:
        if type(key) not in (str, int) or not isinstance(value, dict):
            raise ValueError(message("keyed.uneven", name="json"))
    names = [bytes_of(key) for key, _ in rest]
    if any(a >= b for a, b in pairwise(names)) or len({type(key) for key, _ in rest}) > 1:
        raise ValueError(message("keyed.uneven", name="json"))
    return [(key, value) for key, value in rest]


def _ascending(places: Ints, end: int) -> bool:
    """Return True if places of keys are each there once, in order, from 0 up to before ``end``."""
    return bool(len(places) and places[0] >= 0 and places[-1] < end and (np.diff(places) > 0).all())


def _put(holder: dict[str, Any], path: list[str], array: AnyArray) -> None:
    """Enter an array where nothing is yet."""
    for name in path[:-1]:
        holder = holder.setdefault(name, {})
    if not isinstance(holder, dict) or path[-1] in holder:
        raise ValueError(message("keyed.uneven", name=_SEPARATOR.join(path)))
    holder[path[-1]] = array


# A model or state folder of models by key: what its manifest says, and each key as a model or state of its own.

#: The key of a member of a run; None of the one member of a run without keys.
Member = Any
#: Entry of the outline's ``meta``: the column of keys, if they are text.
TEXT_KEY = "text_key"

#: Array of the coordinator: in which format the digests of groups are that an update has written; ``raydt-digest-2``
#: without it.
_FORMAT = "digest_format"
#: Components of groups are called so.
_GROUP = re.compile(r"group-(0\d\d|1\d\d|2[0-4]\d|25[0-5])")


def _of_text(text: str) -> npt.NDArray[np.uint8]:
    return np.frombuffer(text.encode(), dtype=np.uint8)


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

    unit = "row"  #: By which states are numbered.
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
        known = self.arrays.get(_FORMAT, _of_text(DIGEST_2))
        if "digests" in self.arrays and known.tobytes() == _of_text(self._formats[0]).tobytes():
            return Figures(*(self.arrays[name] for name in Figures._fields))
        return self.counted()

    @property
    def _formats(self) -> tuple[str, ...]:
        return traits_of(self.outline().options).digests

    def written(self, figures: Figures) -> Arrays:
        """Return the arrays of a coordinator with these figures."""
        return {**figures._asdict(), **({_FORMAT: _of_text(self._formats[0])} if len(self._formats) > 1 else {})}

    def counted(self, former: bool = False) -> Figures:
        """Return figures of all groups, from their models."""
        found = Figures.none()
        for group in self.groups:
            self.count(found, group, self.of_group(group), former)
        return found

    def digest(self) -> str:
        """Return the digest over all keys, as the state says it."""
        return self.figures.digest

    def total(self, former: bool = False) -> Total:
        """Return the digest over all keys, from their models, and how many live examples they have.

        ``former``: as of :meth:`raydt.sessions.session.Engine.digest`.
        """
        figures = self.counted(former)
        return Total(figures.digest, int(figures.active.sum()))

    def former(self) -> str | None:
        """Return the digest in the format before the present one; None if the learner has had no other."""
        return self.total(former=True).digest if len(self._formats) > 1 else None

    def has_digest(self, stated: str) -> bool:
        """Return True if a stored digest is that of the models, in the present format or the one before it."""
        return stated == self.digest() or stated == self.former()

    def digest_of(self, digests: Mapping[Member, str]) -> str:
        """Return the digest over all keys, from the digest of each key's model."""
        return digest_of(digests)

    def count(self, figures: Figures, group: int, held: Mapping[Key, Mapping[str, Any]], former: bool = False) -> None:
        """Enter the figures of a group, from what its keys hold."""
        alive = {key: live(one) for key, one in held.items()}
        digests = {key: self.understood(held[key]).session().digest(former) for key, n in alive.items() if n}
        figures.keys[group], figures.active[group] = len(alive), sum(alive.values())
        digest = bytes.fromhex(digest_of_group(digests).removeprefix("sha256:"))
        figures.digests[group] = np.frombuffer(digest, dtype=np.uint8) if digest else 0

    def groups_with(self, changed: Mapping[Key, Mapping[str, Any]]) -> dict[int, dict[Key, Mapping[str, Any]]]:
        """Return what each key holds, of the groups with keys that hold something else from now on."""
        groups: dict[int, dict[Key, Mapping[str, Any]]] = {}
        for key in in_order(changed):
            group = group_of(key)
            groups.setdefault(group, dict(self.of_group(group)))[key] = changed[key]
        return groups

    def regrouped(
        self, first: Mapping[str, dict[str, Any]], groups: Mapping[int, Mapping[Key, Mapping[str, Any]]]
    ) -> Mapping[str, dict[str, Any]]:
        """Return the components of a folder: ``first``, and all groups, some of which hold something else.

        Groups are read, and packed, as they are asked for.
        """
        names = {f"group-{group:03d}": group for group in sorted({*self.groups, *groups})}

        def part(name: str) -> dict[str, Any]:
            if name in first:
                return first[name]
            group = names[name]
            return packed(groups[group]) if group in groups else dict(self.groups[group])

        return Lazy([*first, *names], part)

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

    def held(self, key: Member) -> Mapping[str, Any]:
        """Return what one key holds; ModelFileError if there is no such key."""
        held = self.of_group(group_of(key)).get(key)
        if held is None:
            raise self.unknown(key)
        return held

    def saved(self, key: Member) -> SavedModel:
        """Return one key as a model or state of its own, checked; ModelFileError if there is no such key."""
        with fitting_keys(group_of(key), self.place):
            return self.understood(self.held(key))

    def understood(self, held: Mapping[str, Any]) -> SavedModel:
        """Return what a key holds as a model or state of its own, checked."""
        if self.meta["kind"] == "model":
            own = {name: held[name] for name in ("classes", "categories", "previous_labels") if name in held}
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


class SavedOne(SavedKeys):
    """A folder of one model: a mapping with one member, whose key is None."""

    unit = "offset"

    def __init__(self, saved: SavedModel, place: str) -> None:
        self.meta, self.components, self.place, self._one = saved.meta, saved.components, place, saved

    def keys(self) -> Iterator[Member]:
        """Yield the key of the one member."""
        yield None

    __iter__ = keys

    def __contains__(self, key: object) -> bool:
        return key is None

    def digest(self) -> str:
        """Return the digest of the model."""
        return self.total().digest

    def total(self, former: bool = False) -> Total:
        """Return the digest of the model, and how many live examples it has."""
        session = self._one.session()
        return Total(session.digest(former), session.coordinator.store.live)

    def digest_of(self, digests: Mapping[Member, str]) -> str:
        """Return the digest of the one member."""
        (digest,) = digests.values()
        return digest

    def find(self, text: str) -> Key:
        """Refuse (ModelFileError) a key."""
        raise ModelFileError(message("keyed.one"), file=self.place)

    def outline(self) -> SavedModel:
        """Return the model."""
        return self._one

    def held(self, key: Member) -> Mapping[str, Any]:
        """Return the components of the folder."""
        return self.components

    def saved(self, key: Member) -> SavedModel:
        """Return the model."""
        return self._one


class _Beginning(SavedModel):
    """A state without anything."""

    def session(self) -> InProcessSession:
        """Return a session at its beginning."""
        return InProcessSession(self.learner, self.options, self.features, 1, NOTHING_DIVIDED)


def own_meta(held: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries of ``meta`` that are a key's own, of what it holds: written by an update, or by a run."""
    if "meta" in held:
        return {name: held["meta"][name] for name in ("classes", "categories", "next_id", "offset")}
    stream, recorder, classes = held["stream"], held["recorder"], classes_of(held)
    return {
        "classes": classes,
        "categories": stream["source"]["categories"],
        **labels_before(stream, classes),
        "next_id": recorder["next_id"],
        "offset": recorder["updates"],
    }


class Total(NamedTuple):
    """Sums over the models of all keys."""

    digest: str
    live: int  #: Live examples.


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


# Checkpoints of models by key: a file for each group, shared by the checkpoints in which it has not changed.

log = logging.getLogger(__name__)


def write_groups(place: CheckpointPlace, parts: Parts) -> Written:
    """Write the groups of keys beside the checkpoint, to be shared."""
    files = []
    for group, found in parts.items():
        files += publish_component(place.folder, f"group-{group:03d}", found.state, beside=place.beside)
    return Written([], files)


class KeyedStore(CheckpointStore):
    """The checkpoints of one run; a snapshot has the groups that have changed since the one before, or are not stored.

    A file of a group holds the live rows of its keys at the time of its snapshot. None of them was deleted since, or
    the group would have changed: so a checkpoint has no older copies than itself.
    """

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._groups: dict[str, FileEntry] = {}  # of the checkpoint written or read last, by component

    @property
    def segments(self) -> list[Segment]:
        """Return what the next snapshot can omit: the groups of the last checkpoint whose files exist."""
        self.copies.ask()
        with contextlib.suppress(OSError):  # the write looks again, and says what is wrong
            missing = self._missing_groups()
            if missing:
                log.warning(message("models.segment_again", folder=self.folder.location, segment=min(missing)))
            self._groups = {name: file for name, file in self._groups.items() if file.name not in missing}
        groups = [int(name.removeprefix("group-")) for name in self._groups]
        return [Segment(group, group + 1, 0) for group in sorted(groups)]

    def _missing_groups(self) -> set[str]:
        there = set(self.folder.names(ROWS)) if self._groups else set()
        return {file.name for file in self._groups.values() if file.name.removeprefix(BESIDE) not in there}

    def continue_from(self, checkpoint: Checkpoint | None) -> None:
        """Have the next checkpoint follow this one; see the base class."""
        super().continue_from(checkpoint)
        self._groups = {}
        if checkpoint is not None:
            files = read_manifest(self.folder.inside(str(checkpoint.number))).files
            self._groups = {file.component: file for file in files if file.name.startswith(BESIDE)}

    def _beside(self, component: str) -> str:
        """Groups lie beside the checkpoint, so that those that follow can share them."""
        return BESIDE if component.startswith("group-") else ""

    def write(self, content: CheckpointContent) -> int:
        """Write a checkpoint; after an error the next one has all groups, since its snapshot forgot which changed."""
        try:
            return super().write(content)
        except BaseException:
            self._groups = {}
            raise

    def _write_rows(self, folder: Folder, number: int, snapshot: Snapshot) -> tuple[list[Any], Any, Mapping[str, Any]]:
        """Write the groups of the snapshot; the others are shared. FileNotFoundError if a file of one is gone."""
        place, parts = CheckpointPlace(folder, BESIDE, Segment(0, number, 0), none_live=True), snapshot.parts
        written_by = (
            parts.write(place) if isinstance(parts, PartsElsewhere) else (write_groups(place, p) for p in parts)
        )
        for written in written_by:
            self._groups |= {entry.component: entry for entry in written.rest}
        missing = self._missing_groups()
        if missing:
            raise FileNotFoundError(errno.ENOENT, message("models.segment_removed"), min(missing))
        return [], sorted(self._groups.values(), key=lambda file: file.component), snapshot.state


# All rows of a source that names a column of keys, read once, for any number of keyed streams.


class StoredKeys(StoredSource):
    """A :class:`~raydt.sources.file_source.StoredSource` with what keyed streams ask of a source: its dictionaries.

    Whoever makes it has had the source read event times, if streams need some. Memory: also that of the dictionaries.
    """

    def __init__(self, source: WholeSource) -> None:
        super().__init__(source)
        self.keys, self.key_kind, self.key_column = source.keys, source.key_kind, source.key_column
        self.label_values = source.label_values
        self._categories, self._labels = source.categories(), source.state(0)["labels"]

    def categories(self) -> dict[str, Dictionary]:
        """Return the dictionaries by column, of all rows."""
        return self._categories

    def state(self, row: int | None = None) -> dict[str, Any]:
        """Return the resolution of positive labels."""
        return {"labels": self._labels}
