"""``python -m tests.fuzz --mutations 2000 --seed 1``: prints a summary and every finding.

Exit code 1 if there is a finding.
"""

from __future__ import annotations

import argparse
import sys

from tests.fuzz.parent import run


def main() -> int:
    """Parse the arguments and run."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--mutations", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, metavar="N", help="repeat one mutation")
    parser.add_argument("--processes", type=int, default=2)
    arguments = parser.parse_args()
    tally = run(arguments.mutations, arguments.seed, arguments.processes, arguments.only)
    print(tally.summary())
    for finding in tally.findings:
        print(f"\nfinding: --seed {arguments.seed} --only {finding.number} ({finding.target})\n{finding.said}")
    return 1 if tally.findings else 0


if __name__ == "__main__":
    sys.exit(main())
