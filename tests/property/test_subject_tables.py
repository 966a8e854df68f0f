"""What is known of subjects follows the live rows alone, in every stream, however it is cut or resumed."""

from __future__ import annotations

import pickle
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pydantic import TypeAdapter

from raydt.examples.store import Subjects
from raydt.examples.updates import CARRIES_ROW, DELETE, INSERT, UPDATE
from raydt.sources.divided import open_source
from raydt.sources.options import ArrowFiles
from raydt.streams.base import Replay, Stream
from raydt.streams.options import StreamOptions
from tests.small_tables import HOSTILE, derived, examples, random_changes, table_of, written

MODELS: dict[str, dict[str, Any]] = {
    "incremental": {},
    "sliding_window": {"window": 5},
    "random_updates": {"insert_probability": 0.6},
    "batches": {"steps": [9, 2, 20, 0, 15], "removal_order": "random"},
    "time_window": {"duration": 60, "lateness": 20},
    "changelog": {},
    "deletion_log": {},
    "deletion_log, by subject": {},
}


def people(draw: random.Random, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows, with a person in the place of the text column, who has a hostile name."""
    return [{**derived(row), **row, "d": draw.choice(HOSTILE)} for row in rows]


def opened(folder: Path, model: str, draw: random.Random) -> Any:
    """What opens a stream of a model over rows of persons, whose ids come again."""
    n, kind = 60, model.partition(",")[0]
    options = {"model": kind, "on_error": "skip", **MODELS[model]}
    rows = examples(n, draw.randrange(99))
    if kind == "changelog":
        rows = [{**row, "id": f"e{int(row['id'][1:]) % 12}"} for row in random_changes(draw, n)]
    elif kind != "batches":  # which reads rows again
        rows = [{**row, "id": f"e{draw.randrange(14)}", "ts": row["ts"] + draw.randrange(30)} for row in rows]
    rows = people(draw, rows)
    if kind == "deletion_log":
        by_subject = model.endswith("by subject")
        named = [draw.choice(HOSTILE[-8:]) if by_subject else f"e{draw.randrange(16)}" for _ in range(20)]
        after = sorted(draw.choices(range(n + 5), k=20))
        written(folder / "log.arrow", pa.table({"subject" if by_subject else "id": named, "after": after}))
        options |= {"deletion_log": str(folder / "log.arrow")}
    path = written(folder / "rows.arrow", table_of(rows))
    source = ArrowFiles(
        path=str(path), id="id", subject="d", ts="ts", features=["a"], **({"op": "op"} if kind == "changelog" else {})
    )
    adapter: TypeAdapter[Any] = TypeAdapter(StreamOptions)
    return lambda: adapter.validate_python(options).make(open_source(source), folder)


def whole(state: dict[str, Any]) -> dict[int, tuple[int, Any]]:
    """Birth and subject by id."""
    names = [state["subjects"][code] for code in state["subject_codes"].tolist()]
    births = zip(state["subject_born"].tolist(), names, strict=True)
    return dict(zip(state["subject_ids"].tolist(), births, strict=True))


class Twin:
    """Whose rows live, by a dictionary, with the births that a learner would note; values are deleted by nobody."""

    def __init__(self, stream: Stream) -> None:
        self.live: dict[int, tuple[int, Any]] = {}
        self._whose = {
            int(row): whose for rows in stream.source.rows() for row, whose in zip(rows.row, rows.subject, strict=True)
        }

    def add(self, batch: Any) -> None:
        for place, (op, id_) in enumerate(zip(batch.op.tolist(), batch.id.tolist(), strict=True)):
            if op == DELETE:
                self.live.pop(id_, None)
            elif op in (INSERT, UPDATE) and (id_ in self.live) == (op == UPDATE):
                self.live[id_] = batch.start + place, self._whose[int(batch.row[place])]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("seed", range(3))
def test_a_stream_knows_whose_rows_live(model: str, seed: int, tmp_path: Path) -> None:
    draw = random.Random(f"{model} {seed}")
    make = opened(tmp_path, model, draw)
    stream, twin, states = make(), Twin(make()), []
    replay = Replay(stream.source)
    for batch in stream.batches(draw.choice([1, 4, 100])):
        assert CARRIES_ROW[batch.op].sum() == len(batch.X)
        twin.add(batch)
        replay.add(batch)
        states.append((batch.stop, stream.state()))
    ids, born = replay.living
    for number, (stop, state) in enumerate(states):
        kept = Subjects()
        kept.restore(state)
        if number == len(states) - 1:
            kept.keep(ids, born)
            found = whole(kept.state())
            by_value = {i: one for i, one in twin.live.items() if i in found}  # deleted by value, which the twin cannot
            assert found == by_value
            assert set(found) == set(ids.tolist())
            assert set(kept.known) == {subject for _, subject in found.values()}
        if model != "batches" and number in (0, len(states) // 2):
            again = make()
            again.restore(state)
            rest = list(again.batches(7))
            assert (rest[-1].stop if rest else stop) == states[-1][0]
            end, last = again.state(), states[-1][1]
            assert whole(end) == whole(last)
            assert end["subjects"] == last["subjects"]


@pytest.mark.parametrize("seed", range(3))
def test_a_log_of_subjects_deletes_what_lives_of_them(seed: int, tmp_path: Path) -> None:
    """However the stream is cut; and each id of the subject, oldest first."""
    make = opened(tmp_path, "deletion_log, by subject", random.Random(seed))
    sequences = []
    for size in (1, 3, 100):
        stream = make()
        batches = list(stream.batches(size))
        sequences.append([(int(o), int(i), int(r)) for b in batches for o, i, r in zip(b.op, b.id, b.row, strict=True)])
        assert all(len(batch) <= size for batch in batches)
    assert sequences[0] == sequences[1] == sequences[2]
    live: dict[int, Any] = {}
    twin = Twin(make())
    for op, id_, row in sequences[0]:
        if op == DELETE:
            file, line = stream.where(row)
            named = stream._log.ids[line]
            assert file.endswith("log.arrow")
            assert live.pop(id_) == named
        else:
            assert id_ not in live
            live[id_] = twin._whose[row]


@pytest.mark.parametrize("seed", range(20))
def test_the_table_is_a_dictionary(seed: int) -> None:
    """Against a plain dictionary, with undone insertions, copies, and deletions that are applied late or at once."""
    draw = random.Random(seed)
    table, twin, seq = Subjects(), dict[int, tuple[int, Any]](), 0
    names = [*HOSTILE, *range(5), "1", ("a", 1)]
    for _ in range(60):
        what = draw.random()
        if what < 0.5:
            new = [i for i in draw.sample(range(40), draw.randrange(6)) if i not in twin]
            whose = [draw.choice(names) for _ in new]
            size = len(table)
            table.add(np.array(new, dtype=np.int64), seq + np.arange(len(new)), whose)
            if draw.random() < 0.3:
                table.cut(size)
            else:
                twin |= {i: (seq + n, one) for n, (i, one) in enumerate(zip(new, whose, strict=True))}
                seq += len(new)
        elif what < 0.8:
            gone = draw.sample(sorted(twin), min(len(twin), draw.randrange(4)))
            table.end(np.array(gone, dtype=np.int64), seq + np.arange(len(gone)))
            seq += len(gone)
            for i in gone:
                del twin[i]
        elif what < 0.9:
            table = pickle.loads(pickle.dumps(table))  # as copies do
            state = table.state()
            table.restore(state)
        else:
            kept = draw.sample(sorted(twin), len(twin) // 2)
            twin = {i: twin[i] for i in kept}
            table.keep(
                np.array(list(twin), dtype=np.int64), np.array([born for born, _ in twin.values()], dtype=np.int64)
            )
        if draw.random() < 0.5:
            asked = draw.sample(names, 3)
            ids, born, whose = table.rows_of(asked)
            assert {i: (b, w) for i, b, w in zip(ids.tolist(), born.tolist(), whose, strict=True)} == {
                i: one for i, one in twin.items() if one[1] in asked
            }
            assert born.tolist() == sorted(born.tolist())
            some = np.arange(40)
            assert table.of(some).tolist() == [twin[i][1] if i in twin else None for i in range(40)]
    assert whole(table.state()) == twin
    assert set(table.known) == {whose for _, whose in twin.values()}
    assert not any(name in repr(pickle.dumps(table)) for name in map(str, HOSTILE[-1:]) if name not in table.known)
