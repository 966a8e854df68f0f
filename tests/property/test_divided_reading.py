"""A reading that is divided among shards or threads, and what they learn."""

from __future__ import annotations

import gzip
import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from raydt.arrays.blocks import SparseRows, merged
from raydt.encoding import features
from raydt.errors import InputError, RaydtError
from raydt.examples.updates import Features, Reading, UpdateBatch
from raydt.exchange.messages import Block
from raydt.learners import learners
from raydt.learners.base import WorkPlan
from raydt.messages import message
from raydt.parallel import limited
from raydt.sessions.session import InProcessSession
from raydt.sources import file_source
from raydt.sources.base import Rows, Source
from raydt.sources.divided import BlockReport, DividedReading, Opening, SourceFeatures, open_source
from raydt.sources.files import csv, libsvm
from raydt.sources.options import (
    ArrowFiles,
    CsvFiles,
    Hyperplane,
    JsonLinesFiles,
    LibsvmFiles,
    ParquetFiles,
    RandCbt,
    Sea,
    SourceOptions,
    SparseSynthetic,
)
from raydt.streams.deletion_log import Changelog, DeletionLog, RandomUpdates
from raydt.streams.windows import Batches, Incremental, SlidingWindow, TimeWindow
from tests import volume
from tests.volume import examples

# -- divided reading -------------------------------------------------------------------------------------------------
# A divided reading against reading the source as a whole: the same updates, features, codes, skipped rows and errors.
#
# The shards are readers in this process. Files have bad rows in several columns, categories, tokens and labels that
# are only in bad rows, and blocks, chunks and row groups that end anywhere.

NAN, INF = float("nan"), float("inf")
TEXTS = st.sampled_from(["p", "q", "r", "s", None])


@st.composite
def tables(draw: st.DrawFn) -> dict[str, list[Any]]:
    """Columns of a few rows, most of which are good."""
    n, often = draw(st.integers(1, 40)), draw(st.integers(1, 30))

    def column(good: st.SearchStrategy[Any], bad: st.SearchStrategy[Any]) -> list[Any]:
        one = st.integers(0, often).flatmap(lambda at: bad if at == 0 and often < 20 else good)
        return draw(st.lists(one, min_size=n, max_size=n))

    number = st.sampled_from([0.0, -0.0, 1.0, 2.5, -3.0])
    return {
        "a": column(number, st.sampled_from([None, INF])),
        "b": column(number, st.just(NAN)),
        "c": column(st.sampled_from("uvw"), st.sampled_from([None, "only"])),
        "d": column(st.sampled_from([1.0, 2.0, 7.0]), st.sampled_from([None, INF, 9.0])),
        "e": column(number, st.just(None)),
        "id": draw(st.lists(st.integers(0, 60), min_size=n, max_size=n)),
        "y": column(st.sampled_from("xyz"), st.sampled_from([None, "rare"])),
        "t": list(range(n)),
        "ones": column(
            st.lists(st.integers(0, 7), max_size=4, unique=True), st.sampled_from([None, [9], [1, 1], [-1]])
        ),
        "tokens": column(st.lists(st.sampled_from("klmnop"), max_size=4), st.sampled_from([None, [None], ["only"]])),
        "op": column(st.sampled_from(["insert", "insert", "m"]), st.sampled_from(["delete", "update", None])),
    }


def write(form: str, table: pa.Table, path: Path, size: int) -> None:
    if form == "parquet":
        pq.write_table(table, path, row_group_size=size)
    elif form == "csv":
        pacsv.write_csv(table, path)
    elif form == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    else:
        with pa.ipc.new_file(path, table.schema) as file:
            file.write_table(table, max_chunksize=size)


class Shards:
    """Readers of ``shards`` shards in this process."""

    def __init__(self, opening: Opening, features: Features, shards: int) -> None:
        owned = features.assign(shards)
        self.columns, self.width = [features.columns_of(groups).tolist() for groups in owned], features.sparse
        self.readers = [SourceFeatures(opening, features, groups) for groups in owned]

    def check(self, start: int, stop: int, unwanted: Sequence[int]) -> Callable[[], Sequence[BlockReport]]:
        reports = [reader.check(start, stop, unwanted) for reader in self.readers]
        return lambda: reports


