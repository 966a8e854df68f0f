"""Records of a run: scores, the four tables and their parts, checkpoints, recoveries."""
