"""What runs where, in words."""

from __future__ import annotations

from typing import Any

import pytest

from pipelines.config import Config
from pipelines.running.preparation.placement import place_of_work
from raydt.examples.features import Features


def config_of(kind: str, window: int | None = None, **cluster: Any) -> Config:
    """A config for rows of four numbers."""
    stream = {"model": "sliding_window", "window": window} if window else {"model": "incremental", "warmup": 10}
    return Config.model_validate(
        {
            "source": {"kind": "synthetic", "generator": "sea", "n": 100},
            "stream": stream,
            "learner": {"kind": kind},
            "cluster": cluster,
        }
    )


def place(kind: str, rows: int | None = None, sparse: int = 0, **given: Any) -> str:
    """The place of the work of a learner on rows of four numbers."""
    return place_of_work(config_of(kind, **given), Features(tuple("abcd"), (False,) * 4, sparse=sparse), rows)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"kind": "gbdt", "backend": "in_process"}, "this process does all work"),
        ({"kind": "gbdt", "local_work_limit": 0, "shards": 1}, "on Ray: a coordinator and 1 shard"),
        ({"kind": "confidence_tree"}, "shards would not make confidence_tree faster"),
        (
            {"kind": "confidence_tree", "row_cache_bytes": 80},
            "below 3 live examples, and 2 shards from there on, where the examples take more memory",
        ),
        ({"kind": "fudyadt", "local_work_limit": 10}, "below 3 live examples, and 2 shards"),
        ({"kind": "fudyadt", "local_work_limit": 12, "rows": 3}, "and 2 shards from there on, where shards are faster"),
        ({"kind": "fudyadt", "local_work_limit": 12, "rows": 2}, "2 shards would be faster from 3 live examples on"),
        ({"kind": "fudyadt", "local_work_limit": 12, "rows": 99, "window": 2}, "there are at most 2"),
        ({"kind": "fudyadt", "local_work_limit": 12, "rows": 2, "sparse": 5}, "and 2 shards from"),
        (
            {"kind": "fudyadt", "row_cache_bytes": 80},
            "below 3 live examples, and 2 shards from there on, where the",
        ),
        (
            {"kind": "fudyadt", "row_cache_bytes": 80, "rows": 2},
            "2 shards would hold the examples from 3 live",
        ),
        ({"kind": "gbdt", "local_work_limit": 12}, "shards would not make gbdt faster"),
        ({"kind": "sparse_tree", "local_work_limit": 10, "sparse": 5}, "shards would not make sparse_tree faster"),
    ],
)
def test_the_place_of_the_work(given: dict[str, Any], expected: str) -> None:
    assert expected in place(**given)
