"""Interrupts at random moments of every call that changes a model: the model of before or of after, never between.

Strikes: an exception at any bytecode of raydt, no memory at any allocation, Ctrl-C while the call runs, and two of
them. After each the estimator is what it was before the call or what it is after it, in its digest, its predictions and
all that it does later; or it refuses everything but ``save`` of the examples before, and ``fit``. One Ctrl-C is never
refused. A strike during a call that only reads changes nothing.

``python -m tests.nets.test_interrupts --moments 1000`` prints how often each came out how.
"""

from __future__ import annotations

import argparse
import copy
import gc
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import raydt
from raydt import load_model
from raydt.arrays.blocks import SparseRows
from raydt.attribution import leave_one_out
from raydt.errors import HalfAppliedError
from raydt.estimators import estimator_of
from raydt.estimators.confidence_tree import RiverConfidenceTreeClassifier
from raydt.estimators.forest import RiverForestClassifier
from raydt.estimators.fudyadt import RiverTreeClassifier
from raydt.examples.updates import filled
from raydt.parallel import limited
from raydt.sessions.session import InProcessSession
from tests.cases import CASES, GROUPS, Trial, every_case, first_cases, one_of_each
from tests.crews import NUMBERS
from tests.small_tables import Row, derived, examples, table_of

#: Each call draws its number of threads.
MOST_THREADS = max(NUMBERS)

PACKAGE = str(Path(raydt.__file__).parent)
Call = Callable[[Any], Any]

# -- strikes ------------------------------------------------------------------------------------------------------


class Strike:
    """Counts moments and strikes at one of them; ``at`` -1: never."""

    def __init__(self, at: int) -> None:
        self.at, self.moment = at, -1

    def pass_moment(self, error: BaseException) -> None:
        """Raise if this is the moment."""
        self.moment += 1
        if self.moment == self.at:
            raise error


@contextmanager
def at_bytecode(at: int, within: tuple[str, ...] = (PACKAGE,)) -> Iterator[Strike]:
    """Raise before a bytecode of raydt, as an exception from another thread or a second Ctrl-C does.

    ``within`` names the files: also those of Python's own modules in which a signal may arrive.
    """
    strike = Strike(at)

    def local(frame: Any, event: str, arg: Any) -> Any:
        if event == "opcode":
            strike.pass_moment(KeyboardInterrupt("strike"))
        return local

    def enter(frame: Any, event: str, arg: Any) -> Any:
        if frame.f_code.co_filename.startswith(within):
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
            return local
        return None

    # A generator that an earlier test has left must not end, as garbage, under the strike.
    collected = gc.isenabled()
    gc.disable()
    former = sys.gettrace()
    sys.settrace(enter)
    try:
        yield strike
    finally:
        sys.settrace(former)
        if collected:
            gc.enable()


@contextmanager
def without_memory(at: int) -> Iterator[Strike]:
    """Raise MemoryError where an array is made."""
    strike = Strike(at)
    names = ("empty", "zeros", "full", "ones", "concatenate", "arange", "zeros_like", "empty_like")
    former = {name: getattr(np, name) for name in names}

    def failing(make: Callable[..., Any]) -> Callable[..., Any]:
        def made(*args: Any, **kwargs: Any) -> Any:
            strike.pass_moment(MemoryError("strike"))
            return make(*args, **kwargs)

        return made

    try:
        for name, make in former.items():
            setattr(np, name, failing(make))
        yield strike
    finally:
        for name, make in former.items():
            setattr(np, name, make)


INJECTED = {"bytecode": at_bytecode, "memory": without_memory}


def struck(target: Any, call: Call, kind: str, draw: random.Random, moments: dict[Any, int]) -> bool:
    """Make a call, with some threads, and strike at a random moment of it; whether the call raised."""
    with limited(draw.choice(NUMBERS)):
        return _struck(target, call, kind, draw, moments)


