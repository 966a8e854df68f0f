"""The share of the fuzzing that every test run does."""

from tests.fuzz.parent import run


def test_no_mutation_crashes_hangs_or_passes_in_silence():
    tally = run(2000, seed=1)
    assert sum(tally.verdicts.values()) == 2000
    assert not tally.findings, "\n\n".join(
        f"python -m tests.fuzz --seed 1 --only {finding.number} ({finding.target})\n{finding.said}"
        for finding in tally.findings[:5]
    )
