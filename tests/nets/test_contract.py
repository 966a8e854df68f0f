"""The contract of every learner: states, estimators, types, and the schema of its state."""

from __future__ import annotations

import copy
import inspect
import math
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

import pipelines
import raydt
from pipelines.auditing import audit_state
from pipelines.display import receipt_lines
from pipelines.updating import update
from raydt import KeyedClassifier, KeyedRegressor, load_model
from raydt.arrays.blocks import SparseRows
from raydt.errors import ConfigError, InputError, UpdateError
from raydt.estimators import estimator_of
from raydt.estimators.river import RiverClassifier
from raydt.examples.updates import CLASSES, DELETE, Features, Reading, UpdateBatch
from raydt.learners import learners
from raydt.learners.base import Learner, WorkPlan
from raydt.messages import message_of
from raydt.sessions.session import InProcessSession
from raydt.trees.state_schema import Array, check_arrays
from tests import volume
from tests.cases import CASES, Trial, every_case, open_state
from tests.nets.test_interrupts import Data, after, fingerprint, live
from tests.refusals import refused
from tests.small_tables import derived, examples, table_of, written

# -- contract --------------------------------------------------------------------------------------------------------
# The contract of every learner, on every case: save, restore, refusals, deletion, missing values, options, updates.

#: Batches after which another session, on so many shards, takes over.
RELAY = {1: 3, 2: 1, 5: 2, 9: 4}
#: Cases whose rows may lack values.
LACKING = [trial for trial in CASES if trial.reading.missing and trial.case.dense]


def estimator(trial: Trial) -> tuple[Any, Data]:
    """A fitted estimator of a case, and rows for more calls; a learner of another package may have no estimator."""
    data = Data(trial)
    try:
        return data.estimator(), data
    except NotImplementedError:
        pytest.skip(f"{trial.learner.kind} has no estimator")


# -- states -------------------------------------------------------------------------------------------------------


@every_case("a relay of sessions", turn=1)
def test_restored_anywhere_a_state_goes_on_alike(trial: Trial, tmp_path: Path, monkeypatch) -> None:
    """Also within a warm-up, and in memory that was used before: nothing is taken that the state does not hold."""
    stream = trial.stream(tmp_path)
    straight, runner = trial.session(stream), trial.session(stream)
    expected = [straight.apply(batch, skip_refused=True).predictions for batch in stream.batches(4)]
    straight.finish()

    def used(shape: Any, dtype: Any) -> Any:
        kind = np.dtype(dtype)
        size = math.prod(shape if isinstance(shape, tuple) else (shape,)) * kind.itemsize
        return np.frombuffer(bytearray(b"\x05" * size), dtype=kind).reshape(shape)

    monkeypatch.setattr("raydt.arrays.blocks.empty", used)
    for number, batch in enumerate(trial.stream(tmp_path).batches(4)):
        if number in RELAY:
            state = runner.state()
            runner = trial.session(stream, RELAY[number])
            runner.restore(*state)
        found = runner.apply(batch, skip_refused=True).predictions
        np.testing.assert_array_equal(found, expected[number], f"updates from {batch.start}")
    runner.finish()
    assert runner.digest() == straight.digest()


@every_case("a saved estimator", turn=1)
def test_what_is_loaded_predicts_and_goes_on(trial: Trial, tmp_path: Path) -> None:
    fitted, data = estimator(trial)
    fitted.save(tmp_path / "model")
    fitted.save(tmp_path / "state", with_examples=True)
    model, state = load_model(tmp_path / "model"), load_model(tmp_path / "state")
    for loaded in (model, state):
        assert type(loaded) is estimator_of(trial.options)
        np.testing.assert_array_equal(loaded.predict(data.asked), fitted.predict(data.asked))
        if trial.case.classes:
            shares = loaded.predict_proba(data.asked)
            np.testing.assert_array_equal(shares, fitted.predict_proba(data.asked))
            np.testing.assert_allclose(shares.sum(axis=1), 1)
    assert state.digest() == fitted.digest()
    assert after(state, data) == after(fitted, data)


