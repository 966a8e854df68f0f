"""Gathered rows may be views of what a shard keeps: no learner looks at one after the shard has taken other rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from raydt.batches.rows_on_shards import HeldRows
from raydt.learners.base import WorkPlan
from tests.cases import Trial, first_cases
from tests.nets.test_identity import result


@pytest.mark.parametrize("trial", first_cases(), ids=lambda trial: trial.name)
def test_no_view_is_seen_to_change(trial: Trial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that were handed out become NaN as soon as a slot is written."""
    ways = [(1, WorkPlan()), (3, trial.case.plan)]
    expected = [result(trial, tmp_path, shards, 16, plan) for shards, plan in ways]
    out: dict[int, list[Any]] = {}
    gather, put, restore = HeldRows.gather, HeldRows.put, HeldRows.restore

    def copied(self: HeldRows, slots: Any) -> dict[str, Any]:
        rows = gather(self, slots)
        rows["X"] = rows["X"].copy()
        out.setdefault(id(self), []).append(rows["X"])
        return rows

    def spoil(self: HeldRows) -> None:
        for X in out.pop(id(self), []):
            X[:] = np.nan

    def written(self: HeldRows, *rows: Any, **named: Any) -> None:
        spoil(self)
        put(self, *rows, **named)

    def restored(self: HeldRows, state: Any) -> None:
        spoil(self)
        restore(self, state)

    monkeypatch.setattr(HeldRows, "gather", copied)
    monkeypatch.setattr(HeldRows, "put", written)
    monkeypatch.setattr(HeldRows, "restore", restored)
    assert [result(trial, tmp_path, shards, 16, plan) for shards, plan in ways] == expected
