"""Random lives of models: rows, subjects and whole classes come and go, and weights vanish.

After each step of a life the model is saved, loaded with the same digest, audited and deleted from, and so is the
loaded model. The last state of a run is audited, updated and purged. Rows may have weight 0, so a class can be live
although no row of it counts.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pipelines
from pipelines.auditing import audit_run, audit_state
from pipelines.purging import purge
from pipelines.saved_runs import open_state
from pipelines.updating import update
from raydt import load_model
from tests import volume
from tests.cases import Trial, every_case
from tests.nets.test_contract import estimator
from tests.small_tables import Row, derived, examples, table_of

#: Which some weights below make true.
pytestmark = pytest.mark.filterwarnings("ignore:the weights of .* rows sum to:UserWarning")

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


@every_case("a random life")
def test_a_life(trial: Trial, tmp_path: Path) -> None:
    for seed in range(12 if volume.nightly else 1):
        live_through(trial, seed, tmp_path / str(seed))


def _with_weights(trial: Trial) -> Trial:
    """The case with weights, if the learner takes any."""
    return replace(trial, case=replace(trial.case, weighted=trial.reading.weights))


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
