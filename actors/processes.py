"""Ending a process of this machine that no longer takes messages."""

from __future__ import annotations

import psutil


def end_if_stopped(pid: int) -> None:
    """End an actor's process on this machine, if it is stopped (SIGSTOP, a debugger).

    Ray asks a process to end itself, and does it by force only after some seconds, in which the process keeps its
    share of the processors from its successor. Whatever has taken over the number of an ended process is left alone.
    """
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_STOPPED and process.cmdline()[0].startswith("ray::"):
            process.kill()
    except (psutil.Error, IndexError):
        pass
