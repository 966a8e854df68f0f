"""What the report says of a confidence tree, on made-up records: names, gains, units, many splits, what is missing."""

from __future__ import annotations

import numpy as np
import pytest

from pipelines.display import audit_lines
from pipelines.report.svg import path, readout
from raydt.learners.confidence_tree.bounds import RESTARTED, RULE, TIE
from raydt.learners.confidence_tree.describe import (
    POINTED,
    SHOWN,
    ConfidenceTreeDescription,
    leads,
    leaf_notes,
    over_time,
    predictions_in_words,
    rule_in_words,
    split_notes,
    splits,
    splits_in_words,
    why_no_split,
)
from raydt.learners.confidence_tree.options import ConfidenceTreeOptions
from raydt.presentation.trees import NOTHING, Names, drawn_tree

FEATURES = [
    {"name": "a", "kind": "numeric"},
    {"name": "b", "kind": "categorical"},
    {"name": "words", "kind": "sparse", "features": 3},
]
NAMES = Names(FEATURES, ["n", "p"], {"b": ["red"], "words": ["offer"]})
RULED = ConfidenceTreeOptions().split_rule(5)
NAN = float("nan")


def events(n=1):
    """A split by a number, on a tie, by a category, and a restart, over and over."""
    one = {
        "seq": [9, 19, 29, 39],
        "depth": [0, 1, 0, 1],
        "feature": [0, 2, 1, -1],
        "threshold": [0.25, 0.0, 0.0, NAN],
        "m": [100, 50, 400, 0],
        "reason": [RULE, TIE, RULE, RESTARTED],
        "rival_feature": [1, -1, 0, -1],
        "rival_threshold": [0.0, NAN, np.inf, NAN],
        "phi": [0.2, 0.3, 0.1, NAN],
        "rival_phi": [0.4, 0.35, 0.3, NAN],
        "impurity": [0.5, 0.35, 0.5, NAN],
        "epsilon": [0.05, 0.1, 0.02, NAN],
    }
    table = {name: np.tile(np.array(column), n) for name, column in one.items()}
    return table | {"seq": table["seq"] + 40 * np.repeat(np.arange(n), 4)}


