"""The audit of a run: its last state against the raw examples, read again from the source.

Invariant: nothing the run has computed is trusted. Examples, labels and lifetimes come from the source through the
stream model; only the state under test comes from the run folder. A state on its own (after an update there is no
source to read again) is audited against the examples in it; so is that of a run whose live source does not keep any
more what the run has read, which the report says.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from pipelines.chapters import audit_chapters, run_of
from pipelines.config import Config
from pipelines.following import compare_with_table
from pipelines.histories import EndedRun, last_of, naming_sound_state
from pipelines.operation import in_threads_of_its_run
from pipelines.receipts import may_quote, origin_of, quoting_as_its_run
from pipelines.reporting import publish_report
from pipelines.run_folder import RECEIPT_KEY, RECEIPTS, RunFolder
from pipelines.running.ending import read_summary, write_summary
from pipelines.running.plans import features_of, require_same_data
from pipelines.running.requests import require_known
from pipelines.saved_runs import (
    StatePlace,
    config_of,
    find_state,
    last_state,
    load_members,
    open_members,
    open_stream,
    states_of,
)
from pipelines.updating.changes import StateNames
from pipelines.validation import SHARDS_PER_CPU
from raydt.arrays.elementary import Arrays
from raydt.audits.recorded_tree import AuditReport, noted
from raydt.encoding.columns import integer_of
from raydt.errors import ConfigError, InputError, ModelFileError, NotWrittenError, ProcessLostError, RaydtError
from raydt.examples.digest import digest
from raydt.examples.row_owners import RowOwners
from raydt.examples.updates import history_of_live
from raydt.exchange.messages import OWNED, Buckets
from raydt.folders.arrays import FORMAT_VERSION, MANIFEST, complete, newest, open_folder
from raydt.folders.folder import Folder, locked
from raydt.folders.segments import rows_in, with_rows
from raydt.keyed.packing import Member, SavedKeys, Total, live
from raydt.learners import learners, traits_of
from raydt.learners.base import AuditedPart, LearnerOptions, audit, audit_divided, rows_within
from raydt.messages import Message, message, quoted, shortened, text
from raydt.sessions.receipt import options_hash, trained_from_nothing
from raydt.sessions.receipt_chain import (
    IDS,
    SUBJECTS,
    Chain,
    Key,
    Origin,
    about,
    events_of,
    gone,
    in_effect,
    inserted_since_deletion,
    is_deleted,
    read_chain,
)
from raydt.sessions.saved_model import BY_KEY, SavedModel, understood
from raydt.sources.live.base import LiveOptions
from raydt.streams.base import Replay, history_of

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
        with naming_sound_state(config, folder):
            report = audit_by_buckets(folder, config, shards, address)
    else:
        ended = last_of(folder, key)
        known = ended.histories
        lost = [] if key is not None or ended.stored else [one for one in known if known[one].live]
        report = _together(_reports(ended), lost)
        if ended.gone is not None:
            reason = message("verdicts.past_gone", reason=ended.gone.parts["problem"])
            report.reason = noted(report.reason, reason)
        if isinstance(config.source, LiveOptions):
            compare_with_table(report, ended, {key: replay.result() for key, replay in known.items()})
        if by_key:
            report = _spoken(report, run)
        if key is not None:
            return report
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


@in_threads_of_its_run
@quoting_as_its_run
def audit_state(location: str | Path, key: str | None = None) -> AuditReport:
    """Audit a state, also of a run's ``checkpoints/``, against its own examples: not what needs the past."""
    place = find_state(location).folder
    members = open_members(place)
    wanted = members if key is None else [members.find(key)]
    report = _together(((one, _audited(members, one, _against_itself)) for one in wanted), [])
    return _spoken(report, location) if BY_KEY in members.meta else report


def _against_itself(saved: SavedModel) -> AuditReport:
    """Audit a state against its own examples."""
    history = history_of_live(saved.arrays, saved.groups, saved.features)
    return saved.learner.audit(saved.options, saved.features, saved.arrays, history, saved.groups)


def _reports(ended: EndedRun) -> Iterator[tuple[Member, AuditReport]]:
    """Audit the members of a run, one after the other."""
    for key in ended.members if ended.only is None else [ended.only]:
        if key in ended.histories:
            yield key, _audited(ended.members, key, partial(_against, ended, ended.histories[key]))
        else:
            yield key, AuditReport.malformed("key", message("keyed.no_rows", key=quoted(key)))


