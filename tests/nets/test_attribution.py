"""Attribution of every learner: labels and intervals are those of the models without each row, or without each person.

The twin is a copy that forgets the rows and, of a learner whose model is a function of the live examples, one that is
trained on the others with the same codes of categories. Each model has a past, weights if the case has some, persons,
and a class of which one row is left.
"""

from __future__ import annotations

import copy
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from pipelines.prediction import predict_file
from pipelines.saved_runs import find_state
from raydt import load_model
from raydt.attribution import JackknifePlusRegressor, label_quality
from raydt.attribution.jackknife import Intervals, guarantee_of
from raydt.attribution.leave_one_out import training_rows
from raydt.errors import ConfigError, ModelFileError
from raydt.estimators.without import _shell
from raydt.examples.updates import INSERT
from tests.cases import CASES, Trial, every_case
from tests.keyed_runs import replayed, rows_of
from tests.nets.test_interrupts import Data, fingerprint
from tests.oracles import intervals
from tests.refusals import refused
from tests.small_tables import examples, table_of

ALPHA = "0.2"


class Fitted:
    """A fitted estimator of a case, and its live rows, labels and persons, oldest first."""

    def __init__(self, trial: Trial) -> None:
        self.data = data = Data(trial)
        rows = data.first + data.others[:6]
        whose = [f"person {i // 3}" for i in range(len(rows))]
        try:
            self.model = data.estimator(whose)
        except NotImplementedError:
            pytest.skip(f"{trial.learner.kind} has no estimator")
        column = trial.columns["label"]
        if trial.case.classes:
            labels = Counter(rows[i][column] for i in self.ids)
            rarest = min(labels, key=lambda label: (labels[label], label))
            self.model.forget([i for i in self.ids if rows[i][column] == rarest][1:])
        self.rows = [rows[i] for i in self.ids]
        self.y, self.whose = [row[column] for row in self.rows], [whose[i] for i in self.ids]
        self.X = data.X(self.rows)

    @property
    def ids(self) -> list[int]:
        found: list[int] = self.model.live_ids_.tolist()
        return found

    def without(self, gone: list[int]) -> list[Any]:
        """The models without the rows at some places: after ``forget`` and, if promised, trained on the others."""
        less = copy.deepcopy(self.model)
        less.forget([self.ids[place] for place in gone], digests=False)
        if not self.model._traits.retrained:
            return [less]
        store = self.model._store()
        slots = np.delete(store.in_order_of_birth(), gone)
        X, sparse = training_rows(self.model, slots)
        anew = _shell(self.model, self.model.__dict__ | {"_seq": 0, "_known": {}, "_change": None})
        anew._open_session()
        if (factors := self.model.session_.coordinator.class_factors) is not None:
            anew.session_.coordinator.weigh_classes(factors)
        op = np.full(len(slots), INSERT, dtype=np.int8)
        more = sparse.get("sparse"), len(slots), store.weights(slots)
        anew._apply(anew._next_batch(op, store.id[slots], X, store.y[slots], *more))
        return [less, anew]


@every_case("quality of labels", turn=1)
@pytest.mark.parametrize("by", ["row", "person"])
def test_a_label_is_judged_by_the_model_without_its_row(trial: Trial, by: str) -> None:
    fitted = Fitted(trial)
    model, before = fitted.model, repr(fingerprint(fitted.model, fitted.data))
    found = label_quality(model, groups="subjects" if by == "person" else None)
    assert repr(fingerprint(model, fitted.data)) == before
    assert found.ids.tolist() == fitted.ids
    groups = [*range(len(fitted.y))] if by == "row" else fitted.whose
    for group in dict.fromkeys(groups):
        mine = [place for place, own in enumerate(groups) if own == group]
        for less in fitted.without(mine):
            assert found.predicted[mine].tolist() == less.predict(fitted.X)[mine].tolist()
            if trial.case.classes:
                assert found.shares[mine].tolist() == less.predict_proba(fitted.X)[mine].tolist()
    if trial.case.classes:
        columns = [model.classes_.tolist().index(label) for label in fitted.y]
        assert found.quality.tolist() == found.shares[np.arange(len(columns)), columns].tolist()
        assert min(Counter(fitted.y).values()) == 1
        return
    far = np.abs(np.array(fitted.y) - found.predicted)
    assert found.suspect.tolist() == (far > 3 * 1.4826 * np.median(far)).tolist()
    assert ((found.quality >= 0) & (found.quality <= 1)).all()


@every_case("intervals of predictions", turn=1)
def test_an_interval_is_that_of_the_models_without_each_person(trial: Trial) -> None:
    fitted = Fitted(trial)
    model, data = fitted.model, fitted.data
    if trial.case.classes:
        with refused("attribution.no_regressor", ConfigError):
            JackknifePlusRegressor(model).fit(fitted.X, fitted.y)
        return
    before = repr(fingerprint(model, data))
    found = Intervals(model).of(model, *model._rows(data.asked), float(ALPHA))
    assert repr(fingerprint(model, data)) == before
    expected = intervals.after_forget(model, data.asked, fitted.X, fitted.y, fitted.whose, ALPHA)
    assert found.tolist() == expected
    symmetric = model.session_.coordinator.knows_rows
    assert guarantee_of(model).id == f"attribution.{'jackknife_plus_subjects' if symmetric else 'heuristic'}"
    assert not symmetric or model._traits.retrained
    if model._traits.retrained:
        for group in dict.fromkeys(fitted.whose):
            less, anew = fitted.without([place for place, own in enumerate(fitted.whose) if own == group])
            assert less.predict(data.asked).tolist() == anew.predict(data.asked).tolist()


@every_case("intervals from the command line", turn=1)
def test_a_run_predicts_with_intervals_or_says_why_not(trial: Trial, run_of: Any, tmp_path: Path) -> None:
    run, out = run_of(trial), tmp_path / "out.parquet"
    asked = table_of(examples(9, 6)).select(trial.columns["features"])
    pq.write_table(asked, tmp_path / "asked.parquet")
    if trial.case.classes:
        with refused("attribution.of_classes", ConfigError):
            predict_file(run.path, tmp_path / "asked.parquet", out, interval=float(ALPHA))
        assert [file.name for file in tmp_path.iterdir()] == ["asked.parquet"]
        return
    place = find_state(run.path).folder.location
    model = load_model(place)
    found = predict_file(run.path, tmp_path / "asked.parquet", out, interval=float(ALPHA))
    table = pq.read_table(out)
    assert table.column_names == ["prediction", "lower", "upper"]
    assert table["prediction"].to_pylist() == model.predict(asked).tolist()
    ends = Intervals(model).of(model, *model._rows(asked), float(ALPHA))
    assert [table[name].to_pylist() for name in ("lower", "upper")] == ends.T.tolist()
    assert found["guarantee"] == str(guarantee_of(model))
    assert load_model(place).digest() == model.digest() == run.digest


def test_models_by_key_have_no_intervals(tmp_path: Path) -> None:
    place = replayed(CASES[0], tmp_path / "keyed", rows_of(CASES[0]), by_key=True)
    with refused("keyed.folder", ModelFileError):
        predict_file(place, tmp_path / "asked.parquet", tmp_path / "out.parquet", interval=float(ALPHA))