@every_case("an update of a run", turn=1)
def test_an_update_of_a_run(trial: Trial, run_of, tmp_path: Path) -> None:
    run = run_of(trial)
    new = table_of([{**row, "id": f"new {i}"} for i, row in enumerate(examples(9, 6))])
    columns = ["id", *trial.columns["features"], trial.columns["label"], *(["weight"] if trial.case.weighted else [])]
    pq.write_table(new.select(columns), tmp_path / "new.parquet")
    receipt = update(run.path, insert=tmp_path / "new.parquet", out=tmp_path / "more")
    assert (receipt.digest_before, receipt.active) == (run.digest, run.summary["active"] + 9)
    pq.write_table(pa.table({"id": new["id"][:5]}), tmp_path / "gone.parquet")
    shown = update(tmp_path / "more", delete=tmp_path / "gone.parquet", dry_run=True)
    second = update(tmp_path / "more", delete=tmp_path / "gone.parquet", out=tmp_path / "less")
    assert second.deletions["id"].tolist() == shown.deletions["id"].tolist() == new["id"].to_pylist()[:5]
    assert (second.digest_before, second.digest_after) == (receipt.digest_after, shown.digest_after)
    assert second.digest_after != second.digest_before
    saved, _ = open_state(tmp_path / "less")
    session = InProcessSession(trial.learner, saved.options, saved.features, 2)
    session.restore(saved.arrays, saved.groups)
    assert session.digest() == second.digest_after
    assert audit_state(tmp_path / "less").ok
    assert "5 deleted" in receipt_lines(second, "more", "less")


# -- calls --------------------------------------------------------------------------------------------------------


@every_case("deletion by value", turn=1)
def test_a_deletion_by_value_is_that_of_the_oldest_equal_example(trial: Trial) -> None:
    by_value, data = estimator(trial)
    by_id = copy.deepcopy(by_value)
    rows = data.first + data.others[:6]
    asked = rows[8:10] + rows[30:31]
    receipt = by_value.forget_examples(*data.both(asked))
    ids = sorted(live(by_id))
    columns = [*trial.columns["features"], trial.columns["label"]]
    for number, row in zip(receipt.deletions["id"].tolist(), asked, strict=True):
        equal = [i for i in ids if all(rows[i][name] == row[name] for name in columns)]
        assert number == equal[0]
        ids.remove(number)
    assert by_id.forget(receipt.deletions["id"].tolist()).digest_after == receipt.digest_after == by_value.digest()
    assert sorted(live(by_value)) == ids
    assert by_value.audit().ok


def refused_calls(trial: Trial, data: Data) -> dict[str, tuple[Callable[[Any], Any], int | None]]:
    """Calls that cannot be taken, and the row that each error names, if one row is to blame."""
    rows, case = data.new[:3], trial.case
    X, y = data.both(rows)

    def with_last(**values: Any) -> Any:
        return data.X([*rows[:2], {**rows[2], **values}])

    calls: dict[str, tuple[Callable[[Any], Any], int | None]] = {
        "an unknown id": (lambda e: e.forget([2, 999]), 1),
        "an id twice": (lambda e: e.partial_fit(X, y, ids=[900, 901, 900]), None),
        "no id": (lambda e: e.partial_fit(X, y, ids=["a", "b", None]), 2),
        "nobody": (lambda e: e.forget(subjects=["nobody"]), None),
        "a live id": (lambda e: e.partial_fit(X, y, ids=[900, 901, 5]), 2),
        "an unknown id to replace": (lambda e: e.replace_examples([2, 5, 999], X, y), 2),
        "an unknown example": (lambda e: e.forget_examples(X, y), 0),
        "labels for other rows": (lambda e: e.partial_fit(X, y[:2]), None),
        "no label": (lambda e: e.partial_fit(X, [*y[:2], None]), 2),
        "a column too few": (lambda e: e.partial_fit(X.select(X.column_names[:-1]), y), None),
    }
    if case.dense:
        infinite = with_last(a=math.inf, a_or_null=math.inf)
        calls["infinity"] = lambda e: e.partial_fit(infinite, y), 2
    if case.dense and not trial.reading.missing:
        lacking = X.set_column(0, X.column_names[0], pa.array([0.0, 0.0, None]))
        calls["a missing value"] = lambda e: e.partial_fit(lacking, y), 2
        calls["a missing value asked for"] = lambda e: e.predict(lacking), 2
    if case.sparse:
        calls["a negative index"] = lambda e: e.partial_fit(with_last(ones=[-1]), y), 2
        calls["an index twice"] = lambda e: e.partial_fit(with_last(ones=[2, 2]), y), 2
    if not case.classes:
        for name, label in (("NaN", math.nan), ("infinity", math.inf), ("text", "two"), ("too large", 1e300)):
            calls[f"a label {name}"] = lambda e, label=label: e.partial_fit(X, [*y[:2], label]), 2
    elif trial.reading.most_classes(sparse=case.sparse) == 2:
        calls["a class too many"] = lambda e: e.partial_fit(X, [*y[:2], "more"]), 2
    return calls


