"""Verification kit and speed of the in-place online GBDT: see ``--help`` and command.py beside this file."""

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).parents[1])  # where measure.py and this folder, as ``gbdt``, are found

from gbdt.command import main  # noqa: E402 (needs the path)

main()
