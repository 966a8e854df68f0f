"""Grids: exact ranges, YAML values, products, and what is refused."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.sweeping.grid import read_grid, settings_of
from raydt.errors import ConfigError
from tests.refusals import refused


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
    ("grid", "said", "parameters"),
    [
        ([], "no_grid", {}),
        ("learner.epsilon=0:1:1", "text", {}),
        (["learner.epsilon"], "form", {"entry": "learner.epsilon"}),
        (["=1"], "form", {"entry": "=1"}),
        (["learner.=1"], "form", {}),
        (["learner=1"], "key", {}),
        (["source.path=a,b"], "key", {}),
        (["cluster.shards=1:4:1"], "key", {}),
        (["learner.epsilon="], "no_value", {}),
        ({"learner.epsilon": []}, "no_value", {}),
        (["learner.epsilon=0:2"], "range", {}),
        (["learner.epsilon=0:2:x"], "range", {}),
        (["learner.epsilon=0:1:0.1:2"], "range", {}),
        (["learner.epsilon=0:2:0"], "no_step", {}),
        (["learner.epsilon=0:2:-0.1"], "step_sign", {"step": "-0.1", "first": "0", "way": "up", "last": "2"}),
        (["learner.epsilon=2:0:0.1"], "step_sign", {"step": "0.1", "first": "2", "way": "down", "last": "0"}),
        (["learner.epsilon=0:1:1e-9"], "many_values", {"most": 10_000}),
        (["learner.epsilon=0:1e99:1e-99"], "many_values", {}),
        (["learner.epsilon=0.1,0.10"], "repeated_value", {}),
        (["learner.epsilon=1,1.0"], "repeated_value", {}),
        (["learner.epsilon=[1"], "yaml", {"entry": "learner.epsilon=[1"}),
        (["learner.epsilon=1,2", "learner.epsilon=3"], "repeated_key", {"key": "learner.epsilon"}),
        (["learner.epsilon=0:99:1", "stream.window=1:101:1"], "many_settings", {"settings": 10_100}),
        (["or"], "form", {}),
    ],
)
def test_refused(grid, said, parameters):
    with refused(f"sweeps.{said}", ConfigError, **parameters):
        read_grid(grid)


def test_trials_may_differ():
    axes = read_grid(["source.permutation=0:2:1", "source.seed=1,2"])
    assert [axis.values for axis in axes] == [(0, 1, 2), (1, 2)]
