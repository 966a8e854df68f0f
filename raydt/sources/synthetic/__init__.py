"""Synthetic examples: row r is a pure function of the options and r."""
