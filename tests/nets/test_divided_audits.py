"""An audit that is divided by buckets of rows: the report of one process, and every changed number found as well.

Of the learners whose audits divide (``Learner.audit_divides``).
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from raydt.audits.bins import PartsHere
from raydt.audits.recorded_tree import AuditReport
from raydt.examples.row_owners import RowOwners, are_in
from raydt.examples.updates import History
from raydt.exchange.messages import Buckets
from raydt.learners.base import AuditedPart, audit, audit_divided, rows_within
from raydt.learners.gbdt import audit as gbdt_audit
from tests.cases import CASES, Trial
from tests.nets.test_audit_mutants import mutants

DIVIDED = [trial for trial in CASES if trial.learner.audit_divides]
every_divided = pytest.mark.parametrize("trial", DIVIDED, ids=lambda trial: trial.name)


def within(history: History, own: Buckets) -> History:
    """The examples of a history in some buckets."""
    mine = np.flatnonzero(are_in(history.id, own))
    by_row = {name: getattr(history, name)[mine] for name in ("id", "X", "y", "inserted", "deleted")}
    rest = {name: getattr(history, name) for name in ("sparse", "weight")}
    return replace(history, **by_row, **{name: None if one is None else one[mine] for name, one in rest.items()})


def divided(
    trial: Trial,
    features: Any,
    classes: int,
    state: Any,
    groups: Any,
    history: History,
    shards: int,
    gathered: type[PartsHere] = PartsHere,
) -> AuditReport:
    """The report of an audit of so many parts, some of which may have no row."""
    parts = []
    for own in RowOwners(shards).of_all():
        rows, columns = rows_within(trial.learner, trial.options, features, state, groups, own)
        parts.append(AuditedPart(trial.learner, trial.options, features, classes, rows, within(history, own), columns))
    return audit_divided(trial.learner, trial.options, features, state, gathered(parts))


def test_some_audits_divide() -> None:
    assert {trial.learner.kind for trial in DIVIDED} >= {"gbdt"}


@pytest.mark.turns(2)
@every_divided
def test_the_report_is_the_same_whatever_the_parts(trial: Trial, sound) -> None:
    *ended, _ = sound(trial)
    features, classes, state, groups, history = ended
    whole = audit(trial.learner, trial.options, features, classes, state, history, groups)
    assert whole.conformance == "holds"
    for shards in (1, 2, 3, 100):
        assert divided(trial, *ended, shards).as_dict() == whole.as_dict(), shards


@pytest.mark.turns(2)
@every_divided
def test_what_parts_answer_together_does_not_grow_with_their_number(trial: Trial, sound, monkeypatch) -> None:
    """Sums of candidates are asked for in as many rounds as keep them small."""
    *ended, _ = sound(trial)
    monkeypatch.setattr(gbdt_audit, "_TOGETHER", most := 2000)
    together: list[tuple[int, int]] = []

    class Gathered(PartsHere):
        def ask(self, method: str, *arguments: Any) -> list[Any]:
            answers = super().ask(method, *arguments)
            if method == "trees":
                together.append((len(arguments[0]), sum(t.sums.left.size for part in answers for t in part.trees)))
            return answers

    assert divided(trial, *ended, 30, Gathered).conformance == "holds"
    assert all(iterations == 1 or sums <= most for iterations, sums in together)


@pytest.mark.turns(2)
@every_divided
@pytest.mark.parametrize("times", [1, pytest.param(20, marks=pytest.mark.nightly)])
def test_every_changed_number_is_found_as_in_one_process(trial: Trial, sound, times: int) -> None:
    *ended, _ = sound(trial)
    features, classes, state, groups, history = ended
    draw, verdicts = random.Random(f"{trial.name} {times}"), Counter[bool]()
    for _, name, _, _, new, columns in mutants(state, groups, draw, times):
        try:
            trial.learner.check(trial.options, features, classes, new, columns)
        except ValueError:
            continue  # nobody reads such a state
        whole = audit(trial.learner, trial.options, features, classes, new, history, columns)
        parts = divided(trial, features, classes, new, columns, history, 3)
        # A birth of another row leads there, or to nobody in a part: both are violations.
        assert (parts.conformance, bool(parts.failures)) == (whole.conformance, bool(whole.failures)), name
        assert whole.conformance == "violated" or parts.as_dict() == whole.as_dict(), name
        verdicts[whole.ok] += 1
    assert verdicts[False] > 3
