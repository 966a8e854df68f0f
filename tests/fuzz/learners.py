"""Learners whose models and states are mutated: every case of each, the first of each also with a model for each key,
and one run over the good rows of the corpus.
"""

from __future__ import annotations

from tests.cases import CASES, Trial, first_cases, noted

#: Cases by the folder of their model and state; one of each learner first, which the few mutations of each run reach.
LEARNERS: dict[str, Trial] = {trial.name.replace(": ", " "): trial for trial in (*first_cases(), *CASES)}

#: Those with a model for each key.
BY_KEY: dict[str, Trial] = {f"by key {trial.name.replace(': ', ' ')}": trial for trial in first_cases()}

noted("fuzzing", first_cases(), CASES)
noted("fuzzing by key", (), first_cases())
