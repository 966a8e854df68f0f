"""The examples that commands print run as printed, one after another in a folder that was empty."""

from __future__ import annotations

import inspect
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import pipelines
from pipelines.cli import cli, main

DEMO = Path(pipelines.__file__).with_name("demo.yaml")
#: What an example begins with that is not run here, and why.
NOT_RUN = {
    "raydt demo": "Ray is started by the tests of the demo; here it runs in process",
    "raydt follow": "needs a table that changes, and has no end",
    "raydt serve": "has no end",
    "curl": "asks a server",
    "raydt predict": "needs rows of the reader's",
    "raydt export": "needs the library of the other format",
    "raydt update runs/first --changes": "needs a change log of the reader's",
    "raydt update states ": "needs changes of the reader's",
    "raydt audit runs/first --shards": "starts Ray",
    "raydt verify receipts": "needs receipts with a key of the reader's",
    "raydt verify runs states": "needs persons among the rows of the reader's",
    "raydt verify runs/live": "needs a run that follows",
    "raydt doctor": "starts Ray, needs a bucket, or compiles all kernels",
}


def examples(name: str | None = None) -> Iterator[str]:
    """The commands that the help of a command, or the first page of help, shows."""
    text = inspect.getdoc((cli if name is None else cli.commands[name]).callback) or ""
    for line in text.splitlines():
        shown = re.search(r"(?:^|  )((?:raydt|curl|\(echo) .+)$", line)
        if shown is not None:
            yield shown.group(1)


def is_run(command: str) -> bool:
    return not any(command.startswith(start) for start in NOT_RUN)


def test_each_command_shows_an_example() -> None:
    found = {name: list(examples(name)) for name in cli.commands}
    assert not [name for name, shown in found.items() if not shown]
    assert all(any(one.startswith(start) for shown in found.values() for one in shown) for start in NOT_RUN)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a reader after the demo and the example of ``replay``, whose runs the others take."""
    place = tmp_path_factory.mktemp("reader")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        pipelines.replay(DEMO, "runs/demo", overrides=["cluster.backend=in_process"])
        for command in examples("replay"):
            run(command)
    return place


def run(command: str) -> None:
    """Run a line of the help."""
    if command.startswith("("):
        subprocess.run(command, shell=True, check=True)
        return
    with pytest.raises(SystemExit) as ended:
        main(shlex.split(command)[1:])
    assert ended.value.code in (0, None), command


@pytest.mark.timeout(900)  # kernels may have to be compiled
@pytest.mark.parametrize("name", [one for one in cli.commands if one != "replay" and any(map(is_run, examples(one)))])
def test_the_examples_run_as_printed(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    for command in filter(is_run, examples(name)):
        run(command)


def test_the_first_steps_are_examples() -> None:
    shown = {one.replace("runs/first", "runs/demo") for name in cli.commands for one in examples(name)}
    assert set(examples()) <= shown
