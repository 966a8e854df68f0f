"""Models by key are, bit for bit, a separate estimator for each key that is given the rows of this key alone.

The twin is a dictionary of estimators. Random calls over keys that are made to be mixed up; a call that any twin
refuses must be refused by the whole, and change no key.
"""

from __future__ import annotations

import copy
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raydt import KeyedClassifier, KeyedRegressor, load_model
from raydt.errors import RaydtError
from raydt.keyed.groups import digest_of
from tests.cases import Trial, every_case, one_of_each
from tests.nets.test_interrupts import Data
from tests.small_tables import Row, derived, examples

#: Keys that look alike, or that a file or a hash may not like: in the life of a model all are text, or all numbers.
TEXTS: tuple[Any, ...] = ("a", "", "1", "a\0", "A", "nan", "k" * 3000, "\ud800", "None", "01")
NUMBERS: tuple[Any, ...] = (0, 1, -1, 2**62, 2**53 + 1, 2**53, -(2**63) + 1, 10, 7)
CALLS = ("partial_fit", "partial_fit", "forget", "replace_examples", "forget_examples", "fit", "bad row")
KeyList = list[Any]


class Twins:
    """An estimator for each key."""

    def __init__(self, data: Data) -> None:
        self.data, self.models, self.next = data, dict[Any, Any](), 0
        fitted = data.estimator()
        self.make = lambda: type(fitted)(**fitted.get_params())
        self.owner: dict[int, Any] = {}  # of each live id

    def each(self, keys: KeyList) -> dict[Any, list[int]]:
        """Rows of each key."""
        rows: dict[Any, list[int]] = {}
        for row, key in enumerate(keys):
            rows.setdefault(key, []).append(row)
        return rows

    def part(self, rows: list[Row], places: list[int]) -> tuple[Any, Any]:
        X, y = self.data.both(rows)
        return X.take(pa.array(places)), [y[place] for place in places]

    def learn(self, how: str, rows: list[Row], keys: KeyList, weights: Any) -> None:
        if how == "fit":
            self.models, self.owner, self.next = {}, {}, 0
        for key, places in self.each(keys).items():
            model = self.models.setdefault(key, self.make())
            ids = [self.next + place for place in places]
            of_key = None if weights is None else [weights[place] for place in places]
            getattr(model, how)(*self.part(rows, places), ids=ids, sample_weight=of_key)
            self.owner |= dict.fromkeys(ids, key)
        self.next += len(rows)

    def forget(self, ids: list[int]) -> None:
        for key in {self.owner[one]: None for one in ids}:
            self.models[key].forget([one for one in ids if self.owner[one] == key])
        for one in ids:
            del self.owner[one]

    def replace(self, ids: list[int], rows: list[Row], keys: KeyList, weights: Any) -> None:
        each, gone = self.each(keys), dict[Any, list[int]]()
        for one in ids:
            gone.setdefault(self.owner.pop(one), []).append(one)
        for key in gone:
            if key not in each:
                self.models[key].forget(gone[key])
        for key, places in each.items():
            new = [self.next + place for place in places]
            of_key = None if weights is None else [weights[place] for place in places]
            if key in self.models:
                part = self.part(rows, places)
                self.models[key].replace_examples(gone.get(key, []), *part, new_ids=new, sample_weight=of_key)
            else:
                self.models[key] = self.make()
                self.models[key].partial_fit(*self.part(rows, places), ids=new, sample_weight=of_key)
            self.owner |= dict.fromkeys(new, key)
        self.next += len(rows)

    def forget_equal(self, rows: list[Row], keys: KeyList) -> None:
        for key, places in self.each(keys).items():
            receipt = self.models[key].forget_examples(*self.part(rows, places))
            for one in receipt.ids.tolist():
                del self.owner[one]


def same(keyed: Any, twins: Twins, asked: Any) -> None:
    """Require equal models and predictions."""
    assert list(keyed.models_) == list(twins.models)
    digests = {key: model.digest() for key, model in twins.models.items()}
    assert {key: model.digest() for key, model in keyed.models_.items()} == digests
    assert keyed.digest() == digest_of(digests)
    assert sorted(keyed.live_ids_.tolist()) == sorted(twins.owner)
    keys = [list(twins.models)[row % len(twins.models)] for row in range(asked.num_rows)]
    labels = keyed.predict(asked, keys=keys)
    shares = keyed.predict_proba(asked, keys=keys) if hasattr(keyed, "predict_proba") else None
    for key, places in twins.each(keys).items():
        part, model = asked.take(pa.array(places)), twins.models[key]
        np.testing.assert_array_equal(labels[places], model.predict(part))
        if shares is not None:
            of_key = np.zeros((len(places), len(keyed.classes_)))
            for column, label in enumerate(model.classes_.tolist()):
                of_key[:, keyed.classes_.tolist().index(label)] = model.predict_proba(part)[:, column]
            np.testing.assert_array_equal(shares[places], of_key)


