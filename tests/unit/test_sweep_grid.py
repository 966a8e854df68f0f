"""Grids: exact ranges, YAML values, products, and what is refused."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.sweeping.grid import read_grid, settings_of
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
        ("learner.epsilon=0:1:1", "list"),
        (["learner.epsilon"], "not of the form"),
        (["=1"], "not of the form"),
        (["learner.=1"], "not of the form"),
        (["learner=1"], "only keys"),
        (["source.path=a,b"], "only keys"),
        (["cluster.shards=1:4:1"], "only keys"),
        (["learner.epsilon="], "no values"),
        ({"learner.epsilon": []}, "no values"),
        (["learner.epsilon=0:2"], "START:STOP:STEP"),
        (["learner.epsilon=0:2:x"], "START:STOP:STEP"),
        (["learner.epsilon=0:1:0.1:2"], "START:STOP:STEP"),
        (["learner.epsilon=0:2:0"], "step is 0"),
        (["learner.epsilon=0:2:-0.1"], "0 up to 2"),
        (["learner.epsilon=2:0:0.1"], "2 down to 0"),
        (["learner.epsilon=0:1:1e-9"], "10,000"),
        (["learner.epsilon=0:1e99:1e-99"], "10,000"),
        (["learner.epsilon=0.1,0.10"], "twice"),
        (["learner.epsilon=1,1.0"], "twice"),
        (["learner.epsilon=[1"], "learner.epsilon=[1: "),
        (["learner.epsilon=1,2", "learner.epsilon=3"], "twice"),
        (["learner.epsilon=0:99:1", "stream.window=1:101:1"], "10,100"),
        (["or"], "not of the form"),
    ],
)
def test_refused(grid, message):
    with pytest.raises(ConfigError) as error:
        read_grid(grid)
    assert message in str(error.value)


def test_trials_may_differ():
    axes = read_grid(["source.permutation=0:2:1", "source.seed=1,2"])
    assert [axis.values for axis in axes] == [(0, 1, 2), (1, 2)]
