"""Answers while a run learns: its newest snapshot is read in the background, and rows are predicted over HTTP.

Invariant: an answer is made by one model, whose digest it names, and equals what ``raydt predict`` gives for it.
"""
