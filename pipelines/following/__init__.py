"""Runs that go on: they follow a table or a topic until they are stopped."""
