"""After the changes of version v, the live rows are those of the table at v, whatever changed it."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("deltalake")

from deltalake import DeltaTable, write_deltalake

from raydt.errors import InputError
from raydt.sources.divided import open_source
from raydt.sources.live.base import SourceAwayError
from raydt.sources.live.delta import Delta
from raydt.streams.deletion_log import Changelog
from tests.live_tables import COLUMNS, LiveTable, StoryTable, rows_of
from tests.refusals import refused


def options(table: LiveTable, **given: Any) -> Delta:
    return Delta(path=table.path, id="id", label="y", features=["a", "b"], version=given.pop("version", 0), **given)


def apply(live: dict[int, Any], batch: Any) -> None:
    for row in batch.to_pylist():
        op = row.pop("_op")
        assert (row["id"] in live) == (op != "insert"), (op, row)
        if op == "delete":
            del live[row["id"]]
        else:
            live[row["id"]] = row


def follow(table: LiveTable) -> None:
    """Read from version 0 to the newest, and compare after each."""
    source, live, plan = options(table).open(), dict[int, Any](), None
    while (plan := source.plan(plan)) is not None:
        for batch, flaws in source.read(plan, [*COLUMNS, "_op"]):
            assert not flaws
            apply(live, batch)
        assert live == table.live(plan["version"]), plan


def some_changes(folder: Path, seed: int, changes: int, feed: bool) -> None:
    table = LiveTable(folder / str(seed), seed, feed=feed)
    for _ in range(changes):
        table.change()
    follow(table)


def one_story(folder: Path, seed: int) -> None:
    """Read a table as it lives, a few versions at a time, up to what cannot be read; compare whenever all is read."""
    table = StoryTable(folder / str(seed), seed)
    options = Delta(path=table.path, id="id", label="y", features=["a", "d"], version=0)
    source, live, plan = options.open(), dict[int, Any](), None
    for part in range(4):
        for _ in range(table.draw.randrange(1, 5)):
            table.step()
        if table.draw.random() < 0.3:
            table.purge()
        if part == 3:
            table.end()
        if table.draw.random() < 0.5:  # as a run that was stopped meanwhile
            with suppress(InputError):
                source = options.open()
        try:
            while (step := source.plan(plan)) is not None:
                for batch, flaws in source.read(step, [*table.columns, "_op"]):
                    assert not flaws
                    apply(live, batch)
                plan = step
        except InputError as error:
            table.require_refusal(error)
            return
        assert not table.must, table.told
        assert plan == {"version": table.version} | ({"snapshot": True} if not plan["version"] else {})
        assert live == table.live(), table.told
        table.read()


@pytest.mark.parametrize("seed", range(6))
def test_a_story_of_a_table_is_read_or_refused(tmp_path: Path, seed: int) -> None:
    one_story(tmp_path, seed)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(100, 300))
def test_any_story_of_a_table_is_read_or_refused(tmp_path: Path, seed: int) -> None:
    one_story(tmp_path, seed)


@pytest.mark.parametrize("feed", [True, False])
def test_live_rows_are_those_of_every_version(tmp_path: Path, feed: bool) -> None:
    table = LiveTable(tmp_path / "t", feed=feed)
    table.append()
    for change in ("merge", "overwrite", "compact", "update", "delete"):
        getattr(table, change)()
    follow(table)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(40))
def test_live_rows_after_random_changes(tmp_path: Path, seed: int) -> None:
    some_changes(tmp_path, seed, 12, seed % 2 == 0)


def test_an_unchanged_row_of_an_overwrite_is_no_update(tmp_path: Path) -> None:
    table = LiveTable(tmp_path / "t")
    write_deltalake(table.path, table.at(0), mode="overwrite")
    assert DeltaTable(table.path).version() == 1
    rows = list(open_source(options(table)).rows())
    assert sum(map(len, rows)) == 40


def test_a_stream_goes_on_after_a_pause_and_from_its_state(tmp_path: Path) -> None:
    table = LiveTable(tmp_path / "t")
    source = open_source(options(table))
    stream = Changelog(warmup=10).make(source)
    assert sum(len(batch) for batch in stream.batches(7)) == 40
    state = stream.state()
    table.delete()
    after = [batch.id.tolist() for batch in stream.batches(100)]
    assert after
    assert not list(stream.batches(100))
    again = Changelog(warmup=10).make(open_source(options(table)))
    again.restore(state)
    assert [batch.id.tolist() for batch in again.batches(100)] == after
    assert again.state() == stream.state()


def test_an_added_column_is_no_feature_and_missing_values_stay_out(tmp_path: Path) -> None:
    table = LiveTable(tmp_path / "t")
    more = rows_of(table.rng, [100]).append_column("new", [[1.0]])
    write_deltalake(table.path, more, mode="append", schema_mode="merge")
    follow(table)
    settled = Delta(path=table.path, id="id", label="y", exclude=["new"]).settled()
    assert isinstance(settled, Delta)
    assert (settled.version, settled.features) == (1, ["a", "b"])


def test_history_that_is_gone_is_one_clear_error(tmp_path: Path) -> None:
    table = LiveTable(tmp_path / "t")
    table.update()
    table.overwrite()
    source = options(table).open()
    DeltaTable(table.path).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    with pytest.raises(InputError, match="changes before version 0 need are gone"):
        list(source.read({"version": 0, "snapshot": True}, COLUMNS))


def test_a_table_that_is_away_is_told_from_one_that_was_replaced(tmp_path: Path) -> None:
    table = LiveTable(tmp_path / "t")
    table.update()
    source = options(table).open()
    Path(table.path).rename(tmp_path / "away")
    with pytest.raises(SourceAwayError):
        list(source.read({"version": 1}, [*COLUMNS, "_op"]))
    with pytest.raises(InputError, match="no Delta table"):
        options(table).open()


def test_another_table_in_its_place_is_not_read_on(tmp_path: Path) -> None:
    """Its versions have the same numbers."""
    table = LiveTable(tmp_path / "t")
    source = options(table).open()
    plan = source.plan(None)
    table.append()
    plan = source.plan(plan)
    assert plan == {"version": 1}
    shutil.rmtree(table.path)
    other = LiveTable(tmp_path / "t", seed=1)
    for _ in range(3):
        other.append()
    with refused("live.other_table", InputError, version=1):
        source.plan(plan)


@pytest.mark.parametrize("feed", [True, False])
def test_a_dropped_column_is_an_error_and_not_a_source_that_is_away(tmp_path: Path, feed: bool) -> None:
    """Else a run would wait for ever."""
    table = LiveTable(tmp_path / "t", feed=feed)
    source = open_source(options(table))
    assert sum(map(len, source.rows())) == 40
    write_deltalake(table.path, table.at(0).drop_columns(["b"]), mode="overwrite", schema_mode="overwrite")
    with refused("live.no_column", InputError, version=1, column="'b'"):
        list(source.rows(40))


@pytest.mark.parametrize("feed", [True, False])
def test_a_version_of_other_types_is_an_error(tmp_path: Path, feed: bool) -> None:
    table = LiveTable(tmp_path / "t", feed=feed)
    source = open_source(options(table))
    assert sum(map(len, source.rows())) == 40
    texts = table.at(0).set_column(1, "a", [["x"] * 40])
    for rows in (texts, table.at(0)):
        write_deltalake(table.path, rows, mode="overwrite", schema_mode="overwrite")
    with refused("live.other_type", InputError, version=1):
        list(source.rows(40))


def test_the_folder_of_a_table_is_no_parquet_files(tmp_path: Path) -> None:
    from raydt.sources.options import ParquetFiles

    table = LiveTable(tmp_path / "t")
    with pytest.raises(InputError, match="kind: delta"):
        open_source(ParquetFiles(path=table.path, id="id"))
