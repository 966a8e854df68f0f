"""Benchmarks of the confidence trees: see ``--help`` and command.py beside this file."""

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).parents[1])  # where measure.py and this folder, as ``ctree``, are found

from ctree.command import main  # noqa: E402 (needs the path)

if __name__ == "__main__":  # not in the processes of --jobs
    main()
