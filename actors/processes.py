"""Processes of this machine: their memory, and the end of those that Ray would leave for a while.

That are stopped processes, and those of a private Ray.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import psutil


def peak_rss_bytes() -> int:
    """Return the largest resident size of this process so far."""
    import resource  # which not every platform has

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


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


#: Waits until its standard input ends, as it does when the process that has it is gone, and then ends processes, given
#: as pid and start in pairs, unless another process has taken the number.
_FOLLOWER = """
import os, signal, sys
sys.stdin.buffer.read()
for pid, start in zip(sys.argv[1::2], sys.argv[2::2]):
    try:
        with open(f"/proc/{pid}/stat") as file:
            if file.read().rpartition(")")[2].split()[19] == start:
                os.kill(int(pid), signal.SIGKILL)
    except OSError:
        pass
"""


def follow_this_process() -> subprocess.Popen[bytes] | None:
    """Start a process that ends the agents of a private Ray as soon as this process is gone, however it goes.

    Head, raylet and workers of such a Ray end by themselves; the agents would try for a minute to tell the head.
    Whoever ends Ray in order ends this process before (:func:`no_longer_follow`). None without ``/proc``.
    """
    import psutil

    pids = [one.pid for one in psutil.Process().children(recursive=True) if _is_agent(one)]
    try:
        starts = [Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19] for pid in pids]
    except OSError:
        return None
    named = [word for pid, start in zip(pids, starts, strict=True) for word in (str(pid), start)]
    command = [sys.executable, "-I", "-S", "-c", _FOLLOWER, *named]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True)


def no_longer_follow(follower: subprocess.Popen[bytes] | None) -> None:
    """End the process that :func:`follow_this_process` has started, without effect on any other."""
    if follower is not None:
        follower.kill()
        follower.communicate()


def _is_agent(process: psutil.Process) -> bool:
    """Return True if a process is an agent of Ray."""
    import psutil

    with contextlib.suppress(psutil.Error, IndexError):
        words = process.cmdline()  # an agent names itself some time after its start
        named = words[0].startswith("ray::") and words[0].split()[0].endswith("Agent")
        return named or any(word.endswith(("dashboard/agent.py", "runtime_env/agent/main.py")) for word in words)
    return False
