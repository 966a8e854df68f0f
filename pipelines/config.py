"""The whole configuration of a job, and how it is read.

Order: defaults, then the file, then ``--set``. ``source``, ``stream`` and ``learner`` are the *model config*: they
decide the model and are hashed. ``cluster``, ``checkpoint``, ``erasure``, ``follow`` and ``output`` are operation: they
never change the model (``pipelines.operation``). The options of sources, streams and learners are defined next to them
and found by ``kind`` or ``model``.
"""

from __future__ import annotations

import copy
import difflib
import functools
import hashlib
import json
import logging
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    PrivateAttr,
    ValidationError,
    model_validator,
)
from pydantic_core import CoreSchema, ErrorDetails, SchemaValidator, core_schema

from pipelines.operation import (
    DEEPEST,
    CheckpointOptions,
    ClusterOptions,
    Erasure,
    Follow,
    Output,
    dump_yaml,
    load_yaml,
)
from raydt.errors import ConfigError
from raydt.examples.updates import Reading, rules_of_format
from raydt.learners import learners, no_weights, traits_of
from raydt.learners.base import LearnerOptions
from raydt.messages import Message, message, message_of, shortened
from raydt.sessions.adaptive_window import AdaptiveWindow
from raydt.sources.base import FileOptions
from raydt.sources.live.base import LiveOptions, kinds
from raydt.sources.options import SourceOptions, SyntheticOptions
from raydt.streams.base import microseconds
from raydt.streams.deletion_log import Changelog, DeletionLog, RandomUpdates
from raydt.streams.windows import Batches, Incremental, SlidingWindow, TimeWindow, Training

# Errors that pydantic found in a config, as messages by which the reader can correct them.
#
# One for each problem: the dotted key, the value, what is wrong, and the nearest valid name where a key or a choice is
# unknown. What is valid is read from the JSON Schema, so that nothing here knows a source, a stream or a
# learner.

Schema = Mapping[str, Any]


def describe(error: ValidationError, schema: Schema) -> list[Message]:
    """Return one message for each problem; ``schema`` is the JSON Schema of the model that refused the config."""
    found: dict[str, list[Message]] = {}
    meanings: dict[str, str] = {}
    # Unknown sections first: a misspelt one is also missed under its right name.
    problems = sorted(
        error.errors(include_url=False), key=lambda p: not (p["type"] == "extra_forbidden" and len(p["loc"]) == 1)
    )
    for problem in problems:
        place = _walk(schema, problem["loc"])
        key, what = _in_words(problem, place)
        if problem["type"] == "literal_error" and key in found:
            what = Message(", ".join(_literals(problem)))  # the other branches of the union have spoken before
        found.setdefault(key, []).append(what)  # the branches of a union complain one by one about one key
        meaning = place.node.get("description") or place.described
        if problem["type"] in _SENTENCES and meaning and not isinstance(problem["input"], Mapping):
            meanings[key] = f" ({meaning})"
    joined = [(key, _joined(whats, meanings.get(key, ""))) for key, whats in found.items()]
    # What is wrong between two sections has no key of its own.
    return [what.at(key) if key else what for key, what in joined]


def _joined(whats: Sequence[Message], meaning: str) -> Message:
    """Return the first of the problems of one key, with the words of all and the meaning of the key."""
    if len(whats) == 1 and not meaning:
        return whats[0]
    problem = ", or ".join(dict.fromkeys(what.problem for what in whats)) + meaning
    remedy = next((what.remedy for what in whats if what.remedy), "")
    return Message(problem, remedy, whats[0].id, whats[0].parameters)


def refused_nulls(error: ValidationError, schema: Schema, nulls: Mapping[str, bool]) -> list[str]:
    """Return the keys among ``nulls`` whose null was refused, but those misspelt: new and known to nothing."""
    found = dict[str, None]()
    for problem in error.errors(include_url=False):
        place = _walk(schema, problem["loc"])
        key = ".".join(place.path)
        if key in nulls and problem["input"] is None:
            unknown = problem["type"] == "extra_forbidden" and not nulls[key] and not place.users()
            found |= {} if unknown else {key: None}
    return list(found)


