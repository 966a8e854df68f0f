"""What a run keeps: scores, the four tables and their parts, checkpoints, recoveries."""
