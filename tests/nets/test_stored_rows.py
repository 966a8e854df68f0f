"""The audit of a run compares every stored row with its source: one value is changed, and all hashes fit again."""

from __future__ import annotations

import functools
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipelines
from pipelines.auditing import audit_run
from raydt.audits.audit_report import AuditReport
from raydt.errors import ModelFileError
from raydt.examples.row_owners import buckets_in, buckets_of
from tests.cases import CASES, Trial, every_case
from tests.fuzz.reseal import with_arrays

Components = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def run_of(tmp_path_factory: pytest.TempPathFactory):
    """A run of a case with deleted rows among those of its segments."""

    @functools.cache
    def run(name: str) -> Path:
        folder = tmp_path_factory.mktemp("run")
        trial = next(trial for trial in CASES if trial.name == name)
        return Path(pipelines.replay(trial.config(folder), folder / "run").path)

    return lambda trial: run(trial.name)


def audited(run: Path, folder: Path, change: Callable[[Components], None]) -> AuditReport:
    """The audit after a change of the last state."""
    copy = folder / "run"
    shutil.copytree(run, copy)
    state = max((copy / "checkpoints").glob("[0-9]*"), key=lambda place: int(place.name))
    folders = {"": state, "../rows/": state.parent / "rows"}
    names = {entry["name"] for entry in json.loads((state / "manifest.json").read_text())["files"]} | {"manifest.json"}
    contents = {name: (state / name).read_bytes() for name in names}
    for name, content in with_arrays(contents, change).items():
        place, _, file = name.rpartition("/")
        (folders[place + "/" * bool(place)] / file).write_bytes(content)
    return audit_run(copy)


def a_live_row(components: Components, rank: float) -> tuple[str, int]:
    """A segment and the place in it of a row that lives, the older the lower ``rank``."""
    found = []
    for name, part in components.items():
        if name.startswith("rows-") and "-group-" not in name:
            alive = np.unpackbits(components["live"][name.removeprefix("rows-")], count=len(part["born"]))
            found += [(name, int(i)) for i in np.flatnonzero(alive)]
    return found[int(rank * (len(found) - 1))]


def change_number(components: Components, rank: float) -> None:
    """Add 1 to a value of a dense feature; a missing one becomes 1."""
    segment, i = a_live_row(components, rank)
    part = next(p for n, p in components.items() if n.startswith(f"{segment}-group-") and p["X"].shape[1])
    part["X"][i, 0] = np.nan_to_num(part["X"][i, 0]) + 1.0


def change_index(components: Components, rank: float) -> None:
    """Move a one of a sparse feature to another feature of the same group."""
    segment, i = a_live_row(components, rank)
    for name, part in components.items():
        if name.startswith(f"{segment}-group-"):
            lengths, values = part["sparse_lengths"], part["sparse_values"]
            begin = int(lengths[:i].sum())
            own = values[begin : begin + lengths[i]]
            others = np.setdiff1d(values, own)
            if len(own) and len(others):
                moved = np.sort(np.append(own[1:], others[0]))
                part["sparse_values"] = np.concatenate([values[:begin], moved, values[begin + len(own) :]])
                return
    raise AssertionError("no row has a one")


def part_of_bucket(components: Components, bucket: int) -> dict[str, Any]:
    """What the owner of a bucket has written, if shards own rows."""
    return next((part for name, part in components.items() if bucket in (buckets_in(name) or ())), {})


def change_of(array: str) -> Callable[[Components, float], None]:
    """Give a row another id, label or birth, which no other row has and which its loading cannot refuse."""

    def change(components: Components, rank: float) -> None:
        segment, i = a_live_row(components, rank)
        column = components[segment][array]
        free = np.setdiff1d(np.arange(components["coordinator"]["seq"][0]), column)
        if array == "id":  # of the same bucket, so that both copies say the same
            former, (bucket,) = column[i], buckets_of(column[i : i + 1])
            others = np.setdiff1d(np.arange(1 << 16), column)
            free = others[buckets_of(others) == bucket]
            owned = part_of_bucket(components, bucket)
            if owned:
                owned["id"][owned["id"] == former] = free[0]
        column[i] = 1 - column[i] if array == "y" else free[0]

    return change


@every_case("stored rows")
def test_every_stored_value_is_compared_with_the_source(trial: Trial, run_of, tmp_path: Path) -> None:
    changes = {name: change_of(name) for name in ("id", "y", "born")}
    changes |= {"number": change_number} if trial.case.dense else {}
    changes |= {"index": change_index} if trial.case.sparse else {}
    for number, (name, change) in enumerate(changes.items()):
        rank = (0.0, 0.4, 1.0)[number % 3]
        folder = tmp_path / name
        folder.mkdir()
        report = audited(run_of(trial), folder, lambda components, change=change, rank=rank: change(components, rank))
        assert report.conformance == "violated", name
        assert report.failures[0].id == "audits.stored_value", name


@every_case("stored rows")
def test_a_bitmap_of_live_rows_is_checked(trial: Trial, run_of, tmp_path: Path) -> None:
    def flip(components: Components) -> None:
        segment, i = a_live_row(components, 1.0)
        components["live"][segment.removeprefix("rows-")][i // 8] ^= 128 >> i % 8
        (own,) = components[segment]["id"][i : i + 1]
        owned = part_of_bucket(components, *buckets_of(np.array([own])))
        owned |= {name: np.delete(array, owned["id"] == own, axis=0) for name, array in owned.items()}

    def cut(components: Components) -> None:
        """Missing bits would be read as deleted rows."""
        name = max(components["live"], key=lambda name: len(components["live"][name]))
        components["live"][name] = components["live"][name][:-1]

    assert audited(run_of(trial), tmp_path / "flip", flip).conformance == "violated"
    with pytest.raises(ModelFileError, match="bitmap"):
        audited(run_of(trial), tmp_path / "cut", cut)
