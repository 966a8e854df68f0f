"""Where examples come from: files on any file system, and generators."""
