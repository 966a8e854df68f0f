"""How often coordinator and shards speak, and how many bytes they send: a round or a byte more than before is found.

``tests/nets/rounds.json`` has the rounds, and with two shards the bytes, of every request on the change log of each
case; ``python -m tests.nets.test_rounds`` writes it anew. What the bytes of a row are for is stated here
(:data:`OF_A_ROW`).

What is counted is what processes would send: on a pass (``Combine``) a shard sends nothing to itself, and nothing of
what the shards swap goes through the coordinator.
"""

from __future__ import annotations

import json
import random
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pytest

from raydt.exchange.links import InProcessDriver, Traffic
from raydt.exchange.messages import MET, Ask, Combine, Exchange
from raydt.learners.base import WorkPlan
from raydt.learners.gbdt.coordinator import GBDTCoordinator
from raydt.learners.gbdt.row_shard import RowShard
from raydt.sessions.session import InProcessSession
from raydt.streams.base import Stream
from raydt.streams.deletion_log import Changelog
from tests.cases import CASES, Trial, every_case
from tests.small_tables import random_changes, table_of, written

T = TypeVar("T")

KNOWN = Path(__file__).with_name("rounds.json")
#: All rows and all work are with the shards.
DIVIDED = WorkPlan(local_work_limit=0, row_cache_bytes=0, shared_store=False)
BATCH = 16
#: Rows of two first models, of which the second is larger by a number that all slopes are taken over.
FEW, MANY = 128, 512


class Sent(NamedTuple):
    """Messages of one request: rounds, bytes of the coordinator to all shards and back, meetings, bytes swapped."""

    rounds: int = 0
    to_shards: int = 0
    to_coordinator: int = 0
    met: int = 0
    swapped: int = 0

    def plus(self, **more: int) -> Sent:
        """Return the sums."""
        return self._replace(**{name: getattr(self, name) + count for name, count in more.items()})


def size_of(content: Any) -> int:
    """Bytes of all arrays."""
    traffic = Traffic()
    traffic.count(content)
    return traffic.bytes


class RecordingDriver(InProcessDriver):
    """Counts, by request, what coordinator and shards send."""

    def __init__(self, shards: Any) -> None:
        super().__init__(shards)
        self.sent: dict[str, Sent] = defaultdict(Sent)
        self._pass = ""  # the request that began the pass under way

    def run(self, exchange: Exchange[T]) -> T:
        """Drive ``exchange`` to its end; passes are told from other requests before they are made into such."""
        return super().run(self._noting(exchange))

    def _noting(self, exchange: Exchange[T]) -> Exchange[T]:
        n = len(self.shards)
        try:
            request = next(exchange)
            while True:
                self._pass = request.method if isinstance(request, Combine) else ""
                replies = yield request
                payloads = [request.for_shard(index) for index in range(n)]
                self._note(request.method, rounds=1, to_shards=size_of(payloads), to_coordinator=size_of(replies))
                request = exchange.send(replies)
        except StopIteration as end:
            result: T = end.value
            return result

    def _ask(self, request: Ask) -> list[Any]:
        if request.method == MET:
            assert request.each is not None
            swapped = sum(
                size_of(part) for owner, one in enumerate(request.each) for maker, part in enumerate(one["parts"])
                if owner != maker
            )  # fmt: skip
            self._note(self._pass, met=1, swapped=swapped)
        return super()._ask(request)

    def _note(self, method: str, **counts: int) -> None:
        self.sent[method] = self.sent[method].plus(**counts)


def recorded(
    trial: Trial, stream: Stream, shards: int, batch: int = BATCH, *, restored: bool = False
) -> dict[str, Sent]:
    """Messages of a whole stream, its end and the digest; also of a state, and of a digest once it is restored."""
    features = trial.features(stream.source)
    session = InProcessSession(trial.learner, trial.options, features, shards, DIVIDED)
    session.driver = driver = RecordingDriver(session.shards)
    for updates in stream.batches(batch):
        session.apply(updates, skip_refused=True)
    session.finish()
    session.digest()
    if restored:
        session.restore(*session.state())
        session.digest()
    return dict(sorted(driver.sent.items()))


def rounds_of(sent: dict[str, Sent]) -> dict[str, tuple[int, int]]:
    """Rounds and meetings by request."""
    return {method: (one.rounds, one.met) for method, one in sent.items()}


