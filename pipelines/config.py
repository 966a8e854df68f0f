"""The whole configuration of a job, and how it is read.

Order: defaults, then the file, then ``--set``. ``source``, ``stream`` and ``learner`` are the *model config*: they
decide the model and are hashed. ``cluster``, ``checkpoint``, ``erasure``, ``follow`` and ``output`` are operation: they
never change the model (``pipelines.operation``). The options of sources, streams and learners are defined next to them
and found by ``kind`` or ``model``.
"""

from __future__ import annotations

import copy
import functools
import hashlib
import json
import logging
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    PrivateAttr,
    ValidationError,
    model_validator,
)
from pydantic_core import CoreSchema, SchemaValidator, core_schema

from pipelines.operation import Checkpoint, Cluster, Erasure, Follow, Output
from pipelines.overrides import parsed, remove_key, set_key, values_of
from pipelines.printing import shortened
from pipelines.problems import describe, refused_nulls, short
from pipelines.yaml12 import dump_yaml, load_yaml
from raydt.errors import ConfigError
from raydt.examples.reading import rules_of_format
from raydt.learners import learners, no_weights, traits_of
from raydt.learners.base import LearnerOptions
from raydt.messages import message
from raydt.sources.file_options import FileOptions
from raydt.sources.live.base import LiveOptions, kinds
from raydt.sources.options import SourceOptions
from raydt.streams.durations import microseconds
from raydt.streams.incremental import Incremental
from raydt.streams.options import StreamOptions
from raydt.streams.time_window import TimeWindow

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
    stream: StreamOptions = Field(Incremental(), description="how rows become insertions and deletions")
    learner: Annotated[LearnerOptions, _ByKind] = Field(description="learning method and its options")
    cluster: Cluster = Field(Cluster(), description="where the work is done; never changes the model")
    checkpoint: Checkpoint = Field(Checkpoint(), description="when and where checkpoints are written")
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
        if needed and not self.stream.warmup:
            raise ValueError(message("configs.no_warmup", learner=self.learner.kind, reason=needed))
        by_key = getattr(self.source, "key", None) is not None
        if self.output.receipts and by_key and not isinstance(self.source, LiveOptions):
            raise ValueError(message("receipts.of_keys"))
        return self

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
        config = self.model_copy(update={"stream": self.stream.model_copy(update={"on_error": "skip"})})
        config._name, config._placement = self._name, self._placement
        return config

    def named(self, name: str) -> Config:
        """The same config with another name."""
        config = self.model_copy()
        config._name = name
        return config

    def from_source(self, source: Any) -> Config:
        """Return the same config with other options of its source."""
        config = self.model_copy(update={"source": source})
        config._name = self._name
        return config

    @property
    def placement(self) -> Placement:
        """Return where the work is done (:func:`pipelines.placement.place`)."""
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
        return _as_yaml(json.dumps(self.resolved()))

    def model_hash(self) -> str:
        """Return ``sha256:`` of the model config in canonical JSON, with only the last component of paths."""
        plain = self.resolved()
        model: dict[str, Any] = {section: plain[section] for section in ("source", "stream", "learner")}
        model["stream"] = {**model["stream"], "on_error": "error"}  # decides how far a run gets, not what it learns
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
        sections["cluster"] = {key: value for key, value in cluster.items() if key not in Cluster.retired}
    if isinstance(source := data.get("source"), Mapping) and source.get("kind") != "synthetic":
        sections["source"] = {"rules": rules_of_format(number), **source}
    return sections


@functools.lru_cache(maxsize=1)
def _as_yaml(text: str) -> str:
    """Return JSON as YAML; the same config is written for each chapter of a run."""
    return dump_yaml(json.loads(text))
