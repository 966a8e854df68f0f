"""Models and states as folders of plain arrays, on any file system Arrow knows; nothing is ever unpickled.

Components, ``.npz`` and ``.json`` files named by their hash, are written first; ``manifest.json`` is the commit
(``raydt.folders.arrays``): before it the folder holds what it held before. Invariant: what :func:`load_folder`
returns was written by :func:`save_folder`, bit for bit; a folder that fails any check is refused as a whole, naming the
file. The format is described in ``docs/reference/formats.md``.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import json
import math
import mmap
import os
import re
import struct
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar
from zlib import crc32

import numpy as np
import pyarrow as pa
from pyarrow import fs
from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, ValidationError

from raydt.arrays.blocks import Lazy
from raydt.arrays.elementary import AnyArray, Arrays, Ints
from raydt.errors import FormatVersionError, InputError, ModelFileError, shortage
from raydt.exchange.messages import BUCKETS, Buckets, buckets_in, component_of
from raydt.folders.folder import Folder, final_name
from raydt.installation import __version__
from raydt.messages import message

# The manifest of a folder of plain arrays: what lies in it, sealed by its own hash. Writing one is the commit.
#
# Invariant: a manifest that :func:`read_manifest` returns was written by :func:`write_manifest`, bit for bit, and names
# no file outside its folder but the row segments that checkpoints share, in ``rows`` beside it. The format is described
# in ``docs/reference/formats.md``.

AnyFolder = TypeVar("AnyFolder", bound=Folder)

FORMAT: Literal["raydt-folder"] = "raydt-folder"
#: Raised with every change of what a model or a state consists of: names and types of arrays, options of learners, keys
#: of ``meta``. ``tests/unit/test_persistence.py`` fails if it is not.
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

    def described(self) -> dict[str, Any]:
        """Return the entry as the manifest has it."""
        entry: dict[str, Any] = {name: getattr(self, name) for name in ("name", "component", "bytes", "sha256")}
        if self.arrays is not None:
            types = {name: {"dtype": one.dtype, "shape": one.shape} for name, one in self.arrays.items()}
            entry["arrays"] = _OneLine(types)
        return entry


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
    """Return True if writing a model or a state gives files this name, complete or not."""
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
    whole = {**manifest.model_dump(exclude={"files"}), "files": [file.described() for file in files]}
    folder.publish(MANIFEST, seal(encode(whole)))


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


class _OneLine(dict[str, Any]):
    """An object that is written on one line: many keys have thousands of arrays."""


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
            if isinstance(item, dict | list | tuple) and not isinstance(item, _OneLine):
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


#: Bytes of an array that are read at a time.
_AT_ONCE = 1 << 18
#: Of this component an array of more bytes has a file of its own: who needs the model alone reads none of all rows.
_APART, _LARGE = "coordinator", 1 << 20


def save_folder(
    path: str | os.PathLike[str] | Folder,
    kind: Kind,
    meta: Mapping[str, Any],
    components: Mapping[str, Mapping[str, Any]],
    *,
    filesystem: fs.FileSystem | None = None,
    before_commit: Callable[[], object] = lambda: None,
) -> None:
    """Write a folder, or replace the one there; files that are not of a folder of ours are left alone.

    Equal contents give equal bytes. A crash at any point leaves the previous contents or the new ones, and files that
    the next call removes. One process at a time may write. Values of components that are arrays (booleans, integers,
    floats) go into ``.npz`` files, JSON values into ``.json`` files. ``before_commit`` is called when only the manifest
    is left to write; if it raises, nothing is written. ModelFileError if the folder cannot be written or holds a
    manifest that is damaged or not ours; TypeError or ValueError for other values, names or keys of ``meta``.
    """
    require_meta(kind, meta)  # before anything is written
    folder = path if isinstance(path, Folder) else _open(path, filesystem)
    published: list[FileEntry] = []
    try:
        before = _files_there(folder)
        try:
            for component, values in components.items():
                for entry, data in _pack(component, values, ""):
                    published.append(entry)
                    folder.publish(entry.name, data)
            before_commit()
            write_manifest(folder, kind, meta, published)
        except BaseException:
            _withdraw(folder, {file.name for file in published} - before)
            raise
        own = {MANIFEST, *(file.name for file in published)}
        for name in sorted(before.union(filter(is_folder_file, folder.names())) - own):
            folder.delete(name)  # of the contents before, or left by a process that was killed
    except OSError as error:
        raise ModelFileError(message("machine.not_written", reason=str(error)), file=folder.root) from error


def open_folder(
    path: str | os.PathLike[str],
    kind: Kind | None = None,
    *,
    filesystem: fs.FileSystem | None = None,
    file_by_file: bool = False,
    mapped: bool = False,
) -> tuple[dict[str, Any], Lazy[str]]:
    """As :func:`load_folder`, but each component is read, and checked, whenever it is asked for.

    ``file_by_file``: of a component, a file of arrays is only read when one of them is asked for. ``mapped``: a large
    array in a file of its own on a local disk is read-only, and its pages are those of the file, which the system may
    take back: for who reads an array from one end to the other.
    """
    folder = _open(path, filesystem)
    manifest = read_manifest(folder)
    if kind is not None and manifest.kind != kind:
        raise ModelFileError(message("models.other_kind", found=manifest.kind, wanted=kind), file=folder.root)
    files: dict[str, list[FileEntry]] = {}
    for entry in manifest.files:
        files.setdefault(entry.component, []).append(entry)

    def read(component: str) -> Any:
        if file_by_file:
            return _file_by_file(folder, files[component])
        take = _mapped_entry if mapped and folder.is_local else read_entry
        return {name: value for entry in files[component] for name, value in take(folder, entry).items()}

    meta = {**manifest.meta, **manifest.origin}
    return meta, Lazy(files, read)


def _file_by_file(folder: Folder, entries: Sequence[FileEntry]) -> Mapping[str, Any]:
    """Return the values of one component; a file of arrays is read, whole, when the first of them is asked for."""
    read = functools.cache(lambda at: read_entry(folder, entries[at]))
    # A file of JSON values has its names in it.
    names = [read(at) if entry.arrays is None else entry.arrays for at, entry in enumerate(entries)]
    places = {name: at for at, own in enumerate(names) for name in own}
    return Lazy(places, lambda name: read(places[name])[name])


def load_folder(
    path: str | os.PathLike[str], kind: Kind | None = None, *, filesystem: fs.FileSystem | None = None
) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Read a folder back, after checking every byte; ModelFileError names a file that is missing or damaged."""
    meta, components = open_folder(path, kind, filesystem=filesystem)
    return meta, dict(components)


