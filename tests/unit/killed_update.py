"""``raydt`` that is killed while it publishes: ``killed_update.py MOMENT arguments...``.

``MOMENT`` is the number of the file before whose publication it is, ``chain`` (before its receipt is written),
``manifest`` (before that of the new state) or ``end`` (after it).
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from pipelines.cli import main
from raydt.folders.folder import Folder
from raydt.sessions.receipt_chain import OpenChain

_, moment, *arguments = sys.argv
publish, done = Folder.publish, iter(range(1, 1000))


def kill(*_: Any, **__: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def published(folder: Folder, name: str, data: Any) -> None:
    number = next(done)
    if moment in (str(number), name.removesuffix(".json")):
        kill()
    publish(folder, name, data)
    if moment == "end" and name == "manifest.json":
        kill()


setattr(Folder, "publish", published)  # noqa: B010
if moment == "chain":
    setattr(OpenChain, "append", kill)  # noqa: B010
main(arguments)
