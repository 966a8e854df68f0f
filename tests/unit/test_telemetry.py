"""What is counted of a run, whatever happens to it; and the port it is shown at."""

from __future__ import annotations

import socket
from typing import ClassVar

import pytest

from actors import telemetry
from actors.telemetry import Telemetry
from raydt.errors import ConfigError
from tests.refusals import refused


class Recorded:
    """Stands for a counter or gauge of Ray: refuses what Ray refuses, and keeps what it was given."""

    made: ClassVar[dict[str, list[float]]] = {}

    def __init__(self, name, description, keys):
        assert description
        assert keys == ("run",)
        self._values = self.made.setdefault(name, [])

    def set_default_tags(self, tags):
        assert tags == {"run": "a run"}
        return self

    def inc(self, value):
        assert value > 0
        self._values.append(value)

    set = inc


@pytest.fixture
def made(monkeypatch):
    """What was recorded, by metric."""
    from ray.util import metrics

    Recorded.made = {}
    Gauge = type("Gauge", (Recorded,), {"set": lambda self, value: self._values.append(value)})
    monkeypatch.setattr(metrics, "Counter", Recorded)
    monkeypatch.setattr(metrics, "Gauge", Gauge)
    return Recorded.made


def statistics(rebuilds, rounds, active=5):
    return {"active": active, "rebuilds": rebuilds, "rebuilt_rows": 10 * rebuilds, "rounds": rounds, "nodes": 3}


def test_what_is_repeated_after_a_loss_is_counted_once_and_traffic_as_it_was(made):
    meter = Telemetry("a run")
    meter.batch(statistics(4, 8), 100, 2)
    meter.batch(statistics(7, 12), 200, 2)
    meter.restarted()
    for updates, rebuilds, rounds in ((150, 5, 3), (200, 7, 7), (300, 9, 20)):
        meter.batch(statistics(rebuilds, rounds), updates, 1)
    assert sum(made["raydt_updates_total"]) == 300
    assert sum(made["raydt_rebuilds_total"]) == 9
    assert sum(made["raydt_rebuilt_rows_total"]) == 90
    assert sum(made["raydt_rounds_total"]) == 12 + (7 - 3) + (20 - 7)
    assert sum(made["raydt_restarts_total"]) == 1
    assert made["raydt_epoch"] == [1, 1, 2, 2, 2]
    assert made["raydt_queue_depth"] == [2, 2, 1, 1, 1]


def test_what_a_run_goes_on_from_was_counted_when_it_was_done(made):
    meter = Telemetry("a run", epoch=4)
    meter.begin(statistics(7, 12), 200)
    meter.batch(statistics(8, 15), 250, 1)
    meter.restarted()
    meter.begin(statistics(7, 12), 200)
    for updates, rebuilds, rounds in ((240, 8, 14), (300, 9, 20)):
        meter.batch(statistics(rebuilds, rounds), updates, 1)
    assert sum(made["raydt_updates_total"]) == 100
    assert sum(made["raydt_rebuilds_total"]) == 2
    assert sum(made["raydt_rounds_total"]) == (15 - 12) + (20 - 12), "repeated rounds are rounds"


def test_nothing_new_is_no_error_and_other_learners_have_other_statistics(made):
    meter = Telemetry("a run", epoch=3)
    for _ in range(2):
        meter.batch({"active": 0, "rounds": 1}, 10, 0)
    meter.checkpointed(0.0)
    assert made["raydt_updates_total"] == [10]
    assert made["raydt_rebuilds_total"] == []
    assert made["raydt_checkpoints_total"] == [1]
    assert made["raydt_epoch"] == [3, 3]


def test_a_port_that_is_taken_is_refused_before_ray_waits_for_it(monkeypatch):
    monkeypatch.setattr(telemetry, "LEAVING_SECONDS", 0.2)
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with refused("cluster.taken_port", ConfigError, port=port, reason="Address already in use"):
            telemetry.require_endpoint(port)
    telemetry.require_endpoint(port)


def test_a_ray_without_an_endpoint_is_refused(monkeypatch):
    monkeypatch.setattr(telemetry, "_SERVERS", ("json", "no_such_module"))
    with refused("cluster.no_endpoint", ConfigError, absent="no_such_module"):
        telemetry.require_endpoint(18080)
