"""The plans of a run that reads a live source: each is in the run folder for good before a row of it is read.

Invariant: ``plans.jsonl`` has the plans 0, 1, 2, ... in order, one to a line; a line that was cut short was never used.
That of a chapter begins with the first plan that was made in it. A line has a hash of its values: what is damaged is
never read as another plan, which would lose rows or take them twice.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any

from pipelines.run_folder import RunFolder
from raydt.errors import ConfigError, InputError
from raydt.exchange.faults import fault
from raydt.messages import message
from raydt.sources.identity import hashed
from raydt.sources.live.followed import Step

PLANS = "plans.jsonl"

#: Plans read from the file at once, of a run that is resumed.
TOGETHER = 10_000


class PlanLog:
    """Plans in the folder of a run; satisfies :class:`raydt.sources.live.followed.Plans`.

    For who only reads the run again it does not grow. The next plan of a chapter may have been made in one of those
    ``before``, newest first, when rows were read ahead.
    """

    def __init__(self, folder: RunFolder, grows: bool = True, before: Sequence[RunFolder] = ()) -> None:
        if not folder.is_local:
            raise ConfigError(message("live.remote_run").at(folder.location))
        self._path, self._near = Path(folder.root) / PLANS, dict[int, Step]()
        self._count, self._size, self._grows = 0, 0, grows
        self._first = 0  #: Number of the first plan here.
        self._before = before
        for at, line in enumerate(self._lines()):
            self._first = self._read(line).number if not at else self._first
            self._count, self._size = self._count + 1, self._size + len(line)

    def find(self, number: int) -> Step | None:
        """Return the plan of a number, if it was kept; O(1), but for those of earlier processes."""
        if number < self._first or not self._count:
            return None if self._earlier is None else self._earlier.find(number)
        if number >= self._first + self._count:
            return None
        if number not in self._near:
            self._near.clear()
            for at, line in enumerate(self._lines(), self._first):
                if number <= at < number + TOGETHER:
                    self._near[at] = self._read(line)
        return self._near[number]

    @cached_property
    def _earlier(self) -> PlanLog | None:
        """The plans of the newest chapter before that made some."""
        for at, folder in enumerate(self._before, 1):
            if folder.has(PLANS):
                return PlanLog(folder, grows=False, before=self._before[at:])
        return None

    def keep(self, step: Step) -> None:
        """Append a plan, and have the operating system write it to the disk."""
        if not self._grows:
            return
        values = {name: value for name, value in asdict(step).items() if name != "rows"}
        line = json.dumps({**values, "sha256": _hash(values)}) + "\n"
        with self._path.open("ab") as file:
            if file.tell() > self._size:
                file.truncate(self._size)
            file.write(line.encode())
            file.flush()
            os.fsync(file.fileno())
        self._first = self._first if self._count else step.number
        self._count, self._size = self._count + 1, self._size + len(line)
        fault("follow.planned")

    def _lines(self) -> list[bytes]:
        """The whole lines."""
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            return [line for line in file if line.endswith(b"\n")]

    def _read(self, line: bytes) -> Step:
        try:
            values = json.loads(line)
            if values.pop("sha256") == _hash(values):
                return Step(**values)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise InputError(message("live.damaged_plans"), file=str(self._path)) from error
        raise InputError(message("live.damaged_plans"), file=str(self._path))


def _hash(values: Mapping[str, Any]) -> str:
    return hashed(json.dumps(values, sort_keys=True))
