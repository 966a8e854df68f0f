"""A learner in a package of its own: the tests find it as if it were installed, and so do the processes they start."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "one_rule"

_folders: list[tempfile.TemporaryDirectory[str]] = []  # they go with this process


def install() -> None:
    """Put the package and its metadata on the path, without pip; nothing if this was done, here or in a parent."""
    if str(EXAMPLE) in sys.path:  # a process of xdist inherits the path
        return
    _folders.append(tempfile.TemporaryDirectory(prefix="raydt-packages-"))
    folder = Path(_folders[-1].name)
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    metadata = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Name: {project['name']}\nVersion: {project['version']}\n")
    groups = [
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in entries.items())
        for group, entries in project["entry-points"].items()
    ]
    (metadata / "entry_points.txt").write_text("\n".join(groups))
    sys.path += [str(folder), str(EXAMPLE)]
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [*filter(None, [os.environ.get("PYTHONPATH")]), str(folder), str(EXAMPLE)]
    )
