"""Random lives of estimators: nothing that is given is changed or kept.

``python -m tests.nets.test_owners --lives 1000`` makes many.
"""

from __future__ import annotations

import argparse
import copy
import functools
import inspect
import random
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp

import pipelines
from pipelines.auditing import audit_run, audit_state
from pipelines.prediction import predict_file
from pipelines.purging import purge
from pipelines.updating import update
from raydt import KeyedClassifier, KeyedRegressor, load_model
from raydt.errors import InputError
from raydt.estimators import estimator_of
from raydt.messages import message_of
from tests import volume
from tests.cases import CASES, GROUPS, Trial, every_case, first_cases, open_state, place_of
from tests.layouts import FRAMES, LISTS, MATRICES, SPARSE_MATRICES, VECTORS, Layouts, footprint, overwrite
from tests.nets.test_contract import ADAPTERS, estimator
from tests.small_tables import Row, derived, examples, table_of

# -- lives -----------------------------------------------------------------------------------------------------------
# Random lives of models: rows, subjects and whole classes come and go, and weights vanish.
#
# After each step of a life the model is saved, loaded with the same digest, audited and deleted from, and so is the
# loaded model. The last state of a run is audited, updated and purged. Rows may have weight 0, so a class can be live
# although no row of it counts.

#: Which some weights below make true.

#: Weights of a step: rows that do not count, the least weight, fractions, whole numbers, or none given.
WEIGHTS: tuple[tuple[float, ...] | None, ...] = ((0.0,), (0.0, 1.0), (2**-16, 1.0), (0.1, 0.25), (0.0, 3.0, 7.5), None)
STEPS = 7
SUBJECTS = 5