def _in_words(problem: ErrorDetails, place: _Place) -> tuple[str, Message]:
    """Return the key, with its value where the value is wrong, and what is wrong."""
    key, value, context = shortened(".".join(place.path)), problem["input"], problem.get("ctx", {})
    kind, with_value = problem["type"], f"{key} = {short(value)}"
    if kind == "extra_forbidden":
        return with_value, place.unknown_key()
    if kind == "missing":
        return key, message("configs.missing_key", example=place.example(key))
    if kind == "union_tag_not_found":
        name, choices = place.choices()
        return f"{key}.{name}", message("configs.missing_choice", choices=", ".join(choices))
    if kind == "union_tag_invalid":
        name, choices = place.choices()
        tag = str(context["tag"])
        return f"{key}.{name} = {short(tag)}", _one_of(tag, choices)
    if kind == "literal_error":
        return with_value, _one_of(str(value), _literals(problem))
    if kind in _SENTENCES:
        what = message(f"configs.{_SENTENCES[kind]}", **context)
    else:
        what = message_of(context.get("error", ValueError())) or Message(
            problem["msg"].removeprefix("Value error, ").removeprefix(f"{key}: ")
        )
    return key if isinstance(value, Mapping) else with_value, what


def _literals(problem: ErrorDetails) -> list[str]:
    names = problem.get("ctx", {})["expected"].replace(" or ", ", ").split(", ")
    return [name.strip("'") for name in names]


#: Names of the sentences of pydantic's types of problems.
_SENTENCES = {
    "model_attributes_type": "mapping",
    "model_type": "mapping",
    "dict_type": "mapping",
    "greater_than_equal": "least",
    "greater_than": "more",
    "less_than_equal": "most",
    "less_than": "less",
    "int_type": "integer",
    "int_parsing": "integer",
    "int_from_float": "integer",
    "float_type": "number",
    "float_parsing": "number",
    "finite_number": "finite",
    "string_type": "text",
    "bool_type": "boolean",
    "list_type": "list",
    "too_short": "empty_list",
    "string_too_short": "short_text",
    "string_too_long": "long_text",
}


@dataclass
class _Place:
    """The place of a problem: its key, the schema there, the object that holds the key, and the unions on the way."""

    schema: Schema
    node: Schema
    path: list[str] = field(default_factory=list)
    holder: Schema = field(default_factory=dict)
    unions: list[Schema] = field(default_factory=list)

    @property
    def described(self) -> str:
        """Description of the key here, from its field."""
        described: str = self.holder.get("properties", {}).get(self.path[-1], {}).get("description", "")
        return described

    def example(self, key: str) -> str:
        """Remedy for a key that is missing."""
        if "discriminator" in self.node:
            name, choices = self.choices()
            rest = ", ..." if len(choices) > 1 else ""
            return f"{key}: {{{name}: {' | '.join(choices)}{rest}}}"
        return f"{key}: {self.described}" if self.described else "this key"

    def choices(self) -> tuple[str, list[str]]:
        """Name and values of the key that decides the union here."""
        union = self.node["discriminator"]
        return union["propertyName"], sorted(union["mapping"])

    def users(self) -> list[str]:
        """The other choices of the union here that have this key."""
        return sorted({user for union in self.unions[:1] for user in _users(self.schema, union, self.path[-1])})

    def unknown_key(self) -> Message:
        """Return the problem of a key that is not known, with its remedy."""
        name, users = self.path[-1], self.users()
        if users:
            return message("configs.foreign_key", users=", ".join(users))
        valid = list(self.holder.get("properties", {}))
        close = _closest(name, valid)
        elsewhere = [f"{section}.{name}" for section in _sections_with(self.schema, name)]
        if close or (elsewhere and len(self.path) == 1):
            return message("configs.misspelt_key", close=repr(close) if close else " or ".join(elsewhere))
        return message("configs.unknown_key", keys=", ".join(valid))


def _walk(schema: Schema, loc: Sequence[int | str]) -> _Place:
    """Follow a location of pydantic's, in which the tags of unions and the names of branches stand between the keys."""
    place = _Place(schema, schema)
    for part in loc:
        node = _resolve(schema, place.node)
        if "discriminator" in node:
            if part in node["discriminator"]["mapping"]:
                place.unions.append(node)
                place.node = _resolve(schema, node["discriminator"]["mapping"][part])
        elif isinstance(part, int):
            place.path.append(str(part))
            place.node = node.get("items", {})
        elif "properties" in node:
            if part in node["properties"]:
                place.unions = []
            place.path.append(part)
            place.holder, place.node = node, node["properties"].get(part, {})
    place.node = _resolve(schema, place.node)
    return place