def publish_component(
    folder: Folder, component: str, values: Mapping[str, Any], *, beside: str = ""
) -> list[FileEntry]:
    """Write one component, to which nothing refers yet; files are named by their contents.

    ``beside`` ("" or "../rows/") is the folder of arrays. TypeError or ValueError, first, for what cannot be written.
    """
    files = _pack(component, values, beside)
    for entry, data in files:
        folder.publish(entry.name, data)
    return [entry for entry, _ in files]


def read_entry(folder: Folder, entry: FileEntry) -> dict[str, Any]:
    """Read the values in one file of a manifest, after checking every byte of it; ModelFileError names the file."""
    file = folder.path(entry.name)
    data = read_checked(folder, entry.name, entry.bytes)
    if hashlib.sha256(data).hexdigest() != entry.sha256:
        raise ModelFileError(message("models.other_hash"), file=file)
    return decode(data, file) if entry.arrays is None else _arrays(data, entry.arrays, file)


def _mapped_entry(folder: Folder, entry: FileEntry) -> dict[str, Any]:
    """As :func:`read_entry`, without a copy of an array that is large and alone in its file."""
    if entry.arrays is None or len(entry.arrays) != 1 or entry.bytes < _LARGE or folder.size(entry.name) != entry.bytes:
        return read_entry(folder, entry)
    [(name, kind)] = entry.arrays.items()
    header, dtype = _header(kind.dtype, tuple(kind.shape)), np.dtype(kind.dtype)
    at = _LOCAL.size + len(f"{name}.npy") + _SIZES.size
    begin, count = at + len(header), math.prod(kind.shape)
    if begin % dtype.itemsize or begin + dtype.itemsize * count > entry.bytes:
        return read_entry(folder, entry)
    with contextlib.suppress(OSError), open(folder.path(entry.name), "rb") as file:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        if data[at:begin] == header and hashlib.sha256(data).hexdigest() == entry.sha256:
            return {name: np.frombuffer(data, dtype, count, begin).reshape(kind.shape)}
    return read_entry(folder, entry)  # which says what is wrong, or reads what is written in another way


