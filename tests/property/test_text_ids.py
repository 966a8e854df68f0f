"""Codes of text ids follow from the updates alone, and what is kept of ids follows the live ones, in every stream."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter

from raydt.examples.updates import DELETE, INSERT, QUERY, UPDATE, UpdateBatch
from raydt.sources.divided import open_source
from raydt.sources.file_source import StoredSource
from raydt.sources.options import ArrowFiles
from raydt.streams.base import Stream
from raydt.streams.id_dictionary import TextIds
from raydt.streams.options import StreamOptions
from tests.small_tables import examples, random_changes, table_of, written

#: Rows for which an id is remembered here, so that few rows forget many ids.
FEW = 4
MODELS: dict[str, dict[str, Any]] = {
    "incremental": {},
    "sliding_window": {"window": 5},
    "random_updates": {"insert_probability": 0.6},
    "batches": {"steps": [9, 2, 20, 0, 15], "removal_order": "random"},
    "time_window": {"duration": 60, "lateness": 20},
    "changelog": {},
    "changelog, delayed": {"delayed_labels": True},
    "deletion_log": {},
}


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TextIds, "remembered", FEW)


def opener(folder: Path, model: str, draw: random.Random) -> Any:
    """What opens a stream over few ids that come again and again; with ``True`` over stored rows."""
    n, kind = 60, model.partition(",")[0]
    options = {"model": kind, "on_error": "skip", **MODELS[model]}
    rows = examples(n, draw.randrange(99))
    if kind == "changelog":
        rows = [{**row, "id": f"e{int(row['id'][1:]) % 12}"} for row in random_changes(draw, n)]
    elif kind != "batches":  # which reads rows again
        for row in rows:
            row |= {"id": f"e{draw.randrange(14)}", "ts": row["ts"] + draw.randrange(30)}
    if kind == "deletion_log":
        lines = (f"e{draw.randrange(16)},{after}" for after in sorted(draw.choices(range(n + 5), k=45)))
        (folder / "log.csv").write_text("\n".join(["id,after", *lines]))
        options |= {"deletion_log": str(folder / "log.csv")}
    path = written(folder / "rows.arrow", table_of(rows))
    changes = {"op": "op"} if kind == "changelog" else {}
    source = ArrowFiles(path=str(path), id="id", ts="ts", features=["a", "d"], **changes)
    adapter: TypeAdapter[Any] = TypeAdapter(StreamOptions)

    def opened(stored: bool = False) -> Stream:
        fresh = open_source(source)
        stream: Stream = adapter.validate_python(options).make(fresh)
        return adapter.validate_python(options).make(StoredSource(stream.source)) if stored else stream

    return opened


def twin(batches: list[UpdateBatch], model: str) -> list[int]:
    """The codes of all updates, from all that has happened before each of them."""
    live: set[str] = set()
    code: dict[str, int] = {}
    ended: dict[str, int] = {}  # by id: rows given before its example was deleted, or it was seen without one
    rows = known = 0
    codes = []
    for batch in batches:
        for place, op in enumerate(batch.op.tolist()):
            name, is_row = batch.name(place), batch.row[place] >= 0
            if name is not None and name not in live and ended.get(name, -FEW) + FEW <= rows and is_row:
                code[name], known, ended[name] = known, known + 1, rows
            there = name in live or ended.get(name, -FEW) + FEW > rows
            codes.append(code[name] if name is not None and there else -1)
            if op == DELETE and name in live:
                live.remove(name)
                ended[name] = rows
            elif op in (INSERT, QUERY) and name is not None:
                live.add(name)
            assert op != UPDATE or name in code
            rows += is_row
    return codes


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("seed", range(4))
def test_codes_depend_on_the_updates_alone(tmp_path: Path, model: str, seed: int) -> None:
    draw = random.Random(f"{model} {seed}")
    opened = opener(tmp_path, model, draw)
    whole = opened()
    batches = list(whole.batches(10**6))
    expected = [code for batch in batches for code in batch.id.tolist()]
    names = [name for batch in batches for name in batch.names or ()]
    assert expected == twin(batches, model)
    stream = opened(stored=bool(seed % 2))
    found: list[int] = []
    found_names: list[str | None] = []
    while (batch := next(stream.batches(draw.choice((1, 2, 7, 40))), None)) is not None:
        found += batch.id.tolist()
        found_names += batch.names or ()
        state = stream.state()
        if draw.random() < 0.3 and not isinstance(stream.source, StoredSource):
            stream = opened()
            stream.restore(state)
    assert (found, found_names) == (expected, names)
    for name, value in whole.state().items():
        if name.startswith("id"):
            np.testing.assert_array_equal(value, stream.state()[name])


@pytest.mark.parametrize("model", MODELS)
def test_memory_follows_the_live_ids(tmp_path: Path, model: str) -> None:
    """Beside the live ids, a state has those that were deleted, or not found, a few rows ago at most."""
    stream, live, rows = opener(tmp_path, model, random.Random(model))(), set[str | None](), 0
    seen: dict[str | None, int] = {}
    for batch in stream.batches(3):
        for place, op in enumerate(batch.op.tolist()):
            seen[batch.name(place)] = rows
            if op in (INSERT, QUERY):
                live.add(batch.name(place))
            elif op == DELETE:
                live.discard(batch.name(place))
            rows += int(batch.row[place] >= 0)
        state = stream.state()
        assert len(state["ids"]) == len(state["id_codes"]) == len(state["id_died"])
        assert set(state["ids"]) - live <= {name for name, row in seen.items() if row + FEW > rows}
    assert len(seen) > 2 * (len(state["ids"]) - len(live))