def _against(ended: EndedRun, replay: Replay, saved: SavedModel) -> AuditReport:
    """Audit a member against its examples."""
    options, features, history = ended.config.learner, ended.features, replay.result()
    if ended.stored:
        history = history_of_live(saved.arrays, saved.groups, features)
    # A key was checked when it was read, by the options and features that its state names.
    known = BY_KEY in ended.members.meta and saved.options == options and saved.features == features
    classes = None if known else len(saved.classes)
    return audit(learners()[options.kind], options, features, classes, saved.arrays, history, saved.groups)


def _audited(members: SavedKeys, key: Member, work: Callable[[SavedModel], AuditReport]) -> AuditReport:
    """Audit a member; arrays of a key that cannot be are a verdict, too."""
    try:
        return work(members.saved(key))
    except ModelFileError as error:
        if key is None:
            raise
        return AuditReport.malformed("key", error.parts["problem"])


#: Failures that a report lists.
_MOST_FAILURES = 50


def _together(reports: Iterator[tuple[Member, AuditReport]], living: Sequence[Member]) -> AuditReport:
    """Return the report on all members: of keys the worst verdicts, sums of what was checked, and failures.

    A key that has ``living`` examples and that no report is on is lost.
    """
    whole: AuditReport | None = None
    failures: list[Any] = []
    seen, failed, reasons = set[Key](), 0, dict[str, None]()
    for key, report in reports:
        if key is None:
            return report
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
    missing = [key for key in living if key not in seen]
    if missing:
        whole.conformance, failed = "violated", failed + len(missing)
    whole.checked = {"keys": len(seen), **whole.checked}
    if len(reasons) > 1:
        whole.reason = message("keyed.verdicts_failed" if failed else "keyed.verdicts", keys=len(seen), failed=failed)
    lost = [message("keyed.lost", key=quoted(key)) for key in missing]
    whole.failures = [*lost, *failures][:_MOST_FAILURES]
    return whole


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
        members = open_members(find_state(run).folder)
        _require_retrained(members.outline().options, str(run))
        total, rebuilt = members.total(), _rebuilt(members)
        return _found([message("verdicts.state")] * (total.digest != rebuilt), total, rebuilt, None)
    folder = RunFolder.existing(run)
    ended = last_of(folder)
    options, members, models = ended.config.learner, ended.members, load_members(folder.location)
    _require_retrained(options, folder.location)
    digests, inserted, same, known = dict[Member, str](), 0, True, True
    for key, replay in ended.histories.items():
        history = replay.result()
        inserted, known = inserted + len(history.id), known and history.complete
        if key not in members and not replay.live:  # purged
            continue
        saved = members.saved(key) if key is not None else understood(members.meta, members.components, folder.location)
        model = saved.session().model()
        same = same and digest(sorted(models.saved(key).arrays.items())) == digest(sorted(model.items()))
        if key is None or live(members.held(key)):
            trained = trained_from_nothing(options, ended.features, history, saved.class_order, saved.arrays)
            digests[key] = str(trained.digest())
    total, rebuilt = members.total(), members.digest_of(digests)
    stated = str(read_summary(folder)["model_digest"])
    if stated != total.digest and stated == members.former():
        stated = total.digest
    if members.unit == "offset":
        if members.meta["format_version"] != FORMAT_VERSION:
            stated = total.digest  # another format may compute it in another way
        same = same and all(models.meta[name] == members.meta[name] for name in ("classes", "categories"))
    different = [message("verdicts.digest")] * (stated != rebuilt)
    if total.digest != rebuilt:
        different.append(message("verdicts.run_state"))
    elif not same:  # the state is right, and gives another model
        different.append(message("verdicts.model"))
    return _found(different, total._replace(digest=stated), rebuilt, inserted if known else None)


def _found(different: list[Message], stated: Total, rebuilt: str, inserted: int | None) -> dict[str, Any]:
    """Return the result of :func:`verify_run`."""
    found = {"equal": not different, "different": different, "digest": stated.digest, "rebuilt": rebuilt}
    return found | {"examples": stated.live, "inserted": inserted}


