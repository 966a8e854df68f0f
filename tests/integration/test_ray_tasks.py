"""Independent tasks on Ray: every result with its place, losses apart, nothing left running."""

from __future__ import annotations

import os
import time

import numpy as np
import pytest

from actors.cluster import cpus
from actors.keyed_session import run_tasks
from raydt.errors import InputError, ProcessLostError
from raydt.messages import message

pytestmark = [pytest.mark.ray, pytest.mark.nightly]


def total(shared, item):
    if item == "die":
        os._exit(1)
    if item == "raise":
        raise InputError("a bad thing", file="f", row=3)
    if item == "sleep":
        time.sleep(600)
    return item * int(shared["x"].sum()), shared["x"].flags.writeable


SHARED = {"x": np.arange(200_000)}
SUM = int(SHARED["x"].sum())


def test_results_with_their_places_and_a_lost_process_apart(cluster):
    results = dict(run_tasks(cluster, total, [(SHARED, [1, 2, "die", 4])]))
    lost = results.pop(2)
    assert results == {0: (SUM, False), 1: (2 * SUM, False), 3: (4 * SUM, False)}
    assert isinstance(lost, ProcessLostError)
    assert str(lost) == message("cluster.task_lost", error="WorkerCrashedError")
    assert cpus() >= 2


def test_what_the_work_raises_is_raised(cluster):
    with pytest.raises(InputError, match="f, row 3: a bad thing"):
        list(run_tasks(cluster, total, [(SHARED, ["raise"])]))


def test_what_is_under_way_is_ended(cluster):
    """The sleepers hold every CPU; the next piece can run only once they are gone."""
    seen = []
    for answer in run_tasks(cluster, total, [(SHARED, [1, *["sleep"] * cpus()])], lambda: bool(seen)):
        seen.append(answer)
    assert seen == [(0, (SUM, False))]
    assert list(run_tasks(cluster, total, [(SHARED, [5])])) == [(0, (5 * SUM, False))]


def test_a_part_is_asked_for_when_there_are_cpus_for_it(cluster):
    asked, answered = [], []

    def parts():
        for number in range(6):
            asked.append((number, len(answered)))
            yield {"x": np.full(3, number)}, [10] * number

    for answer in run_tasks(cluster, total, parts()):
        answered.append(answer)
    expected = [(30 * number, False) for number in range(6) for _ in range(number)]
    assert [result for _, result in sorted(answered)] == expected
    assert [index for index, _ in sorted(answered)] == list(range(15))
    for number, done in asked:
        assert done > sum(range(number)) - cpus()