def test_splits_are_told_by_their_names():
    table = splits(events(), RULED, NAMES)
    assert [row.cells for row in table.rows] == [
        ("10", "0", "a \N{LESS-THAN OR EQUAL TO} 0.25", "100", "0.3", "b = red", "0.1", "0.2", "0.05", "rule"),
        ("20", "1", "offer is 1", "50", "0.05", "none", "0", "0.05", "0.1", "tie"),
        ("30", "0", "b = red", "400", "0.4", "a is there", "0.2", "0.2", "0.02", "rule"),
        ("40", "1", "none any more", *["\N{EN DASH}"] * 6, "restarted"),
    ]
    assert table.remark.startswith("All 4 changes of the tree.")
    many = splits(events(100), RULED, NAMES)
    assert len(many.rows) == SHOWN
    assert [many.rows[i].cells[0] for i in (0, SHOWN // 2 - 1, SHOWN // 2, -1)] == ["10", "250", "3,760", "4,000"]
    assert many.remark.startswith("The first 25 and the last 25 of 400 changes")


def test_gains_are_in_the_unit_of_the_width():
    bits = ConfidenceTreeOptions(rule="mcdiarmid").split_rule(5)
    cells = splits(events(), bits, NAMES).rows[0].cells
    assert float(cells[4]) == pytest.approx(0.3 * 2 / np.log(2), rel=1e-2)
    assert "a width is needed" in splits(events(), bits, NAMES).remark


def test_charts_have_every_change():
    chart = over_time(events(3), 200)
    assert [mark.now for mark in chart.panels[0].marks] == ["6", "3", "3"]
    sure = leads(events(), RULED)
    assert [(mark.name, mark.values) for mark in sure.panels[0].marks] == [
        ("by the rule", ("\N{EN DASH}", "2", "5")),
        ("on a tie", ("0.25", "\N{EN DASH}", "\N{EN DASH}")),
    ]
    assert sure.names[0] == "update 20, 50 examples"
    many = leads(events(POINTED), RULED)
    assert readout(many) == ""
    assert sum(len(path(mark.shape)) for mark in many.panels[0].marks) < 10_000


def test_a_card_has_the_record_of_its_split():
    model = {
        "feature": np.array([2, -1, -1]),
        "threshold": np.zeros(3),
        "left": np.array([1, -1, -1]),
        "right": np.array([2, -1, -1]),
        "counts": np.array([[3, 2], [3, 0], [0, 2]]),
    }
    assert split_notes(model, RULED, NAMES) == {}
    record = {"stamp": 2001, "m": 500, "rival_feature": 0, "reason": TIE}
    record |= {"phi": 0.2, "rival_phi": 0.4, "impurity": 0.5, "epsilon": 0.05}
    words = split_notes(model | {f"split_{name}": np.array([value]) for name, value in record.items()}, RULED, NAMES)
    expected = (
        "at update 1,001, from 500 examples, on a tie",
        "gain 0.3, \N{GREEK SMALL LETTER EPSILON} 0.05",
        "rival a 0.1",
    )
    assert {node: note.lines for node, note in words.items()} == {0: expected}
    root = drawn_tree(model, NAMES, lambda node: words.get(node, NOTHING))
    assert root.note.lines == expected
    assert root.detail.endswith(", ".join(expected))
    assert [(child.answer, child.note) for child in root.children] == [("yes", NOTHING), ("no", NOTHING)]


def test_leaves_that_predict_by_naive_bayes_are_told():
    model = {"feature": np.array([0, -1, 1, -1, -1]), "naive_leaf": np.array([1, 4])}
    assert {node: note.lines for node, note in leaf_notes(model).items()} == dict.fromkeys((1, 4), ("naive Bayes",))
    adaptive = predictions_in_words(ConfidenceTreeOptions(), model)
    assert adaptive.endswith("has been right more often there. At the end 2 of 3 leaves did so.")
    majority = predictions_in_words(ConfidenceTreeOptions(leaf_prediction="majority"), {"feature": model["feature"]})
    assert majority == "A leaf predicts the most frequent label of its live examples."


def test_a_lead_is_a_share_of_what_is_asked_for():
    worst = {"lead": 0.0177, "theorem_lead": 0.5}
    audit = {"conformance": "holds", "feasibility": "not_promised", "reason": "", "checked": {}, "failures": []}
    lines = audit_lines(audit | {"worst": worst}, {"learner": "confidence_tree", "status": "completed"}).splitlines()
    assert [" ".join(line.split()) for line in lines[-2:]] == [
        "worst lead 0.0177 of what the rule asks for over its rival",
        "worst theorem lead 0.5 of two widths of Theorem 4",
    ]


def test_words():
    figures = {"checks": 1200, "splits": 3, "ties": 1, "restarted": 2}
    said = "3 splits (1 on a tie) in 1,200 checks; 2 nodes were restarted"
    assert splits_in_words(figures) == said
    assert splits_in_words({"checks": 1, "splits": 0}) == "0 splits in 1 check"
    assert why_no_split(figures) == ""
    assert why_no_split({"checks": 1, "splits": 0}).startswith(
        "no split in 1 check. To split sooner: with confidence: practical a smaller c, with confidence: theorem a"
    )
    assert "grace_period" in why_no_split({"checks": 0, "splits": 0})
    none = {"checks": 1, "splits": 0}
    for options, advice in (
        ({"max_bins": 64}, "a smaller c"),
        ({"renew_bins": 0}, "a smaller c; and a stream.warmup of some hundreds of rows, which make the bins"),
        ({"rule": "hoeffding"}, "a larger delta or tie_threshold, or rule: ctree"),
        ({"confidence": "theorem", "renew_bins": 100}, "confidence: practical, or a larger delta"),
    ):
        assert why_no_split(none, ConfidenceTreeOptions(**options)).endswith(f"To split sooner: {advice}")
        told = dict(ConfidenceTreeDescription(options).lines(none | {"nodes": 1, "leaves": 1, "depth": 0}))
        assert told["splits"].endswith(f"To split sooner: {advice}")
    hoeffding = rule_in_words(ConfidenceTreeOptions(rule="hoeffding", delta="1/t", tie_threshold=0.05))
    assert "by a width, or once the width is at most 0.05. The width is that of Hoeffding's bound" in hoeffding
    assert "with delta = 1/t; gains are by the Gini index." in hoeffding
    assert "theorem with delta = 1e-07" in rule_in_words(ConfidenceTreeOptions(confidence="theorem"))
