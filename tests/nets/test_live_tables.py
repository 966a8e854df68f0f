"""Live tables and topics of every learner, and drivers that are gone where a chapter closes."""

from __future__ import annotations

import pytest

pytest.importorskip("deltalake")

import json
import math
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

from pipelines import replay, resume
from pipelines.auditing import audit_run, verify_run
from pipelines.following import CHECKED, follow
from pipelines.running.intake import Attending
from pipelines.saved_runs import find_state
from raydt.encoding.columns import number_of
from raydt.errors import InputError, RaydtError
from raydt.examples.updates import history_of_live
from raydt.exchange.messages import injected
from raydt.messages import message_of
from raydt.sources.live import partitions as client
from tests.cases import Trial, every_case, open_state, place_of
from tests.live_tables import StoryTable
from tests.live_topics import Cluster, Topic
from tests.storage_faults import Gone, at
from tests.unit.test_chapters import folders, in_chapters, rows, summary
from tests.unit.test_follow import changed, job, same

# -- live tables -----------------------------------------------------------------------------------------------------
# A run that follows a table, whatever becomes of the table, has its rows, or says why it cannot follow.
#
# A story is drawn from a seed (``tests/live_tables.py``). Whenever the run is level, its live ids and rows are those
# of the table as deltalake reads them, the audit holds and has compared as many rows, and a model that is a function
# of its live examples equals one trained from nothing. What old versions need may be gone by then: the audit is of
# what is left.

#: Stories of each case, by night.
STORIES = 6
#: Numbers of the stories of which each test run takes one for a learner.
DAILY = (1, 7, 10)


def config_of(trial: Trial, table: StoryTable) -> dict[str, Any]:
    """A config that follows a table from its first version on, and sets bad rows aside."""
    given = {**trial.columns, **({"n_features": 16} if trial.case.sparse else {})}
    return {
        "source": {"kind": "delta", "path": table.path, "version": 0, **given},
        "stream": {"warmup": trial.case.warmup and 10, "on_error": "skip"},
        "learner": trial.section,
        "cluster": {"backend": "in_process", "batch_size": 8},
        "checkpoint": {"every_updates": 40, "every_seconds": None},
        "output": {"report": False},
    }


def rows_of(trial: Trial, run: Path) -> dict[int, list[Any]]:
    """Return the live rows of a run by id, as the table has them: features and label."""
    saved = open_state(find_state(run).folder)[0]
    live, features = history_of_live(saved.arrays, saved.groups, saved.features), saved.features
    found = {}
    for place, id in enumerate(live.id.tolist()):
        values: list[Any] = []
        for name, value in zip(features.names, live.X[place].tolist(), strict=True):
            names = saved.categories.get(name)
            if names is not None:  # -1 where a category is missing
                codes = map(number_of, names) if trial.reading.by_value else range(len(names))
                values.append({-1: None, **dict(zip(codes, names, strict=True))}[value])
            else:
                values.append(None if math.isnan(value) else value)
        if live.sparse is not None:
            values.append(sorted(live.sparse.row(place).tolist()))
        label = live.y[place].item()
        found[id] = [*values, label if not saved.classes else saved.classes[label]]
    return found


def rows_of_table(trial: Trial, table: StoryTable) -> dict[int, list[Any]]:
    """Return the usable rows of a table by id."""
    columns, label = trial.columns["features"], trial.columns["label"]
    found = {}
    for id, row in table.live().items():
        values = [sorted(row[name]) if name == "ones" else row[name] for name in columns]
        if row[label] is not None and (trial.reading.missing or None not in values):
            found[id] = [*values, row[label]]
    return found


def require_level(trial: Trial, table: StoryTable, run: Path, active: int) -> None:
    """Check a run that says that it is level."""
    expected = rows_of_table(trial, table)
    assert rows_of(trial, run) == expected, table.told
    report = audit_run(run)
    assert report.ok, (table.told, report.failures)
    assert report.checked[CHECKED] == len(expected) == active, table.told
    if trial.learner.traits(trial.options).retrained:
        assert verify_run(find_state(run).folder.location)["equal"], table.told