@every_case("rounds and bytes of messages")
def test_no_round_and_no_byte_more_than_before(trial: Trial, tmp_path: Path) -> None:
    """The number of shards changes no round: it is the model that has them meet; one that is alone meets nobody."""
    alone, two, three = (recorded(trial, trial.stream(tmp_path), shards, restored=True) for shards in (1, 2, 3))
    assert rounds_of(two) == rounds_of(three)
    assert {method: one.rounds for method, one in alone.items()} == {method: one.rounds for method, one in two.items()}
    assert all(alone[method].met <= one.met for method, one in two.items())
    assert not any(one.swapped for one in alone.values()), "a shard that is alone sends itself something"
    if trial.shipped:
        known = {name: Sent(*counts) for name, counts in json.loads(KNOWN.read_text())[trial.name].items()}
        assert two == known, "python -m tests.nets.test_rounds writes what is sent now, for you to compare"


# -- bytes of a row in a first model ----------------------------------------------------------------------------------


class OfARow(NamedTuple):
    """Bytes of one more row, at most: to each shard beside the row's features; back from all; swapped by each shard."""

    to_each: float = 0.0
    back: float = 0.0
    swapped: float = 0.0
    weight: tuple[float, float] = (0.0, 0.0)  #: For the weight of a row that has one: to each shard, and back.
    number: float = 0.0  #: For a label that is a number: to each shard.
    features: str = ""  #: Whether the row's features are sent: each to one shard, or all to each.


#: What new rows are told by: a slot, and where their sparse features begin.
ROWS = OfARow(12.2, features="each to one")
#: By learner and request, with up to three shards; a request that is not listed sends no byte for a row.
OF_A_ROW: dict[str, dict[str, OfARow]] = {
    # `steps` has slot, kind and label; and a weight, as changes of counts.
    "best_split": {"rows": ROWS, "measure": OfARow(4), "steps": OfARow(7, weight=(8, 0))},
    # A leaf is checked every third row; `count` has the paths of rows, and candidates of each check. The bins, and the
    # coordinator's view of the first rows, are made of all of these (`learn`, `gather`). With weights each of some nine
    # nodes of a path gets 8 bytes instead of a sign.
    "confidence_tree": {
        "rows": ROWS,
        "learn": OfARow(4, 0.1),
        "gather": OfARow(4, 57),
        "count": OfARow(246, 1770, weight=(70, 0)),
        "divide": OfARow(8.5, 0.25),
    },
    # Here of three classes, and scores come twice.
    "confidence_tree: normal leaves": {
        "rows": ROWS,
        "learn": OfARow(4, 0.1),
        "gather": OfARow(4, 57),
        "count": OfARow(249, 2780),
        "divide": OfARow(8.5, 0.25),
    },
    # All trees predict, so each shard gets each row whole. Of a weight 4 bytes, and 8 more once where a warm-up has
    # found weights of classes. A digest has a hash of each tree.
    "forest": {"steps": OfARow(38, 122, weight=(12, 0), features="all to each")},
    # Operation, id, label (a number has 4 bytes more), birth and weight go to the owner, which answers with a slot;
    # then all get slot and label, a class as a byte. A digest has hashes of buckets, and more have rows. To build, a
    # bit of each slot; back come the node and, in trees of a row or two in a leaf, a split for two rows; shards tell
    # each other two bits at each level, and candidates of open nodes. Of rows with weights a slot goes out instead,
    # and four features come back.
    "fudyadt": {
        "admit": OfARow(21, 10.2, weight=(4, 0), number=4),
        "rows": OfARow(5, features="each to one", number=7),
        "hash_rows": OfARow(0, 15.7, weight=(0, 4)),
        "build": OfARow(0.125, 15, swapped=30),
        "gather": OfARow(weight=(4, 32)),
    },
    # Operation, id, label, birth and weight go to the owner, which answers with a slot. Shards tell each other slots of
    # the first rows, and cells go from who has the column to who has the row. No byte of what trains the trees depends
    # on the number of rows; but rows held out, a tenth, go to their owners before the first tree, with values. A digest
    # has hashes of buckets, and more have rows.
    "gbdt": {
        "rows": ROWS,
        "admit": OfARow(25, 10.2, weight=(4, 0)),
        "learn": OfARow(swapped=8),
        "encode": OfARow(swapped=8.8),
        "train": OfARow(swapped=1.6),
        "hash_rows": OfARow(0, 24.8, weight=(0, 2.1)),
    },
    # Levels of a tree of the rows in order: slots at the first, bits at each; and a weight.
    "sparse_tree": {"rows": ROWS, "build": OfARow(20.4, 2.4, weight=(16.1, 0))},
}