def filled(batch: UpdateBatch, shards: Shards, divided: DividedReading) -> Any:
    """The features of a batch without them, from the readers."""
    X, blocks = np.empty((len(batch.X), sum(map(len, shards.columns)))), divided.blocks_of(batch.row)
    ones: list[SparseRows] = []
    for reader, columns in zip(shards.readers, shards.columns, strict=True):
        X[:, columns], some = reader.take(batch.row, blocks)
        ones.append(some)
    return X, merged(ones) if shards.width else None


class Taken:
    """What a stream gives: updates one by one, skipped rows, the error at the end, the state at each batch's end."""

    def __init__(self, stream: Any, sizes: Sequence[int], fill: Callable[[UpdateBatch], Any] | None = None) -> None:
        self.updates: list[Any] = []
        self.skipped: list[Any] = []
        self.states: dict[int, Any] = {}
        self.error: str | None = None
        self.without = turn = 0
        try:
            while (batch := next(stream.batches(sizes[turn % len(sizes)]), None)) is not None:
                turn += 1
                X, sparse = batch.X, batch.sparse
                if fill is not None and batch.lacks_features:
                    assert batch.stop <= batch.warmup
                    X, sparse = fill(batch)
                    self.without += len(X)
                ones = [None if sparse is None else sparse.row(i).tolist() for i in range(len(X))]
                carried = iter(zip(X.tolist(), ones, batch.y.tolist(), strict=True))
                for i, op in enumerate(batch.op.tolist()):
                    values = next(carried) if op != 1 else None
                    name = None if batch.names is None else batch.names[i]
                    self.updates.append((op, int(batch.id[i]), int(batch.row[i]), name, repr(values)))
                self.skipped += stream.take_skipped()
                state = stream.state()
                self.states[batch.stop] = repr({name: state[name] for name in ("row", "source", "n_classes")})
        except InputError as error:
            self.error = str(error)
        self.skipped += stream.take_skipped()
        self.classes = stream.source.classes[: stream.state()["n_classes"]]  # others may have been read ahead


LINES = [
    "1 1:1 3:1",
    "0 2:1",
    "+1 7:1 250:1 # note",
    "1",
    "",
    "  0\t5:1 6:1 ",
    "# only",
    "1 3:2",
    "1 b",
    "0 4:1 4:1",
    "x 1:1",
]
STREAMS = ["changelog", "incremental", "sliding_window", "random_updates", "batches", "time_window", "deletion_log"]


def options_of(model: str, warmup: int, folder: Path, on_error: str, lasts: int = 40) -> Any:
    """The stream; ``lasts`` rows after the warm-up, or before its end, something is deleted."""
    shared: dict[str, Any] = {"warmup": warmup, "on_error": on_error}
    if model == "sliding_window":
        return SlidingWindow(window=warmup + 3, **shared)
    if model == "batches":
        return Batches(steps=[warmup + 2, 1, warmup + 4], **shared)
    if model == "time_window":
        return TimeWindow(duration=max(1, warmup + (lasts if lasts < 0 else 5)), **shared)
    if model == "deletion_log":
        after = max(0, warmup + lasts)
        pq.write_table(pa.table({"id": [3, 1, 4], "after": [after, after + 1, None]}), folder / "log.parquet")
        return DeletionLog(deletion_log=str(folder / "log.parquet"), **shared)
    kinds: dict[str, Any] = {"incremental": Incremental, "random_updates": RandomUpdates, "changelog": Changelog}
    return kinds[model](**shared)


