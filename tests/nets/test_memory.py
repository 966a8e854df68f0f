"""A state grows with the live examples, not with the ids, the features or the rows that were ever seen.

Every case of every learner goes through a sliding window of text ids that never come back and, where it takes them, of
sparse features that never come back, of 2**31 - 1 possible ones.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from raydt.arrays.blocks import LARGEST_WIDTH
from raydt.sources.divided import open_source
from raydt.sources.options import ArrowFiles
from raydt.streams.id_dictionary import TextIds
from raydt.streams.windows import SlidingWindow
from tests.cases import Trial, every_case
from tests.small_tables import derived, examples, table_of, written

WINDOW, SHORT, LONG = 30, 150, 450


def size_of(values: Any) -> int:
    """Bytes of arrays, and entries of lists, in a state."""
    if isinstance(values, dict):
        return sum(size_of(value) for value in values.values())
    return values.nbytes if isinstance(values, np.ndarray) else len(values) if isinstance(values, list) else 8


def rows_of(n: int) -> list[dict[str, Any]]:
    """Examples that have, besides a few features that come again, a sparse feature of their own."""
    own = (LARGEST_WIDTH - 1 - 4099 * np.arange(n)).tolist()
    return [{**row, "ones": [*derived(row)["ones"], index]} for row, index in zip(examples(n, 8), own, strict=True)]


@every_case("memory")
def test_state_follows_the_live_examples(trial: Trial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TextIds, "remembered", 8)
    path = written(tmp_path / "rows.arrow", table_of(rows_of(LONG)))
    width = {"n_features": LARGEST_WIDTH - 8} if trial.case.sparse else {}
    source = open_source(ArrowFiles(path=str(path), **trial.columns, **width), reading=trial.reading)
    warmup = min(trial.case.warmup, WINDOW) if trial.needs_warmup else 0
    stream = SlidingWindow(window=WINDOW, warmup=warmup, on_error="skip").make(source)
    session = trial.session(stream)
    sizes = {}
    for batch in stream.batches(10):
        for _ in session.process(iter([batch]), skip_refused=True):
            pass
        model, groups = session.state()
        position = stream.state()
        nodes = 10 + session.coordinator.statistics().get("nodes", 0)  # a tree may grow with the stream
        sizes[batch.stop] = (size_of(model) + size_of(groups)) / nodes
        assert len(position["ids"]) <= WINDOW + 8
    early = max(size for stop, size in sizes.items() if 2 * WINDOW < stop <= 2 * SHORT)
    late = max(size for stop, size in sizes.items() if stop > 2 * SHORT)
    assert late <= 1.5 * early, "the state has grown, although neither the window nor the model has"
