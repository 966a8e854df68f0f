"""Grids: exact ranges, YAML values, products, and what is refused."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.sweeping.grid import LIMIT, merged, read_grid, read_grids, settings_of
from raydt.errors import ConfigError


def values(entry):
    (axis,) = read_grid([entry])
    return list(axis.values)


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ("learner.epsilon=0:0.5:0.1", [0.0, 0.1, 0.2, 0.3, 0.4, 0.5]),
        ("learner.epsilon=0:0.55:0.1", [0.0, 0.1, 0.2, 0.3, 0.4, 0.5]),
        ("learner.epsilon=0.3:0.1:-0.1", [0.3, 0.2, 0.1]),
        ("learner.epsilon=1e-2:3e-2:1e-2", [0.01, 0.02, 0.03]),
        ("stream.window = 100:300:100", [100, 200, 300]),
        ("stream.window=5:5:1", [5]),
        ("learner.max_depth=5,10,null", [5, 10, None]),
        ("learner.epsilon=auto, 0.1", ["auto", 0.1]),
        ("learner.epsilon=1e-7", [1e-7]),
        ("stream.model='incremental',\"sliding_window\"", ["incremental", "sliding_window"]),
        ("stream.steps=[1, 2],[3]", [[1, 2], [3]]),
        ("stream.deletion_log=s3://bucket/a.parquet,b.csv", ["s3://bucket/a.parquet", "b.csv"]),
    ],
)
def test_values(entry, expected):
    found = values(entry)
    assert found == expected
    assert list(map(type, found)) == list(map(type, expected))


def test_two_is_on_the_grid_and_every_value_is_the_nearest_float_of_its_decimal():
    assert [repr(value) for value in values("learner.epsilon=0:2:0.1")] == [f"{i / 10:.1f}" for i in range(21)]


@given(
    start=st.integers(-500, 500),
    count=st.integers(0, 50),
    step=st.integers(-50, 50).filter(bool),
    digits=st.integers(0, 6),
    beyond=st.integers(0, 99),
)
def test_a_range_is_what_integers_of_the_last_digit_give(start, count, step, digits, beyond):
    def text(number):
        return str(Decimal(number).scaleb(-digits))

    stop = start + step * count + (abs(step) - 1) * beyond // 100 * (1 if step > 0 else -1)
    found = values(f"learner.epsilon={text(start)}:{text(stop)}:{text(step)}")
    assert found == [float(text(start + step * i)) for i in range(count + 1)]


def test_settings_are_the_product_in_order():
    axes = read_grid(["learner.epsilon=0.1,0.2", "stream.window=1:3:1"])
    found = [tuple(setting.values()) for setting in settings_of([axes])]
    assert found == [(0.1, 1), (0.1, 2), (0.1, 3), (0.2, 1), (0.2, 2), (0.2, 3)]


def test_a_mapping_of_values_or_texts_is_the_same():
    texts = read_grid(["learner.epsilon=0.1,0.2", "learner.max_depth=5,null"])
    assert read_grid({"learner.epsilon": (0.1, 0.2), "learner.max_depth": "5,null"}) == texts


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        ([], "at least one --grid"),
        ("learner.epsilon=0:1:1", "Put the text into a list"),
        (["learner.epsilon"], "not of the form"),
        (["=1"], "not of the form"),
        (["learner.=1"], "not of the form"),
        (["learner=1"], "only keys of learner and stream"),
        (["source.path=a,b"], "only keys of learner and stream"),
        (["cluster.shards=1:4:1"], "only keys of learner and stream"),
        (["learner.epsilon="], "no values"),
        ({"learner.epsilon": []}, "no values"),
        (["learner.epsilon=0:2"], "START:STOP:STEP"),
        (["learner.epsilon=0:2:x"], "START:STOP:STEP"),
        (["learner.epsilon=0:1:0.1:2"], "START:STOP:STEP"),
        (["learner.epsilon=0:2:0"], "the step is 0"),
        (["learner.epsilon=0:2:-0.1"], "never leads from 0 up to 2"),
        (["learner.epsilon=2:0:0.1"], "never leads from 2 down to 0"),
        (["learner.epsilon=0:1:1e-9"], "more than 10,000 values"),
        (["learner.epsilon=0:1e99:1e-99"], "more than 10,000 values"),
        (["learner.epsilon=0.1,0.10"], "the value 0.1 appears twice"),
        (["learner.epsilon=1,1.0"], "appears twice"),
        (["learner.epsilon=[1"], "learner.epsilon=[1: "),
        (["learner.epsilon=1,2", "learner.epsilon=3"], "the key appears twice"),
        (["learner.epsilon=0:99:1", "stream.window=1:101:1"], "the grid has 10,100 settings"),
    ],
)
def test_refused(grid, message):
    with pytest.raises(ConfigError) as error:
        read_grid(grid)
    assert message in str(error.value)


def test_the_limit_itself_is_possible():
    assert len(values(f"stream.window=1:{LIMIT}:1")) == LIMIT


RULES = ["learner.rule=ctree", "learner.c=0.1,0.2", "or", "learner.rule=hoeffding,corrected", "learner.delta=1e-7"]


def test_groups_come_one_after_another_and_have_keys_of_their_own():
    groups = read_grids(RULES)
    assert settings_of(groups) == [
        {"learner.rule": "ctree", "learner.c": 0.1},
        {"learner.rule": "ctree", "learner.c": 0.2},
        {"learner.rule": "hoeffding", "learner.delta": 1e-7},
        {"learner.rule": "corrected", "learner.delta": 1e-7},
    ]
    assert {axis.key: axis.values for axis in merged(groups)} == {
        "learner.rule": ("ctree", "hoeffding", "corrected"),
        "learner.c": (0.1, 0.2),
        "learner.delta": (1e-7,),
    }


def test_groups_of_texts_and_mappings_are_the_same():
    ctree = {"learner.rule": ["ctree"], "learner.c": [0.1, 0.2]}
    assert read_grids([ctree, RULES[3:]]) == read_grids(RULES) == read_grids([RULES])
    assert read_grids(ctree) == [read_grid(ctree)]


def test_trials_may_differ():
    (axes,) = read_grids(["source.permutation=0:2:1", "source.seed=1,2"])
    assert [axis.values for axis in axes] == [(0, 1, 2), (1, 2)]


def test_merged_values_are_there_once():
    (axis,) = merged(read_grids([{"learner.c": [1, 2]}, {"learner.c": [3, 4.5]}]))
    assert axis.values == (1, 2, 3, 4.5)


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        (["or"], "at least one --grid"),
        (["learner.c=1", "or"], "at least one --grid"),
        (["learner.c=1,2", "or", "learner.c=2,3"], "two groups of the grid have the setting learner.c=2"),
        ([{"learner.c": "0:5999:1"}, {"learner.d": "0:5999:1"}], "the grid has 12,000 settings"),
        ("learner.c=1", "Put the text into a list"),
    ],
)
def test_groups_that_are_refused(grid, message):
    with pytest.raises(ConfigError) as error:
        read_grids(grid)
    assert message in str(error.value)
