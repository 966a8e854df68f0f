"""A run that follows a table: where it is cut does not show, and it waits, ends and says how far it is."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("deltalake")

from deltalake import DeltaTable

from actors.telemetry import Meter
from pipelines import replay, resume, update
from pipelines.auditing import audit_run
from pipelines.following import follow
from pipelines.run_folder import RunFolder
from pipelines.running.intake import STATUS, TOGETHER, Arrivals, Attending
from pipelines.running.plans import PLANS, PlanLog
from raydt.errors import ConfigError, InputError
from raydt.exchange.messages import injected
from raydt.folders.arrays import complete
from raydt.sources.live.base import SourceAwayError
from raydt.sources.live.delta import DeltaChanges
from raydt.sources.live.followed import Step
from tests.cases import open_state
from tests.live_tables import LiveTable
from tests.refusals import refused
from tests.storage_faults import Gone, at

KINDS = ("append", "update", "overwrite", "merge", "delete", "append")


def job(table: LiveTable, **given: Any) -> dict[str, Any]:
    return {
        "source": {"kind": "delta", "path": table.path, "id": "id", "version": 0, **given.pop("source", {})},
        "stream": {"warmup": 20, **given.pop("stream", {})},
        "learner": {"kind": "fudyadt", "epsilon": 0.2},
        "cluster": {"backend": "in_process", "batch_size": 8},
        "checkpoint": {"every_updates": 16, "every_seconds": None},
        "output": {"report": False, "metrics_every": 10},
        **given,
    }


def changed(folder: Path, seed: int = 0) -> LiveTable:
    table = LiveTable(folder / "table", seed)
    for kind in KINDS:
        getattr(table, kind)()
    return table


def same(one: Any, other: Any) -> None:
    assert one.digest == other.digest
    for name in ("updates", "inserts", "deletes", "replaced", "skipped", "active", "metrics"):
        assert one.summary[name] == other.summary[name]


def test_a_run_that_follows_is_a_replay_of_what_came(tmp_path: Path) -> None:
    table = LiveTable(tmp_path / "table")
    writer = threading.Thread(target=lambda: [getattr(table, kind)() for kind in KINDS])
    writer.start()
    followed = follow(job(table), tmp_path / "followed", until_idle=1.0)
    writer.join()
    if (tmp_path / "followed" / PLANS).read_text().count("\n") <= table.version:
        followed = follow(tmp_path / "followed", until_idle=0.0)
    same(followed, replay(job(table), tmp_path / "replayed"))
    assert followed.summary["active"] == len(table.at(None))
    status = json.loads((tmp_path / "followed" / "status.json").read_text())
    assert (status["state"], status["behind"], status["updates"]) == ("level", 0, followed.summary["updates"])


def test_one_label_against_all_others(tmp_path: Path) -> None:
    """Labels of a table that goes on are not known in advance: one that comes later is among the others."""
    table = LiveTable(tmp_path / "table")
    given = {"source": {"positive": ["c1", "c9"]}}
    with injected(at(2, point="driver.recorded")), pytest.raises(Gone):
        follow(job(table, **given), tmp_path / "run", until_idle=0.0)
    DeltaTable(table.path).update(predicate="id % 4 = 1", updates={"y": "'later'"})
    DeltaTable(table.path).update(predicate="id % 4 = 2", updates={"y": "'c9'"})
    run = follow(tmp_path / "run", until_idle=0.0)
    same(run, replay(job(table, **given), tmp_path / "whole"))
    state, _ = open_state(tmp_path / "run" / "checkpoints")
    positive = [label in ("c1", "c9") for label in table.at(None).column("y").to_pylist()]
    assert state.classes == ["not c1|c9", "c1|c9"]
    assert sorted(state.arrays["y"].tolist()) == sorted(positive)
    assert audit_run(tmp_path / "run").ok
    new = {"id": [10**6, 10**6 + 1], "a": [0.1, 0.2], "b": [0.3, 0.4], "y": ["never met", "c1"]}
    pq.write_table(pa.table(new), tmp_path / "new.parquet")
    assert update(tmp_path / "run", insert=tmp_path / "new.parquet", out=tmp_path / "state").active == len(positive) + 2
    assert sorted(open_state(tmp_path / "state")[0].arrays["y"].tolist()) == sorted([*positive, False, True])
    for wrong in (1, True, ["c1", 2]):
        with refused("live.positive", ConfigError, column="y", kind="string"):
            follow(job(table, source={"positive": wrong}), tmp_path / "refused", until_idle=0.0)


@pytest.mark.parametrize(("point", "n"), [("follow.planned", 3), ("driver.recorded", 7), ("run.before_compaction", 1)])
def test_a_driver_that_is_gone_at_a_plan_or_a_batch_does_not_show(tmp_path: Path, point: str, n: int) -> None:
    one_cut(tmp_path, 0, point, n)


def one_cut(folder: Path, seed: int, point: str, n: int) -> None:
    table = changed(folder, seed)
    with injected(at(n, point=point)), pytest.raises(Gone):
        follow(job(table), folder / "cut", until_idle=0.0)
    plans = (folder / "cut" / PLANS).read_bytes()
    resumed = follow(folder / "cut", until_idle=0.0)
    assert (folder / "cut" / PLANS).read_bytes().startswith(plans)
    same(resumed, replay(job(table), folder / "whole"))


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("point", ["follow.planned", "driver.recorded", "run.before_compaction"])
def test_drivers_that_are_gone_anywhere_do_not_show(tmp_path: Path, seed: int, point: str) -> None:
    one_cut(tmp_path, seed, point, 1 + (seed % 5 if point != "run.before_compaction" else 0))


def one_kill(folder: Path, seed: int, faults: str) -> None:
    table = changed(folder, seed)
    config, run = folder / "job.yaml", folder / "killed"
    config.write_text(json.dumps(job(table)))
    command = [sys.executable, "-m", "pipelines.cli", "follow", str(config), "--out", str(run), "--until-idle", "0"]
    root = str(Path(__file__).parents[2])
    environment = {**os.environ, "RAYDT_FAULTS": faults, "PYTHONPATH": root}
    ended = subprocess.run(command, env=environment, capture_output=True, timeout=120, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    same(follow(run, until_idle=0.0), replay(job(table), folder / "whole"))


def test_a_process_that_is_killed_does_not_show(tmp_path: Path) -> None:
    one_kill(tmp_path, 0, "follow.planned@4#0=kill")


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(60))
def test_processes_that_are_killed_anywhere_do_not_show(tmp_path: Path, seed: int) -> None:
    points = ("follow.planned", "driver.recorded", "checkpoint.before_manifest", "checkpoint.after_manifest")
    one_kill(tmp_path, seed, f"{points[seed % 4]}@{1 + seed % 3}#0=kill")


def test_a_completed_run_goes_on_when_the_table_has(tmp_path: Path) -> None:
    table = LiveTable(tmp_path / "table")
    replay(job(table), tmp_path / "run")
    table.update()
    table.overwrite()
    same(resume(tmp_path / "run"), replay(job(table), tmp_path / "whole"))


def test_the_config_of_a_run_fixes_version_and_features(tmp_path: Path) -> None:
    table = LiveTable(tmp_path / "table")
    table.append()
    replay(job(table, source={"version": None}), tmp_path / "run")
    config = (tmp_path / "run" / "config.yaml").read_text()
    assert "version: 1\n" in config
    assert "model: changelog" in config


def test_a_signal_ends_the_waiting_at_once_as_an_interruption(tmp_path: Path) -> None:
    table = LiveTable(tmp_path / "table")

    def stop_when_level() -> None:
        status = tmp_path / "run" / "status.json"
        while not status.exists() or json.loads(status.read_text())["state"] != "level":
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGTERM)

    stopper = threading.Thread(target=stop_when_level)
    stopper.start()
    result = follow(job(table), tmp_path / "run")
    stopper.join()
    assert (result.status, result.exit_code) == ("interrupted", 143)
    table.append()
    same(follow(tmp_path / "run", until_idle=0.0), replay(job(table), tmp_path / "whole"))


def test_a_source_that_is_away_is_waited_for_and_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    table, plan, calls = changed(tmp_path), DeltaChanges.plan, iter(range(100))

    def sometimes(self: DeltaChanges, after: Any) -> Any:
        if 2 <= next(calls) < 5:
            raise SourceAwayError("no answer")
        return plan(self, after)

    monkeypatch.setattr(DeltaChanges, "plan", sometimes)
    monkeypatch.setattr("pipelines.running.intake.AWAY", (0.01, 0.02))
    followed = follow(job(table), tmp_path / "run", until_idle=0.0)
    events = [getattr(record, "event", None) for record in caplog.records]
    assert (events.count("source_away"), events.count("source_back")) == (1, 1)
    monkeypatch.undo()
    same(followed, replay(job(table), tmp_path / "whole"))


def test_a_replay_does_not_wait_for_a_source_that_is_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = LiveTable(tmp_path / "table")

    def away(self: DeltaChanges, after: Any) -> Any:
        raise SourceAwayError("no answer")

    monkeypatch.setattr(DeltaChanges, "plan", away)
    with pytest.raises(SourceAwayError):
        replay(job(table), tmp_path / "run")


def test_a_bad_row_ends_the_run_or_is_set_aside(tmp_path: Path) -> None:
    table = LiveTable(tmp_path / "table")
    DeltaTable(table.path).update(predicate="id = 3", updates={"y": "NULL"})
    with pytest.raises(InputError, match="version 1, row 0, column 'y'"):
        follow(job(table), tmp_path / "strict", until_idle=0.0)
    result = follow(job(table, stream={"on_error": "skip"}), tmp_path / "lenient", until_idle=0.0)
    # what stood in the table before is deleted
    assert [result.summary[name] for name in ("skipped", "updates", "deletes", "active")] == [1, 41, 1, 39]


def test_a_run_that_cannot_go_on_has_failed_and_has_what_it_had(tmp_path: Path) -> None:
    """At a bad row that is its first one, and where another table has come while it was not running."""
    table, run = LiveTable(tmp_path / "table"), tmp_path / "run"
    follow(job(table), run, until_idle=0.0)
    level = json.loads((run / STATUS).read_text())
    assert (level["state"], level["applied"], level["updates"]) == ("level", "version 0", 40)
    DeltaTable(table.path).update(predicate="id = 7", updates={"y": "NULL"})
    for _ in range(2):
        with pytest.raises((InputError, ConfigError)) as caught:
            follow(run, until_idle=0.0)
        status = json.loads((run / STATUS).read_text())
        assert (status["state"], status["applied"], status["updates"]) == ("failed", "version 0", 40)
        assert str(caught.value).splitlines()[0] in status["reason"]
        shutil.rmtree(table.path)
        LiveTable(Path(table.path), seed=1)


def test_a_bad_row_is_waited_at_until_the_table_is_repaired(tmp_path: Path) -> None:
    table, run = LiveTable(tmp_path / "table"), tmp_path / "run"
    DeltaTable(table.path).update(predicate="id = 3", updates={"y": "NULL"})
    DeltaTable(table.path).delete("id = 5")
    told: list[dict[str, Any]] = []

    def repair() -> None:
        until = time.monotonic() + 60
        while not told and time.monotonic() < until:
            time.sleep(0.02)
            status = json.loads((run / STATUS).read_text()) if (run / STATUS).exists() else {}
            told.extend([status] if status.get("state") == "waiting" else [])
        DeltaTable(table.path).update(predicate="id = 3", updates={"y": "'p'"})

    repairer = threading.Thread(target=repair)
    repairer.start()
    followed = follow(job(table, stream={"on_error": "wait"}), run, until_idle=0.0)
    repairer.join()
    assert "version 1, row 0, column 'y'" in told[0]["reason"]
    assert (told[0]["applied"], told[0]["read"], told[0]["behind"]) == ("version 0", "version 1", 2)
    same(followed, replay(job(table, stream={"on_error": "skip"}), tmp_path / "whole"))
    assert (followed.summary["active"], followed.summary["skipped"]) == (39, 1)
    assert audit_run(run).conformance == "holds"
    source, stream = {"kind": "synthetic", "generator": "sea"}, {"model": "incremental", "on_error": "wait"}
    with refused("configs.no_wait", ConfigError):
        replay({"source": source, "stream": stream, "learner": {"kind": "fudyadt"}})


def test_only_a_live_source_can_be_followed(tmp_path: Path) -> None:
    config = {"source": {"kind": "synthetic", "generator": "sea"}, "learner": {"kind": "fudyadt"}}
    with pytest.raises(ConfigError, match="has an end"):
        follow(config, tmp_path / "run")


def test_a_plan_that_was_cut_short_was_never_made(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    log = PlanLog(folder)
    log.keep(Step(0, 0, {"version": 0}))
    log.keep(Step(1, 40, {"version": 1}))
    path = tmp_path / PLANS
    path.write_bytes(path.read_bytes()[:-3])
    again = PlanLog(folder)
    assert again.find(0) == Step(0, 0, {"version": 0})
    assert again.find(1) is None
    again.keep(Step(1, 40, {"version": 7}))
    assert PlanLog(folder).find(1) == Step(1, 40, {"version": 7})
    whole = path.read_bytes()
    for damaged in (whole + b"{}\n", whole + b"[]\n", whole.replace(b"7}", b"6}"), whole.replace(b" 40,", b" 41,")):
        path.write_bytes(damaged)
        with pytest.raises(InputError, match="damaged"):
            [PlanLog(folder).find(number) for number in range(3)]


def test_a_plan_without_its_hash_is_damaged(tmp_path: Path) -> None:
    PlanLog(RunFolder(tmp_path)).keep(Step(0, 0, {"version": 0}))
    values = json.loads((tmp_path / PLANS).read_text())
    del values["sha256"]
    (tmp_path / PLANS).write_text(json.dumps(values) + "\n")
    with pytest.raises(InputError, match="damaged"):
        PlanLog(RunFolder(tmp_path))


def test_pauses_grow_while_nothing_comes_and_begin_anew(tmp_path: Path) -> None:
    class Still:
        last, held = Step(0, 0, {"version": 0}), None
        read_to = staticmethod(lambda: Still.last)

        class live:
            behind = staticmethod(lambda plan: 0)

    waited: list[float] = []

    class Event(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            waited.append(timeout or 0.0)
            return False

    source: Any = Still()
    attending, event = Attending(source, RunFolder(tmp_path)), Event()
    attending._report = lambda *arguments: None  # type: ignore[method-assign]
    for _ in range(12):
        assert attending(event)
    assert waited[0] == 0.02
    assert waited[-1] == 1.0
    source.last = Step(1, 0, {"version": 1})
    attending(event)
    assert waited[-1] == 0.02


def test_lag_is_the_age_of_the_oldest_message_that_is_not_learned() -> None:
    """Also where messages come without a pause, so that the run is never level."""
    ends = [0]

    class Topic:
        unit = "messages"

        @staticmethod
        def behind(plan: Any) -> int:
            return ends[0] - (0 if plan is None else plan["to"])

    live: Any = Topic()
    arrivals = Arrivals(live)
    for second in range(100):
        ends[0] = 10 * (second + 1)
        done = Step(second, 10 * second, {"to": 10 * second - 5}) if second else None
        arrivals.look(float(second), done)
        assert arrivals.lag(second + 0.5) == {
            "behind": 15 if second else 10,
            "unit": "messages",
            "seconds": min(second, 2) + 0.5,
        }
    arrivals.look(100.0, Step(90, 0, {"to": 5}))
    assert arrivals.lag(100.0)["behind"] == 15, "the model has no less than it had"
    arrivals.look(101.0, Step(101, 0, {"to": 1000}))
    assert arrivals.lag(200.0) == {"behind": 0, "unit": "messages", "seconds": 0.0}
    ends[0] = 1001
    arrivals.look(102.0, None)
    assert arrivals.lag(104.0)["seconds"] == 3.0, "it can have come just after the look before"


def test_few_moments_are_kept_while_a_run_lags() -> None:
    """However often it looks."""
    ends = [0]

    class Topic:
        unit = "messages"

        @staticmethod
        def behind(plan: Any) -> int:
            return ends[0]

    live: Any = Topic()
    arrivals = Arrivals(live)
    for look in range(5000):
        ends[0] += 1
        arrivals.look(look / 1000, None)
    assert len(arrivals._known) <= 5 / TOGETHER + 1
    assert arrivals.lag(5.0) == {"behind": 5000, "unit": "messages", "seconds": 5.0}


def test_a_resumed_run_is_not_behind_by_all_that_was(tmp_path: Path) -> None:
    """Until it has done the plan in which it goes on."""

    class Resumed:
        last, held, restored = Step(7, 700, {"to": 800}), None, None

        class live:
            name, unit, place = "topic", "messages", staticmethod(str)

            @staticmethod
            def behind(plan: Any) -> int:
                return 805 - (0 if plan is None else plan["to"])

        @staticmethod
        def done_by(row: int) -> Step | None:
            return None

    source: Any = Resumed()
    attending = Attending(source, RunFolder(tmp_path), clock=lambda: 1.0)
    attending.note(100, 720, Meter())
    assert attending.lag()["behind"] == 5


def test_the_status_has_the_last_updates_a_second_after_them(tmp_path: Path) -> None:
    """Not only ten seconds later, when nothing came meanwhile."""

    class Level:
        last, held, patient = Step(0, 0, {"version": 0}), None, True
        read_to = staticmethod(lambda: Level.last)

        class live:
            name, unit = "table", "versions"
            place, behind = staticmethod(str), staticmethod(lambda plan: 0)

        @staticmethod
        def done_by(row: int) -> Step:
            return Level.last

    class Event(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            return False

    def told() -> int:
        return int(json.loads((tmp_path / STATUS).read_text())["updates"])

    seconds = [0.0]
    source: Any = Level()
    attending = Attending(source, RunFolder(tmp_path), clock=lambda: seconds[0])
    attending.note(100, 99, Meter())
    attending.note(130, 129, Meter())
    assert told() == 100
    seconds[0] = 1.5
    attending(Event())
    assert told() == 130
    written = (tmp_path / STATUS).stat().st_mtime_ns
    seconds[0] = 8.0
    attending(Event())
    assert (tmp_path / STATUS).stat().st_mtime_ns == written, "an idle run writes seldom"


def test_a_run_that_is_level_has_a_checkpoint_of_its_last_update(tmp_path: Path) -> None:
    """A reader would wait for the next change otherwise: checkpoints come with batches."""
    table, run = LiveTable(tmp_path / "table"), tmp_path / "run"
    numbers: list[int] = []

    def wait_for(updates: int) -> None:
        until = time.monotonic() + 20
        while updates not in complete(RunFolder(run / "checkpoints")) and time.monotonic() < until:
            time.sleep(0.02)
        numbers.append(max(complete(RunFolder(run / "checkpoints")), default=0))

    def observe() -> None:
        wait_for(40)
        DeltaTable(table.path).delete("id = 7")
        wait_for(41)
        os.kill(os.getpid(), signal.SIGTERM)

    observer = threading.Thread(target=observe)
    observer.start()
    result = follow(job(table, checkpoint={"every_seconds": 60}), run)
    observer.join()
    assert (numbers, result.summary["active"]) == ([40, 41], 39)
    same(follow(run, until_idle=0.0), replay(job(table), tmp_path / "whole"))
