import time

import numpy as np
import pyarrow as pa
import pytest

from raydt.encoding.columns import Faults
from raydt.encoding.labels import Labels, find_label, resolve_positive
from raydt.errors import ConfigError
from raydt.examples.updates import Reading
from raydt.sources.divided import open_source
from raydt.sources.options import CsvFiles
from tests.refusals import refused


@pytest.mark.parametrize(
    ("wanted", "labels", "found"),
    [
        ("DOWN", ["UP", "DOWN"], "DOWN"),
        (1, [0, 1], 1),
        (1, ["0", "1"], "1"),
        ("1", [0, 1], 1),
        (1, [0.0, 1.0], 1.0),
        ("1", [0.0, 1.0], 1.0),
        (True, [False, True], True),
        (True, ["no", "yes"], "yes"),
        (False, ["off", "on"], "off"),
        ("true", [False, True], True),
        (">50K", [" <=50K", " >50K"], " >50K"),
        ("up", ["UP", "DOWN"], "UP"),
        ("up", ["UP", "up"], "up"),
        (1, ["01", "1"], "1"),
    ],
)
def test_a_label_is_found_however_yaml_wrote_it(wanted, labels, found):
    assert repr(find_label(wanted, labels)) == repr(found)


@pytest.mark.parametrize(
    ("wanted", "labels", "found", "shown"),
    [
        ("down", ["UP", "SIDE"], "", "'UP', 'SIDE'"),
        ("Up", ["UP", "up"], "'UP' or 'up'", "'UP', 'up'"),
        (True, ["on", "yes", "no"], "'on' or 'yes'", "'on', 'yes', 'no'"),
        (1, [], "", "none at all"),
        (2, list(range(100, 200)), "", ", ".join(map(str, range(100, 120))) + ", ..."),
    ],
)
def test_an_unknown_or_ambiguous_label_lists_the_labels(wanted, labels, found, shown):
    said = "sources.ambiguous_label" if found else "sources.unknown_label"
    with refused(said, ConfigError, wanted=wanted, found=found, labels=shown):
        find_label(wanted, labels)


def test_majority_is_the_most_frequent_minority_the_rarest_and_of_equals_the_first():
    assert resolve_positive("majority", {"a": 3, "b": 5, "c": 5}) == ["b"]
    assert resolve_positive("minority", {"a": 3, "b": 2, "c": 2}) == ["b"]
    for named in ("majority", "minority"):
        with refused("sources.no_labels", ConfigError, positive=named):
            resolve_positive(named, {})


def test_a_label_called_majority_or_minority_is_written_as_a_list():
    assert resolve_positive(["majority"], {"minority": 9, "majority": 1}) == ["majority"]
    assert resolve_positive(["minority"], {"minority": 9, "majority": 1}) == ["minority"]


def test_several_labels_can_be_positive():
    assert resolve_positive([4, "5", 4], {4: 1, 5: 1, 6: 1}) == [4, 5]
    labels = Labels([4, 5], [6])
    assert labels.encode(pa.array([5, 6, None, 4]), 0).tolist() == [1, 0, -1, 1]
    assert labels.classes(0) == [6, "4|5"]


@pytest.mark.parametrize("more", ["", "criterion: gini"])
def test_a_third_class_is_refused_with_what_takes_it(more, tmp_path):
    """The remedy names the option of the same learner, if there is one."""
    (tmp_path / "t.csv").write_text("x,y\n0,a\n1,b\n2,c\n")
    source = open_source(CsvFiles(path="t.csv"), tmp_path, reading=Reading(classes=2, with_classes=more))
    (bad,) = [error for rows in source.rows() for error in rows.bad.values()]
    assert (bad.message.id, bad.message.parameters["most"]) == ("rows.third_class", 2)
    assert (f"one class, use {more}, or set" if more else "one class, or set") in bad.remedy


def test_many_labels_against_one_take_linear_time():
    """One look-up for each label, not one comparison with all the others."""
    n = 100_000
    texts = pa.array([str(i) for i in range(n)])
    labels = Labels(["7"], [str(i) for i in range(n) if i != 7])
    began = time.perf_counter()
    codes = labels.read(texts, "y", 0, None, None, Faults(n))
    assert time.perf_counter() - began < 10
    assert np.flatnonzero(codes).tolist() == [7]
