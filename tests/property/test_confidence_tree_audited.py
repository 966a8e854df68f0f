"""Whatever a stream does to a confidence tree, its state passes the checks and its audit holds."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from raydt.streams.history import history_of
from tests.confidence_streams import (
    LEARNER,
    RULES,
    GroupedStream,
    drawn_options,
    grown,
    options_for,
    session_of,
    short_streams,
)
from tests.volume import examples


def assert_sound(stream: GroupedStream, options: dict[str, Any], finishes: bool) -> int:
    """Run a stream, audit it, and say how many splits there were."""
    session = session_of(stream, options, 2)
    for batch in stream.batches([50]):
        session.apply(batch)
    if finishes:
        session.finish()
    state, groups = session.state()
    fitted = LEARNER.Options(**options)
    LEARNER.check(fitted, stream.features, stream.classes, state, groups)
    source = SimpleNamespace(features=stream.features, target_dtype=np.dtype(np.int32))
    unread = stream.batches([70])
    history = history_of(SimpleNamespace(source=source, batches=lambda most: unread))  # type: ignore[arg-type]
    report = LEARNER.audit(fitted, stream.features, state, history, groups)
    assert report.failures == []
    assert report.ok
    return report.checked["splits_replayed"]


@pytest.mark.parametrize("rule", RULES)
def test_long_streams(rule: str) -> None:
    splits = 0
    for seed in range(12):
        stream = grown(seed, 400, classes=2 + seed % 2)
        options = drawn_options(np.random.default_rng(seed), stream.classes, rule)
        splits += assert_sound(stream, options, finishes=True)
    assert splits > 10


@examples(40)
@given(short_streams(), options_for(2))
def test_short_streams(stream: GroupedStream, options: dict[str, Any]) -> None:
    if stream.classes > 2 and options.get("criterion") == "kearns_mansour":
        options = {**options, "criterion": "gini"}
    assert_sound(stream, options, finishes=len(stream.columns) % 2 == 0)
