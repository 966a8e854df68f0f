"""Every error a user of raydt can meet, with the process exit code it stands for.

An input error names the file, the row, the column and the remedy; nothing is half-applied when one is raised.
"""

from __future__ import annotations

import errno
import os

#: What can be done about an error of a filesystem.
STORAGE_REMEDIES = {
    errno.EACCES: "Choose a folder that this user may write to",
    errno.EPERM: "Choose a folder that this user may write to",
    errno.EROFS: "It is mounted read-only: choose another",
    errno.ENOSPC: "Free some space, or choose another disk",
    errno.EDQUOT: "The quota of this user is used up: free some space, or choose another disk",
    errno.ENOTDIR: "A part of the path is a file: choose another path",
    errno.EMFILE: "Raise the limit of open files of this process (ulimit -n)",
    errno.ENFILE: "End other programs: this machine has too many open files",
    errno.ENOMEM: "End other programs, or use a machine with more memory",
}

#: What the remedy of a bad row ends with.
OR_SKIP = ", or set stream.on_error: skip"


class RaydtError(Exception):
    """Base of all errors raised on purpose; ``exit_code`` is what the command line returns.

    ``kept`` says what was kept of the work before the error, and where; empty if nothing was.

    Parameters
    ----------
    *lines : str
        The message. A line break within a line comes from a name or a value, and is escaped where it is printed.
    """

    exit_code = 1
    kept = ""

    @property
    def lines(self) -> list[str]:
        """The lines of the message."""
        return [str(line) for line in self.args]

    def __str__(self) -> str:
        return "\n".join(self.lines)


class ConfigError(RaydtError, ValueError):
    """A configuration that cannot be run: unknown key, wrong type, keys that contradict each other."""

    exit_code = 2


class InputError(RaydtError, ValueError):
    """A bad file, column or row of input.

    Parameters
    ----------
    problem : str
        What is wrong, in one sentence without a trailing full stop.
    file, column : str, optional
        Where it was found.
    row : int, optional
        Zero-based row of ``file``.
    remedy : str, optional
        What the user can do about it.
    """

    exit_code = 2

    def __init__(
        self,
        problem: str,
        *,
        file: str | None = None,
        column: str | None = None,
        row: int | None = None,
        remedy: str | None = None,
    ) -> None:
        self.problem, self.file, self.column, self.row, self.remedy = problem, file, column, row, remedy
        place = ", ".join(
            part
            for part in (
                file or "",
                f"row {row}" if row is not None else "",
                f"column {column!r}" if column is not None else "",
            )
            if part
        )
        super().__init__((f"{place}: " if place else "") + problem + (f". {remedy}" if remedy else ""))

    def without_skipping(self) -> InputError:
        """The same error, whose remedy does not offer to skip bad rows: they are skipped, or cannot be here."""
        remedy = (self.remedy or "").removesuffix(OR_SKIP) or None
        return InputError(self.problem, file=self.file, column=self.column, row=self.row, remedy=remedy)


class UpdateError(InputError):
    """An update the model cannot take: unknown id on delete, insert of a live id, value nobody holds."""


class HalfAppliedError(RaydtError):
    """A model of which a change was broken off where it could not be undone: it is refused from then on."""


class ModelFileError(InputError):
    """A model or state folder that is damaged, of another format, or of another run."""


class FormatVersionError(ModelFileError):
    """A model or state of another format version: sound, but not for this version of raydt."""


class NotWrittenError(ModelFileError):
    """A model or state that could not be written: the storage failed, not the input."""

    exit_code = 1


class ResourceError(RaydtError):
    """The machine is out of memory or of open files: nothing that was read is to blame, and another try may succeed."""


def shortage(error: BaseException, file: str = "") -> ResourceError | None:
    """Return the error of a machine that is short of something, if that is what an error says.

    Parameters
    ----------
    error : BaseException
        Of the system, or of a library.
    file : str, optional
        What was being read.
    """
    number = errno.ENOMEM if isinstance(error, MemoryError) else getattr(error, "errno", None)
    if number not in (errno.ENOMEM, errno.EMFILE, errno.ENFILE):
        return None
    asked = f" ({error})" if isinstance(error, MemoryError) and str(error) else ""
    what = "out of memory" if number == errno.ENOMEM else os.strerror(number).lower()
    place = f"{file}: cannot be read now: " if file else ""
    return ResourceError(f"{place}{what}{asked}. {STORAGE_REMEDIES[number]}")


class CheckpointsFailError(RaydtError):
    """Checkpoints of a run keep failing, so that a loss would cost more and more work."""


class DeadlineMissedError(RaydtError):
    """Checkpoints of a run may hold examples that were deleted longer ago than its erasure deadline allows."""


class ExchangeError(RaydtError):
    """A message out of order between coordinator and shard."""


class StaleEpochError(ExchangeError):
    """A message of an incarnation that has been replaced."""


class SequenceGapError(ExchangeError):
    """A message whose number is neither the next one nor the one answered last."""


class ProcessLostError(RaydtError):
    """A process of the job died, ran out of memory, or has stopped answering.

    Its message is the fact alone, since a job recovers by itself; ``advice`` is for when it cannot, and may be empty.
    """

    def __init__(self, what: str, advice: str = "", *, actor: str = "driver", shard: int | None = None) -> None:
        super().__init__(what)
        self.advice, self.actor, self.shard = advice, actor, shard


class RestartsSpentError(RaydtError):
    """Processes of a job were lost so often that another restart would not help."""
