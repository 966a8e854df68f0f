"""Folders of arrays on any file system: the commit by manifest, models, states and checkpoints."""