@examples(400)
@given(
    table=tables(),
    form=st.sampled_from(["parquet", "arrow", "csv", "jsonl"]),
    lists=st.none() | st.sampled_from(["ones", "tokens"]),
    most=st.none() | st.integers(2, 8),
    dense=st.sampled_from(["abcde", "", "b"]),
    model=st.sampled_from(STREAMS),
    cut=st.integers(0, 40),
    warmup=st.integers(1, 40),
    lasts=st.just(40) | st.integers(-30, -1),
    sizes=st.lists(st.integers(1, 50), min_size=1, max_size=3),
    block=st.integers(1, 20),
    group=st.integers(1, 50),
    shards=st.sampled_from([1, 2, 3, 5]),
    limit=st.none() | st.integers(1, 45),
    permutation=st.none() | st.integers(0, 3),
    with_ids=st.booleans(),
    on_error=st.sampled_from(["error", "skip"]),
    reading=st.sampled_from([Reading(), Reading(by_value=True), Reading(missing=True), Reading(classes=2)]),
    threads=st.sampled_from([1, 2, 3, 5]),
    chunk=st.integers(1, 9),
)
def test_same_updates(
    table: dict[str, list[Any]],
    form: str,
    lists: str | None,
    most: int | None,
    dense: str,
    model: str,
    cut: int,
    warmup: int,
    lasts: int,
    sizes: list[int],
    block: int,
    group: int,
    shards: int,
    limit: int | None,
    permutation: int | None,
    with_ids: bool,
    on_error: str,
    reading: Reading,
    threads: int,
    chunk: int,
) -> None:
    """With several threads whoever reads a block in full reads ahead, beyond its end; of tokens there may be few."""
    lists = None if form == "csv" else lists
    dense = dense if lists else "abcde"
    reading = replace(reading, sparse=True, sparse_classes=reading.classes)
    changes = model == "changelog"
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr(file_source, "CHUNK_ROWS", (1, chunk))
        folder = Path(name)
        kinds = {"c": pa.string(), "id": pa.int64(), "y": pa.string(), "t": pa.int64(), "op": pa.string()}
        kinds |= {"ones": pa.list_(pa.int64()), "tokens": pa.list_(pa.string())}
        names = [name for name in table if form != "csv" or name not in ("ones", "tokens")]
        schema = pa.schema([(name, kinds.get(name, pa.float64())) for name in names])
        whole = pa.table({name: table[name] for name in names}, schema)
        files = [part for part in (whole[:cut], whole[cut:]) if len(part)]
        for number, part in enumerate(files):
            write(form, part, folder / f"{number}.{form}", group)
        kind = {"parquet": ParquetFiles, "arrow": ArrowFiles, "csv": CsvFiles, "jsonl": JsonLinesFiles}[form]
        options = kind(
            path=[str(folder / f"{number}.{form}") for number in range(len(files))],
            features=[*dense, *([lists] if lists else [])],
            categorical=["d"] if "d" in dense else [],
            id="id" if with_ids or changes else None,
            op="op" if changes else None,
            ts="t" if model == "time_window" else None,
            limit=limit,
            permutation=None if changes else permutation,
            n_features=most if lists else None,
        )
        try:
            open_source(options, reading=reading)
        except InputError:
            return
        stream_options = options_of(model, warmup, folder, on_error, lasts)
        with limited(1):
            plain = Taken(stream_options.make(open_source(options, reading=reading)), sizes)
        source = open_source(options, reading=reading)
        stream = stream_options.make(source)
        opening = Opening(options, ".", reading, source.places, source.identity().fingerprint)
        readers = Shards(opening, source.features, shards)
        divided = DividedReading(source, readers, warmup, block)
        stream.begin_with(divided.rows())

        sizes = [min(size, warmup) for size in sizes] if model == "deletion_log" else sizes
        with limited(threads):
            theirs = Taken(stream, sizes, lambda batch: filled(batch, readers, divided))
        assert theirs.updates == plain.updates
        assert theirs.skipped == plain.skipped
        assert theirs.error == plain.error
        assert theirs.classes == plain.classes
        for at in theirs.states.keys() & plain.states.keys():
            assert theirs.states[at] == plain.states[at], at


@examples(200)
@given(
    lines=st.lists(st.sampled_from(LINES), min_size=1, max_size=30),
    warmup=st.integers(1, 30),
    block=st.integers(1, 20),
    shards=st.sampled_from([1, 2, 3, 5]),
    permutation=st.none() | st.integers(0, 3),
    width=st.sampled_from([None, 4, 300]),
    on_error=st.sampled_from(["error", "skip"]),
    size=st.integers(1, 30),
    end=st.sampled_from(["", ".gz"]),
)
def test_libsvm(
    lines: list[str],
    warmup: int,
    block: int,
    shards: int,
    permutation: int | None,
    width: int | None,
    on_error: str,
    size: int,
    end: str,
) -> None:
    """Whoever reads no features does not parse them: lines, and bad ones, are those of whoever does."""
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr(libsvm, "_BLOCK", 40)
        path, text = Path(name, f"t.libsvm{end}"), "\n".join(lines).encode()
        path.write_bytes(gzip.compress(text) if end else text)
        options, reading = LibsvmFiles(path=str(path), permutation=permutation, n_features=width), Reading(sparse=True)
        try:
            source = open_source(options, reading=reading)
        except InputError:
            return
        stream_options = options_of("incremental", warmup, Path(name), on_error)
        plain = Taken(stream_options.make(open_source(options, reading=reading)), [size])
        stream = stream_options.make(source)
        readers = Shards(
            Opening(options, ".", reading, source.places, source.identity().fingerprint), source.features, shards
        )
        divided = DividedReading(source, readers, warmup, block)
        stream.begin_with(divided.rows())
        theirs = Taken(stream, [size], lambda batch: filled(batch, readers, divided))
        assert theirs.updates == plain.updates
        assert theirs.skipped == plain.skipped
        assert theirs.error == plain.error
        assert theirs.classes == plain.classes


