"""Models by key: one model for each value of a key, each bit for bit that of a run over the rows of its key alone."""
