"""The parts of a run at work, and those that a closed chapter hands over to the next one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from actors.telemetry import Meter
from pipelines.running.intake import Intake
from pipelines.running.records.recorder import Recorder
from raydt.folders.text_ids import IdsElsewhere
from raydt.sessions.session import Session


class GoingOn(NamedTuple):
    """The parts that a closed chapter hands over: the session, which goes on, the recorder where it is, the meter."""

    session: Session
    recorder: Recorder
    meter: Meter


@dataclass
class Incarnation:
    """Parts of a running run."""

    session: Session
    recorder: Recorder
    intake: Intake
    begun: dict[str, Any]  #: State of the stream at its beginning, or at a later checkpoint.

    def pass_on(self, checkpoint: dict[str, Any]) -> None:
        """Let go of text ids elsewhere as they were before a checkpoint: they are kept for as long as anybody asks."""
        if isinstance(self.begun.get("ids"), IdsElsewhere):
            self.begun = checkpoint
