"""Whatever the way, a learner has the same model: identity, golden digests, units, labels, memory, and stored rows."""

from __future__ import annotations

import inspect
import json
import random
import shutil
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest

import pipelines
import raydt
from pipelines.auditing import audit_run
from pipelines.operation import load_yaml
from raydt import load_model
from raydt.arrays.blocks import LARGEST_WIDTH
from raydt.audits.recorded_tree import AuditReport
from raydt.errors import InputError, ModelFileError
from raydt.estimators.base import Estimator, Regressor
from raydt.examples.row_owners import buckets_of
from raydt.examples.updates import NUMERIC, UpdateBatch, history_of_live
from raydt.exchange.messages import OWNED
from raydt.learners.base import WorkPlan
from raydt.learners.forest import coordinator
from raydt.sessions.session import InProcessSession
from raydt.sources.divided import open_source
from raydt.sources.options import ArrowFiles
from raydt.streams.id_dictionary import TextIds
from raydt.streams.windows import SlidingWindow
from tests import volume
from tests.cases import CASES, GROUPS, Trial, every_case, first_cases, never, one_of_each
from tests.fuzz.mutations import with_arrays
from tests.golden.small import CONFIGS, FILE, SMALL, of_case, of_config, of_keys
from tests.simulation.network import outcome
from tests.simulation.simulator import Record
from tests.small_tables import derived, examples, table_of, written

# -- identity --------------------------------------------------------------------------------------------------------
# One model (P1) for every case: shards, batch size and the place of the work change nothing.

LARGE = 10**9
#: Shards, batch size, where the work is done: every two values of two of them meet. A shard more than there are
#: feature groups has no features: it has no rows to restore, but gets every request.
WAYS = (
    (1, 7, WorkPlan(0, 0, shared_store=False)),
    (1, 200, WorkPlan(LARGE, None, shared_store=False)),
    (2, 7, WorkPlan(LARGE, 0, shared_store=False)),
    (2, 200, WorkPlan(0, None, shared_store=False)),
    (4, 1, WorkPlan(36, 128, shared_store=False)),
    (GROUPS + 1, 1, WorkPlan(0, 0, shared_store=False)),
)


def result(trial: Trial, folder: Path, shards: int, size: int, plan: WorkPlan) -> dict[str, Any]:
    """Digest, predictions, scores, refusals and state at the end; restored after each batch of the second half."""
    stream = trial.stream(folder)
    features = trial.features(stream.source)
    session, record = InProcessSession(trial.learner, trial.options, features, shards, plan), Record()
    while (batch := next(stream.batches(size), None)) is not None:
        record.add(batch, session.apply(batch, skip_refused=True))
        if batch.stop > 60:
            state = session.state()
            session = InProcessSession(trial.learner, trial.options, features, shards, plan)
            session.restore(*state)
    session.finish()
    return outcome(session.digest(), record, session.state(), trial.options)


@every_case("identity", one_of_each)
def test_the_same_whatever_the_way(trial: Trial, tmp_path: Path) -> None:
    expected = result(trial, tmp_path, 1, 16, WorkPlan())
    assert expected["deletes"] > 20
    for shards, size, plan in WAYS:
        found = result(trial, tmp_path, shards, size, plan)
        different = [name for name in expected if found[name] != expected[name]]
        assert not different, f"{', '.join(different)} differ: {shards} shards, batches of {size}, {plan}"


@every_case("identity", never)
def test_the_same_however_the_stream_is_cut(trial: Trial, tmp_path: Path) -> None:
    expected = result(trial, tmp_path, 1, 16, WorkPlan())
    for size in (1, 2, 3, 4, 5, 7, 11, 16, 17, 31, 32, 33, 60, 100):
        assert result(trial, tmp_path, 1 + size % 4, size, trial.case.plan) == expected, size


