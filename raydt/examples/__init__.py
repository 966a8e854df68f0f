"""Training examples: features, targets, updates, the store of the live ones, and their history."""
