"""Records of a run: scores, the five tables and their parts, checkpoints, recoveries."""
