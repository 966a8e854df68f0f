"""The audit of a run: its last state against the raw examples, read again from the source.

Invariant: nothing the run has computed is trusted. Examples, labels and lifetimes come from the source through the
stream model; only the state under test comes from the run folder. A state on its own (after an update there is no
source to read again) is audited against the examples in it; so is that of a run whose live source does not keep any
more what the run has read, which the report says.
"""

from __future__ import annotations

import logging
import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, cast

from pipelines.chapters.auditing import audit_chapters
from pipelines.chapters.chapter import run_of
from pipelines.chapters.history import history_of_chapter
from pipelines.config import Config
from pipelines.following.table_audit import compare_with_table
from pipelines.redaction import may_quote, quoting_as_its_run
from pipelines.reporting import publish_report
from pipelines.run_folder import RunFolder
from pipelines.running.differences import require_same_data
from pipelines.running.ending import read_summary, write_summary
from pipelines.running.plans import PlanLog
from pipelines.running.preflight import features_of
from pipelines.saved_runs import (
    audit_saved,
    config_of,
    find_state,
    last_state,
    load_state,
    open_state,
    open_stream,
    states_of,
)
from pipelines.threads_of_run import in_threads_of_its_run
from pipelines.updating.lineage import history_of_run
from raydt.arrays.types import Ints
from raydt.audits.audit_report import AuditReport, noted
from raydt.errors import ConfigError, InputError, ModelFileError, NotWrittenError
from raydt.examples.features import Features
from raydt.examples.history import History, history_of_live
from raydt.examples.targets import in_order
from raydt.folders.checkpoint import CheckpointStore, read_checkpoint
from raydt.folders.lock import locked
from raydt.keyed.saved import open_keys
from raydt.learners import learners
from raydt.learners.auditing import audit
from raydt.messages import message
from raydt.redaction import text
from raydt.sessions.saved_model import groups_of
from raydt.sources.live.base import HistoryGoneError
from raydt.sources.live.followed import FollowedSource

log = logging.getLogger(__name__)


@in_threads_of_its_run
@quoting_as_its_run
def audit_run(run: str | Path, key: str | None = None, *, shards: int = 1, address: str | None = None) -> AuditReport:
    """Audit the last state of a run, and record the verdicts in its summary and report, or warn.

    Of models by key all are audited, or that of ``key``, whose verdict is recorded nowhere; of a run in chapters each
    of them. With several ``shards``, so many processes on the Ray at ``address`` (None: that of the config) have some
    of the rows each. InputError if the folder holds no finished run or no state, or the source is not what the run has
    read; ConfigError for several shards if the audit needs all rows in one process, for an address without several, and
    for fewer than one.
    """
    if shards < 1:
        raise ConfigError(message("cluster.no_shard", shards=shards))
    if address is not None and shards == 1:
        raise ConfigError(message("commands.no_shards"))
    if (whole := RunFolder(run)).chapters():
        if shards > 1:
            raise ConfigError(message("audits.divided_past"))
        return audit_chapters(whole, audit_run)
    folder = RunFolder.existing(run)
    before = read_summary(folder)
    config = config_of(folder).read_again()
    by_key = getattr(config.source, "key", None) is not None
    if key is not None and not by_key:
        raise InputError(message("keyed.one"), file=folder.location)
    if shards > 1:
        from pipelines.divided_audit import audit_by_buckets

        folder.require_saved()
        with _naming_sound_state(config, folder):
            report = audit_by_buckets(folder, config, shards, address)
    elif by_key:
        report = _spoken(_audit_keys(folder, config, key), run)
        if key is not None:
            return report
    else:
        ended = last_of(folder)
        learner = learners()[config.learner.kind]
        state, groups = ended.components["coordinator"], groups_of(ended.components)
        classes = len(ended.meta["classes"])
        report = audit(learner, config.learner, ended.features, classes, state, ended.history, groups)
        _say_gone(report, ended.gone)
        compare_with_table(report, config, ended.components["stream"], ended.history, ended.names)
    try:
        with locked(folder):
            summary = read_summary(folder)  # a purge may have changed it meanwhile, or a resume the run
            if summary["model_digest"] != before["model_digest"]:
                raise ConfigError(message("verdicts.changed_run"))
            write_summary(folder, {**summary, "audit": report.as_dict()})
            if config.output.report:
                publish_report(folder)
    except (OSError, ConfigError, NotWrittenError) as error:  # the verdict is what was asked for
        log.warning("%s: %s", message("verdicts.not_stored", folder=folder.location), error)
    return report


