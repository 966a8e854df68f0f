"""Calls that are interrupted while they change a model: handlers of signals, threads, copies (volume: the nets)."""

from __future__ import annotations

import copy
import signal
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from raydt import FullyDynamicTreeClassifier, load_model
from raydt.errors import HalfAppliedError
from raydt.estimators.fudyadt import RiverTreeClassifier
from raydt.learners.fudyadt.coordinator import FuDyADTCoordinator
from raydt.sessions.session import InProcessSession
from tests.refusals import refused

X = np.arange(40.0).reshape(-1, 1)
Y = (X[:, 0] > 20).astype(int)


@pytest.fixture
def handler() -> Any:
    """Whatever handles SIGINT, put back after the test."""
    former = signal.getsignal(signal.SIGINT)
    yield former
    signal.signal(signal.SIGINT, former)


@pytest.fixture
def tree() -> FullyDynamicTreeClassifier:
    return FullyDynamicTreeClassifier().fit(X, Y)


def during(monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> None:
    """Act in the middle of each change, of a batch or of one row."""

    def acting(apply: Callable[..., Any]) -> Callable[..., Any]:
        def take(*given: Any, **rest: Any) -> Any:
            act()
            result = apply(*given, **rest)
            act()
            return result

        return take

    for of, name in ((InProcessSession, "take"), (FuDyADTCoordinator, "take_row")):
        monkeypatch.setattr(of, name, acting(getattr(of, name)))


def test_a_handler_of_the_user_is_called_once_the_change_is_complete(tree, handler, monkeypatch) -> None:
    seen: list[int] = []
    signal.signal(signal.SIGINT, lambda *_: seen.append(tree.session_.coordinator.store.live))
    sent = iter([True])
    during(monkeypatch, lambda: signal.raise_signal(signal.SIGINT) if next(sent, False) else None)
    own = signal.getsignal(signal.SIGINT)
    assert tree.forget([3, 4]).active == 38
    assert (seen, signal.getsignal(signal.SIGINT)) == ([38], own)


def test_where_the_signal_is_ignored_nothing_is_deferred(tree, handler, monkeypatch) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    found: list[Any] = []
    during(monkeypatch, lambda: found.append(signal.getsignal(signal.SIGINT)))
    tree.forget([3])
    assert found == [signal.SIG_IGN] * 2


def test_the_first_waits_and_the_second_does_not(tree, handler, monkeypatch) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    after = copy.deepcopy(tree)
    after.forget([3])
    with monkeypatch.context() as patch:
        sent = iter([True])
        during(patch, lambda: signal.raise_signal(signal.SIGINT) if next(sent, False) else None)
        with pytest.raises(KeyboardInterrupt):
            tree.forget([3])
    assert tree.digest() == after.digest()
    with monkeypatch.context() as patch:
        during(patch, lambda: signal.raise_signal(signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            tree.forget([5])
    with refused("estimators.interrupted", HalfAppliedError, estimator="FullyDynamicTreeClassifier"):
        tree.predict(X)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_another_handler_that_raises_is_met_by_the_mark(tree, handler, monkeypatch, tmp_path) -> None:
    before = tree.digest()
    former = signal.signal(signal.SIGALRM, lambda *_: (_ for _ in ()).throw(TimeoutError("too slow")))
    acts = iter([lambda: None, lambda: signal.raise_signal(signal.SIGALRM)])
    with monkeypatch.context() as patch:
        during(patch, lambda: next(acts)())
        with pytest.raises(TimeoutError):
            tree.replace_examples([3], [[3.5]], [1])
    signal.signal(signal.SIGALRM, former)
    assert signal.getsignal(signal.SIGINT) is handler
    for call in (tree.digest, tree.audit, lambda: copy.copy(tree), lambda: copy.deepcopy(tree)):
        with pytest.raises(HalfAppliedError):
            call()
    tree.save(tmp_path / "state", with_examples=True)
    loaded = load_model(tmp_path / "state")
    assert sorted(loaded.row_ids_.tolist()) == list(range(40))
    assert loaded.digest() == before  # of one training: the same model
    assert tree.fit(X, Y).digest() == before


def test_in_another_thread_signals_are_left_alone(tree, handler, monkeypatch) -> None:
    found: list[Any] = []
    during(monkeypatch, lambda: found.append(signal.getsignal(signal.SIGINT)))
    thread = threading.Thread(target=tree.forget, args=([3],))
    thread.start()
    thread.join()
    assert found == [handler] * 2
    assert tree.session_.coordinator.store.live == 39


def test_a_prediction_waits_for_a_change_in_another_thread(tree, monkeypatch) -> None:
    before, found, others = tree.predict(X), list[Any](), list[threading.Thread]()

    def ask() -> None:
        others.append(threading.Thread(target=lambda: found.append(tree.predict(X))))
        others[-1].start()
        others[-1].join(0.1)

    during(monkeypatch, ask)
    tree.forget([3])
    for other in others:
        other.join()
    assert [len(one) for one in found] == [len(before)] * len(others)
    assert found


def test_threads_take_turns(tree) -> None:
    errors: list[BaseException] = []

    def change(first: int) -> None:
        try:
            for i in range(first, first + 20):
                tree.partial_fit([[i / 3]], [i % 2], ids=[i])
                tree.predict(X)
                tree.digest()
                if i % 3 == 0:
                    tree.forget([i], digests=False)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=change, args=(first,)) for first in (100, 200, 300)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    gone = sum(i % 3 == 0 for first in (100, 200, 300) for i in range(first, first + 20))
    assert (errors, tree.session_.coordinator.store.live) == ([], 100 - gone)
    assert tree.audit().ok


def test_a_first_example_that_is_interrupted_leaves_nothing(monkeypatch) -> None:
    tree = RiverTreeClassifier()
    with monkeypatch.context() as patch:
        during(patch, lambda: (_ for _ in ()).throw(MemoryError))
        with pytest.raises(MemoryError):
            tree.learn_one({"a": 1.0, "b": "x"}, "no")
    assert (tree.predict_one({}), tree._labels, tree._keys) == (None, {}, ())
    tree.learn_one({"c": 1.0}, 3)
    assert tree.predict_one({"c": 0.0}) == 3


def test_an_example_that_breaks_off_leaves_an_adapter_that_refuses(monkeypatch) -> None:
    tree = RiverTreeClassifier()
    for i in range(10):
        tree.learn_one({"a": i}, i > 4)
    acts = iter([lambda: None, lambda: (_ for _ in ()).throw(MemoryError)])
    with monkeypatch.context() as patch:
        during(patch, lambda: next(acts)())
        with pytest.raises(MemoryError):
            tree.learn_one({"a": 3}, True)
    for call in (lambda: tree.predict_one({"a": 3}), lambda: tree.forget_one({"a": 3}, True), tree.audit):
        with refused("estimators.interrupted_stream", HalfAppliedError):
            call()
