"""Sections of a config that say how a job is run: ``cluster``, ``checkpoint``, ``erasure``, ``follow``, ``output``.

They never change the model, and are not hashed.
"""

from __future__ import annotations

import functools
import inspect
import os
import re
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from math import inf
from pathlib import Path
from typing import Any, ClassVar, Literal, ParamSpec, TypeVar, cast

import yaml
from pydantic import ConfigDict, Field, field_validator, model_validator

from pipelines.run_folder import RunFolder
from raydt.errors import ConfigError, RaydtError
from raydt.learners.base import Settings
from raydt.messages import message
from raydt.parallel import limited
from raydt.streams.base import Age, microseconds


class _Section(Settings):
    model_config = ConfigDict(strict=True, defer_build=True)


class ActorResources(_Section):
    """Resources one actor reserves on the cluster."""

    num_cpus: float = Field(1, ge=0, description="logical CPUs to reserve; 0: none")
    memory: int | None = Field(None, ge=1, description="bytes of memory to reserve; null: none")
    resources: dict[str, float] = Field({}, description="custom resources to reserve, by name")


class Resources(_Section):
    """Resources by kind of actor."""

    coordinator: ActorResources = Field(ActorResources(), description="resources of the coordinator")
    shard: ActorResources = Field(ActorResources(), description="resources of each shard")


#: Options of the cluster that only a run on Ray needs: whoever sets one means Ray.
_OF_RAY = ("address", "shards", "resources")


class ClusterOptions(_Section):
    """The place of the work, which never changes the model."""

    retired: ClassVar[Mapping[str, tuple[tuple[Any, ...], str]]] = {
        "local_work_limit": ((20_000_000,), "Set cluster.memory_limit to 0 to leave all work to the shards"),
        "row_cache_bytes": ((None,), "Use cluster.memory_limit"),
    }

    backend: Literal["auto", "ray", "in_process"] = Field(
        "auto",
        description="ray: actors on Ray; in_process: all in this process; auto: ray if the address, shards or "
        "resources of this section say so, or RAY_ADDRESS, else in_process",
    )
    address: str | None = Field(
        None, description="Ray cluster to use: host:port, auto or local; null: RAY_ADDRESS, else a private local Ray"
    )
    shards: int | Literal["auto"] = Field(
        "auto",
        description="number of shards the features are distributed over, at least 1; auto: 1 if the coordinator does "
        "all work, else as many as can have work and have room on this machine or the cluster, at most 16; on Ray, the "
        "number of their processes, each of which has a shard for each CPU that it reserves (cluster.resources)",
    )
    threads: int | Literal["auto"] = Field(
        "auto",
        description="most threads of this process, also of commands that read the run; auto: one for each CPU that it "
        "may use; an actor on Ray has one for each CPU that it reserves (cluster.resources)",
    )
    batch_size: int = Field(4096, ge=1, description="updates per message to the actors")
    memory_limit: int | None = Field(
        None,
        ge=0,
        description="bytes of features the coordinator may hold; above, the shards do the work; 0: they do all work; "
        "null: no limit, and shards work where they are faster",
    )
    resources: Resources = Field(Resources(), description="resources the actors reserve on the cluster")
    patience_seconds: float = Field(
        20, ge=1, description="seconds without progress after which an actor counts as lost"
    )
    metrics_port: int | None = Field(
        None,
        ge=1,
        le=65535,
        description="port at which a run in this process, or its private Ray, serves /metrics to Prometheus; open on "
        "all addresses and without a token; null: no endpoint; a cluster keeps its own",
    )

    @model_validator(mode="before")
    @classmethod
    def _backend(cls, data: Any) -> Any:
        """Decide what ``auto`` is, so that the config of a run says where it began."""
        if not isinstance(data, dict) or data.get("backend", "auto") != "auto":
            return data
        fields = cls.model_fields
        of_ray = any(data.get(key, fields[key].default) not in (None, fields[key].default) for key in _OF_RAY)
        return {**data, "backend": "ray" if of_ray or os.environ.get("RAY_ADDRESS") else "in_process"}

    @field_validator("shards", "threads")
    @classmethod
    def _at_least_one(cls, value: int | str) -> int | str:
        if isinstance(value, int) and value < 1:
            raise ValueError(message("settings.number_or_auto"))
        return value

    @model_validator(mode="after")
    def _consistent(self) -> ClusterOptions:
        if self.backend == "in_process" and self.address is not None:
            raise ValueError(message("configs.unused_key", key="address"))
        return self

    @property
    def most_threads(self) -> int | None:
        """Return the most threads of this process; None: one for each CPU."""
        return None if self.threads == "auto" else self.threads