def one_story(trial: Trial, folder: Path, seed: int) -> None:
    """Follow a table while it lives, to what cannot be followed; check the run whenever it is level."""
    table, run = StoryTable(folder / "table", seed), folder / "run"
    draw = random.Random(f"following {seed}")
    for part in range(3):
        for _ in range(draw.randrange(1, 5)):
            table.step()
        if draw.random() < 0.3:
            table.purge()
        if part == 2:
            table.end()
        try:
            result = follow(config_of(trial, table) if part == 0 else run, run, until_idle=0.0)
        except InputError as error:
            table.require_refusal(error)
            if (run / "config.yaml").exists():
                assert json.loads((run / "status.json").read_text())["state"] == "failed", table.told
            return
        assert not table.must, table.told
        table.read()
        if draw.random() < 0.5:
            table.purge()
        require_level(trial, table, run, result.summary["active"])
        table.read()


@every_case("stories of live tables")
def test_a_followed_table_is_the_model_or_the_run_says_why_not(trial: Trial, tmp_path: Path) -> None:
    one_story(trial, tmp_path, 100 + DAILY[place_of(trial) % len(DAILY)])


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(STORIES))
@every_case("stories of live tables", often=lambda trial: False)
def test_any_followed_table_is_the_model_or_the_run_says_why_not(trial: Trial, tmp_path: Path, seed: int) -> None:
    one_story(trial, tmp_path, 100 + seed)


# -- chapter kills ---------------------------------------------------------------------------------------------------
# A run in chapters is the run without, whatever is gone while a chapter closes: the driver, its process, an actor.

POINTS = (
    "driver.recorded",
    "follow.planned",
    "run.before_compaction",
    "checkpoint.before_manifest",
    "checkpoint.after_manifest",
    "run.before_summary",
    "run.before_report",
    "chapter.closed",
    "chapter.between_files",
)


@pytest.mark.turns(2)
@pytest.mark.parametrize(("point", "n"), [(point, 1 + (point != "run.before_report")) for point in POINTS])
def test_a_driver_that_is_gone_where_a_chapter_closes_does_not_show(tmp_path: Path, point: str, n: int) -> None:
    one_cut(tmp_path, 0, point, n)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("point", POINTS)
def test_drivers_that_are_gone_anywhere_do_not_show(tmp_path: Path, seed: int, point: str) -> None:
    one_cut(tmp_path, seed, point, 1 + seed % 4 * (point != "run.before_report"))


def one_cut(folder: Path, seed: int, point: str, n: int) -> None:
    table, run = changed(folder, seed), folder / "run"
    output = {"report": point == "run.before_report", "metrics_every": 10}
    config = in_chapters(table, follow={"keep": 3}, output=output)
    with injected(at(n, point=point)), pytest.raises(Gone):
        follow(config, run, until_idle=0.0)
    resumed = follow(run, until_idle=0.0)
    same(resumed, replay(job(table), folder / "whole"))
    chapters = folders(run)
    assert len(chapters) == 4
    assert rows(chapters, "metrics") == rows([folder / "whole"], "metrics")[-len(rows(chapters, "metrics")) :]
    for before, after in pairwise(chapters):
        assert summary(after)["chapter"]["digest_before"] == summary(before)["model_digest"]
    assert all((folder / "report.html").exists() == output["report"] for folder in chapters)
    assert sorted(entry.name for entry in (run / "chapters").iterdir()) == [folder.name for folder in chapters]
    assert audit_run(chapters[-1]).conformance == "holds"


def one_kill(folder: Path, seed: int, faults: str) -> None:
    table, run = changed(folder, seed), folder / "killed"
    config = folder / "job.yaml"
    config.write_text(json.dumps(in_chapters(table, follow={"keep": 2})))
    command = [sys.executable, "-m", "pipelines.cli", "follow", str(config), "--out", str(run), "--until-idle", "0"]
    environment = {**os.environ, "RAYDT_FAULTS": faults, "PYTHONPATH": str(Path(__file__).parents[2])}
    gone = subprocess.run(command, env=environment, capture_output=True, timeout=120, check=False)
    assert gone.returncode == -signal.SIGKILL, gone.stderr
    same(resume(run), replay(job(table), folder / "whole"))


