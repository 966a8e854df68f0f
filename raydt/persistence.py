"""Models and states as folders of plain arrays, on any file system Arrow knows; nothing is ever unpickled.

A folder holds components: each is one uncompressed ``.npz`` file of its arrays, one ``.json`` file of its other
values, or both. Components are written first, under names that contain their own hash; ``manifest.json`` is
written last and is the commit: before it the folder holds what it held before, after it the new contents.

Invariant: what :func:`load_folder` returns was written by :func:`save_folder`, bit for bit. The manifest carries
its own hash and that of every file; a folder that fails any check is refused as a whole, naming the file.

Not here: which arrays make up a model or a state (the learner's to say) and when to write one. The format is
described in ``docs/formats.md``.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import uuid
import zipfile
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from pyarrow import fs
from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, ValidationError

import raydt
from raydt.errors import ModelFileError

FORMAT: Literal["raydt-folder"] = "raydt-folder"
FORMAT_VERSION: Literal[1] = 1
MANIFEST = "manifest.json"

Kind = Literal["model", "state"]

#: What the ``meta`` of each kind must hold; more is allowed.
REQUIRED_META = {
    "model": ("learner", "features", "classes"),
    "state": ("learner", "features", "classes", "config_hash", "source_fingerprint", "offset"),
}

_NAME = r"[a-z0-9][a-z0-9_-]*"
_SEAL = b',\n "sha256": "'
_REMEDY = "Restore the folder from a copy, or write it again"

# Strict: a manifest that Python would have to interpret was not written by this module.
_STRICT = ConfigDict(extra="forbid", strict=True)


class _Array(BaseModel):
    """Type and shape of one array."""

    model_config = _STRICT

    dtype: str = Field(pattern=r"^[<|][biuf][1248]$")
    shape: list[NonNegativeInt]


class _File(BaseModel):
    """One file of the folder."""

    model_config = _STRICT

    name: str = Field(pattern=rf"^{_NAME}\.[0-9a-f]{{16}}\.(npz|json)$")
    component: str = Field(pattern=rf"^{_NAME}$")
    bytes: NonNegativeInt
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    arrays: dict[str, _Array] | None = None


class _Manifest(BaseModel):
    """The contents of ``manifest.json``, without the hash that seals it."""

    model_config = _STRICT

    format: Literal["raydt-folder"]
    format_version: Literal[1]
    kind: Kind
    raydt_version: str
    meta: dict[str, Any]
    files: list[_File]


def save_folder(
    path: str | os.PathLike[str],
    kind: Kind,
    meta: Mapping[str, Any],
    components: Mapping[str, Mapping[str, Any]],
    *,
    filesystem: fs.FileSystem | None = None,
) -> None:
    """Write a folder, or replace the one there; files that are not of a folder of ours are left alone.

    Equal contents give equal bytes. A crash at any point leaves the previous contents or the new ones.

    Parameters
    ----------
    path : path or URI
        The folder, created with its parents; a URI names its file system (``file``, ``s3``, ``gs``, ``abfs``, ...).
    kind : {"model", "state"}
    meta : mapping
        JSON values for the manifest; see :data:`REQUIRED_META`.
    components : mapping of str to mapping
        Of each component, the values that are arrays (booleans, integers, floats) go into its ``.npz`` file, the
        others, which must be JSON values, into its ``.json`` file.
    filesystem : pyarrow.fs.FileSystem, optional
        Where ``path`` lies, instead of a URI.

    Raises
    ------
    ModelFileError
        The folder cannot be written, or holds a manifest that is damaged or not ours.
    TypeError, ValueError
        A value that is neither JSON nor an array of numbers; a name or a key of ``meta`` that is not allowed.
    """
    _require_meta(kind, meta)
    _encode(meta)  # what is not JSON is refused before anything is written
    store, folder = _resolve(path, filesystem)
    files: list[_File] = []
    try:
        before = _files_there(store, folder)
        store.create_dir(folder, recursive=True)
        for component, values in components.items():
            for suffix, data, arrays in _serialise(values):
                sha = hashlib.sha256(data).hexdigest()
                name = f"{component}.{sha[:16]}.{suffix}"
                files.append(_File(name=name, component=component, bytes=len(data), sha256=sha, arrays=arrays))
                _publish(store, folder, name, data)
        manifest = _Manifest(
            format=FORMAT,
            format_version=FORMAT_VERSION,
            kind=kind,
            raydt_version=raydt.__version__,
            meta=dict(meta),
            files=files,
        )
        _publish(store, folder, MANIFEST, _seal(_encode(manifest.model_dump(exclude_none=True))))
        for name in before - {file.name for file in files}:
            store.delete_file(f"{folder}/{name}")
    except OSError as error:
        raise ModelFileError(f"cannot be written: {error}", file=folder) from error


def load_folder(
    path: str | os.PathLike[str], kind: Kind | None = None, *, filesystem: fs.FileSystem | None = None
) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Read a folder back, after checking every byte of it.

    Parameters
    ----------
    path : path or URI
    kind : {"model", "state"}, optional
        What is expected there.
    filesystem : pyarrow.fs.FileSystem, optional
        Where ``path`` lies, instead of a URI.

    Returns
    -------
    meta : dict
        As saved, with ``kind`` and ``raydt_version`` (of the writer) added.
    components : dict of str to dict
        As saved; the arrays are new and writable.

    Raises
    ------
    ModelFileError
        Missing or damaged files, another format version, another kind. The message names the file.
    """
    store, folder = _resolve(path, filesystem)
    manifest = _read_manifest(store, folder)
    if kind is not None and manifest.kind != kind:
        raise ModelFileError(
            f"is a {manifest.kind}, not a {kind}",
            file=folder,
            remedy="A model only predicts; a state also holds the training rows",
        )
    components: dict[str, dict[str, Any]] = {}
    for entry in manifest.files:
        file = f"{folder}/{entry.name}"
        data = _read(store, file, entry.bytes)
        if hashlib.sha256(data).hexdigest() != entry.sha256:
            raise ModelFileError("is damaged: its SHA-256 is not the manifest's", file=file, remedy=_REMEDY)
        part = _decode(data, file) if entry.arrays is None else _arrays(data, entry.arrays, file)
        components.setdefault(entry.component, {}).update(part)
    return {**manifest.meta, "kind": manifest.kind, "raydt_version": manifest.raydt_version}, components


