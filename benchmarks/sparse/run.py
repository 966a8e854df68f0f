"""Benchmarks of the sparse best splits: see ``--help`` and command.py beside this file."""

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).parents[1])  # where measure.py and this folder, as ``sparse``, are found

from sparse.command import main  # noqa: E402 (needs the path)

main()
