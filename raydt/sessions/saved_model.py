"""A saved model or state: what its manifest says of learner, features, classes and categories.

Runs and estimators write and read the same two kinds of folder. A *model* predicts and holds no training row; a
*state* holds everything needed to go on.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, Literal, TypeVar

from pyarrow import fs
from pydantic import BaseModel, ConfigDict, Field

from raydt.arrays.blocks import LARGEST_WIDTH, Lazy
from raydt.arrays.elementary import Arrays, Ints
from raydt.errors import FormatVersionError, ModelFileError
from raydt.examples.updates import Features, in_order, previous_names
from raydt.exchange.messages import OWNED, Buckets, buckets_in
from raydt.folders.arrays import MANIFEST, newest, open_folder
from raydt.folders.folder import Folder
from raydt.folders.segments import with_rows
from raydt.installation import __version__
from raydt.learners import learners, traits_of
from raydt.learners.base import NOTHING_DIVIDED, Learner, LearnerOptions
from raydt.messages import message
from raydt.sessions.session import InProcessSession

#: Where a run puts its model.
MODEL = "model"
#: Entry of ``meta`` that names the column of keys, in folders of models by key only (:mod:`raydt.keyed.packing`).
BY_KEY = "key"

T = TypeVar("T")


def model_meta(
    options: LearnerOptions, features: Features, classes: Sequence[Any], categories: Mapping[str, Sequence[Any]]
) -> dict[str, Any]:
    """Return the entries of a model's or state's manifest, as JSON values."""
    return {
        "learner": options.model_dump(mode="json"),
        "features": features.describe(),
        "classes": list(classes),
        "categories": {name: list(values) for name, values in categories.items()},
    }


def state_components(coordinator: Arrays, groups: Mapping[int, Arrays]) -> dict[str, Arrays]:
    """The components of a state's folder."""
    return {"coordinator": coordinator} | {f"group-{number:03d}": arrays for number, arrays in sorted(groups.items())}


def groups_of(components: Mapping[str, Arrays]) -> Mapping[int, Arrays]:
    """Of the components of a state, the arrays of each feature group, read when they are asked for."""
    return _read_later({int(name[6:]): name for name in components if name.startswith("group-")}, components)


def buckets_of(components: Mapping[str, Arrays]) -> Mapping[Buckets, Arrays]:
    """Of the components of a state, what shards have written of their rows, if it is apart; read when asked for."""
    return _read_later({part: name for name in components if (part := buckets_in(name)) is not None}, components)


def parts_of(components: Mapping[str, Arrays]) -> Mapping[Any, Arrays]:
    """Of the components of a state, all that shards restore: feature groups by number, and buckets."""
    groups, buckets = groups_of(components), buckets_of(components)
    return Lazy([*groups, *buckets], lambda part: buckets[part] if isinstance(part, Buckets) else groups[part])


def _read_later(names: Mapping[T, str], components: Mapping[str, Arrays]) -> Mapping[T, Arrays]:
    return Lazy(names, lambda key: components[names[key]])


class _Feature(BaseModel):
    """One feature in the manifest, or all ``features`` sparse ones."""

    model_config = ConfigDict(strict=True)

    name: str
    kind: Literal["numeric", "categorical", "sparse"]
    features: int = Field(0, ge=0, le=LARGEST_WIDTH)


class _OwnMeta(BaseModel):
    """The entries of ``meta`` that differ between the models of a folder of many."""

    model_config = ConfigDict(strict=True)

    classes: list[str | bool | int | float]
    categories: dict[str, list[str | bool | int | float]] = {}
    previous_labels: list[str | bool | int | float | None] = []
    next_id: int = Field(0, ge=0)
    offset: int = Field(0, ge=0)


class _Meta(_OwnMeta):
    """Part of the manifest's ``meta`` that this module reads."""

    learner: dict[str, Any]
    features: list[_Feature] = Field(min_length=1)
    columns: dict[str, str | None] = {}
    numbered: list[Annotated[list[int], Field(min_length=2, max_length=2)]] = []