def _resolve(path: str | os.PathLike[str], filesystem: fs.FileSystem | None) -> tuple[fs.FileSystem, str]:
    text = os.fspath(path)
    if filesystem is not None:
        return filesystem, text.rstrip("/")
    if "://" not in text:
        return fs.LocalFileSystem(), os.path.abspath(text)
    try:
        store, folder = fs.FileSystem.from_uri(text)
    except (OSError, ValueError) as error:
        raise ModelFileError(f"is not a usable URI: {error}", file=text) from error
    return store, folder.rstrip("/")


def _require_meta(kind: str, meta: Mapping[str, Any]) -> None:
    missing = [key for key in REQUIRED_META[kind] if key not in meta]
    if missing:
        raise ValueError(f"meta of a {kind} lacks {', '.join(missing)}")


def _encode(value: Mapping[str, Any]) -> bytes:
    """JSON, in ASCII and without NaN: the same bytes on every machine."""
    return (json.dumps(dict(value), indent=1, allow_nan=False) + "\n").encode("ascii")


def _decode(data: bytes, file: str) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"is not JSON: {error}", file=file, remedy=_REMEDY) from error
    if not isinstance(value, dict):
        raise ModelFileError("is not a JSON object", file=file, remedy=_REMEDY)
    return value


def _seal(text: bytes) -> bytes:
    """Append to a JSON object, as its last member, the hash of everything before it."""
    body = text.removesuffix(b"\n}\n")
    return body + _SEAL + hashlib.sha256(body).hexdigest().encode() + b'"\n}\n'


def _serialise(values: Mapping[str, Any]) -> list[tuple[str, memoryview, dict[str, _Array] | None]]:
    """Suffix, contents and array types of the files of one component."""
    arrays = {name: _little(name, value) for name, value in values.items() if isinstance(value, np.ndarray)}
    plain = {name: value for name, value in values.items() if name not in arrays}
    files: list[tuple[str, memoryview, dict[str, _Array] | None]] = []
    if arrays:
        buffer = io.BytesIO()
        # np.savez would do, but for arrays called "file", and for objects, which it pickles.
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as members:
            for name, array in arrays.items():
                with members.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, array, allow_pickle=False)
        types = {name: _Array(dtype=array.dtype.str, shape=list(array.shape)) for name, array in arrays.items()}
        files.append(("npz", buffer.getbuffer(), types))
    if plain or not arrays:
        files.append(("json", memoryview(_encode(plain)), None))
    return files