def _rebuilt(members: SavedKeys) -> str:
    """Return the digest of models that are trained from nothing on the examples of a state."""
    return members.digest_of(
        {key: rebuilt_digest(members.saved(key)) for key in members if key is None or live(members.held(key))}
    )


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
    newest receipt of a run), of a state that an earlier receipt led to ``older_than``, the receipt after it, and
    ``rebuilt``: whether a model trained from nothing on its examples has that digest, too, None where the model depends
    on the past; with a key ``live``, how many ids live that were deleted before the state, and ``keyed``, whether every
    receipt tells that this is its key; ``ok``, whether all of it holds.

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
    members = open_members(folder)
    saved = members.outline()
    requests = saved.components.get("recorder", {}).get("requests")
    own = requests if place.run is not None and _is_own(chain.path, place.run) else None
    offset, living = saved.meta.get("offset"), None
    (stated, active), options = members.total(), saved.options
    rebuilt = _rebuilt(members) if retrain and traits_of(options).retrained else None
    _require_origin(chain, place, origin_of(folder.location, saved, lambda: stated), own, saved.meta)
    known = {entry[name] for entry in chain.entries for name in ("digest_before", "digest_after")}
    if stated not in known and (former := members.former()) in known:  # the chain has it by the former format
        stated, rebuilt = str(former), former if rebuilt == stated else rebuilt
    path = in_effect(chain)
    before = len(path) if own is not None else _receipts_before(path, stated)
    if key is not None:
        entries = _entries_until(path[:before], offset if own is not None else None, own)
        # An example of one key says nothing about those of another.
        each = [
            living_of(members.saved(one), entries if one is None else about(entries, key.hash(one)), key)
            for one in members
        ]
        *sets, deleted = zip(*each, strict=True) if each else ([],) * 6
        living = Living._make([*(set().union(*one) for one in sets), sum(deleted)])
    same = stated == last["digest_after"] and last["options_hash"] == options_hash(options)
    equal: bool | None = same and last["active"] == active
    if "source" in last and last["source"]["updates"][1] != offset:
        equal = None
    older = equal is False and before < len(path)
    found: dict[str, Any] = {"equal": equal, "offset": offset}
    found["older_than"] = chain.course.path()[before] if older else None
    if retrain:
        of_receipts = stated if equal is None or older else last["digest_after"]
        found["rebuilt"] = None if rebuilt is None else rebuilt == of_receipts
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


def _receipts_before(entries: Sequence[Mapping[str, Any]], digest: str) -> int:
    """Return how many entries have led to a state with this digest; all if no entry is about the state."""
    made = [n for n, entry in enumerate(entries, 1) if entry["digest_after"] == digest and "purged" not in entry]
    return made[-1] if made else 0 if entries[0]["digest_before"] == digest else len(entries)


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


# The live examples of a state: a model trained on them from nothing, and their hashes beside a chain of receipts.
#
# Invariant: nothing but the examples in the state, and the entries that are given, decides.


def rebuilt_digest(saved: SavedModel) -> str:
    """Return the digest of a model that is trained from nothing on the examples of a state."""
    history = history_of_live(saved.arrays, saved.groups, saved.features)
    trained = trained_from_nothing(saved.options, saved.features, history, saved.class_order, saved.arrays)
    return str(trained.digest())


class Living(NamedTuple):
    """Hashes of what a state has."""

    ids: set[str]
    subjects: set[str]
    left: set[str]  #: Subjects with a row from before their deletion, or that were never deleted.
    against: set[str]  #: Examples that live, although entries say that they are deleted.
    persons: set[str]  #: Subjects of whom one lives that was there before entries say that they are deleted.
    deleted: int  #: How many examples there are of both.


def living_of(saved: SavedModel, entries: Sequence[Mapping[str, Any]], key: Key) -> Living:
    """Return the hashes of what a state has, beside the entries that are about it."""
    stream = saved.components.get("stream", {})
    names = dict(zip(stream["id_codes"].tolist(), stream["ids"], strict=True)) if "id_codes" in stream else {}
    text = saved.meta.get("columns", {}).get("id_kind") == "text"
    codes = saved.arrays["id"]
    hashes = [key.hash(names[one] if text else one) for one in codes.tolist()]
    of_state = StateNames.of(saved)
    whose = [key.hash(one) for one in of_state.subjects.of(codes).tolist()] if of_state.subject_kind else []
    owners = dict(zip(hashes, whose, strict=False))  # none without subjects
    inserted = inserted_since_deletion(entries)
    left = {one for one, subject in owners.items() if one not in inserted.get(subject, ())}
    against, of_persons = gone(entries) & set(hashes), {one for one in left if owners[one] in inserted}
    persons = {owners[one] for one in of_persons}
    return Living(set(hashes), set(whose), {owners[one] for one in left}, against, persons, len(against | of_persons))
