"""Receipts of a run that follows a topic on Ray: those of the same run in one process, with the same offsets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("confluent_kafka")

from pipelines import replay
from pipelines.auditing import verify_receipts
from tests.unit.test_live_kafka import Broker, job, plain
from tests.unit.test_requests import said


@pytest.mark.nightly
def test_a_topic_on_ray_leaves_the_same_chain(cluster: Any, tmp_path: Path) -> None:
    broker, given = Broker(), {"output": {"report": False, "receipts": True}}
    for id in range(400):
        broker.send("asked", id, plain("c", id))
    for id in range(0, 400, 7):
        broker.send("asked", id, plain("d", id))
    broker.flush()
    one = replay(job(broker, "asked", **given), tmp_path / "one")
    on_ray = {"backend": "ray", "shards": 2, "memory_limit": 0, "batch_size": 16}
    other = replay(job(broker, "asked", **given, cluster=on_ray), tmp_path / "ray")
    assert one.digest == other.digest
    assert said(tmp_path / "one") == said(tmp_path / "ray")
    (entry,) = [entry for entry in said(tmp_path / "ray") if entry["deleted"]]
    assert entry["deleted"].keys() == {*range(0, 400, 7)}
    found = verify_receipts(tmp_path / "ray" / "receipts.jsonl", tmp_path / "ray", ids=["7"])
    assert (found["ok"], found["ids"][0]["live"]) == (True, False)