def _little(name: str, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
        raise TypeError(f"array {name!r} has dtype {array.dtype}; only booleans, integers and floats can be saved")
    return np.asarray(array, dtype=array.dtype.newbyteorder("<"), order="C")


def _publish(store: fs.FileSystem, folder: str, name: str, data: bytes | memoryview) -> None:
    """Write a file under a unique name, then move it into place, so that no reader sees half of it."""
    temporary = f"{folder}/.{name}.{uuid.uuid4().hex}"
    try:
        with store.open_output_stream(temporary) as stream:
            stream.write(data)
        if isinstance(store, fs.LocalFileSystem):
            _flush(temporary)
        store.move(temporary, f"{folder}/{name}")
        if isinstance(store, fs.LocalFileSystem):
            _flush(folder)
    except BaseException:
        with contextlib.suppress(OSError):
            store.delete_file(temporary)
        raise


def _flush(path: str) -> None:
    """Have the operating system write a file, or the names in a folder, to the disk now."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _files_there(store: fs.FileSystem, folder: str) -> set[str]:
    """Files of the contents that are about to be replaced."""
    if store.get_file_info(f"{folder}/{MANIFEST}").type == fs.FileType.NotFound:
        return set()
    return {entry.name for entry in _read_manifest(store, folder).files}


def _read(store: fs.FileSystem, file: str, size: int | None = None) -> bytes:
    try:
        info = store.get_file_info(file)
        if info.type != fs.FileType.File:
            raise ModelFileError("is missing", file=file, remedy=_REMEDY)
        if size is not None and info.size != size:
            raise ModelFileError(
                f"is damaged: it has {info.size} bytes, the manifest says {size}", file=file, remedy=_REMEDY
            )
        with store.open_input_stream(file) as stream:
            data: bytes = stream.read()
        return data
    except OSError as error:
        raise ModelFileError(f"cannot be read: {error}", file=file) from error


def _read_manifest(store: fs.FileSystem, folder: str) -> _Manifest:
    file = f"{folder}/{MANIFEST}"
    try:
        data = _read(store, file)
    except ModelFileError as error:
        raise ModelFileError(
            f"holds no readable {MANIFEST} ({error.problem}): it is no model or state folder, or its writing was "
            "interrupted",
            file=folder,
        ) from error
    raw = _decode(data, file)
    if raw.get("format") == FORMAT and raw.get("format_version") != FORMAT_VERSION:
        # Looked at before the hash: a later format may compute it in another way.
        raise ModelFileError(
            f"is of format version {raw.get('format_version')!r}, this raydt {raydt.__version__} reads version "
            f"{FORMAT_VERSION}",
            file=file,
            remedy="Use the version of raydt that wrote it",
        )
    body, _, _ = data.rpartition(_SEAL)
    if data != _seal(body + b"\n}\n"):
        raise ModelFileError("is damaged: it does not end with its own SHA-256", file=file, remedy=_REMEDY)
    del raw["sha256"]
    try:
        manifest = _Manifest.model_validate(raw)
        _require_meta(manifest.kind, manifest.meta)
    except ValidationError as error:
        detail = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, detail["loc"]))
        raise ModelFileError(f"is no manifest: {place}: {detail['msg']}", file=file, remedy=_REMEDY) from error
    except ValueError as error:
        raise ModelFileError(f"is no manifest: {error}", file=file, remedy=_REMEDY) from error
    return manifest


def _arrays(data: bytes, types: dict[str, _Array], file: str) -> dict[str, npt.NDArray[Any]]:
    """The arrays of an ``.npz`` file, which must be those the manifest lists."""
    arrays: dict[str, npt.NDArray[Any]] = {}
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as members:
            if any(item.compress_type != zipfile.ZIP_STORED for item in members.infolist()):
                raise ValueError("a member is compressed")
            for name in types:
                with members.open(f"{name}.npy") as member:
                    arrays[name] = np.lib.format.read_array(member, allow_pickle=False)
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, MemoryError) as error:
        raise ModelFileError(f"does not hold the arrays of the manifest: {error}", file=file, remedy=_REMEDY) from error
    for name, expected in types.items():
        found = arrays[name]
        if found.dtype.str != expected.dtype or list(found.shape) != expected.shape:
            raise ModelFileError(
                f"array {name!r} is {found.dtype.str} {list(found.shape)}, the manifest says "
                f"{expected.dtype} {expected.shape}",
                file=file,
                remedy=_REMEDY,
            )
    return arrays
