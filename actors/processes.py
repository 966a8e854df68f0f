"""Ending processes of this machine that Ray would leave for a while: stopped ones, and those of a private Ray."""

from __future__ import annotations

import contextlib
import os
import sys


def end_if_stopped(pid: int) -> None:
    """End an actor's process on this machine, if it is stopped (SIGSTOP, a debugger).

    Ray asks a process to end itself, and does it by force only after some seconds, in which the process keeps its
    share of the processors from its successor. Whatever has taken over the number of an ended process is left alone.
    """
    import psutil  # also below: most runs end no process

    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_STOPPED and process.cmdline()[0].startswith("ray::"):
            process.kill()
    except (psutil.Error, IndexError):
        pass


def end_private_ray() -> None:
    """End the processes of a Ray that this process has started, and theirs, without another word to them.

    Only for a process that ends at once. Ray has its head and its raylet end with their parent, but the agents
    of a raylet that is gone so suddenly try for a minute to report it to the head.
    """
    if "ray" not in sys.modules:
        return
    import psutil

    package = os.path.dirname(sys.modules["ray"].__file__ or "") + os.sep
    for process in psutil.Process().children(recursive=True):  # parents first, so that nothing is started again
        with contextlib.suppress(psutil.Error):
            words = process.cmdline()
            if words[:1] and (words[0].startswith("ray::") or any(word.startswith(package) for word in words)):
                process.kill()
