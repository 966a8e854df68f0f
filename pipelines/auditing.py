"""The audit of a run: its last state against the raw examples, read again from the source.

Invariant: nothing the run has computed is trusted. Examples, labels and lifetimes come from the source through the
stream model; only the state under test comes from the run folder. A state on its own (after an update there is no
source to read again) is audited against the examples in it; so is that of a run whose live source does not keep any
more what the run has read, which the report says.
"""

from __future__ import annotations

import logging
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple, cast

from pipelines.chapters import audit_chapters, history_of_chapter, run_of
from pipelines.config import Config, shortened
from pipelines.following import compare_with_table
from pipelines.living import Living, living_of, rebuilt_digest
from pipelines.operation import in_threads_of_its_run
from pipelines.receipts import may_quote, origin_of, quoting_as_its_run
from pipelines.reporting import publish_report
from pipelines.run_folder import RECEIPT_KEY, RECEIPTS, RunFolder
from pipelines.running.ending import read_summary, write_summary
from pipelines.running.plans import PlanLog, features_of, require_same_data
from pipelines.running.requests import require_known
from pipelines.saved_runs import (
    StatePlace,
    audit_saved,
    config_of,
    find_state,
    last_state,
    load_model,
    load_state,
    open_state,
    open_stream,
    states_of,
)
from pipelines.updating.lineage import history_of_run
from pipelines.validation import SHARDS_PER_CPU
from raydt.arrays.digest import digest
from raydt.arrays.elementary import AnyArray, Arrays, Ints
from raydt.audits.recorded_tree import AuditReport, noted
from raydt.encoding.columns import integer_of
from raydt.errors import ConfigError, InputError, ModelFileError, NotWrittenError, ProcessLostError, RaydtError
from raydt.examples.row_owners import RowOwners
from raydt.examples.updates import Features, History, history_of_live, in_order
from raydt.exchange.messages import OWNED, Buckets
from raydt.folders.arrays import FORMAT_VERSION, MANIFEST, complete, newest, open_folder
from raydt.folders.checkpoint import CheckpointStore, read_checkpoint
from raydt.folders.folder import Folder, locked
from raydt.folders.segments import rows_in, with_rows
from raydt.keyed.packing import open_keys
from raydt.learners import learners, traits_of
from raydt.learners.base import AuditedPart, LearnerOptions, audit, audit_divided, rows_within
from raydt.messages import Message, message
from raydt.redaction import text
from raydt.sessions.receipt import options_hash, trained_from_nothing
from raydt.sessions.receipt_chain import IDS, SUBJECTS, Chain, Key, Origin, events_of, in_effect, is_deleted, read_chain
from raydt.sessions.saved_model import SavedModel, groups_of, understood
from raydt.sources.live.base import HistoryGoneError, LiveOptions
from raydt.sources.live.followed import FollowedSource
from raydt.streams.base import history_of

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
    from pipelines.keyed.auditing import audit_keys, past_of_keys

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


# The audit of a run divided by buckets of rows: each process reads the source and the state for its own rows alone.
#
# Invariant: as of :mod:`pipelines.auditing`. A part keeps the raw examples with ids in its buckets, and what the state
# has of the same ids; what is checked of all rows is the sum of what the parts find.


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
    from actors.cluster import bundles, connect, cpus_here, starts_ray
    from actors.keyed_session import PartsOnRay

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


# ``verify``: a model against one trained from nothing on the live examples, and a chain of receipts against a state.
#
# For learners whose model is a function of the live examples (``Traits.retrained``): equal digests prove that nothing
# of a deleted example is left in the trees, to anyone who holds the remaining ones. The names of categories and classes
# that only deleted examples had stay in the manifests of models and states. The training knows neither the order of the
# updates nor what was deleted: the examples are inserted in ascending order of their ids.