@every_case("examples left out", turn=1)
def test_with_examples_left_out_a_model_is_what_forget_leaves_and_then_itself(trial: Trial) -> None:
    fitted, data = estimator(trial)
    before, gone = repr(fingerprint(fitted, data)), fitted.live_ids_[[0, 3, 7]]
    other = copy.deepcopy(fitted)
    other.forget(gone)
    with fitted.without(gone):
        assert repr(fingerprint(fitted, data)) == repr(fingerprint(other, data))
    assert repr(fingerprint(fitted, data)) == before
    with pytest.raises(ZeroDivisionError), fitted.without(gone):
        raise ZeroDivisionError
    assert repr(fingerprint(fitted, data)) == before
    fitted.forget(gone)
    assert fitted.digest() == other.digest()


@every_case("refused calls", turn=1)
def test_a_refused_call_names_the_row_and_changes_nothing(trial: Trial) -> None:
    fitted, data = estimator(trial)
    before = repr(fingerprint(fitted, data))
    for name, (call, row) in refused_calls(trial, data).items():
        with pytest.raises((InputError, UpdateError)) as caught:
            call(fitted)
        assert caught.value.row == row, name
        assert repr(fingerprint(fitted, data)) == before, name
    assert fitted.audit().ok


@pytest.mark.turns(12)
@pytest.mark.parametrize("trial", LACKING, ids=lambda trial: trial.name)
def test_missing_values(trial: Trial) -> None:
    """Rows without any value are learned, predicted alike, and forgotten, but not by a category that no row has had."""
    fitted, data = estimator(trial)
    nothing = data.X(data.new[:2])
    for place, name in enumerate(nothing.column_names):
        kind = nothing.schema.field(name).type
        empty: Any = [[], []] if pa.types.is_list(kind) else [None, None]
        nothing = nothing.set_column(place, name, pa.array(empty, kind))
    y = data.y(data.new[:2])
    ids = [700, 701]
    fitted.partial_fit(nothing, y, ids=ids)
    assert len(set(fitted.predict(nothing).tolist())) == 1
    assert fitted.audit().ok
    for place, name in enumerate(nothing.column_names):
        if pa.types.is_string(nothing.schema.field(name).type):
            unseen = nothing.set_column(place, name, pa.array(["never seen"] * 2))
            with refused("examples.unknown_value", UpdateError, row=0):
                fitted.forget_examples(unseen, y)
    assert fitted.forget_examples(nothing[:1], y[:1]).deletions["id"].tolist() == ids[:1]
    assert fitted.forget(ids[1:]).active == len(data.first) + 6 - 2
    assert fitted.audit().ok


# -- options ------------------------------------------------------------------------------------------------------


def limits(learner: Learner) -> list[tuple[str, float]]:
    """Fields with values that are just not allowed, from the schema of the options."""
    beyond = {"minimum": -1, "maximum": 1, "exclusiveMinimum": 0, "exclusiveMaximum": 0}
    properties = learner.Options.model_json_schema()["properties"]
    return [
        (name, kind[limit] + step)
        for name, field in properties.items()
        for kind in (field, *field.get("anyOf", ()))
        for limit, step in beyond.items()
        if limit in kind
    ]


