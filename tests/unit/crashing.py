"""A filesystem whose process dies at its n-th change, in memory of what it had written till then."""

from __future__ import annotations

import pyarrow as pa
from pyarrow import fs as pafs


class Died(BaseException):
    """The process is gone: nobody catches this."""


class Dying(pafs.FileSystemHandler):
    """A local filesystem that dies at its ``last``-th change: instead of it, or right after it.

    Changes are: a folder made, a file deleted, moved, opened for writing, written to, closed. After death nothing
    more reaches the disk, whatever destructors try.
    """

    def __init__(self, root, last=None, *, after=False):
        self._real = pafs.SubTreeFileSystem(str(root), pafs.LocalFileSystem())
        self._last, self._after, self.changes, self.dead = last, after, 0, False

    def change(self, act, *arguments):
        if self.dead:
            raise Died
        self.changes += 1
        self.dead = self.changes == self._last
        if self.dead and not self._after:
            raise Died
        done = act(*arguments)
        if self.dead:
            raise Died
        return done

    def get_type_name(self):
        return "dying"

    def normalize_path(self, path):
        return path

    def get_file_info(self, paths):
        return self._real.get_file_info(paths)

    def get_file_info_selector(self, selector):
        return self._real.get_file_info(selector)

    def open_input_stream(self, path):
        return self._real.open_input_stream(path)

    def open_input_file(self, path):
        return self._real.open_input_file(path)

    def create_dir(self, path, recursive):
        if self._real.get_file_info(path).type != pafs.FileType.Directory:
            self.change(lambda: self._real.create_dir(path, recursive=recursive))

    def delete_file(self, path):
        self.change(self._real.delete_file, path)

    def move(self, old, new):
        self.change(self._real.move, old, new)

    def open_output_stream(self, path, metadata):
        return pa.PythonFile(_Writing(self, self.change(self._real.open_output_stream, path)), mode="w")

    def open_append_stream(self, path, metadata):
        raise NotImplementedError

    def copy_file(self, old, new):
        raise NotImplementedError

    def delete_dir(self, path):
        raise NotImplementedError

    def delete_dir_contents(self, path, missing_dir_ok=False):
        raise NotImplementedError

    def delete_root_dir_contents(self):
        raise NotImplementedError


class _Writing:
    """An open file of a process that can die."""

    def __init__(self, owner, stream):
        self._owner, self._stream, self.closed = owner, stream, False

    def write(self, data):
        if not self._owner.dead:  # a destructor may still try
            self._owner.change(self._stream.write, data)
            self._stream.flush()
        return len(data)

    def flush(self):
        pass

    def close(self):
        if not self.closed and not self._owner.dead:
            self._owner.change(self._stream.close)
        self.closed = True