@pytest.mark.nightly
def test_a_process_that_is_killed_between_two_chapters_does_not_show(tmp_path: Path) -> None:
    one_kill(tmp_path, 0, "chapter.closed@2#0=kill")


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(40))
def test_processes_that_are_killed_anywhere_do_not_show(tmp_path: Path, seed: int) -> None:
    points = [point for point in POINTS if point != "run.before_report"]
    one_kill(tmp_path, seed, f"{points[seed % len(points)]}@{1 + seed % 3}#0=kill")


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["fudyadt", "gbdt"])
def test_actors_go_on_over_chapters_and_a_lost_one_goes_back_to_the_chapter_before(tmp_path: Path, kind: str) -> None:
    table, run, closed = changed(tmp_path), tmp_path / "run", iter(range(1, 100))
    now = [0]

    def kill_in_the_third(point: str) -> None:
        if point == "chapter.closed":
            now[0] = next(closed)
        elif point == "driver.recorded" and now[0] == 2:
            log = (folders(run)[0] / "log.jsonl").read_text().splitlines()
            pids = [json.loads(line).get("pids") for line in log]
            os.kill(next(filter(None, pids))[-1], signal.SIGKILL)
            now[0] = 0

    cluster = {"backend": "ray", "shards": 2, "batch_size": 8, "memory_limit": 0}
    with injected(kill_in_the_third):
        result = follow(in_chapters(table, 20, learner={"kind": kind}, cluster=cluster), run, until_idle=0.0)
    same(result, replay(job(table, learner={"kind": kind}), tmp_path / "whole"))
    assert [summary(folder)["restarts"] for folder in folders(run)] == [0, 0, 1, 0, 0]


def stop() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def test_a_signal_while_a_chapter_closes_ends_the_run_and_does_not_show(tmp_path: Path) -> None:
    table, run = changed(tmp_path), tmp_path / "run"
    with injected(at(2, act=stop, point="chapter.closed")), pytest.raises(SystemExit):
        follow(in_chapters(table), run, until_idle=0.0)
    assert [summary(folder)["exit_reason"] for folder in folders(run)] == ["end_of_chapter"] * 2
    with injected(at(1, act=stop, point="run.before_compaction")), pytest.raises(SystemExit):
        follow(run, until_idle=0.0)
    same(follow(run, until_idle=0.0), replay(job(table), tmp_path / "whole"))


# -- live topics -----------------------------------------------------------------------------------------------------
# Stories of a topic that is followed: partitions and topics come and go, the head expires, rows are bad and repaired.
#
# After each story the model has the rows of the topic, or the run says ``failed`` and why, in ``status.json`` and by
# its error. What ``stream.on_error`` says changes on the way; neither that nor a driver that is gone may show in an
# audit.

TOPIC = "customers"
#: Where a driver may be gone.
POINTS_TOPICS = (
    "follow.planned",
    "driver.recorded",
    "requests.appended",
    "checkpoint.after_manifest",
    "run.before_summary",
)
#: Values that make a row bad, each by its field.
WRONG: tuple[dict[str, Any], ...] = ({"y": None}, {"a": "much"}, {"y": [1]})
#: Steps of a story, by weight.
STEPS = {"send": 6, "bad": 3, "partition": 2, "expire": 2, "policy": 1, "again": 0.5, "lose": 0.7, "down": 1}


