"""What a private Ray leaves on the disk once it has ended: nothing; other sessions are left alone."""

from __future__ import annotations

import subprocess
import sys

#: In a process of its own, which no other test has connected to a Ray.
PROGRAM = """
import os, pathlib
from actors.cluster import Cluster, connect
cluster = connect("local")
import ray, numpy as np
folder = pathlib.Path(ray._private.worker._global_node.get_session_dir_path())
other = folder.parent / f"session_of_nobody_{os.getpid()}"
other.mkdir()
assert ray.get(ray.put(np.arange(10_000))).sum() == 49_995_000
assert any(folder.iterdir())
assert Cluster(started=False)._session is None
cluster.close()
print("left", folder.exists(), "other", other.exists())
other.rmdir()
"""


def test_the_session_folder_goes_with_its_ray() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False, timeout=300)
    assert done.stdout.strip() == "left False other True", done.stderr
