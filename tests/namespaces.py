"""Namespaces of Linux: commands on a machine of their own, and several hosts on one machine.

Root has the rights for it; others have them where the system lets users make namespaces.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

#: A network that has loopback and one more address, as that of a laptop; nobody is at the other end.
NETWORK = """
ip link set lo up
ip link add outside type veth peer name nowhere
ip address add 10.77.0.9/24 dev outside
ip link set outside up && ip link set nowhere up
ip route add default via 10.77.0.1
"""


def unshared() -> list[str]:
    """The beginning of a command in namespaces of its own: of processes, mounts and the network."""
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    return ["unshare", *user, "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]


@functools.cache
def _are_permitted() -> bool:
    if not all(map(shutil.which, ("unshare", "nsenter", "ip", "curl"))):
        return False
    return subprocess.run([*unshared(), "bash", "-ec", NETWORK], capture_output=True, check=False).returncode == 0


def run(script: str, folder: Path, *, network: str = NETWORK, seconds: float) -> str:
    """Run commands of the shell in namespaces of their own; what they print. The first that fails ends them.

    The test is skipped where nobody may make namespaces.
    """
    if not _are_permitted():
        pytest.skip("namespaces are not permitted here, or their commands are missing")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    # Names of sockets are short, and Ray notes the address of the last cluster there.
    with tempfile.TemporaryDirectory(prefix="n", dir="/tmp") as own, tempfile.TemporaryFile("w+") as said:
        running = subprocess.Popen(
            [*unshared(), "bash", "-ec", network + script],
            cwd=folder,
            env=environment | {"RAY_TMPDIR": own, "RAY_worker_niceness": "0", "RAY_raylet_start_wait_time_s": "300"},
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
        )
        try:
            code: int | None = running.wait(seconds)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            running.kill()  # and with it all processes of its namespace
            running.wait()
        said.seek(0)
        text = said.read()
    assert code == 0, f"{'no end' if code is None else f'exit code {code}'} of\n{script}\n{text[-8000:]}"
    return text
