"""Audits: the recorded examples, what a model should be by them, and where it differs."""