@pytest.mark.parametrize("learner", learners().values(), ids=lambda learner: learner.kind)
def test_an_option_beyond_its_limits_is_named(learner: Learner) -> None:
    assert limits(learner)
    for name, value in limits(learner):
        for wrong in (value, math.nan, "much"):
            with pytest.raises(ValidationError, match=name):
                learner.Options(**{name: wrong})
    for name, field in learner.Options.model_json_schema()["properties"].items():
        if field.get("type") in ("integer", "number", "boolean"):
            with pytest.raises(ValidationError, match=name):
                learner.Options(**{name: [1]})
    with pytest.raises(ValidationError, match="nonsense"):
        learner.Options(nonsense=1)


def wrong_sources(trial: Trial, folder: Path) -> dict[str, dict[str, Any]]:
    """Parts of a config with rows or a stream that the learner does not take."""
    case, reading, label = trial.case, trial.reading, {"label": trial.columns["label"]}
    found: dict[str, dict[str, Any]] = {}
    if trial.needs_warmup:
        found["warmup"] = {"stream": {"warmup": 0}}
    if reading.needs_sparse:
        found["sparse"] = {"source": {"features": ["a", "d"], **label}}
    if not reading.sparse:
        found["ones"] = {"source": {"features": ["a", "ones"], **label}}
    if not reading.dense:
        found["numeric or categorical"] = {"source": {"features": ["a", "ones"], **label}}
    if not case.classes:
        found["number"] = {"source": {"label": "y"}}
    elif reading.most_classes(sparse=case.sparse) == 2:
        inserts = written(folder / "inserts.arrow", table_of(examples(40, classes="xyz")))
        found["class"] = {"source": {"label": "y_of_three", "path": str(inserts)}}
    return found


@every_case("no warm-up", turn=1)
def test_a_stream_without_a_warmup_is_refused_or_the_same_however_it_is_cut(trial: Trial, tmp_path: Path) -> None:
    """Also with balanced classes, whose weights are found in the warm-up; and whoever does the work."""
    if "class_weight" in type(trial.options).model_fields and trial.case.classes:
        trial = replace(trial, case=replace(trial.case, options={**trial.case.options, "class_weight": "balanced"}))
    found = set()
    for plan in (trial.case.plan, WorkPlan()):
        for size in (120, 50, 7):
            one = replace(trial, case=replace(trial.case, plan=plan))
            session = one.session(stream := one.stream(tmp_path))
            try:
                for batch in stream.batches(size):
                    session.take(replace(batch, warmup=0), skip_refused=True)
            except (ConfigError, InputError) as error:
                assert not session.coordinator.store.live
                found.add(message_of(error))
            else:
                session.finish()
                found.add(session.digest())
    assert len(found) == 1


@every_case("rows not taken", turn=1)
def test_rows_that_a_learner_does_not_take_are_refused(trial: Trial, tmp_path: Path) -> None:
    for number, (word, wrong) in enumerate(wrong_sources(trial, tmp_path).items()):
        config = trial.config(tmp_path, **{"stream": {"on_error": "error"}, **wrong})
        with pytest.raises((ConfigError, InputError), match=word):
            pipelines.replay(config, tmp_path / f"run {number}")


# -- contract river --------------------------------------------------------------------------------------------------
# The adapters for river: each is the model of its estimator, one example at a time.

PUBLIC = [getattr(raydt, name) for name in raydt.__all__]
ADAPTERS = [each for each in PUBLIC if isinstance(each, type) and issubclass(each, RiverClassifier)]
#: Options with which much happens in few updates.
OPTIONS: dict[str, list[dict[str, Any]]] = {
    "confidence_tree": [
        {"grace_period": 5, "c": 0.01, "leaf_prediction": leaves}
        for leaves in ("majority", "naive_bayes", "adaptive_normal", "adaptive_inherited", "adaptive")
    ],
    "forest": [
        {"n_estimators": 4, "sample_share": 0.5, "thresholds": 2, "min_samples_split": 2, "rebuild": rebuild}
        for rebuild in ("eager", "lazy")
    ],
    "gbdt": [{"max_iter": 4, "max_leaf_nodes": 4, "update_every": 1}],
    "fudyadt": [{"epsilon": 0.3, "alpha": 0.0, "beta": 0.0, "max_depth": 6, "smoothing": smooth} for smooth in (0, 5)],
}


