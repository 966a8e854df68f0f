"""``verify`` of models by key: each key's model against one trained from nothing, and receipts against a state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

from pipelines.config import Config
from pipelines.keyed.auditing import histories
from pipelines.keyed.past import PastOfKeys, past_of_keys
from pipelines.living import Living, living_of, rebuilt_digest
from pipelines.run_folder import RunFolder
from pipelines.running.differences import require_same_data
from pipelines.running.preflight import features_of
from pipelines.saved_runs import folder_of_model, last_state, open_stream, states_of
from raydt.arrays.digest import digest
from raydt.errors import ModelFileError
from raydt.keyed.groups import digest_of
from raydt.keyed.saved import SavedKeys, live, open_keys
from raydt.learners import traits_of
from raydt.learners.base import LearnerOptions
from raydt.messages import Message, message
from raydt.sessions.receipt_chain import Key
from raydt.sessions.receipt_history import about
from raydt.sessions.retraining import trained_from_nothing


class OfState(NamedTuple):
    """Digest over the models of a state, that over models trained from nothing, live examples, and the options."""

    stated: str
    rebuilt: str | None  #: None where a model depends on the past.
    active: int
    options: LearnerOptions


def of_state(keys: SavedKeys, *, retrain: bool = True) -> OfState:
    """Compare the models of a state with the examples in it, if they are to be trained again."""
    options, rebuilt = keys.outline().options, None
    if retrain and traits_of(options).retrained:
        alive = [key for key in keys if live(keys.held(key))]
        rebuilt = digest_of({key: rebuilt_digest(keys.saved(key)) for key in alive})
    counted = keys.counted()
    return OfState(counted.digest, rebuilt, int(counted.active.sum()), options)


def of_run(folder: RunFolder, config: Config, stated: str) -> tuple[list[Message], str, str, int, int]:
    """Compare a run with its rows, read again from the source; results as of :func:`pipelines.verifying.verify_run`.

    ``stated`` is the digest of its summary.
    """
    folder.require_saved()
    keys = _opened(last_state(states_of(config, folder)))
    models = _opened(folder_of_model(folder.location))
    source, stream = open_stream(config)
    require_same_data(config, keys.meta, source, stream, folder)
    features, digests, same, inserted = features_of(source, config.learner), {}, True, 0
    past = past_of_keys(folder, source, keys) or PastOfKeys()
    for key, replay in histories(config, cast(Any, stream), keys, past)[0].items():
        history = replay.result()
        inserted += len(history.id)
        if key not in keys and not replay.live:  # purged
            continue
        saved = keys.saved(key)
        model = saved.session().model()
        same = same and digest(sorted(models.saved(key).arrays.items())) == digest(sorted(model.items()))
        if live(keys.held(key)):
            trained = trained_from_nothing(config.learner, features, history, saved.class_order, saved.arrays)
            digests[key] = str(trained.digest())
    rebuilt, counted = digest_of(digests), keys.counted()
    different = [message("verdicts.digest")] * (stated != rebuilt)
    if counted.digest != rebuilt:
        different.append(message("verdicts.run_state"))
    elif not same:
        different.append(message("verdicts.model"))
    return different, stated, rebuilt, int(counted.active.sum()), inserted


def _opened(place: Any) -> SavedKeys:
    keys = open_keys(place.root, filesystem=place.filesystem)
    if keys is None:
        raise ModelFileError(message("keyed.one"), file=place.location)
    return keys


def living_keys(keys: SavedKeys, entries: Sequence[Mapping[str, Any]], secret: Key) -> Living:
    """Return the hashes of what all keys of a state have; an example of one key says nothing about those of another."""
    found = [living_of(keys.saved(key), about(entries, secret.hash(key)), secret) for key in keys]
    return Living(
        set().union(*(one.ids for one in found)),
        set().union(*(one.subjects for one in found)),
        set().union(*(one.left for one in found)),
        set().union(*(one.against for one in found)),
        set().union(*(one.persons for one in found)),
        sum(one.deleted for one in found),
    )
