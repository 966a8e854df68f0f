"""A run in chapters is the run without: wherever it is cut, whatever expires, and each chapter can be looked at."""

from __future__ import annotations

import json
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("deltalake")

from pipelines import replay, resume
from pipelines.auditing import audit_run, verify_run
from pipelines.chapters import ChapterEnd, ClosedStates, ended, expire
from pipelines.config import load_config
from pipelines.following import follow
from pipelines.operation import Follow
from pipelines.purging import purge
from pipelines.report.page import render
from pipelines.reporting import report_of
from pipelines.run_folder import RunFolder
from pipelines.running.plans import PlanLog
from pipelines.saved_runs import find_state, load_model
from pipelines.serving.application import Snapshots, load
from raydt.errors import ConfigError, InputError
from raydt.exchange.messages import injected
from raydt.sources.live.followed import Step
from tests.live_tables import LiveTable
from tests.storage_faults import Gone, at
from tests.unit.test_follow import changed, job, same


def in_chapters(table: LiveTable, every: int = 10, **given: Any) -> dict[str, Any]:
    options = {"chapter_updates": every, "keep": None, **given.pop("follow", {})}
    return job(table, **{"checkpoint": {"every_seconds": None}, **given, "follow": options})


def folders(run: Path) -> list[Path]:
    return [Path(folder.root) for folder in RunFolder(run).chapters()]


def summary(folder: Path) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    return read


