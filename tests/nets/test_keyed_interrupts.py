"""Interrupts of calls that change the models of several keys: all keys as before, or all as after, or none answers.

The strikes are those of :mod:`tests.nets.test_interrupts`. Each call has rows of two keys with a model and leaves a
third alone; those that insert have rows of a key that is new. After a strike every key is what it was before the call,
or every key what it is after it, in all that can be seen and in all that they do later; or the estimator refuses all
but ``save`` of the examples before, and ``fit``. One Ctrl-C is never refused, nor is ``fit``.
"""

from __future__ import annotations

import copy
import random
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from raydt import KeyedClassifier, KeyedRegressor, load_model
from raydt.estimators.base import Regressor
from tests.cases import CASES, Trial, every_case, first_cases, one_of_each
from tests.nets.test_interrupts import FEW, READS, Call, Data, fingerprint, live, refuses, struck, with_estimator
from tests.small_tables import Row

pytestmark = pytest.mark.filterwarnings("ignore:.* has never seen")  # a key with few rows has few categories

#: Keys with a model; calls leave the last one alone.
KEYS = ("north", "east", "south")
#: Keys of the rows that a call inserts: one is new.
INSERTED = ("north", "east", "late")
CHANGES = ("partial_fit", "forget", "replace_examples", "forget_examples", "fit")
CALLS = (*CHANGES, "digest", "predict")


def keys_of(rows: Sequence[Row], keys: Sequence[Any] = KEYS) -> list[Any]:
    """Keys of rows, in turn."""
    return [keys[row % len(keys)] for row in range(len(rows))]


class KeyedData(Data):
    """Rows of several keys for the calls of one case."""

    def __init__(self, trial: Trial, late: bool = False) -> None:
        super().__init__(trial, late)
        self.first, self.others = self.first + self.others[:12], self.others[12:]  # each key has some of all labels

    def estimator(self) -> Any:
        """Return a keyed estimator with the options of the case, fitted, and changed once."""
        inner = super().estimator()
        kind = KeyedRegressor if isinstance(inner, Regressor) else KeyedClassifier
        made = kind(type(inner)(**inner.get_params()), unknown="prior")
        first, others = ({} if self.late else self.weights(rows) for rows in (self.first, self.others[:6]))
        made.fit(*self.both(self.first), keys=keys_of(self.first), **first)
        made.forget(made.row_ids_[3:5])
        return made.partial_fit(*self.both(self.others[:6]), keys=keys_of(self.others[:6]), **others)

    def calls(self) -> dict[str, Call]:
        """Return the calls that change models, and some that read them."""
        new, of_new = self.both(self.new), self.weights(self.new) | {"keys": keys_of(self.new, INSERTED)}
        equal, other = self.both(self.first[9:11]), self.both(self.others)
        of_other = self.weights(self.others) | {"keys": keys_of(self.others)}
        return {
            "partial_fit": lambda e: e.partial_fit(*new, **of_new),
            "forget": lambda e: e.forget([0, 6, 7, 22]),
            "replace_examples": lambda e: e.replace_examples([1, 9, 48], *new, new_ids=[*range(90, 97), 9], **of_new),
            "forget_examples": lambda e: e.forget_examples(*equal, keys=keys_of(equal[1]), digests=False),
            "fit": lambda e: e.fit(*other, **of_other),
            "digest": lambda e: e.digest(),
            "predict": lambda e: e.predict(new[0], keys=of_new["keys"]),
        }


def keyed_fingerprint(e: Any, data: KeyedData) -> tuple[Any, ...]:
    """Return everything that a user can see of all keys, and what decides about later calls."""
    of_keys = [(key, fingerprint(model, data)) for key, model in e.models_.items()]
    asked = e.predict(data.asked, keys=keys_of(range(data.asked.num_rows), (*INSERTED, *KEYS))).tobytes()
    classes = getattr(e, "classes_", None)
    own = e.digest(), asked, None if classes is None else classes.tolist(), e.row_ids_.tolist(), e._next_id
    return (*own, of_keys)


def keyed_after(e: Any, data: KeyedData) -> str:
    """Return the digest after the same further updates."""
    e.partial_fit(*data.both(data.more), keys=keys_of(data.more), **data.weights(data.more))
    e.forget(e.live_ids_[:1], digests=False)
    return str(e.digest())