def rows_of(n: int, reading: Reading) -> tuple[list[dict[str, Any]], list[str]]:
    """Examples as dictionaries, one of the smaller label first, so that codes of labels are the same for both."""
    rows = [{**derived(row), **row} for row in examples(n, 4)]
    rows.insert(0, rows.pop(next(i for i, row in enumerate(rows) if row["y"] == "x" and row["b"])))
    a, d = ("a_or_null", "d_or_null") if reading.missing else ("a", "d")
    of = dict(zip("pqr", range(3), strict=True)) if reading.by_value else {}  # text has other numbers in a frame
    xs = [{"d": of.get(row[d], row[d]), "a": row[a], "b": row["b"]} for row in rows]
    return xs, [row["y"] for row in rows]


@pytest.mark.turns(1)
@pytest.mark.parametrize(
    ("adapter", "options"),
    [
        pytest.param(adapter, options, marks=[] if options is every[-1] else pytest.mark.nightly)
        for adapter in ADAPTERS
        for every in [OPTIONS[adapter.estimator.kind]]
        for options in every
    ],
    ids=lambda value: getattr(value, "__name__", "") or str(value),
)
def test_it_is_the_model_of_the_estimator(adapter: Any, options: dict[str, Any]) -> None:
    """Learned, predicted and forgotten one by one, with every value that may be missing."""
    ones = adapter(**options)
    names = inspect.signature(adapter).parameters.keys() - {"categorical_features", "previous_labels", "update_every"}
    other = adapter.estimator(**{name: getattr(ones, name) for name in names})
    xs, ys = rows_of(120, learners()[adapter.estimator.kind].traits(ones._options()).reading)
    frame = pd.DataFrame(xs)[["a", "b", "d"]]
    begun = 1
    draw = random.Random(adapter.__name__)
    kept: list[int] = []
    for i, (x, y) in enumerate(zip(xs, ys, strict=True)):
        ones.learn_one(x, y)
        kept.append(i)
        begun = getattr(ones, "_first", 0) or begun  # the first examples make the bins at once
        if i + 1 == begun:
            other.partial_fit(frame[:begun], ys[:begun], ids=range(begun), classes=["x", "y"])
        elif i >= begun:
            other.partial_fit(frame[i : i + 1], [y], ids=[i])
        if i >= begun and draw.random() < (0.2 if i < 70 else 0.8):
            gone = draw.choice(kept)
            ones.forget_one(xs[gone], ys[gone])
            (oldest,) = other.forget_examples(frame[gone : gone + 1], [ys[gone]]).deletions["id"].tolist()
            kept.remove(oldest)
        if i % 30 == 29 and i >= begun:
            assert ones._session.digest() == other.digest(), i
            shares = other.predict_proba(frame)
            for row, share in zip(xs, shares.tolist(), strict=True):
                assert ones.predict_proba_one(row) == dict(zip(ones._labels, share, strict=False))
            predicted = [ones.predict_one(row) for row in xs]
            assert predicted == [max(zip("xy", share, strict=True), key=lambda pair: pair[1])[0] for share in shares]
    assert len(kept) < 80
    assert ones._session.statistics()["nodes"] > 4
    report = ones.audit()
    assert (report.conformance, report.checked["live"]) == ("holds", len(kept))
    assert report.feasibility == ("proven" if ones._options().promise().promised else "not_promised")


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_a_refused_example_changes_nothing(adapter: Any) -> None:
    ones = adapter()
    assert (ones.predict_one({"a": 1}), ones.predict_proba_one({"a": 1})) == (None, {})
    xs, ys = rows_of(60, CLASSES)
    for x, y in zip(xs, ys, strict=True):
        ones.learn_one(x, y)
    before = ones._session.digest()
    with pytest.raises(UpdateError):
        ones.forget_one({**xs[0], "a": 77.0}, ys[0])
    for bad in ({**xs[0], "a": float("inf")}, {**xs[0], "a": "text"}):
        for call in (ones.learn_one, ones.forget_one):
            with pytest.raises(InputError):
                call(bad, ys[0])
    assert ones._session.digest() == before


