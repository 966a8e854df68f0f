"""The audit of a run divided by buckets of rows: each process reads the source and the state for its own rows alone.

Invariant: as of :mod:`pipelines.auditing`. A part keeps the raw examples with ids in its buckets, and what the state
has of the same ids; what is checked of all rows is the sum of what the parts find.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from typing import NamedTuple

from pipelines.chapters.chapter import run_of
from pipelines.config import Config
from pipelines.placement import SHARDS_PER_CPU
from pipelines.run_folder import RunFolder
from pipelines.running.differences import require_same_data
from pipelines.running.preflight import features_of
from pipelines.saved_runs import config_of, last_state, open_stream, states_of
from raydt.arrays.types import Arrays
from raydt.audits.audit_report import AuditReport
from raydt.errors import ConfigError, ProcessLostError, RaydtError
from raydt.examples.row_owners import RowOwners
from raydt.exchange.messages import Buckets
from raydt.exchange.snapshot import OWNED
from raydt.folders.arrays import open_folder
from raydt.folders.folder import Folder
from raydt.folders.rows import rows_in, with_rows
from raydt.learners import learners
from raydt.learners.auditing import AuditedPart, audit_divided, rows_within
from raydt.messages import message
from raydt.sessions.saved_model import SavedModel, understood
from raydt.sources.live.base import LiveOptions
from raydt.streams.history import history_of


class PartOfRun(NamedTuple):
    """The rows of a run in some buckets, as they were in a state: a run that goes on meanwhile writes other ones."""

    run: str
    updates: int  #: Of the state.
    own: Buckets


def audit_by_buckets(folder: RunFolder, config: Config, shards: int, address: str | None) -> AuditReport:
    """Audit the last state of a run in so many processes on Ray; errors as of :func:`pipelines.audit_run`.

    ConfigError if the learner's audit needs all rows, or the run has read more than its source from beginning to end;
    RaydtError if a process is lost.
    """
    from actors.audits import PartsOnRay
    from actors.cluster import bundles, connect, cpus_here, starts_ray

    learner = learners()[config.learner.kind]
    if not learner.audit_divides:
        raise ConfigError(message("audits.undivided", learner=learner.kind))
    saved = saved_state(last_state(states_of(config, folder)))
    by_key = getattr(config.source, "key", None) is not None
    if by_key or isinstance(config.source, LiveOptions) or run_of(folder) is not None or saved.meta.get("lineage"):
        raise ConfigError(message("audits.divided_past"))
    address, updates = address or config.cluster.address, int(saved.meta["offset"])
    items = [PartOfRun(folder.location, updates, own) for own in RowOwners(shards).of_all() if len(own)]
    cpus, most = cpus_here(), SHARDS_PER_CPU * cpus_here()
    if starts_ray(address) and len(items) > most:
        raise ConfigError(message("audits.many_parts", shards=len(items), cpus=cpus, most=most))
    resources = config.cluster.resources.model_dump(exclude_none=True)
    # Ray prints warnings of its raylet to stdout, which belongs to results.
    with redirect_stdout(sys.stderr):
        cluster = connect(address, bundles(len(items), resources)[1:])
        try:
            parts = PartsOnRay(cluster, open_part, items, resources, config.cluster.patience_seconds)
            try:
                return audit_divided(learner, config.learner, saved.features, saved.arrays, parts)
            finally:
                parts.close()
        except ProcessLostError as lost:  # nothing recovers: an audit writes nothing before its end
            raise RaydtError(message("audits.part_lost", what=str(lost))) from lost
        finally:
            cluster.close()


def open_part(part: PartOfRun) -> AuditedPart:
    """Read a part of a state of a run, and of the source; errors as of :func:`pipelines.audit_run`."""
    folder = RunFolder.existing(part.run)
    config = config_of(folder).read_again()
    place = states_of(config, folder).inside(str(part.updates))
    saved = saved_state(place)
    source, stream = open_stream(config)
    require_same_data(config, saved.meta, source, stream, folder)
    features = features_of(source, config.learner)
    history = history_of(stream, int(saved.meta["offset"]), part.own)
    state, groups = _rows_of(saved, place, part.own)
    learner, classes = learners()[config.learner.kind], len(saved.classes)
    return AuditedPart(learner, config.learner, features, classes, state, history, groups)


def saved_state(place: Folder) -> SavedModel:
    """Return a state whose rows are left to their owners, if these have written them; ModelFileError if damaged."""
    meta, components = open_folder(place.root, "state", filesystem=place.filesystem)
    return understood(meta, with_rows(meta, components, place.root, apart=True), place.root)


def _rows_of(saved: SavedModel, place: Folder, own: Buckets) -> tuple[Arrays, Mapping[int, Arrays]]:
    """Return a state and its feature groups with the rows in some buckets alone."""
    meta, components = open_folder(place.root, "state", filesystem=place.filesystem)
    if OWNED in saved.arrays:
        rows, groups = rows_in(meta, components, own, place.root)
        return {**{name: array for name, array in saved.arrays.items() if name != OWNED}, **rows}, groups
    whole = understood(meta, with_rows(meta, components, place.root), place.root) if saved.buckets else saved
    return rows_within(whole.learner, whole.options, whole.features, whole.arrays, whole.groups, own)
