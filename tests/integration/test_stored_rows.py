"""The audit sees every value of a row that a state stores: each learner, one value changed, all hashes right again."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from pipelines.cli import cli
from pipelines.running.job import replay
from raydt.errors import ModelFileError
from raydt.learners import learners, traits_of
from tests.fuzz.reseal import with_arrays

N, WIDTH = 160, 40
#: Settings under which rows matter most; a learner not listed has its defaults. Features follow from the options.
CASES: dict[str, list[dict[str, Any]]] = {
    "fudyadt": [{}],
    "sparse_tree": [{"finder": "updgini", "alpha": 0.05, "beta": 0.05}],
    "gbdt": [{"max_iter": 2, "max_leaf_nodes": 4, "update_every": 16}],
    "confidence_tree": [{"grace_period": 8, "c": 0.01}],
    "best_split": [{}],
}
SETTINGS = [(kind, settings) for kind in sorted(learners()) for settings in CASES.get(kind, [{}])]

Components = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Numbers, a category and sparse features; the class goes with the number and with one of the ones."""
    rng = np.random.default_rng(2)
    y = rng.integers(0, 2, N)
    ones = [sorted({int(y[i]), *rng.integers(2, WIDTH - 1, 3).tolist()}) for i in range(N)]
    columns = {
        "a": np.round(rng.random(N) + 0.5 * y, 2),
        "b": rng.choice(list("rgb"), N),
        "words": pa.array(ones, pa.list_(pa.int32())),
        "y": np.array(["no", "yes"])[y],
    }
    path = tmp_path_factory.mktemp("data") / "rows.parquet"
    pq.write_table(pa.table(columns).replace_schema_metadata({"n_features": str(WIDTH)}), path)
    return path


