"""Grids: exact ranges, YAML values, products, and what is refused."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.sweeping.grid import LIMIT, read_grid, settings_of
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
    found = [tuple(setting.values()) for setting in settings_of(axes)]
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


def test_trials_may_differ():
    axes = read_grid(["source.permutation=0:2:1", "source.seed=1,2"])
    assert [axis.values for axis in axes] == [(0, 1, 2), (1, 2)]


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        ({"learner.c": "0:5999:1", "learner.d": "0:1:1"}, "the grid has 12,000 settings"),
        (["or"], "not of the form a.b=START:STOP:STEP"),
        ("learner.c=1", "Put the text into a list"),
    ],
)
def test_grids_that_are_refused(grid, message):
    with pytest.raises(ConfigError) as error:
        read_grid(grid)
    assert message in str(error.value)
