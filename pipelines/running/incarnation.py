"""What works on a run at one time, and what of it goes on where a chapter ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from actors.telemetry import Meter
from pipelines.running.intake import Intake
from pipelines.running.records.recorder import Recorder
from raydt.sessions.session import Session


class GoingOn(NamedTuple):
    """What a closed chapter hands to the next one: the session, which goes on, and the recorder where it is."""

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
