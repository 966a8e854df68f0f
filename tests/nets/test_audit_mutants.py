"""Audits find what is changed, in one part or in several."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
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
from raydt.learners.gbdt.model import SLOPE
from raydt.trees.canonical_arrays import CHOICE
from tests.cases import CASES, Trial, every_case, never, one_of_each
from tests.oracles.audited_gbdt import slow_audit
from tests.refusals import findings

# -- audit mutants ---------------------------------------------------------------------------------------------------
# Change any number of any array of a state: the check at loading or the audit finds it, or the learner says why not.
#
# ``Learner.unproven`` names the arrays in which a change may stay; of all others every change must be found.

LARGEST = float(np.finfo(np.float64).max)
#: Changes of each array of the coordinator or of one group: in every test run of the first case of a learner (of its
#: other cases one), and in nightly runs of every case.
FEW, MANY = 3, 20


def verdict(trial: Trial, features: Any, classes: int, state: Any, groups: Any, history: Any) -> str:
    """``refused``, ``found`` or ``sound``; what else is raised is an error of the check or of the audit."""
    report = audit(trial.learner, trial.options, features, classes, state, history, groups)
    if report.ok and not report.failures:
        return "sound"
    return "refused" if "audits.malformed" in findings(report) else "found"


def changed(array: np.ndarray, draw: random.Random) -> np.ndarray | None:
    """The array with one number changed; None if it cannot hold what was drawn."""
    copy, at = array.copy(), draw.randrange(array.size)
    old = copy.flat[at].item()
    try:
        if array.dtype.kind == "f":
            near = old + 1, -2 * old - 1, old * 2.0**40, old * 2.0**-40, old + 2.0**30
            copy.flat[at] = draw.choice((*near, *near, np.nan, np.inf, -np.inf, LARGEST, -LARGEST))
        else:
            near = int(old) + 1, int(old) - 1, int(not old)
            ends = (0, 1) if array.dtype.kind == "b" else (np.iinfo(array.dtype).min, np.iinfo(array.dtype).max)
            copy.flat[at] = draw.choice((*near, *near, *ends))
    except (OverflowError, ValueError):
        return None
    return None if copy.tobytes() == array.tobytes() else copy


def is_rounded(trial: Trial, name: str, array: Any, mutant: Any) -> bool:
    """Return True if residuals differ by one at most: times a weight of a half, two such are rounded to the same."""
    return trial.case.weighted and name == "ledger" and bool((np.abs(mutant - array) <= 1).all())


def mutants(
    state: Any, groups: Any, draw: random.Random, times: int
) -> Iterator[tuple[str, str, np.ndarray, np.ndarray, Any, Any]]:
    """Place, name and array, each ``times``; the array with one number changed, and state and groups with it."""
    for where, arrays in (("coordinator", state), *groups.items()):
        for name, array in arrays.items():
            for _ in range(times if array.size else 0):
                mutant = changed(array, draw)
                if mutant is None:
                    continue
                changed_state, changed_groups = dict(state), {number: dict(part) for number, part in groups.items()}
                (changed_state if where == "coordinator" else changed_groups[where])[name] = mutant
                yield where, name, array, mutant, changed_state, changed_groups


def survivors(trial: Trial, sound: tuple[Any, ...], times: int) -> tuple[Counter[str], list[str]]:
    """How many changes there were of each verdict, and those that stayed."""
    features, classes, state, groups, history, _ = sound
    assert verdict(trial, features, classes, state, groups, history) == "sound"
    draw, verdicts, stayed = random.Random(trial.name), Counter(), []
    for where, name, array, mutant, changed_state, changed_groups in mutants(state, groups, draw, times):
        found = verdict(trial, features, classes, changed_state, changed_groups, history)
        verdicts[found] += 1
        if found == "sound" and name not in trial.learner.unproven and not is_rounded(trial, name, array, mutant):
            at = np.flatnonzero((mutant != array) & ((mutant == mutant) | (array == array)))[:1]
            stayed.append(f"{where}: {name}{array.shape}, at {at}: {array.flat[at]} -> {mutant.flat[at]}")
    return verdicts, stayed


@every_case("audit mutants")
def test_every_changed_number_is_found(trial: Trial, sound) -> None:
    verdicts, stayed = survivors(trial, sound(trial), FEW if one_of_each(trial) else 1)
    assert not stayed, f"neither refused nor found by the audit, nor in {trial.learner.kind}'s unproven"
    if not one_of_each(trial):
        return
    *_, state, groups, _, _ = sound(trial)
    arrays = sum(array.size > 0 for part in (state, *groups.values()) for array in part.values())
    # Of three changes of an array the check refuses one or more; another package's learner may have few arrays.
    assert verdicts["refused"] > max(arrays / 2, 20 * trial.shipped)
    assert verdicts["found"] > 2


@every_case("audit mutants", never)
def test_every_changed_number_is_found_in_volume(trial: Trial, sound) -> None:
    _, stayed = survivors(trial, sound(trial), MANY)
    assert not stayed, f"neither refused nor found by the audit, nor in {trial.learner.kind}'s unproven"


#: What may become of a whole array, and what may not be told from what was there.
SHAPES = {
    "one shorter": lambda array: array[:-1],
    "one longer": lambda array: np.concatenate([array, array[-1:]]),
    "another type": lambda array: array.astype(np.float32 if array.dtype.kind == "f" else np.uint64),
    "another dimension": lambda array: array[None],
    "none": lambda array: None,
}

#: Arrays of streams that have predicted: a state without them is that of one that has not.
OF_PREDICTIONS = (CHOICE.name, SLOPE)


@every_case("audit mutants")
def test_every_changed_shape_is_refused_or_found(trial: Trial, sound) -> None:
    """An array of another length, type or dimension, or none: never sound, and never a traceback."""
    features, classes, state, groups, history, _ = sound(trial)
    stayed = []
    for where, arrays in (("coordinator", state), *groups.items()):
        for name, array in arrays.items():
            for what, change in SHAPES.items() if array.ndim and array.size else ():
                mutant = {other: values for other, values in arrays.items() if other != name}
                if what == "none" and name in (*trial.learner.since, *OF_PREDICTIONS):
                    continue  # an earlier format does not have it; of the present one, no state loads without it
                mutant |= {} if what == "none" else {name: change(array)}
                states = (mutant, groups) if where == "coordinator" else (state, {**groups, where: mutant})
                if verdict(trial, features, classes, *states, history) == "sound":
                    stayed.append(f"{where}: {name} {what}")
    assert not stayed


@every_case("audit mutants")
def test_rows_kept_by_shards_are_compared_with_the_history(trial: Trial, sound) -> None:
    """Later rebuilds use them; the learners' own audits look at the history only."""
    features, classes, state, groups, history, _ = sound(trial)
    name = "X" if trial.case.dense else "sparse_values"
    number = next(number for number, part in groups.items() if part[name].size)
    swapped = {**groups[number], name: groups[number][name][::-1].copy()}
    assert verdict(trial, features, classes, state, {**groups, number: swapped}, history) != "sound"