@pytest.fixture(scope="module", params=SETTINGS, ids=lambda case: "-".join([case[0], *map(str, case[1].values())]))
def run(request: pytest.FixtureRequest, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with deleted rows among those of its segments, and a path of its own to the state."""
    kind, settings = request.param
    reading = traits_of(learners()[kind].Options.model_validate(settings)).reading
    dense = [] if reading.needs_sparse else ["a", "b"]
    features = dense + ["words"] * reading.sparse
    job = {
        "source": {"kind": "parquet", "path": str(data), "label": "y", "features": features},
        "stream": {"model": "sliding_window", "window": 90, "warmup": 60},
        "learner": {"kind": kind, "feature_groups": 3, **settings},
        "cluster": {"backend": "in_process"},
        "checkpoint": {"every_updates": 70, "every_seconds": None},
        "output": {"report": False},
    }
    return Path(replay(job, tmp_path_factory.mktemp("runs") / "run").path)


def last_state(run: Path) -> Path:
    return max((run / "checkpoints").glob("[0-9]*"), key=lambda folder: int(folder.name))


def audited(run: Path, tmp_path: Path, change: Callable[[Components], None]) -> tuple[int, dict[str, Any]]:
    """Exit code and report of ``raydt audit`` after a change of the last state."""
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    state = last_state(copy)
    folders = {"": state, "../rows/": state.parent / "rows"}
    names = {entry["name"] for entry in json.loads((state / "manifest.json").read_text())["files"]} | {"manifest.json"}
    contents = {name: (state / name).read_bytes() for name in names}
    for name, content in with_arrays(contents, change).items():
        folder, _, file = name.rpartition("/")
        (folders[folder + "/" * bool(folder)] / file).write_bytes(content)
    done = CliRunner().invoke(cli, ["audit", str(copy), "--json"], standalone_mode=False)
    if done.exception is not None:
        raise done.exception
    return int(done.return_value), json.loads(done.stdout)


def a_live_row(components: Components, rank: float) -> tuple[str, int]:
    """A segment and the place in it of a row that lives, the older the lower ``rank``."""
    found = []
    for name, part in components.items():
        if name.startswith("rows-") and "-group-" not in name:
            alive = np.unpackbits(components["live"][name.removeprefix("rows-")], count=len(part["born"]))
            found += [(name, int(i)) for i in np.flatnonzero(alive)]
    return found[int(rank * (len(found) - 1))]


def groups(components: Components, segment: str) -> list[dict[str, Any]]:
    return [part for name, part in sorted(components.items()) if name.startswith(f"{segment}-group-")]


def test_a_sound_state_holds(run: Path, tmp_path: Path) -> None:
    code, report = audited(run, tmp_path, lambda components: None)
    assert (code, report["failures"], report["conformance"]) == (0, [], "holds")


@pytest.mark.parametrize("rank", [0.0, 0.4, 1.0])
def test_a_changed_feature_is_a_failure(run: Path, tmp_path: Path, rank: float) -> None:
    """A dense value that is any other number, or an index that is moved to one nobody has."""
    changed: list[tuple[int, str]] = []

    def change(components: Components) -> None:
        segment, i = a_live_row(components, rank)
        example = int(components[segment]["id"][i])
        for part in groups(components, segment):
            if part["X"].shape[1]:
                changed.append((example, f": {part['X'][i, 0] + 1.0} instead of {part['X'][i, 0]}"))
                part["X"][i, 0] += 1.0
                return
        raise AssertionError("there is no dense feature")

    def move(components: Components) -> None:
        segment, i = a_live_row(components, rank)
        example = int(components[segment]["id"][i])
        for part in groups(components, segment):
            lengths, values = part["sparse_lengths"], part["sparse_values"]
            begin = int(lengths[:i].sum())
            own = values[begin : begin + lengths[i]]
            others = np.setdiff1d(values, own)
            if len(own) and len(others):
                moved = np.sort(np.append(own[1:], others[0]))
                least = min(own[0], others[0])
                held = int(least == others[0])
                part["sparse_values"] = np.concatenate([values[:begin], moved, values[begin + len(own) :]])
                changed.append((example, f"'words[{least}]' of id {example}: {held} instead of {1 - held}"))
                return
        raise AssertionError("no row has a one")

    options = json.loads((last_state(run) / "manifest.json").read_text())["meta"]["features"]
    kinds = {feature["kind"] for feature in options}
    for number, mutate in enumerate([change] * bool(kinds - {"sparse"}) + [move] * ("sparse" in kinds)):
        code, report = audited(run, tmp_path / str(number), mutate)
        example, values = changed[-1]
        assert (code, report["conformance"]) == (3, "violated")
        assert f"of id {example}" in report["failures"][0]
        assert values in report["failures"][0]


@pytest.mark.parametrize("array", ["id", "y", "born"])
def test_a_changed_id_label_or_birth_is_a_failure(run: Path, tmp_path: Path, array: str) -> None:
    def change(components: Components) -> None:
        segment, i = a_live_row(components, 0.5)
        column = components[segment][array]
        # A number that no other row has, and that its loading cannot refuse.
        free = {"id": 1, "y": 1 - column[i], "born": column[i]}[array]
        if array == "born":
            free = np.setdiff1d(np.arange(components["coordinator"]["seq"][0]), column)[0]
        column[i] = free

    code, report = audited(run, tmp_path, change)
    assert (code, report["conformance"]) == (3, "violated"), report
    column = {"id": "id", "y": "label", "born": "id"}[
        array
    ]  # with another birth, another row of the source is compared
    assert report["failures"][0].startswith(f"1 stored value differs from the source, first {column} of id ")


def test_a_live_row_that_is_marked_deleted_is_a_failure(run: Path, tmp_path: Path) -> None:
    def change(components: Components) -> None:
        segment, i = a_live_row(components, 1.0)
        bitmap = components["live"][segment.removeprefix("rows-")]
        bitmap[i // 8] ^= 128 >> i % 8

    code, report = audited(run, tmp_path, change)
    assert (code, report["conformance"]) == (3, "violated")


def test_a_bitmap_that_is_too_short_is_refused(run: Path, tmp_path: Path) -> None:
    """Missing bits would be read as deleted rows."""

    def change(components: Components) -> None:
        name = max(components["live"], key=lambda name: len(components["live"][name]))
        components["live"][name] = components["live"][name][:-1]

    with pytest.raises(ModelFileError, match=r"the bitmap of rows-\d+-\d+ does not have a bit for each of \d+ rows"):
        audited(run, tmp_path, change)
