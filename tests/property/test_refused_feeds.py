"""Change feeds out of order: the advice about a refused update, followed, loses no row and no deletion."""

from __future__ import annotations

import json
import re
from pathlib import Path

from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from pipelines import replay
from pipelines.config import load_config
from pipelines.validation import look_at
from raydt.errors import UpdateError
from raydt.messages import sentences
from tests.refusals import refused
from tests.volume import examples

#: Moves of a feed in order: at each, an id is inserted if it is not live, and else deleted or replaced.
MOVES = st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=4, max_size=25)


def feed_of(moves: list[tuple[int, bool]]) -> list[tuple[str, int]]:
    feed: list[tuple[str, int]] = []
    live: set[int] = set()
    for key, replaced in moves:
        if key in live:
            feed.append(("d", key))
            live.remove(key)
        if key not in live and (replaced or not feed or feed[-1] != ("d", key)):
            feed.append(("c", key))
            live.add(key)
    return feed


def config_of(folder: Path, feed: list[tuple[str, int]], text_ids: bool, on_error: str) -> dict[str, object]:
    lines = [f"{op},{'k' * text_ids}{key},{i},{'ab'[i % 2]}\n" for i, (op, key) in enumerate(feed)]
    (folder / "feed.csv").write_text("op,k,x,y\n" + "".join(lines), encoding="utf-8")
    return {
        "source": {"kind": "csv", "path": str(folder / "feed.csv"), "id": "k", "op": "op"},
        "stream": {"model": "changelog", "on_error": on_error},
        "learner": {"kind": "fudyadt"},
        "cluster": {"backend": "in_process"},
        "output": {"report": False},
    }


@examples(120, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(MOVES, st.integers(0, 30), st.booleans())
def test_a_swapped_pair_is_told_where_its_other_half_is(
    tmp_path: Path, moves: list[tuple[int, bool]], where: int, text_ids: bool
) -> None:
    feed = feed_of(moves)
    pairs = [i for i in range(len(feed) - 1) if feed[i][1] == feed[i + 1][1] and feed[i][0] != feed[i + 1][0]]
    if not pairs:
        return
    at = pairs[where % len(pairs)]
    swapped = [*feed[:at], feed[at + 1], feed[at], *feed[at + 2 :]]
    found = look_at(load_config(config_of(tmp_path, swapped, text_ids, "error")))
    assert found["stops_at"] == at, (swapped, found)
    first = found["bad_updates"][0]
    assert "skip" not in first, first
    remedy = sentences("runs")["early_insertion" if swapped[at][0] == "c" else "early_deletion"][1]
    assert re.search(rf"; row {at + 1} of .*feed\.csv .*\. {remedy}$", first)
    assert f"row {at + 1} of" in look_at(load_config(config_of(tmp_path, swapped, text_ids, "skip")))["bad_updates"][0]
    assert look_at(load_config(config_of(tmp_path, feed, text_ids, "error")))["ok"]  # the advice, followed


def test_a_replay_says_when_skipping_is_right(tmp_path: Path) -> None:
    """It has not read on, and so names the condition."""
    for number, feed in enumerate(([("c", 1), ("c", 1), ("d", 1)], [("c", 1), ("d", 2), ("c", 2)])):
        config = config_of(tmp_path, feed, False, "error")
        with refused("runs.refused_id", UpdateError):
            replay(config, tmp_path / f"run{number}")
        summary = json.loads((tmp_path / f"run{number}" / "summary.json").read_text(encoding="utf-8"))
        assert summary["updates"] == 1