@dataclass(frozen=True)
class SavedModel:
    """A folder's contents, understood."""

    learner: Learner
    options: LearnerOptions
    features: Features
    classes: list[Any]  #: Labels in the order of their codes.
    categories: dict[str, list[Any]]  #: Values of each categorical feature in the order of their codes.
    meta: dict[str, Any]
    components: Mapping[str, dict[str, Any]]  #: As :func:`raydt.folders.segments.with_rows` returns them.

    @property
    def is_state(self) -> bool:
        """True if the training rows are there."""
        return bool(self.meta["kind"] == "state")

    @property
    def previous(self) -> dict[str, Any]:
        """The last labels of the run, by the names of the features that they are of the next row; None for missing."""
        last = self.meta.get("previous_labels", [])
        return dict(zip(previous_names(len(last)), last, strict=True))

    @property
    def class_order(self) -> Ints:
        """Of a state: class codes in ascending order of their labels."""
        labels = self.components.get("stream", {}).get("source", {}).get("labels", {})
        return in_order(self.classes, "positive" in labels)

    @property
    def next_id(self) -> int:
        """Of a state: the next running number for rows without an id, above every id ever handed out."""
        return int(self.meta["next_id"])

    @property
    def arrays(self) -> Arrays:
        """Arrays of the model, or of the coordinator's state, which contain them; less what :attr:`buckets` have."""
        return self.components["coordinator" if self.is_state else "arrays"]

    def completed(self) -> Arrays:
        """Return :attr:`arrays` of a state, with those that an earlier format does not have."""
        return self.learner.completed(self.options, self.arrays)

    @property
    def groups(self) -> Mapping[int, Arrays]:
        """Arrays of each feature group of a state."""
        return groups_of(self.components)

    @property
    def buckets(self) -> Mapping[Buckets, Arrays]:
        """Arrays by row of a state that was read with these apart, by the buckets of a shard."""
        return buckets_of(self.components)

    def session(self) -> InProcessSession:
        """Of a state: a session in this process with its model and examples."""
        session = InProcessSession(self.learner, self.options, self.features, 1, NOTHING_DIVIDED)
        session.restore(self.arrays, self.groups)
        return session

    def predictor(self) -> Any:
        """As ``Learner.predictor`` makes it; of a state, from the model that it restores."""
        model = self.session().model() if self.is_state else self.arrays
        return self.learner.predictor(self.options, self.features, model)


def _features(described: list[_Feature], options: LearnerOptions) -> Features:
    dense = [feature for feature in described if feature.kind != "sparse"]
    names, categorical = tuple(f.name for f in dense), tuple(f.kind == "categorical" for f in dense)
    if len(dense) == len(described):
        return Features(names, categorical, options.feature_groups)
    last = described[-1]
    if (
        len(dense) < len(described) - 1
        or last.kind != "sparse"
        or not last.features
        or not traits_of(options).reading.sparse
    ):
        raise ValueError(message("models.sparse_last"))
    return Features(names, categorical, options.feature_groups, last.features, last.name)


def find_model(path: Any) -> str:
    """Find the folder of a model, a state, a run or checkpoints; ModelFileError if there is none."""
    text = str(os.fspath(path))
    try:
        folder = newest(Folder(text))
        places = [place.location for place in (folder, folder.inside(MODEL)) if place.has(MANIFEST)]
    except ModelFileError:
        raise
    except (OSError, ValueError) as error:
        raise ModelFileError(message("machine.not_read", reason=str(error)), file=text) from error
    if not places:
        raise ModelFileError(message("models.no_model"), file=text)
    return places[0]


def open_model(path: Any, *, filesystem: fs.FileSystem | None = None) -> SavedModel:
    """Read a model or state; ModelFileError if it is damaged, of another format, or of an unknown learner."""
    meta, components = open_folder(path, filesystem=filesystem)
    require_one(meta, str(path))
    return understood(meta, with_rows(meta, components, str(path)), str(path))


def read_parts(folder: Folder) -> Mapping[Any, Arrays]:
    """Return what shards restore of a state in a folder, to be read part by part.

    ModelFileError, also when a part is read, if owners of its rows have written them and it cannot be; otherwise, the
    state was found sound.
    """
    meta, components = open_folder(folder.root, "state", filesystem=folder.filesystem)
    rows: Mapping[str, Any] = with_rows(meta, components, folder.root, apart=True, check=False)
    if OWNED in components.get("live", {}):
        rows = understood(meta, rows, folder.root).components
    return parts_of(rows)


def learner_of(meta: Mapping[str, Any], path: str, *, any_format: bool = False) -> Learner:
    """Return the learner of a model or state; FormatVersionError for a format that it does not read."""
    options = meta["learner"]
    kind = options.get("kind") if isinstance(options, dict) else None
    if not isinstance(kind, str) or kind not in learners():
        raise ModelFileError(message("models.no_learner", learner=kind), file=path)
    learner = learners()[kind]
    try:
        _Meta.model_validate(meta)
    except ValueError as error:
        raise _unfit(meta["kind"], str(error), path) from error
    found, oldest = meta["format_version"], learner.oldest(meta["kind"], options)
    if found < oldest and not any_format:
        formats = {"format": found, "writer": meta["raydt_version"], "version": __version__, "oldest": oldest}
        said = message("models.former_format", kind=meta["kind"], learner=kind, **formats)
        raise FormatVersionError(said, file=path)
    return learner


