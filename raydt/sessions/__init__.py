"""A learner at work: in-process sessions, snapshots, receipts of deletions and saved models."""