def _struck(target: Any, call: Call, kind: str, draw: random.Random, moments: dict[Any, int]) -> bool:
    if kind in INJECTED:
        make = INJECTED[kind]
        if (kind, call) not in moments:
            with make(-1) as strike:
                call(copy.deepcopy(target))
            moments[kind, call] = strike.moment + 1
        try:
            with make(draw.randrange(max(1, moments[kind, call]))):
                call(target)
        except (KeyboardInterrupt, MemoryError):
            return True
        return False
    if ("seconds", call) not in moments:
        other = copy.deepcopy(target)
        began = time.perf_counter()
        call(other)
        moments["seconds", call] = max(50, int(1e6 * (time.perf_counter() - began)))
    gap = 10 ** draw.uniform(-5.5, -4.3) if kind == "two signals" else None
    return with_signals(target, call, draw.random() * moments["seconds", call] / 1e6, gap)


def with_signals(target: Any, call: Call, seconds: float, gap: float | None = None) -> bool:
    """Send Ctrl-C to this process after a while, and another one after a gap in seconds; whether the call raised."""
    left, calling = 1 if gap is None else 2, True

    def send(*_: Any) -> None:
        nonlocal left
        left -= 1
        if left > 0:
            signal.setitimer(signal.ITIMER_REAL, gap or 0)
        os.kill(os.getpid(), signal.SIGINT)

    def interrupt(*_: Any) -> None:
        if calling:
            raise KeyboardInterrupt

    raised, former = False, (signal.signal(signal.SIGINT, interrupt), signal.signal(signal.SIGALRM, send))
    try:
        signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-6))
        try:
            call(target)
        finally:
            calling = False
    except KeyboardInterrupt:
        raised, calling = True, False
    until = time.monotonic() + 0.05  # an alarm that met the first Ctrl-C may be lost
    while left > 0 and time.monotonic() < until:
        time.sleep(1e-3)
    signal.setitimer(signal.ITIMER_REAL, 0)
    if gap is None:
        assert signal.getsignal(signal.SIGINT) is interrupt, "the handler was not put back"
    signal.signal(signal.SIGINT, former[0])
    signal.signal(signal.SIGALRM, former[1])
    return raised


# -- estimators of cases ------------------------------------------------------------------------------------------


class Data:
    """Rows for the calls of one case: new ones bring a category and, of three classes, a class.

    ``late``: of a case with weights, the first rows have none, so that a call brings the first weights of all.
    """

    def __init__(self, trial: Trial, late: bool = False) -> None:
        self.trial, self.late = trial, late
        rows = [{**derived(row), **row} for row in examples(160, 5, "xyz"[: max(2, trial.case.classes)])]
        old = [row for row in rows if row["d"] != "r" and row["y"] != "z" and row["y_of_three"] != "z"]
        self.first, self.others = old[:36], old[36:60]
        self.new = [row for row in rows if row not in old][:6] + old[60:62]
        self.asked, self.more = self.X([*self.first, *self.new]), rows[-4:]

    def X(self, rows: Sequence[Row]) -> Any:
        """Features of rows."""
        return table_of(rows).select(self.trial.columns["features"])

    def y(self, rows: Sequence[Row]) -> list[Any]:
        """Labels of rows."""
        return [row[self.trial.columns["label"]] for row in rows]

    def both(self, rows: Sequence[Row]) -> tuple[Any, list[Any]]:
        """Features and labels."""
        return self.X(rows), self.y(rows)

    def weights(self, rows: Sequence[Row]) -> dict[str, Any]:
        """The argument for weights of rows, of a case that has some."""
        return {"sample_weight": [row["weight"] for row in rows]} if self.trial.case.weighted else {}

    def estimator(self, subjects: Sequence[str] | None = None) -> Any:
        """An estimator with the options of the case, fitted, and changed once; the rows may have subjects."""
        kind = estimator_of(self.trial.options)
        options = self.trial.options.model_copy(update=kind._fixed)
        made = type(kind.__name__, (kind,), {"_options": lambda self: options})(feature_groups=GROUPS)
        first, others = ({} if self.late else self.weights(rows) for rows in (self.first, self.others[:6]))
        if subjects is not None:
            first["subjects"], others["subjects"] = subjects[: len(self.first)], subjects[len(self.first) :]
        made.fit(*self.both(self.first), **first)
        made.forget(made.row_ids_[3:5])
        return made.partial_fit(*self.both(self.others[:6]), **others)

    def calls(self) -> dict[str, Call]:
        """The calls that change a model, and some that read it."""
        new, other = self.both(self.new), self.both(self.others)
        equal, of_new, of_other = self.both(self.first[8:10]), self.weights(self.new), self.weights(self.others)
        return {
            "partial_fit": lambda e: e.partial_fit(*new, **of_new),
            "forget": lambda e: e.forget([0, 7, 20, 21]),
            "replace_examples": lambda e: e.replace_examples([1, 9, 37], *new, new_ids=[*range(90, 97), 9], **of_new),
            "forget_examples": lambda e: e.forget_examples(*equal, digests=False),
            "fit": lambda e: e.fit(*other, **of_other),
            "digest": lambda e: e.digest(),
            "predict": lambda e: e.predict(new[0]),
            "audit": lambda e: e.audit(),
            "without": lambda e: asked_without(e, new[0]),
            "leave_one_out": lambda e: leave_one_out(e, *other, ids=[0, 7]),
        }


