"""Files of examples: formats, damage in them, and columns that differ between files."""
