"""A warm-up ends before the first operation that is no insertion; what comes then is as if it had been so short.

Every learner, in process and in shards, restored anywhere; whole runs that are killed; models by key; rows that the
shards read for a warm-up that does not last.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import pipelines
from pipelines.auditing import audit_run
from raydt.exchange.messages import injected
from raydt.keyed.groups import digest_of
from raydt.streams.deletion_log import Changelog
from tests.cases import Trial, change_log, every_case, one_of_each
from tests.cut_runs import Gone, at
from tests.keyed_cases import KEYS, config, files, rows_of
from tests.nets.test_continued import Updated, require_equal
from tests.nets.test_runs import HOW, exactly, results
from tests.small_tables import table_of, written
from tests.volume import nightly

#: Longer than any log here.
LONG = 10_000
#: Seeds of a case.
SEEDS = range(8 if nightly else 2)


def first_other(rows: list[dict[str, Any]]) -> int:
    """Return the number of the first row that is no insertion: so long is the warm-up."""
    return next(number for number, row in enumerate(rows) if row["op"] != "insert")


class Learned:
    """Results of a learner on a log, in batches cut at random, whose warm-up is to have ``warmup`` updates."""

    def __init__(self, trial: Trial, source: dict[str, Any], warmup: int, seed: int, shards: int) -> None:
        draw = random.Random(f"{seed} {warmup}")
        #: Of a forest that opens a subtree when somebody looks, what was done depends on how the stream is cut.
        self.lazy = getattr(trial.options, "rebuild", "") == "lazy"
        stream = Changelog(warmup=warmup, on_error="skip").make(trial.source({"source": source}))
        session = trial.session(stream, shards)
        self.updates: dict[int, Any] = {}
        self.logs: list[tuple[Any, ...]] = []
        while (batch := next(stream.batches(draw.randrange(1, 30)), None)) is not None:
            if draw.random() < 0.15:
                state, groups = session.state()
                session = trial.session(stream, draw.choice((1, 3)))
                session.restore(state, groups)
            result = session.apply(batch, skip_refused=True)
            refused = {one.position: one.reason for one in result.refused}
            for place in range(len(batch)):
                path = None if self.lazy else result.path[place]
                told = batch.op[place], result.predictions[place], path, refused.get(place)
                self.updates[batch.start + place] = repr(told)
            self._note(result.log)
            if draw.random() < 0.15:
                stream.restore(stream.state())
        self.warmup = stream.warmup
        self.statistics = {name: n for name, n in session.statistics().items() if name not in HOW}
        self._note(session.finish())
        self.digest = session.digest()
        self.model = exactly(session.model())

    def _note(self, log: dict[str, Any]) -> None:
        named = [log[name].tolist() for name in sorted(log) if name not in HOW]
        self.logs += map(repr, zip(*named, strict=True))


@every_case("a warm-up that ends early")
def test_a_warmup_that_ends_early_is_a_shorter_one(trial: Trial, tmp_path: Path) -> None:
    for seed in SEEDS:
        draw = random.Random(seed)
        rows = change_log(90, draw.choice((1, 2, 5, 12, 31, 60)), seed)
        if draw.random() < 0.4:  # an insertion that is refused counts, too
            rows.insert(2, rows[0])
        end = first_other(rows)
        path = written(tmp_path / f"{seed}.arrow", table_of(rows))
        source = {"kind": "arrow", "path": str(path), "op": "op", **trial.columns}
        planned = draw.choice((end + 1, end + 5, LONG))
        early = Learned(trial, source, planned, seed, shards=draw.choice((1, 2, 3)))
        short = Learned(trial, source, end, seed, shards=2)
        assert early.warmup == short.warmup == end
        assert early.digest == short.digest, (seed, end)
        assert early.updates == short.updates
        assert early.model == short.model
        if not early.lazy:
            assert early.statistics == short.statistics
            assert sorted(early.logs) == sorted(short.logs)


#: Inserts before the first other operation, in whole runs: no multiple of what metrics are recorded at.
BEFORE = 33


def early(trial: Trial, folder: Path, warmup: int) -> dict[str, Any]:
    """Return the config of a run whose log has so many insertions first."""
    rows = change_log(120, BEFORE)
    base = trial.config(folder, 1)
    base["source"]["path"] = str(written(folder / "rows.arrow", table_of(rows)))
    base["stream"]["warmup"] = warmup
    return base | {"warmup": first_other(rows)}


def run(job: dict[str, Any], folder: Path, **stream: Any) -> pipelines.RunResult:
    job = {name: section for name, section in job.items() if name != "warmup"}
    return pipelines.replay({**job, "stream": {**job["stream"], **stream}}, folder)


def needs_a_model(trial: Trial) -> bool:
    """Return True if every test run takes a case: the first of a learner that has no model before a warm-up."""
    return one_of_each(trial) and bool(trial.learner.traits(trial.options).warmup)


@every_case("a run whose warm-up ends early", often=one_of_each)
def test_a_run_whose_warmup_ends_early(trial: Trial, tmp_path: Path) -> None:
    """Killed within the warm-up, where it ends and later, and resumed; the summary says where it ended."""
    job = early(trial, tmp_path, LONG)
    short = run(job, tmp_path / "short", warmup=job["warmup"])
    whole = run(job, tmp_path / "early")
    assert results(whole) == results(short)
    ended = {"updates": job["warmup"], "warmup": LONG}
    assert ended.items() < whole.summary["early_warmup"].items()
    assert short.summary["early_warmup"] is None
    report = audit_run(whole.path)
    assert (report.conformance, report.failures, report.ok) == ("holds", [], True)
    for moment in range(1, 7) if nightly else (2, 4):
        folder = tmp_path / f"killed {moment}"
        with injected(at(moment)), pytest.raises(Gone):
            run(job, folder)
        again = pipelines.resume(folder)
        assert results(again) == results(short)
        assert again.summary["early_warmup"] == whole.summary["early_warmup"]


@every_case("an update within the warm-up", often=needs_a_model)
def test_an_update_ends_the_warmup(trial: Trial, tmp_path: Path) -> None:
    """That of a run that was killed within it, and takes the updates in."""
    (tmp_path / "twin").mkdir()
    updated = Updated(trial, tmp_path, inserts=110, stream={"warmup": LONG})
    assert updated.begin < 110
    run = updated.resume()
    require_equal(updated, run)
    assert run.summary["early_warmup"] is None  # it was asked for
    report = audit_run(run.path)
    assert (report.conformance, report.failures, report.ok) == ("holds", [], True)


@every_case("keys whose warm-ups end early", often=needs_a_model)
def test_each_key_ends_its_own_warmup(trial: Trial, tmp_path: Path) -> None:
    together, own = files(trial, tmp_path)
    long = {"stream": {**config(trial, together)["stream"], "warmup": LONG}}
    result = pipelines.replay({**config(trial, together, key="key"), **long}, tmp_path / "run")
    digests = {}
    for seed, key in enumerate(KEYS):
        end = first_other(change_log(70, trial.case.warmup, seed))
        if not end:
            continue
        short = config(trial, own[key])
        short["stream"]["warmup"] = end
        alone = pipelines.replay(short, tmp_path / f"run {key}")
        digests[key] = alone.digest
        for table in ("predictions", "quarantine"):
            assert repr(rows_of(result.path, table, key)) == repr(rows_of(alone.path, table)), (key, table)
    if len(digests) == len(KEYS):
        assert result.digest == digest_of(digests)
    assert audit_run(result.path).ok
