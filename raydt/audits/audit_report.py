"""The report of an audit.

An audit recomputes from the raw examples with code that shares nothing with the fast path.
*Conformance*: the model is what its algorithm says. *Feasibility*: the paper's guarantee holds.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal


@dataclass(slots=True)
class AuditReport:
    """Two verdicts and the measurements behind them."""

    conformance: Literal["holds", "violated"]
    feasibility: Literal["proven", "violated", "not_promised"]
    reason: str
    checked: dict[str, int] = field(default_factory=dict)
    worst: dict[str, float] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether conformance holds and feasibility is not violated."""
        return self.conformance == "holds" and self.feasibility != "violated"

    def as_dict(self) -> dict[str, Any]:
        """Plain types, for JSON."""
        return {"ok": self.ok, **asdict(self)}
