"""Tables of a run: parts appear when they are complete, and whatever dies when, each row is there once."""

from __future__ import annotations

import contextlib
import errno
import json

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from crashing import Died, Dying
from pyarrow import fs as pafs

from pipelines.run_folder import RunFolder
from pipelines.running import records as parts
from pipelines.running import records as tables
from pipelines.running.records import NO_ROWS, TableWriter
from raydt.errors import InputError, NotWrittenError
from tests.refusals import refused


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