def _open(path: str | os.PathLike[str], filesystem: fs.FileSystem | None) -> Folder:
    try:
        return Folder(path, filesystem)
    except InputError as error:
        raise ModelFileError(error.parts["problem"], file=error.file) from error


def _files_there(folder: Folder) -> set[str]:
    """Files of the contents that are about to be replaced."""
    return read_manifest(folder).own if folder.has(MANIFEST) else set()


def _withdraw(folder: Folder, names: Iterable[str]) -> None:
    """Remove what a failed write left, as far as possible, unless the manifest refers to it after all."""
    with contextlib.suppress(OSError, ModelFileError):
        for name in set(names) - _files_there(folder):
            folder.delete(name)


def _pack(component: str, values: Mapping[str, Any], beside: str) -> list[tuple[FileEntry, memoryview]]:
    """The files of one component, under names that are allowed."""
    files: list[tuple[FileEntry, memoryview]] = []
    for suffix, data, arrays in _serialise(values, _LARGE if component == _APART else None):
        sha = hashlib.sha256(data).hexdigest()
        name = f"{beside}{component}.{sha[:16]}.{suffix}"
        entry = FileEntry(name=name, component=component, bytes=len(data), sha256=sha, arrays=arrays)
        files.append((entry, data))
    return files


def _serialise(
    values: Mapping[str, Any], large: int | None
) -> list[tuple[str, memoryview, dict[str, ArrayType] | None]]:
    """Suffix, contents and array types of the files of one component; arrays of more bytes than ``large`` lie apart."""
    whole = {name: _little(name, value) for name, value in values.items() if isinstance(value, np.ndarray)}
    plain = {name: value for name, value in values.items() if name not in whole}
    files: list[tuple[str, memoryview, dict[str, ArrayType] | None]] = []
    together = {name: array for name, array in whole.items() if large is None or array.nbytes <= large}
    apart = [{name: array} for name, array in whole.items() if name not in together]
    for arrays in filter(None, (together, *apart)):
        types = {name: _type(array.dtype.str, array.shape) for name, array in arrays.items()}
        files.append(("npz", archive(arrays), types))
    if plain or not whole:
        files.append(("json", memoryview(encode(plain)), None))
    return files


#: Records of an archive: local header with its sizes in 64 bits, entry of the directory, end of the directory.
_LOCAL = struct.Struct("<4sBBHHHHLLLHH")
_SIZES = struct.Struct("<HHQQ")
_ENTRY = struct.Struct("<4sBBBBHHHHLLLHHHHHLL")
_END = struct.Struct("<4s4H2LH")
_FIRST_DAY = (1 << 5) | 1  # 1980-01-01, as of every member
_MOST_BYTES, _MOST_MEMBERS = zipfile.ZIP64_LIMIT, zipfile.ZIP_FILECOUNT_LIMIT


