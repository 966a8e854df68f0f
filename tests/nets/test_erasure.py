"""``raydt verify --subject`` says of folders what is in them, in drawn stories of runs, updates, purges and kills.

A story knows which rows live in each folder. Names of ids and subjects, and a number of each row, occur nowhere else,
so that a search in every byte of a folder says what is left there.
"""

from __future__ import annotations

import json
import random
import shutil
import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pipelines
from pipelines.display import erasure_lines
from pipelines.purging import purge
from pipelines.updating import update
from pipelines.whereabouts import verify_erasure
from tests.canaries import contents

PERSONS = 5
KEYS = ("north", "south", "west")


class Story:
    """A run of persons' rows, and the states made from it; ``live`` rows by folder."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.draw = folder, random.Random(seed)
        self.text, self.by_key, self.quotes = seed % 2 == 0, seed % 3 == 0, seed % 4 != 1
        self.rows: dict[int, dict[str, Any]] = {}
        self.live: dict[Path, set[int]] = {}
        self.log: list[dict[str, Any]] = []
        self.made = self.keep = 0
        alive: set[int] = set()
        for number in range(60):
            self.rows[number] = self.row(number)
            self.log.append({**self.rows[number], "op": "insert"})
            alive.add(number)
            if number > 30 and self.draw.random() < 0.3:
                gone = self.draw.choice(sorted(alive))
                alive.remove(gone)
                self.log.append({**self.rows[gone], "op": "delete"})
        self.run = folder / "run"
        self.ended = alive
        self.live[self.run] = alive

    def subject(self, person: int) -> Any:
        return f"person {person:02d} e7f3" if self.text else 7_310_000 + person

    def row(self, number: int) -> dict[str, Any]:
        id = f"id {number:03d} c4a9" if self.text else 5_170_000 + number
        person = self.draw.randrange(PERSONS)
        return {
            "id": id,
            "who": self.subject(person),
            "key": self.draw.choice(KEYS),
            "a": self.number(number),
            "b": float(self.draw.randrange(5)),
            "y": self.draw.choice(["yes", "no"]),
        }

    @staticmethod
    def number(number: int) -> float:
        return 1.0 + (number + 1) * 1.2345678e-7

    def replay(self) -> None:
        pq.write_table(pa.Table.from_pylist(self.log), self.folder / "log.parquet")
        source = {"kind": "parquet", "path": str(self.folder / "log.parquet"), "label": "y", "id": "id"}
        source |= {"subject": "who", "op": "op", "features": ["a", "b"], **({"key": "key"} if self.by_key else {})}
        config = {
            "source": source,
            "stream": {"model": "changelog", "warmup": 10},
            "learner": {"kind": "forest", "n_estimators": 2, "max_depth": 2},
            "cluster": {"backend": "in_process", "batch_size": 7},
            "checkpoint": {"every_updates": 20, "every_seconds": None, "keep": self.keep or self.draw.choice([1, 3])},
            "output": {"report": False, "predictions": self.draw.random() < 0.7, "quote_values": self.quotes},
        }
        pipelines.replay(config, self.run)

    def delete(self) -> None:
        """Delete a person, or a row, from a state into a new one."""
        base = self.draw.choice(sorted(self.live))
        self.made += 1
        target, alive = self.folder / f"state {self.made}", self.live[base]
        if not alive:
            return
        one = self.rows[self.draw.choice(sorted(alive))]
        if self.draw.random() < 0.7:
            update(base, delete={"subject": [one["who"]]}, out=target)
            self.live[target] = {n for n in alive if self.rows[n]["who"] != one["who"]}
        else:
            update(base, delete={"id": [one["id"]]}, out=target)
            self.live[target] = {n for n in alive if self.rows[n]["id"] != one["id"]}

    def purge(self) -> None:
        purge(self.draw.choice(sorted(self.live)))

    def resume(self) -> None:
        """Have the run continue from a state, if there is one."""
        states = sorted(place for place in self.live if place != self.run)
        if states and self.live[self.run] == self.ended:  # an older state may not continue twice
            state = self.draw.choice(states)
            pipelines.resume(self.run, state=state)
            self.live[self.run] = set(self.live[state])
            self.ended = set()

    def remove(self) -> None:
        """Remove a state."""
        states = sorted(place for place in self.live if place != self.run)
        if states:
            place = self.draw.choice(states)
            shutil.rmtree(place)
            del self.live[place]

    def cut(self) -> None:
        """Leave the run as one that was killed while it wrote its last checkpoint."""
        *_, before, last = sorted(
            map(int, (path.name for path in (self.run / "checkpoints").iterdir() if path.name.isdecimal()))
        )
        (self.run / "checkpoints" / str(last) / "manifest.json").unlink()
        for name in ("summary.json", "model", "log.jsonl", "predictions"):
            shutil.rmtree(self.run / name, ignore_errors=True)
            (self.run / name).unlink(missing_ok=True)
        alive: set[str] = set()
        for line in self.log[:before]:
            alive = alive | {line["id"]} if line["op"] == "insert" else alive - {line["id"]}
        self.live[self.run] = {n for n, row in self.rows.items() if row["id"] in alive}

    def is_there(self, kind: str, name: Any, place: Path) -> bool:
        """Return True if a byte of a folder names it, or a row of it is stored there."""
        rows = [n for n, row in self.rows.items() if row["id" if kind == "id" else "who"] == name]
        bits = [struct.pack("<d", self.number(n)) for n in rows]
        told = [str(name).encode()] if self.text else []
        told += [str(self.rows[n]["id"]).encode() for n in rows] if self.text and kind == "subject" else []
        for file in (path for path in place.rglob("*") if path.is_file()):
            rows_here = "group" in file.name or file.name.startswith("rows-")
            if any(needle in part for part in contents(file) for needle in (told + bits if rows_here else told)):
                return True
        return False


def check(story: Story) -> None:
    persons, some = [story.subject(one) for one in range(PERSONS)], story.draw.sample(sorted(story.rows), 4)
    ids = [story.rows[n]["id"] for n in some]
    found = verify_erasure(story.run, ids=ids, subjects=persons)
    shown = erasure_lines(found) + json.dumps(found)
    assert story.quotes or not any(str(name) in shown for name in (*persons, *ids))
    assert found["ok"] == all(one["erased"] for one in (*found["ids"], *found["subjects"]))
    for kind, name, one in [
        *(("id", *pair) for pair in zip(ids, found["ids"], strict=True)),
        *(("subject", *pair) for pair in zip(persons, found["subjects"], strict=True)),
    ]:
        told = f"{kind} {name}: {one}"
        column = "id" if kind == "id" else "who"
        for place, alive in story.live.items():
            here = [trace for trace in one["folders"] if Path(trace["folder"]).is_relative_to(place)]
            rows = sum(story.rows[n][column] == name for n in alive)
            states = [trace for trace in here if trace["what"] in ("checkpoint", "state")]
            assert states, (place, told)
            assert states[-1]["rows"] == rows, (place, told)
            assert (states[-1]["status"] == "live") == (rows > 0), (place, told)
            holds = any(trace["copies"] or trace["status"] in ("live", "unclear") for trace in here)
            assert holds or not story.is_there(kind, name, place), (place, told)
            certain = any(trace["copies"] or trace["status"] == "live" for trace in here)
            assert not certain or not story.text or story.is_there(kind, name, place), (place, told)
        assert {Path(trace["folder"]) for trace in one["folders"] if trace["what"] == "state"} == {
            place for place in story.live if place != story.run
        }


@pytest.mark.turns(2)
@pytest.mark.parametrize("seed", range(24))
def test_what_is_said_of_folders_is_in_them(seed: int, tmp_path: Path) -> None:
    story = Story(tmp_path, seed)
    story.replay()
    check(story)
    for _ in range(5):
        story.draw.choice([story.delete, story.delete, story.purge, story.resume, story.remove])()
        check(story)


@pytest.mark.turns(2)
@pytest.mark.parametrize("seed", [seed for seed in range(12) if seed % 3])  # runs by key keep one checkpoint
def test_what_a_killed_checkpoint_left_is_not_without_a_trace(seed: int, tmp_path: Path) -> None:
    story = Story(tmp_path, seed)
    story.keep = 3
    story.replay()
    story.cut()
    check(story)
