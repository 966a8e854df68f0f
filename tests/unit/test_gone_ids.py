"""The set of deleted ids of a run beside a set of Python: with few kept in memory, and ids that fall on one bit."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.running.requests import GoneIds
from tests.few_hashes import few_in_memory

IDS = st.integers(-3, 12) | st.sampled_from(["a", "7", "", "é"])


@settings(max_examples=60, deadline=None)
@given(
    before=st.sets(IDS, max_size=3),
    changes=st.lists(st.tuples(st.booleans(), IDS), max_size=40),
    bits=st.sampled_from([3, 5, 27]),
    recent=st.sampled_from([0, 2, 1 << 14]),
)
def test_is_a_set(before: set[Any], changes: list[tuple[bool, Any]], bits: int, recent: int) -> None:
    with few_in_memory(recent, bits):
        gone, twin = GoneIds(map(repr, before)), set(before)
        for add, one in changes:
            maybe = gone.may_have([one]).tolist()
            assert one not in twin or maybe == [0]
            if add:
                gone.note([one])
                gone.add(repr(one))
                twin.add(one)
            else:
                assert gone.remove(repr(one)) == (one in twin)
                twin.discard(one)


def test_filter_leaves_out() -> None:
    gone = GoneIds()
    gone.note(range(1000))
    assert len(gone.may_have(range(1000))) == 1000
    assert len(gone.may_have(range(1000, 101_000))) < 200
