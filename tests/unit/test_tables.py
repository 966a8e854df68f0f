"""Tables of a run, folders of tables, and ids that are gone."""

from __future__ import annotations

import contextlib
import errno
import json
from math import nan
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import fs as pafs

from pipelines.cli import main
from pipelines.run_folder import RunFolder
from pipelines.running import records as parts
from pipelines.running import records as tables
from pipelines.running.records import NO_ROWS, TableWriter
from pipelines.running.requests import GoneIds
from raydt.encoding.labels import netted
from raydt.errors import InputError, NotWrittenError
from raydt.sources.files.datafile import find_files, refuse_tables, refuse_tables_above
from raydt.sources.files.jsonl import find_kind
from raydt.streams.deletion_log import LoggedDeletions, LogKeys
from tests.refusals import refused
from tests.storage_faults import few_in_memory
from tests.unit.small_checkpoints import Died, Dying

# -- tables ----------------------------------------------------------------------------------------------------------
# Tables of a run: parts appear when they are complete, and whatever dies when, each row is there once.


def on(filesystem, root):
    """The run folder ``run`` of a filesystem that is not local."""
    folder = RunFolder(root)
    folder.filesystem = filesystem
    folder.root, folder.is_local = "run", False
    return folder


def rows(folder, name="events"):
    """What a reader of the dataset sees, part by part."""
    return ds.dataset(folder / name).to_table().column("seq").to_pylist() if (folder / name).exists() else []


def files(folder, name="events"):
    return sorted(path.name for path in (folder / name).iterdir())


def write(writer, begin, end):
    for seq in range(begin, end):
        writer.append({"seq": np.array([seq]), "place": np.array([seq % 3], np.int8)})


def no_space(*_, **__):
    raise OSError(errno.ENOSPC, "No space left on device")


def committed(writer):
    writer.commit()
    return writer.parts.names


class TestOnePart:
    def test_it_appears_when_it_is_complete(self, tmp_path):
        writer = TableWriter(RunFolder(tmp_path), "events")
        writer.append({"seq": np.arange(3), "place": np.zeros(3, np.int8)})
        writer.append({"seq": np.arange(2), "place": np.ones(2, np.int8)})
        assert not (tmp_path / "events").exists()
        writer.commit()
        table = ds.dataset(tmp_path / "events").to_table()
        assert table.column("seq").to_pylist() == [0, 1, 2, 0, 1]
        assert table.schema.field("place").type == pa.int8()

    def test_memory_is_bounded_and_an_unfinished_part_is_hidden(self, tmp_path, monkeypatch):
        monkeypatch.setattr(tables, "ROWS_PER_GROUP", 100)
        writer = TableWriter(RunFolder(tmp_path), "events")
        for begin in range(0, 1000, 30):
            writer.append({"seq": np.arange(begin, begin + 30)})
            assert writer._rows < 100
        assert ds.dataset(tmp_path / "events").count_rows() == 0
        writer.commit()
        file = pq.ParquetFile(tmp_path / "events" / "part-00000.parquet")
        assert file.metadata.num_rows == 1020
        assert file.metadata.num_row_groups == 9

    def test_a_table_without_rows_leaves_no_file(self, tmp_path):
        writer = TableWriter(RunFolder(tmp_path), "events")
        writer.append({"seq": np.arange(0)})
        assert committed(writer) == []
        assert not (tmp_path / "events").exists()


