"""The share of the fuzzing that every test run does."""

import queue
import subprocess
import sys
import tempfile
import threading

import pytest

from tests.fuzz.parent import Tally, _listen, _watch, run


@pytest.mark.parametrize(
    "mutations", [60, pytest.param(20_000, marks=[pytest.mark.nightly, pytest.mark.timeout(7200)])]
)
def test_no_mutation_crashes_hangs_or_passes_in_silence(mutations):
    tally = run(mutations, seed=1)
    assert sum(tally.verdicts.values()) == mutations
    assert not tally.findings, "\n\n".join(
        f"python -m tests.fuzz --seed 1 --only {finding.number} ({finding.target})\n{finding.said}"
        for finding in tally.findings[:5]
    )


def test_a_child_that_dies_is_a_finding_and_the_next_one_goes_on_behind_it():
    code = """import os; print('{"number": 7, "target": "t"}', flush=True); os.kill(os.getpid(), 11)"""
    tally, lines = Tally(), queue.Queue()
    with (
        tempfile.TemporaryFile() as errors,
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=errors) as child,
    ):
        listener = threading.Thread(target=_listen, args=(child, lines))
        listener.start()
        assert _watch(child, lines, 5, 2, tally, errors) == 9
        listener.join()
    assert [(finding.number, finding.target) for finding in tally.findings] == [(7, "t")]
    assert "ended with -11" in tally.findings[0].said
