"""Every error a user of raydt can meet, with the process exit code it stands for.

An input error names the file, the row, the column and the remedy; nothing is half-applied when one is raised.
"""

from __future__ import annotations

import errno
from typing import Any

from raydt.messages import OR_SKIP, Message, in_quotes, marked, message, text

_SHORTAGES = {errno.ENOMEM: "no_memory", errno.EMFILE: "process_files", errno.ENFILE: "machine_files"}

#: What can be done about an error of a filesystem.
STORAGE_REMEDIES: dict[int, str] = {
    errno.EACCES: message("machine.forbidden"),
    errno.EPERM: message("machine.forbidden"),
    errno.EROFS: message("machine.read_only"),
    errno.ENOSPC: message("machine.full"),
    errno.EDQUOT: message("machine.quota"),
    errno.ENOTDIR: message("machine.not_folder"),
    **{number: message(f"machine.{name}", asked="").remedy for number, name in _SHORTAGES.items()},
}


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
    message: Message | None = None  #: The sentence of the catalogue, with its id; None for words from elsewhere.

    def __init__(self, *lines: str) -> None:
        super().__init__(*lines)
        self.message = next((line for line in lines if isinstance(line, Message)), None)

    @property
    def lines(self) -> list[str]:
        """The lines of the message."""
        return [text(str(line)) for line in self.args]

    def __str__(self) -> str:
        return "\n".join(self.lines)

    def redact(self) -> None:
        """Withhold the values that the message quotes, from now on."""
        self.args = tuple(text(str(line), quote=False) for line in self.args)
        self.message = self.message and self.message.shown(quote=False)


class ConfigError(RaydtError, ValueError):
    """A configuration that cannot be run: unknown key, wrong type, keys that contradict each other."""

    exit_code = 2


class InputError(RaydtError, ValueError):
    """A bad file, column or row of input.

    Parameters
    ----------
    problem : str or Message
        What is wrong, in one sentence without a trailing full stop; a message brings its remedy.
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
        if isinstance(problem, Message):
            remedy = remedy or problem.remedy or None
            problem = problem.alone()
        #: The arguments, their values marked (:mod:`raydt.messages`); the attributes of these names are plain.
        self.parts: dict[str, Any] = {"problem": problem, "file": file, "column": column, "row": row, "remedy": remedy}
        self._show()
        place = ", ".join(
            part
            for part in (
                file or "",
                f"row {row}" if row is not None else "",
                f"column {in_quotes(column)}" if column is not None else "",
            )
            if part
        )
        super().__init__((f"{place}: " if place else "") + problem + (f". {remedy}" if remedy else ""))
        self.message = problem if isinstance(problem, Message) else None

    def redact(self) -> None:
        """Withhold the values that message and attributes quote, from now on."""
        super().redact()
        self.parts = {name: text(part, False) if isinstance(part, str) else part for name, part in self.parts.items()}
        self._show()

    def but(self, **changes: Any) -> InputError:
        """Return an error of the same parts, but for ``changes``."""
        return InputError(**{**self.parts, **changes})

    def without_skipping(self) -> InputError:
        """Return the same error, whose remedy does not offer to skip bad rows: they are skipped, or cannot be here."""
        return self.but(remedy=(self.parts["remedy"] or "").removesuffix(OR_SKIP) or None)

    def _show(self) -> None:
        self.problem = text(self.parts["problem"])
        self.file: str | None = self.parts["file"]
        self.row: int | None = self.parts["row"]
        self.column, self.remedy = (part and text(part) for part in map(self.parts.get, ("column", "remedy")))


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


class UnwritableError(NotWrittenError):
    """A place for a model or state where this user may not write: the choice of the place is to blame."""

    exit_code = 2


class ResourceError(RaydtError):
    """The machine is out of memory or of open files: nothing that was read is to blame, and another try may succeed."""


def message_of(error: BaseException) -> str:
    """Return what an error says, with its values marked; of an unexpected one all, as other packages quote values."""
    name = type(error).__name__
    ours = isinstance(error, RaydtError)
    return "\n".join(map(str, error.args)) if ours else marked(str(error) or name, name)


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
    if number not in _SHORTAGES:
        return None
    asked = f" ({error})" if isinstance(error, MemoryError) and str(error) else ""
    said = message(f"machine.{_SHORTAGES[number]}", asked=asked)
    return ResourceError(said.at(f"{file}: cannot be read now") if file else said)


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
    """A process of the job died or has stopped answering; ``advice`` is for a job that cannot recover."""

    def __init__(self, what: str, advice: str = "", *, actor: str = "driver", shard: int | None = None) -> None:
        super().__init__(what)
        self.advice, self.actor, self.shard = advice, actor, shard


class RestartsSpentError(RaydtError):
    """Processes of a job were lost so often that another restart would not help."""
