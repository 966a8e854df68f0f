"""Models and states as folders of plain arrays, on any file system Arrow knows; nothing is ever unpickled.

Components, ``.npz`` and ``.json`` files named by their hash, are written first; ``manifest.json`` is the commit
(``raydt.folders.manifest``): before it the folder holds what it held before. Invariant: what :func:`load_folder`
returns was written by :func:`save_folder`, bit for bit; a folder that fails any check is refused as a whole, naming the
file. The format is described in ``docs/reference/formats.md``.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import os
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from pyarrow import fs

from raydt.arrays.lazy import Lazy
from raydt.arrays.types import AnyArray
from raydt.errors import InputError, ModelFileError, shortage
from raydt.folders.folder import Folder
from raydt.folders.manifest import (
    MANIFEST,
    ArrayType,
    FileEntry,
    Kind,
    decode,
    encode,
    is_folder_file,
    read_checked,
    read_manifest,
    require_meta,
    write_manifest,
)
from raydt.messages import message

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
) -> tuple[dict[str, Any], Lazy[str]]:
    """As :func:`load_folder`, but each component is read, and checked, whenever it is asked for.

    ``file_by_file``: of a component, a file of arrays is only read when one of them is asked for.
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
            return _FileByFile(folder, files[component])
        return {name: value for entry in files[component] for name, value in read_entry(folder, entry).items()}

    meta = {**manifest.meta, **manifest.origin}
    return meta, Lazy(files, read)


class _FileByFile(Mapping[str, Any]):
    """The values of one component; a file of arrays is read, whole, when the first of them is asked for."""

    def __init__(self, folder: Folder, files: Iterable[FileEntry]) -> None:
        self._folder, self._values, self._unread = folder, dict[str, Any](), dict[str, FileEntry]()
        for entry in files:
            if entry.arrays is None:  # its names are in the file
                self._values |= read_entry(folder, entry)
            else:
                self._unread |= dict.fromkeys(entry.arrays, entry)

    def __getitem__(self, name: str) -> Any:
        if name in self._unread:
            read = read_entry(self._folder, self._unread[name])
            self._values |= read
            self._unread = {other: entry for other, entry in self._unread.items() if other not in read}
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        yield from (*self._values, *self._unread)

    def __len__(self) -> int:
        return len(self._values) + len(self._unread)

    def __contains__(self, name: object) -> bool:
        return name in self._values or name in self._unread


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
        buffer = io.BytesIO()
        # np.savez would do, but for arrays called "file", and for objects, which it pickles.
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as members:
            for name, array in arrays.items():
                with members.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                    # As np.lib.format.write_array does, without its copy of the numbers.
                    member.write(_header(array.dtype.str, array.shape))
                    member.write(array.data.cast("B") if array.size else b"")
        types = {name: ArrayType(dtype=array.dtype.str, shape=list(array.shape)) for name, array in arrays.items()}
        files.append(("npz", buffer.getbuffer(), types))
    if plain or not whole:
        files.append(("json", memoryview(encode(plain)), None))
    return files


@functools.lru_cache(1024)
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