def require_refusal(e: Any, data: KeyedData, before: Any) -> None:
    """Check that everything is refused but ``save`` of the examples before, and ``fit``."""
    X, y = data.both(data.new)
    keys = keys_of(data.new)
    some = {
        "predict": lambda: e.predict(X, keys=keys),
        "has_model": lambda: e.has_model(X, keys=keys),
        "partial_fit": lambda: e.partial_fit(X, y, keys=keys),
        "forget": lambda: e.forget([2]),
        "replace_examples": lambda: e.replace_examples([2], X, y, keys=keys),
        "forget_examples": lambda: e.forget_examples(*data.both(data.first[:1]), keys=KEYS[:1]),
        "keys_": lambda: e.keys_,
        "live_ids_": lambda: e.live_ids_,
        "in": lambda: 2 in e,
        "deepcopy": lambda: copy.deepcopy(e),
        "copy": lambda: copy.copy(e),
    }
    assert [name for name, call in some.items() if not refuses(call)] == []
    assert list(e.models_) == list(before.models_)
    with tempfile.TemporaryDirectory() as folder:
        e.save(Path(folder) / "state", with_examples=True)
        e.save(Path(folder) / "model")
        loaded = load_model(Path(folder) / "state")
        asked = keys_of(data.new, INSERTED)
        of_model = load_model(Path(folder) / "model")
        loaded.unknown = of_model.unknown = "prior"
        assert of_model.predict(X, keys=asked).tobytes() == loaded.predict(X, keys=asked).tobytes()
    for key, model in before.models_.items():
        assert live(loaded.models_[key]) == live(model)
        assert loaded.models_[key].audit().ok
    keyed_after(loaded, data)
    e.fit(*data.both(data.others), keys=keys_of(data.others))
    assert all(model.audit().ok for model in e.models_.values())


def trials(trial: Trial, name: str, kinds: dict[str, int], seed: int = 0) -> Counter[str]:
    """Strike so often of each kind in one call; how the models were afterwards."""
    data, draw, moments = KeyedData(trial, late=name == "partial_fit"), random.Random(f"{trial.name} {name} {seed}"), {}
    call, start = data.calls()[name], data.estimator()
    done = copy.deepcopy(start)
    call(done)
    states = {"before": start, "after": done}
    seen = {repr(keyed_fingerprint(copy.deepcopy(e), data)): when for when, e in reversed(states.items())}
    later = {when: keyed_after(copy.deepcopy(e), data) for when, e in states.items()}
    assert ("late" in done.models_) == (name in ("partial_fit", "replace_examples"))
    examples = {key: live(model) for key, model in start.models_.items()}
    found: Counter[str] = Counter()
    for kind, times in kinds.items():
        for i in range(times):
            e = copy.deepcopy(start)
            raised = struck(e, call, kind, draw, moments)
            where = f"{trial.name}, {name}, {kind} {i}"
            if refuses(e.digest):
                assert (raised, kind == "signal", name in (*READS, "fit")) == (True, False, False), where
                assert {key: live(model._sound()) for key, model in e.models_.items()} == examples, where
                if not found[f"{kind}: refused"]:
                    require_refusal(e, data, start)
                found[f"{kind}: refused"] += 1
                continue
            when = seen.get(repr(keyed_fingerprint(e, data)))
            assert when is not None, f"between: {where}"
            assert raised or when == "after" or name in READS, where
            assert keyed_after(e, data) == later[when], where
            found[f"{kind}: {when}"] += 1
    return found


@every_case("interrupts of models by key", often=one_of_each)
def test_a_call_has_its_effect_on_all_keys_or_none(trial: Trial) -> None:
    """One call for each case, another one for the next: nightly each case takes all of them."""
    if not trial.shipped:
        pytest.skip("learners of other packages have no estimator")
    place = [one.name for one in (first_cases() if one_of_each(trial) else CASES)].index(trial.name)
    trials(trial, CHANGES[place % len(CHANGES)], FEW)


@pytest.mark.nightly
@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("kind", sorted({trial.learner.kind for trial in with_estimator()}))
def test_hundreds_of_moments(kind: str, name: str) -> None:
    mine = [trial for trial in with_estimator() if trial.learner.kind == kind]
    each = {"bytecode": 60, "memory": 30, "signal": 30, "two signals": 60}
    found: Counter[str] = Counter()
    for trial in mine:
        found += trials(trial, name, {strike: -(-times // len(mine)) for strike, times in each.items()}, seed=1)
    assert sum(found.values()) >= 180
