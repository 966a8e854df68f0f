"""Mutated files through the reading path, in child processes with limits: nothing may crash, hang or be silent.

``python -m tests.fuzz --mutations 2000 --seed 1``; a finding is repeated with ``--seed S --only N``.
"""
