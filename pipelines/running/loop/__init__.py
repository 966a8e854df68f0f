"""The replay loop: incarnations of the learner, reading ahead, and feeding batches to a session."""