class TestManyParts:
    def test_a_commit_ends_a_part_and_one_without_rows_does_not_begin_one(self, tmp_path):
        writer = TableWriter(RunFolder(tmp_path), "events")
        write(writer, 0, 3)
        assert committed(writer) == ["part-00000.parquet"]
        assert committed(writer) == ["part-00000.parquet"]
        write(writer, 3, 5)
        assert committed(writer) == ["part-00000.parquet", "part-00001.parquet"]
        assert files(tmp_path) == committed(writer)
        assert rows(tmp_path) == [0, 1, 2, 3, 4]

    def test_the_columns_stay_those_of_the_first_rows(self, tmp_path):
        writer = TableWriter(RunFolder(tmp_path), "events")
        writer.append({"seq": np.array([1]), "place": np.array([2], np.int8), "cost": np.array([0.5], np.float32)})
        again = TableWriter(RunFolder(tmp_path), "events")
        again.restore(writer.state())
        again.append({"place": [1], "cost": [2.0], "seq": [3]})
        again.commit()
        both = [pq.read_schema(tmp_path / "events" / name) for name in files(tmp_path)]
        assert both[0] == both[1]
        assert [str(kind) for kind in both[0].types] == ["int64", "int8", "float"]

    def test_columns_of_any_type_stay_what_they_were(self, tmp_path):
        kinds = [pa.list_(pa.int64()), pa.dictionary(pa.int8(), pa.string()), pa.timestamp("ms", tz="UTC")]
        schema = pa.schema([pa.field(f"c{k}", kind, nullable=False) for k, kind in enumerate(kinds)])
        state = TableWriter(RunFolder(tmp_path), "events", schema).state()
        again = TableWriter(RunFolder(tmp_path), "events")
        again.restore(json.loads(json.dumps(state)))
        assert again._schema == schema

    def test_a_full_disk_is_an_error_of_the_table_and_the_part_it_struck_never_appears(self, tmp_path, monkeypatch):
        writer = TableWriter(RunFolder(tmp_path), "events")
        write(writer, 0, 3)
        state = writer.state()
        write(writer, 3, 5)
        with monkeypatch.context() as full:
            full.setattr(pq.ParquetWriter, "write_table", no_space)
            with pytest.raises(NotWrittenError, match=r"events: cannot be written: .*No space left") as raised:
                writer.commit()
        assert raised.value.exit_code == 1
        write(writer, 7, 8)
        writer.commit()
        assert rows(tmp_path) == [0, 1, 2, 7], "neither half a part nor rows twice"
        again = TableWriter(RunFolder(tmp_path), "events")
        again.restore(state)
        assert rows(tmp_path) == [0, 1, 2]

    @pytest.mark.parametrize("damage", ["missing", "truncated"])
    def test_a_listed_part_that_is_not_whole_is_refused_and_nothing_touched(self, tmp_path, damage):
        writer = TableWriter(RunFolder(tmp_path), "events")
        for begin in range(3):
            write(writer, begin, begin + 1)
            state = writer.state()
        write(writer, 3, 4)
        writer.commit()
        part = tmp_path / "events" / "part-00001.parquet"
        content = part.read_bytes()
        part.unlink()
        if damage == "truncated":
            part.write_bytes(content[:-10])
        before = files(tmp_path)
        problem = "runs.other_size" if damage == "truncated" else "runs.missing_part"
        with refused(problem, InputError, file=f"{tmp_path}/events/part-00001.parquet"):
            TableWriter(RunFolder(tmp_path), "events").restore(state)
        assert files(tmp_path) == before


class TestCompaction:
    def test_one_part_holds_all_rows_in_order_and_full_groups(self, tmp_path, monkeypatch):
        monkeypatch.setattr(parts, "ROWS_PER_GROUP", 10)
        writer = TableWriter(RunFolder(tmp_path), "events")
        for begin in range(0, 44, 4):
            write(writer, begin, begin + 4)
            writer.commit()
        writer.parts.merge()
        assert rows(tmp_path) == list(range(44))  # the old parts are what is seen till the end
        assert writer.parts.names == ["part-00011.parquet"]
        writer.parts.finish()
        assert files(tmp_path) == ["part-00011.parquet"]
        assert rows(tmp_path) == list(range(44))
        metadata = pq.ParquetFile(tmp_path / "events" / "part-00011.parquet").metadata
        assert metadata.num_row_groups == 4
        write(writer, 44, 46)
        assert committed(writer) == ["part-00011.parquet", "part-00012.parquet"]
        assert rows(tmp_path) == list(range(46))

    @pytest.mark.parametrize("count", [0, 1])
    def test_a_single_part_is_left_alone(self, tmp_path, count):
        writer = TableWriter(RunFolder(tmp_path), "events")
        write(writer, 0, count)
        names = committed(writer)
        writer.parts.merge()
        writer.parts.finish()
        assert writer.parts.names == names
        assert rows(tmp_path) == list(range(count))