def first_model(trial: Trial, rows: int, shards: int, folder: Path) -> dict[str, Sent]:
    """What is sent for a model of so many rows."""
    path = written(folder / f"{rows}.arrow", table_of(random_changes(random.Random("first model"), rows, rows)))
    config = trial.config(folder)
    config["source"]["path"] = str(path)
    stream = Changelog.model_validate({**config["stream"], "warmup": rows}).make(trial.source(config))
    return recorded(trial, stream, shards, 64)


def bytes_of_features(trial: Trial, folder: Path) -> float:
    """Bytes of the features of a row, in the mean of those between the two models."""
    found = []
    for rows in (FEW, MANY):
        trial_config = trial.config(folder)
        trial_config["source"]["path"] = str(folder / f"{rows}.arrow")
        chunks = list(trial.source(trial_config).rows())
        found.append(sum(c.X.nbytes + (0 if c.sparse is None else c.sparse.indices.nbytes) for c in chunks))
    return float(found[1] - found[0]) / (MANY - FEW)


def excess(trial: Trial, shards: int, folder: Path) -> list[str]:
    """Requests that send more bytes for a row than is stated."""
    few, many = (first_model(trial, rows, shards, folder) for rows in (FEW, MANY))
    width, found = bytes_of_features(trial, folder), []
    for method, last in many.items():
        more = np.subtract(last, few.get(method, Sent())) / (MANY - FEW)
        stated = OF_A_ROW.get(trial.name, OF_A_ROW[trial.learner.kind]).get(method, OfARow())
        features = {"": 0.0, "each to one": width, "all to each": shards * width}[stated.features]
        label = stated.number if trial.reading.regression else 0.0
        to_each, back = np.add([stated.to_each + label, stated.back], np.multiply(stated.weight, trial.weighs)).tolist()
        most = (features + shards * to_each, back, shards * stated.swapped)
        if any(more[[1, 2, 4]] > most):
            found.append(f"{method}: {more[[1, 2, 4]].tolist()}, stated are {most}")
    return found


@every_case("bytes of a row")
def test_no_more_bytes_of_a_row_than_are_stated(trial: Trial, tmp_path: Path) -> None:
    if trial.learner.kind not in OF_A_ROW:
        assert not trial.shipped
        return
    for shards in (1, 3):
        assert excess(trial, shards, tmp_path) == []


# -- what the nets catch ----------------------------------------------------------------------------------------------


@pytest.fixture
def boosted() -> Trial:
    """A case whose shards meet."""
    return next(trial for trial in CASES if trial.name == "gbdt: numbers")


def test_an_extra_meeting_of_a_pass_is_found(boosted: Trial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known, steps = recorded(boosted, boosted.stream(tmp_path), 2, restored=True), RowShard.train_steps

    def longer(self: RowShard, *arguments: Any) -> Iterator[Any]:
        yield from steps(self, *arguments)
        yield [np.empty(0, np.int64)] * 2

    monkeypatch.setattr(RowShard, "train_steps", longer)
    found = recorded(boosted, boosted.stream(tmp_path), 2, restored=True)
    assert found == {**known, "train": known["train"].plus(met=known["train"].rounds)}


def test_rows_that_go_through_the_coordinator_are_found(
    boosted: Trial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    take = GBDTCoordinator._take

    def greedy(self: GBDTCoordinator, batch: Any, part: slice, admitted: Any, result: Any) -> Exchange[Any]:
        log = yield from take(self, batch, part, admitted, result)
        new = admitted.new[part]
        yield from self._rows.take(new[new >= 0])
        return log

    assert excess(boosted, 2, tmp_path) == []
    monkeypatch.setattr(GBDTCoordinator, "_take", greedy)
    (found,) = excess(boosted, 2, tmp_path)
    assert found.startswith("gather: ")


def main() -> None:
    """Write down what is sent now."""
    found: dict[str, dict[str, Sent]] = {}
    for trial in (trial for trial in CASES if trial.shipped):
        with tempfile.TemporaryDirectory() as folder:
            found[trial.name] = recorded(trial, trial.stream(Path(folder)), 2, restored=True)
    lines = [f"{json.dumps(name)}: {json.dumps(sent)}" for name, sent in found.items()]
    KNOWN.write_text("{" + ",\n".join(lines) + "}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