@every_case("updates without answers")
def test_answers_that_nobody_wants_change_no_model(
    trial: Trial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trees of a forest are then built from all rows at once: of few updates, too."""
    monkeypatch.setattr(coordinator, "STEPS_OF_A_BUILD", 1 << 40)
    stream = trial.stream(tmp_path)
    given, wanted = trial.session(stream, 1), [trial.session(stream, shards) for shards in (1, 2, 3)]
    for batch in stream.batches(24):
        given.apply(batch, skip_refused=True)
        for session in wanted:
            session.apply(replace(batch, answers=False), skip_refused=True)
            assert session.digest() == given.digest()


# -- digests ---------------------------------------------------------------------------------------------------------
# The digest that follows what changed is the one of a model from nothing, after every batch, for every case.
#
# Labels and ids of the live rows are in it: a row with another label or id, or one that is not there, gives another
# digest. So is every number of the tree; which leaf a row is in is not, and the nets compare it with the whole state.


def restored(trial: Trial, features: Any, state: Any) -> str:
    """Digest of a session restored from a state."""
    other = InProcessSession(trial.learner, trial.options, features, 1)
    other.restore(*state)
    return other.digest()


@every_case("a digest from nothing")
def test_a_digest_kept_up_is_one_from_nothing(trial: Trial, tmp_path: Path) -> None:
    stream = trial.stream(tmp_path)
    features = trial.features(stream.source)
    sessions = [
        InProcessSession(trial.learner, trial.options, features, 1),
        InProcessSession(trial.learner, trial.options, features, 2, trial.case.plan),
    ]
    seen = set()
    for batch in stream.batches(3):  # few of the rows that live, so that the digest follows them
        for session in sessions:
            session.apply(batch, skip_refused=True)
        found = [session.digest() for session in sessions]
        seen.add(found[0])
        assert found == [restored(trial, features, sessions[0].state())] * 2, batch.start
    for session in sessions:
        session.finish()
    assert sessions[0].digest() == sessions[1].digest() == restored(trial, features, sessions[1].state())
    assert len(seen) > 15


@every_case("a digest from nothing")
def test_a_row_with_another_id_or_label_shows(trial: Trial, tmp_path: Path) -> None:
    stream = trial.stream(tmp_path)
    features = trial.features(stream.source)
    session = InProcessSession(trial.learner, trial.options, features, 1)
    for batch in stream.batches(16):
        session.apply(batch, skip_refused=True)
    session.finish()
    state, groups = session.state()
    assert restored(trial, features, (state, groups)) == session.digest()
    y, classes = state["y"][0], trial.case.classes
    for name, value in (("id", state["id"].max() + 1), ("y", (y + 1) % classes if classes else 1 - y)):
        other = {**state, name: state[name].copy()}
        other[name][0] = value
        assert restored(trial, features, (other, groups)) != session.digest(), name


# -- label range -----------------------------------------------------------------------------------------------------
# What every estimator does with labels that it cannot hold, and without any examples.

ESTIMATORS = sorted(
    (
        one
        for one in (getattr(raydt, name) for name in raydt.__all__)
        if inspect.isclass(one) and issubclass(one, Estimator)
    ),
    key=lambda one: one.__name__,
)
REGRESSORS = [one for one in ESTIMATORS if issubclass(one, Regressor)]
SPARSE = {"SparseBestSplit", "SparseDynamicTreeClassifier"}
#: Labels that no learner takes, and the nearest ones that all take.
TOO_LARGE, TOO_SMALL = (1.7976931348623157e308, -1e300, 1.1e140), (5e-324, -1e-300, 9e-141)
ENDS = np.array([1e-140, 1e140, 0.0, -1e140])


def rows(kind: type[Estimator], seed: int) -> tuple[Any, Any]:
    """Rows and labels that need two features."""
    draws = np.random.default_rng(seed)
    x = draws.integers(0, 2, (80, 4))
    y = x[:, 0] ^ x[:, 1]
    if kind.__name__ in SPARSE:
        return [np.flatnonzero(row).tolist() for row in x], y
    X = x + draws.random(x.shape)
    return X, y * draws.normal(5.0, 1.0, 80) if issubclass(kind, Regressor) else y


@pytest.mark.parametrize("kind", REGRESSORS, ids=lambda kind: kind.__name__)
def test_a_label_out_of_range_is_refused_before_anything_is_applied(kind: Any) -> None:
    X, y = rows(kind, 1)
    models = [kind().fit(X, first) for first in (y, np.zeros(80))]
    before = [model.digest() for model in models]
    for label in (*TOO_LARGE, *TOO_SMALL):
        bad = np.array([*y[:3], label, *y[4:10]])
        calls = [lambda bad=bad: kind().fit(X[:10], bad)]
        for model in models:
            calls.append(lambda model=model, bad=bad: model.partial_fit(X[:10], bad))
            calls.append(lambda model=model, bad=bad: model.replace_examples(model.row_ids_[:2], X[:10], bad))
        for call in calls:
            with pytest.raises(InputError, match=r"neither 0 nor from 1e-140 to 1e\+140") as caught:
                call()
            assert caught.value.row == 3, label
            assert [model.digest() for model in models] == before, label
    assert all(model.audit().ok for model in models)


@pytest.mark.parametrize("kind", REGRESSORS, ids=lambda kind: kind.__name__)
def test_the_ends_of_the_range_are_learned(kind: Any) -> None:
    X, y = np.repeat([[0.0], [1.0], [2.0], [3.0]], 40, axis=0), np.repeat(ENDS, 40)
    model = kind().fit(X, y)
    assert model.audit().ok
    assert np.isfinite(model.predict(X)).all()
    assert model.score(X, y) > 0.8
    small = np.repeat([1e-140, 3e-140, 0.0, -2e-140], 40)
    model = kind().fit(X, small)
    assert model.audit().ok
    assert model.score(X, small) > 0.8


def test_beside_an_outlier_and_far_from_zero_small_differences_are_learned() -> None:
    """The forest counts labels by the largest; labels of 1 beside one of 1e7 were 0, and Unix seconds one number."""
    draws = np.random.default_rng(5)
    X = draws.random((400, 2))
    y = np.where(X[:, 0] > 0.5, 1.0, 2.0) + draws.normal(0.0, 0.01, 400)
    forest = raydt.ExactForestRegressor(n_estimators=20, sample_share=0.5).fit(X, y)
    plain, digest = forest.score(X, y), forest.digest()
    assert plain > 0.95
    forest.partial_fit([[5.0, 5.0]], [1e7], ids=[1000])
    assert forest.audit().ok
    assert forest.score(X[X[:, 0] < 0.9], y[X[:, 0] < 0.9]) > 0.95
    assert forest.forget([1000]).digest_after == digest
    moved = raydt.ExactForestRegressor(n_estimators=20, sample_share=0.5).fit(X, y + 1.7e9)
    assert moved.audit().ok
    assert moved.score(X, y + 1.7e9) == pytest.approx(plain, abs=0.01)


@pytest.mark.parametrize("kind", ESTIMATORS, ids=lambda kind: kind.__name__)
def test_without_examples_nothing_of_former_ones_is_predicted(kind: Any, tmp_path: Path) -> None:
    found = []
    for seed in range(2):
        X, y = rows(kind, seed)
        model = kind().fit(X, y)
        model.forget(model.row_ids_)
        model.save(tmp_path / f"model {seed}")
        model.save(tmp_path / f"state {seed}", with_examples=True)
        for one in (model, *(load_model(tmp_path / f"{what} {seed}") for what in ("model", "state"))):
            asked = rows(kind, 9)[0]
            found.append(one.predict(asked))
            if issubclass(kind, Regressor):
                assert not found[-1].any()
            else:
                found[-1] = np.column_stack([found[-1], one.predict_proba(asked)])
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])


# -- memory ----------------------------------------------------------------------------------------------------------
# A state grows with the live examples, not with the ids, the features or the rows that were ever seen.
#
# Every case of every learner goes through a sliding window of text ids that never come back and, where it takes them,
# of sparse features that never come back, of 2**31 - 1 possible ones.

WINDOW, SHORT, LONG = 30, 150, 450


def size_of(values: Any) -> int:
    """Bytes of arrays, and entries of lists, in a state."""
    if isinstance(values, dict):
        return sum(size_of(value) for value in values.values())
    return values.nbytes if isinstance(values, np.ndarray) else len(values) if isinstance(values, list) else 8


def rows_of(n: int) -> list[dict[str, Any]]:
    """Examples that have, besides a few features that come again, a sparse feature of their own."""
    own = (LARGEST_WIDTH - 1 - 4099 * np.arange(n)).tolist()
    return [{**row, "ones": [*derived(row)["ones"], index]} for row, index in zip(examples(n, 8), own, strict=True)]


@every_case("memory")
def test_state_follows_the_live_examples(trial: Trial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TextIds, "remembered", 8)
    path = written(tmp_path / "rows.arrow", table_of(rows_of(LONG)))
    width = {"n_features": LARGEST_WIDTH - 8} if trial.case.sparse else {}
    source = open_source(ArrowFiles(path=str(path), **trial.columns, **width), reading=trial.reading)
    warmup = min(trial.case.warmup, WINDOW) if trial.needs_warmup else 0
    stream = SlidingWindow(window=WINDOW, warmup=warmup, on_error="skip").make(source)
    session = trial.session(stream)
    sizes, nodes = {}, 10
    for batch in stream.batches(10):
        for _ in session.process(iter([batch]), skip_refused=True):
            pass
        model, groups = session.state()
        position = stream.state()
        # A tree may grow with the stream; what is held beside its nodes does not shrink with them.
        nodes = max(nodes, 10 + session.coordinator.statistics().get("nodes", 0))
        sizes[batch.stop] = (size_of(model) + size_of(groups)) / nodes
        assert len(position["ids"]) <= WINDOW + 8
    early = max(size for stop, size in sizes.items() if 2 * WINDOW < stop <= 2 * SHORT)
    late = max(size for stop, size in sizes.items() if stop > 2 * SHORT)
    assert late <= 1.5 * early, "the state has grown, although neither the window nor the model has"


# -- stored rows -----------------------------------------------------------------------------------------------------
# The audit of a run compares every stored row with its source: one value is changed, and all hashes fit again.

Components = dict[str, dict[str, Any]]


def audited(run: pipelines.RunResult, folder: Path, change: Callable[[Components], None]) -> AuditReport:
    """The audit after a change of the last state."""
    copy = folder / "run"
    shutil.copytree(run.path, copy)
    state = max((copy / "checkpoints").glob("[0-9]*"), key=lambda place: int(place.name))
    folders = {"": state, "../rows/": state.parent / "rows"}
    names = {entry["name"] for entry in json.loads((state / "manifest.json").read_text())["files"]} | {"manifest.json"}
    contents = {name: (state / name).read_bytes() for name in names}
    for name, content in with_arrays(contents, change).items():
        place, _, file = name.rpartition("/")
        (folders[place + "/" * bool(place)] / file).write_bytes(content)
    return audit_run(copy)


def births(components: Components, prefix: str) -> npt.NDArray[np.int64]:
    """Births in files of this beginning."""
    found = [part["born"] for name, part in components.items() if name.startswith(prefix) and "-group-" not in name]
    return np.concatenate(found)


def live_rows(components: Components) -> list[tuple[str, int]]:
    """A file of a segment and the place in it, of each row that lives, the oldest first."""
    found = []
    for name, part in components.items():
        if name.startswith("rows-") and "-group-" not in name:
            if "-buckets-" in name:
                alive = np.isin(part["born"], births(components, "buckets-"))
            else:
                alive = np.unpackbits(components["live"][name.removeprefix("rows-")], count=len(part["born"]))
            found += [(int(part["born"][i]), name, int(i)) for i in np.flatnonzero(alive)]
    return [(name, i) for _, name, i in sorted(found)]


def a_live_row(components: Components, rank: float) -> tuple[str, int]:
    """A file of a segment and the place in it of a row that lives, the older the lower ``rank``."""
    found = live_rows(components)
    return found[int(rank * (len(found) - 1))]


def a_row_of_groups(components: Components, rank: float) -> tuple[str, int]:
    """A segment and the place of such a row in the files of its groups."""
    name, i = a_live_row(components, rank)
    segment = name.partition("-buckets-")[0]
    return segment, int(np.count_nonzero(births(components, segment) < components[name]["born"][i]))


def change_number(components: Components, rank: float) -> None:
    """Add 1 to a value of a dense feature; a missing one becomes 1."""
    segment, i = a_row_of_groups(components, rank)
    part = next(p for n, p in components.items() if n.startswith(f"{segment}-group-") and p["X"].shape[1])
    part["X"][i, 0] = np.nan_to_num(part["X"][i, 0]) + 1.0


def change_index(components: Components, rank: float) -> None:
    """Move a one of a sparse feature to another feature of the same group."""
    segment, i = a_row_of_groups(components, rank)
    for name, part in components.items():
        if name.startswith(f"{segment}-group-"):
            lengths, values = part["sparse_lengths"], part["sparse_values"]
            begin = int(lengths[:i].sum())
            own = values[begin : begin + lengths[i]]
            others = np.setdiff1d(values, own)
            if len(own) and len(others):
                moved = np.sort(np.append(own[1:], others[0]))
                part["sparse_values"] = np.concatenate([values[:begin], moved, values[begin + len(own) :]])
                return
    raise AssertionError("no row has a one")


def part_of(components: Components, born: int) -> dict[str, Any]:
    """What the owner of a row has written of it in full, if shards own rows."""
    return next((p for n, p in components.items() if n.startswith("buckets-") and born in p["born"]), {})


def change_of(array: str) -> Callable[[Components, float], None]:
    """Give a row another id, label or birth, which no other row has and which its loading cannot refuse."""

    def change(components: Components, rank: float) -> None:
        name, i = a_live_row(components, rank)
        if array == "born" and "-buckets-" in name:
            change_birth(components, rank)
            return
        column = components[name][array]
        free = np.setdiff1d(np.arange(components["coordinator"]["seq"][0]), column)
        if array == "id":  # of the same bucket, whose owner has it
            (bucket,) = buckets_of(column[i : i + 1])
            others = np.setdiff1d(np.arange(1 << 16), column)
            free = others[buckets_of(others) == bucket]
        column[i] = 1 - column[i] if array == "y" else free[0]

    return change


def change_birth(components: Components, rank: float) -> None:
    """Give a row that a shard owns, of those up to a rank or after it, a birth that leaves the order as it is."""
    rows = live_rows(components)
    begin = int(rank * (len(rows) - 1))
    for name, i in rows[begin:] + rows[:begin]:
        column = components[name]["born"]
        first, stop = map(int, name.split("-")[1:3])
        others = births(components, "-".join(name.split("-")[:3]) + "-buckets-")
        below = max((int(born) + 1 for born in others if born < column[i]), default=first)
        above = min((int(born) for born in others if born > column[i]), default=stop)
        free = [born for born in range(below, above) if born != column[i]]
        if free:
            own = part_of(components, int(column[i]))["born"]
            own[own == column[i]] = column[i] = free[0]
            return
    raise AssertionError("each row has the only birth that leaves the order as it is")


@every_case("stored rows")
def test_every_stored_value_is_compared_with_the_source(trial: Trial, run_of, tmp_path: Path) -> None:
    changes = {name: change_of(name) for name in ("id", "y", "born")}
    changes |= {"number": change_number} if trial.case.dense else {}
    changes |= {"index": change_index} if trial.case.sparse else {}
    for number, (name, change) in enumerate(changes.items()):
        rank = (0.0, 0.4, 1.0)[number % 3]
        folder = tmp_path / name
        folder.mkdir()
        report = audited(run_of(trial), folder, lambda components, change=change, rank=rank: change(components, rank))
        assert report.conformance == "violated", name
        others = {"audits.unknown_rows"} if name == "born" else set()  # no row was born then
        assert report.failures[0].id in {"audits.stored_value", *others}, name


@every_case("stored rows")
def test_a_bitmap_of_live_rows_is_checked(trial: Trial, run_of, tmp_path: Path) -> None:
    def flip(components: Components) -> None:
        name, i = a_live_row(components, 1.0)
        born = int(components[name]["born"][i])
        if "-buckets-" in name:
            owned = part_of(components, born)
            owned |= {name: np.delete(array, owned["born"] == born, axis=0) for name, array in owned.items()}
        else:
            components["live"][name.removeprefix("rows-")][i // 8] ^= 128 >> i % 8

    def cut(components: Components) -> None:
        """Missing bits would be read as deleted rows."""
        if OWNED in components["live"]:
            part = next(part for name, part in components.items() if name.startswith("buckets-"))
            part["born"] = part["born"][:-1]
            return
        name = max(components["live"], key=lambda name: len(components["live"][name]))
        components["live"][name] = components["live"][name][:-1]

    assert audited(run_of(trial), tmp_path / "flip", flip).conformance == "violated"
    with pytest.raises(ModelFileError, match=r"bitmap|must have an entry"):
        audited(run_of(trial), tmp_path / "cut", cut)


# -- golden ----------------------------------------------------------------------------------------------------------
# Every case, and every shipped config with few rows, gives the committed digest, here and on every other machine.

GOLDEN = json.loads(FILE.read_text())


def committed(table: str, name: str) -> tuple[str, str]:
    """The digest of a case or config, and that in the former format, of a learner that has had one."""
    return GOLDEN[table][name], GOLDEN[f"former {table}"].get(name, "")


@every_case("golden digest")
def test_a_case(trial: Trial, tmp_path: Path) -> None:
    name, found = trial.name, of_case(trial.config(tmp_path), tmp_path)
    golden = committed("cases", name) if trial.shipped else of_case(trial.config(tmp_path), tmp_path / "first")
    assert found == golden, "python -m tests.golden.small NAME writes it down"


@every_case("golden digest by key", among=first_cases())
def test_a_case_by_key(trial: Trial, tmp_path: Path) -> None:
    found = of_keys(trial, tmp_path)
    assert not trial.shipped or found == committed("keys", trial.name)


@pytest.mark.turns(4)
@pytest.mark.parametrize("name", SMALL)
def test_a_shipped_config(name: str, tmp_path: Path) -> None:
    found = of_config(name, tmp_path)
    assert found == committed("configs", name)


def test_every_config_that_draws_its_rows_is_there() -> None:
    drawn = {
        file.stem for file in CONFIGS.glob("*.yaml") if load_yaml(file.read_text())["source"]["kind"] == "synthetic"
    }
    assert drawn == SMALL.keys() == GOLDEN["configs"].keys() | GOLDEN["former configs"].keys()


# -- scales ----------------------------------------------------------------------------------------------------------
# Units of measurement change nothing: features and labels in other units, or counted from elsewhere, for every case.
#
# Times a power of two, numbers have the same bits but for their exponents: trees, predictions and verdicts must be
# the same. So must they be of features that are moved; labels that are moved are rounded otherwise, and cost no
# accuracy.

#: Features times 2 to one of these are normal numbers.
FEATURES = (-1008, -960, -400, -60, -34, 33, 300, 961, 1020)
#: So are labels, and they stay where labels may be.
LABELS = (-440, -200, -40, 40, 200, 440)
REGRESSIONS = [trial for trial in CASES if not trial.case.classes]


class Outcome(NamedTuple):
    """What may not depend on units."""

    predictions: npt.NDArray[Any]
    truth: npt.NDArray[Any]
    shape: tuple[int, ...]
    verdicts: tuple[str, str]


def finer(batch: UpdateBatch, kinds: npt.NDArray[np.int8], numbers: bool) -> UpdateBatch:
    """The small rows with many more values; equal rows stay equal."""
    X, y = batch.X.copy(), batch.y.copy()
    for i in range(len(X)):
        content = X[i].tobytes() + (b"" if batch.sparse is None else batch.sparse.row(i).tobytes())
        steps = random.Random(zlib.crc32(content))
        for j in np.flatnonzero(kinds == NUMERIC):
            X[i, j] += steps.randrange(2**9) / 2**12
        y[i] += steps.randrange(2**9) / 2**12 if numbers else 0
    return replace(batch, X=X, y=y)


def outcome_scales(
    trial: Trial,
    folder: Path,
    of_features: Callable[[Any], Any] = lambda x: x,
    of_labels: Callable[[Any], Any] = lambda y: y,
) -> Outcome:
    """Take the change log of a case with other features and labels."""
    stream, numbers = trial.stream(folder), trial.case.classes == 0
    features = trial.features(stream.source)
    section = trial.section
    if "label_range" in section:
        section["label_range"] = of_labels(np.array(section["label_range"])).tolist()
    options = trial.learner.Options.model_validate(section)
    session = InProcessSession(trial.learner, options, features, 2, trial.case.plan)
    predictions, truth = [], []
    for batch in stream.batches(16):
        batch = finer(batch, features.kinds, numbers)
        columns = features.kinds == NUMERIC
        batch.X[:, columns] = of_features(batch.X[:, columns])
        batch = replace(batch, y=of_labels(batch.y) if numbers else batch.y)
        result = session.apply(batch, skip_refused=True)
        predictions.append(result.predictions)
        truth.append(np.full(len(batch), np.nan))
        carries = np.flatnonzero(np.isin(batch.op, (0, 2, 3, 4)))
        truth[-1][carries] = batch.y
    session.finish()
    state, groups = session.state()
    report = trial.learner.audit(options, features, state, history_of_live(state, groups, features), groups)
    statistics = session.statistics()
    shape = tuple(statistics[name] for name in ("active", "nodes", "leaves", "depth"))
    return Outcome(np.concatenate(predictions), np.concatenate(truth), shape, (report.conformance, report.feasibility))


def chosen(trial: Trial, among: tuple[int, ...], purpose: str) -> tuple[int, ...]:
    """Some exponents, others for each case; all of them nightly."""
    return among if volume.nightly else tuple(random.Random(f"{trial.name} {purpose}").sample(among, 2))


def require_equal(found: Outcome, expected: Outcome, what: str, unit: float = 1.0) -> None:
    """Require the same outcome, of predictions in another unit."""
    np.testing.assert_array_equal(found.predictions, expected.predictions * unit, what)
    assert found.shape == expected.shape, what
    assert found.verdicts == expected.verdicts, what


@pytest.mark.share
@every_case("other units")
def test_units_of_features(trial: Trial, tmp_path: Path) -> None:
    expected = outcome_scales(trial, tmp_path)
    assert expected.verdicts[0] == "holds"
    for k in chosen(trial, FEATURES, "features"):
        require_equal(
            outcome_scales(trial, tmp_path, lambda x, k=k: np.ldexp(x, k)), expected, f"features times 2**{k}"
        )
    for offset in (-4096.0, 2.0**30):
        require_equal(outcome_scales(trial, tmp_path, lambda x, by=offset: x + by), expected, f"features + {offset}")


@pytest.mark.turns(3)
@pytest.mark.share
@pytest.mark.parametrize("trial", REGRESSIONS, ids=lambda trial: trial.name)
def test_units_of_labels(trial: Trial, tmp_path: Path) -> None:
    expected = outcome_scales(trial, tmp_path)
    assert expected.verdicts[0] == "holds"
    for j in chosen(trial, LABELS, "labels"):
        found = outcome_scales(trial, tmp_path, of_labels=lambda y, j=j: np.ldexp(y, j))
        require_equal(found, expected, f"labels times 2**{j}", 2.0**j)


def error(found: Outcome, offset: float = 0.0) -> float:
    """Mean squared error of the predictions in the second half of the stream, in units of the labels' variance."""
    half = len(found.truth) // 2
    truth, predictions = found.truth[half:] - offset, found.predictions[half:] - offset
    known = ~np.isnan(truth) & ~np.isnan(predictions)
    return float(np.mean((truth - predictions)[known] ** 2) / np.var(truth[known]))


@pytest.mark.turns(3)
@pytest.mark.share
@pytest.mark.parametrize("trial", REGRESSIONS, ids=lambda trial: trial.name)
def test_an_offset_of_labels_costs_nothing(trial: Trial, tmp_path: Path) -> None:
    expected = error(outcome_scales(trial, tmp_path))
    for offset in (1e3, -1e6, 1.7e9):
        found = outcome_scales(trial, tmp_path, of_labels=lambda y, by=offset: y + by)
        assert found.verdicts[0] == "holds", offset
        assert error(found, offset) == pytest.approx(expected, abs=0.1), offset