GENERATED = [
    Sea(n=3000),
    Hyperplane(n=3000, permutation=3),
    RandCbt(n=3000, n_features=7),
    SparseSynthetic(n=3000, irrelevant=200),
    SparseSynthetic(n=3000, irrelevant=9, permutation=4, density=0.5),
]


@pytest.mark.turns(6)
@pytest.mark.parametrize("options", GENERATED)
@pytest.mark.parametrize("shards", [1, 2, 9])
def test_generated_rows(options: Any, shards: int) -> None:
    reading = Reading(sparse=isinstance(options, SparseSynthetic))
    plain = Taken(Incremental(warmup=2000).make(open_source(options, reading=reading)), [700])
    source = open_source(options, reading=reading)
    stream = Incremental(warmup=2000).make(source)
    opening = Opening(options, ".", reading, [], source.identity().fingerprint)
    readers = Shards(opening, source.features, shards)
    divided = DividedReading(source, readers, 2000, 256)
    stream.begin_with(divided.rows())

    theirs = Taken(stream, [700], lambda batch: filled(batch, readers, divided))
    assert theirs.updates == plain.updates
    assert theirs.without == 2000


def test_a_reader_keeps_no_block_that_lies_behind() -> None:
    """Also if its last row was refused, and so is never taken; a block is asked for again as long as it has rows."""
    options = Hyperplane(n=60, n_features=3)
    features = replace(open_source(options).features, groups=3)
    reader = SourceFeatures(Opening(options, ".", Reading(), [], ""), features, np.array([1]))
    blocks = [Block(start, start + 10, {}) for start in range(0, 60, 10)]
    for block in blocks[:5]:
        assert reader.check(block.start, block.stop).good
    for rows, given_blocks, left in (
        ([0, 8], blocks[:1], [0, 10, 20, 30, 40]),
        ([11, 12], blocks[:3], [10, 20, 30, 40]),
        ([13, 25], blocks[:3], [20, 30, 40]),
        ([29, 30], blocks[2:4], [30, 40]),
        ([], blocks[2:4], [30, 40]),
        ([49], blocks[3:5], []),
    ):
        expected = np.concatenate([chunk.X for chunk in open_source(options).rows()])[rows, 1:2]
        assert (reader.take(np.array(rows, dtype=np.int64), given_blocks)[0] == expected).all()
        assert list(reader._held) == left


@pytest.mark.parametrize("column", ["a", "y"])
@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_damaged_file(tmp_path: Path, form: str, column: str, caplog: pytest.LogCaptureFixture) -> None:
    """The file breaks off in a column of the shards, or of the driver."""
    n = 4000
    draw = np.random.default_rng(1)
    table = pa.table({"a": draw.random(n), "b": draw.random(n), "y": [f"y{v}" for v in draw.integers(0, 3, n)]})
    path = tmp_path / f"t.{form}"
    if form == "parquet":
        pq.write_table(table, path, row_group_size=500, write_page_checksum=True, compression="none")
        chunk = pq.ParquetFile(path).metadata.row_group(5).column(table.column_names.index(column))
        data = bytearray(path.read_bytes())
        at = chunk.data_page_offset + chunk.total_compressed_size // 2
        data[at] ^= 0xFF
        path.write_bytes(bytes(data))
        options: Any = ParquetFiles(path=str(path))
    else:
        write(form, table, path, n)
        lines = path.read_text().splitlines(keepends=True)
        lines[2501] = lines[2501].replace(",", ',"', 1) if column == "a" else '"' + lines[2501]
        path.write_text("".join(lines))
        options = CsvFiles(path=str(path))
    plain = Taken(Incremental(warmup=3000).make(open_source(options)), [300])
    source = open_source(options)
    stream = Incremental(warmup=3000).make(source)
    readers = Shards(Opening(options, ".", Reading(), source.places, source.identity().fingerprint), source.features, 2)
    divided = DividedReading(source, readers, 3000, 400)
    stream.begin_with(divided.rows())
    theirs = Taken(stream, [300], lambda batch: filled(batch, readers, divided))
    assert theirs.error == plain.error is not None
    assert theirs.updates == plain.updates
    assert not caplog.records  # nobody can read it