class Life:
    """A model and its live rows by id; a step changes both."""

    def __init__(self, trial: Trial, draw: random.Random) -> None:
        self.trial, self.draw = trial, draw
        self.model, self.data = estimator(trial)
        self.weighs = trial.reading.weights
        self.label = trial.columns["label"]
        classes = "xyz"[: max(2, trial.case.classes)]
        self.rows = [{**derived(row), **row} for row in examples(300, draw.randrange(1000), classes)]
        self.live: dict[int, Row] = {}
        self.next = 0
        # Without the class "z", which comes later.
        first = [row for row in self.rows if row["d"] != "r" and row[self.label] != "z"][:30]
        self._give(first, lambda X, y, **more: self.model.fit(X, y, **more), (0.5, 1.0, 2.0))

    def step(self) -> None:
        """Change the model by one call."""
        steps = [self.insert, self.of_one_class, self.forget, self.by_value, self.subject, self.replace]
        rare = [self.class_gone, self.class_weightless, self.all_gone]
        self.draw.choice(steps + rare if len(self.live) > 3 else [self.insert])()

    def _give(self, rows: Sequence[Row], call: Callable[..., Any], weights: Any = "drawn", named: str = "ids") -> None:
        rows, ids = list(rows), list(range(self.next, self.next + len(rows)))
        self.next += len(rows)
        choice = self.draw.choice(WEIGHTS) if weights == "drawn" else weights
        more: dict[str, Any] = {}
        if self.weighs and choice is not None:
            more["sample_weight"] = [self.draw.choice(choice) for _ in rows]
        subjects = [f"s{self.draw.randrange(SUBJECTS)}" for _ in rows]
        call(*self.data.both(rows), **{named: ids}, subjects=subjects, **more)
        self.live |= {i: {**row, "subject": whose} for i, row, whose in zip(ids, rows, subjects, strict=True)}

    def insert(self, weights: Any = "drawn", rows: Sequence[Row] | None = None) -> None:
        """Insert some rows."""
        self._give(rows or self.draw.sample(self.rows, 6), self.model.partial_fit, weights)

    def of_one_class(self) -> None:
        """Insert rows of one class alone, which may be a class that no other row has."""
        some = self.draw.choice(self.rows)[self.label]
        self.insert(rows=[row for row in self.rows if row[self.label] == some][:4])

    def forget(self) -> None:
        """Delete by id."""
        self._gone(self.draw.sample(sorted(self.live), min(4, len(self.live))))

    def _gone(self, ids: Sequence[int]) -> None:
        self.model.forget(list(ids))
        for one in ids:
            del self.live[one]

    def by_value(self) -> None:
        """Delete a row by value."""
        receipt = self.model.forget_examples(*self.data.both([self.draw.choice(list(self.live.values()))]))
        del self.live[receipt.deletions["id"].tolist()[0]]

    def subject(self) -> None:
        """Delete a subject."""
        whose = self.draw.choice(list(self.live.values()))["subject"]
        self.model.forget(subjects=[whose])
        self.live = {i: row for i, row in self.live.items() if row["subject"] != whose}

    def replace(self, weights: Any = "drawn", ids: Sequence[int] | None = None) -> None:
        """Replace rows by others, or by themselves with another weight."""
        ids = self.draw.sample(sorted(self.live), 3) if ids is None else ids
        rows = [self.live.pop(one) for one in ids] if self.draw.random() < 0.5 or weights != "drawn" else None
        if rows is None:
            rows = self.draw.sample(self.rows, 3)
            for one in ids:
                del self.live[one]

        def call(X: Any, y: Any, **more: Any) -> None:
            self.model.replace_examples(ids, X, y, **more)

        self._give(rows, call, weights, "new_ids")

    def _of_a_class(self) -> list[int]:
        some = self.draw.choice(list(self.live.values()))[self.label]
        return [i for i, row in self.live.items() if row[self.label] == some]

    def class_gone(self) -> None:
        """Delete all rows of a class."""
        self._gone(self._of_a_class())

    def class_weightless(self) -> None:
        """Give all rows of a class weight 0."""
        self.replace((0.0,), self._of_a_class())

    def all_gone(self) -> None:
        """Delete everything."""
        self._gone(sorted(self.live))

    # -- what holds after each step -------------------------------------------------------------------------------

    def check(self, folder: Path) -> None:
        """Save, load, audit, delete from both, and continue with either."""
        self._require(self.model)
        self.model.save(folder / "model")
        self.model.save(folder / "state", with_examples=True)
        served, loaded = load_model(folder / "model"), load_model(folder / "state")
        asked = self.data.X(self.rows[:9])
        expected = self.model.predict(asked).tolist()
        assert served.predict(asked).tolist() == loaded.predict(asked).tolist() == expected
        assert loaded.digest() == self.model.digest()
        self._require(loaded)
        assert audit_state(folder / "state").ok
        if self.live:
            gone = [self.draw.choice(sorted(self.live))]
            here, there = self.model, loaded
            assert there.forget(gone).digest_after == here.forget(gone).digest_after
            del self.live[gone[0]]
            self._require(loaded)
            self._require(self.model)
        if self.draw.random() < 0.3:
            self.model = loaded

    def _require(self, model: Any) -> None:
        report = model.audit()
        assert report.ok, report
        assert sorted(model.live_ids_.tolist()) == sorted(self.live)


def live_through(trial: Trial, seed: int, folder: Path) -> None:
    """Lead a life; a failure says how to lead it again."""
    life = Life(trial, random.Random(f"{trial.name}, {seed}"))
    said: list[str] = []
    try:
        for number in range(STEPS):
            for kind in ("step", "check"):
                said.append(kind)
                life.step() if kind == "step" else life.check(folder / str(number))
    except Exception as error:
        raise AssertionError(f"{trial.name}, seed {seed}, after {said.count('step')} steps: {error}") from error


@pytest.mark.filterwarnings("ignore:the weights of .* rows sum to:UserWarning")
@every_case("a random life")
def test_a_life(trial: Trial, tmp_path: Path) -> None:
    for seed in range(4 if volume.nightly else 1):
        live_through(trial, seed, tmp_path / str(seed))


