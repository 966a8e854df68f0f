"""Slow, obvious twins of the learners, written from the papers; they share no code with raydt's fast paths."""