def archive(arrays: Mapping[str, AnyArray]) -> memoryview:
    """Return an ``.npz`` file without compression, byte for byte as ``zipfile`` writes it.

    Of a small array ``zipfile`` takes five times as long, and many keys have thousands. It writes what needs the
    format's extension: an archive of 2 GiB, or one of 65,536 arrays.
    """
    names = [f"{name}.npy" for name in arrays]
    spare = sum(array.nbytes + 2 * len(name) + 512 for name, array in zip(names, arrays.values(), strict=True))
    if spare > _MOST_BYTES or len(names) > _MOST_MEMBERS or not _are_plain("".join(names)):
        return _by_zipfile(arrays)
    pieces: list[bytes | memoryview] = []
    directory: list[bytes] = []
    at = 0
    for name, array in zip(names, arrays.values(), strict=True):
        file, header = name.encode("ascii"), _header(array.dtype.str, array.shape)
        data = array.data.cast("B") if array.size else b""
        size, crc = len(header) + len(data), crc32(data, crc32(header))
        unknown = 0xFFFFFFFF  # in the extra field, which zipfile writes before it knows the size
        pieces += (
            _LOCAL.pack(b"PK\3\4", 45, 0, 0, 0, 0, _FIRST_DAY, crc, unknown, unknown, len(file), _SIZES.size),
            file,
            _SIZES.pack(1, 16, size, size),
            header,
            data,
        )
        sizes = crc, size, size, len(file)
        directory += (
            _ENTRY.pack(b"PK\1\2", 45, 3, 45, 0, 0, 0, 0, _FIRST_DAY, *sizes, 0, 0, 0, 0, 0o600 << 16, at),
            file,
        )
        at += _LOCAL.size + len(file) + _SIZES.size + size
    end = b"".join(directory)
    n = len(names)
    return memoryview(b"".join([*pieces, end, _END.pack(b"PK\5\6", 0, 0, n, n, len(end), at, 0)]))


def _are_plain(names: str) -> bool:
    """Return True if ``zipfile`` takes names as they are: it marks others, or cuts them."""
    return names.isascii() and "\0" not in names


def _by_zipfile(arrays: Mapping[str, AnyArray]) -> memoryview:
    buffer = io.BytesIO()
    # np.savez would do, but for arrays called "file", and for objects, which it pickles.
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as members:
        for name, array in arrays.items():
            with members.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                # As np.lib.format.write_array does, without its copy of the numbers.
                member.write(_header(array.dtype.str, array.shape))
                member.write(array.data.cast("B") if array.size else b"")
    return buffer.getbuffer()


@functools.lru_cache(4096)
def _type(dtype: str, shape: tuple[int, ...]) -> ArrayType:
    return ArrayType(dtype=dtype, shape=list(shape))


@functools.lru_cache(4096)
def _header(dtype: str, shape: tuple[int, ...]) -> bytes:
    """Return the header of an ``.npy`` file: to write or to parse one takes ten times as long as a small array."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": dtype, "fortran_order": False, "shape": shape})
    return header.getvalue()


def _little(name: str, array: AnyArray) -> AnyArray:
    if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
        raise TypeError(message("models.dtype", name=name, dtype=str(array.dtype)))
    return np.asarray(array, dtype=array.dtype.newbyteorder("<"), order="C")


def _arrays(data: bytes, types: dict[str, ArrayType], file: str) -> dict[str, AnyArray]:
    """The arrays of an ``.npz`` file, which must be those the manifest lists."""
    arrays: dict[str, AnyArray] = {}
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as members:
            if any(item.compress_type != zipfile.ZIP_STORED for item in members.infolist()):
                raise ValueError(message("models.compressed"))
            for name in types:
                arrays[name] = _array(members, f"{name}.npy", types[name])
    except MemoryError as error:
        raise shortage(error, file) or error from error
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile) as error:
        raise ModelFileError(message("models.other_arrays", reason=str(error)), file=file) from error
    for name, expected in types.items():
        found, wanted = f"{arrays[name].dtype.str} {list(arrays[name].shape)}", f"{expected.dtype} {expected.shape}"
        if found != wanted:
            raise ModelFileError(message("models.other_array", name=name, found=found, wanted=wanted), file=file)
    return arrays


def _array(members: zipfile.ZipFile, name: str, expected: ArrayType) -> AnyArray:
    """Read one array; one with another header than ours is read, and one that is cut short refused, by NumPy."""
    with members.open(name) as member:
        header = _header(expected.dtype, tuple(expected.shape))
        if member.read(len(header)) == header:
            array = np.empty(expected.shape, dtype=expected.dtype)
            to = array.data.cast("B") if array.size else memoryview(b"")
            for begin in range(0, len(to), _AT_ONCE):
                part = to[begin : begin + _AT_ONCE]
                data = member.read(len(part))
                if len(data) < len(part):
                    break
                part[:] = data
            else:
                return array
    with members.open(name) as member:
        found: AnyArray = np.lib.format.read_array(member, allow_pickle=False)
        return found


# Text ids of a state that several processes have written: each those of some buckets, in a component of its own.
#
# The bucket of an id is the first twelve bits of the CRC-32 of its UTF-8 text. Such a component, ``ids-<begin>-<end>``,
# has the codes, ascending, and the ids of its buckets as a ragged entry. ``stream`` has the ids of deleted examples
# that are not forgotten yet (``dead``, with ``dead_codes`` and ``dead_rows``), and neither ``ids`` nor ``id_codes`` nor
# ``id_died``: :func:`joined` makes these.

_IDS = "ids"
_CODES, _LENGTHS, _VALUES = "id_codes", "ids_lengths", "ids_values"
#: Rows for which a deleted id is remembered by a run that forgets none.
ALWAYS = 1 << 62


class IdsElsewhere(ABC):
    """The entry ``ids`` of a stream's state whose ids other processes have, as they were when it was taken."""

    @abstractmethod
    def write(self, folder: Folder) -> list[FileEntry]:
        """Have the ids written into the folder of a checkpoint; OSError or NotWrittenError if that fails."""


