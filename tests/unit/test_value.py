"""The command ``value``: the values of a state are those of the estimator, by row and subject, and after interrupts.

And intervals of the command ``predict``, which come from the same models without a person.
"""

from __future__ import annotations

import json
import math
import random
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv

import actors.cluster
import actors.keyed_session
import pipelines
import pipelines.valuing
import raydt.folders.folder
from pipelines.prediction import predict_file
from pipelines.report.page import is_page
from pipelines.saved_runs import find_state
from pipelines.valuing import value_rows
from raydt import load_model
from raydt.attribution import label_quality, leave_one_out
from raydt.errors import ConfigError, InputError, ModelFileError, ProcessLostError
from raydt.messages import message
from tests.oracles import intervals
from tests.refusals import refused
from tests.storage_faults import DeathError, Fault, FaultyStorage


def table(n: int, seed: int, numbers: bool = False) -> pa.Table:
    """Rows of two features, the second a category, and text ids; one label in ten is wrong."""
    draws = np.random.default_rng(seed)
    age, colour = draws.integers(18, 90, n), draws.integers(0, 3, n)
    is_old = (age > 50) ^ (draws.random(n) < 0.1)
    columns = {
        "key": [f"k{seed}-{i}" for i in range(n)],
        "whose": [f"p{i // 3}" for i in range(n)],
        "age": age,
        "colour": np.array(["red", "green", "blue"])[colour],
        "y": age * 0.5 + is_old if numbers else np.where(is_old, "old", "young"),
    }
    return pa.table(columns)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with validation rows, and trained runs: of classes, of two sides of a label, of numbers, of a GBDT."""
    place = tmp_path_factory.mktemp("value")
    for name, numbers, more in (
        ("classes", False, {}),
        ("sides", False, {"positive": "old"}),
        ("numbers", True, {}),
        ("private", False, {}),
        ("gbdt", False, {}),
    ):
        pq.write_table(table(60, 1, numbers), place / f"{name}.parquet")
        pq.write_table(table(40, 2, numbers), place / f"{name}-valid.parquet")
        source = {
            "kind": "parquet",
            "path": str(place / f"{name}.parquet"),
            "id": "key",
            "subject": "whose",
            "label": "y",
        }
        learner = {"kind": "forest", "n_estimators": 6, "min_samples_split": 2}
        if name == "gbdt":
            learner = {"kind": "gbdt", "max_iter": 3}
        config = {
            "source": {**source, **more},
            "stream": {"holdout": 0},
            "learner": learner | ({"criterion": "squared_error"} if numbers else {}),
            "output": {"report": False, "quote_values": name != "private"},
        }
        pipelines.train(config, place / name)
    return place


@pytest.mark.parametrize("name", ["classes", "sides", "numbers"])
@pytest.mark.parametrize("by", ["row", "subject"])
def test_values_of_a_run_are_those_of_its_estimator(folder: Path, tmp_path: Path, name: str, by: Any) -> None:
    valid = pq.read_table(folder / f"{name}-valid.parquet")
    y: Any = valid["y"].to_numpy()
    place = find_state(folder / name).folder.location
    model = load_model(place)
    expected = leave_one_out(model, valid.select(["age", "colour"]), y, subjects="all" if by == "subject" else None)
    found = value_rows(folder / name, folder / f"{name}-valid.parquet", tmp_path / "values.parquet", by=by)
    written = pq.read_table(tmp_path / "values.parquet")
    heading = "subject" if by == "subject" else "id"
    assert written[heading].to_pylist() == expected.ids.tolist()
    assert written["value"].to_pylist() == expected.values.tolist()
    assert (found["rows"], found["score"]) == (len(expected.ids), expected.score)
    assert found["harmful"] == int((expected.values < 0).sum())
    if by == "row":
        train = pq.read_table(folder / f"{name}.parquet")
        labels = dict(zip(train["key"].to_pylist(), train["y"].to_pylist(), strict=True))
        assert written["label"].to_pylist() == [labels[one] for one in written["id"].to_pylist()]
        quality = label_quality(model)
        assert written["predicted"].to_pylist() == quality.predicted.tolist()
        assert written["quality"].to_pylist() == quality.quality.tolist()
        assert written["suspect"].to_pylist() == quality.suspect.tolist()
        assert found["suspect"] == quality.suspect.sum()
        if name != "numbers":
            worst = quality.ids[np.where(quality.suspect, quality.quality, 2.0).argmin()]
            table_of_page = Path(found["page"]).read_text().split("Mislabelled candidates")[-1]
            assert f">{worst}<" in table_of_page[: table_of_page.index("</table>")]
    assert is_page(Path(found["page"]))
    most = str(expected.ids[np.abs(expected.values).argmax()])
    assert f">{most}<" in Path(found["page"]).read_text()
    assert load_model(place).digest() == model.digest()


@pytest.mark.parametrize("name", ["classes", "sides", "numbers", "gbdt"])
@pytest.mark.parametrize("by", ["age", "colour"])
def test_values_by_a_feature_are_of_the_rows_with_one_value_of_it(
    folder: Path, tmp_path: Path, name: str, by: str
) -> None:
    valid, train = (pq.read_table(folder / f"{name}{end}.parquet") for end in ("-valid", ""))
    X: Any = valid.select(["age", "colour"])
    y: Any = valid["y"].to_numpy()
    model = load_model(find_state(folder / name).folder.location)

    def score() -> float:
        found = model.predict(X)
        return float(-((found - y) ** 2).mean() if name == "numbers" else (found == y).mean())

    expected, whole = {}, score()
    ids, values = train["key"].to_pylist(), train[by].to_pylist()
    for value in set(values):
        with model.without([one for one, own in zip(ids, values, strict=True) if own == value]):
            expected[value] = whole - score()
    found = value_rows(folder / name, folder / f"{name}-valid.parquet", tmp_path / "values.parquet", by=by)
    written = pq.read_table(tmp_path / "values.parquet")
    assert written.column_names == ["group", "value"]
    assert dict(zip(*written.to_pydict().values(), strict=True)) == expected
    assert found["rows"] == len(expected)
    assert f"Value of groups by {by} of" in Path(found["page"]).read_text()


@pytest.mark.parametrize("scoring", ["roc_auc", "f1_macro"])
def test_scorers_see_the_classes_in_order_and_labels_that_no_row_has(
    folder: Path, tmp_path: Path, scoring: str
) -> None:
    pytest.importorskip("sklearn")
    from sklearn.metrics import f1_score, roc_auc_score

    rows = pq.read_table(folder / "classes-valid.parquet")
    y: Any = rows["y"].to_numpy(zero_copy_only=False).copy()
    model: Any = load_model(find_state(folder / "classes").folder.location)
    features = rows.select(["age", "colour"])
    if scoring == "roc_auc":
        young = model.predict_proba(features)[:, model.classes_.tolist().index("young")]
        expected = roc_auc_score(y == "young", young)
        assert expected > 0.7
    else:
        y[:20] = "unknown"
        expected = f1_score(y, model.predict(features), average="macro")
    pq.write_table(rows.set_column(rows.column_names.index("y"), "y", pa.array(y)), tmp_path / "valid.parquet")
    found = value_rows(folder / "classes", tmp_path / "valid.parquet", tmp_path / "values.parquet", scoring=scoring)
    assert found["score"] == pytest.approx(expected, abs=1e-12)


def test_the_command_prints_what_it_wrote(folder: Path, tmp_path: Path, raydt: Any) -> None:
    arguments = ("value", folder / "classes", folder / "classes-valid.parquet", "--out", tmp_path / "values.parquet")
    code, out, _ = raydt(*arguments, "--scoring", "neg_log_loss", "--json")
    assert code == 0
    assert json.loads(out)["rows"] == 60
    code, _, err = raydt(*arguments)
    assert code == 2
    assert "values.parquet" in err
    code, out, _ = raydt(*arguments, "--overwrite", "--by", "colour")
    assert "3 groups" in out
    code, out, _ = raydt(*arguments, "--overwrite")
    assert code == 0
    assert "60 rows" in out


def test_a_page_of_a_run_that_does_not_quote_has_no_id(folder: Path, tmp_path: Path) -> None:
    found = value_rows(folder / "private", folder / "private-valid.parquet", tmp_path / "values.parquet")
    assert "k1-" not in Path(found["page"]).read_text()


def test_what_is_wrong_is_said_and_nothing_is_written(folder: Path, tmp_path: Path) -> None:
    run, valid, out = folder / "classes", folder / "classes-valid.parquet", tmp_path / "values.parquet"
    with refused("attribution.scoring", ConfigError):
        value_rows(run, valid, out, scoring="nonsense")
    with refused("attribution.by", InputError, by="whose", columns="age, colour"):
        value_rows(run, valid, out, by="whose")
    with refused("attribution.unfit", ConfigError):
        value_rows(run, valid, out, scoring="neg_mean_squared_error")
    with pytest.raises(InputError):
        value_rows(run, valid, out, label="other")
    pq.write_table(pq.read_table(valid).slice(0, 0), tmp_path / "none.parquet")
    with refused("attribution.no_rows", InputError):
        value_rows(run, tmp_path / "none.parquet", out)
    with pytest.raises(ConfigError):
        value_rows(run, valid, valid, overwrite=True)
    assert [file.name for file in tmp_path.iterdir()] == ["none.parquet"]


# -- tasks on Ray, as they would be called; on real Ray ``tests/integration/test_ray_audit.py``


class _NoCluster:
    closed = False

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize("name", ["classes", "numbers", "gbdt"])
@pytest.mark.parametrize("by", ["row", "subject"])
def test_tasks_that_answer_in_any_order_give_the_bytes_of_one_process(
    folder: Path, tmp_path: Path, name: str, by: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also after one was lost: what came before it is kept, and the next command goes on there."""
    (run, valid, out), options = command(folder, name, by, tmp_path / "here" / "values.parquet")
    options["scoring"] = None if name == "numbers" else options["scoring"]
    value_rows(run, valid, out, **options)
    expected, lost, place = outputs(out), [True], _NoCluster()

    def run_tasks(cluster: Any, work: Any, parts: Any) -> Iterator[Any]:
        ((shared, items),) = parts
        assert len(items) > 4
        answers = list(enumerate(work(shared, item) for item in items))
        first, rest = answers[:3], answers[3:]
        yield from reversed(first)
        if lost:
            yield 4, ProcessLostError(message("cluster.task_lost", error="OutOfMemory"))
        yield from random.Random(name).sample(rest, len(rest))

    monkeypatch.setattr(actors.keyed_session, "run_tasks", run_tasks)
    monkeypatch.setattr(actors.cluster, "connect", lambda *_: place)
    monkeypatch.setattr(actors.cluster, "cpus", lambda: 2)
    out = tmp_path / "there" / "values.parquet"
    with pytest.raises(ProcessLostError):
        value_rows(run, valid, out, **options, address="auto")
    assert place.closed
    lost.clear()
    assert 0 < value_rows(run, valid, out, **options, address="auto")["resumed"] < 60
    assert outputs(out) == expected


