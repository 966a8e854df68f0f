"""Where a command may write: never over what it reads, and never into a run, a model or a state that is there.

Invariant: local paths are compared as the operating system sees them, symbolic links followed and hard links by their
inode; URIs by their text.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from pipelines.config import Config
from pipelines.run_folder import RunFolder
from raydt.errors import ConfigError, InputError, NotWrittenError
from raydt.folders.folder import Folder
from raydt.folders.lock import locked
from raydt.folders.manifest import FORMAT, MANIFEST
from raydt.messages import message

#: Bytes of a manifest within which its format is named.
_BEGINNING = 100

_MAGIC = re.compile(r"[*?\[]")


class Input(NamedTuple):
    """A file, folder, pattern or URI that a command reads, and how its user names it."""

    name: str
    path: str


def inputs_of(config: Config, given: Config | Mapping[str, Any] | str | Path) -> list[Input]:
    """Return the paths a run of ``config`` reads; ``given`` is where the config came from."""
    source, log = getattr(config.source, "path", []), getattr(config.stream, "deletion_log", None)
    found = [Input("source.path", path) for path in ([source] if isinstance(source, str) else source)]
    found += [Input("stream.deletion_log", log)] if log is not None else []
    return found + ([Input("CONFIG", str(given))] if isinstance(given, str | Path) else [])


def require_apart(option: str, out: str | Path, inputs: Iterable[Input], *, within: Path | None = None) -> None:
    """Refuse (ConfigError) an output over an input, or in a run (but ``within``), a model or a state."""
    target = real_path(out)
    for name, path in inputs:
        pattern = _MAGIC.search(path) if not os.path.exists(path) else None
        read = real_path(path if pattern is None else path[: pattern.start()].rpartition("/")[0] or "/")
        problem = None
        same = target == read or (os.path.exists(target) and os.path.exists(read) and os.path.samefile(target, read))
        if same and pattern is None:
            problem = message("outputs.same", option=option, out=out, name=name)
        elif _lies_in(read, target) and ("://" in target or _is_ours(Path(target))):  # which may be removed as a whole
            problem = message("outputs.around_input", option=option, out=out, name=name, path=path)
        elif _lies_in(target, read) and not os.path.isfile(read) and (pattern is None or "**" in path):
            # folders are searched through
            problem = message("outputs.within_input", option=option, out=out, name=name, path=path)
        if problem is not None:
            raise ConfigError(problem)
    if "://" not in target:
        owner = next((above for above in Path(target).parents if above != within and _is_ours(above)), None)
        if owner is not None:
            raise ConfigError(message("outputs.within_run", option=option, out=out, owner=owner))


def require_run_apart(out: RunFolder, config: Config, inputs: Iterable[Input]) -> None:
    """Refuse (ConfigError) a folder of a new run, or of its checkpoints, that is not apart from its inputs."""
    inputs = list(inputs)
    require_apart("--out", out.location, inputs)
    if config.checkpoint.path is not None:
        own = Path(os.path.realpath(out.root)) if out.is_local else None
        require_apart("checkpoint.path =", config.checkpoint.path, inputs, within=own)


@contextmanager
def writing_alone(target: Path, what: str, *, new: Iterable[Path] = ()) -> Iterator[None]:
    """Be the only writer of a file of ``what`` (else ConfigError); InputError if it, or one of ``new``, exists."""
    try:
        with locked(Folder(target.parent), target.name):
            for file in new:
                if file.exists():
                    raise InputError(message("outputs.exists"), file=str(file))
            yield
    except NotWrittenError as error:
        cause = getattr(error.__cause__, "strerror", None) or error.problem
        said = message("outputs.not_written", what=what, reason=cause)
        raise InputError(said, file=str(target), remedy=error.remedy) from error


def new_file(out: str | Path, kind: str, ends: Sequence[str], *, overwrite: bool, beside: Sequence[str] = ()) -> Path:
    """Return the path of a local file to write, whose name ends in one of ``ends``.

    InputError for another place or name, or if the file, or one with an end of ``beside`` more, exists and is not to be
    overwritten.
    """
    if "://" in str(out):
        raise InputError(message("outputs.not_local"), file=str(out))
    target = Path(out).expanduser().resolve()
    if target.suffix.lower() not in ends:
        raise InputError(message("outputs.other_name", kind=kind, ends=" or ".join(ends)), file=str(target))
    if target.is_dir():
        raise InputError(message("outputs.is_folder", kind=kind), file=str(target))
    for file in (target, *(target.with_name(target.name + end) for end in beside)):
        if file.exists() and not overwrite:
            raise InputError(message("outputs.exists"), file=str(file))
    return target


@contextmanager
def written(target: str | Path, what: str) -> Iterator[None]:
    """Turn an error of the system in the block into an InputError that ``what`` cannot be written to a file."""
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise InputError(message("outputs.not_written", what=what, reason=reason), file=str(target)) from error


def real_path(path: str | Path) -> str:
    """Return the path behind all links; a URI of another file system as it is."""
    text = str(path).removeprefix("file://")
    if "://" in text or "\0" in text:  # a name with NUL is refused where it is opened
        return text.rstrip("/")
    return os.path.realpath(os.path.expanduser(text))


def _lies_in(inner: str, outer: str) -> bool:
    return inner.startswith(f"{outer.rstrip('/')}/") and inner != outer


def _is_ours(folder: Path) -> bool:
    """Return True if a folder is a run or a sweep, or holds a model or a state."""
    with suppress(OSError):
        if RunFolder(folder).run_status() is not None:
            return True
        with (folder / MANIFEST).open("rb") as file:
            return FORMAT.encode() in file.read(_BEGINNING)
    return False
