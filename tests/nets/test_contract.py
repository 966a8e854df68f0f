"""The contract of every learner, on every case: save, restore, refusals, deletion, missing values, options, updates."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

import pipelines
from pipelines.auditing import audit_state
from pipelines.display import receipt_lines
from pipelines.saved_runs import open_state
from pipelines.updating import update
from raydt import load_model
from raydt.errors import ConfigError, InputError, UpdateError
from raydt.estimators import estimator_of
from raydt.learners import learners
from raydt.learners.base import Learner, WorkPlan
from raydt.messages import message_of
from raydt.sessions.session import InProcessSession
from tests.cases import CASES, Trial, every_case
from tests.nets.test_interrupts import Data, after, fingerprint, live
from tests.refusals import refused
from tests.small_tables import examples, table_of, written

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
def test_an_update_of_a_run(trial: Trial, tmp_path: Path) -> None:
    run = pipelines.replay(trial.config(tmp_path), tmp_path / "run")
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
