"""Seeds that have failed once, and why; every test run repeats them.

A seed stands for a scenario only as long as ``tests.simulation.scenarios`` draws the same from it. Where that has to
change, keep what a seed has shown as a test of its own.
"""

from __future__ import annotations

#: Seed, and the fault it has shown.
REGRESSIONS: tuple[tuple[int, str], ...] = ()