@pytest.mark.parametrize("lost", ["unread", "unlike"])
def test_a_shard_that_cannot_read_on_is_named_once(lost: str, caplog: pytest.LogCaptureFixture) -> None:
    """The driver reads all rows from there on, and the log says why; the updates are the same."""
    options = Hyperplane(n=3000, n_features=3)
    plain = Taken(Incremental(warmup=2000).make(open_source(options)), [700])
    source = open_source(options)
    stream, opening = Incremental(warmup=2000).make(source), Opening(options, ".", Reading(), [], "")
    readers = Shards(opening, source.features, 2)
    check = readers.readers[1].check

    def broken(start: int, stop: int, unwanted: Sequence[int] = ()) -> BlockReport:
        if start < 512:
            return check(start, stop, unwanted)
        return BlockReport(good=False, problem="no route") if lost == "unread" else BlockReport(good=True, rows=7)

    readers.readers[1].check = broken  # type: ignore[method-assign]
    divided = DividedReading(source, readers, 2000, 256)
    stream.begin_with(divided.rows())
    theirs = Taken(stream, [700], lambda batch: filled(batch, readers, divided))
    assert theirs.updates == plain.updates
    assert theirs.without == 512
    found = {"unread": {"problem": "no route"}, "unlike": {"rows": 7, "length": 256}}[lost]
    why = message(f"sources.shard_{lost}", shard=1, **found)
    assert [record.getMessage() for record in caplog.records] == [message("runs.rows_sent", why=why)]


# -- divided learning ------------------------------------------------------------------------------------------------
# Learners whose shards read the features of the warm-up themselves, against learners that are sent them.
#
# The digest, the results and the states are equal for any number of shards, wherever blocks, batches and the warm-up
# end.

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
def table_learning(tmp_path_factory: pytest.TempPathFactory) -> str:
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
    stream = SlidingWindow(warmup=WARMUP, window=WARMUP + 20, on_error="skip").make(source)
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
def test_same_model(table_learning: str, case: str, limit: int) -> None:
    plan = WorkPlan(local_work_limit=limit, row_cache_bytes=None if limit else 0, shared_store=False)
    for sizes, block in CUTS if volume.nightly else [CUTS[list(CASES).index(case) % len(CUTS)]]:
        expected = outcome(table_learning, case, 1, WorkPlan(), sizes)
        for shards in volume.spread((2, 1, 5, 3), 2):
            assert repr(outcome(table_learning, case, shards, plan, sizes, block)) == repr(expected), (
                shards,
                sizes,
                block,
            )


# -- reading in threads ----------------------------------------------------------------------------------------------
# Files read and encoded in threads: the rows, dictionaries, faults and errors of one thread.
#
# The twin is the path of one thread: a block is read, encoded and handed out before the next one is looked at.

NUMBERS = (1, 2, 3, 5)
SOURCES: TypeAdapter[Any] = TypeAdapter(SourceOptions)


@pytest.fixture
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv, "_BLOCK", 300)
    monkeypatch.setattr(file_source, "CHUNK_ROWS", (1, 40))
    monkeypatch.setattr(file_source, "ROUND_CELLS", 200)
    monkeypatch.setattr(features, "_FEW_CELLS", 8)
    monkeypatch.setattr(features, "_CACHED_CELLS", 64)


@st.composite
def tables_threads(draw: st.DrawFn) -> dict[str, list[Any]]:
    """Columns of text as a CSV file has them: numbers, categories, labels and ids, some of which cannot be used."""
    n = draw(st.integers(1, 250))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    faults = draw(st.sampled_from([0.0, 0.003, 0.05]))

    def column(values: list[str], wrong: list[str]) -> list[str]:
        return [wrong[rng.integers(len(wrong))] if rng.random() < faults else value for value in values]

    return {
        "id": column([str(i) for i in range(n)], ["x", "", "99999999999999999999"]),
        "a": column([str(x) for x in rng.normal(size=n).round(3)], ["", "two", "inf", "nan", "-0.0"]),
        "b": column([str(x) for x in rng.integers(-5, 5, n)], ["", "1.5", "9007199254740993"]),
        "c": column([f"c{x}" for x in rng.geometric(0.1, n)], ["", "1"]),
        "y": column([("no", "yes", "maybe")[x] for x in rng.integers(0, 3, n)], ["", "new"]),
    }