def _with_weights(trial: Trial) -> Trial:
    """The case with weights, if the learner takes any."""
    return replace(trial, case=replace(trial.case, weighted=trial.reading.weights))


@pytest.mark.filterwarnings("ignore:the weights of .* rows sum to:UserWarning")
@every_case("a class without weight")
def test_a_class_whose_live_rows_have_no_weight(trial: Trial, tmp_path: Path) -> None:
    """At first, by deletion, and by replacement; and back again."""
    life = Life(_with_weights(trial), random.Random(trial.name))
    last = max(row[life.label] for row in life.rows)
    of_last = [row for row in life.rows if row[life.label] == last]
    life.insert((0.0,), of_last[:3])
    life.check(tmp_path / "0")
    life.insert((1.0,), of_last[3:6])
    life.check(tmp_path / "1")
    life._gone([i for i in life.live if i >= life.next - 3])
    life.check(tmp_path / "2")
    life.replace((0.0,), [i for i, row in life.live.items() if row[life.label] == last])
    life.check(tmp_path / "3")
    life.insert((0.0, 1.0), of_last[6:9])
    life.check(tmp_path / "4")


@pytest.mark.filterwarnings("ignore:the weights of .* rows sum to:UserWarning")
@every_case("a run with vanishing weights")
def test_a_run_whose_weights_vanish(trial: Trial, tmp_path: Path) -> None:
    """Replay, audit, delete, audit, purge, audit: rows of the last class have weight 0."""
    trial, draw = _with_weights(trial), random.Random(trial.name)
    label = trial.columns["label"]
    warmup = max(24, trial.case.warmup)
    config = trial.config(tmp_path, stream={"warmup": trial.case.warmup})
    classes = "xyz"[: max(2, trial.case.classes)]
    rows = [{**derived(row), **row} for row in examples(warmup + 40, draw.randrange(1000), classes)]
    last = max(row[label] for row in rows)
    rows.sort(key=lambda row: bool(row[label] == last))
    for row in rows:
        row["weight"] = 0.0 if row[label] == last else draw.choice((0.0, 0.25, 1.0, 2.0))
    _write(tmp_path / "changes.arrow", table_of(rows))
    run = pipelines.replay(config, tmp_path / "run")
    assert audit_run(run.path).ok
    ids = [row["id"] for row in draw.sample(rows, 4)] + [rows[-1]["id"]]
    pq.write_table(pa.table({"id": sorted(set(ids))}), tmp_path / "gone.parquet")
    update(run.path, delete=tmp_path / "gone.parquet", out=tmp_path / "less")
    assert audit_state(tmp_path / "less").ok
    again = pipelines.resume(run.path, state=tmp_path / "less")
    assert audit_run(again.path).ok
    purge(again.path)
    assert audit_run(again.path).ok
    assert open_state(again.path)[0].session().digest() == again.digest


def _write(path: Path, table: pa.Table) -> None:
    with pa.ipc.new_file(path, table.schema) as file:
        file.write_table(table)


# -- owners ----------------------------------------------------------------------------------------------------------
# Owners of arrays: no call changes what it was given, keeps it, or answers by the layout it lies in.
#
# Each life makes every public call of an estimator that takes rows, labels, weights, ids, subjects or keys, each
# argument in a layout that is drawn; calls and arguments are found by their signatures. What is given has the same
# bytes after the call as before; then its owner overwrites it. The answers are those of the same life whose values
# all lie in Arrow tables, or in the plainest container where there is no table.
#
# ``python -m tests.nets.test_owners --lives 1000`` makes many lives.

#: Arguments of public methods that hold values of the caller: of rows, or of examples and models.
ROWS = ("X",)
VALUES = ("y", "sample_weight", "classes", "ids", "new_ids", "subjects", "keys")
#: What a caller has rows in.
FORMS = ("matrix", "frame", "frame of text", "sparse matrix", "lists")
WIDTH = 16
KEYS = ("north", "south")