def rows(places: list[Path], table: str) -> list[dict[str, Any]]:
    parts = [pq.read_table(part) for place in places for part in sorted((place / table).glob("part-*.parquet"))]
    clock = ("seconds", "rounds", "bytes_exchanged")
    return [
        {name: value for name, value in row.items() if name not in clock and value == value}
        for row in pa.concat_tables(parts).to_pylist()
    ]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The same table as one run, and in chapters."""
    folder = tmp_path_factory.mktemp("chapters")
    table = changed(folder)
    output = {"report": False, "metrics_every": 10, "predictions": True}
    replay(job(table, output=output), folder / "whole")
    same(
        follow(in_chapters(table, output=output), folder / "run", until_idle=0.0), replay(job(table), folder / "other")
    )
    return folder / "whole", folder / "run"


def test_chapters_are_the_run_without_and_each_has_the_digest_of_the_one_before(runs: tuple[Path, Path]) -> None:
    whole, run = runs
    chapters = folders(run)
    assert len(chapters) > 6
    found = [summary(folder) for folder in chapters]
    for before, after in pairwise(found):
        assert (before["status"], before["exit_reason"]) == ("completed", "end_of_chapter")
        assert after["chapter"]["digest_before"] == before["model_digest"]
        assert after["chapter"]["begins"] == before["updates"] == 10 * (before["updates"] // 10)
    assert found[-1]["exit_reason"] == "end_of_stream"
    assert found[-1]["model_digest"] == summary(whole)["model_digest"]
    for table in ("metrics", "events", "predictions"):
        assert rows(chapters, table) == rows([whole], table)
    assert sorted(entry.name for entry in run.iterdir() if entry.name != "report.html") == [
        "chapters",
        "config.yaml",
        "receipts.jsonl",
        "receipts.key",
        "status.json",
    ]


def test_run_and_chapters_are_audited_verified_reported_and_read(runs: tuple[Path, Path]) -> None:
    _, run = runs
    chapters = folders(run)
    one = audit_run(chapters[2])
    assert one.conformance == "holds"
    assert one.checked["live"] == summary(chapters[2])["active"]
    report = audit_run(run)
    assert (report.conformance, report.checked["chapters"]) == ("holds", len(chapters))
    assert report.checked["rows_of_the_table"] == summary(chapters[-1])["active"]
    page = Path(report_of([str(run)], None)).read_text()
    assert all(summary(folder)["model_digest"].removeprefix("sha256:")[:12] in page for folder in chapters)
    assert "Chapters" not in render([chapters[1]])
    assert find_state(run).folder.root == str(chapters[-1] / "checkpoints" / str(summary(chapters[-1])["updates"]))
    assert load_model(run).meta["chapter"]["number"] == len(chapters)


def test_a_chapter_does_not_go_on_from_another_model(tmp_path: Path) -> None:
    table, run = changed(tmp_path), tmp_path / "run"
    follow(in_chapters(table, 30), run, until_idle=0.0)
    first, second = (folder / "checkpoints" for folder in folders(run)[:2])
    shutil.rmtree(first)
    shutil.copytree(second, first)
    with pytest.raises(InputError, match="another model than this one goes on from"):
        audit_run(folders(run)[1])


def test_a_chapter_that_is_full_closes_at_once_where_its_summary_says_that_it_was_interrupted(tmp_path: Path) -> None:
    table, run = changed(tmp_path), tmp_path / "run"
    with injected(at(2, point="chapter.closed")), pytest.raises(Gone):
        follow(in_chapters(table), run, until_idle=0.0)
    last = folders(run)[-1]
    told = {**summary(last), "status": "interrupted", "exit_reason": "SIGTERM", "exit_code": 143}
    (last / "summary.json").write_text(json.dumps(told))
    same(follow(run, until_idle=0.0), replay(job(table), tmp_path / "whole"))
    assert summary(last)["exit_reason"] == "end_of_chapter"


def test_a_run_that_has_ended_goes_on_in_its_open_chapter_when_the_table_has(tmp_path: Path) -> None:
    table = LiveTable(tmp_path / "table")
    replay(in_chapters(table, 50), tmp_path / "run")
    table.update()
    table.overwrite()
    same(resume(folders(tmp_path / "run")[-1]), replay(job(table), tmp_path / "whole"))
    assert len(folders(tmp_path / "run")) == 2
    same(resume(tmp_path / "run", overrides=["follow.chapter_updates=7"]), replay(job(table), tmp_path / "again"))


def test_a_closed_chapter_is_complete_and_is_not_resumed(tmp_path: Path, runs: tuple[Path, Path]) -> None:
    chapter = folders(runs[1])[1]
    before = {file: file.stat().st_mtime_ns for file in chapter.rglob("*") if file.is_file()}
    assert resume(chapter).summary == summary(chapter)
    assert {file: file.stat().st_mtime_ns for file in chapter.rglob("*") if file.is_file()} == before


def test_old_chapters_expire_by_number_and_age_but_not_one_that_the_deadline_needs(tmp_path: Path) -> None:
    table, run = changed(tmp_path), tmp_path / "run"
    follow(in_chapters(table, follow={"keep": 4}), run, until_idle=0.0)
    assert len(folders(run)) == 5
    whole, newest = RunFolder(run), folders(run)[-2:]
    erasure: dict[str, Any] = {"erasure": {"deadline": "2h"}, "checkpoint": {"max_age": "1h"}}
    config = load_config(in_chapters(table, follow={"keep": 1}, **erasure))
    (folders(run)[0] / "note.txt").write_text("not raydt's")
    now = ended(RunFolder(folders(run)[0]))
    expire(whole, config, now + 7000)
    assert len(folders(run)) == 5
    expire(whole, config, now + 7300)
    assert folders(run) == newest
    assert next(file.name for file in sorted((run / "chapters").rglob("*")) if file.is_file()) == "note.txt"
    expire(whole, load_config(in_chapters(table, follow={"keep_hours": 0.5})), now + 10**6)
    assert folders(run) == newest


def test_states_of_closed_chapters_go_where_copies_may_not_stay(tmp_path: Path) -> None:
    table, run = changed(tmp_path), tmp_path / "run"
    follow(in_chapters(table, 30), run, until_idle=0.0)
    first = ended(RunFolder(folders(run)[0]))
    now = [first + 99.0]
    closed = ClosedStates(RunFolder(run), 100.0, lambda: now[0])
    assert closed.age() == 99.0
    closed.expire()
    assert (folders(run)[0] / "checkpoints").exists()
    now[0] = first + 200.0
    closed.expire()
    assert [(folder / "checkpoints").exists() for folder in folders(run)][:2] == [False, False]
    assert (folders(run)[-1] / "checkpoints").exists()
    assert closed.age() == 0.0
    assert load_model(folders(run)[0]).meta["kind"] == "model"
    assert ClosedStates(RunFolder(run), None).age() == 0.0


def test_where_the_state_before_is_gone_an_audit_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    table, run = changed(tmp_path), tmp_path / "run"
    follow(in_chapters(table, 30), run, until_idle=0.0)
    done = purge(run, dry_run=True)
    assert any(name.startswith("chapters/000001/") for name in done["rewritten"])
    assert purge(run)["rewritten"] == done["rewritten"]
    assert purge(run)["rewritten"] == []
    caplog.clear()
    assert audit_run(folders(run)[-1]).conformance == "holds"
    assert "the state that the chapter goes on from is gone" in caplog.text


def test_a_chapter_that_another_one_has_to_go_on_from_is_not_purged(tmp_path: Path) -> None:
    table, run = changed(tmp_path), tmp_path / "run"
    with injected(at(2, point="chapter.closed")), pytest.raises(Gone):
        follow(in_chapters(table), run, until_idle=0.0)
    with pytest.raises(InputError, match="goes on from this one"):
        purge(folders(run)[-1])
    done = purge(run)
    assert done["chapters"] == 1
    same(follow(run, until_idle=0.0), replay(job(table), tmp_path / "whole"))


def test_a_reader_follows_the_newest_chapter(tmp_path: Path) -> None:
    table, run = changed(tmp_path), tmp_path / "run"
    with injected(at(1, point="chapter.closed")), pytest.raises(Gone):
        follow(in_chapters(table), run, until_idle=0.0)
    snapshots = Snapshots(run)
    found = snapshots.find()
    assert found is not None
    assert load(found).snapshot.update == summary(folders(run)[0])["updates"]
    result = follow(run, until_idle=0.0)
    found = snapshots.find()
    assert found is not None
    assert load(found).snapshot.update == result.summary["updates"]


def test_a_model_that_is_trained_from_the_rows_of_the_newest_chapter_is_the_same(tmp_path: Path) -> None:
    table = changed(tmp_path)
    learner = {"kind": "forest", "n_estimators": 2}
    run = tmp_path / "run"
    result = follow(in_chapters(table, 25, learner=learner), run, until_idle=0.0)
    same(result, replay(job(table, learner=learner), tmp_path / "whole"))
    found = verify_run(run)
    assert (found["equal"], found["digest"], found["inserted"]) == (True, result.digest, None)


@pytest.mark.turns(1)
@pytest.mark.parametrize("kind", ["gbdt", "confidence_tree"])
def test_what_waits_for_more_updates_waits_over_the_end_of_a_chapter(tmp_path: Path, kind: str) -> None:
    table = changed(tmp_path)
    learner = {"kind": kind}
    result = follow(in_chapters(table, 13, learner=learner), tmp_path / "run", until_idle=0.0)
    same(result, replay(job(table, learner=learner), tmp_path / "whole"))


@pytest.mark.parametrize("kind", [pytest.param("gbdt", marks=pytest.mark.nightly), "fudyadt"])
def test_a_warmup_that_ends_early_leaves_the_chapters_of_a_short_one(tmp_path: Path, kind: str) -> None:
    """Also if drivers are gone on the way: the state says where it ended."""
    table, run = changed(tmp_path), tmp_path / "run"
    learner = {"kind": kind}
    long = {"warmup": 10_000}
    with injected(at(3, point="chapter.closed")), pytest.raises(Gone):
        follow(in_chapters(table, 7, learner=learner, stream=long), run, until_idle=0.0)
    for passed in (1, 2):
        with injected(at(passed)), pytest.raises(Gone):
            follow(run, until_idle=0.0)
    result = follow(run, until_idle=0.0)
    short = {"warmup": summary(folders(run)[0])["early_warmup"]["updates"]}
    again = follow(in_chapters(table, 7, learner=learner, stream=short), tmp_path / "short", until_idle=0.0)
    ends, others = (
        [(one["updates"], one["model_digest"]) for one in map(summary, folders(place))]
        for place in (run, tmp_path / "short")
    )
    assert ends == others
    same(result, again)
    assert audit_run(run).ok


def test_a_chapter_ends_at_a_number_or_after_a_time_but_not_in_the_warmup() -> None:
    end = ChapterEnd(Follow(chapter_updates=10), 0, 0.0)
    assert [end.reached(n, 25) for n in (10, 20, 25, 29, 30, 31)] == [False, False, False, False, True, True]
    assert [end.room(n, 8) for n in (12, 22, 25, 28)] == [8, 8, 5, 2]
    assert [end.reached(n, 12) for n in (12, 19, 20)] == [False, False, True]  # the warm-up has ended early
    now = [0.0]
    timed = ChapterEnd(Follow(chapter_hours=0.5), 30, 100.0, lambda: now[0])
    assert timed.room(30, 8) == 8
    assert not timed.reached(31, 25)
    now[0] = 100.0 + 1800.0
    assert not timed.reached(30, 25)  # nothing has come: no chapter without an update
    assert timed.reached(31, 25)


def test_chapters_by_time_end_while_the_run_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = changed(tmp_path)
    config = in_chapters(table, follow={"chapter_updates": None, "chapter_hours": 1e-7})
    same(follow(config, tmp_path / "run", until_idle=0.0), replay(job(table), tmp_path / "whole"))
    assert len(folders(tmp_path / "run")) > 3


def test_the_plans_of_a_chapter_go_on_from_those_of_the_one_before(tmp_path: Path) -> None:
    places = [RunFolder(tmp_path / name) for name in ("one", "two")]
    for place in places:
        place.make()
    first = PlanLog(places[0])
    for number in range(3):
        first.keep(Step(number, 10 * number, {"version": number}))
    second = PlanLog(places[1], before=places[:1])
    assert second.find(2) == Step(2, 20, {"version": 2})
    assert second.find(3) is None
    second.keep(Step(3, 30, {"version": 3}))
    again = PlanLog(places[1], before=places[:1])
    assert (again.find(3), again.find(4)) == (Step(3, 30, {"version": 3}), None)
    assert PlanLog(places[1]).find(2) is None


def test_a_plan_that_was_read_ahead_is_found_chapters_later(tmp_path: Path) -> None:
    """Of chapters that are shorter than what is read ahead, some make no plan, or only later ones."""
    places = [RunFolder(tmp_path / name) for name in ("one", "two", "three", "four")]
    for place in places:
        place.make()
    first = PlanLog(places[0])
    for number in range(4):
        first.keep(Step(number, 10 * number, {"version": number}))
    PlanLog(places[1], before=places[:1]).keep(Step(4, 40, {"version": 4}))
    last = PlanLog(places[3], before=places[2::-1])
    assert [last.find(number) for number in (2, 3, 4, 5)] == [
        *(Step(number, 10 * number, {"version": number}) for number in (2, 3, 4)),
        None,
    ]


def test_only_a_live_source_has_chapters_and_a_run_has_them_from_the_beginning(tmp_path: Path) -> None:
    table = LiveTable(tmp_path / "table")
    config = {"source": {"kind": "synthetic", "generator": "sea"}, "learner": {"kind": "fudyadt"}}
    with pytest.raises(ConfigError, match="its run no chapters"):
        load_config({**config, "follow": {"chapter_hours": 1}})
    with pytest.raises(ConfigError, match=r"checkpoint\.path"):
        load_config(in_chapters(table, checkpoint={"path": str(tmp_path / "elsewhere")}))
    replay(job(table), tmp_path / "run")
    with pytest.raises(ConfigError, match="from its beginning"):
        resume(tmp_path / "run", overrides=["follow.chapter_updates=10"])
    replay(in_chapters(table), tmp_path / "chapters")
    with pytest.raises(ConfigError, match="takes in no state"):
        resume(tmp_path / "chapters", state=tmp_path / "state")


def test_a_run_that_cannot_begin_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = LiveTable(tmp_path / "table")

    def fails(self: Any, restoring: bool) -> None:
        raise ConfigError("no")

    monkeypatch.setattr("pipelines.running.loop.Run._open", fails)
    with pytest.raises(ConfigError):
        replay(in_chapters(table), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_run_in_chapters_is_a_run_that_another_one_may_replace(tmp_path: Path) -> None:
    table, run = LiveTable(tmp_path / "table"), tmp_path / "run"
    replay(in_chapters(table), run)
    assert not (run / "report.html").exists()
    with pytest.raises(ConfigError, match=r"it holds a run \(completed\)"):
        replay(job(table), run)
    whole = replay(job(table), run, overwrite=True)
    assert folders(run) == []
    same(replay(in_chapters(table), run, overwrite=True), whole)
    assert len(folders(run)) == 3
