"""Progress: dense lines at first and sparse ones later, a bar on terminals only."""

from __future__ import annotations

import sys

import pytest

from pipelines import display as progress
from pipelines.display import Bar, Lines, Reporter, reporter


class Clock:
    def __init__(self):
        self.now = 0.0

    def monotonic(self):
        return self.now


def test_lines_become_sparser(monkeypatch, capsys):
    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    lines = Lines(interval=10)
    lines.start(100)
    written = []
    for second in range(60):
        clock.now = float(second)
        lines.update(second + 1, 5, "3 leaves", ("accuracy", 0.5))
        if capsys.readouterr().err:
            written.append(second)
    assert written == [1, 3, 7, 15, 25, 35, 45, 55]


@pytest.mark.parametrize(
    ("start", "accuracy", "line"),
    [
        ({"total": 4000}, 0.8256, "1,000 of 4,000 (25%) updates, 500/s, 77 live, 12 leaves, accuracy 0.826"),
        ({"total": 4000, "done": 900}, 0.5, "1,000 of 4,000 (25%) updates, 50/s, 77 live, 12 leaves, accuracy 0.500"),
        ({"total": None}, float("nan"), "1,000 updates, 500/s, 77 live, 12 leaves"),
    ],
    ids=["a line", "the speed is of this process", "an accuracy that is not known yet"],
)
def test_a_line_says_what_matters(monkeypatch, capsys, start, accuracy, line):
    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    lines = Lines()
    lines.start(**start)
    clock.now = 2.0
    lines.update(1000, 77, "12 leaves", ("accuracy", accuracy))
    assert capsys.readouterr() == ("", line + "\n")


@pytest.mark.parametrize("kind", [Bar, Lines, Reporter])
def test_stdout_stays_clean_and_an_unknown_length_is_fine(kind, capsys):
    shown = kind()
    shown.stage("x")
    shown.start(None)
    shown.update(10, 5, "3 leaves", ("accuracy", float("nan")))
    shown.stop()
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(("terminal", "kind"), [(True, Bar), (False, Lines)])
def test_the_bar_is_for_terminals(monkeypatch, terminal, kind):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal, raising=False)
    assert isinstance(reporter(), kind)
