"""Sections of a config that say how a job is run: ``cluster``, ``checkpoint``, ``erasure``, ``follow``, ``output``.

They never change the model, and are not hashed.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Any, ClassVar, Literal

from pydantic import ConfigDict, Field, field_validator, model_validator

from raydt.messages import message
from raydt.settings import Settings
from raydt.streams.durations import Age, microseconds


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


class Cluster(_Section):
    """Where the work is done; never changes the model."""

    retired: ClassVar[Mapping[str, tuple[tuple[Any, ...], str]]] = {
        "local_work_limit": ((20_000_000,), "Set cluster.memory_limit to 0 to leave all work to the shards"),
        "row_cache_bytes": ((None,), "Use cluster.memory_limit"),
    }

    backend: Literal["ray", "in_process"] = Field(
        "ray", description="ray: actors on Ray; in_process: all in this process"
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
        description="port of the Prometheus endpoint of a private Ray; open on all addresses and without a token; "
        "null: no endpoint; a cluster keeps its own",
    )

    @field_validator("shards", "threads")
    @classmethod
    def _at_least_one(cls, value: int | str) -> int | str:
        if isinstance(value, int) and value < 1:
            raise ValueError(message("settings.number_or_auto"))
        return value

    @model_validator(mode="after")
    def _consistent(self) -> Cluster:
        for key in ("address", "metrics_port") if self.backend == "in_process" else ():
            if getattr(self, key) is not None:
                raise ValueError(message("configs.unused_key", key=key))
        return self

    @property
    def most_threads(self) -> int | None:
        """Return the most threads of this process; None: one for each CPU."""
        return None if self.threads == "auto" else self.threads


class Checkpoint(_Section):
    """When the state of the run is saved: by time and by number of updates, whichever comes first."""

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
    def _consistent(self) -> Checkpoint:
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
