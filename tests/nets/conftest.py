"""Fixtures of a session for nets: a private Ray, a run of every case, and the states at the end of its stream."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import pipelines
from raydt.streams.base import history_of
from tests.cases import CASES, Trial
from tests.crews import crew, number_of
from tests.integration.conftest import cluster

__all__ = ["cluster"]


@pytest.fixture(autouse=True)
def _threads(request: pytest.FixtureRequest) -> Iterator[None]:
    """Each case has a number of threads, which its name draws; a module whose tests draw it says the most."""
    with crew(getattr(request.module, "MOST_THREADS", number_of(request.node.nodeid))):
        yield


@pytest.fixture(scope="session")
def run_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Trial], pipelines.RunResult]:
    """A finished run of a case in this process, which no test changes."""

    @functools.cache
    def run(name: str) -> pipelines.RunResult:
        trial = next(trial for trial in CASES if trial.name == name)
        folder = tmp_path_factory.mktemp("run")
        return pipelines.replay(trial.config(folder), folder / "run")

    return lambda trial: run(trial.name)


@pytest.fixture(scope="session")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Trial], tuple[Any, ...]]:
    """What there is at the end of the stream of a case: features, classes, state, groups, history, model."""

    @functools.cache
    def end(name: str) -> tuple[Any, ...]:
        trial = next(trial for trial in CASES if trial.name == name)
        folder = tmp_path_factory.mktemp("sound")
        stream = trial.stream(folder)
        session = trial.session(stream)
        for _ in session.process(stream.batches(16), skip_refused=True):
            pass
        session.finish()
        source, state = stream.source, session.state()
        history = history_of(trial.stream(folder))
        return trial.features(source), len(source.classes), *state, history, session.model()

    return lambda trial: end(trial.name)