@dataclass(frozen=True)
class SavedIds:
    """The entry ``ids`` of a stream's state whose ids lie in components of their own, to be read by several."""

    folder: Folder
    parts: Mapping[Buckets, str]  #: Names of the components, by buckets.
    components: Mapping[str, Mapping[str, Any]]  #: Those of the state, each read when it is asked for.

    @classmethod
    def of(cls, folder: Folder) -> SavedIds:
        """Return the ids of the state in a folder; ModelFileError if that is damaged."""
        components = open_folder(folder.root, "state", filesystem=folder.filesystem)[1]
        return cls(folder, parts_in(components), components)

    def of_buckets(self, wanted: Buckets) -> Iterator[tuple[list[int], list[str]]]:
        """Yield codes and ids of some buckets, one component after the other; ModelFileError if one is damaged."""
        for there, component in self.parts.items():
            if there.begin >= wanted.end or wanted.begin >= there.end:
                continue
            try:
                codes, names = unpacked(self.components[component])
            except (KeyError, ValueError) as error:
                raise ModelFileError(message("models.segments", reason=str(error)), file=self.folder.root) from error
            pairs = [*zip(codes.tolist(), names, strict=True)]
            if there.begin < wanted.begin or wanted.end < there.end:
                pairs = [pair for pair in pairs if wanted.begin <= bucket_of(pair[1]) < wanted.end]
            yield [code for code, _ in pairs], [name for _, name in pairs]

    def whole(self, stream: Mapping[str, Any]) -> dict[str, Any]:
        """Return the component ``stream`` of the state as :func:`joined` does; errors as of :meth:`of_buckets`."""
        found = self.of_buckets(Buckets(0, BUCKETS))
        return joined(stream, ((np.array(codes, dtype=np.int64), names) for codes, names in found))


def bucket_of(name: str) -> int:
    """Return the bucket of an id."""
    return crc32(name.encode()) * BUCKETS >> 32


def parts_in(components: Iterable[str]) -> dict[Buckets, str]:
    """Return the names of components that have ids, by buckets; ValueError unless none has any, or all are there."""
    found = {part: name for name in components if (part := buckets_in(name, _IDS)) is not None}
    if found and sorted(bucket for part in found for bucket in part) != list(range(BUCKETS)):
        raise ValueError(message("models.uneven", columns=", ".join(found.values()), examples=0))
    return found


def packed(codes: Ints, names: Sequence[str]) -> Arrays:
    """Return the arrays of a component, of ids in the order of their codes."""
    text = pa.array(names, pa.large_string())
    ends, values = text.buffers()[1:]
    offsets = np.frombuffer(ends, dtype=np.int64)[: len(names) + 1] if names else np.zeros(1, dtype=np.int64)
    return {
        _CODES: codes,
        _LENGTHS: np.diff(offsets),
        _VALUES: np.frombuffer(values or b"", dtype=np.uint8)[: offsets[-1]],
    }