def forms_of(trial: Trial) -> list[str]:
    """The forms of rows that a case takes."""
    reading, case = trial.reading, trial.case
    alone = not case.dense or not reading.needs_sparse  # ones, without numbers beside them
    matrix = reading.sparse and alone and case.classes <= reading.most_classes(sparse=True)
    takes = (reading.dense and not reading.needs_sparse, True, reading.dense, matrix, reading.needs_sparse and alone)
    return [form for form, taken in zip(FORMS, takes, strict=True) if taken]


class OwnersLife:
    """Draws of one life: the form of rows, their columns, and the values of every call."""

    def __init__(self, trial: Trial, form: str, number: int, keyed: bool) -> None:
        self.trial, self.form, self.keyed, draw = trial, form, keyed, random.Random(f"{form} {number}")
        case, reading = trial.case, trial.reading
        rows = [{**derived(row), **row} for row in examples(72, draw.randrange(1000), "xyz"[: max(2, case.classes)])]
        rows = [row for row in rows if row["number"] is not None]
        for place, row in enumerate(rows):
            # The first rows of each key say how many sparse features there are.
            last = [WIDTH - 1] if place < len(KEYS) else []
            row |= {"place": place, "key": KEYS[place % len(KEYS)], "ones": sorted([*row["ones"], *last])}
        self.first, self.others, self.new, self.asked = rows[:30], rows[30:46], rows[46:54], rows[54:]
        self.equal = [self.first[8], self.first[9]]
        names = ["d_or_null", "a_or_null", "b", "c"] if reading.missing and case.missing else ["d", "a", "b", "c"]
        self.names: list[str] = []
        if form in ("matrix", "frame", "frame of text") and reading.dense:
            self.names = names[:1] if number % 2 == 0 else sorted(draw.sample(names, draw.randrange(2, 5)))
        self.lists = form in ("sparse matrix", "lists") or reading.needs_sparse or (reading.sparse and case.sparse)
        self.lists &= form != "matrix"
        self.label = trial.columns["label"]
        self.text_ids = draw.random() < 0.5
        self.begin = draw.choice(("fit", "partial_fit"))

    @property
    def categorical(self) -> list[Any] | None:
        """The columns of numbers that are categories: by position of a matrix, by name of a frame."""
        coded = [j for j, name in enumerate(self.names) if name.startswith("d")]
        if self.form == "matrix":
            return coded
        return [f"x{j}" for j in coded] if self.form == "frame" and coded else None

    def estimator(self) -> Any:
        """An estimator that is not fitted, with the options of the case."""
        kind = estimator_of(self.trial.options)
        options = self.trial.options.model_copy(update=kind._fixed)
        made = type(kind.__name__, (kind,), {"_options": lambda self: options})(feature_groups=GROUPS)
        if self.categorical is not None:
            made.categorical_features = self.categorical
        if not self.keyed:
            return made
        return (KeyedClassifier if self.trial.case.classes else KeyedRegressor)(made)

    # -- values -------------------------------------------------------------------------------------------------------

    def plain_rows(self, rows: Sequence[Row]) -> Any:
        """Rows as the layouts of the form are made of."""
        ones = [row["ones"] for row in rows]
        if self.form == "lists":
            return ones
        if self.form == "sparse matrix":
            X = np.zeros((len(rows), WIDTH))
            for row, of_row in enumerate(ones):
                X[row, of_row] = 1.0
            return sp.csr_matrix(X)
        columns: dict[str, pa.Array] = {}
        for j, name in enumerate(self.names):
            values, text = [row[name] for row in rows], name.startswith("d")
            if text and self.form != "frame of text":
                values = [None if value is None else float("pqr".index(value)) for value in values]
                text = False
            columns[f"x{j}"] = pa.array(values, pa.string() if text else pa.float64())
        if self.lists:
            columns["ones"] = pa.array(ones, pa.list_(pa.int32()))
        return pa.table(columns)

    def layouts(self) -> Layouts:
        """Layouts of the rows."""
        if self.form == "matrix":
            return {name: lambda table, lay=lay: lay(matrix_of(table)) for name, lay in MATRICES.items()}
        return {"sparse matrix": SPARSE_MATRICES, "lists": LISTS}.get(self.form, FRAMES)

    def values(self, method: str, name: str, rows: Sequence[Row]) -> list[Any] | None:
        """The values of an argument of a call, one for each row where they are of rows."""
        if name == "y":
            return [row[self.label] for row in rows]
        if name == "sample_weight":
            return [row["weight"] for row in rows] if self.trial.case.weighted else None
        if name == "classes":
            return sorted({"x", "y", "z"} if self.label == "y_of_three" else {"x", "y"})
        if name == "keys":
            return [row["key"] for row in rows]
        if name == "subjects":
            return ["s1"] if method == "forget" else [f"s{row['place'] % 9}" for row in rows]
        if name == "ids" and method in ("forget", "replace_examples"):
            rows = self.first[2:5] if method == "forget" else self.others[:2]
        return [f"e{row['place']}" if self.text_ids else row["place"] for row in rows]