ROWS = 5


class Life:
    """One owner of two tables after the other, which commit, are compacted, and die; a checkpoint is a variable."""

    def __init__(self):
        self.checkpoint = {"events": NO_ROWS, "metrics": NO_ROWS}
        self.done = 0

    def run(self, folder, updates=ROWS):
        writers = {name: TableWriter(folder, name) for name in self.checkpoint}
        for name, writer in writers.items():
            writer.restore(self.checkpoint[name])
        done = self.done
        while done < updates:
            done += 1
            for writer in writers.values():
                write(writer, done - 1, done)
            if done % 2 == 0:
                self.commit(writers, done)
        self.commit(writers, done)
        for writer in writers.values():
            writer.parts.merge()
        self.commit(writers, done)
        for writer in writers.values():
            writer.parts.finish()

    def commit(self, writers, done):
        state = {name: writer.state() for name, writer in writers.items()}
        self.checkpoint, self.done = state, done  # a manifest is there or not


class Renewals:
    """One table that is written anew for each end of a run; the checkpoint lists what the newest end has."""

    def __init__(self):
        self.checkpoint, self.ends = NO_ROWS, 0

    def run(self, folder, ends=3):
        writer = TableWriter(folder, "events")
        writer.restore(self.checkpoint)
        for end in range(self.ends, ends):
            assert rows_listed(folder, self.checkpoint) == [end - 1] * end
            writer.renew()
            for _ in range(end + 1):
                write(writer, end, end + 1)
            writer.commit()
            writer.parts.merge()
            self.checkpoint, self.ends = writer.state(), end + 1
            writer.parts.finish()


def rows_listed(folder, state):
    """What the parts of a checkpoint hold."""
    here = folder.inside("events")
    tables = [pq.read_table(here.path(name), filesystem=folder.filesystem) for name in state["parts"]]
    return [seq for table in tables for seq in table["seq"].to_pylist()]


@pytest.mark.parametrize("after", [False, True], ids=["instead", "after"])
def test_dying_while_a_table_is_written_anew_leaves_what_the_checkpoint_lists(tmp_path, after):
    filesystem = Dying(tmp_path)
    Renewals().run(on(pafs.PyFileSystem(filesystem), tmp_path))
    for first in range(1, filesystem.changes + 1):
        place = tmp_path / f"{first}"
        place.mkdir()
        life = Renewals()
        with pytest.raises(Died):
            life.run(on(pafs.PyFileSystem(Dying(place, first, after=after)), place))
        life.run(on(pafs.PyFileSystem(Dying(place)), place))
        assert rows(place / "run") == [2, 2, 2], first
        assert files(place / "run", "events") == life.checkpoint["parts"], first


def changes_of_a_life(tmp_path):
    filesystem = Dying(tmp_path)
    Life().run(on(pafs.PyFileSystem(filesystem), tmp_path))
    return filesystem.changes


@pytest.mark.turns(1)
@pytest.mark.parametrize("after", [False, True], ids=["instead", "after"])
def test_dying_at_any_change_loses_and_repeats_nothing(tmp_path, after):
    changes = changes_of_a_life(tmp_path / "whole")
    assert changes > 50
    for first in range(1, changes + 1):
        place = tmp_path / f"{first}"
        place.mkdir()
        life = Life()
        with pytest.raises(Died):
            life.run(on(pafs.PyFileSystem(Dying(place, first, after=after)), place))
        life.run(on(pafs.PyFileSystem(Dying(place)), place))
        for name in life.checkpoint:
            assert rows(place / "run", name) == list(range(ROWS)), (first, name)
            assert files(place / "run", name) == life.checkpoint[name]["parts"], first


