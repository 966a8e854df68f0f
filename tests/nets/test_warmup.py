"""After ``warmup`` nothing is compiled any more, whatever the stream does and whichever way a learner is used.

Wherever compiled kernels come from, the results are the same.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from raydt.arrays.kernel_cache import LEVEL
from raydt.examples.updates import DELETE, DELETE_VALUE, INSERT, QUERY, UPDATE, Features, UpdateBatch
from raydt.learners import learners
from raydt.learners.base import WorkPlan
from raydt.learners.fudyadt.dynamic_tree import LOOP_CELLS
from raydt.sessions.session import InProcessSession, compile_kernels
from tests.cases import Trial, every_case, never
from tests.typical_uses import ESTIMATORS

LEARNER = learners()["fudyadt"]


@pytest.fixture(scope="module", autouse=True)
def _compiled() -> None:
    """Kernels are compiled as for users: no test has said yet from when on work is divided."""
    for learner in learners().values():
        compile_kernels(learner)


def signatures() -> dict[str, int]:
    """Compiled specialisations of every kernel of the package."""
    found: dict[str, int] = {}
    for name, module in list(sys.modules.items()):
        if name.startswith("raydt."):
            for attribute, value in vars(module).items():
                if hasattr(value, "signatures") and hasattr(value, "py_func"):
                    found[f"{value.py_func.__module__}.{attribute}"] = len(value.signatures)
    return found


def assert_nothing_compiled(before: dict[str, int]) -> None:
    after = signatures()
    assert sum(count > 0 for count in before.values()) > 10
    assert {name: count for name, count in after.items() if before.get(name) != count} == {}


def stream(rng: np.random.Generator, n: int, classes: int) -> UpdateBatch:
    ops: list[Any] = [INSERT] * n
    ids = list(range(n))
    rows = rng.normal(size=(n, 4))
    rows[:, 3] = rng.integers(0, 5, n)
    labels = rng.integers(0, classes, n)
    X, y = [rows], [labels]
    for op, key in ((DELETE, 0), (UPDATE, 1), (QUERY, 0), (DELETE_VALUE, 0)):
        ops.append(op)
        ids.append(key)
        if op != DELETE:
            X.append(rows[5:6])
            y.append(labels[5:6])
    return UpdateBatch(
        0,
        np.array(ops, dtype=np.int8),
        np.array(ids),
        np.concatenate(X),
        np.concatenate(y).astype(np.int32),
        classes,
        np.full(len(ops), -1),
        warmup=6_000,
    )


@pytest.mark.nightly
def test_nothing_is_compiled_after_the_warmup() -> None:
    before = signatures()
    features = Features(tuple("abcd"), (False, False, False, True))
    rng = np.random.default_rng(1)
    for classes in (2, 5):
        for plan in (WorkPlan(2**40), WorkPlan(0), WorkPlan(30_000, 10_000), WorkPlan(2**40, 0)):
            options = LEARNER.Options(kind="fudyadt", epsilon=0.3, alpha=0, beta=0)
            session = InProcessSession(LEARNER, options, features, 3, plan)
            batch = stream(rng, 10_500, classes)
            rebuilt = 4 * session.apply(batch).log["rows"]
            assert rebuilt.min() < LOOP_CELLS < rebuilt.max()  # small enough for the loop, and too large
            session.restore(*session.state())
            session.coordinator.predict(batch.X)
            session.digest()
    assert_nothing_compiled(before)


@every_case("kernels compiled before", never)
def test_nothing_is_compiled_for_a_case_after_the_warmup(trial: Trial, tmp_path: Path) -> None:
    before = signatures()
    stream = trial.stream(tmp_path)
    for shards in (1, 3):
        session = trial.session(stream, shards)
        for batch in trial.stream(tmp_path).batches(50):
            session.apply(batch, skip_refused=True)
            session.restore(*session.state())
            session.coordinator.predict(batch.X, sparse=batch.sparse)
        session.finish()
        session.digest()
        rows = np.resize(np.arange(len(batch.X)), 1_000)
        session.coordinator.predict(batch.X[rows], sparse=None if batch.sparse is None else batch.sparse[rows])
    assert_nothing_compiled(before)


@pytest.mark.nightly
@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[] if kind == "fudyadt" else pytest.mark.nightly) for kind in ESTIMATORS]
)
def test_nothing_is_compiled_by_typical_uses_after_the_warmup(kind: str) -> None:
    command = [sys.executable, "-m", "tests.typical_uses", kind]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.split() == []


#: Applies the stream of a learner's first case in a package that brings kernels; prints the digest, predictions, and
#: whether kernels were compiled.
PROGRAM = """
import hashlib, pathlib, sys
from raydt import parallel
from raydt.arrays import compiler, kernel_cache
kernel_cache.SHIPPED = compiler.SHIPPED = pathlib.Path(sys.argv[2])
from raydt.learners import learners
from raydt.learners.base import WorkPlan
from raydt.sessions.session import _begun
learner = learners()[sys.argv[1]]
session, batch = _begun(learner, learner.cases()[0], 1, WorkPlan())
session.finish()
found = session.coordinator.predict(batch.X, **({} if batch.sparse is None else {"sparse": batch.sparse}))
print(session.digest(), hashlib.sha256(found.tobytes()).hexdigest(), parallel.PREPARATION.compiled > 0)
"""


@pytest.mark.nightly
@pytest.mark.timeout(900)  # four times all kernels of a learner are compiled
@pytest.mark.parametrize("kind", sorted(kind for kind in ESTIMATORS))
def test_results_are_the_same_wherever_kernels_come_from(kind: str, tmp_path: Path) -> None:
    def found(cache: str, brought: str = "none", **environment: str) -> list[str]:
        command = [sys.executable, "-c", PROGRAM, kind, str(tmp_path / brought)]
        environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / cache), **environment}
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split()

    def damage(folder: str) -> None:
        for file in (tmp_path / folder).rglob("*.nbc"):
            data = bytearray(file.read_bytes())
            data[len(data) // 2] ^= 1
            file.write_bytes(data)

    compiled = found("own")
    *same, new = compiled
    assert new == "True"
    assert found("own") == [*same, "False"]
    assert found("wheel", NUMBA_CPU_NAME=LEVEL, NUMBA_CPU_FEATURES="") == compiled
    assert found("empty", brought="wheel") == [*same, "False"]
    assert not (tmp_path / "empty").exists()
    shutil.copytree(tmp_path / "wheel", tmp_path / "damaged")
    damage("damaged")
    assert found("own", brought="damaged") == [*same, "False"]
    damage("own")
    assert found("own", brought="wheel") == [*same, "False"]
    assert found("own", brought="damaged") == compiled  # and it is written again
    assert found("own", brought="damaged") == [*same, "False"]