def matrix_of(table: pa.Table) -> Any:
    """A matrix of the numbers of a table, in C order."""
    columns = [column.to_numpy() for column in table.columns]
    return np.ascontiguousarray(np.stack(columns, axis=1))


#: Rows of calls; the rows of other calls are asked.
ROWS_OF = {"fit": "first", "partial_fit": "others", "replace_examples": "new", "forget_examples": "equal"}


@functools.cache
def calls_of(kind: type) -> dict[str, list[str]]:
    """Parameters that hold values of the caller, of each public method of an estimator that has some."""
    found = {}
    for name in (name for name in dir(kind) if not name.startswith(("_", "set_"))):
        method = getattr(kind, name)
        if callable(method):
            found[name] = [one for one in inspect.signature(method).parameters if one in (*ROWS, *VALUES)]
    return {name: parameters for name, parameters in found.items() if parameters}


class Caller:
    """Makes the calls of a life, with values in layouts that are drawn; None: in the plainest ones."""

    def __init__(self, life: OwnersLife, draw: random.Random | None) -> None:
        self.life, self.draw = life, draw
        self.results: list[tuple[str, Any, str]] = []

    def laid(self, layouts: Layouts, values: Any) -> tuple[str, Any]:
        """The name of a layout and the values in it."""
        name = next(iter(layouts)) if self.draw is None else self.draw.choice(list(layouts))
        return name, layouts[name](values)

    def call(self, target: Any, method: str, rows: Sequence[Row]) -> Any:
        """Make a call; what it answers, as plain values."""
        life, given, named = self.life, {}, {}
        for name in calls_of(type(target))[method]:
            if name in ROWS:
                layouts: Layouts = {"Arrow": FRAMES["Arrow"]} if self.draw is None and life.form == "matrix" else {}
                named[name], given[name] = self.laid(layouts or life.layouts(), life.plain_rows(rows))
            elif (values := life.values(method, name, rows)) is not None:
                named[name], given[name] = self.laid(VECTORS, values)
        before = {name: footprint(value) for name, value in given.items()}
        try:
            answer = getattr(target, method)(**given)
        except InputError as error:
            if method in CHANGES:
                raise AssertionError(f"{method} of {named}: {error}") from error
            answer = message_of(error)
        changed = [name for name, value in given.items() if footprint(value) != before[name]]
        assert not changed, f"{method} has written into {changed} of {named}"
        for value in given.values():
            overwrite(value)
        found = plain(answer)
        self.results.append((f"{method} of {named}", answer, repr(found)))
        return found

    def require_results(self) -> None:
        """Require that no later call has written into an answer."""
        for call, answer, shown in self.results:
            assert repr(plain(answer)) == shown, f"the answer of {call} was written into"


