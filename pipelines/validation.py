"""A look at a config and its data before the run: what would be read, and whether the first rows can be used."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

import actors.cluster
from actors.cluster import Bundle, starts_ray
from actors.placement import Placement, shards_with_room
from pipelines.config import Config
from pipelines.id_check import IdSearch, search, without_remedy
from pipelines.operation import ClusterOptions
from pipelines.receipts import quoting, said
from pipelines.running.plans import doubtful, features_of
from pipelines.saved_runs import no_rows, open_stream
from raydt.arrays.elementary import Bools, Ints
from raydt.errors import ConfigError
from raydt.examples.updates import INSERT, MOST_CLASSES, UPDATE, Features
from raydt.exchange.messages import BUCKETS
from raydt.keyed.groups import GROUPS
from raydt.keyed.stream import KeyedStream, KeyWeights
from raydt.learners import for_numbers, learners, traits_of
from raydt.learners.base import LOCAL_WORK_LIMIT, Traits, WeightSum, WorkPlan
from raydt.messages import WITHHELD, Message, message, quoted, text
from raydt.parallel import affinity, limited
from raydt.presentation.charts import counted
from raydt.sessions.adaptive_window import AdaptiveWindow
from raydt.sessions.session import holds, most_cells
from raydt.sources.base import Rows, Source
from raydt.sources.divided import Opening
from raydt.streams.base import Stream
from raydt.streams.deletion_log import DeletionLogStream
from raydt.streams.windows import SlidingWindow, Training

# Where the work of a run is done, and why: one decision for ``validate``, the first line of a run, and its report.
#
# Wherever work is done, the model is the same bit for bit.

#: Shards of ``auto``: more have not been measured to be faster (docs/explanation/performance.md).
MOST_SHARDS = 16
#: Shards that a private Ray may start for each CPU of the machine.
SHARDS_PER_CPU = 4
#: Shards that a config may name whatever the features: files of runs have this former default.
FEW_SHARDS = 2
#: How many more rows than the mean a shard may own that nobody is told.
UNEVEN = 0.1


def place(config: Config, features: Features, rows: int | None, free: Sequence[Bundle] | None = None) -> Placement:
    """Decide where the work of a run is done, for ``features`` that are dealt into groups.

    ``free`` is what the nodes of a joined cluster have free: nobody joins only to ask. ConfigError for too many shards.
    """
    cluster, traits = config.cluster, traits_of(config.learner)
    if getattr(config.source, "key", None) is not None:
        return _by_key(cluster, free)
    live = config.stream.window if isinstance(config.stream, SlidingWindow) else rows
    faster = traits.divides_weights or not _is_weighted(config)
    plan = WorkPlan.within(cluster.memory_limit, faster=faster)
    most = most_cells(traits.divided, plan)
    alone = cluster.backend == "in_process" or most is None or _is_below(most, live, features)
    shards, reason = _number(cluster, features, traits, free, alone=alone)
    if cluster.backend == "in_process":
        return Placement(shards, message("runs.in_process"), plan=plan, divided=(shards or 1) > 1)
    if reason and not _are_faster(cluster, shards):
        plan = WorkPlan.within(cluster.memory_limit, faster=False)
        most = most_cells(traits.divided, plan)
    named = "shards" if shards is None else _named(shards, traits)
    if most is None and reason:
        return Placement(shards, message("runs.few_shards", shards=named, reason=reason), plan=plan)
    if most is None:
        return Placement(shards, message("runs.no_faster", learner=config.learner.kind), plan=plan)
    named += f" (auto: {reason})" if reason else ""
    if most == 0:
        return Placement(shards, message("runs.with_shards", shards=named), plan=plan, divided=True)
    dense = len(features.names)
    size = f"{-(-most // dense):,} live examples" if dense else f"{most:,} ones in live examples"
    faster = plan.faster and traits.divided == "large" and most == LOCAL_WORK_LIMIT
    if _is_below(most, live, features):
        said = message("runs.small" if faster else "runs.fits", size=size, live=live)
        return Placement(shards, said.alone(), said.remedy, plan)
    where = message("runs.shards_faster" if faster else "runs.beyond_limit", size=size, shards=named)
    return Placement(shards, where, plan=plan, divided=True)


def _by_key(cluster: ClusterOptions, free: Sequence[Bundle] | None) -> Placement:
    """Decide where models by key work: each process has the keys of some groups, and needs no other."""
    if cluster.backend == "in_process":
        return Placement(1, message("runs.in_process"))
    if isinstance(cluster.shards, int):
        shards = min(cluster.shards, GROUPS)
    else:
        _, shard = actors.cluster.bundles(1, cluster.resources.model_dump(exclude_none=True))
        if free is not None:
            shards = shards_with_room(free, {}, shard, MOST_SHARDS) or 1
        elif actors.cluster.starts_ray(cluster.address):
            shards = max(1, int(actors.cluster.cpus_here() // shard["CPU"])) if shard["CPU"] else 1
        else:
            return Placement(None, message("keyed.by_processes", actors="actors"))
    return Placement(shards, message("keyed.by_processes", actors=counted(shards, "actor")))


def _is_weighted(config: Config) -> bool:
    """Return True if rows may have other weights than 1, by a column or by their labels."""
    of_column, of_labels = getattr(config.source, "weight", None), getattr(config.learner, "class_weight", None)
    return bool(of_column or of_labels)


def _is_below(most: int, live: int | None, features: Features) -> bool:
    """Return True if live examples surely stay below so many cells; nobody knows the ones of sparse features before."""
    return live is not None and not features.sparse and live * len(features) < most


def _are_faster(cluster: ClusterOptions, shards: int | None) -> bool:
    """Return True if so many shards, None of them unknown yet, have more CPUs than the coordinator."""
    coordinator, shard = (max(1, int(one.num_cpus)) for one in (cluster.resources.coordinator, cluster.resources.shard))
    return shards is None or shards * shard > coordinator


def _named(shards: int, traits: Traits) -> str:
    """Return the number of shards, with how unevenly they own rows if that is worth a word."""
    more = -(-BUCKETS // shards) * shards / BUCKETS - 1
    named = counted(shards, "shard")
    return str(message("runs.uneven_rows", shards=named, more=more)) if traits.owns_rows and more > UNEVEN else named


def _number(
    cluster: ClusterOptions, features: Features, traits: Traits, free: Sequence[Bundle] | None, *, alone: bool
) -> tuple[int | None, Message | None]:
    """Return how many shards, None to ask the cluster, and what limits them; ``alone``: they have no work."""
    useful = max(features.groups, traits.parts)
    if cluster.shards != "auto":
        _require_useful(cluster, cluster.shards, features, traits)
        return cluster.shards, None
    if alone:
        return 1, None
    why = message("runs.idle_shards" if useful <= MOST_SHARDS else "runs.most_shards")
    useful = min(useful, MOST_SHARDS)
    coordinator, shard = actors.cluster.bundles(1, cluster.resources.model_dump(exclude_none=True))
    if free is not None:
        room, limit = shards_with_room(free, coordinator, shard, useful), message("runs.full_cluster")
    elif actors.cluster.starts_ray(cluster.address):  # a private Ray has one more CPU, for the coordinator
        cpus = actors.cluster.cpus_here()
        room = int(cpus // shard["CPU"]) if shard["CPU"] else useful
        limit = message("runs.full_machine", cpus=counted(cpus, "CPU"))
    else:
        return None, None
    return (useful, why) if room >= useful else (max(1, room), limit)


def _require_useful(cluster: ClusterOptions, shards: int, features: Features, traits: Traits) -> None:
    """Refuse more shards than can have work, or than a private Ray on this machine can carry."""
    useful = max(features.groups, traits.parts)
    if traits.owns_rows and shards > BUCKETS < useful:
        raise ConfigError(
            message("configs.idle_shards", shards=shards, cause=f"{BUCKETS} buckets of rows", most=BUCKETS)
        )
    if shards > max(useful, FEW_SHARDS):
        cause = f"{len(features)} features" if useful == len(features) else f"learner.feature_groups = {useful}"
        if useful == traits.parts:
            cause = f"{useful} parts of the learner's work"
        raise ConfigError(message("configs.idle_shards", shards=shards, cause=cause, most=useful))
    private = cluster.backend == "ray" and (cluster.address or os.environ.get("RAY_ADDRESS") or "local") == "local"
    cpus = affinity()
    if private and shards > SHARDS_PER_CPU * cpus:
        raise ConfigError(message("configs.many_shards", shards=shards, cpus=cpus, most=SHARDS_PER_CPU * cpus))


# Who reads the rows of the warm-up: the driver, which sends them, or each shard for itself.
#
# One decision for ``validate`` and for a run. Wherever rows are read, the updates and the model are the same bit for
# bit.

log = logging.getLogger(__name__)

#: Updates in a message of the warm-up if the shards read the rows.
WARMUP_ROWS = 1 << 17


class WarmupReader(NamedTuple):
    """The reader of the rows of the warm-up: the driver, or shards."""

    divided: bool  #: Each shard reads what it needs.
    sentence: Message | None  #: Who reads, and why; None where there is no shard to which rows would go.


def reading_of(config: Config, source: Source, features: Features) -> WarmupReader:
    """Decide who reads the rows of the warm-up, by the place of the config (:mod:`pipelines.validation`)."""
    traits, warmup = traits_of(config.learner), config.stream.warmup
    rows = warmup if source.n_rows is None else min(warmup, source.n_rows)
    most = most_cells(traits.divided, config.placement.plan)
    sure = most is None or not features.sparse
    if (
        config.cluster.backend == "in_process"
        or getattr(config.source, "key", None) is not None  # each of these models is in one process
        or not rows
        or not source.complete
        or config.stream.reads_features
        or config.stream.previous_labels
        or (sure and holds(features, most, rows, 0))
    ):
        return WarmupReader(False, None)
    why = None
    if not traits.reads:
        why = message("runs.whole_rows", learner=config.learner.kind)
    elif holds(features, most, rows, rows):  # with one in each row
        why = message("runs.unknown_ones")
    if why is not None:
        return WarmupReader(False, message("runs.rows_sent", why=why))
    what = message("runs.all_columns" if traits.reads == "rows" else "runs.own_columns")
    there = "runs.rows_read" if _is_everywhere(config) else "runs.rows_read_there"
    return WarmupReader(True, message(there, rows=counted(rows, "row"), what=what))


def _is_everywhere(config: Config) -> bool:
    """Return True if all processes surely see the data: on one machine, at a URI, or where rows are generated."""
    named = getattr(config.source, "path", [])
    remote = [
        re.match(r"(?!file:)[A-Za-z][A-Za-z0-9+.-]+://", path)
        for path in ([named] if isinstance(named, str) else named)
    ]
    return starts_ray(config.cluster.address) or all(remote)


def divide(config: Config, session: Any, stream: Stream, features: Features) -> bool:
    """Have the shards of a session on Ray read the rows of the warm-up, if they can; the stream is at its beginning."""
    source: Any = stream.source
    if not reading_of(config, source, features).divided:
        return False
    opening = Opening(config.source, os.getcwd(), config.reading, source.places, source.identity().fingerprint)
    divided = session.divide(source, opening, config.stream.warmup)
    if isinstance(divided, str):
        why = message("sources.other_here", name=divided)
        log.warning("%s", message("runs.rows_sent", why=why), extra={"event": "rows_sent"})
        return False
    log.info("shards read the rows of the warm-up", extra={"event": "rows_read"})
    stream.begin_with(divided.rows())
    return True


def divide_ids(session: Any, stream: Any) -> None:
    """Have the shards of a session on Ray keep the text ids, if there are many; the stream is restored afterwards."""
    parts = getattr(session, "id_parts", lambda: None)()
    if parts is not None:
        stream.divide_ids(parts)


#: More classes than this are rarely meant.
MANY_CLASSES = 100


def look_at(config: Config) -> dict[str, Any]:
    """Check the data a run of ``config`` would read.

    Opens the source and reads its schema and first rows; a column that is missing or cannot be used is an error, and so
    is a deletion log that begins in the warm-up. Where ids can be refused, reads on to check them
    (:func:`pipelines.id_check.search`).

    Returns ``learner``, ``stream``, ``features``, ``names`` (whether ids, subjects and keys are text or integers, and
    why), ``rows`` and ``updates`` (null if not known without reading),
    ``rows_read``, how many values of each feature are ``missing`` in these,
    ``bad_rows`` (messages of those read), ``classes`` so far (null where labels are numbers),
    ``config_hash``, ``warnings``; whether a guarantee is ``promised`` and why (``guarantee``), the ``outlook`` on the
    cost, ``where`` work is done, who does the ``reading`` of the warm-up (null where no shard needs its rows), the
    ``messages`` with shards, ``deletions`` in the log (null without one);
    ``ids_checked``: of how many updates (null where none can be refused, and where a first row is bad), and whether
    these are ``ids_all``; ``refused``: how many of them a model refuses; ``bad_updates``: messages of the first, and of
    a bad row that ends them; ``stops_at``: the update at which a replay would stop for these; and ``ok``: false if it
    would stop there or at one of ``bad_rows``.
    """
    with quoting(config.output.quote_values), limited(config.cluster.most_threads):
        return _look_at(config)


def _look_at(config: Config) -> dict[str, Any]:
    quote = config.output.quote_values
    source, stream = open_stream(config)
    features = features_of(source, config.learner)
    config = config.placed(place(config, features, source.n_rows))
    rows = next(iter(source.rows()), None)
    if rows is None or not len(rows):
        raise no_rows(config)
    bad = [error for _, error in sorted(rows.bad.items())]
    skip = config.stream.on_error == "skip"
    if skip:  # then that is no remedy, and none is needed
        bad = [without_remedy(error) for error in bad]
    ids = search(config, open_stream(config)[1], skip) if skip or not bad else None
    ids = ids or IdSearch()
    promise = learners()[config.learner.kind].promise(config.learner)
    return {
        "ok": (skip or not bad) and ids.stops_at is None,
        "learner": config.learner.kind,
        "promised": promise.promised,
        "guarantee": promise.reason,
        "outlook": learners()[config.learner.kind].outlook(config.learner, _warmup(config, source)),
        "where": config.placement.in_words(),
        "reading": reading_of(config, source, features).sentence,
        "stream": config.stream.model,
        "features": source.features.describe(),
        "names": [text(one, quote) for one in _names(config, source)],
        "rows": source.n_rows,
        "updates": None if isinstance(stream, KeyedStream) else stream.length(),
        "deletions": stream.deletions if isinstance(stream, DeletionLogStream) else None,
        "rows_read": len(rows),
        "missing": _missing(source.features, rows),
        "bad_rows": [said(error, quote) for error in bad],
        "ids_checked": ids.updates,
        "ids_all": ids.complete,
        "refused": ids.refused,
        "bad_updates": [said(error, quote) for error in ids.errors],
        "stops_at": ids.stops_at,
        "classes": None if traits_of(config.learner).reading.regression else _classes(source, quote),
        "warnings": [one.shown(quote) for one in _warnings_of(config, source, rows, ids)],
        "config_hash": config.model_hash(),
    }


def _names(config: Config, source: Source) -> list[Message]:
    """Return what the columns of ids, subjects and keys were taken for, and why."""
    found = []
    for part in ("id", "subject", "key"):
        column = getattr(config.source, part, None)
        if column is None:
            continue
        files = getattr(source, "data_files", ())
        unlike = [file.unlike[column] for file in files if column in getattr(file, "unlike", ())]
        why = message("configs.typed_names")
        for option in ("text", "integers"):
            if column in getattr(config.source, option, ()):
                why = message("configs.declared_names", option=option)
        if unlike:
            why = message("configs.unlike_names", value=quoted(unlike[0], 40))
        kind = {"text": "text", "integer": "integers"}[getattr(source, f"{part}_kind")]
        found.append(message("configs.names", part=part, column=column, kind=kind, why=why))
    return found


def _warmup(config: Config, source: Source) -> int:
    """Return the rows of the warm-up, which are all that there are in training."""
    return source.count_rows() if isinstance(config.stream, Training) else config.stream.warmup


def _classes(source: Source, quote: bool) -> list[str]:
    return [str(label) if quote else WITHHELD for label in source.classes]


def _warnings_of(config: Config, source: Source, rows: Rows, ids: IdSearch) -> Iterator[Message]:
    """Yield warnings about settings and data that can be run but are hardly meant; ``rows`` were read."""
    output, warmup, n_rows, classes = config.output, config.stream.warmup, source.n_rows, len(source.classes)
    places = ["predictions/"] if output.predictions else []
    places += ["quarantine/", "log.jsonl"] if output.quote_values else []
    if places and (config.erasure.deadline or config.checkpoint.max_age) is not None:
        # A running job keeps copies of deleted examples there although its checkpoints are bounded.
        yield message("configs.unbounded_copies", places=", ".join(places))
    if n_rows is not None and warmup >= n_rows and not isinstance(config.stream, Training):
        yield message("configs.all_warmup", warmup=warmup, rows=counted(n_rows, "row"))
    yield from doubtful(config, source)
    if classes > MANY_CLASSES:  # labels look like numbers
        said = {"column": getattr(config.source, "label", None), "classes": classes, "rows": len(rows)}
        yield message("configs.many_classes", **said, most=MOST_CLASSES, numeric=for_numbers())
    if rows.weight is not None:
        whole: Any = source
        sound = _inserted(rows)
        sums: KeyWeights | WeightSum = (
            WeightSum().plus(int(sound.sum()), rows.weight[sound]) if rows.key is None else KeyWeights(whole).plus(rows)
        )
        if (little := sums.too_little(traits_of(config.learner))) is not None:
            yield little
    if isinstance(config.stream, AdaptiveWindow) and source.features.sparse:
        yield message("streams.no_scouts")
    if not config.stream.previous_labels and config.without_previous_labels() is None:
        yield from _of_last_label(config, rows)
    if ids.early_warmup is not None:
        yield message("runs.early_warmup", **ids.early_warmup)


#: Standard deviations by which the last label has to be right more often than the most frequent one.
_STRONG = 2.5
#: Share of the squared error of the mean that the last number has at most, of at least so many rows.
_STRONG_ERROR, _FEW = 0.5, 64


def _of_last_label(config: Config, rows: Rows) -> Iterator[Message]:
    """Yield a message if the last label repeated predicts the rows much better than the best constant; both by key."""
    brings = np.flatnonzero(_inserted(rows))
    key = np.zeros(len(brings), dtype=np.int64) if rows.key is None else rows.key[brings]
    order = np.argsort(key, kind="stable")
    y, key = rows.y[brings][order], key[order]
    follows = np.flatnonzero(key[1:] == key[:-1]) + 1
    n = len(follows)
    parts = [y[follows[begin:end]] for begin, end in pairwise(_runs(key[follows]))]
    said = {"rows": f"{n:,}", "model": config.stream.model}
    if traits_of(config.learner).reading.regression:
        last = float(((y[follows] - y[follows - 1]) ** 2).sum())
        mean = sum(float(((part - part.mean()) ** 2).sum()) for part in parts)
        if n >= _FEW and last < _STRONG_ERROR * mean:
            yield message("streams.strong_last_number", share=f"{last / mean:.0%}", **said)
        return
    right, most = np.count_nonzero(y[follows] == y[follows - 1]), sum(int(np.bincount(part).max()) for part in parts)
    p, q = (right / n, most / n) if n else (0.0, 0.0)
    if n and p - q > _STRONG * np.sqrt((p * (1 - p) + q * (1 - q)) / n):
        yield message("streams.strong_last_label", last=f"{p:.1%}", majority=f"{q:.1%}", **said)


def _runs(key: Ints) -> list[int]:
    """Return where runs of equal keys begin, and the end of the last."""
    return [0, *(np.flatnonzero(np.diff(key)) + 1).tolist(), len(key)] if len(key) else []


def _inserted(rows: Rows) -> Bools:
    """Mask of the rows that bring an example and are not bad."""
    sound = np.ones(len(rows), dtype=np.bool_) if rows.op is None else (rows.op == INSERT) | (rows.op == UPDATE)
    sound[list(rows.bad)] = False
    return sound


def _missing(features: Features, rows: Rows) -> dict[str, int]:
    """Count, for each feature with some, the values that were taken for missing."""
    X = rows.X[_inserted(rows)]
    absent = np.isnan(X) | (np.array(features.categorical, dtype=np.bool_) & (X == -1.0))
    counts = zip(features.names, np.count_nonzero(absent, axis=0).tolist(), strict=True)
    return {name: count for name, count in counts if count}