def _steps(keys: tuple[Any, ...]) -> Any:
    """Draw calls, each with keys."""
    of_call = st.lists(st.sampled_from(keys), min_size=1, max_size=9)
    return st.lists(st.tuples(st.sampled_from(CALLS), of_call, st.integers(0, 10**6)), min_size=2, max_size=6)


STEPS = _steps(TEXTS) | _steps(NUMBERS)


class Call:
    """A call of random rows, for the estimator by key and for the twins."""

    def __init__(self, data: Data, name: str, keys: KeyList, drawn: int, live: list[int]) -> None:
        pool = [{**derived(row), **row} for row in examples(60, 11, "xyz"[: max(2, data.trial.case.classes)])]
        self.name, self.keys = name, keys * (1 + drawn % 4)
        self.rows = [pool[(drawn + 7 * i) % len(pool)] for i in range(len(self.keys))]
        self.weights = [row["weight"] for row in self.rows] if data.trial.case.weighted else None
        self.gone = [one for one in live if (one * 31 + drawn) % 4 == 0]
        self.X, self.y = data.both(self.rows)
        self.given: dict[str, Any] = {"keys": self.keys}
        if all(isinstance(key, str) and key != "\ud800" for key in keys):
            self.X, self.given = self.X.append_column("store", pa.array(self.keys)), {}

    def of_keyed(self, e: Any) -> None:
        if self.name == "forget":
            e.forget(self.gone)
        elif self.name == "replace_examples":
            e.replace_examples(self.gone, self.X, self.y, sample_weight=self.weights, **self.given)
        elif self.name == "forget_examples":
            e.forget_examples(self.X, self.y, **self.given)
        elif self.name == "bad row":
            e.partial_fit(self.X, [*self.y[:-1], None], **self.given)
        else:
            getattr(e, self.name)(self.X, self.y, sample_weight=self.weights, **self.given)

    def of_twins(self, t: Twins) -> None:
        if self.name == "forget":
            t.forget(self.gone)
        elif self.name == "replace_examples":
            t.replace(self.gone, self.rows, self.keys, self.weights)
        elif self.name == "forget_examples":
            t.forget_equal(self.rows, self.keys)
        elif self.name == "bad row":
            raise ValueError("refused")
        else:
            t.learn(self.name, self.rows, self.keys, self.weights)


@every_case("models by key", often=one_of_each)
@pytest.mark.filterwarnings("ignore:.* has never seen")  # a key with few rows has few categories
@settings(max_examples=2)
@given(steps=STEPS)
def test_a_keys_model_is_that_of_its_rows_alone(trial: Trial, steps: list[tuple[str, KeyList, int]]) -> None:
    if not trial.shipped:
        pytest.skip("a learner of another package may have no estimator")
    data = Data(trial)
    twins = Twins(data)
    keyed: Any = (KeyedClassifier if trial.case.classes else KeyedRegressor)(twins.make(), "store")
    # ``fit`` of a twin refuses weights of classes that its key does not have.
    weighs = trial.options.model_dump().get("class_weight")
    for number, (name, keys, drawn) in enumerate(steps):
        name = "partial_fit" if not number or (name == "fit" and weighs) else name
        call, after = Call(data, name, keys, drawn, sorted(twins.owner)), copy.deepcopy(twins)
        try:
            call.of_twins(after)
        except (RaydtError, ValueError, KeyError):
            before = keyed.__dict__.copy()
            with pytest.raises((RaydtError, ValueError)):
                call.of_keyed(keyed)
            assert keyed.__dict__ == before
        else:
            call.of_keyed(keyed)
            twins = after
        if keyed.__sklearn_is_fitted__():
            same(keyed, twins, data.asked)
    if not keyed.__sklearn_is_fitted__():
        return
    with tempfile.TemporaryDirectory() as folder:
        keyed.save(Path(folder) / "state", with_examples=True)
        keyed.save(Path(folder) / "model")
        state, model = load_model(Path(folder) / "state"), load_model(Path(folder) / "model")
    same(state, twins, data.asked)
    keys = [next(iter(twins.models))] * data.asked.num_rows
    np.testing.assert_array_equal(model.predict(data.asked, keys=keys), keyed.predict(data.asked, keys=keys))
    for one in (state, keyed):
        one.partial_fit(*data.both(data.first[:3]), keys=keys[:3])
    assert state.digest() == keyed.digest()