# -- types -----------------------------------------------------------------------------------------------------------
# Ids, subjects and keys have one type in the life of a model: a call that changes it is refused, and changes nothing.
#
# Each life draws whether ids, subjects and keys are integers or text. Then every method that takes some is called
# with the other type, or with both, before and after the model is saved and loaded.

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


# -- state schema ----------------------------------------------------------------------------------------------------
# Mutants made from the schema of every learner: each array that cannot be is refused before a kernel follows it.
#
# The forged arrays are of other types, lengths and bounds than declared, link nodes to a cycle or out of the tree, or
# count something else. Other changes within the bounds are for checks and audit together (``test_audit_mutants``).

#: By these kernels make room, look numbers up in tables, or take a tree for one leaf: larger ones are refused, too.
COUNTED = ("counts", "own", "totals", "bins", "n1", "c11", "warmup_left")


def with_first(array: np.ndarray, value: Any) -> np.ndarray | None:
    """A copy whose first number is another; None if the type has no such number."""
    copy = array.copy()
    try:
        copy.flat[0] = value
    except (OverflowError, ValueError):
        return None
    return copy


def forged(of: Array, array: np.ndarray, lengths: dict[str, int], shared: Counter[str]) -> dict[str, Any]:
    """What the declaration of one array forbids; ``shared`` counts the arrays of each length."""
    mutants: dict[str, Any] = {
        "another type": array.astype(np.float32 if array.dtype.kind == "f" else np.uint64),
        "another dimension": array[None],
    }
    if not array.size:
        return mutants
    number, below = array.dtype.kind == "f", lengths[of.below] if isinstance(of.below, str) else of.below
    for axis, n in enumerate(of.shape):
        if isinstance(n, int) or shared[n] > 1:
            mutants[f"longer on axis {axis}"] = np.concatenate([array, array.take([-1], axis)], axis)
    if of.low is not None:
        mutants["below its bound"] = with_first(array, -np.inf if number else of.low - 1)
    if below is not None:
        mutants["above its bound"] = with_first(array, below)
    if of.low is not None and number and not of.missing:
        mutants["NaN"] = with_first(array, np.nan)
    if of.unique and array.size > 1:
        mutants["a number twice"] = with_first(array, array.flat[1])
    return {what: mutant for what, mutant in mutants.items() if mutant is not None}


def linked(arrays: dict[str, np.ndarray]) -> Iterator[tuple[str, str, np.ndarray]]:
    """Cycles, children of leaves, nodes that are left out, and rows in inner nodes."""
    prefix = "node_" if "node_feature" in arrays else ""
    if f"{prefix}left" not in arrays:
        return
    feature = arrays[f"{prefix}feature"]
    for name in (f"{prefix}left", f"{prefix}right"):
        for at in (*np.flatnonzero(feature >= 0)[:2].tolist(), *np.flatnonzero(feature < 0)[:1].tolist()):
            for child in {0, at, len(feature) - 1, -1} - {int(arrays[name][at])}:
                mutant = arrays[name].copy()
                mutant[at] = child
                yield name, f"of node {at} is {child}", mutant
    if "leaf" in arrays and arrays["leaf"].size and feature[0] >= 0:
        yield "leaf", "is the root", np.zeros_like(arrays["leaf"])