# -- divided audits --------------------------------------------------------------------------------------------------
# An audit that is divided by buckets of rows: the report of one process, and every changed number found as well.
#
# Of the learners whose audits divide (``Learner.audit_divides``).

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
@pytest.mark.parametrize("times", [1, pytest.param(8, marks=pytest.mark.nightly)])
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


# -- audits with kernels ---------------------------------------------------------------------------------------------
# An audit that has kernels of its own says of every changed number what its slow twin says (``tests.oracles``).

BOOSTED = [trial for trial in CASES if trial.learner.kind == "gbdt"]


@pytest.mark.turns(3)
@pytest.mark.parametrize("trial", BOOSTED, ids=lambda trial: trial.name)
@pytest.mark.parametrize("times", [1, pytest.param(8, marks=pytest.mark.nightly)])
def test_an_audit_with_kernels_says_what_its_slow_twin_says(trial: Trial, sound, times: int) -> None:
    features, classes, state, groups, history, _ = sound(trial)
    draw, verdicts = random.Random(f"{trial.name} {times} twin"), Counter[bool]()
    for _, name, _, _, new, columns in chain(
        [("", "", None, None, state, groups)], mutants(state, groups, draw, times)
    ):
        try:
            trial.learner.check(trial.options, features, classes, new, columns)
        except ValueError:
            continue  # nobody reads such a state
        found = trial.learner.audit(trial.options, features, new, history, columns)
        assert found.as_dict() == slow_audit(trial.options, features, new, history).as_dict(), name
        verdicts[found.ok] += 1
    assert verdicts[True]
    assert verdicts[False] > 3
