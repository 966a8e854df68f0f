"""The parts of a run at work, and those that a closed chapter hands over to the next one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from actors.telemetry import Meter
from pipelines.running.intake import Intake
from pipelines.running.records.recorder import Recorder
from raydt.sessions.session import Session


class GoingOn(NamedTuple):
    """The parts that a closed chapter hands over: the session, which goes on, the recorder where it is, the meter."""

    session: Session
    recorder: Recorder
    meter: Meter


@dataclass(frozen=True)
class Incarnation:
    """Parts of a running run."""

    session: Session
    recorder: Recorder
    intake: Intake
    begun: dict[str, Any]  #: State of the stream at its beginning.
