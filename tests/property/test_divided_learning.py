"""Learners whose shards read the features of the warm-up themselves, against learners that are sent them.

The digest, the results and the states are equal for any number of shards, wherever blocks, batches and the warm-up end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from raydt.learners import learners
from raydt.learners.base import WorkPlan
from raydt.sessions.session import InProcessSession
from raydt.sources.divided import DividedReading, Opening, SourceFeatures, open_source
from raydt.sources.options import ParquetFiles
from raydt.streams.options import make_stream
from raydt.streams.windows import SlidingWindow
from tests import volume
from tests.property.test_divided_reading import Shards

ROWS, WARMUP = 420, 300
COLUMNS_OF_NUMBERS = [*(f"x{j}" for j in range(5)), "word"]
#: Features where they are not all numbers and the category.
COLUMNS = {
    "gbdt tokens": ["x0", "tokens", "word"],
    "sparse tree": ["x1", "ones"],
    "sparse tree of ones": ["ones"],
    "best split": ["ones"],
    "best split of tokens": ["tokens"],
}
CASES: dict[str, tuple[str, dict[str, Any], str]] = {
    "fudyadt": ("fudyadt", {}, "y"),
    "fudyadt numbers": ("fudyadt", {"criterion": "squared_error"}, "number"),
    "gbdt": ("gbdt", {"max_iter": 4}, "y"),
    "gbdt held out": ("gbdt", {"max_iter": 4, "early_stopping": True, "objective": "multiclass"}, "y_of_three"),
    "gbdt numbers held out": ("gbdt", {"max_iter": 5, "early_stopping": True, "objective": "squared_error"}, "number"),
    "gbdt tokens": ("gbdt", {"max_iter": 4, "early_stopping": True}, "y"),
    "sparse tree": ("sparse_tree", {"epsilon": 0.2, "finder": "updgini", "alpha": 0.05}, "y"),
    "sparse tree of ones": ("sparse_tree", {"finder": "updent"}, "y"),
    "best split": ("best_split", {"finder": "updgini"}, "y"),
    "best split of tokens": ("best_split", {"finder": "auto"}, "y"),
    "forest": ("forest", {"n_estimators": 6}, "y_of_three"),
    "forest numbers": ("forest", {"n_estimators": 5, "criterion": "squared_error"}, "number"),
}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> str:
    draw = np.random.default_rng(5)
    columns: dict[str, Any] = {f"x{j}": draw.integers(0, 40, ROWS) / 8 for j in range(5)}
    columns["word"] = [f"w{v}" for v in draw.integers(0, 9, ROWS)]
    side = columns["x0"] + columns["x1"] > 5
    columns |= {"y": np.where(side, "yes", "no"), "number": columns["x0"] * 2 + side}
    columns["y_of_three"] = [f"c{v}" for v in (columns["x0"] // 2).astype(int)]
    columns["ones"] = [sorted({int(a), 7 + int(b), 30}) for a, b in zip(columns["x0"], columns["x1"], strict=True)]
    columns["tokens"] = [[f"t{one}" for one in ones] for ones in columns["ones"]]
    columns["x3"][350] = np.inf  # a bad row after the warm-up, and one in it
    columns["x4"][37] = np.nan
    path = tmp_path_factory.mktemp("divided") / "t.parquet"
    pq.write_table(pa.table(columns), path, row_group_size=64)
    return str(path)


def outcome(
    table: str, case: str, shards: int, plan: WorkPlan, sizes: Sequence[int], block: int | None = None
) -> list[Any]:
    kind, given, label = CASES[case]
    learner = learners()[kind]
    options = learner.Options.model_validate({"kind": kind, **given})
    traits = learner.traits(options)
    source_options = ParquetFiles(path=table, label=label, features=COLUMNS.get(case, COLUMNS_OF_NUMBERS))
    source = open_source(source_options, reading=traits.reading)
    stream = make_stream(SlidingWindow(warmup=WARMUP, window=WARMUP + 20, on_error="skip"), source)
    features = replace(source.features, groups=options.feature_groups)
    session = InProcessSession(learner, options, features, shards, plan)
    divided = None
    if block is not None:
        opening = Opening(source_options, ".", traits.reading, source.places, source.identity().fingerprint)
        readers = Shards(opening, features, shards)
        if traits.reads == "rows":
            readers.readers = [SourceFeatures(opening, features) for _ in range(shards)]
        for shard, reader in zip(session.shards, readers.readers, strict=True):
            shard.worker.reader = reader
        divided = DividedReading(source, readers, WARMUP, block)
        stream.begin_with(divided.rows())
    found: list[Any] = []
    turn = without = at = 0
    while True:
        ends = [end - at for end in (WARMUP // 2, WARMUP, 400) if end > at]  # where digests are compared
        if (batch := next(stream.batches(min([sizes[turn % len(sizes)], *ends])), None)) is None:
            break
        if divided is not None and batch.lacks_features:
            batch, without = replace(batch, blocks=divided.blocks_of(batch.row)), without + len(batch.X)
        turn += 1
        result = session.apply(batch)
        found += zip(np.asarray(result.predictions).tolist(), result.path.tolist(), strict=True)
        at = batch.stop
        if at in (WARMUP // 2, WARMUP, 400):
            found.append(session.digest())
    session.finish()
    if divided is not None and block is not None and block < 200:
        assert without > 0
    statistics = session.statistics()
    found.append(sorted((k, v) for k, v in statistics.items() if k not in ("rounds", "bytes_exchanged")))
    state, groups = session.state()
    found += [session.digest(), {name: state[name].tolist() for name in sorted(state)}]
    found.append({g: {name: np.asarray(part[name]).tolist() for name in sorted(part)} for g, part in groups.items()})
    return found


#: Limits of local work: shards do all work, some, none but to hold rows. Every test run takes the first and the last in
#: turn, so that each learner meets both.
LIMITS = 0, 900, 10**9
BY_DAY = [(case, LIMITS[place % 2 * 2]) for place, case in enumerate(CASES)]


#: Sizes of batches, in turn, and rows of a block. Every test run takes one of them with a case, in turn.
CUTS: tuple[tuple[list[int], int], ...] = (([100], 64), ([25, 50], 33), ([300, 100], 1))


@pytest.mark.turns(4)
@pytest.mark.share
@pytest.mark.parametrize(
    ("case", "limit"),
    [
        pytest.param(case, limit, marks=[] if (case, limit) in BY_DAY else pytest.mark.nightly)
        for case in CASES
        for limit in LIMITS
    ],
)
def test_same_model(table: str, case: str, limit: int) -> None:
    plan = WorkPlan(local_work_limit=limit, row_cache_bytes=None if limit else 0, shared_store=False)
    for sizes, block in CUTS if volume.nightly else [CUTS[list(CASES).index(case) % len(CUTS)]]:
        expected = outcome(table, case, 1, WorkPlan(), sizes)
        for shards in volume.spread((2, 1, 5, 3), 2):
            assert repr(outcome(table, case, shards, plan, sizes, block)) == repr(expected), (shards, sizes, block)