class Story:
    """A topic, the run that follows it, and what the model is to have."""

    def __init__(self, folder: Path, seed: int, policies: tuple[str, ...]) -> None:
        self._draw, self.run, self._policies = random.Random(seed), folder / "run", policies
        self.cluster = Cluster(tells_ids=seed % 4 != 3)
        self.topic = self.cluster.topics[TOPIC] = Topic(self._draw.randint(1, 3))
        self.policy = self._draw.choice(policies)
        self._next = 0
        self._partition: dict[int, int] = {}  # of each id that the topic has
        self.rows: dict[int, tuple[float, float, str] | None] = {}  # of each id its newest row; None: it is bad
        self._chapters = self._draw.choice([None, None, 15])
        self.lost = False  #: The topic was made again, or messages expired, and the run is to say that it lacks rows.
        self.unsure = False  #: The same of a run that may not have planned to read them before its driver was gone.
        self.expired = False  #: Messages are gone that an audit reads again.
        self.failed: str | None = None
        self._began = False
        self._updates = 0  #: That the status has said last.
        self.seen = Counter[str]()

    # -- what happens to the topic -------------------------------------------------------------------------------------

    def send(self) -> None:
        """Send some good changes; deletions also to partitions that were added after their insertion."""
        for _ in range(self._draw.randint(1, 12)):
            op = self._draw.choice("cccudt") if self.rows else "c"
            id = self._next if op == "c" else self._draw.choice([*self.rows])
            self._send(op, id, {})

    def bad(self) -> None:
        """Send a row that cannot be used: new, or the new one of an id; some are repaired at once."""
        there = [id for id, row in self.rows.items() if row is not None]
        id = self._draw.choice(there) if there and self._draw.random() < 0.6 else self._next
        self._send("u" if id in self.rows else "c", id, self._draw.choice(WRONG))
        self.seen["bad"] += 1
        if self._draw.random() < 0.4:
            self.repair()

    def repair(self) -> None:
        """Send a good row, or a deletion, of each id whose newest row is bad."""
        for id in [id for id, row in self.rows.items() if row is None]:
            self._send(self._draw.choice("ud"), id, {})
            self.seen["repaired"] += 1

    def _send(self, op: str, id: int, wrong: dict[str, Any]) -> None:
        draw = self._draw
        p = self._partition.setdefault(id, draw.randrange(len(self.topic.logs)))
        row = {"op": op, "id": id, "a": draw.random(), "b": draw.random(), "y": draw.choice("pqr")}
        if op in "dt":  # of ids that never come again, so that partitions that are read in order keep their order
            p = draw.randrange(p, len(self.topic.logs))
            del self.rows[id]
        else:
            self.rows[id] = None if wrong else (row["a"], row["b"], row["y"])
        # An update of a row that no model has is an insertion to the model.
        self.topic.send(p, id, None if op == "t" else row | wrong)
        self._next = max(self._next, id + 1)

    def partition(self) -> None:
        """Add a partition."""
        self.topic.logs.append(type(self.topic.logs[0])())
        self.seen["partitions"] += 1
        self.send()

    def expire(self) -> None:
        """Let messages expire: at times also some that the run has not read."""
        read = self._read_to()
        for p, log in enumerate(self.topic.logs):
            known = int(read.get(str(p), 0))
            far = self._draw.random() < 0.1
            before = self._draw.randint(log.begin, log.end if far else max(log.begin, min(known, log.end)))
            if before > log.begin and (before <= known or read):  # a run without a checkpoint may begin after them
                self.expired = True
                self.lost |= before > known
                self.topic.expire(p, before)
                self.seen["expired"] += 1

    def _read_to(self) -> dict[str, int]:
        """Return the offsets that the run does not go back behind: those of its newest checkpoint."""
        for folder in [*sorted(self.run.glob("chapters/*"), reverse=True), self.run]:
            with suppress(RaydtError):
                step = open_state(folder / "checkpoints")[0].components["stream"]["source"]["step"]
                found: dict[str, int] = {} if step is None else step["plan"]["from" if step["rows"] is None else "to"]
                return found
        return {}

    def policy_changes(self) -> None:
        """Choose another policy for what comes."""
        self.policy = self._draw.choice(self._policies)
        self.seen["policies"] += 1

    def again(self) -> None:
        """Delete the topic, and make it again with other rows, at times as many."""
        ends, read = [log.end for log in self.topic.logs], {int(p): at for p, at in self._read_to().items()}
        self.topic = self.cluster.topics[TOPIC] = Topic(len(ends))
        self._partition, self.rows = {}, {}
        blind = not self.cluster._tells_ids  # a client that cannot see as many messages: there are fewer
        fewer = max(read, key=lambda p: read[p], default=0) if blind else None
        self.lost |= any(read.values()) if blind else bool(read)
        self.unsure |= self._began
        for p, end in enumerate(ends):
            for _ in range(end * (p != fewer) if blind else self._draw.choice([0, end, end + 3])):
                self._partition[self._next] = p
                self._send("c", self._next, {})
        self.seen["made again"] += 1

    # -- the run -------------------------------------------------------------------------------------------------------

    def _config(self) -> dict[str, Any]:
        source = {"kind": "kafka", "path": f"kafka://nowhere:1/{TOPIC}", "id": "id", "features": ["a", "b"]}
        return {
            "source": {**source, "label": "y", "text": ["y"]},
            "stream": {"on_error": self.policy},
            "learner": {"kind": "fudyadt", "epsilon": 0.2},
            "cluster": {"backend": "in_process", "batch_size": 8},
            "checkpoint": {"every_updates": 16, "every_seconds": None},
            "output": {"report": False},
            **({} if self._chapters is None else {"follow": {"chapter_updates": self._chapters, "keep": None}}),
        }

    def follow(self, kills: float) -> Any:
        """Follow until nothing new comes; None if the driver is gone, or the run has failed, which it is to say."""
        begun = (self.run / "config.yaml").exists()
        given: Any = self.run if begun else self._config()
        overrides = [f"stream.on_error={self.policy}"] if begun else []
        with injected(lambda name: self._gone(kills) if name in POINTS_TOPICS else None), self._waits():
            try:
                return follow(given, None if begun else self.run, overrides=overrides, until_idle=0.0)
            except Gone:
                self.seen["kills"] += 1
                return None
            except RaydtError as error:
                self._note_failure(error, begun=begun)
                return None
            finally:
                self._began |= (self.run / "config.yaml").exists()

    def _gone(self, share: float) -> None:
        if self._draw.random() < share:
            raise Gone

    def _note_failure(self, error: RaydtError, *, begun: bool) -> None:
        said = message_of(error)
        assert said is not None, error
        assert error.exit_code
        self.failed = said.id
        self.seen[said.id] += 1
        if (self.run / "config.yaml").exists():
            status = self.status()
            assert status["state"] == "failed", status
            assert status["reason"], status
            assert str(said.parameters.get("offset", "")) in status["reason"], status
            assert status["updates"] >= self._updates, status

    def _waits(self) -> Any:
        """Have something happen whenever the run waits at a bad row, or for brokers: a repair, a kill, or a signal."""
        attend = Attending.__call__

        def waiting(attending: Attending, stop: Any) -> bool:
            source: Any = attending._source
            more = attend(attending, stop)
            if source.held is None:
                return more
            status = self.status()
            assert status["state"] in ("away", "waiting"), status
            assert status["reason"], status
            self.seen[status["state"]] += 1
            if status["state"] == "away":
                self.cluster.down = False
                return more
            assert self.policy == "wait"
            what = self._draw.choice(["repair", "gone", "signal"])
            if what == "repair":
                self.repair()
            elif what == "gone":
                raise Gone
            else:
                os.kill(os.getpid(), signal.SIGTERM)
            return True

        return patch.object(Attending, "__call__", waiting)

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.run / "status.json").read_text())
        return found

    def tell(self, steps: int) -> None:
        """Have so many things happen, with the run in between, and compare at every end."""
        self.send()
        for _ in range(steps):
            step = self._draw.choices([*STEPS], [*STEPS.values()])[0]
            if step == "policy":
                self.policy_changes()
            elif step == "lose":
                self.follow(kills=0.3)
            elif step == "down":
                self.cluster.down = self._began
            else:
                getattr(self, step)()
            if step in ("lose", "down") or self._draw.random() < 0.6:
                self._go_on()
            if self.failed in GONE:
                return
            if self.lost and not self.cluster._tells_ids:
                break  # before as many messages have come
        self.cluster.down = False
        self.policy = self._policies[-1]  # which passes over the bad rows that are left
        self.failed = None
        for _ in range(40):
            if self._go_on() or self.failed in GONE or self.failed == "files.no_rows":
                return
        raise AssertionError(f"no end: {self.failed}, {self.seen}")

    def _go_on(self) -> bool:
        """Follow, and compare if the run has come to the end of the topic; return True then."""
        self.failed = None
        result = self.follow(kills=0.04)
        if self.failed == "live.no_broker" and self.cluster.down:  # nobody answers the first question
            self.cluster.down = False
            return False
        if self.failed in GONE:
            assert self.lost or self.unsure, self.failed
            if self.lost:
                said, self.failed = self.failed, None
                assert (self.follow(kills=0.0), self.failed) == (None, said), "it says so whenever it goes on"
            return False
        if self.failed == "files.no_rows":
            assert not any(log.messages for log in self.topic.logs)
            return False
        if self.failed is not None:
            assert self.failed in BAD_ROWS, self.failed
            assert self.policy == "fail", self.failed
            assert self.seen["bad"], self.failed
            return False
        if result is None or result.status != "completed":
            return False
        assert not self.lost, "a run that cannot have all rows is not level"
        expected = {id: row for id, row in self.rows.items() if row is not None}
        assert live_rows(self.run) == expected, (self.policy, self.seen)
        status = self.status()
        assert (status["state"], status["behind"], status["updates"]) == ("level", 0, result.summary["updates"])
        assert status["applied"] == status["read"]
        self._updates = status["updates"]
        self.seen["compared"] += 1
        if not self.expired and self._draw.random() < 0.3:
            report = audit_run(self.run)
            assert report.conformance == "holds", report
            self.seen["audited"] += 1
        return True


