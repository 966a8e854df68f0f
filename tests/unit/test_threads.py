"""Estimators in threads: the same model with any number, several callers at once, forks, joblib, and interrupts."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from joblib.externals.loky import get_reusable_executor
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

import raydt
from raydt import (
    ConfidenceTreeClassifier,
    ExactForestClassifier,
    ExactForestRegressor,
    FullyDynamicTreeClassifier,
    FullyDynamicTreeRegressor,
    OnlineGradientBoostingClassifier,
    load_model,
)
from raydt import parallel as threads
from raydt.errors import ConfigError
from raydt.learners.forest import trees
from raydt.learners.gbdt.split_search import ROWS
from raydt.learners.gbdt.update import Counts
from tests import volume
from tests.crews import ALWAYS, LITTLE, crew
from tests.refusals import refused

DRAW = np.random.default_rng(5)
X = np.round(DRAW.normal(size=(600, 6)), 1)
Y = (X[:, 0] + X[:, 1] * X[:, 2] + DRAW.normal(size=len(X)) > 0).astype(int)
ESTIMATORS: dict[str, Any] = {
    "fudyadt": FullyDynamicTreeClassifier(alpha=0.001, beta=0.05),
    "fudyadt, numbers": FullyDynamicTreeRegressor(),
    "forest": ExactForestClassifier(n_estimators=11),
    "forest, numbers": ExactForestRegressor(n_estimators=5, rebuild="lazy"),
    "gbdt": OnlineGradientBoostingClassifier(max_iter=8),
    "confidence_tree": ConfidenceTreeClassifier(grace_period=20, c=0.05),
}


@pytest.fixture(autouse=True)
def _little_work_is_divided() -> Iterator[None]:
    """Have threads take work that one would do otherwise; how many, each test says."""
    with crew(None):
        yield


def outcome(model: Any) -> list[Any]:
    """What a model says of itself after insertions, deletions and a step of a window."""
    model.fit(X[:400], Y[:400])
    model.partial_fit(X[400:500], Y[400:500]).forget(model.row_ids_[:30])
    model.replace_examples(np.arange(50), X[500:], Y[500:])
    found = [model.digest(), model.predict(X).tobytes(), str(model.audit().as_dict())]
    if hasattr(model, "predict_proba"):
        found.append(model.predict_proba(X).tobytes())
    if not isinstance(model, ConfidenceTreeClassifier):  # its leaves predict by naive Bayes
        explanation = model.explain(X[:70])
        found += [explanation.values.tobytes(), np.asarray(explanation.base).tobytes()]
    return found


@pytest.mark.turns(2)
@pytest.mark.share
@pytest.mark.parametrize("name", ESTIMATORS)
def test_the_number_of_threads_changes_nothing(name: str) -> None:
    numbers = volume.spread((1, 2, 3, 5), 2)
    first, *others = (outcome(clone(ESTIMATORS[name]).set_params(n_jobs=n)) for n in numbers)
    assert all(other == first for other in others)


def test_tests_divide_the_work_of_every_module_that_divides_work() -> None:
    """A limit that nobody lowers would leave its work to one thread in every net."""
    package = Path(raydt.__file__).parent
    dividing = {
        ".".join(path.relative_to(package).with_suffix("").parts)
        for path in package.rglob("*.py")
        if re.search(r"^from raydt\.parallel import (\([^)]*|[^\n(]*)\b(run|ranges)\b", path.read_text(), re.M)
    }
    lowered = {module.__name__.removeprefix("raydt.") for module, _, _ in LITTLE}
    assert dividing - lowered - ALWAYS == set()
    assert dividing >= ALWAYS


@pytest.mark.turns(1)
@pytest.mark.parametrize("follow", ["retrained", "bounded"])
def test_shards_of_the_gbdt_update_as_one_does(follow: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of every shard go through trees that are trained again, and what each has counted is added."""
    passes, others = set[int](), 0
    of = Counts.of

    def seen(trees: int, of_shards: Any) -> Counts:
        nonlocal others
        passes.add(len(of_shards))
        others += sum(int(counts[ROWS]) for counts in of_shards[1:])
        return of(trees, of_shards)

    def updated(n: int, between: int = 0) -> list[Any]:
        options = {"max_leaf_nodes": 31, "derivatives": follow, "derivative_tolerance": 0.3, "retrain": "never"}
        model = OnlineGradientBoostingClassifier(max_iter=6, n_jobs=n, **options).fit(X[:300], Y[:300])
        found: list[Any] = []
        for begin in range(300, 600, 60):
            model.set_params(n_jobs=between or n if begin % 120 else n)
            new = slice(begin, begin + 60)
            model.replace_examples(np.arange(begin - 300, begin - 270), X[new], Y[new])
            found += [model.digest(), {name: n for name, n in model.last_update_.items() if name != "seconds"}]
        return [*found, str(model.audit().as_dict())]

    monkeypatch.setattr(Counts, "of", seen)
    one = updated(1)
    assert (passes, others) == ({1}, 0)
    for n in (2, 3, 5):
        found = updated(n)
        assert [part for part in found if isinstance(part, dict)] == [part for part in one if isinstance(part, dict)]
        assert found == one
        assert updated(n, between=1) == one
    assert passes == {1, 2, 3, 5}
    assert others > 500


