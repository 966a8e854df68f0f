"""The tests; a package, so that the oracles and strategies can be imported by every kind of test."""
