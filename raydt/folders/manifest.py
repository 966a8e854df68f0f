"""The manifest of a folder of plain arrays: what lies in it, sealed by its own hash. Writing one is the commit.

Invariant: a manifest that :func:`read_manifest` returns was written by :func:`write_manifest`, bit for bit, and names
no file outside its folder but the row segments that checkpoints share, in ``rows`` beside it. The format is described
in ``docs/reference/formats.md``.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, ValidationError

from raydt.errors import FormatVersionError, ModelFileError, shortage
from raydt.folders.folder import Folder, final_name
from raydt.messages import message
from raydt.version import __version__

AnyFolder = TypeVar("AnyFolder", bound=Folder)

FORMAT: Literal["raydt-folder"] = "raydt-folder"
#: Raised with every change of what a model or a state consists of: names and types of arrays, options of learners, keys
#: of ``meta``. ``tests/unit/test_formats.py`` fails if it is not.
FORMAT_VERSION = 3
MANIFEST = "manifest.json"

#: Longer lists are written with this many entries to a line.
_LONG = 4096

Kind = Literal["model", "state"]

#: What the ``meta`` of each kind must hold; more is allowed.
REQUIRED_META = {
    "model": ("learner", "features", "classes"),
    "state": ("learner", "features", "classes", "config_hash", "source_fingerprint", "offset"),
}

#: Of the ``meta`` that was read: what its folder, its segments and their ages say, and a new folder says anew.
OF_THE_FOLDER = ("kind", "raydt_version", "format_version", "segments", "copies_since")

#: Name of the folder of a checkpoint.
NUMBER = r"(0|[1-9][0-9]*)"

_NAME = r"[a-z0-9][a-z0-9_-]*"
_HASH = r"\.[0-9a-f]{16}\."
_SEAL = b',\n "sha256": "'

# Strict: a manifest that Python would have to interpret was not written by this module.
_STRICT = ConfigDict(extra="forbid", strict=True)


class ArrayType(BaseModel):
    """Type and shape of one array."""

    model_config = _STRICT

    dtype: str = Field(pattern=r"^(\|[biu]1|<[iu][248]|<f[248])$")
    shape: list[NonNegativeInt]


class FileEntry(BaseModel):
    """One file that belongs to the folder."""

    model_config = _STRICT

    name: str = Field(pattern=rf"^({_NAME}{_HASH}(npz|json)|\.\./rows/{_NAME}{_HASH}npz)$")
    component: str = Field(pattern=rf"^{_NAME}$")
    bytes: NonNegativeInt
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    arrays: dict[str, ArrayType] | None = None


class Manifest(BaseModel):
    """The contents of ``manifest.json``, without the hash that seals it."""

    model_config = _STRICT

    format: Literal["raydt-folder"]
    format_version: int = Field(ge=1, le=FORMAT_VERSION)
    kind: Kind
    raydt_version: str
    meta: dict[str, Any]
    files: list[FileEntry]

    @property
    def origin(self) -> dict[str, Any]:
        """Kind and format of the folder, and the raydt that wrote it: for readers, beside ``meta``."""
        return {"kind": self.kind, "raydt_version": self.raydt_version, "format_version": self.format_version}

    @property
    def own(self) -> set[str]:
        """Names of the files in the folder itself, without those it shares with others."""
        return {file.name for file in self.files if "/" not in file.name}


def is_folder_file(name: str) -> bool:
    """Whether writing a model or a state gives files this name, complete or not."""
    name = final_name(name)
    return name == MANIFEST or re.fullmatch(rf"{_NAME}{_HASH}(npz|json)", name) is not None


def write_manifest(folder: Folder, kind: Kind, meta: Mapping[str, Any], files: Sequence[FileEntry]) -> None:
    """Commit: from now on the folder holds ``files``, all published; after OSError those or the former ones."""
    _has_all(kind, meta)  # that values are JSON shows when they are encoded, before anything is written
    # A folder of another format that is written again stays what it is, and its origin is among its meta.
    origin: dict[str, Any] = {"raydt_version": __version__, "format_version": FORMAT_VERSION}
    origin |= {key: value for key, value in meta.items() if key in origin}
    own = {key: value for key, value in meta.items() if key not in (*origin, "kind")}
    manifest = Manifest(format=FORMAT, kind=kind, **origin, meta=own, files=list(files))
    folder.publish(MANIFEST, seal(encode(manifest.model_dump(exclude_none=True))))


def read_manifest(folder: Folder) -> Manifest:
    """Read and check the manifest of a folder, not the files it names; ModelFileError names the file."""
    file = folder.path(MANIFEST)
    try:
        data = read_checked(folder, MANIFEST)
    except ModelFileError as error:
        said = message("models.no_manifest", manifest=MANIFEST, reason=error.problem)
        raise ModelFileError(said, file=folder.root) from error
    raw = decode(data, file)
    if raw.get("format") == FORMAT and raw.get("format_version") not in range(1, FORMAT_VERSION + 1):
        # Looked at before the hash: a later format may compute it in another way.
        formats = {"format": raw.get("format_version"), "writer": raw.get("raydt_version"), "newest": FORMAT_VERSION}
        raise FormatVersionError(message("models.later_format", version=__version__, **formats), file=file)
    body, _, _ = data.rpartition(_SEAL)
    if data != seal(body + b"\n}\n"):
        raise ModelFileError(message("models.broken_seal"), file=file)
    del raw["sha256"]
    try:
        manifest = Manifest.model_validate(raw)
        _has_all(manifest.kind, manifest.meta)
    except ValidationError as error:
        detail = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, detail["loc"]))
        said = message("models.not_manifest", reason=f"{place}: {detail['msg']}")
        raise ModelFileError(said, file=file) from error
    except ValueError as error:
        raise ModelFileError(message("models.not_manifest", reason=str(error)), file=file) from error
    return manifest


def require_meta(kind: Kind, meta: Mapping[str, Any]) -> None:
    """Refuse (TypeError, ValueError) a ``meta`` in which a key is missing, or a value is not JSON."""
    _has_all(kind, meta)
    encode(meta)


def _has_all(kind: Kind, meta: Mapping[str, Any]) -> None:
    missing = [key for key in REQUIRED_META[kind] if key not in meta]
    if missing:
        raise ValueError(message("models.no_meta", kind=kind, keys=", ".join(missing)))


def encode(value: Mapping[str, Any]) -> bytes:
    """JSON, in ASCII and without NaN: the same bytes on every machine.

    As ``json.dumps`` with ``indent=1`` writes it, but for long lists (the ids of a source, one for every row it has
    shown). With an indent, Python's encoder is one in Python that is set up anew for every value, which takes several
    times as long as what is written here.
    """
    return "".join([*_pieces(dict(value), "\n"), "\n"]).encode("ascii")


#: JSON on one line.
_json = json.JSONEncoder(allow_nan=False).encode


def _pieces(value: Any, line: str) -> Iterator[str]:
    """The text of a JSON value, whose further lines begin with ``line``."""
    inner = line + " "
    if isinstance(value, dict) and value:
        for place, (key, item) in enumerate(value.items()):
            # Keys that are no strings become such, as in an encoder's hands.
            name = _json(key) + ": " if isinstance(key, str) else _json({key: 0})[1:-2]
            begin = ("," if place else "{") + inner + name
            if isinstance(item, dict | list | tuple):
                yield begin
                yield from _pieces(item, inner)
            else:
                yield begin + _json(item)
        yield line + "}"
    elif isinstance(value, list | tuple) and len(value) > _LONG:
        # Piece by piece, so that other threads have their turn.
        for first in range(0, len(value), _LONG):
            yield ("," if first else "[") + inner + _json(value[first : first + _LONG])[1:-1]
        yield line + "]"
    elif isinstance(value, list | tuple) and value:
        for place, item in enumerate(value):
            yield ("," if place else "[") + inner
            yield from _pieces(item, inner)
        yield line + "]"
    else:
        yield _json(value)


def decode(data: bytes, file: str) -> dict[str, Any]:
    """The JSON object in ``file``; ModelFileError if there is none."""
    try:
        value = parsed(data)
    except (ValueError, RecursionError) as error:
        raise ModelFileError(message("models.not_json", reason=str(error)), file=file) from error
    if not isinstance(value, dict):
        raise ModelFileError(message("models.not_object"), file=file)
    return value


def parsed(data: str | bytes) -> Any:
    """The value of a JSON text; ValueError if there is none, or NaN or an infinity, which raydt does not write."""
    return json.loads(data, parse_constant=_no_constant)


def _no_constant(name: str) -> Any:
    raise ValueError(message("models.no_constant", name=name))


def seal(text: bytes) -> bytes:
    """Append to a JSON object, as its last member, the hash of everything before it."""
    body = text.removesuffix(b"\n}\n")
    return body + _SEAL + hashlib.sha256(body).hexdigest().encode() + b'"\n}\n'


def read_checked(folder: Folder, name: str, size: int | None = None) -> bytes:
    """A file's content; ModelFileError, which names it, if it is missing, unreadable, or not of ``size`` bytes."""
    file = folder.path(name)
    try:
        found = folder.size(name)
        if found is None:
            raise ModelFileError(message("models.missing"), file=file)
        if size is not None and found != size:
            raise ModelFileError(message("models.other_size", found=found, wanted=size), file=file)
        return folder.read(name)
    except (MemoryError, OSError) as error:
        unreadable = message("machine.not_read", reason=str(error))
        raise shortage(error, file) or ModelFileError(unreadable, file=file) from error


def complete(folder: Folder) -> list[int]:
    """Return the numbers of the complete checkpoints in a folder, ascending."""
    found = [int(name) for name in folder.names() if re.fullmatch(NUMBER, name)]
    return sorted(number for number in found if folder.has(f"{number}/{MANIFEST}"))


def newest(folder: AnyFolder) -> AnyFolder:
    """Return the newest complete checkpoint of a folder of checkpoints; of any other folder, the folder.

    ModelFileError if the folder is a checkpoint that is not complete, beside others that are.
    """
    numbers = complete(folder)
    if numbers and not folder.has(MANIFEST):
        return folder.inside(str(numbers[-1]))
    above, _, name = folder.location.rpartition("/")
    beside = complete(folder.inside("..")) if name.isdecimal() and not folder.has(MANIFEST) else []
    if beside:
        said = message("models.incomplete", newest=f"{above}/{beside[-1]}", above=above)
        raise ModelFileError(said, file=folder.location)
    return folder