@in_threads_of_its_run
def verify_run(run: str | Path) -> dict[str, Any]:
    """Train a model from nothing on the examples that a run has left, and compare the digests.

    ``run`` is a finished run, whose examples are read again from the source, or a state, which has its examples in it.
    Returns ``equal``, ``different`` (what differs from the model trained from nothing: the run's digest, its state or
    its saved model, which is compared if the state is right), the ``digest`` of the run or state and the one
    ``rebuilt``, ``examples`` that are live, and how many there ever were (``inserted``; None of a state, and of a later
    chapter).

    InputError if there is no run or state, its source has changed, or the model of its learner depends on the past.
    """
    if newest(RunFolder(run)).has(MANIFEST):
        place = find_state(run).folder
        keys = open_keys(place.root, filesystem=place.filesystem)
        if keys is not None:
            from pipelines.keyed.auditing import of_state

            _require_retrained(keys.outline().options, str(run))
            stated, rebuilt, live, _ = of_state(keys)
            return _found([message("verdicts.state")] if stated != rebuilt else [], stated, str(rebuilt), live, None)
        saved, _ = open_state(run)
        _require_retrained(saved.options, str(run))
        session, rebuilt = saved.session(), rebuilt_digest(saved)
        different = [message("verdicts.state")] if session.digest() != rebuilt else []
        return _found(different, session.digest(), rebuilt, session.coordinator.store.live, None)
    folder = RunFolder.existing(run)
    config = config_of(folder).read_again()
    if getattr(config.source, "key", None) is not None:
        from pipelines.keyed.auditing import of_run

        _require_retrained(config.learner, folder.location)
        return _found(*of_run(folder, config, str(read_summary(folder)["model_digest"])))
    ended = last_of(folder)
    options, features, history = ended.config.learner, ended.features, ended.history
    _require_retrained(options, folder.location)
    arrays = ended.components["coordinator"]
    trained = trained_from_nothing(options, features, history, ended.class_order, arrays)
    stated, rebuilt = str(read_summary(folder)["model_digest"]), trained.digest()
    state = understood(ended.meta, ended.components, folder.location).session()
    if ended.meta["format_version"] != FORMAT_VERSION:
        stated = state.digest()  # another format may compute it in another way
    saved, meta = load_model(folder.location), ended.meta
    same_names = saved.classes == meta["classes"] and saved.categories == meta["categories"]
    different = [message("verdicts.digest")] * (stated != rebuilt)
    if state.digest() != rebuilt:
        different.append(message("verdicts.run_state"))
    elif not same_names or not _same(saved.arrays, state.model()):  # the state is right, and gives this model
        different.append(message("verdicts.model"))
    inserted = len(history.id) if history.complete else None
    return _found(different, stated, rebuilt, trained.coordinator.store.live, inserted)


def _found(different: list[Message], stated: str, rebuilt: str, live: int, inserted: int | None) -> dict[str, Any]:
    """Return the result of :func:`verify_run`."""
    found = {"equal": not different, "different": different, "digest": stated, "rebuilt": rebuilt}
    return found | {"examples": live, "inserted": inserted}


def _same(one: Mapping[str, AnyArray], other: Mapping[str, AnyArray]) -> bool:
    """Return True if two models have the same arrays, bit for bit."""
    return one.keys() == other.keys() and digest(sorted(one.items())) == digest(sorted(other.items()))


def _require_retrained(options: LearnerOptions, place: str) -> None:
    if not traits_of(options).retrained:
        kinds = [kind for kind, learner in learners().items() if learner.traits(learner.Options()).retrained]
        raise InputError(message("verdicts.order", kind=options.kind, kinds=" or ".join(kinds)), file=place)


def verify_requests(run: str | Path, **asked: Any) -> dict[str, Any]:
    """Check the chain of receipts in the folder of a run, and what it and the newest checkpoint say of what is asked.

    Arguments, results and errors as of :func:`verify_receipts`, whose ``state`` is the newest checkpoint, if there is
    one. InputError if the chain is not the one that the run has written.
    """
    folder, chain = RunFolder(run), Path(run) / RECEIPTS
    with_state = any(complete(states_of(config_of(one), one)) for one in folder.chapters() or [folder])
    found = verify_receipts(chain, run if with_state else None, **asked, retrain=False)
    return {**found, "state": run if with_state else None}