# -- predictions with intervals


def test_predictions_of_numbers_have_intervals_by_persons(folder: Path, tmp_path: Path, raydt: Any) -> None:
    asked, train = (pq.read_table(folder / f"numbers{end}.parquet") for end in ("-valid", ""))
    age = pa.array([None if i in (3, 17) else one for i, one in enumerate(asked["age"].to_pylist())])
    pq.write_table(asked.set_column(asked.column_names.index("age"), "age", age), tmp_path / "asked.parquet")
    out = tmp_path / "out.parquet"
    arguments = ("predict", folder / "numbers", tmp_path / "asked.parquet", "--id", "key", "--out", out)
    code, shown, _ = raydt(*arguments, "--interval", "0.2")
    assert code == 0
    assert "40 predictions" in shown
    assert "of a new subject" in shown
    written = pq.read_table(out)
    assert written.column_names == ["key", "prediction", "lower", "upper"]
    model = load_model(find_state(folder / "numbers").folder.location)
    features = ["age", "colour"]
    place = {one: number for number, one in enumerate(train["key"].to_pylist())}
    own = train.take([place[one] for one in model.live_ids_.tolist()])
    X = pq.read_table(tmp_path / "asked.parquet").select(features)
    persons, y = own["whose"].to_pylist(), own["y"].to_pylist()
    assert len(set(persons)) < len(persons)
    expected = intervals.after_forget(model, X, own.select(features), y, persons, "0.2")
    assert [list(ends) for ends in zip(*written.to_pydict().values(), strict=True)] == [
        [key, prediction, *ends]
        for key, prediction, ends in zip(asked["key"].to_pylist(), model.predict(X).tolist(), expected, strict=True)
    ]
    code, shown, _ = raydt(*arguments, "--interval", "0.2", "--overwrite", "--json")
    assert json.loads(shown)["guarantee"] in message("attribution.jackknife_plus_subjects")
    assert pq.read_table(out).equals(written)