def _resolve(schema: Schema, node: Any) -> Schema:
    """Follow a reference to its definition, also out of an ``anyOf`` with null."""
    if isinstance(node, str):
        node = {"$ref": node}
    if "anyOf" in node:
        node = next((part for part in node["anyOf"] if "$ref" in part), node)
    while "$ref" in node:
        node = schema["$defs"][str(node["$ref"]).rsplit("/", 1)[-1]]
    resolved: Schema = node
    return resolved


def _users(schema: Schema, union: Schema, name: str) -> Iterator[str]:
    """The choices of a union, and of unions in it, that have a key ``name``."""
    for tag, choice in union["discriminator"]["mapping"].items():
        node = _resolve(schema, choice)
        if "discriminator" in node:
            yield from _users(schema, node, name)
        elif name in node.get("properties", {}):
            yield f"{union['discriminator']['propertyName']}: {tag}"


def _sections_with(schema: Schema, name: str) -> Iterator[str]:
    """The sections that have a key ``name``, or may have."""
    for section, value in schema["properties"].items():
        node = _resolve(schema, value)
        if name in node.get("properties", {}) or ("discriminator" in node and any(_users(schema, node, name))):
            yield section


def _one_of(name: str, valid: Sequence[str]) -> Message:
    choices, close = ", ".join(valid), _closest(name, valid)
    if close:
        return message("configs.misspelt_choice", choices=choices, close=close)
    return message("configs.choice", choices=choices)


def _closest(name: str, valid: Sequence[str]) -> str:
    return next(iter(difflib.get_close_matches(name, valid, n=1)), "")