#: Messages of a run that cannot have all rows, whatever ``stream.on_error`` says.
GONE = ("live.expired", "live.beyond_end", "live.other_topic")
#: Messages of rows that cannot be used.
BAD_ROWS = ("rows.no_label", "rows.not_number", "live.no_row", "streams.nothing_live")


def live_rows(run: Path) -> dict[int, tuple[float, float, str]]:
    """Return the live examples of the last state of a run, by id."""
    saved = open_state(find_state(run).folder)[0]
    live = history_of_live(saved.arrays, saved.groups, saved.features)
    rows = zip(live.id.tolist(), live.X.tolist(), live.y.tolist(), strict=True)
    return {id: (a, b, str(saved.classes[y])) for id, (a, b), y in rows}


@pytest.fixture
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.running.intake.AWAY", (0.0, 0.001))
    monkeypatch.setattr("pipelines.running.intake.IDLE", (0.0, 0.001))
    monkeypatch.setattr(client, "ANSWER_SECONDS", 1.0)


def one_story_topics(folder: Path, seed: int, policies: tuple[str, ...], steps: int) -> Counter[str]:
    """Tell a story; a failure prints how to repeat it."""
    story = Story(folder, seed, policies)
    with patch.object(client, "library", story.cluster.library):
        try:
            story.tell(steps)
        except BaseException:
            print(f"one_story(folder, {seed}, {policies}, {steps}): {dict(story.seen)}")
            raise
    return story.seen


