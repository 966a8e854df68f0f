"""The audit of a run compares every stored row with its source: one value is changed, and all hashes fit again."""

from __future__ import annotations

import functools
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import pipelines
from pipelines.auditing import audit_run
from raydt.audits.recorded_tree import AuditReport
from raydt.errors import ModelFileError
from raydt.examples.row_owners import buckets_of
from raydt.exchange.messages import OWNED
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


def births(components: Components, prefix: str) -> npt.NDArray[np.int64]:
    """Births in files of this beginning."""
    found = [part["born"] for name, part in components.items() if name.startswith(prefix) and "-group-" not in name]
    return np.concatenate(found)


def live_rows(components: Components) -> list[tuple[str, int]]:
    """A file of a segment and the place in it, of each row that lives, the oldest first."""
    found = []
    for name, part in components.items():
        if name.startswith("rows-") and "-group-" not in name:
            if "-buckets-" in name:
                alive = np.isin(part["born"], births(components, "buckets-"))
            else:
                alive = np.unpackbits(components["live"][name.removeprefix("rows-")], count=len(part["born"]))
            found += [(int(part["born"][i]), name, int(i)) for i in np.flatnonzero(alive)]
    return [(name, i) for _, name, i in sorted(found)]


def a_live_row(components: Components, rank: float) -> tuple[str, int]:
    """A file of a segment and the place in it of a row that lives, the older the lower ``rank``."""
    found = live_rows(components)
    return found[int(rank * (len(found) - 1))]


def a_row_of_groups(components: Components, rank: float) -> tuple[str, int]:
    """A segment and the place of such a row in the files of its groups."""
    name, i = a_live_row(components, rank)
    segment = name.partition("-buckets-")[0]
    return segment, int(np.count_nonzero(births(components, segment) < components[name]["born"][i]))


def change_number(components: Components, rank: float) -> None:
    """Add 1 to a value of a dense feature; a missing one becomes 1."""
    segment, i = a_row_of_groups(components, rank)
    part = next(p for n, p in components.items() if n.startswith(f"{segment}-group-") and p["X"].shape[1])
    part["X"][i, 0] = np.nan_to_num(part["X"][i, 0]) + 1.0


def change_index(components: Components, rank: float) -> None:
    """Move a one of a sparse feature to another feature of the same group."""
    segment, i = a_row_of_groups(components, rank)
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


def part_of(components: Components, born: int) -> dict[str, Any]:
    """What the owner of a row has written of it in full, if shards own rows."""
    return next((p for n, p in components.items() if n.startswith("buckets-") and born in p["born"]), {})


def change_of(array: str) -> Callable[[Components, float], None]:
    """Give a row another id, label or birth, which no other row has and which its loading cannot refuse."""

    def change(components: Components, rank: float) -> None:
        name, i = a_live_row(components, rank)
        if array == "born" and "-buckets-" in name:
            change_birth(components, rank)
            return
        column = components[name][array]
        free = np.setdiff1d(np.arange(components["coordinator"]["seq"][0]), column)
        if array == "id":  # of the same bucket, whose owner has it
            (bucket,) = buckets_of(column[i : i + 1])
            others = np.setdiff1d(np.arange(1 << 16), column)
            free = others[buckets_of(others) == bucket]
        column[i] = 1 - column[i] if array == "y" else free[0]

    return change


def change_birth(components: Components, rank: float) -> None:
    """Give a row that a shard owns, of those up to a rank or after it, a birth that leaves the order as it is."""
    rows = live_rows(components)
    begin = int(rank * (len(rows) - 1))
    for name, i in rows[begin:] + rows[:begin]:
        column = components[name]["born"]
        first, stop = map(int, name.split("-")[1:3])
        others = births(components, "-".join(name.split("-")[:3]) + "-buckets-")
        below = max((int(born) + 1 for born in others if born < column[i]), default=first)
        above = min((int(born) for born in others if born > column[i]), default=stop)
        free = [born for born in range(below, above) if born != column[i]]
        if free:
            own = part_of(components, int(column[i]))["born"]
            own[own == column[i]] = column[i] = free[0]
            return
    raise AssertionError("each row has the only birth that leaves the order as it is")


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
        others = {"audits.unknown_rows"} if name == "born" else set()  # no row was born then
        assert report.failures[0].id in {"audits.stored_value", *others}, name


@every_case("stored rows")
def test_a_bitmap_of_live_rows_is_checked(trial: Trial, run_of, tmp_path: Path) -> None:
    def flip(components: Components) -> None:
        name, i = a_live_row(components, 1.0)
        born = int(components[name]["born"][i])
        if "-buckets-" in name:
            owned = part_of(components, born)
            owned |= {name: np.delete(array, owned["born"] == born, axis=0) for name, array in owned.items()}
        else:
            components["live"][name.removeprefix("rows-")][i // 8] ^= 128 >> i % 8

    def cut(components: Components) -> None:
        """Missing bits would be read as deleted rows."""
        if OWNED in components["live"]:
            part = next(part for name, part in components.items() if name.startswith("buckets-"))
            part["born"] = part["born"][:-1]
            return
        name = max(components["live"], key=lambda name: len(components["live"][name]))
        components["live"][name] = components["live"][name][:-1]

    assert audited(run_of(trial), tmp_path / "flip", flip).conformance == "violated"
    with pytest.raises(ModelFileError, match=r"bitmap|must have an entry"):
        audited(run_of(trial), tmp_path / "cut", cut)
