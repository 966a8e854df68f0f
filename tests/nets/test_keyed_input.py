"""Models by key: hostile keys, and calls that are interrupted."""

from __future__ import annotations

import copy
import resource
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import pipelines
from pipelines.auditing import audit_run, audit_state
from pipelines.prediction import predict_file
from raydt import KeyedClassifier, KeyedRegressor, load_model
from raydt.errors import InputError, RaydtError
from raydt.estimators.base import Regressor
from raydt.exchange.messages import OWNED
from raydt.folders.checkpoint import CheckpointStore
from raydt.folders.folder import Folder
from raydt.keyed.groups import digest_of, group_of, in_order
from raydt.keyed.packing import keys_of, open_keys
from raydt.learners import learners
from tests.cases import CASES, Trial, every_case, first_cases, one_of_each
from tests.nets.test_interrupts import FEW, Call, Data, Struck, fingerprint, live, refuses, with_estimator
from tests.nets.test_interrupts import trials as trials_of
from tests.refusals import refused
from tests.small_tables import Row

# -- keyed input -----------------------------------------------------------------------------------------------------
# Keys as they come: hostile values, keys that come late or go, bad rows of one key, and very many keys.

ROWS = 120
TEXTS = [
    "",
    "x" * 10_000,
    "x" * 9_999 + "y",
    "a\0b",
    "\n",
    "\x1b[31m",
    "\u202e",
    "'\"<script>",
    "#f8#1",
    "a/b",
    "7",
    "-0",
]


def table(keys: pa.Array, ids: int = 0) -> pa.Table:
    """Rows with these keys; every column follows from the number of the row."""
    number = np.arange(len(keys))
    return pa.table(
        {
            "id": ids + number,
            "a": number * 37 % 101 / 8,
            "b": pa.array([("red", "blue", "grey")[i * 7 % 3] for i in number.tolist()]),
            "y": pa.array([("no", "yes")[i * 37 % 101 > 50] for i in number.tolist()]),
            "key": keys,
        }
    )


def config(*files: Path, **sections: dict[str, Any]) -> dict[str, Any]:
    base: dict[str, dict[str, Any]] = {
        "source": {"kind": "parquet", "path": [str(file) for file in files], "id": "id", "label": "y", "key": "key"},
        "stream": {"model": "incremental", "on_error": "skip"},
        "learner": {"kind": "fudyadt"},
        "cluster": {"backend": "in_process", "batch_size": 2},
        "checkpoint": {"every_updates": 30, "every_seconds": None},
        "output": {"report": False},
    }
    return {name: {**section, **sections.get(name, {})} for name, section in base.items()}


def put(folder: Path, *tables: pa.Table) -> list[Path]:
    files = [folder / f"{number}.parquet" for number in range(len(tables))]
    for file, one in zip(files, tables, strict=True):
        pq.write_table(one, file)
    return files


def cycled(values: list[Any], kind: pa.DataType | None = None) -> pa.Array:
    return pa.array([values[i % len(values)] for i in range(ROWS)], kind)


def raw(values: list[bytes]) -> pa.Array:
    """Text that is no UTF-8."""
    stored = cycled(values, pa.binary())
    return pa.StringArray.from_buffers(ROWS, *stored.buffers()[1:])