def unpacked(arrays: Mapping[str, Any]) -> tuple[Ints, list[str]]:
    """Return codes and ids of a component; KeyError or ValueError if its arrays do not fit each other."""
    codes, lengths, values = arrays[_CODES], arrays[_LENGTHS], arrays[_VALUES]
    offsets = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths, dtype=np.int64)])
    if len(codes) != len(lengths) or lengths.min(initial=0) < 0 or offsets[-1] != len(values):
        raise ValueError(message("models.uneven", columns=f"{_LENGTHS}, {_VALUES}", examples=len(codes)))
    text = pa.LargeStringArray.from_buffers(len(codes), pa.py_buffer(offsets), pa.py_buffer(values))
    text.validate(full=True)
    return codes, text.to_pylist()


def publish(folder: Folder, buckets: Buckets, arrays: Arrays) -> list[FileEntry]:
    """Write the component of some buckets, to which nothing refers yet."""
    return publish_component(folder, component_of(buckets, _IDS), arrays)


def joined(stream: Mapping[str, Any], parts: Iterable[tuple[Ints, list[str]]]) -> dict[str, Any]:
    """Return the component ``stream`` of a state with all ids in it, as one process writes it.

    ValueError if parts do not fit it.
    """
    found = list(parts)
    codes = np.concatenate([np.empty(0, dtype=np.int64), *(codes for codes, _ in found)])
    names = [name for _, some in found for name in some]
    order = np.argsort(codes, kind="stable")
    codes, died = codes[order], np.full(len(codes), -1, dtype=np.int64)
    at = np.searchsorted(codes, stream["dead_codes"])
    if not np.array_equal(codes[np.minimum(at, len(codes) - 1)] if len(codes) else codes, stream["dead_codes"]):
        raise ValueError(message("models.uneven", columns="dead_codes", examples=len(codes)))
    died[at] = stream["dead_rows"]
    rest = {name: value for name, value in stream.items() if not name.startswith("dead")}
    return {**rest, "ids": [names[place] for place in order.tolist()], _CODES: codes, "id_died": died}


def of_format_1(stream: Mapping[str, Any], live: Ints) -> dict[str, Any]:
    """Return the component ``stream`` of format 1, in which the source has the ids by code, as it is written now.

    ``live`` are the codes of live examples; deleted ids are never forgotten. ValueError if a live example has no id.
    """
    source, alive = dict(stream["source"]), set(live.tolist())
    names = source.pop("ids")
    rest = {**stream, "source": source}
    if not names:  # ids are integers, or there are none
        return rest
    found = {code: name for code, name in enumerate(names) if name is not None}  # a purge has erased others
    if not alive <= found.keys():
        raise ValueError(message("models.uneven", columns="ids", examples=len(alive)))
    died = [-1 if code in alive else len(names) for code in found]
    known = {"ids": [*found.values()], _CODES: np.array([*found], dtype=np.int64), "id_died": np.array(died)}
    return {**rest, **known, "id_next": len(names), "id_rows": len(names), "id_remembered": ALWAYS}


def in_format_1(stream: Mapping[str, Any]) -> dict[str, Any]:
    """Return a component that :func:`of_format_1` has made, without ids that are not there any more, as it was."""
    names: list[str | None] = [None] * stream.get("id_next", 0)
    for code, name in zip(stream.get(_CODES, np.empty(0)).tolist(), stream.get("ids", []), strict=True):
        names[code] = name
    own = {"ids", _CODES, "id_died", "id_next", "id_rows", "id_remembered"}
    rest = {name: value for name, value in stream.items() if name not in own}
    return {**rest, "source": {**stream["source"], "ids": names}}


def apart(components: Mapping[str, dict[str, Any]], folder: Folder) -> dict[str, Any]:
    """Return the component ``stream`` of a state that was read with parts apart, its ids to be read by several."""
    stream, parts = components["stream"], parts_in(components)
    return {**stream, "ids": SavedIds(folder, parts, components)} if parts else stream


def divided(
    components: Mapping[str, Mapping[str, Any]], folder: Folder
) -> tuple[Mapping[str, Mapping[str, Any]], list[FileEntry]]:
    """Have ids that are elsewhere written; returns the components without them, and the files."""
    stream = components.get("stream", {})
    ids = stream.get("ids")
    if not isinstance(ids, IdsElsewhere):
        return components, []
    files = ids.write(folder)
    return {**components, "stream": {name: value for name, value in stream.items() if name != "ids"}}, files
