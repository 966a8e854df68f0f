"""Digests of generated streams are the committed ones, on this machine and on every other."""

from __future__ import annotations

import json

import pytest

from raydt.learners.base import WorkPlan
from tests.golden.streams import FILE, STREAMS, digest_of

GOLDEN = json.loads(FILE.read_text())


def test_every_stream_has_a_digest() -> None:
    assert GOLDEN.keys() == STREAMS.keys()


@pytest.mark.parametrize("name", STREAMS)
def test_digest_is_the_committed_one(name: str) -> None:
    assert digest_of(name) == GOLDEN[name]


@pytest.mark.turns(3)
@pytest.mark.parametrize("name", STREAMS)
def test_shards_that_do_all_the_work_give_the_same(name: str) -> None:
    assert digest_of(name, 3, 777, WorkPlan(local_work_limit=2000, row_cache_bytes=0)) == GOLDEN[name]


@pytest.mark.turns(1)
@pytest.mark.parametrize(
    ("shards", "size", "limit"),
    [(1, 1, 2**40), pytest.param(2, 64, 0, marks=pytest.mark.nightly), (4, 10**6, 2**40), (3, 7, 500)],
)
def test_rows_that_come_and_go_give_the_same_in_any_batches(shards: int, size: int, limit: int) -> None:
    name = "sea permuted, batches, random removal"
    assert digest_of(name, shards, size, WorkPlan(local_work_limit=limit)) == GOLDEN[name]