SOUND: dict[str, tuple[pa.Array, list[Any], int]] = {
    "texts": (cycled([*TEXTS, None]), TEXTS, ROWS // 13),
    "ends of int64": (cycled([-(2**63), 2**63 - 1, 0, -1]), [-(2**63), 2**63 - 1, 0, -1], 0),
    "beyond int64": (cycled([2**64 - 1, 2**63, 0, 1], pa.uint64()), [0, 1], ROWS // 2),
    "a dictionary": (cycled(["a", "b", None]).dictionary_encode(), ["a", "b"], ROWS // 3),
    "no UTF-8": (raw([b"\xff\xfe", b"a", b"\xed\xa0\x80", b"b"]), ["a", "b"], ROWS // 2),
}


@pytest.mark.parametrize("name", SOUND)
def test_each_value_that_can_be_read_is_a_key(name: str, tmp_path: Path) -> None:
    keys, expected, skipped = SOUND[name]
    files = put(tmp_path, table(keys))
    run = pipelines.replay(config(*files), tmp_path / "run")
    assert (run.summary["skipped"], run.summary["keys"]) == (skipped, len(expected))
    saved = open_keys(f"{run.path}/model")
    assert saved is not None
    assert list(saved.keys()) == in_order(expected)
    assert [saved.find(str(key)) for key in expected] == expected
    assert audit_run(run.path).ok
    found = predict_file(run.path, files[0], tmp_path / "out.parquet", on_error="skip")
    assert (found["skipped"], found["without_model"]) == (skipped, 0)
    assert pipelines.resume(run.path).digest == run.digest


REFUSED: dict[str, list[pa.Array]] = {
    "columns.not_keys": [
        cycled([True, False]),
        cycled([b"a"]),
        pa.nulls(ROWS),
        cycled([1], pa.date32()),
        cycled([["a"]]),
    ],
}


def test_a_column_that_holds_no_keys_is_refused_by_name(tmp_path: Path) -> None:
    with refused("rows.not_whole", InputError, column="key", row=0):
        files = put(tmp_path, table(cycled([1.5, 2.0])))
        pipelines.replay(config(*files, stream={"on_error": "error"}), tmp_path / "run")
    shutil.rmtree(tmp_path / "run")
    for keys in REFUSED["columns.not_keys"]:
        with refused("columns.not_keys", InputError, column="key"):
            pipelines.replay(config(*put(tmp_path, table(keys))), tmp_path / "run")
    for first, second in (([7], ["7"]), (["7"], [7])):
        files = put(tmp_path, table(cycled(first)), table(cycled(second), ROWS))
        with pytest.raises(InputError, match=r"'key'.*here, but"):
            pipelines.replay(config(*files), tmp_path / "run")


def test_texts_that_name_no_key(tmp_path: Path) -> None:
    run = pipelines.replay(config(*put(tmp_path, table(cycled([7, -3])))), tmp_path / "run")
    saved = open_keys(f"{run.path}/model")
    assert saved is not None
    assert saved.find("-3") == -3
    for text in ("²", "--7", "7_0", "", "٣", "9" * 5000, "\udc80"):
        with refused("keyed.unknown"):
            saved.find(text)


def changes(words: str) -> pa.Table:
    """A change log of words such as ``a+3``: key, operation, id."""
    rows = [(word[0], word[1], int(word[2:])) for word in words.split()]
    whole = table(pa.array([key for key, _, _ in rows]))
    ops = [{"+": "insert", "-": "delete", "!": "insert"}[op] for _, op, _ in rows]
    amounts = [float("inf") if op == "!" else number * 37 % 101 / 8 for _, op, number in rows]
    whole = whole.set_column(0, "id", pa.array([number for _, _, number in rows])).set_column(1, "a", pa.array(amounts))
    return whole.append_column("op", pa.array(ops))


def replayed(folder: Path, log: pa.Table, key: str | None = "key", **stream: Any) -> pipelines.RunResult:
    folder.mkdir()
    given = config(
        *put(folder, log), source={"op": "op", "key": key}, stream={"model": "changelog", "on_error": "skip", **stream}
    )
    if key is None:
        given["source"]["features"] = ["a", "b"]
    return pipelines.replay(given, folder / "run")


def test_keys_that_come_late_go_come_back_or_have_bad_rows_only(tmp_path: Path) -> None:
    one = " ".join(f"a+{i} b+{i} b!{i + 40}" for i in range(40))
    words = f"z!1 {one} {' '.join(f'b-{i}' for i in range(40))} z!2 {' '.join(f'a+{i}' for i in range(90, 99))}"
    words += f" {' '.join(f'b+{i}' for i in range(5))} c+1 z!3"
    log = changes(words)
    run = replayed(tmp_path / "all", log)
    digests = {}
    for key in "abcz":
        own = log.filter(pa.compute.equal(log["key"], key))
        alone = replayed(tmp_path / key, own, None)
        digests |= {key: alone.digest} if alone.summary["active"] else {}
    assert run.digest == digest_of(digests)
    assert audit_run(run.path).ok


#: Words of a change log whose last rows are refused, and the message.
BAD = {
    "a bad row": ("c!1", "keyed"),
    "an unknown id": ("c-1", "keyed"),
    "a live id": ("a+3", "keyed"),
}


@pytest.mark.parametrize("name", BAD)
def test_an_error_of_one_key_ends_the_run_at_its_last_checkpoint(name: str, tmp_path: Path) -> None:
    word, _ = BAD[name]
    good = " ".join(f"a+{i} b+{i}" for i in range(60))
    log = changes(f"{good} {word} {' '.join(f'b+{i}' for i in range(60, 70))}")
    fails_alike(tmp_path, put(tmp_path, log), {"op": "op"}, {"model": "changelog"})


def test_a_late_row_and_one_class_too_many_end_the_run(tmp_path: Path) -> None:
    times = [*range(ROWS - 1), 0]
    late = table(cycled(["a", "b"])).append_column("ts", pa.array(times))
    fails_alike(tmp_path, put(tmp_path, late), {"ts": "ts"}, {"model": "time_window", "duration": 40, "lateness": 2})
    classes = table(cycled(["a", "b"]))
    labels = [*classes["y"].to_pylist()[:-1], "maybe"]
    many = put(tmp_path, classes.set_column(3, "y", pa.array(labels)))
    fails_alike(
        tmp_path, many, {}, {"warmup": 20}, {"kind": "confidence_tree", "criterion": "kearns_mansour"}, "classes"
    )


def fails_alike(
    folder: Path,
    files: list[Path],
    source: dict[str, Any],
    stream: dict[str, Any],
    learner: dict[str, Any] | None = None,
    name: str = "run",
) -> None:
    """A run that stops at an error stands at a sound checkpoint, and stops there again when it is resumed."""
    given = config(*files, source=source, stream={**stream, "on_error": "error"}, learner=learner or {})
    said = set()
    for call in (lambda: pipelines.replay(given, folder / name), *[lambda: pipelines.resume(folder / name)] * 2):
        with pytest.raises(RaydtError) as error:
            call()
        assert error.value.exit_code == 2
        said.add(str(error.value))
        assert (folder / name / "checkpoints").exists(), said
        states = Folder(folder / name / "checkpoints")
        last = states.inside(str(max(CheckpointStore(states, 9).numbers())))
        assert audit_state(last.root).ok
    assert len(said) == 1, said
    assert ".parquet, row" in said.pop()


def test_an_audit_reads_each_group_and_checks_each_state_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To read a group for each key would take time that grows with the square of the number of keys."""
    found = [key for key in map(str, range(5_000)) if group_of(key) in (3, 99, 200)][:40]
    run = pipelines.replay(config(*put(tmp_path, table(cycled(found)))), tmp_path / "run")
    read: list[int] = []
    checked: list[int] = []
    learner, check = learners()["fudyadt"], learners()["fudyadt"].check

    def counted(arrays: Any, group: int, place: str) -> Any:
        read.append(group)
        return keys_of(arrays, group, place)

    monkeypatch.setattr("raydt.keyed.packing.keys_of", counted)
    monkeypatch.setattr(learner, "check", lambda *given: (checked.append(1), check(*given))[1], raising=False)
    assert audit_run(run.path).ok
    assert (sorted(read), len(checked)) == ([3, 99, 200], 40)


def test_a_key_cannot_say_that_its_rows_are_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else its arrays by row would be checked when the rows are read, which they are not."""
    run = pipelines.replay(config(*put(tmp_path, table(cycled(["a", "b"])))), tmp_path / "run")

    def forged(arrays: Any, group: int, place: str) -> Any:
        held = keys_of(arrays, group, place)
        for one in [held[key]["coordinator"] for key in held if key == "a"]:
            one |= {OWNED: np.zeros(3, dtype=np.int64), "leaf": one["leaf"].astype(np.int64)}
        return held

    monkeypatch.setattr("raydt.keyed.packing.keys_of", forged)
    report = audit_run(run.path)
    assert not report.ok
    assert len(report.failures) == 1
    assert OWNED in str(report.failures[0])


@pytest.mark.parametrize("warmup", [0, 20])
def test_a_key_without_an_update_has_a_model(tmp_path: Path, warmup: int) -> None:
    """A leaf, as of a run of its own; all rows of the key were skipped."""
    rows = table(cycled(["a", "b"])).to_pylist()
    rows[7] |= {"key": "z", "y": None}
    given = config(*put(tmp_path, pa.Table.from_pylist(rows)), stream={"warmup": warmup}, output={"metrics_every": 50})
    run = pipelines.replay(given, tmp_path / "run")
    (last,) = ds.dataset(Path(run.path) / "metrics").to_table(filter=ds.field("key") == "z").to_pylist()
    assert (last["seq"], last["nodes"], last["leaves"]) == (0, 1, 1)


def many_keys(tmp_path: Path, keys: int) -> None:
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    run = pipelines.replay(
        config(
            *put(tmp_path, table(pa.array([f"k{i}" for i in range(keys)]))),
            cluster={"batch_size": 4096},
            checkpoint={"every_updates": 10**9},
        ),
        tmp_path / "run",
    )
    assert run.summary["keys"] == run.summary["updates"] == keys
    seconds = time.process_time() - began
    more = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / keys
    print(f"{keys} keys: {1e6 * seconds / keys:.0f} us and {more:.1f} KiB each")
    assert more < 300
    assert audit_run(run.path).ok
    assert pipelines.resume(run.path).digest == run.digest


@pytest.mark.nightly
def test_twenty_thousand_keys(tmp_path: Path) -> None:
    many_keys(tmp_path, 20_000)


@pytest.mark.nightly
def test_one_key_with_half_of_the_rows(tmp_path: Path) -> None:
    keys = pa.array(["all" if i % 2 else f"k{i % 40}" for i in range(4000)])
    run = pipelines.replay(config(*put(tmp_path, table(keys))), tmp_path / "run")
    digests = {}
    for key in ("all", "k0", "k38"):
        own = table(keys).filter(pa.compute.equal(keys, key)).drop_columns("key")
        folder = tmp_path / key
        folder.mkdir()
        digests[key] = pipelines.replay(config(*put(folder, own), source={"key": None}), folder / "run").digest
    rows = pq.read_table(f"{run.path}/keys").to_pylist()
    assert {row["key"]: row["digest"] for row in rows if row["key"] in digests} == digests


# -- keyed interrupts ------------------------------------------------------------------------------------------------
# Interrupts of calls that change the models of several keys: all keys as before, or all as after, or none answers.
#
# The strikes are those of :mod:`tests.nets.test_interrupts`. Each call has rows of two keys with a model and leaves a
# third alone; those that insert have rows of a key that is new. After a strike every key is what it was before the
# call, or every key what it is after it, in all that can be seen and in all that they do later; or the estimator
# refuses all but ``save`` of the examples before, and ``fit``. One Ctrl-C is never refused, nor is ``fit``.

#: Keys with a model; calls leave the last one alone.
KEYS = ("north", "east", "south")
#: Keys of the rows that a call inserts: one is new.
INSERTED = ("north", "east", "late")
CHANGES = ("partial_fit", "forget", "replace_examples", "forget_examples", "fit")
CALLS = (*CHANGES, "digest", "predict")


def keys_of_interrupts(rows: Sequence[Row], keys: Sequence[Any] = KEYS) -> list[Any]:
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
        made.fit(*self.both(self.first), keys=keys_of_interrupts(self.first), **first)
        made.forget(made.row_ids_[3:5])
        return made.partial_fit(*self.both(self.others[:6]), keys=keys_of_interrupts(self.others[:6]), **others)

    def calls(self) -> dict[str, Call]:
        """Return the calls that change models, and some that read them."""
        new, of_new = self.both(self.new), self.weights(self.new) | {"keys": keys_of_interrupts(self.new, INSERTED)}
        equal, other = self.both(self.first[9:11]), self.both(self.others)
        of_other = self.weights(self.others) | {"keys": keys_of_interrupts(self.others)}
        return {
            "partial_fit": lambda e: e.partial_fit(*new, **of_new),
            "forget": lambda e: e.forget([0, 6, 7, 22]),
            "replace_examples": lambda e: e.replace_examples([1, 9, 48], *new, new_ids=[*range(90, 97), 9], **of_new),
            "forget_examples": lambda e: e.forget_examples(*equal, keys=keys_of_interrupts(equal[1]), digests=False),
            "fit": lambda e: e.fit(*other, **of_other),
            "digest": lambda e: e.digest(),
            "predict": lambda e: e.predict(new[0], keys=of_new["keys"]),
        }


def keyed_fingerprint(e: Any, data: KeyedData) -> tuple[Any, ...]:
    """Return everything that a user can see of all keys, and what decides about later calls."""
    of_keys = [(key, fingerprint(model, data)) for key, model in e.models_.items()]
    asked = e.predict(data.asked, keys=keys_of_interrupts(range(data.asked.num_rows), (*INSERTED, *KEYS))).tobytes()
    classes = getattr(e, "classes_", None)
    own = e.digest(), asked, None if classes is None else classes.tolist(), e.row_ids_.tolist(), e._next_id
    return (*own, of_keys)


def keyed_after(e: Any, data: KeyedData) -> str:
    """Return the digest after the same further updates."""
    e.partial_fit(*data.both(data.more), keys=keys_of_interrupts(data.more), **data.weights(data.more))
    e.forget(e.live_ids_[:1], digests=False)
    return str(e.digest())


def require_refusal(e: Any, data: KeyedData, before: Any) -> None:
    """Check that everything is refused but ``save`` of the examples before, and ``fit``."""
    X, y = data.both(data.new)
    keys = keys_of_interrupts(data.new)
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
        asked = keys_of_interrupts(data.new, INSERTED)
        of_model = load_model(Path(folder) / "model")
        loaded.unknown = of_model.unknown = "prior"
        assert of_model.predict(X, keys=asked).tobytes() == loaded.predict(X, keys=asked).tobytes()
    for key, model in before.models_.items():
        assert live(loaded.models_[key]) == live(model)
        assert loaded.models_[key].audit().ok
    keyed_after(loaded, data)
    e.fit(*data.both(data.others), keys=keys_of_interrupts(data.others))
    assert all(model.audit().ok for model in e.models_.values())


class KeyedStruck(Struck):
    """The same of the models of several keys."""

    data = staticmethod(KeyedData)
    fingerprint, after = staticmethod(keyed_fingerprint), staticmethod(keyed_after)

    def require_sound(self, e: Any, before: Any, data: Any, *, fully: bool) -> None:
        assert {key: live(model._sound()) for key, model in e.models_.items()} == {
            key: live(model) for key, model in before.models_.items()
        }
        if fully:
            require_refusal(e, data, before)

    def require_whole(self, e: Any, where: str) -> None:
        """Fingerprints compare the digests of all keys."""


def trials(trial: Trial, name: str, kinds: dict[str, int], seed: int = 0) -> Counter[str]:
    """Strike so often of each kind in one call; how the models were afterwards."""
    data = KeyedData(trial, late=name == "partial_fit")
    done = data.estimator()
    data.calls()[name](done)
    assert ("late" in done.models_) == (name in ("partial_fit", "replace_examples"))
    return trials_of(trial, name, kinds, seed, KeyedStruck())


@pytest.mark.filterwarnings("ignore:.* has never seen")
@every_case("interrupts of models by key", often=one_of_each)
def test_a_call_has_its_effect_on_all_keys_or_none(trial: Trial) -> None:
    """One call for each case, another one for the next: nightly each case takes all of them."""
    if not trial.shipped:
        pytest.skip("learners of other packages have no estimator")
    place = [one.name for one in (first_cases() if one_of_each(trial) else CASES)].index(trial.name)
    trials(trial, CHANGES[place % len(CHANGES)], FEW)


@pytest.mark.filterwarnings("ignore:.* has never seen")
@pytest.mark.nightly
@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("kind", sorted({trial.learner.kind for trial in with_estimator()}))
def test_many_moments(kind: str, name: str) -> None:
    mine = [trial for trial in with_estimator() if trial.learner.kind == kind]
    each = {"bytecode": 30, "memory": 15, "signal": 15, "two signals": 30}
    found: Counter[str] = Counter()
    for trial in mine:
        found += trials(trial, name, {strike: -(-times // len(mine)) for strike, times in each.items()}, seed=1)
    assert sum(found.values()) >= 90
