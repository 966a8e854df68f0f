"""What a batch of updates becomes before a learner applies it: rows on shards, and bins."""