def asked_without(e: Any, X: Any) -> None:
    """Ask a model without two of its examples, and without a third one of those that are left."""
    with e.without([0, 7]):
        e.predict(X)
        with e.without([20]):
            e.digest()


READS = ("digest", "predict", "audit", "without", "leave_one_out")


def fingerprint(e: Any, data: Data) -> tuple[Any, ...]:
    """Everything that a user can see of an estimator, and what decides about later calls."""
    X = data.asked
    shares = e.predict_proba(X).tobytes() if hasattr(e, "predict_proba") else b""
    session = InProcessSession(e._learner, e._fitted_options, e._features())
    session.restore(*e.session_.state())
    assert session.digest() == e.digest(), "a digest that was kept up is not that of the model"
    kept = [repr(values.values) for values in e._encoder.dictionaries.values()]
    classes = getattr(e, "classes_", np.empty(0)).tolist()
    return e.digest(), e.predict(X).tobytes(), shares, classes, kept, e._next_id, e._seq, e.row_ids_.tolist()


def after(e: Any, data: Data) -> str:
    """Digest after the same further updates."""
    e.partial_fit(*data.both(data.more), **data.weights(data.more))
    e.forget(e.row_ids_[:1], digests=False)
    return str(e.digest())


def live(e: Any) -> dict[int, tuple[Any, ...]]:
    """Features, label and weight of the live examples by id."""
    state, groups = e.session_.state()
    X = np.concatenate([groups[g]["X"] for g in sorted(groups)], axis=1)
    ones: list[list[int]] = [[] for _ in X]
    for part in groups.values():
        if "sparse_values" in part:
            sparse = SparseRows.of_arrays(part, e._features().sparse)
            for row, of_row in enumerate(ones):
                of_row += sparse.row(row).tolist()
    weights = filled(state.get("weight"), len(X)).tolist()
    rows = zip(state["id"].tolist(), X, state["y"].tolist(), ones, weights, strict=True)
    return {i: (x.tobytes(), y, sorted(of_row), weight) for i, x, y, of_row, weight in rows}


def refuses(call: Callable[[], Any]) -> bool:
    """Whether a call is refused because the model is part old, part new."""
    try:
        call()
    except HalfAppliedError:
        return True
    return False


