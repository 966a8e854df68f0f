"""Files that a purge leaves alone, as raydt did not write them.

Invariant: nothing that a symbolic link leads to is read or changed. A link under a name of ours is an error, since what
it leads to would keep the deleted examples.
"""

from __future__ import annotations

from collections.abc import Callable

from pipelines.run_folder import RunFolder
from raydt.errors import InputError


def foreign_files(folder: RunFolder, is_ours: Callable[[str], bool]) -> list[str]:
    """Files that are not ours, links among them, as the filesystem calls them; sorted.

    Raises
    ------
    InputError
        A link has a name of ours.
    """
    found = []
    for name in folder.files():
        path = folder.path(name)
        if not is_ours(path):
            found.append(path)
        elif folder.is_link(name):
            remedy = "Put what it leads to in its place, or remove the link. Nothing has been changed"
            raise InputError("it is a symbolic link, and a purge follows none", file=path, remedy=remedy)
    return sorted(found)