def test_intervals_that_cannot_be_are_refused_in_one_sentence(folder: Path, tmp_path: Path, raydt: Any) -> None:
    call = ("predict", folder / "classes", folder / "classes-valid.parquet", "--out", tmp_path / "out.parquet")
    code, _, err = raydt(*call, "--interval", "0.1")
    assert code == 2
    assert message("attribution.of_classes") in err
    run, valid, out = folder / "numbers", folder / "numbers-valid.parquet", tmp_path / "out.parquet"
    for alpha in (0.0, 1.0, math.nan):
        with refused("attribution.alpha", InputError):
            predict_file(run, valid, out, interval=alpha)
    with refused("runs.model_only", ModelFileError):
        predict_file(run / "model", valid, out, interval=0.1)
    with refused("runs.no_state", ModelFileError):
        predict_file(tmp_path, valid, out, interval=0.1)
    code, _, err = raydt("predict", run, valid, "--explain", "1", "--interval", "0.1")
    assert code == 2
    assert "--interval" in err
    assert not list(tmp_path.iterdir())


def test_a_bad_row_has_no_interval(folder: Path, tmp_path: Path) -> None:
    asked = pq.read_table(folder / "numbers-valid.parquet")
    text = pa.array(["many" if i == 5 else str(one) for i, one in enumerate(asked["age"].to_pylist())])
    place = asked.column_names.index("age")
    for name, table_of_rows in (("bad", asked.set_column(place, "age", text)), ("good", asked)):
        csv.write_csv(table_of_rows, tmp_path / f"{name}.csv")
        predict_file(
            folder / "numbers", tmp_path / f"{name}.csv", tmp_path / f"{name}.parquet", interval=0.2, on_error="skip"
        )
    found, good = (pq.read_table(tmp_path / f"{name}.parquet").to_pylist() for name in ("bad", "good"))
    assert set(found.pop(5).values()) == {None}
    del good[5]
    assert found == good