class CheckpointOptions(_Section):
    """The times at which the state of the run is saved: by time and by number of updates, whichever comes first."""

    every_seconds: float | None = Field(60, gt=0, description="seconds between two checkpoints; null: never by time")
    every_updates: int | None = Field(None, ge=1, description="updates between two checkpoints; null: never by number")
    keep: int = Field(3, ge=1, description="number of newest checkpoints to keep")
    path: str | None = Field(
        None, description="folder or URI to write checkpoints to; null: checkpoints/ in the run folder"
    )
    max_age: Age | None = Field(
        None,
        description="longest time for which checkpoints may hold a deleted example, such as 12h or 7d; null: as long "
        "as a kept checkpoint needs its segment of rows",
    )

    @model_validator(mode="after")
    def _consistent(self) -> CheckpointOptions:
        if self.max_age is not None and (self.every_seconds or inf) * 1e6 > microseconds(self.max_age):
            raise ValueError(message("configs.rare_checkpoints", max_age=self.max_age))
        return self

    @property
    def copies_limit(self) -> float | None:
        """Seconds after which a copy has to go with the next checkpoint, so that it is gone by ``max_age``."""
        return None if self.max_age is None else microseconds(self.max_age) / 1e6 - (self.every_seconds or 0)


class Erasure(_Section):
    """Limits on copies of deleted examples; never changes the model."""

    deadline: Age | None = Field(
        None,
        description="the run fails if checkpoints may have held a deleted example for longer; needs "
        "checkpoint.max_age, and is at least as long; null: no deadline",
    )


class Follow(_Section):
    """Chapters of a run that follows a live source: each is the folder of a run that has ended, with its digest."""

    chapter_updates: int | None = Field(
        None, ge=1, description="a chapter ends where the number of updates is a multiple of this; null: not by number"
    )
    chapter_hours: float | None = Field(
        None,
        gt=0,
        description="hours after which a chapter ends that has an update; null: not by time; without both keys, the "
        "run has no chapters",
    )
    keep: int | None = Field(
        24, ge=1, description="number of newest closed chapters to keep, none that erasure.deadline needs; null: all"
    )
    keep_hours: float | None = Field(
        None, gt=0, description="hours after which a closed chapter expires, but the newest; null: not by age"
    )

    @property
    def in_chapters(self) -> bool:
        """Return True if the run is kept in chapters."""
        return self.chapter_updates is not None or self.chapter_hours is not None


class Output(_Section):
    """Files a run writes in addition to its model, state and summary."""

    retired: ClassVar[Mapping[str, tuple[tuple[Any, ...], str]]] = {
        "fading_factor": ((0.999,), "It is 0.999: remove it"),
        "alarm_delta": ((0.002,), "It is 0.002: remove it"),
    }

    predictions: bool = Field(False, description="write every prediction to the run folder")
    metrics_every: int = Field(1000, ge=1, description="updates between two rows of the metrics table")
    weighted_metrics: bool = Field(
        False, description="whether metrics count a prediction by the weight of its row (source.weight), not once"
    )
    report: bool = Field(True, description="write report.html")
    receipts: bool | None = Field(
        None,
        description="write a receipt of each deletion that the source or its deletion log brings to receipts.jsonl; "
        "null: of live sources",
    )
    receipt_key: str | None = Field(
        None,
        description="file with the key by which receipts hash ids; null: receipts.key, made in the run folder",
    )
    receipt_sign: str | None = Field(
        None, description="file with the Ed25519 key (PEM) that signs receipts; null: they are not signed"
    )
    quote_values: bool = Field(
        True,
        description="whether errors, the log and quarantine/ quote ids and values of the data; if not, they only name "
        "the fault, file, row and column",
    )


# YAML as people mean it: the core schema of YAML 1.2, read safely, with duplicate keys refused.
#
# PyYAML follows YAML 1.1, where ``1e-7`` is text, ``no`` is false, ``010`` is eight and ``1:30`` is ninety. Here
# numbers are numbers, only ``true`` and ``false`` are booleans, and dates stay text. There are anchors, but no merge
# keys: they are not part of YAML 1.2.

#: Characters of the longest integer that is converted.
LONGEST_INTEGER = 100

#: Values of a document, those that aliases repeat counted each time, and how deep they may be nested.
MOST_VALUES, DEEPEST = 200_000, 100

_PREFIX = "tag:yaml.org,2002:"