def require_refusal(e: Any, data: Data, before: Any, folder: Path) -> None:
    """Check that everything is refused but ``save`` of the examples before, and ``fit``."""
    X, y = data.both(data.new)
    some = {
        "predict": lambda: e.predict(X),
        "audit": e.audit,
        "partial_fit": lambda: e.partial_fit(X, y),
        "forget": lambda: e.forget([2]),
        "replace": lambda: e.replace_examples([2], X, y),
        "forget_examples": lambda: e.forget_examples(*data.both(data.first[:1])),
        "deepcopy": lambda: copy.deepcopy(e),
        "copy": lambda: copy.copy(e),
    }
    assert [name for name, call in some.items() if not refuses(call)] == []
    e.save(folder / "state", with_examples=True)
    e.save(folder / "model")
    loaded = load_model(folder / "state")
    assert live(loaded) == live(before)
    assert loaded.audit().ok
    assert load_model(folder / "model").predict(X).tobytes() == loaded.predict(X).tobytes()
    if loaded._traits.retrained:
        assert loaded.digest() == before.digest()
    after(loaded, data)
    e.fit(X, y)
    assert e.audit().ok


class Struck:
    """What a net of interrupts asks of estimators of one kind, around a call that was struck."""

    data = staticmethod(Data)
    fingerprint, after = staticmethod(fingerprint), staticmethod(after)

    def require_sound(self, e: Any, before: Any, data: Any, *, fully: bool) -> None:
        """Check what an estimator that refuses still gives: the examples before the change; some of them ``fully``."""
        assert refuses(lambda: e.partial_fit([[0.0]], [0]))
        assert live(e._sound()) == live(before)
        if fully:
            with tempfile.TemporaryDirectory() as folder:
                require_refusal(e, data, before, Path(folder))

    def require_whole(self, e: Any, where: str) -> None:
        """Check now and then that an estimator that answers is whole, also where it is saved."""
        assert e.audit().ok, where
        with tempfile.TemporaryDirectory() as folder:
            e.save(Path(folder) / "state", with_examples=True)
            assert load_model(Path(folder) / "state").digest() == e.digest(), where


def trials(trial: Trial, name: str, kinds: dict[str, int], seed: int = 0, of: Struck | None = None) -> Counter[str]:
    """Strike so often of each kind in one call; how the model was afterwards."""
    of = of or Struck()
    data, draw, moments = of.data(trial, late=name == "partial_fit"), random.Random(f"{trial.name} {name} {seed}"), {}
    call, start = data.calls()[name], data.estimator()
    done = copy.deepcopy(start)
    call(done)
    states = {"before": start, "after": done}
    seen = {repr(of.fingerprint(copy.deepcopy(e), data)): when for when, e in reversed(states.items())}
    later = {when: of.after(copy.deepcopy(e), data) for when, e in states.items()}
    found: Counter[str] = Counter()
    for kind, times in kinds.items():
        for i in range(times):
            e = copy.deepcopy(start)
            raised = struck(e, call, kind, draw, moments)
            where = f"{trial.name}, {name}, {kind} {i}"
            if refuses(e.digest):
                assert (raised, kind == "signal", name in (*READS, "fit")) == (True, False, False), where
                of.require_sound(e, start, data, fully=i % 16 == 0 or not found[f"{kind}: refused"])
                found[f"{kind}: refused"] += 1
                continue
            when = seen.get(repr(of.fingerprint(e, data)))
            assert when is not None, f"between: {where}"
            assert raised or when == "after" or name in READS, where
            found[f"{kind}: {when}"] += 1
            if i % 8 == 0:
                of.require_whole(e, where)
            assert of.after(e, data) == later[when], where
    return found


def with_estimator() -> list[Trial]:
    """Cases of learners that have an estimator."""
    return [trial for trial in CASES if trial.shipped]


FEW = {"bytecode": 2, "memory": 1, "signal": 1, "two signals": 1}
CALLS = ("partial_fit", "forget", "replace_examples", "forget_examples", "fit", *READS)


