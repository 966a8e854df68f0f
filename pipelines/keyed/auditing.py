"""The audit of models by key: each key's state against the raw rows of its key, read again from the source.

Invariant: as of :mod:`pipelines.auditing`. The rows are told apart by key as they are for a run; all else of the
history is the plain replay of a stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, cast

from pipelines.config import Config
from pipelines.following.table_audit import LivingOfKey, compare_keys_with_table
from pipelines.keyed.lineage import UpdateOfHistories
from pipelines.keyed.past import PastOfKeys
from pipelines.keyed.streams import StreamsOfKeys
from pipelines.run_folder import fitting
from pipelines.running.preflight import features_of
from pipelines.saved_runs import audit_saved
from raydt.audits.audit_report import AuditReport
from raydt.errors import ModelFileError
from raydt.examples.features import Features
from raydt.examples.history import History
from raydt.keyed.groups import Key, in_order
from raydt.keyed.saved import SavedKeys
from raydt.keyed.stream import KeyedStream
from raydt.learners import learners
from raydt.learners.auditing import audit
from raydt.learners.base import Learner
from raydt.messages import message
from raydt.redaction import quoted
from raydt.sessions.saved_model import SavedModel
from raydt.sources.live.base import LiveOptions
from raydt.streams.history import Replay

#: Failures that a report lists.
_MOST_FAILURES = 50
#: In the place of an update: a purge, which has removed the keys without a live example.
_PURGE = "purge"


def histories(
    config: Config, stream: KeyedStream, saved: SavedKeys, past: PastOfKeys, only: Key | None = None
) -> tuple[dict[Key, Replay], StreamsOfKeys]:
    """Replay the rows of the source, and updates in between, up to the last state of a run for each key, or for one.

    Keys are in the order of their groups, so that whoever compares them with a saved state reads each group once. Also
    returns the streams of the keys, which have come to that state.
    """
    with fitting(saved.place):
        stops = _stops(saved, 0 if past.before is None else len(past.before.components["stream"].get("purges", ())))
    if stream.table is not None:
        stream.table.erased = lambda id: True  # the run has found out which deletions a receipt shows as done
    if past.before is not None:
        stream.restore(past.before.components["stream"])
    streams = StreamsOfKeys(config, stream, only)
    found = past.begin(streams, only)
    for row, deletions, step in stops:
        for key, own in streams.read(row, deletions):
            found.setdefault(key, Replay(own.source)).read(own)
        if step is _PURGE:
            for key in [key for key, replay in found.items() if not replay.live]:
                del found[key]
                streams.forget(key)
        elif step is not None:
            UpdateOfHistories(config, streams, saved, only).follow(step, found)
    return {key: found[key] for key in in_order(found)}, streams


def _stops(saved: SavedKeys, begun: int) -> list[tuple[int, int, Any]]:
    """Return, in order, after which rows and deletions a run has been updated or purged, and where its state is.

    With each the step of its lineage, :data:`_PURGE`, or None for the state. ``begun`` purges came before the chapter.
    """
    at, lineage = saved.components["stream"], saved.meta.get("lineage", [])
    purges = at.get("purges", [])[begun:]
    stops: list[tuple[int, int, Any]] = []
    for place in range(len(lineage) + 1):  # a purge stands behind the updates that it has met
        stops += [(int(row), int(deletions), _PURGE) for row, deletions, updates in purges if updates == place]
        stops += [(int(step["row"]), int(step.get("deletions", 0)), step) for step in lineage[place : place + 1]]
    return [*stops, (int(at["row"]), int(at.get("deletions", 0)), None)]


def audit_keys(
    config: Config, saved: SavedKeys, stream: KeyedStream, past: PastOfKeys | None, only: Key | None = None
) -> AuditReport:
    """Audit the last state of every key of a run, or of one; ModelFileError if there is no such key.

    Without a ``past``, each state is audited against its own examples.
    """
    if past is None:
        report, streams = audit_states(saved, only), StreamsOfKeys(config, stream, only)
        stream.restore(saved.components["stream"])
        known = PastOfKeys(saved).begin(streams, only)
    else:
        known, streams = histories(config, stream, saved, past, only)
        features = features_of(stream.source, config.learner)
        if only is not None and only not in saved:
            raise saved.unknown(only)
        report = together(_reports(config, saved, known, features, only), known if only is None else {})
    if not isinstance(config.source, LiveOptions):
        return report
    living: dict[Key, LivingOfKey] = {}
    for key, replay in known.items():
        source, own = streams.of(key)
        living[key] = LivingOfKey(replay.result(), cast(Any, own).names_of, source.state())
    compare_keys_with_table(report, config, saved, living, only)
    return report


def _reports(
    config: Config, saved: SavedKeys, known: dict[Key, Replay], features: Features, only: Key | None
) -> Iterator[tuple[Key, AuditReport]]:
    learner = learners()[config.learner.kind]
    for key in [only] if only is not None else saved.keys():
        if key not in known:
            yield key, AuditReport.malformed("key", message("keyed.no_rows", key=quoted(key)))
            continue
        history = known[key].result()
        yield key, _audited(saved, key, partial(_against, learner, config.learner, features, history))


def _against(learner: Learner, options: Any, features: Features, history: History, one: SavedModel) -> AuditReport:
    known = one.options == options and one.features == features  # by which the state was checked when it was read
    return audit(learner, options, features, len(one.classes), one.arrays, history, one.groups, checked=known)


def _audited(saved: SavedKeys, key: Key, work: Callable[[SavedModel], AuditReport]) -> AuditReport:
    """Audit one key; arrays that cannot be are a verdict, too."""
    try:
        return work(saved.saved(key))
    except ModelFileError as error:
        return AuditReport.malformed("key", error.parts["problem"])


def audit_states(saved: SavedKeys, only: Key | None) -> AuditReport:
    """Audit the state of each key, or of one, against its own examples."""
    keys = saved.keys() if only is None else [only]
    return together(((key, _audited(saved, key, audit_saved)) for key in keys), {})


def together(reports: Iterator[tuple[Key, AuditReport]], known: Mapping[Key, Replay]) -> AuditReport:
    """Return the report on all keys: the worst verdicts, sums of what was checked, and failures with their keys.

    A key that is ``known`` to have live examples and that no report is on is lost; one without was purged.
    """
    whole: AuditReport | None = None
    failures: list[Any] = []
    seen, failed, reasons = set[Key](), 0, dict[str, None]()
    for key, report in reports:
        seen.add(key)
        failed += not report.ok
        reasons[report.reason] = None
        failures += [message("keyed.failure", key=quoted(key), failure=one) for one in report.failures]
        if whole is None:
            whole = AuditReport(report.conformance, report.feasibility, report.reason)
        if report.conformance == "violated":
            whole.conformance = "violated"
        if report.feasibility == "violated":
            whole.feasibility = "violated"
        for name, count in report.checked.items():
            whole.checked[name] = whole.checked.get(name, 0) + count
        for name, value in report.worst.items():
            whole.worst[name] = max(whole.worst.get(name, value), value)
    if whole is None:
        whole = AuditReport("holds", "not_promised", message("keyed.none"))
    missing = [key for key, replay in known.items() if key not in seen and replay.live]
    if missing:
        whole.conformance, failed = "violated", failed + len(missing)
    whole.checked = {"keys": len(seen), **whole.checked}
    if len(reasons) > 1:
        whole.reason = message("keyed.verdicts_failed" if failed else "keyed.verdicts", keys=len(seen), failed=failed)
    lost = [message("keyed.lost", key=quoted(key)) for key in missing]
    whole.failures = [*lost, *failures][:_MOST_FAILURES]
    return whole
