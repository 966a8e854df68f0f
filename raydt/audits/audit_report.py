"""The report of an audit, which recomputes from the raw examples with code that shares nothing with the fast path."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from raydt.messages import Message, message


@dataclass(slots=True)
class AuditReport:
    """Two verdicts and the measurements behind them."""

    conformance: Literal["holds", "violated"]
    feasibility: Literal["proven", "violated", "not_promised"]
    reason: str
    checked: dict[str, int] = field(default_factory=dict)
    worst: dict[str, float] = field(default_factory=dict)
    failures: Sequence[str] = field(default_factory=list)

    @classmethod
    def malformed(cls, what: str, problem: str) -> AuditReport:
        """Return the report on a state that cannot be compared with anything."""
        reason = message("audits.malformed", what=what, problem=problem)
        return cls("violated", "violated", reason, failures=[reason])

    @property
    def ok(self) -> bool:
        """Whether conformance holds and feasibility is not violated."""
        return self.conformance == "holds" and self.feasibility != "violated"

    def as_dict(self) -> dict[str, Any]:
        """Plain types, for JSON."""
        return {"ok": self.ok, **asdict(self)}


def noted(reason: str, *remarks: str) -> Message:
    """Return a reason with remarks after it; the id is that of the reason."""
    said = reason if isinstance(reason, Message) else Message(reason)
    return Message("; ".join((reason, *remarks)), "", said.id, said.parameters)
