"""Runs that an earlier version was writing when it was killed, for the tests that go on from them."""
