"""Descriptions of learners as plain data: words, tables, charts and trees that know no HTML and no terminal."""