@pytest.mark.parametrize("numbers", [(1, 3), (2, 5), (5, 2)])
def test_an_early_stopped_gbdt_is_updated_by_other_threads_than_have_trained_it(numbers: tuple[int, int]) -> None:
    """A thread that comes later has room for the trees that are left, the first one for all that were trained."""
    digests = []
    for training, updating in ((1, 1), numbers):
        model = OnlineGradientBoostingClassifier(max_iter=30, early_stopping=True, retrain="never", n_jobs=training)
        model.fit(X, np.roll(Y, 7))
        assert model.n_iter_ < 30
        model.set_params(n_jobs=updating).forget(np.arange(40))
        digests.append(model.digest())
    assert digests[0] == digests[1]


@pytest.mark.parametrize("name", ESTIMATORS)
def test_what_was_given_may_change_afterwards(name: str) -> None:
    """A clean matrix of float64 is not copied before the learner keeps its rows."""
    given, models = X.copy(), [clone(ESTIMATORS[name]) for _ in range(2)]
    models[0].fit(given, Y)
    given[:] = 7.0
    models[1].fit(X, Y)
    for model in models:
        model.forget(model.row_ids_[::3])
    assert models[0].digest() == models[1].digest()
    assert models[0].audit().conformance == "holds"


def test_n_jobs_is_no_part_of_a_model(tmp_path: Any) -> None:
    model = FullyDynamicTreeClassifier(n_jobs=3).fit(X, Y)
    assert clone(model).n_jobs == 3
    model.save(tmp_path / "model", with_examples=True)
    again = load_model(tmp_path / "model")
    assert (again.n_jobs, again.digest()) == (None, model.digest())
    assert not any(b"n_jobs" in file.read_bytes() for file in (tmp_path / "model").rglob("*") if file.is_file())


@pytest.mark.parametrize("n_jobs", [0, 1.5, "2", True])
def test_what_is_no_number_of_threads_is_refused(n_jobs: Any) -> None:
    with refused("estimators.n_jobs", ConfigError, given=n_jobs):
        FullyDynamicTreeClassifier(n_jobs=n_jobs).fit(X, Y)


