"""Result of a run: its folder, and how it ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, repr=False)
class RunResult:
    """Result of a run.

    Attributes
    ----------
    path : str
        The run folder: an absolute path or a URI.
    summary : dict
        Content of ``summary.json``.
    """

    path: str
    summary: dict[str, Any]

    def __repr__(self) -> str:
        return f"RunResult({self.path!r}, {self.status}, {self.summary['updates']:,} updates)"

    @property
    def status(self) -> str:
        """``completed`` or ``interrupted``."""
        return str(self.summary["status"])

    @property
    def exit_code(self) -> int:
        """Exit code of the command line: 0, 130 or 143."""
        return int(self.summary["exit_code"])

    @property
    def digest(self) -> str:
        """Digest of the final model."""
        return str(self.summary["model_digest"])

    @property
    def metrics(self) -> dict[str, Any]:
        """Prequential metrics of the whole run."""
        return dict(self.summary["metrics"])
