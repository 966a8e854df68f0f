"""Before the first update: checks of the config, the run that is resumed, and the restore of a checkpoint."""
