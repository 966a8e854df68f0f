"""This installation: its version, and its packages ``actors`` and ``pipelines``, whose names other projects use, too.

Invariant: after :func:`claim`, a process imports them from this installation, wherever on its path others lie. In a
clone they lie next to ``raydt``; a wheel puts them into ``raydt/_packages``, so that it shares no file with another
distribution.
"""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

from raydt.messages import message

__version__ = "1.0.0rc1"

NAMES = ("actors", "pipelines")

_OWN = Path(__file__).resolve().parent
#: Whether a wheel was installed, whose packages are found by a claim only.
INSTALLED = (_OWN / "_packages").is_dir()
_ROOT = str(_OWN / "_packages" if INSTALLED else _OWN.parent)


class _Finder:
    """Finds the packages of this installation, before the path is searched."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: ModuleType | None = None) -> ModuleSpec | None:
        return PathFinder.find_spec(name, [_ROOT]) if name in NAMES else None


def claim() -> None:
    """Make this process import the packages from this installation.

    Raises
    ------
    ImportError
        Another package of that name was imported before.
    """
    for name in NAMES:
        origin = getattr(sys.modules.get(name), "__file__", None)
        if origin is not None and not _is_ours(origin):
            raise ImportError(message("machine.other_package", name=name, origin=origin))
    if _Finder not in sys.meta_path:
        sys.meta_path.insert(0, _Finder)


def others() -> list[str]:
    """Return the other packages and modules of these names on the import path."""
    found = (PathFinder.find_spec(name, [entry]) for entry in sys.path for name in NAMES)
    return [spec.origin for spec in found if spec is not None and spec.origin and not _is_ours(spec.origin)]


def _is_ours(origin: str) -> bool:
    return Path(_ROOT) in Path(origin).resolve().parents
