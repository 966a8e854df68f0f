"""Learners whose models and states are mutated: every case of each, the first of each also with a model for each key,
and one run over the good rows of the corpus.
"""

from __future__ import annotations

from tests.cases import CASES, Trial, first_cases, noted

#: Cases by the folder of their model and state.
LEARNERS: dict[str, Trial] = {trial.name.replace(": ", " "): trial for trial in CASES}

#: Those with a model for each key.
BY_KEY: dict[str, Trial] = {f"by key {trial.name.replace(': ', ' ')}": trial for trial in first_cases()}

noted("fuzzing", CASES, CASES)
noted("fuzzing by key", first_cases(), first_cases())