@pytest.mark.parametrize("after", [False, True], ids=["instead", "after"])
def test_dying_again_while_restoring_does_no_harm(tmp_path, after):
    changes = changes_of_a_life(tmp_path / "whole")
    for first in range(2, changes + 1, 3):
        place = tmp_path / f"{first}"
        place.mkdir()
        life = Life()
        for last in (first, 1, 2, 3):
            with contextlib.suppress(Died):  # there may be less to change
                life.run(on(pafs.PyFileSystem(Dying(place, last, after=after)), place))
        life.run(on(pafs.PyFileSystem(Dying(place)), place))
        for name in life.checkpoint:
            assert rows(place / "run", name) == list(range(ROWS)), (first, name)


# -- table folders ---------------------------------------------------------------------------------------------------
# Folders of tables with a log of their own (Delta, Iceberg, Hudi, Paimon): no way to name their files reads them.

#: A file of the log of each format, and where its data lies.
FORMATS = {
    "a Delta table": ("_delta_log/00000000000000000000.json", "country=DE"),
    "an Iceberg table": ("metadata/v3.gz.metadata.json", "data/country=DE"),
    "a Hudi table": (".hoodie/hoodie.properties", "2024/05"),
    "a Paimon table": ("manifest/manifest-list-5f-0", "bucket-0"),
}
#: Ways to name its files, from the folder that the table ``t`` lies in; PART is the folder of the data.
WAYS = [
    *("t", "t/", ".", "**", "*/**", "t/**", "t/PART", "t/PART/", "t/PART/x.parquet", "t/PART/*.parquet"),
    *("t/**/*.parquet", "*/PART/*", "t/PART/x.*", "./t/PART/../PART", "linked", "links", "links/*", "links/x.parquet"),
    *("links/**", "URI/t", "URI/t/PART/x.parquet"),
]


def table(folder: Path, form: str) -> str:
    log, part = FORMATS[form]
    (folder / "t" / log).parent.mkdir(parents=True)
    (folder / "t" / log).touch()
    (folder / "t" / part).mkdir(parents=True)
    rows = pa.table({"id": [1, 2, 3], "x": [1.0, 2.0, 3.0], "y": ["a", "b", "a"]})
    pq.write_table(rows, folder / "t" / part / "x.parquet")
    (folder / "linked").symlink_to(folder / "t" / part)
    (folder / "links").mkdir()
    (folder / "links" / "x.parquet").symlink_to(folder / "t" / part / "x.parquet")
    return part


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("form", FORMATS)
def test_no_path_reads_the_files(form: str, way: str, tmp_path: Path) -> None:
    path = way.replace("PART", table(tmp_path, form)).replace("URI", tmp_path.as_uri())
    found = {"file": str(tmp_path / "t"), "form": form}
    with refused("files.table", InputError, **found):
        find_kind(path, tmp_path)
    with refused("files.table", InputError, **found):
        find_files([path], tmp_path, (".parquet",))
    with refused("files.table", InputError, **found):
        LoggedDeletions(path, tmp_path, LogKeys("integer"))


@pytest.mark.parametrize("form", FORMATS)
def test_elsewhere_than_on_disk(form: str, tmp_path: Path) -> None:
    """Without links, and with one listing; a subtree of the disk stands for any other file system."""
    table(tmp_path, form)
    elsewhere = pafs.SubTreeFileSystem(str(tmp_path), pafs.LocalFileSystem())
    listed = elsewhere.get_file_info(pafs.FileSelector("", recursive=True))
    with refused("files.table", InputError, file="t", form=form):
        refuse_tables(elsewhere, listed)
    with refused("files.table", InputError, file="t", form=form):
        refuse_tables_above(elsewhere, [f"t/{FORMATS[form][1]}"])


