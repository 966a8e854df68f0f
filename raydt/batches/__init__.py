"""Rows on shards, and bins: a batch of updates before a learner applies it."""
