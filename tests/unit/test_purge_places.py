"""Purges of folders that are not as raydt has left them: links, files of others, disks and clocks; and siblings."""

from __future__ import annotations

import errno
import json
import os
import random
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from small_job import JOB

import pipelines
from pipelines.cli import cli
from pipelines.purging import purge
from pipelines.purging.runs import RunPurge, StatePurge, Work
from pipelines.run_folder import RunFolder
from raydt import FullyDynamicTreeClassifier
from raydt.errors import ConfigError, InputError
from raydt.folders import folder as lock
from raydt.folders.folder import Folder
from raydt.messages import message
from tests import strangers
from tests.refusals import refused


def replayed(folder: Path, **checkpoint: Any) -> Path:
    """A run whose window deletes."""
    stream = {"model": "sliding_window", "window": 100}
    config = {**JOB, "stream": stream, "checkpoint": {"every_updates": 200, "every_seconds": None, **checkpoint}}
    return Path(pipelines.replay({**config, "output": {"predictions": True, "report": False}}, folder).path)


def state(folder: Path) -> Path:
    """A state of a model that has deleted an example."""
    model = FullyDynamicTreeClassifier().fit([[0.0], [1.0], [2.0]], [0, 1, 1])
    model.forget([1])
    model.save(folder, with_examples=True)
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    """All files of a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    "name", ["checkpoints", "predictions", "model", "summary.json", "log.jsonl", ".merging.parquet"]
)
def test_a_link_in_the_place_of_what_a_run_has_is_refused(name: str, tmp_path: Path) -> None:
    run = replayed(tmp_path / "run")
    place = run / "predictions" / name if name.startswith(".") else run / name
    away = tmp_path / "away"
    if place.exists():
        place.rename(away)
    else:
        away.touch()
    place.symlink_to(away)
    before = contents(tmp_path)
    with refused("purges.link", InputError) as caught:
        purge(run)
    assert Path(caught.value.file).name == name
    assert contents(tmp_path) == before


def test_the_folder_itself_may_be_a_link(tmp_path: Path) -> None:
    run = replayed(tmp_path / "run")
    (tmp_path / "latest").symlink_to(run)
    assert purge(tmp_path / "latest")["rewritten"]


def test_files_of_others_beside_checkpoints_elsewhere_and_in_a_state_are_left_alone(tmp_path: Path) -> None:
    run, saved = replayed(tmp_path / "run", path=str(tmp_path / "states")), state(tmp_path / "state")
    for place, folder in ((run, tmp_path / "states"), (saved, saved)):
        foreign = strangers.put(folder, tmp_path / f"outside {folder.name}", random.Random(str(folder)))
        before = strangers.seen(folder, foreign)
        names = foreign if place == folder else [str(folder / name) for name in foreign]
        assert purge(place)["left_alone"] == sorted(names)
        assert strangers.seen(folder, foreign) == before
    shown = CliRunner().invoke(cli, ["purge", str(saved)]).output
    assert message("commands.left_alone") in shown
    assert CliRunner().invoke(cli, ["purge", str(saved), "--json"], standalone_mode=False).return_value == 0


def test_a_run_takes_away_nothing_of_others(tmp_path: Path) -> None:
    """Not with its checkpoints, not at a resume, and not where it is replaced."""
    run = replayed(tmp_path / "run", keep=1)
    (run / "summary.json").unlink()  # as if it had been killed at the end
    foreign = strangers.put(run, tmp_path / "outside", random.Random(1))
    before = strangers.seen(run, foreign), contents(tmp_path / "outside")
    pipelines.resume(run)
    assert strangers.seen(run, foreign) == before[0]
    RunFolder.create(run, overwrite=True)
    assert (strangers.seen(run, foreign), contents(tmp_path / "outside")) == before
    assert sorted(Folder(run).files()) == foreign


def of_storage(*_: Any, **__: Any) -> None:
    """A disk that is mounted read-only."""
    raise OSError(errno.EROFS, os.strerror(errno.EROFS))


@pytest.mark.parametrize("make", [replayed, state])
def test_a_dry_run_needs_no_disk_to_write_to(
    make: Callable[[Path], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make(tmp_path / "it")
    plan = purge(folder, dry_run=True)
    with monkeypatch.context() as patch:
        for name in ("_open_to_write", "_rename", "_delete_file", "_delete_folder", "_make"):
            patch.setattr(Folder, name, of_storage)
        patch.setattr(lock.FileLock, "acquire", of_storage)
        patch.setattr(lock.Path, "write_text", of_storage)
        assert purge(folder, dry_run=True) == plan
        with pytest.raises(Exception, match="Read-only file system"):
            purge(folder)


def set_clock(folder: Path, time: datetime) -> None:
    """Have a run or a state be as old as if it had been written at a time."""
    if (folder / "summary.json").exists():
        summary = json.loads((folder / "summary.json").read_text())
        (folder / "summary.json").write_text(json.dumps({**summary, "ended": time.isoformat()}))
    else:
        os.utime(folder / "manifest.json", (time.timestamp(), time.timestamp()))


@pytest.mark.parametrize(("make", "work"), [(replayed, RunPurge), (state, StatePurge)])
def test_a_time_in_the_future_is_told(make: Callable[[Path], Path], work: type[Work], tmp_path: Path) -> None:
    folder = make(tmp_path / "it")
    (folder / ".summary.json.0").touch()
    now = datetime.now(timezone.utc)
    set_clock(folder, now + timedelta(days=400))
    before = contents(folder)
    for dry_run in (True, False):
        with refused("purges.clocks", clock=work.clock):
            purge(folder, older_than="7d", dry_run=dry_run)
    assert contents(folder) == before
    set_clock(folder, now + timedelta(seconds=120))  # by which clocks of two machines differ
    before = contents(folder)
    assert purge(folder, older_than="7d")["young"]
    assert contents(folder) == before
    set_clock(folder, now - timedelta(days=8))
    assert not purge(folder, older_than="7d")["young"]
    set_clock(folder, now + timedelta(days=400))
    assert not purge(folder)["young"]
    with refused("purges.older_than", ConfigError, given="soon", problem=message("streams.time_or_number")):
        purge(folder, older_than="soon")


def test_an_end_that_is_no_time_is_one_error(tmp_path: Path) -> None:
    run = replayed(tmp_path / "run")
    for ended in (None, 7, "yesterday"):
        summary = json.loads((run / "summary.json").read_text())
        (run / "summary.json").write_text(json.dumps({**summary, "ended": ended}))
        with refused("runs.damaged_summary", InputError):
            purge(run)
