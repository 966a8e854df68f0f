"""Learners whose models and states are mutated: every case of each, and one run over the good rows of the corpus."""

from __future__ import annotations

from tests.cases import CASES, Trial, noted

#: Cases by the folder of their model and state.
LEARNERS: dict[str, Trial] = {trial.name.replace(": ", " "): trial for trial in CASES}

noted("fuzzing", CASES, CASES)