class _Loader(yaml.SafeLoader):
    """SafeLoader with the implicit types of the YAML 1.2 core schema, and without explicit ones."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - PyYAML's own class attribute, replaced

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """A node of the document, without a tag."""
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        tag = getattr(event, "tag", None)
        if tag not in (None, "!"):
            said = message("configs.tag", tag=str(tag).replace(_PREFIX, "!!"))
            raise ConfigError(said.at(f"line {event.start_mark.line + 1}"))
        node: yaml.Node | None = super().compose_node(parent, index)
        return node


class _Dumper(yaml.SafeDumper):
    """SafeDumper that quotes text which YAML 1.1 or 1.2 would take for something else."""

    def represent_str(self, data: str) -> yaml.ScalarNode:
        """Text; with U+0085, which PyYAML writes as it is but reads as a line break, in double quotes, escaped."""
        style = '"' if "\x85" in data else None
        return self.represent_scalar(_PREFIX + "str", data, style=style)


def _integer(text: str) -> int:
    value = int(text, {"0o": 8, "0x": 16}.get(text[:2], 10)) if len(text) <= LONGEST_INTEGER else 2**63
    if not -(2**63) <= value < 2**63:
        raise ConfigError(message("configs.wide_integer", value=f"{text[:30]}..."))
    return value


#: Value of a text, by tag; other tags are those of text.
_VALUES: dict[str, Callable[[str], Any]] = {}
for _tag, _pattern, _first, _value in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""], lambda text: None),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF"), lambda text: text.lower() == "true"),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", list("-+0123456789"), _integer),
    (
        "float",
        r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        list("-+0123456789."),
        lambda text: float(text.lower().replace(".inf", "inf").replace(".nan", "nan")),
    ),
):
    _VALUES[_PREFIX + _tag] = _value
    for _class in (_Loader, _Dumper):
        _class.add_implicit_resolver(_PREFIX + _tag, re.compile(rf"^(?:{_pattern})$"), _first)
_Dumper.add_representer(str, _Dumper.represent_str)


class _Document:
    """Values of the nodes of one document."""

    def __init__(self) -> None:
        self._values = 0
        self._open: list[yaml.Node] = []  # the nodes around the one that is read

    def value(self, node: yaml.Node) -> Any:
        """The value of a node; every alias has a value of its own."""
        line = f"line {node.start_mark.line + 1}"
        self._values += 1
        if self._values > MOST_VALUES:
            raise ConfigError(message("configs.many_values", most=MOST_VALUES))
        if any(node is around for around in self._open):
            raise ConfigError(message("configs.endless_value").at(line))
        if len(self._open) > DEEPEST:
            raise ConfigError(message("configs.deep_value", most=DEEPEST).at(line))
        if isinstance(node, yaml.ScalarNode):
            try:
                return _VALUES.get(node.tag, str)(node.value)
            except ConfigError as error:
                raise ConfigError(error.args[0].at(line)) from error
        self._open.append(node)
        try:
            if isinstance(node, yaml.SequenceNode):
                return [self.value(part) for part in node.value]
            return self._mapping(node)
        finally:
            self._open.pop()

    def _mapping(self, node: yaml.Node) -> dict[str, Any]:
        """A mapping whose keys are distinct text."""
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key, line = self.value(key_node), f"line {key_node.start_mark.line + 1}"
            if not isinstance(key, str):
                raise ConfigError(message("configs.key_kind", key=key).at(line))
            if key in result:
                raise ConfigError(message("configs.repeated_key", key=key).at(line))
            result[key] = self.value(value_node)
        return result


def load_yaml(text: str) -> Any:
    """Return the value of one YAML document; an alias stands for a copy.

    ConfigError, with its line, for text that is not YAML, a tag, a duplicate key, a key that is not text, an integer
    beyond 64 bits, or more values than any config needs.
    """
    try:
        node = _Loader(text.removeprefix("\ufeff")).get_single_node()
        return None if node is None else _Document().value(node)
    except yaml.MarkedYAMLError as error:
        problem, mark = str(error.problem), error.problem_mark
        name = next((name for part, name in _INVALID.items() if part in problem), "not_yaml")
        said = message(f"configs.{name}", problem=problem)
        raise ConfigError(said.at(f"line {mark.line + 1}") if mark else said) from error
    except yaml.reader.ReaderError as error:
        said = message("configs.character", code=error.character)
        raise ConfigError(said.at(f"line {text.count(chr(10), 0, error.position) + 1}")) from error
    except RecursionError as error:
        raise ConfigError(message("configs.deep_value", most=DEEPEST)) from error


#: Parts of PyYAML's messages, and the sentences that take their place.
_INVALID = {
    "'\\t'": "tab",
    "another document": "second_document",
    "mapping values are not allowed": "missing_colon",
    "block end": "indentation",
}


def dump_yaml(value: Any) -> str:
    """``value`` as YAML text that :func:`load_yaml` reads back to the same value, keys in their order."""
    return str(yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120))


# Threads of the commands that read a run: as many as ``cluster.threads`` of its config says.

P = ParamSpec("P")
R = TypeVar("R")


def within(work: Callable[P, R], context_of: Callable[[str | Path], AbstractContextManager[object]]) -> Callable[P, R]:
    """Have a function work in the context of its first argument, a place."""
    name = next(iter(inspect.signature(work).parameters))

    @functools.wraps(work)
    def work_within(*arguments: P.args, **named: P.kwargs) -> R:
        with context_of(cast("str | Path", arguments[0] if arguments else named[name])):
            return work(*arguments, **named)

    return work_within


def in_threads_of_its_run(work: Callable[P, R]) -> Callable[P, R]:
    """Have a function use the threads of the run that its first argument is, or lies in."""
    return within(work, lambda place: limited(most_threads(place)))


def most_threads(place: str | Path) -> int | None:
    """Return the most threads of a run, or of the one that a place lies in; None for no limit, or if none is known."""
    try:
        run = RunFolder.near(place)
        threads = None if run is None else load_yaml(run.read_text("config.yaml"))["cluster"]["threads"]
    except (OSError, ValueError, TypeError, LookupError, RaydtError):  # whoever needs the config says what is wrong
        return None
    return threads if isinstance(threads, int) and threads >= 1 else None