# -- commands that are interrupted and given again


@contextmanager
def at_line(at: int) -> Iterator[list[int]]:
    """Raise KeyboardInterrupt at the ``at``-th line of the command, or of the writing of files; yield their count."""
    files, lines = (pipelines.valuing.__file__, raydt.folders.folder.__file__), [0]

    def local(frame: Any, event: str, _: Any) -> Any:
        if event == "line":
            lines[0] += 1
            if lines[0] == at:
                raise KeyboardInterrupt
        return local

    former = sys.gettrace()
    sys.settrace(lambda frame, event, _: local if frame.f_code.co_filename in files else None)
    try:
        yield lines
    finally:
        sys.settrace(former)


def outputs(out: Path) -> list[bytes]:
    return [out.read_bytes(), out.with_name(f"{out.name}.html").read_bytes()]


def command(folder: Path, name: str, by: Any, out: Path) -> tuple[Any, dict[str, Any]]:
    """Return a call of the command and its options."""
    options: dict[str, Any] = {"by": by, "scoring": "neg_log_loss"}
    return (folder / name, folder / f"{name}-valid.parquet", out), options


@pytest.mark.parametrize("name", ["classes", "gbdt"])
@pytest.mark.parametrize("by", ["row", "subject"])
def test_a_command_that_is_interrupted_at_any_line_and_given_again_ends_with_the_same_bytes(
    folder: Path, tmp_path: Path, name: str, by: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipelines.valuing, "_INTERVAL", math.inf)
    call, options = command(folder, name, by, tmp_path / "values.parquet")
    with at_line(0) as lines:
        assert value_rows(*call, **options)["resumed"] == 0
    expected, total, draws = outputs(call[2]), lines[0], random.Random(f"{name} {by}")
    most = rounds = 0
    while rounds < 5 or (not most and rounds < 40):  # until a command has gone on where another stopped
        rounds += 1
        shutil.rmtree(tmp_path)
        found = None
        while found is None and not call[2].exists():  # a second command may be interrupted, too
            with suppress(KeyboardInterrupt), at_line(draws.randrange(1, total + total // 2)):
                found = value_rows(*call, **options)
                most = max(most, found["resumed"])
        assert outputs(call[2]) == expected
        assert found is None or sorted(file.name for file in tmp_path.iterdir()) == [
            "values.parquet",
            "values.parquet.html",
        ]
    assert most > 0


def test_a_process_that_dies_at_any_operation_of_the_storage_leaves_what_the_next_one_continues(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipelines.valuing, "_INTERVAL", math.inf)
    call, options = command(folder, "classes", "row", tmp_path / "out" / "values.parquet")
    with FaultyStorage(Fault.DEATH) as storage:
        value_rows(*call, **options)
    expected, resumed = outputs(call[2]), []
    for at in range(1, len(storage.operations) + 1):
        shutil.rmtree(tmp_path / "out")
        with pytest.raises(DeathError), FaultyStorage(Fault.DEATH, at):
            value_rows(*call, **options)
        if not call[2].exists():
            resumed.append(value_rows(*call, **options)["resumed"])
        assert outputs(call[2]) == expected
    assert resumed == sorted(resumed)
    assert {*resumed} == {0, 1, 3, 7, 15, 31, 60}


@pytest.mark.parametrize("change", ["none", "by", "column", "scoring", "file", "run", "damage"])
def test_what_an_interrupted_command_has_found_is_for_the_same_command_only(
    folder: Path, tmp_path: Path, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipelines.valuing, "_INTERVAL", math.inf)
    (run, valid, out), options = command(folder, "classes", "row", tmp_path / "out" / "values.parquet")
    with FaultyStorage(Fault.DEATH) as storage:
        value_rows(run, valid, out, **options)
    page = next(at for at, done in enumerate(storage.operations, 1) if "open" in done and ".html" in done)
    shutil.rmtree(tmp_path / "out")
    with pytest.raises(DeathError), FaultyStorage(Fault.DEATH, page):
        value_rows(run, valid, out, **options)
    (unfinished,) = (tmp_path / "out").glob(".*.unfinished")
    if change == "by":
        options["by"] = "subject"
    elif change == "column":
        options["by"] = "age"
    elif change == "scoring":
        options["scoring"] = "accuracy"
    elif change == "file":
        valid = tmp_path / "valid.parquet"
        pq.write_table(table(40, 3), valid)
    elif change == "run":
        run = folder / "private"  # the same rows and model, with another id of the run
    elif change == "damage":
        data = bytearray(unfinished.read_bytes())
        data[-1] ^= 1
        unfinished.write_bytes(data)
    assert value_rows(run, valid, out, **options)["resumed"] == (60 if change == "none" else 0)
    again = value_rows(run, valid, tmp_path / "again" / "values.parquet", **options)
    assert outputs(Path(again["out"])) == outputs(out)
