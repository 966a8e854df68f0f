"""One replay, from its first update to its summary: the job, what it writes while it runs, how it ends."""
