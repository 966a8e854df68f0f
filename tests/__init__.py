"""The tests; a package, so that the oracles and strategies can be imported by every kind of test.

Whatever imports it finds the example learner, pytest and ``python -m tests.simulation`` alike: a seed is the same
scenario in both, and a command that a test prints repeats what the test did.
"""

from tests.example_learner import install

install()
