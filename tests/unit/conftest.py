"""Fixtures of the tests that run commands."""

from __future__ import annotations

import logging

import pytest

from pipelines.cli import main
from pipelines.operation import dump_yaml
from tests.unit.updatable import JOB, replayed


@pytest.fixture(scope="session")
def shared(tmp_path_factory):
    """A folder with a run of text ids under ``positive`` for updates, which no test changes."""
    folder = tmp_path_factory.mktemp("text")
    replayed(folder, positive="yes")
    return folder


@pytest.fixture
def raydt(capfd):
    """Run a command; gives exit code, stdout and stderr."""

    def run(*arguments):
        before = list(logging.getLogger().handlers)
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        logging.getLogger().handlers[:] = before
        out, err = capfd.readouterr()
        return ended.value.code or 0, out, err

    return run


@pytest.fixture
def job(tmp_path):
    file = tmp_path / "job.yaml"
    file.write_text(dump_yaml(JOB))
    return file