#: Policies of a story, in turn the last one at its end, and the story of every run.
BY_DAY = {("skip",): 7, ("fail", "skip"): 1, ("wait", "skip"): 6, ("fail", "wait", "skip"): 2}
POLICIES = [*BY_DAY]


@pytest.mark.usefixtures("_short_waits")
@pytest.mark.parametrize("policies", POLICIES, ids="-".join)
def test_a_model_has_the_rows_of_the_topic_or_the_run_says_why_not(tmp_path: Path, policies: tuple[str, ...]) -> None:
    seen = one_story_topics(tmp_path, BY_DAY[policies], policies, 5)
    assert seen["compared"] or seen["live.other_topic"]


@pytest.mark.usefixtures("_short_waits")
@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(100, 104))
@pytest.mark.parametrize("policies", POLICIES, ids="-".join)
def test_any_model_has_the_rows_of_the_topic(tmp_path: Path, policies: tuple[str, ...], seed: int) -> None:
    for part in range(5):
        one_story_topics(tmp_path / str(part), seed * 10 + part, policies, 30)


@pytest.mark.usefixtures("_short_waits")
def test_the_first_rows_are_waited_for(tmp_path: Path) -> None:
    """Of a topic without messages, also if they come in a partition that is added."""
    cluster = Cluster()
    topic = cluster.topics[TOPIC] = Topic(1)
    waits, attend = iter(range(100)), Attending.__call__

    def before(attending: Attending, stop: Any) -> bool:
        number = next(waits)
        if number == 3:
            topic.logs.append(type(topic.logs[0])())
            topic.send(1, 7, {"op": "c", "id": 7, "a": 0.5, "b": 0.25, "y": "p"})
        attending._until_idle = 0.0 if number > 12 else None
        return attend(attending, stop)

    with patch.object(client, "library", cluster.library), patch.object(Attending, "__call__", before):
        result = follow(Story(tmp_path, 0, ("fail",))._config(), tmp_path / "run")
    assert (result.summary["updates"], live_rows(tmp_path / "run")) == (1, {7: (0.5, 0.25, "p")})