CHANGES = ("fit", "partial_fit", "forget", "replace_examples", "forget_examples")


def plain(answer: Any) -> Any:
    """Return an answer as values that can be compared."""
    if isinstance(answer, np.ndarray):
        return answer.tolist()
    if hasattr(answer, "_asdict"):
        return {name: plain(value) for name, value in answer._asdict().items()}
    if hasattr(answer, "digest_after"):
        return answer.deletions["id"].tolist(), answer.digest_before, answer.digest_after
    if hasattr(answer, "receipts"):
        return {key: plain(receipt) for key, receipt in answer.receipts.items()}
    if isinstance(answer, float | str | list):
        return answer
    return None


def lived(life: OwnersLife, caller: Caller, folder: Path) -> Iterator[tuple[str, Any]]:
    """The answers of a life, each with the name of its call."""
    one = life.estimator()
    calls = calls_of(type(one))
    reads = sorted(set(calls) - set(CHANGES))

    def seen(what: str, target: Any) -> Iterator[tuple[str, Any]]:
        yield f"digest after {what}", target.digest()
        for name in reads:
            yield f"{name} after {what}", caller.call(target, name, life.asked)

    caller.call(one, life.begin, life.first)
    yield from seen(life.begin, one)
    for row in life.others[:3]:
        caller.call(one, "partial_fit", [row])
        yield "digest after one row", one.digest()
    caller.call(one, "partial_fit", life.others[3:])
    for name in CHANGES[2:]:
        yield name, caller.call(one, name, getattr(life, ROWS_OF.get(name, "asked")))
        yield f"digest after {name}", one.digest()
    yield from seen("all changes", one)
    together = caller.call(one, "predict", life.asked)
    apart = [caller.call(one, "predict", [row])[0] for row in life.asked]
    assert apart == together, "rows are predicted otherwise when they come one by one"
    other = copy.deepcopy(one)
    if caller.draw is not None:
        one.save(folder / "state", with_examples=True)
        other = load_model(folder / "state")
    before = files(folder)
    caller.call(other, "partial_fit", life.asked[:3])
    yield from seen("loading", other)
    assert files(folder) == before, "a loaded model has written into its files"
    caller.require_results()
    yield "digest at the end", one.digest()


