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


@pytest.mark.parametrize("name", STREAMS)
def test_shards_that_do_all_the_work_give_the_same(name: str) -> None:
    assert digest_of(name, 3, 777, WorkPlan(local_work_limit=2000, row_cache_bytes=0)) == GOLDEN[name]