def test_a_call_uses_as_many_threads_as_n_jobs_says(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    real = threads.run
    monkeypatch.setattr(trees, "run", lambda tasks: (seen.append(threads.threads()), real(tasks))[1])
    monkeypatch.setattr(threads, "cpus_here", lambda: 4)
    for n_jobs, most in {None: 4, -1: 4, -2: 3, 1: 1, 2: 2, 7: 7}.items():
        seen.clear()
        ExactForestClassifier(n_estimators=5, n_jobs=n_jobs).fit(X, Y)
        assert set(seen) == {most}
    with threads.limited(2):
        seen.clear()
        ExactForestClassifier(n_estimators=5, n_jobs=7).fit(X, Y)
        assert set(seen) == {2}


def fitted(name: str) -> str:
    """The digest of a model that three threads fit."""
    digest: str = clone(ESTIMATORS[name]).set_params(n_jobs=3).fit(X, Y).digest()
    return digest


@pytest.mark.parametrize("name", ["fudyadt", "forest", "gbdt"])
def test_python_threads_fit_at_the_same_time(name: str) -> None:
    expected = fitted(name)
    with ThreadPoolExecutor(4) as callers:
        assert set(callers.map(fitted, [name] * 8)) == {expected}


@pytest.mark.parametrize("name", ["fudyadt", "forest", "gbdt"])
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_child_forked_after_threads_have_worked_fits(name: str) -> None:
    expected = fitted(name)
    child = os.fork()
    if child == 0:
        try:
            os._exit(fitted(name) != expected)
        finally:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0


#: Forks while a thread imports Numba and loads its first kernels; children do the same, or are killed after a while.
_FORKS = """
import os, signal, sys, threading, time, warnings
warnings.simplefilter("ignore")
from raydt import FullyDynamicTreeClassifier as Tree
work = lambda: Tree().fit([[0.0], [1.0]] * 20, [0, 1] * 20).predict([[1.0]])
thread, children, failed, late = threading.Thread(target=work), [], 0, 0
thread.start()
for _ in range(4):
    time.sleep(.04)
    late += not thread.is_alive()
    child = os.fork()
    if not child:
        try:
            work()
            os._exit(0)
        finally:
            os._exit(2)
    children.append(child)
thread.join(60)
end = time.monotonic() + 60
for child in children:
    while not (ended := os.waitpid(child, os.WNOHANG))[0] and time.monotonic() < end:
        time.sleep(.02)
    if not ended[0]:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    failed += not ended[0] or ended[1] != 0
print(failed, "failed;", thread.is_alive(), late < 4)
"""


#: The modules that the first calls of each learner import beside Numba and its kernels: a fork waits for these alone.
_IMPORTS = """
import contextlib, sys, warnings
warnings.simplefilter("ignore")
import pyarrow as pa
from raydt.arrays.kernel import _MAKING
from raydt.estimators import estimator_of
from raydt.learners import learners

class Finder:
    found, learner = [], ""

    def find_spec(self, name, path=None, target=None):
        numba = sys.modules.get("numba.core.compiler_lock")
        if not _MAKING._is_owned() and not (numba and numba.global_compiler_lock.is_locked()):
            self.found.append(f"{self.learner}: {name}")

kinds = {True: {}, False: {}}  # by whether they need sparse features
for name, learner in learners().items():
    with contextlib.suppress(NotImplementedError):
        sparse = learner.traits(learner.Options()).reading.needs_sparse
        kinds[sparse][name] = estimator_of(learner.Options())
sys.meta_path.insert(0, finder := Finder())
y = [0, 1] * 20
for finder.learner, kind in [*kinds[False].items(), *kinds[True].items()]:
    rows = [[0.5, 1.0], [2.0, 0.0]] * 20
    if finder.learner in kinds[True]:  # last, as PyArrow imports pandas, if it is there, to make them
        sys.meta_path.remove(finder)
        rows = pa.table({"s": [[0, 2], [1]] * 20})
        sys.meta_path.insert(0, finder)
    model = kind().fit(rows, y)
    model.forget([1, 2])
    model.partial_fit(rows, y)
    model.predict(rows)
print(*finder.found, sep="\\n")
"""


def test_first_calls_import_nothing_that_a_fork_does_not_wait_for() -> None:
    done = subprocess.run([sys.executable, "-c", _IMPORTS], capture_output=True, text=True, timeout=150)
    assert (done.stdout.split("\n"), done.stderr) == (["", ""], "")


def test_a_fork_waits_for_kernels_that_another_thread_loads() -> None:
    done = subprocess.run([sys.executable, "-c", _FORKS], capture_output=True, text=True, check=True, timeout=150)
    assert done.stdout == "0 failed; False True\n"


@pytest.mark.filterwarnings(r"ignore:Estimator \w+ does not inherit:UserWarning")
def test_joblib_divides_the_cpus_among_its_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each process uses its share of the CPUs; the best model is fitted here."""
    monkeypatch.delenv("OMP_NUM_THREADS")
    get_reusable_executor().shutdown()  # its processes have the variable
    search = GridSearchCV(FullyDynamicTreeClassifier(), {"max_depth": [1, 4]}, cv=2, n_jobs=2).fit(X, Y)
    alone = GridSearchCV(FullyDynamicTreeClassifier(n_jobs=1), {"max_depth": [1, 4]}, cv=2, n_jobs=1).fit(X, Y)
    assert search.best_estimator_.digest() == alone.best_estimator_.digest()
    assert search.cv_results_["mean_test_score"].tolist() == alone.cv_results_["mean_test_score"].tolist()
    share = GridSearchCV(
        FullyDynamicTreeClassifier(), {"max_depth": [1, 4]}, cv=2, n_jobs=2, scoring=_threads, refit=False
    )
    assert share.fit(X, Y).cv_results_["mean_test_score"].max() <= max(1, (os.cpu_count() or 1) // 2)


def _threads(*_: Any) -> float:
    """The threads that work would be divided among."""
    return float(threads.threads())