def verify_receipts(
    path: str | Path,
    state: str | Path | None = None,
    *,
    key: str | None = None,
    public_key: str | None = None,
    ids: Sequence[str] = (),
    subjects: Sequence[str] = (),
    retrain: bool = True,
) -> dict[str, Any]:
    """Check a chain of receipts and, with a ``state``, that it is what the last receipt says.

    ``key`` is the key file of the ids, by default the one beside the chain of a run: no id that was deleted, and not
    inserted again, lives in the state, and so it is for the rows of deleted subjects. ``public_key``, 64 hexadecimal
    digits, must have signed every receipt. ``ids`` and ``subjects`` are asked for; they need the key. ``retrain`` says
    if a model is trained from nothing where that proves something.

    Returns ``receipts`` and, among them, ``purges`` and ``rollbacks``; ``deletes``, ``head``, ``gaps``, ``signers`` and
    ``all_signed`` of the chain, and its ``origin``, the model it is about; of each of ``ids`` and ``subjects`` whether
    it is ``deleted``, in which ``receipt``, at what ``time``, all ``events``, and with a state whether it is ``live``
    there and therefore not ``deleted`` (of a deleted subject: by a row that no later receipt has inserted; if it has
    others, ``returned``), and whether the state ``contradicts`` the chain; with a state its ``offset``, ``equal`` (its
    digest and options are those of the newest receipt of the chain; None of a state at another update than the
    newest receipt of a run) and ``rebuilt``: whether a model trained from nothing on its examples has that digest, too,
    None where the model depends on the past; with a key ``live``, how many ids live that were deleted before the state,
    and ``keyed``, whether every receipt tells that this is its key; ``ok``, whether all of it holds.

    InputError if the chain is not whole, not signed by ``public_key``, or about another model than the state, or there
    is no state; ConfigError if a key cannot be used, or is not that of the chain.
    """
    beside = Path(path).with_name(RECEIPT_KEY)
    if key is None and Path(path).name == RECEIPTS and beside.exists():
        key = str(beside)  # of the chain of a run
    if public_key is not None and re.fullmatch("[0-9a-fA-F]{64}", public_key) is None:
        raise ConfigError(message("receipts.public_key", given=shortened(public_key)))
    secret = Key.read(key) if key is not None else None
    if (ids or subjects) and secret is None:
        raise ConfigError(message("verdicts.ids_without_key"))
    chain = read_chain(path, secret)
    if public_key is not None and not (chain.all_signed and chain.signers == [public_key.lower()]):
        raise InputError(message("verdicts.not_signed"), file=str(path))
    found: dict[str, Any] = {
        "receipts": len(chain.entries),
        "purges": sum("purged" in entry for entry in chain.entries),
        "rollbacks": sum("rolled_back" in entry for entry in chain.entries),
        "deletes": sum(len(entry["deleted"]) for entry in chain.entries),
        "head": chain.head,
        "gaps": chain.gaps,
        "signers": chain.signers,
        "all_signed": chain.all_signed,
        "origin": chain.origin,
    }
    living: Living | None = None
    if state is not None:
        compared, living = _compared(state, chain, secret, retrain=retrain)
        found |= compared
    found["ok"] = found.get("equal") is not False and found.get("rebuilt") is not False and not found.get("live")
    for kind, names in (("id", ids), ("subject", subjects)):
        if names and secret is not None:
            asked = [_asked(kind, name, _hashes(secret, name), chain, living) for name in names]
            found[f"{kind}s"] = asked
            found["ok"] = found["ok"] and all(one["deleted"] for one in asked)
    return found


def _hashes(key: Key, name: str) -> list[str]:
    """Return the hashes that a name given as text may have: an integer has another than the same digits as text."""
    integer = integer_of(name)
    return [key.hash(name), *([] if integer is None else [key.hash(integer)])]