@pytest.mark.parametrize("other", ["_delta_log/", "metadata/readme.json", "manifest/manifest-2024.json", "metadata"])
def test_other_folders_are_read(other: str, tmp_path: Path) -> None:
    if other.endswith("/"):
        (tmp_path / other).mkdir()
    else:
        (tmp_path / other).parent.mkdir(exist_ok=True)
        (tmp_path / other).touch()
    pq.write_table(pa.table({"id": [1]}), tmp_path / "x.parquet")
    for path in (".", "*.parquet", "x.parquet", "**"):
        (place,) = find_files(path, tmp_path, (".parquet",))
        assert place.path == str(tmp_path / "x.parquet")


def test_commands_refuse_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    part = table(tmp_path, "a Delta table")
    clean = tmp_path / "clean.csv"
    clean.write_text("id,x,y\n" + "".join(f"{i},{i}.5,{'ab'[i % 2]}\n" for i in range(60)), encoding="utf-8")
    config = tmp_path / "config.yaml"
    config.write_text(
        "source: {kind: csv, path: clean.csv, id: id}\nstream: {model: incremental}\ncluster: {backend: in_process}\n"
        "learner: {kind: fudyadt}\noutput: {report: false}\n",
        encoding="utf-8",
    )
    run = str(tmp_path / "run")
    with pytest.raises(SystemExit) as ended:
        main(["replay", str(config), "--out", run])
    assert ended.value.code == 0
    file = str(tmp_path / "t" / part)
    for words in (
        ["validate", str(config), "--set", f"source.path={file}", "--set", "source.kind=parquet"],
        ["replay", str(config), "--set", "stream.model=deletion_log", "--set", f"stream.deletion_log={file}"],
        ["update", run, "--insert", file, "--dry-run"],
        ["update", run, "--delete", file, "--dry-run"],
        ["predict", run, file, "--out", str(tmp_path / "out.parquet")],
        ["predict", run, file, "--explain", "0"],
        ["purge", run, "--ids", file, "--dry-run"],
    ):
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert ended.value.code == 2, words
        assert "a Delta table" in capsys.readouterr().err, words


# -- gone ids --------------------------------------------------------------------------------------------------------
# The set of deleted ids of a run beside a set of Python: with few kept in memory, and ids that fall on one bit.

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


# -- netting ---------------------------------------------------------------------------------------------------------
# Two states of rows to the changes between them: what is the same is no change, whatever its type.

#: A type, values that are all different, and one of them in other words.
KINDS: list[tuple[pa.DataType, list[Any]]] = [
    (pa.float64(), [nan, 0.5, None]),
    (pa.float32(), [nan, 0.5, None]),
    (pa.int64(), [1, 2, None]),
    (pa.string(), ["", "a", None]),
    (pa.list_(pa.int32()), [[], [1, 2], None]),
    (pa.list_(pa.string()), [["a"], ["b"], None]),
    (pa.struct([("q", pa.int8())]), [{"q": 1}, {"q": None}, None]),
]


@pytest.mark.parametrize(("kind", "values"), KINDS, ids=lambda one: str(one)[:12])
def test_a_row_that_stays_is_no_change_and_any_other_is(kind: pa.DataType, values: list[Any]) -> None:
    def state(chosen: list[Any]) -> pa.Table:
        return pa.table({"id": pa.array(range(len(chosen)), pa.int64()), "x": pa.array(chosen, kind)})

    before = state(values)
    assert len(netted(before, before, "id", "op")) == 0
    moved = state([*values[1:], values[0]])
    assert netted(before, moved, "id", "op")["op"].to_pylist() == ["update"] * len(values)
