"""Jobs from Python: the public names of the package ``pipelines``, wherever this installation keeps it.

``from raydt.jobs import replay`` works for ``train``, ``update`` and the others, too, and for the modules of
``pipelines``, such as ``tracking``. Importing this module lets the process import ``pipelines`` and ``actors`` from
this installation, too (:mod:`raydt.installation`).

``python -m raydt.jobs`` is the command ``raydt``. Not here: any work. ``raydt`` itself imports neither package.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from raydt.installation import claim

claim()


def __getattr__(name: str) -> Any:
    """Return a public name or a module of ``pipelines``."""
    package = import_module("pipelines")
    if name in package.__all__:
        return getattr(package, name)
    if name.startswith("_") or find_spec(f"pipelines.{name}") is None:
        raise AttributeError(f"module 'raydt.jobs' has no attribute {name!r}")
    return import_module(f"pipelines.{name}")


def __dir__() -> list[str]:
    """List the public names."""
    return sorted(import_module("pipelines").__all__)


if __name__ == "__main__":  # `python -m raydt.jobs` is the command `raydt`, with this Python
    import_module("pipelines.cli").main()
