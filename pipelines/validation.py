"""A look at a config and its data before the run: what would be read, and whether the first rows can be used."""

from __future__ import annotations

from typing import Any

from pipelines.config import Config
from pipelines.id_check import Found, search, without_remedy
from pipelines.placement import place
from pipelines.reading import reading_of
from pipelines.redaction import quoting, said
from pipelines.running.preflight import doubtful, features_of
from pipelines.saved_runs import no_rows, open_stream
from raydt.examples.targets import MOST_CLASSES
from raydt.keyed.stream import KeyedStream
from raydt.learners import for_numbers, learners, traits_of
from raydt.messages import Message, message
from raydt.parallel.threads import limited
from raydt.presentation.words import counted
from raydt.redaction import WITHHELD, quoted, text
from raydt.sources.base import Source
from raydt.streams.deletion_log import DeletionLogStream
from raydt.streams.training import Training

#: More classes than this are rarely meant.
MANY_CLASSES = 100


def look_at(config: Config) -> dict[str, Any]:
    """Check the data a run of ``config`` would read.

    Opens the source and reads its schema and first rows; a column that is missing or cannot be used is an error, and so
    is a deletion log that begins in the warm-up. Where ids can be refused, reads on to check them
    (:func:`pipelines.id_check.search`).

    Returns ``learner``, ``stream``, ``features``, ``names`` (whether ids, subjects and keys are text or integers, and
    why), ``rows`` and ``updates`` (null if not known without reading),
    ``rows_read``, ``bad_rows`` (messages of those read), ``classes`` so far (null where labels are numbers),
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
    ids = _refused(config, skip) if skip or not bad else None
    ids = ids or Found()
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
        "bad_rows": [said(error, quote) for error in bad],
        "ids_checked": ids.updates,
        "ids_all": ids.complete,
        "refused": ids.refused,
        "bad_updates": [said(error, quote) for error in ids.errors],
        "stops_at": ids.stops_at,
        "classes": None if traits_of(config.learner).reading.regression else _classes(source, quote),
        "warnings": [*_warnings(config, source, len(rows)), *_early_warmup(ids)],
        "config_hash": config.model_hash(),
    }


def _refused(config: Config, skip: bool) -> Found | None:
    """Find the updates whose ids a model refuses, of models by key that of each key."""
    stream: Any = open_stream(config)[1]
    if getattr(config.source, "key", None) is None:
        return search(stream, skip)
    from pipelines.keyed.streams import search_keys

    return search_keys(config, stream, skip)


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


def _warnings(config: Config, source: Source, rows: int) -> list[Message]:
    """Return warnings about settings that can be run but are hardly meant; ``rows`` were read."""
    found = [*_unbounded(config), *_all_warmup(config, source.n_rows), *doubtful(config, source)]
    classes, column = len(source.classes), getattr(config.source, "label", None)
    if classes <= MANY_CLASSES:
        return found
    said = {"column": column, "classes": classes, "rows": rows, "most": MOST_CLASSES, "numeric": for_numbers()}
    return [*found, message("configs.many_classes", **said)]


def _all_warmup(config: Config, rows: int | None) -> list[Message]:
    """Return a warning if the warm-up leaves no row to predict."""
    warmup = config.stream.warmup
    if rows is None or warmup < rows or isinstance(config.stream, Training):
        return []
    return [message("configs.all_warmup", warmup=warmup, rows=counted(rows, "row"))]


def _early_warmup(found: Found) -> list[Message]:
    """Return a warning if the warm-up ends early."""
    return [] if found.early_warmup is None else [message("runs.early_warmup", **found.early_warmup)]


def _unbounded(config: Config) -> list[Message]:
    """Return a warning of copies of deleted examples that a running job keeps although its checkpoints are bounded."""
    if config.erasure.deadline is None and config.checkpoint.max_age is None:
        return []
    places = ["predictions/"] if config.output.predictions else []
    if config.output.quote_values:
        places += ["quarantine/", "log.jsonl"]
    return [message("configs.unbounded_copies", places=", ".join(places))] if places else []