def understood(
    meta: dict[str, Any], components: Mapping[str, dict[str, Any]], path: str, *, any_format: bool = False
) -> SavedModel:
    """Return the contents of a model or state folder, checked for all that kernels rely on.

    ``components`` are as :func:`raydt.folders.segments.with_rows` returns them, ``path`` is for messages. What owners
    have written of rows that are apart, and feature groups then, are checked whenever they are read.
    ``any_format`` tells, of a format that the learner does not read, what is the same in all: features, classes,
    categories and rows; defaults stand for unknown options, and arrays are not checked. ModelFileError if the arrays do
    not fit each other, or as :func:`learner_of`.
    """
    require_one(meta, path)
    return _sound(outlined(meta, components, path, any_format=any_format), path, any_format)


def one_of(
    outline: SavedModel, own: Mapping[str, Any], components: Mapping[str, dict[str, Any]], path: str
) -> SavedModel:
    """Return, as :func:`understood`, one model of many: what it has in common with the others is in an ``outline``.

    ``own`` are the entries of ``meta`` that are its own.
    """
    meta = {**outline.meta, **own}
    try:
        told = _OwnMeta.model_validate(meta)
    except ValueError as error:
        raise _unfit(meta["kind"], str(error), path) from error
    saved = replace(outline, classes=told.classes, categories=told.categories, meta=meta, components=components)
    if OWNED in saved.arrays:  # the rows of one of many are never apart, where they would be checked later
        raise _unfit(meta["kind"], message("states.unknown", array=OWNED, what="component"), path)
    return _sound(saved, path)


def _sound(saved: SavedModel, path: str, any_format: bool = False) -> SavedModel:
    """Return a model or state whose arrays, which are components of a folder, fit each other."""
    learner, options, features = saved.learner, saved.options, saved.features
    meta, components = saved.meta, saved.components
    try:
        groups = saved.groups if saved.is_state else None
        if not any_format:
            buckets = saved.buckets if saved.is_state else {}
            for name, number in learner.since.items() if saved.is_state else ():
                if meta["format_version"] >= number and name not in saved.arrays:
                    raise KeyError(name)
            if OWNED in saved.arrays:
                learner.check_owned(options, features, len(saved.classes), saved.arrays, None, {})
                saved = replace(saved, components=Lazy(components, partial(_checked, saved, path)))
            else:
                learner.check(options, features, len(saved.classes), saved.arrays, groups, buckets)
        if saved.is_state and OWNED not in saved.arrays:
            _in_range(saved, saved.arrays)
    except (KeyError, ValueError) as error:
        raise _unfit(meta["kind"], _reason(error), path) from error
    return saved


def _checked(saved: SavedModel, path: str, name: str) -> dict[str, Any]:
    """Read a component of a state whose rows are apart; ModelFileError if it cannot be one."""
    part, buckets = saved.components[name], buckets_in(name)
    whose = int(name.removeprefix("group-")) if name.startswith("group-") else buckets
    if whose is not None:
        try:
            options, features, classes = saved.options, saved.features, len(saved.classes)
            saved.learner.check_owned(options, features, classes, saved.arrays, whose, part)
            if buckets is not None:
                _in_range(saved, part)
        except (KeyError, ValueError) as error:
            raise _unfit("state", _reason(error), path) from error
    return part


def _reason(error: Exception) -> str:
    """Say what is wrong with an array."""
    return message("models.no_entry", name=error.args[0]) if isinstance(error, KeyError) else str(error)


def _in_range(saved: SavedModel, rows: Arrays) -> Arrays:
    """Return rows whose ids are below the next running number; ValueError if one is not."""
    if saved.next_id <= rows["id"].max(initial=-1):
        raise ValueError(message("models.next_id", next=saved.next_id))
    return rows


def outlined(
    meta: dict[str, Any], components: Mapping[str, dict[str, Any]], path: str, *, any_format: bool = False
) -> SavedModel:
    """Return what a manifest says, with components that nobody looks at; arguments and errors as of :func:`understood`.

    Of models by key, what they have in common.
    """
    learner = learner_of(meta, path, any_format=any_format)
    try:
        told = _Meta.model_validate(meta)
        options = (
            learner.Options.model_construct(**told.learner)
            if any_format
            else learner.Options.model_validate(told.learner)
        )
        features = _features(told.features, options)
    except (KeyError, ValueError) as error:
        raise _unfit(meta["kind"], str(error), path) from error
    return SavedModel(learner, options, features, told.classes, told.categories, meta, components)


def require_one(meta: Mapping[str, Any], path: str) -> None:
    """Refuse (ModelFileError) a folder with a model for each key, where one model is wanted."""
    if BY_KEY in meta:
        raise ModelFileError(message("keyed.folder"), file=path)


def _unfit(kind: str, reason: str, path: str) -> ModelFileError:
    return ModelFileError(message("models.unfit", kind=kind, reason="; ".join(reason.splitlines()[:3])), file=path)