def files(folder: Path) -> dict[str, bytes]:
    """Contents of all files of a folder."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def try_life(trial: Trial, form: str, number: int, keyed: bool = False) -> None:
    """Compare a life in drawn layouts with the same life in plain ones."""
    expected = {}
    for plainly in (True, False):
        life = OwnersLife(trial, form, number, keyed)
        caller = Caller(life, None if plainly else random.Random(f"layouts of {form} {number}"))
        with tempfile.TemporaryDirectory() as folder:
            for place, (what, answer) in enumerate(lived(life, caller, Path(folder))):
                if plainly:
                    expected[place] = repr(answer)
                else:
                    calls = "\n  ".join(call for call, _, _ in caller.results[-6:])
                    columns = f"columns {life.names}, life {number}, after\n  {calls}"
                    assert repr(answer) == expected[place], (
                        f"{what} depends on layouts: {trial.name}, {form}, {columns}"
                    )


def try_lives(trial: Trial, lives: int, keyed: bool) -> None:
    """Try lives in each form of rows that a case takes; of two, the one with several columns, and both of a matrix."""
    try:
        estimator_of(trial.options)
    except NotImplementedError:
        pytest.skip(f"{trial.learner.kind} has no estimator")
    for form in forms_of(trial):
        few = form != "matrix" or keyed
        for number in range(1 if few and lives == 2 else 0, lives):
            try_life(trial, form, number, keyed)


@every_case("owners of arrays")
def test_no_call_changes_or_keeps_what_it_was_given(trial: Trial) -> None:
    try_lives(trial, 3 if volume.nightly else 2, keyed=False)


@every_case("owners of arrays, by key")
def test_no_call_by_key_changes_or_keeps_what_it_was_given(trial: Trial) -> None:
    try_lives(trial, 3 if volume.nightly else 2, keyed=True)


# -- examples one by one, and files -------------------------------------------------------------------------------


@pytest.mark.parametrize("adapter", ADAPTERS, ids=lambda adapter: adapter.__name__)
def test_no_call_changes_or_keeps_an_example(adapter: Any) -> None:
    """An adapter for river; its owner uses one dictionary for all examples, of NumPy's numbers now and then."""
    rows = examples(60, 5)
    digests, labels = [], []
    for shared in (False, True):
        ones, held = adapter(), dict[str, Any]()
        for number, row in enumerate(rows):
            x = {"a": row["a"], "b": row["b"], "d": row["d"]}
            if shared and number % 2:
                x = {"d": np.str_(row["d"]), "b": np.array([row["b"]])[0], "a": np.float32(row["a"])}
            x = held if shared and not held.clear() and not held.update(x) else x
            before = footprint(x)
            ones.learn_one(x, row["y"])
            if number > 30:
                labels.append((ones.predict_one(x), ones.predict_proba_one(x)))
            if number % 3 == 2:
                ones.forget_one(x, row["y"])
            assert footprint(x) == before, number
            held.update(a=7.0, b=7.0, d="other")
        digests.append(ones._session.digest())
    assert digests[0] == digests[1]
    assert labels[: len(labels) // 2] == labels[len(labels) // 2 :]


@every_case("owners of files", among=first_cases(), often=lambda trial: place_of(trial) == 3)
def test_no_command_changes_a_file_or_a_table_that_it_was_given(trial: Trial, tmp_path: Path) -> None:
    """Runs, audits, predictions and updates leave data, and the runs and states that they read, as they were."""
    config = trial.config(tmp_path)
    asked, gone = table_of(examples(9, 6)).select(trial.columns["features"]), ["e0", "e1", "e2"]
    new = [{**row, "id": f"new {i}"} for i, row in enumerate(examples(9, 6))]
    columns = ["id", *trial.columns["features"], trial.columns["label"], *(["weight"] if trial.case.weighted else [])]
    pq.write_table(asked, tmp_path / "asked.parquet")
    pq.write_table(pa.table({"id": gone}), tmp_path / "gone.parquet")
    given = files(tmp_path)
    run = pipelines.replay(config, tmp_path / "run").path
    audit_state(run)
    made = files(tmp_path)
    assert given.items() <= made.items()
    predict_file(run, tmp_path / "asked.parquet", out=tmp_path / "predicted.parquet")
    update(run, delete=tmp_path / "gone.parquet", missing="skip", out=tmp_path / "less")
    tables = [lay(table_of(new).select(columns)) for lay in (FRAMES["Arrow, sliced"], FRAMES["pandas, C"])]
    before = [footprint(one) for one in (*tables, gone)]
    digests = [update(run, insert=table, delete=gone, missing="skip", dry_run=True).digest_after for table in tables]
    assert digests[0] == digests[1]
    assert [footprint(one) for one in (*tables, gone)] == before
    audit_state(tmp_path / "less")
    assert made.items() <= files(tmp_path).items()


def main() -> None:
    """Make lives in each form of every case, with one model and with models by key."""
    parser = argparse.ArgumentParser(description="Lives in drawn layouts.")
    parser.add_argument("--lives", type=int, default=100, help="lives of each case and form")
    parser.add_argument("--case", default="", help="part of the names of the cases to take")
    options = parser.parse_args()
    for trial in (trial for trial in CASES if options.case in trial.name and trial.shipped):
        for keyed in (False, True):
            try_lives(trial, options.lives, keyed)
        print(trial.name, flush=True)


if __name__ == "__main__":
    main()
