"""``verify``: a model against one trained from nothing on the live examples, and a chain of receipts against a state.

For learners whose model is a function of the live examples (``Traits.retrained``): equal digests prove that nothing of
a deleted example is left in the trees, to anyone who holds the remaining ones. The names of categories and classes that
only deleted examples had stay in the manifests of models and states. The training knows neither the order of the
updates nor what was deleted: the examples are inserted in ascending order of their ids.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipelines.auditing import last_of
from pipelines.chapters.chapter import run_of
from pipelines.living import Living, living_of, rebuilt_digest
from pipelines.printing import shortened
from pipelines.receipts import origin_of
from pipelines.run_files import RECEIPT_KEY, RECEIPTS
from pipelines.run_folder import RunFolder
from pipelines.running.ending import read_summary
from pipelines.running.requests import require_known
from pipelines.saved_runs import StatePlace, config_of, find_state, load_model, open_state, states_of
from pipelines.threads_of_run import in_threads_of_its_run
from raydt.arrays.digest import digest
from raydt.arrays.types import AnyArray
from raydt.encoding.numerals import integer_of
from raydt.errors import ConfigError, InputError
from raydt.folders.manifest import FORMAT_VERSION, MANIFEST, complete, newest
from raydt.keyed.saved import open_keys
from raydt.learners import learners, traits_of
from raydt.learners.base import LearnerOptions
from raydt.messages import Message, message
from raydt.sessions.receipt import options_hash
from raydt.sessions.receipt_chain import Chain, Key, Origin, read_chain
from raydt.sessions.receipt_history import (
    IDS,
    SUBJECTS,
    events_of,
    in_effect,
    is_deleted,
)
from raydt.sessions.retraining import trained_from_nothing
from raydt.sessions.saved_model import understood


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
            from pipelines.keyed.verifying import of_state

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
        from pipelines.keyed.verifying import of_run

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
        from pipelines.keyed.verifying import living_keys, of_state

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