def short(value: Any) -> str:
    """A value as Python writes it, cut to what fits into a line."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


# Plain values of a config by dotted keys: ``--set a.b=value``, null that leaves a key out, and a walk over all.


def parsed(override: str) -> tuple[str, Any]:
    """Key and value of ``dotted.key=value``."""
    try:  # in a locale of ASCII Python hands on the bytes of an argument one by one
        override = override.encode("utf-8", "surrogateescape").decode()
    except UnicodeError as error:
        raise ConfigError(message("configs.override_utf8").at(f"--set {shortened(override)}")) from error
    key, equals, text = override.partition("=")
    if not equals or not all(key.strip().split(".")):
        raise ConfigError(message("configs.override").at(f"--set {shortened(override)}"))
    try:
        return key.strip(), load_yaml(text)
    except ConfigError as error:
        raise ConfigError(error.args[0].at(f"--set {shortened(override)}")) from error


def set_key(data: dict[str, Any], key: str, value: Any, place: str, nulls: dict[str, bool]) -> None:
    """Set a dotted key, in place; ``place`` is what an error begins with.

    ``nulls`` takes note of it: a key that is set to null, and whether it was there before. It leaves a key out that
    cannot be null.
    """
    *sections, last = key.split(".")
    if len(sections) >= DEEPEST:
        raise ConfigError(message("configs.long_key", parts=len(sections) + 1).at(place))
    section = data
    for part in sections:
        if section.get(part) is None:
            section[part] = {}
        section = section[part]
        if not isinstance(section, dict):
            raise ConfigError(message("configs.no_section", part=short(part)).at(place))
    if value is not None:
        nulls.pop(key, None)
    else:
        nulls[key] = nulls.get(key, False) or last in section
    section[last] = copy.deepcopy(value)


def remove_key(data: dict[str, Any], key: str) -> None:
    """Remove a dotted key, in place."""
    *sections, last = key.split(".")
    for part in sections:
        data = data[part]
    del data[last]


def values_of(data: Any, key: str) -> Iterator[tuple[str, Any]]:
    """All plain values with their dotted keys."""
    if isinstance(data, (dict, list)):
        for name, value in data.items() if isinstance(data, dict) else enumerate(data):
            yield from values_of(value, f"{key}.{name}" if key else str(name))
    else:
        yield key, data


if TYPE_CHECKING:
    from actors.placement import Placement

log = logging.getLogger(__name__)

#: Bytes of the longest config that is read.
LARGEST_CONFIG = 4 << 20

#: What Parquet and Arrow files begin with.
_DATA_FILES = (b"PAR1", b"ARROW1")

#: Keys that hold file paths; relative ones are relative to the config file.
PATH_KEYS = (
    *(("source", "path"), ("source", "properties"), ("stream", "deletion_log"), ("checkpoint", "path")),
    *(("output", "receipt_key"), ("output", "receipt_sign")),
)


#: Options of any stream model, selected by ``model``: a model is added in its own file and listed here.
StreamOptions = Annotated[
    Incremental
    | SlidingWindow
    | AdaptiveWindow
    | RandomUpdates
    | Batches
    | TimeWindow
    | Changelog
    | DeletionLog
    | Training,
    Discriminator("model"),
]


class _ByKind:
    """Schema of the learner section: the options of whichever learner ``kind`` names.

    To import all learners, and to build the models of their options, would take longer than all the rest of a config.
    """

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(_learner_options)

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return handler(_union_of(learners()))


def _learner_options(given: Any) -> LearnerOptions:
    kind = given.get("kind") if isinstance(given, Mapping) else getattr(given, "kind", None)
    kinds = [str(kind)] if kind in learners() else learners()  # of all, to say what there is to choose from
    weighs = isinstance(given, Mapping) and given.get("class_weight") is not None and kind in learners()
    if weighs and "class_weight" not in learners()[str(kind)].Options.model_fields:
        raise ValueError(no_weights("class_weight", str(kind)))
    options: LearnerOptions = SchemaValidator(_union_of(kinds)).validate_python(given)
    return options


def _union_of(kinds: Iterable[str]) -> CoreSchema:
    choices = {kind: learners()[kind].Options.__pydantic_core_schema__ for kind in kinds}
    return core_schema.tagged_union_schema(choices, discriminator="kind")


class Config(BaseModel):
    """One job, validated."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    source: SourceOptions = Field(description="where the rows are read from, or how they are generated")
    stream: StreamOptions = Field(
        AdaptiveWindow(),
        description="how rows become insertions and deletions; the default depends on learner, key and max_age",
    )
    learner: Annotated[LearnerOptions, _ByKind] = Field(description="learning method and its options")
    cluster: ClusterOptions = Field(
        default_factory=ClusterOptions, description="where the work is done; never changes the model"
    )
    checkpoint: CheckpointOptions = Field(CheckpointOptions(), description="when and where checkpoints are written")
    erasure: Erasure = Field(Erasure(), description="deadline for copies of deleted examples in checkpoints")
    follow: Follow = Field(Follow(), description="chapters of a run that follows a live source")
    output: Output = Field(Output(), description="files written in addition to model, state and summary")

    _name: str = PrivateAttr("run")
    _placement: Placement | None = PrivateAttr(None)

    @model_validator(mode="before")
    @classmethod
    def _follows_changes(cls, data: Any) -> Any:
        """Make the stream of a live source a change log, which it is, unless it says otherwise."""
        source = data.get("source") if isinstance(data, dict) else None
        live = {one.model_fields["kind"].default for one in kinds()}
        if isinstance(source, dict) and source.get("kind") in live and isinstance(data.get("stream", {}), dict):
            return {**data, "stream": {"model": "changelog", **data.get("stream", {})}}
        return data

    @model_validator(mode="after")
    def _fits(self) -> Config:
        if isinstance(self.stream, TimeWindow) and isinstance(self.source, FileOptions) and self.source.ts is None:
            raise ValueError(message("configs.no_times"))
        deadline, most = self.erasure.deadline, self.checkpoint.max_age
        if deadline is not None and (most is None or microseconds(most) > microseconds(deadline)):
            raise ValueError(message("configs.late_checkpoints", deadline=deadline))
        if self.follow.in_chapters and not isinstance(self.source, LiveOptions):
            raise ValueError(message("configs.no_chapters", kind=self.source.kind))
        if self.follow.in_chapters and self.checkpoint.path is not None:
            raise ValueError(message("configs.chapters_elsewhere"))
        if self.stream.on_error == "wait" and not isinstance(self.source, LiveOptions):
            raise ValueError(message("configs.no_wait", kind=self.source.kind))
        needed = traits_of(self.learner).warmup
        if needed and not self.stream.warmup and "stream" not in self.model_fields_set:
            return self.model_copy(update={"stream": Training()})
        if needed and not self.stream.warmup:
            raise ValueError(message("configs.no_warmup", learner=self.learner.kind, reason=needed))
        by_key = getattr(self.source, "key", None) is not None
        if self.output.receipts and by_key and not isinstance(self.source, LiveOptions):
            raise ValueError(message("receipts.of_keys"))
        if isinstance(self.stream, AdaptiveWindow) and (by_key or most is not None):
            if "stream" not in self.model_fields_set:  # scouts of each key would cost more than its model
                return self.model_copy(update={"stream": Incremental()})
            if most is not None:
                raise ValueError(message("configs.scouts_keep"))
        if self.stream.previous_labels and (why := self.without_previous_labels()) is not None:
            raise ValueError(why)
        return self

    def without_previous_labels(self) -> Message | None:
        """Say why labels of the rows before cannot be features; None if they can.

        They cannot where no row has a last one, where the learner takes no such features, and where erasure is due.
        """
        reading = traits_of(self.learner).reading
        if not self.stream.in_order:
            return message("streams.no_previous", model=self.stream.model)
        if isinstance(self.source, SyntheticOptions):
            return message("configs.no_previous", what="rows that are generated, whose labels are drawn")
        if not (reading.dense and reading.missing):
            what = f"learner.kind: {self.learner.kind} with these options, which takes no such features"
            return message("configs.no_previous", what=what)
        bounded = self.checkpoint.max_age is not None or self.erasure.deadline is not None
        if isinstance(self.source, LiveOptions) or self.writes_receipts or bounded:
            return message("configs.previous_kept")
        return None

    @property
    def reading(self) -> Reading:
        """Return what the source reads for learner and stream."""
        return replace(traits_of(self.learner).reading, previous=(None,) * self.stream.previous_labels)

    @property
    def writes_receipts(self) -> bool:
        """Return True if a run writes receipts of the deletions that come through its source."""
        wanted = self.output.receipts
        return isinstance(self.source, LiveOptions) if wanted is None else wanted

    @property
    def name(self) -> str:
        """Name of the config file without its suffix; ``run`` for a config that came from no file."""
        return self._name

    def read_again(self) -> Config:
        """Return the config to read what a run has read: bad rows that it has passed over were skipped."""
        return self.model_copy(update={"stream": self.stream.model_copy(update={"on_error": "skip"})})

    def named(self, name: str) -> Config:
        """Return this config with another name."""
        config = self.model_copy()
        config._name = name
        return config

    def from_source(self, source: Any) -> Config:
        """Return the same config with other options of its source."""
        return self.model_copy(update={"source": source})

    @property
    def placement(self) -> Placement:
        """Return where the work is done (:func:`pipelines.validation.place`)."""
        assert self._placement is not None, "nothing runs before its place is known"
        return self._placement

    def placed(self, placement: Placement) -> Config:
        """Return the same config with the place of its work."""
        config = self.model_copy()
        config._placement = placement
        return config

    def resolved(self) -> dict[str, Any]:
        """Plain values with all defaults filled in and absolute paths: reads back to the same config."""
        return self.model_dump(mode="json")

    def to_yaml(self) -> str:
        """:meth:`resolved` as YAML."""
        return as_yaml(json.dumps(self.resolved()))

    def model_hash(self) -> str:
        """Return ``sha256:`` of the model config in canonical JSON, with only the last component of paths."""
        plain = self.resolved()
        model: dict[str, Any] = {section: plain[section] for section in ("source", "stream", "learner")}
        model["stream"] = {**model["stream"], "on_error": "error"}  # of every policy: it decides how far a run gets
        _map_paths(model, lambda _, path: last_component(path))
        text = json.dumps(model, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return "sha256:" + hashlib.sha256(text.encode()).hexdigest()

    def has_made(self, meta: Mapping[str, Any]) -> bool:
        """Return True if a state is of this model config, by its hash or as this version reads its config."""
        if meta["config_hash"] == self.model_hash():
            return True
        then = config_of(meta)
        return then is not None and then.model_hash() == self.model_hash()


def last_component(path: str) -> str:
    """Last component of a path, the only one that counts in the model hash."""
    return path.rstrip("/").rsplit("/", 1)[-1]


def load_config(config: Config | Mapping[str, Any] | str | Path, overrides: Sequence[str] = ()) -> Config:
    """Read and validate a config.

    Parameters
    ----------
    config : Config, mapping or path
        A YAML file, or the values themselves; paths in a mapping are relative to the working directory.
    overrides : sequence of str
        ``dotted.key=value``, the value in YAML; applied in order after the file.

    Raises
    ------
    ConfigError
        Naming the file, the dotted key, the value and what would be valid.
    """
    if isinstance(config, Config) and not overrides:
        return config
    return load_variants(config, overrides, [{}])[0]


def load_variants(
    config: Config | Mapping[str, Any] | str | Path,
    overrides: Sequence[str],
    variants: Sequence[Mapping[str, Any]],
    prepare: Callable[[dict[str, Any], str], None] | None = None,
    refuse: Callable[[int, ConfigError], None] | None = None,
) -> list[Config]:
    """Read a config once, and validate it once for each variant: dotted keys that are set after the overrides.

    ``prepare`` changes the plain values before the overrides, given their place. ConfigError names the variant; with
    ``refuse`` that gets the error of each bad variant, given its number, and the others are returned, if there are any.
    """
    data, base, name, place = _read(config)
    if prepare is not None:
        prepare(data, place)
    given, nulls = copy.deepcopy(data), dict[str, bool]()
    chosen = set()
    for override in overrides:
        key, value = parsed(override)
        set_key(data, key, value, f"--set {shortened(override)}", nulls)
        chosen.add(key)
    _map_paths(data, lambda key, path: _absolute(path, base, f"{place}: {key}"))
    loaded, without, first = [], set(), None
    for number, variant in enumerate(variants):
        changed, removed = copy.deepcopy(data), dict(nulls)
        setting = ", ".join(shortened(f"{key}={json.dumps(value)}") for key, value in variant.items())
        for key, value in variant.items():
            set_key(changed, key, value, setting, removed)
        at = f"{place} with {setting}" if setting else place
        _map_paths(changed, lambda key, path: _absolute(path, base, f"{at}: {key}"))  # noqa: B023 (called at once)
        without |= set(_options_left_out(given, changed, chosen | variant.keys()))
        try:
            loaded.append(_validated(changed, name, removed))
        except ConfigError as error:
            first = first or ConfigError(*(problem.at(at) for problem in error.args))
            if refuse is None:
                raise first from error
            refuse(number, error)
    if first is not None and not loaded:
        raise first
    if without:
        log.warning("%s: %s", place, message("configs.left_out", keys=", ".join(sorted(without))))
    return loaded


def _options_left_out(given: Mapping[str, Any], changed: dict[str, Any], chosen: Collection[str]) -> Iterator[str]:
    """Leave out options that another learner or stream lacks, unless ``chosen`` with it; yield their keys."""
    for section, options_by in (("learner", _options_of_learner), ("stream", _options_of_stream)):
        before, after = given.get(section), changed.get(section)
        if not isinstance(before, Mapping) or not isinstance(after, dict):
            continue
        former, now = options_by(before), options_by(after)
        for name in sorted((former - now) & before.keys() & after.keys() if now else ()):
            key = f"{section}.{name}"
            if not any(one == key or one.startswith(f"{key}.") for one in chosen):
                del after[name]
                yield key


def _options_of_learner(section: Mapping[str, Any]) -> Set[str]:
    kind = section.get("kind")
    return learners()[kind].Options.model_fields.keys() if isinstance(kind, str) and kind in learners() else set()


def _options_of_stream(section: Mapping[str, Any]) -> Set[str]:
    models: dict[Any, type[BaseModel]] = {
        one.model_fields["model"].default: one for one in get_args(get_args(StreamOptions)[0])
    }
    model = section.get("model", Incremental().model)
    return models[model].model_fields.keys() if isinstance(model, str) and model in models else set()


def _read(config: Config | Mapping[str, Any] | str | Path) -> tuple[dict[str, Any], Path, str, str]:
    """Plain values of a config, the folder its paths are relative to, its name, and what messages call it."""
    if isinstance(config, Config):
        return config.resolved(), Path.cwd(), config.name, "config"
    if isinstance(config, Mapping):
        return json.loads(json.dumps(config)), Path.cwd(), "run", "config"
    path = Path(config)
    try:
        base = path.resolve().parent
        data = load_yaml(_text_of(path))
    except (OSError, RuntimeError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)  # RuntimeError: a loop of links
        said = error.args[0] if isinstance(error, ConfigError) else message("configs.unreadable", reason=reason)
        raise ConfigError(said.at(str(path))) from error
    if not isinstance(data, dict):
        found = "empty" if data is None else "a list" if isinstance(data, list) else f"only {short(data)}"
        said = message("configs.no_sections", sections=", ".join(Config.model_fields), found=found)
        raise ConfigError(said.at(str(path)))
    return data, base, path.stem, str(path)


def _validated(data: dict[str, Any], name: str, nulls: Mapping[str, bool]) -> Config:
    """The config of plain values, which is changed: ``nulls`` are as of :func:`set_key`."""
    for key, value in values_of(data, ""):
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise ConfigError(message("configs.wide_integer", value=value).at(key))
    try:
        try:
            result = Config.model_validate(data)
        except ValidationError as error:
            for key in refused_nulls(error, json_schema(), nulls):
                remove_key(data, key)
            result = Config.model_validate(data)
    except ValidationError as error:
        raise ConfigError(*describe(error, json_schema())) from error
    result._name = name
    return result


@functools.cache
def json_schema() -> Mapping[str, Any]:
    """JSON Schema of the whole config, for editors and messages."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **Config.model_json_schema()}


def _text_of(path: Path) -> str:
    with path.open("rb") as file:
        data = file.read(LARGEST_CONFIG + 1)
    if data.startswith(_DATA_FILES):
        raise ConfigError(message("configs.data_file"))
    if len(data) > LARGEST_CONFIG:
        raise ConfigError(message("configs.large_file", most=LARGEST_CONFIG >> 20))
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(message("configs.not_utf8").at(f"line {line}")) from error


def _map_paths(data: dict[str, Any], change: Callable[[str, str], str]) -> None:
    """Replace every path of ``data`` by ``change`` of its key and itself; what is not text is left to validation."""
    for section, key in PATH_KEYS:
        holder = data.get(section)
        if not isinstance(holder, dict):
            continue
        value = holder.get(key)
        if isinstance(value, str):
            holder[key] = change(f"{section}.{key}", value)
        elif isinstance(value, list):
            holder[key] = [change(f"{section}.{key}", part) if isinstance(part, str) else part for part in value]


def _absolute(path: str, base: Path, place: str) -> str:
    """``path`` seen from ``base``; an empty one stays, to be refused."""
    try:
        return path if not path or "://" in path else os.path.normpath(base / Path(path).expanduser())
    except RuntimeError as error:
        raise ConfigError(message("files.no_home").at(f"{place} = {short(path)}")) from error


def config_of(meta: Mapping[str, Any]) -> Config | None:
    """Return the config of a state, with defaults for keys that came later; None if this version does not take it."""
    try:
        return Config.model_validate(as_written(meta.get("config"), meta["format_version"]))
    except ValidationError:
        return None


def as_written(data: Any, number: int) -> Any:
    """Return the config that a run of a format wrote, in the present spelling.

    Retired keys of ``cluster``, which never change what a run makes, are left out; ``source.rules`` are those of the
    format if the run has none on record.
    """
    if not isinstance(data, Mapping):
        return data
    sections = dict(data)
    if isinstance(cluster := data.get("cluster"), Mapping):
        sections["cluster"] = {key: value for key, value in cluster.items() if key not in ClusterOptions.retired}
    if isinstance(source := data.get("source"), Mapping) and source.get("kind") != "synthetic":
        sections["source"] = {"rules": rules_of_format(number), **source}
    return sections


@functools.lru_cache(maxsize=1)
def as_yaml(text: str) -> str:
    """Return JSON as YAML; the same config is written for each chapter of a run."""
    return dump_yaml(json.loads(text))
