"""The audit of confidence trees holds on sound states of every rule, and finds each kind of damage."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from raydt import ConfidenceTreeClassifier
from raydt.audits.audit_report import AuditReport
from raydt.examples.features import Features
from raydt.examples.history import History, history_of_live
from raydt.examples.updates import INSERT, UpdateBatch
from raydt.learners.confidence_tree.bounds import SplitRule, entropy_width, gini_width, kearns_mansour_width, node_delta
from raydt.learners.confidence_tree.learner import LEARNER
from raydt.learners.confidence_tree.recompute import theorem_width, width_of
from raydt.sessions.session import InProcessSession
from tests.unit.confidence_cases import CASES, Case, case

SPLITS = ("stamp", "m", "t", "classes", "rival_feature", "rival_cut", "reason", "own", "left")
SCORES = ("phi", "rival_phi", "impurity", "epsilon")


def audited(sound: Case, **other: Any) -> AuditReport:
    changed = sound._replace(**other)
    return LEARNER.audit(changed.options, changed.features, changed.state, changed.history, changed.groups)


@pytest.mark.parametrize("name", CASES)
def test_a_sound_state_holds(name: str) -> None:
    sound = case(name)
    report = audited(sound)
    assert report.failures == []
    assert report.conformance == "holds"
    assert report.feasibility == "not_promised"
    splits = (sound.state["feature"] >= 0).sum()
    assert report.checked["splits"] == report.checked["splits_replayed"] == splits
    assert splits > 0 or name == "warming"
    assert report.checked["live"] == len(sound.state["id"])
    of_live = audited(sound, history=history_of_live(sound.state, sound.groups, sound.features))
    assert of_live.failures == []
    assert (of_live.feasibility, of_live.checked["splits_replayed"]) == ("not_promised", 0)
    unknown = "; bins and splits were not derived again, as only the live examples are known"
    assert (of_live.reason.endswith(unknown), unknown in report.reason) == (True, False)


def changed(arrays: Any, name: str, place: Any, by: Any) -> Any:
    array = arrays[name].copy()
    array[place] = (array[place] + np.array(by)).astype(array.dtype)
    return {**arrays, name: array}


def leaf_of(state: Any) -> int:
    return int(np.where(state["feature"] < 0, state["own"].sum(axis=1), -1).argmax())


def tried(state: Any) -> int:
    return int(state["trial_own"].sum(axis=1).argmax())


@pytest.mark.parametrize("name", ["gini", "entropy", "kearns_mansour", "renewed", "drift", "sparse"])
@pytest.mark.parametrize("column", [*SPLITS, *SCORES])
def test_every_number_of_a_record_is_found(name: str, column: str) -> None:
    sound = case(name)
    for place in range(len(sound.state["split_m"])):
        at = (place, 0) if column in ("own", "left") else place
        by = 1e-7 if column in SCORES else 2 if column == "stamp" else 1
        state = changed(sound.state, f"split_{column}", at, by)
        report = audited(sound, state=state)
        assert report.conformance == "violated", (column, place)
        if column in SCORES:  # of which some can be told from the record alone
            of_live = history_of_live(state, sound.groups, sound.features)
            assert column == "rival_phi" or not audited(sound, state=state, history=of_live).ok


@pytest.mark.parametrize(
    ("name", "array", "where", "by", "finding"),
    [
        ("gini", "counts", (0, 0), 1, "class counts differ"),
        ("gini", "own", leaf_of, 1, "what is counted differs"),
        ("gini", "own", 0, 1, "what is counted differs"),
        ("drift", "own", 0, 1, "what is counted differs"),
        ("drift", "trial_own", tried, 1, "what a trial counts differs"),
        ("drift", "trial_began", tried, 2, "trial_began is no comparison"),
        ("drift", "trial_restarted", leaf_of, 2, "trial_restarted is no comparison"),
        ("drift", "compared", 0, 2, "compared is"),
        ("gini", "leaf", 0, 1, "leaf of"),
        ("gini", "y", 0, 1, "label of"),
        ("gini", "born", 0, 1, "time of insertion"),
        ("gini", "since", leaf_of, 1, "since differs"),
        ("drift", "since", leaf_of, 1, "since differs"),
        ("drift", "since", leaf_of, 15, "since cannot be"),
        ("gini", "created", leaf_of, 2, "created is not the split above"),
        ("gini", "t", 0, 1, "t is"),
        ("gini", "classes", 0, 1, "classes is"),
        ("gini", "threshold", 0, 0.001, "the threshold is not that of the cut"),
        ("gini", "cut", 0, 1, "the threshold is not that of the cut"),
        ("gini", "bins_values", 0, -0.001, "are not those of the warm-up's rows"),
        ("gini", "bins_seen", 0, -1, "are not those of the warm-up's rows"),
        ("renewed", "bins_values", 0, -0.001, "are not those of the last renewal's rows"),
        ("renewed", "renewed", 0, 1, "renewed is"),
        ("renewed", "lived", 0, 1, "lived is"),
        ("gini", "warmup", 0, 1, ""),
        ("sparse", "id", 0, 1, "examples"),
        ("gini", "left", 0, 1, "malformed"),
        ("gini", "bins_starts", 1, 10**6, "malformed"),
    ],
)
def test_damage_to_the_tree_is_found(name: str, array: str, where: Any, by: Any, finding: str) -> None:
    sound = case(name)
    place = where(sound.state) if callable(where) else where
    report = audited(sound, state=changed(sound.state, array, place, by))
    assert report.conformance == "violated"
    assert any(finding in failure for failure in report.failures)


@pytest.mark.parametrize(
    ("name", "array", "finding"),
    [
        ("gini", "totals", "the totals of feature group 1"),
        ("gini", "bins", "do not count the live examples"),
        ("gini", "bins_values", "the bins of feature group 1"),
        *(("sparse", column, "group 1") for column in ("n1", "c11", "place")),
    ],
)
def test_damage_to_statistics_is_found(name: str, array: str, finding: str) -> None:
    sound = case(name)
    at = tuple(place - 1 for place in sound.groups[1][array].shape) if array == "bins" else 0
    groups = {**sound.groups, 1: changed(sound.groups[1], array, at, 3)}
    report = audited(sound, groups=groups)
    assert report.conformance == "violated"
    assert any(part in failure for failure in report.failures for part in finding.split("|"))


def test_another_past_is_found() -> None:
    """A row that was counted, and is gone, has another label; and one was never there."""
    sound = case("gini")
    first_split, warmup = int(sound.state["split_stamp"].min()), int(sound.state["warmup"][0])
    inserted, deleted = 2 * sound.history.inserted, 2 * sound.history.deleted.astype(float)
    there = (inserted < first_split) & (deleted > max(first_split, 2 * warmup)) & (deleted < 1e9)
    row = int(np.flatnonzero(there)[0])
    y = sound.history.y.copy()
    y[row] = 1 - y[row]
    assert any("own is wrong" in f for f in audited(sound, history=replace(sound.history, y=y)).failures)
    kept = np.delete(np.arange(len(y)), row)
    h = sound.history
    less = History(h.id[kept], h.X[kept], h.y[kept], h.inserted[kept], h.deleted[kept], h.warmup)
    assert any("m is wrong" in f for f in audited(sound, history=less).failures)


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("gini", {"c": 0.1}),
        ("gini", {"criterion": "entropy"}),
        ("gini", {"grace_period": 16}),
        ("gini", {"rival": "split"}),
        ("gini", {"max_bins": 4}),
        ("three classes", {"rival": "feature"}),
        ("hoeffding", {"delta": 0.4}),
        ("one over t", {"tie_threshold": 0.01}),
        ("corrected", {"delta": 0.1}),
        ("theorem", {"tie_threshold": 0.01}),
    ],
)
def test_splits_under_other_options_are_found(name: str, other: dict[str, Any]) -> None:
    """As of a program that splits by one width in place of two, or by another formula."""
    sound = case(name)
    report = audited(sound, options=sound.options.model_copy(update=other))
    assert report.conformance == "violated"


def by_the_theorem(n: int, noise: float, **settings: Any) -> tuple[Any, Features, dict[str, Any], Any, History]:
    """Options, features, state, groups and history of a tree on two bits, the first of which is the label."""
    rng = np.random.default_rng(1)
    X = rng.integers(0, 2, (n, 2)).astype(float)
    options = LEARNER.Options(confidence="theorem", rival="split", **settings)
    features = Features(("a", "b"), (False, False), 2)
    session = InProcessSession(LEARNER, options, features, 2)
    y, key = (X[:, 0] != (rng.random(n) < noise)).astype(np.int32), np.arange(n)
    session.apply(UpdateBatch(0, np.full(n, INSERT, np.int8), key, X, y, 2, key, 10))
    state, groups = session.state()
    return options, features, state, groups, History(key, X, y, key, np.full(n, np.iinfo(np.int64).max), 10)


def test_a_split_by_the_theorem_is_proven_and_a_doubtful_one_is_not() -> None:
    options, features, state, groups, history = by_the_theorem(6000, 0.0, delta=0.1)
    assert state["split_reason"].tolist() == [0]
    report = LEARNER.audit(options, features, state, history, groups)
    assert (report.failures, report.conformance, report.feasibility) == ([], "holds", "proven")
    assert 1 <= report.worst["theorem_lead"] < 1.2
    assert "tie" not in report.reason.split("; measured: ")[0]
    surer = options.model_copy(update={"delta": 1e-9})
    report = LEARNER.audit(surer, features, state, history, groups)
    assert (report.conformance, report.feasibility) == ("violated", "violated")
    assert any("two widths are" in failure for failure in report.failures)


def test_ties_are_proven_to_be_ties_and_count_in_no_lead() -> None:
    options, features, state, groups, history = by_the_theorem(22_000, 0.03, delta=0.5, tie_threshold=0.2)
    assert state["split_reason"].tolist() == [0, 1, 1]
    report = LEARNER.audit(options, features, state, history, groups)
    assert (report.failures, report.conformance, report.feasibility) == ([], "holds", "proven")
    assert "or was taken on a tie" in report.reason
    assert "lacks more than 0.4; " in report.reason
    assert "1 split by the rule, 2 on a tie" in report.reason
    assert 1 <= report.worst["theorem_lead"] == pytest.approx(report.worst["lead"])
    forged = {**state, "split_reason": np.array([0, 0, 1])}
    report = LEARNER.audit(options, features, forged, history, groups)
    assert (report.conformance, report.feasibility) == ("violated", "violated")


def test_a_tree_without_splits_has_nothing_to_prove() -> None:
    options, features, state, groups, history = by_the_theorem(500, 0.0, delta=0.1)
    report = LEARNER.audit(options, features, state, history, groups)
    assert (report.feasibility, report.worst) == ("proven", {})
    assert report.reason.endswith("there is nothing to prove yet")


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"delta": "1/t"}, "keeps the 1/t of the time it was made"),
        ({"tie_threshold": 0.25}, "gini is never above 0.5"),
        ({"tie_threshold": 0.25, "criterion": "kearns_mansour"}, "kearns_mansour is never above 0.5"),
        ({"tie_threshold": 0.1735, "criterion": "entropy"}, "entropy is never above 0.347"),
        ({"drift_period": 200}, "restarted nodes count examples"),
    ],
)
def test_what_is_not_promised(settings: dict[str, Any], reason: str) -> None:
    promised = {"confidence": "theorem", "rival": "split"}
    below = {name: value - 0.001 if name == "tie_threshold" else value for name, value in settings.items()}
    assert reason in LEARNER.Options(**promised, **settings).promise().reason
    assert not LEARNER.Options(**promised, **settings).promise().promised
    assert LEARNER.Options(**promised, **below).promise().promised == ("tie_threshold" in settings)


def test_widths_are_those_of_the_rules() -> None:
    """Two transcriptions."""
    rng = np.random.default_rng(2)
    widths = {"gini": gini_width, "kearns_mansour": kearns_mansour_width}
    for _ in range(200):
        m, depth, d, classes = (int(v) for v in rng.integers(2, [10**6, 40, 10**4, 9]))
        t, delta = m + int(rng.integers(10**6)), float(10 ** rng.uniform(-9, -0.1))
        share = node_delta(delta, m, t, depth, d)
        of_entropy = entropy_width(m, share, classes)
        assert theorem_width("entropy", delta, m, t, depth, d, classes) == pytest.approx(of_entropy, rel=1e-12)
        for criterion, width in widths.items():
            expected = theorem_width(criterion, delta, m, t, depth, d, 2)
            assert expected == pytest.approx(width(m, share), rel=1e-12)
        for settings, _, _, _, _ in CASES.values():
            options = LEARNER.Options.model_validate(settings)
            rule: SplitRule = options.split_rule(d)
            expected = rule.width(m, t, depth, classes)
            assert width_of(options, d, m, t, depth, classes) == pytest.approx(expected, rel=1e-12)


def test_the_estimator_is_audited_on_its_live_examples() -> None:
    rng = np.random.default_rng(0)
    X = rng.random((500, 2))
    tree = ConfidenceTreeClassifier(grace_period=20, c=0.02).fit(X, X[:, 0] > 0.5)
    tree.forget(tree.row_ids_[::3])
    report = tree.audit()
    assert (report.conformance, report.feasibility, report.checked["live"]) == ("holds", "not_promised", 333)
    proof = ConfidenceTreeClassifier(confidence="theorem", rival="split").fit(X, X[:, 0] > 0.5).audit()
    assert (proof.feasibility, proof.reason[:31]) == ("not_promised", "only the live examples are know")
