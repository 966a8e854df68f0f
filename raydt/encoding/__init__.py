"""From Arrow columns to numbers: one module for each role a column can have."""