@every_case("forged arrays")
@pytest.mark.parametrize("where", ["model", "state", "group"])
def test_every_forged_array_is_refused(trial: Trial, where: str, sound: Callable[[Trial], Any]) -> None:
    features, classes, state, groups, _, model = sound(trial)
    learner, options = trial.learner, trial.options
    number = max(groups, key=lambda number: sum(array.size for array in groups[number].values()))
    arrays = {"model": model, "state": state, "group": groups[number]}[where]
    schema = learner.schema(options, features, model if where == "model" else state, state=where != "model")
    declared = schema.group if where == "group" else schema.arrays
    lengths = {"features": len(features), "dense": len(features.names), "sparse": features.sparse, "labels": classes}
    check_arrays(arrays, declared, lengths)
    if where != "group":
        assert arrays.keys() == {of.name for of in declared}, "every array is declared"
    shared = Counter(n for of in declared for n in of.shape if isinstance(n, str))

    def refused(mutant: dict[str, np.ndarray]) -> bool:
        parts = {"model": (mutant, None), "state": (mutant, groups), "group": (state, {**groups, number: mutant})}
        try:
            learner.check(options, features, classes, *parts[where])
        except (KeyError, ValueError):
            return True
        return False

    mutants = [
        (of.name, what, mutant)
        for of in declared
        for what, mutant in forged(of, arrays[of.name], lengths, shared).items()
    ]
    mutants += linked(arrays) if where != "group" else ()
    counted = [name for name in COUNTED if trial.shipped and name in arrays and arrays[name].size]
    mutants += [
        (name, "one more", with_first(arrays[name], arrays[name].flat[0] + 1)) for name in counted if where != "model"
    ]
    assert not refused(arrays)
    assert [f"{name}: {what}" for name, what, mutant in mutants if not refused({**arrays, name: mutant})] == []


#: Names by which a model or state shows that it has optional arrays.
EVERY_OPTIONAL_ARRAY = dict.fromkeys(
    ("m0", "bins_kinds", "bins_sparse", "naive_leaf", "tree_nodes", "node_count", "weight", "node_H_rest", "unit"),
    np.empty(0),
)
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "formats.md"
#: Rows of its tables: names of arrays, and their type.
ROW = re.compile(r"^\| (`\w+`(?:, `\w+`)*) \| (u?int\d+|float64)", re.MULTILINE)


def test_the_page_of_formats_has_every_array_with_its_type() -> None:
    text = PAGE.read_text(encoding="utf-8")
    types = {(name, dtype) for names, dtype in ROW.findall(text) for name in re.findall(r"\w+", names)}
    assert len(types) > 25
    for trial in (trial for trial in CASES if trial.shipped):
        features = Features(("a", "b"), (False, True), 1, sparse=3 * trial.case.sparse)
        for state in (False, True):
            schema = trial.learner.schema(trial.options, features, EVERY_OPTIONAL_ARRAY, state=state)
            for of in (*schema.arrays, *schema.group):
                assert f"`{of.name}`" in text, f"{trial.name}: {of.name}"
                found = {dtype for name, dtype in types if name == of.name}
                assert not found or found & {dtype.name for dtype in of.dtypes}, f"{trial.name}: {of.name}"


@every_case("sound states")
@pytest.mark.parametrize("warmup", [None, 30, 200])
def test_no_state_on_the_way_is_refused(trial: Trial, warmup: int | None, tmp_path: Path) -> None:
    """Before, in and after a warm-up, in one that never ends, and once all examples are deleted."""
    trial = trial if warmup is None else replace(trial, case=replace(trial.case, warmup=warmup))
    stream = trial.stream(tmp_path, 90)
    session, features = trial.session(stream), trial.features(stream.source)

    def check() -> None:
        trial.learner.check(trial.options, features, len(stream.source.classes), *session.state())

    seq = 0
    for batch in stream.batches(11):
        session.apply(batch, skip_refused=True)
        seq = batch.start + len(batch)
        check()
    state, _ = session.state()
    live = np.unique(state["id"])  # those that wait to be deleted are not known any more
    nothing = np.empty((0, len(features.names)))
    y = np.empty(0, dtype=state["y"].dtype)
    op, rows = np.full(len(live), DELETE, dtype=np.int8), np.full(len(live), -1)
    sparse = SparseRows.empty(features.sparse, 0) if features.sparse else None
    classes, warmup = len(stream.source.classes), batch.warmup
    session.apply(UpdateBatch(seq, op, live, nothing, y, classes, rows, warmup, sparse=sparse), skip_refused=True)
    check()
    session.finish()
    check()
    trial.learner.check(trial.options, features, len(stream.source.classes), session.model(), None)