def _asked(kind: str, name: str, hashes: list[str], chain: Chain, living: Living | None) -> dict[str, Any]:
    """Return what a chain, and a state, say of an id or of a subject, which entries name by hashes."""
    events = events_of(chain, hashes, IDS if kind == "id" else SUBJECTS)
    event = is_deleted(events)
    said: dict[str, Any] = {kind: name, "deleted": event is not None}
    said |= {"receipt": None, "time": None} if event is None else {"receipt": event.receipt, "time": event.time}
    if living is not None:
        there, against = (living.ids, living.against) if kind == "id" else (living.left, living.persons)
        said["live"] = not there.isdisjoint(hashes)
        said["deleted"] = said["deleted"] and not said["live"]
        said["contradicts"] = event is not None and not against.isdisjoint(hashes)
        if kind == "subject":
            said["returned"] = not said["live"] and not living.subjects.isdisjoint(hashes)
    return said | {"events": [one._asdict() for one in events]}


@in_threads_of_its_run
def _compared(
    state: str | Path, chain: Chain, key: Key | None, *, retrain: bool
) -> tuple[dict[str, Any], Living | None]:
    """Compare a state with the last receipt of a chain; with the key, also return the hashes of what it has."""
    place, last = find_state(state), chain.newest
    folder = place.folder
    keys = open_keys(folder.root, filesystem=folder.filesystem)
    saved = open_state(folder)[0] if keys is None else keys.outline()
    requests = saved.components.get("recorder", {}).get("requests")
    own = requests if place.run is not None and _is_own(chain.path, place.run) else None
    offset, living = saved.meta.get("offset"), None
    if keys is not None:
        from pipelines.keyed.auditing import living_keys, of_state

        stated, rebuilt, active, options = of_state(keys, retrain=retrain)
    else:
        session, options = saved.session(), saved.options
        stated, active = session.digest(), session.coordinator.store.live
        rebuilt = rebuilt_digest(saved) if retrain and traits_of(options).retrained else None
    _require_origin(chain, place, origin_of(folder.location, saved, lambda: stated), own, saved.meta)
    if key is not None:
        entries = _entries_until(in_effect(chain), offset if own is not None else None, own)
        living = living_of(saved, entries, key) if keys is None else living_keys(keys, entries, key)
    same = stated == last["digest_after"] and last["options_hash"] == options_hash(options)
    equal: bool | None = same and last["active"] == active
    if "source" in last and last["source"]["updates"][1] != offset:
        equal = None
    found: dict[str, Any] = {"equal": equal, "offset": offset}
    found["rebuilt"] = None if rebuilt is None else rebuilt == (stated if equal is None else last["digest_after"])
    if living is not None:
        found |= {"keyed": chain.keyed, "live": living.deleted}
    return found, living


def _is_own(chain: str, run: RunFolder) -> bool:
    """Return True if a chain is the one in the folder of a run, which may be a chapter."""
    whole = run_of(run)
    folder = run if whole is None else whole[0]
    return folder.is_local and Path(chain).resolve() == (Path(folder.root) / RECEIPTS).resolve()


def _require_origin(
    chain: Chain, place: StatePlace, origin: Origin, own: Mapping[str, Any] | None, meta: Mapping[str, Any]
) -> None:
    """Refuse (InputError) a chain that is not about the model of a state; ``own``: the requests of its run.

    A run knows more of its own chain: the last line that its checkpoint and its summary have seen.
    """
    if own is not None and place.run is not None:
        require_known(chain, own, bool(meta.get("lineage")))
        last = read_summary(place.run).get("receipt") if place.run.has("summary.json") else None
        chain.require(origin._replace(run=own.get("run") or origin.run, heads=() if last is None else (last,)))
    else:
        chain.require(origin)


def _entries_until(
    entries: Sequence[Mapping[str, Any]], offset: int | None, requests: Mapping[str, Any] | None
) -> list[Mapping[str, Any]]:
    """Return what entries say of a run up to ``offset`` (None: all), with ``requests`` that have no receipt there."""
    found: list[Mapping[str, Any]] = []
    for entry in entries:
        if offset is not None and "source" in entry:
            pairs = zip(entry["deleted"], entry["source"]["at"], strict=True)
            entry = {**entry, "deleted": [hash for hash, at in pairs if at < offset]}
        found.append(entry)
    if requests is not None:
        found.append({"deleted": [hash for hash, *_ in requests["deleted"]], "inserted": list(requests["inserted"])})
    return found