def written(folder: Path, table: dict[str, list[Any]], kind: str, ragged: bool) -> Any:
    """A file of a kind with these columns."""
    file = folder / f"t.{kind}"
    if kind == "csv":
        lines = [",".join(row) for row in zip(*table.values(), strict=True)]
        if ragged:
            lines = [line + ",1" if i % 97 == 50 else line for i, line in enumerate(lines)]
        file.write_text("\n".join([",".join(table), *lines]) + "\n")
    else:
        parsed = pacsv.read_csv(pa.BufferReader("\n".join(
            [",".join(table), *(",".join(row) for row in zip(*table.values(), strict=True))]
        ).encode()), convert_options=pacsv.ConvertOptions(strings_can_be_null=True))  # fmt: skip
        pq.write_table(parsed, file, row_group_size=170)
    return {"kind": kind, "path": str(file), "label": "y"}


def shown(rows: Rows) -> list[Any]:
    """Everything that rows have, by bits; a bad row has no values."""
    good = np.ones(len(rows), dtype=bool)
    good[list(rows.bad)] = False
    bits = [
        (name, column[good].tobytes() if name != "names" else column[good].tolist())
        for name, column in rows.columns().items()
        if not isinstance(column, SparseRows)
    ]
    return [bits, {place: str(error) for place, error in rows.bad.items()}]


def outcome_threads(source: Source, start: int) -> list[Any]:
    """Chunks, what is known after each of them, and the error that ends the reading."""
    found: list[Any] = []
    try:
        for rows in source.rows(start):
            found.append([shown(rows), source.state(), source.classes, source.state(rows.start)])
    except InputError as error:
        found.append(str(error))
    return [*found, source.state(), source.classes, source.where(start)]


def opened(options: dict[str, Any], **more: Any) -> Any:
    """A source of a file."""
    return open_source(SOURCES.validate_python({**options, **more}))


def attempt(work: Callable[[], Any]) -> Any:
    """Return the result of a call, or its error."""
    try:
        return work()
    except RaydtError as error:
        return str(error)


@pytest.mark.usefixtures("_small_blocks")
@given(
    table=tables_threads(),
    kind=st.sampled_from(["csv", "parquet"]),
    ragged=st.booleans(),
    options=st.sampled_from(
        [{}, {"id": "id"}, {"permutation": 3}, {"limit": 77}, {"positive": "yes"}, {"categorical": ["b"]}]
    ),
    start=st.sampled_from([0, 0, 1, 60, 399]),
)
def test_any_number_of_threads_gives_the_rows_of_one(
    table: dict[str, list[Any]],
    kind: str,
    ragged: bool,
    options: dict[str, Any],
    start: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    file = written(tmp_path_factory.mktemp("t"), table, kind, ragged)

    def read(n: int) -> Any:
        with limited(n):
            source = opened(file, **options)
            return outcome_threads(source, min(start, len(table["y"]) - 1, 76 if "limit" in options else start))

    first, *others = (attempt(lambda n=n: read(n)) for n in NUMBERS)
    assert all(other == first for other in others)


@pytest.mark.usefixtures("_small_blocks")
@given(table=tables_threads(), options=st.sampled_from([{}, {"categorical": ["b"]}]), cut=st.integers(0, 249))
def test_reading_is_resumed_where_it_was_left(
    table: dict[str, list[Any]], options: dict[str, Any], cut: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Rows that were read ahead are in no state, and in no source that is restored."""
    file = written(tmp_path_factory.mktemp("t"), table, "csv", ragged=True)

    def read(n: int) -> Any:
        with limited(n):
            source, found = opened(file, **options), []
            rows = source.rows()
            state, at = source.state(0), 0
            for chunk in rows:
                found.append(shown(chunk))
                at = chunk.start + len(chunk)
                state = source.state(at)
                if at > cut:
                    break
            rows.close()
            source.restore(state)
            return [found, state, outcome_threads(source, at)] if at < len(table["y"]) else [found, state]

    first, *others = (attempt(lambda n=n: read(n)) for n in NUMBERS)
    assert all(other == first for other in others)