@every_case("interrupts", often=one_of_each)
def test_a_call_has_its_effect_or_none(trial: Trial) -> None:
    if not trial.shipped:
        pytest.skip("learners of other packages have no estimator: their sessions are interrupted below")
    for name in CALLS:
        trials(trial, name, {"bytecode": 2} if name in READS else FEW)


@pytest.mark.nightly
@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("kind", sorted({trial.learner.kind for trial in with_estimator()}))
def test_hundreds_of_moments(kind: str, name: str) -> None:
    assert sum(many_moments(kind, name, 200).values()) >= 50


def many_moments(kind: str, name: str, moments: int) -> Counter[str]:
    """Strike so often in one call of a learner, spread over its cases; a quarter of it in calls that only read."""
    moments //= 1 + 3 * (name in READS)
    mine = [trial for trial in with_estimator() if trial.learner.kind == kind]
    each = -(-moments // len(mine))
    shares = {"bytecode": 0.45, "memory": 0.25, "signal": 0.2, "two signals": 0.1}
    found: Counter[str] = Counter()
    for trial in mine:
        found += trials(trial, name, {strike: -(-int(100 * each * share) // 100) for strike, share in shares.items()})
    return found


@pytest.mark.nightly
@pytest.mark.parametrize("name", [trial.name for trial in first_cases() if trial.shipped])
def test_the_memory_of_the_process_ends(name: str) -> None:
    """In a process of its own, with a limit that is drawn before each call."""
    # Without room that malloc has reserved before the limit: each array asks the system for its own.
    own = os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_ARENA_MAX": "1"}
    command = [sys.executable, "-m", "tests.nets.limited", name, "24"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=900, env=own)
    assert ended.returncode == 0, ended.stderr[-3000:]
    found = json.loads(ended.stdout)
    assert any(when.endswith(("before", "refused")) for when in found), found


# -- sessions: every case, with shards of its own, of learners without an estimator too ---------------------------


@every_case("interrupts of a session", often=one_of_each)
def test_a_session_is_whole_or_refuses(trial: Trial, tmp_path: Path) -> None:
    draw, moments = random.Random(trial.name), {}
    stream = trial.stream(tmp_path)
    session = trial.session(stream)
    for batch in list(stream.batches(16))[:5]:
        session.digest()
        call = lambda s, batch=batch: s.take(batch, skip_refused=True)  # noqa: E731
        for i in range(4):
            other, before = copy.deepcopy(session), copy.deepcopy(session).digest()
            raised = struck(other, call, ("bytecode", "memory")[i % 2], draw, moments)
            if not other.whole:
                assert raised
                assert all(map(refuses, (other.digest, other.model, other.state, other.finish, other.statistics)))
                assert refuses(lambda: call(other))  # noqa: B023
                assert refuses(lambda: copy.deepcopy(other))  # noqa: B023
                continue
            if raised:
                # The first batch brings the length of the warm-up, which a digest of an empty model may have.
                assert other.digest() == before or not batch.start, f"between: {trial.name}, {batch.start}, {i}"
                call(other)
            twin = copy.deepcopy(session)
            call(twin)
            assert other.digest() == twin.digest()
        call(session)


# -- river's adapters ---------------------------------------------------------------------------------------------

RIVER: dict[str, Callable[[], Any]] = {
    "fudyadt": RiverTreeClassifier,
    "confidence_tree": lambda: RiverConfidenceTreeClassifier(grace_period=3, c=0.001),
    "forest, eager": lambda: RiverForestClassifier(n_estimators=4, rebuild="eager"),
    "forest, lazy": lambda: RiverForestClassifier(n_estimators=4),
}
_NEW = {"a": 0.5, "b": 1.0, "c": 0.0, "d": "s"}


def river_calls(rows: Sequence[Row]) -> dict[str, Call]:
    """Calls of one example each."""
    x = {name: rows[2][name] for name in "abcd"}
    return {
        "learn_one": lambda e: e.learn_one(_NEW, "z"),
        "forget_one": lambda e: e.forget_one(x, rows[2]["y"]),
        "predict_one": lambda e: e.predict_proba_one(x),
    }


def river_trials(kind: str, name: str, kinds: dict[str, int], n: int) -> Counter[str]:
    """As :func:`trials`, of an adapter that has learned ``n`` examples."""
    draw, moments, rows = random.Random(f"{kind} {name}"), {}, examples(n + 10)

    def look(e: Any) -> tuple[Any, ...]:
        # The session alone is asked: to look closes what a lazy forest has left open, in any state.
        seen = [sorted(e.predict_proba_one({k: row[k] for k in "abcd"}).items()) for row in rows[: n + 5 : 3]]
        return [] if e._session is None else e._session.digest(), seen, dict(e._labels), e._learned

    def on(e: Any) -> Any:
        for row in rows[n:]:
            e.learn_one({k: row[k] for k in "abcd"}, row["y"])
        return look(e)

    start = RIVER[kind]()
    for row in rows[:n]:
        start.learn_one({k: row[k] for k in "abcd"}, row["y"])
    call, done = river_calls(rows)[name], copy.deepcopy(start)
    call(done)
    states = {"after": done, "before": start}
    seen = {repr(look(copy.deepcopy(e))): when for when, e in states.items()}
    later = {when: on(copy.deepcopy(e)) for when, e in states.items()}
    found: Counter[str] = Counter()
    for strike, times in kinds.items():
        for i in range(times):
            e, where = copy.deepcopy(start), f"{kind}, {name}, {strike} {i}"
            raised = struck(e, call, strike, draw, moments)
            if refuses(lambda: e.predict_one(_NEW)):  # noqa: B023
                assert (raised, strike == "signal", name == "predict_one") == (True, False, False), where
                for other in (*river_calls(rows).values(), copy.deepcopy, lambda e: e.audit()):
                    assert refuses(lambda: other(e)), where  # noqa: B023
                found[f"{strike}: refused"] += 1
                continue
            when = seen.get(repr(look(copy.deepcopy(e))))
            assert when is not None, f"between: {where}"
            assert on(e) == later[when], where
            found[f"{strike}: {when}"] += 1
    return found


@pytest.mark.turns(4)
@pytest.mark.parametrize("name", ["learn_one", "forget_one", "predict_one"])
@pytest.mark.parametrize("kind", RIVER)
def test_one_example_at_a_time(kind: str, name: str) -> None:
    river_trials(kind, name, {"bytecode": 6, "memory": 3, "signal": 1}, 23)
    if name == "learn_one" and kind == "fudyadt":
        river_trials(kind, name, {"bytecode": 6, "memory": 3}, 1)


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["learn_one", "forget_one", "predict_one"])
@pytest.mark.parametrize("kind", RIVER)
def test_one_example_at_hundreds_of_moments(kind: str, name: str) -> None:
    river_trials(kind, name, {"bytecode": 200, "memory": 80, "signal": 80, "two signals": 40}, 23)


# -- in volume ----------------------------------------------------------------------------------------------------


def main() -> None:
    """Print how often the model was which after strikes of each kind, by learner and call."""
    parser = argparse.ArgumentParser(prog="python -m tests.nets.test_interrupts")
    parser.add_argument("--moments", type=int, default=1000)
    moments = parser.parse_args().moments
    for kind in sorted({trial.learner.kind for trial in with_estimator()}):
        for name in CALLS:
            print(kind, name, dict(sorted(many_moments(kind, name, moments).items())), flush=True)
    for kind in RIVER:
        for name in ("learn_one", "forget_one", "predict_one"):
            shares = {"bytecode": moments // 2, "memory": moments // 4, "signal": moments // 4}
            print("river", kind, name, dict(sorted(river_trials(kind, name, shares, 23).items())), flush=True)


if __name__ == "__main__":
    main()
