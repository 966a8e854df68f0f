"""Tests of several parts together, on a real Ray."""
