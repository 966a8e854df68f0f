"""Coordinator and shards under a simulated network and crashing machines, from a seed."""