def _audit_keys(folder: RunFolder, config: Config, key: str | None) -> AuditReport:
    """Audit the last state of models by key, or of one of them."""
    from pipelines.keyed.auditing import audit_keys
    from pipelines.keyed.past import past_of_keys

    place = last_state(states_of(config, folder))
    saved = open_keys(place.root, filesystem=place.filesystem)
    source, stream = open_stream(config)
    if saved is None:
        raise ModelFileError(message("keyed.one"), file=place.location)
    require_same_data(config, saved.meta, source, stream, folder)
    only = None if key is None else saved.find(key)
    past = past_of_keys(folder, source, saved)
    try:
        return audit_keys(config, saved, cast(Any, stream), past, only)
    except HistoryGoneError as gone:
        report = audit_keys(config, saved, cast(Any, open_stream(config)[1]), None, only)
        _say_gone(report, gone)
        return report


def _say_gone(report: AuditReport, gone: HistoryGoneError | None) -> None:
    """Say in a report on the examples stored in a state why the source was not read again, if it was not."""
    if gone is not None:
        report.reason = noted(report.reason, message("verdicts.past_gone", reason=gone.parts["problem"]))


class Ended(NamedTuple):
    """The last state of a run, and its raw examples as they are read again from the source."""

    config: Config
    meta: dict[str, Any]
    components: Mapping[str, dict[str, Any]]
    features: Features
    history: History
    class_order: Ints
    names: Callable[[Ints], list[Any]]  #: Ids as the source has them.
    gone: HistoryGoneError | None = None  #: Why the history is that of the examples stored in the state.


def last_of(folder: RunFolder) -> Ended:
    """Return the last state of a finished run and its history; InputError without one, or of another source.

    Where a live source does not keep any more what the run has read, the history is that of the examples stored in the
    state, which a warning says.
    """
    config = config_of(folder).read_again()
    folder.require_saved()
    meta, components = _last_state(config, folder)
    source, stream = open_stream(config)
    require_same_data(config, meta, source, stream, folder)
    features = features_of(source, config.learner)
    gone = None
    try:
        if (found := run_of(folder)) is not None and found[1] > 1:
            history = history_of_chapter(folder, stream, features, meta, components)
        else:
            if isinstance(source, FollowedSource):
                source.plans = PlanLog(folder, grows=False)
            history = history_of_run(config, features, stream, meta, folder.location)
    except HistoryGoneError as error:
        log.warning("%s", message("verdicts.past_gone", reason=error.parts["problem"]).at(folder.location))
        gone, (source, stream) = error, open_stream(config)
        stream.restore(components["stream"])
        history = history_of_live(components["coordinator"], groups_of(components), features)
    order = in_order(meta["classes"], source.positive is not None)
    names = lambda ids: cast(Any, stream).names_of(ids)  # noqa: E731
    return Ended(config, meta, components, features, history, order, names, gone)


def _last_state(config: Config, folder: RunFolder) -> tuple[dict[str, Any], Mapping[str, dict[str, Any]]]:
    """Return the last state of a run; ModelFileError as of :func:`_naming_sound_state`."""
    with _naming_sound_state(config, folder):
        return load_state(states_of(config, folder))


@contextmanager
def _naming_sound_state(config: Config, folder: RunFolder) -> Iterator[None]:
    """Context in which the error of a damaged last state of a run names the newest sound one, if there is one."""
    try:
        yield
    except ModelFileError as error:
        states = states_of(config, folder)
        earlier = CheckpointStore(states, 1).numbers()[:-1]
        sound = next((number for number in reversed(earlier) if _is_sound(states.inside(str(number)))), None)
        if sound is None:
            raise
        place = states.inside(str(sound)).location
        remedy = message("verdicts.earlier_state", update=sound, path=shlex.quote(place))
        raise ModelFileError(error.problem, file=error.file, remedy=remedy) from error


def _is_sound(state: RunFolder) -> bool:
    try:
        read_checkpoint(state)
    except ModelFileError:
        return False
    return True


@in_threads_of_its_run
@quoting_as_its_run
def audit_state(location: str | Path, key: str | None = None) -> AuditReport:
    """Audit a state, also of a run's ``checkpoints/``, against its own examples: not what needs the past."""
    place = find_state(location).folder
    keys = open_keys(place.root, filesystem=place.filesystem)
    if keys is not None:
        from pipelines.keyed.auditing import audit_states

        return _spoken(audit_states(keys, None if key is None else keys.find(key)), location)
    if key is not None:
        raise InputError(message("keyed.one"), file=place.location)
    return audit_saved(open_state(place)[0])


def _spoken(report: AuditReport, place: str | Path) -> AuditReport:
    """Return a report that names keys, which are values of the data, or withholds them, as the run says."""
    quote = may_quote(place)
    report.reason = text(report.reason, quote)
    report.failures = [text(one, quote) for one in report.failures]
    return report
