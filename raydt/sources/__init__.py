"""Sources of examples: files on any file system, and generators."""
