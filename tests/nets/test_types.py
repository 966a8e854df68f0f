"""Ids, subjects and keys have one type in the life of a model: a call that changes it is refused, and changes nothing.

Each life draws whether ids, subjects and keys are integers or text. Then every method that takes some is called with
the other type, or with both, before and after the model is saved and loaded.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from raydt import KeyedClassifier, KeyedRegressor, load_model
from raydt.errors import InputError
from raydt.messages import message_of
from tests import volume
from tests.cases import Trial, every_case
from tests.nets.test_contract import estimator
from tests.nets.test_interrupts import Data

#: An id, subject or key for a number, by type, and the type that a call changes to.
SPELLED: dict[str, Callable[[int], Any]] = {"integer": int, "text": str}
OTHER = {"integer": "text", "text": "integer"}
KEYS = 2


class Typed:
    """A model, by key or not, and the types of its ids, subjects and keys; running ids are integers."""

    def __init__(self, trial: Trial, draw: random.Random, by_key: bool) -> None:
        self.draw, self.by_key = draw, by_key
        self.types = {what: draw.choice(["integer", "text"]) for what in ("id", "subject", "key")}
        self.running = self.types["id"] == "integer" and draw.random() < 0.5
        self.data: Data
        fitted, self.data = estimator(trial)
        self.model: Any = type(fitted)(**fitted.get_params())
        if by_key:
            self.model = (KeyedClassifier if trial.case.classes else KeyedRegressor)(self.model, unknown="prior")
        first = range(len(self.data.first))
        call = self.model.fit if draw.random() < 0.5 and not trial.options.model_dump().get("class_weight") else None
        X, y = self.data.both(self.data.first)
        (call or self.model.partial_fit)(X, y, **self.beside(first), **self.data.weights(self.data.first))

    def named(self, what: str, numbers: Any, change: str = "") -> list[Any]:
        """Return ids, subjects or keys; ``other``: of the other type, ``mixed``: only the last."""
        own = self.types[what]
        values = [SPELLED[OTHER[own] if change == "other" else own](number) for number in numbers]
        return [*values[:-1], SPELLED[OTHER[own]](int(values[-1]))] if change == "mixed" else values

    def beside(self, numbers: Any, **changes: str) -> dict[str, Any]:
        """Return ids, subjects and keys of new rows, of which ``changes`` have another type."""
        numbers = list(numbers)
        found = {"ids": self.named("id", numbers, changes.get("id", ""))}
        if self.running and "id" not in changes:
            found = {}
        found["subjects"] = self.named("subject", [number % 5 for number in numbers], changes.get("subject", ""))
        return found | self.keys(numbers, changes.get("key", ""))

    def keys(self, numbers: Any, change: str = "") -> dict[str, Any]:
        """Return the argument ``keys`` of a model by key."""
        return {"keys": self.named("key", [number % KEYS for number in numbers], change)} if self.by_key else {}

    def refused_calls(self) -> Iterator[tuple[str, Callable[[Any], Any]]]:
        """Yield calls by a name; each changes the type of one argument."""
        X, y = self.data.both(self.data.others[:4])
        new, weights = range(900, 904), self.data.weights(self.data.others[:4])
        whats = ("id", "subject", "key") if self.by_key else ("id", "subject")
        live = self.model.live_ids_.tolist()[:2]
        for what in whats:
            for change in ("other", "mixed"):
                beside = self.beside(new, **{what: change})
                yield f"partial_fit, {change} {what}", lambda e, b=beside: e.partial_fit(X, y, **b, **weights)
                given = {"new_ids" if name == "ids" else name: values for name, values in beside.items()}
                yield f"replace, {change} {what}", lambda e, b=given: e.replace_examples(live, X, y, **b, **weights)
        for change in ("other", "mixed"):
            for missing in ("error", "skip"):
                ids, whose = self.named("id", [0, 1], change), self.named("subject", [0, 1], change)
                yield f"forget {change} ids, {missing}", lambda e, i=ids, m=missing: e.forget(i, missing=m)
                yield (
                    f"forget {change} subjects, {missing}",
                    lambda e, w=whose, m=missing: e.forget(subjects=w, missing=m),
                )
            keys = self.keys(range(4), change)
            if self.by_key:
                yield f"predict {change} keys", lambda e, k=keys: e.predict(X, **k)
                yield f"has_model {change} keys", lambda e, k=keys: e.has_model(X, **k)
                yield f"score {change} keys", lambda e, k=keys: e.score(X, y, **k)
                yield f"forget_examples {change} keys", lambda e, k=keys: e.forget_examples(X, y, **k)
                by_key = dict.fromkeys(self.named("key", [0, 1], change), live[:1])
                yield f"forget {change} keys", lambda e, k=by_key: e.forget(k, missing="skip")
        other = self.named("id", [0], "other")[0]
        yield "contains", lambda e: other in e
        yield "replace other ids", lambda e: e.replace_examples([other], X, y, **self._new(new), **weights)
        if self.types["id"] == "text":
            beside = {name: values for name, values in self.beside(new).items() if name != "ids"}
            yield "running ids", lambda e: e.partial_fit(X, y, **beside, **weights)

    def _new(self, numbers: Any) -> dict[str, Any]:
        return {"new_ids" if name == "ids" else name: values for name, values in self.beside(numbers).items()}

    def require_refusals(self, calls: int | None) -> None:
        """Make some of the calls, None: all; each is refused, and changes nothing."""
        named = list(self.refused_calls())
        for name, call in named if calls is None else self.draw.sample(named, min(calls, len(named))):
            before = self.model.digest(), self.model.live_ids_.tolist(), list(getattr(self.model, "models_", ()))
            expected = "estimators.ids_always" if name == "running ids" else "estimators.other_type"
            assert refusal_of(call, self.model) == expected, f"{name}, {self.types}"
            after = self.model.digest(), self.model.live_ids_.tolist(), list(getattr(self.model, "models_", ()))
            assert after == before, f"{name}, {self.types}: the model has changed"


def refusal_of(call: Callable[[Any], Any], model: Any) -> str:
    """Return the id of the message with which a call is refused, or what it did instead."""
    try:
        return f"accepted: {call(model)}"
    except InputError as error:
        said = message_of(error)
        return str(error) if said is None else said.id


@every_case("types of ids, subjects and keys")
def test_a_type_that_changes_is_refused(trial: Trial, tmp_path: Path) -> None:
    for seed in range(6 if volume.nightly else 1):
        for by_key in (False, True):
            draw = random.Random(f"{trial.name}, {seed}, {by_key}")
            typed, calls = Typed(trial, draw, by_key), None if volume.nightly else 12
            typed.require_refusals(calls)
            X, y = typed.data.both(typed.data.others[:4])
            typed.model.partial_fit(X, y, **typed.beside(range(100, 104)), **typed.data.weights(typed.data.others[:4]))
            folder = tmp_path / f"{seed} {by_key}"
            if draw.random() < 0.3:  # the types outlive the examples
                typed.model.forget(typed.model.live_ids_.tolist())
            typed.model.save(folder, with_examples=True)
            typed.model = load_model(folder)
            typed.require_refusals(calls)
