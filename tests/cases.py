"""Every case of every learner, and the nets that take each of them.

A net is a test that runs the cases of all learners, those of other packages too. It is made by :func:`every_case`
or :func:`net`, which also note what it takes: ``tests/README.md`` shows the notes as a table.
"""

from __future__ import annotations

import random
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import pytest

from pipelines.run_folder import RunFolder
from pipelines.saved_runs import find_state
from raydt.errors import ModelFileError
from raydt.examples.updates import Features, Reading
from raydt.learners import learners
from raydt.learners.base import LOCAL_WORK_LIMIT, Case, Learner, LearnerOptions
from raydt.messages import message
from raydt.sessions.saved_model import SavedModel, open_model
from raydt.sessions.session import InProcessSession
from raydt.sources.base import Source
from raydt.sources.divided import open_source
from raydt.sources.options import ArrowFiles
from raydt.streams.base import Stream
from raydt.streams.deletion_log import Changelog
from tests.small_tables import columns, label, random_changes, table_of, written

#: Feature groups of a case that does not name a number.
GROUPS = 4


@dataclass(frozen=True)
class Trial:
    """A learner and one of its cases."""

    learner: Learner
    case: Case

    @property
    def name(self) -> str:
        """Unique among the cases of all learners."""
        return f"{self.learner.kind}: {self.case.name}"

    @property
    def shipped(self) -> bool:
        """Whether the learner comes with raydt, and not with another package."""
        return type(self.learner).__module__.startswith("raydt.")

    @property
    def options(self) -> LearnerOptions:
        """The options of the case, validated."""
        options: LearnerOptions = self.learner.Options.model_validate(self.section)
        return options

    @property
    def section(self) -> dict[str, Any]:
        """The ``learner`` section of a config."""
        return {"feature_groups": GROUPS, **self.case.options, "kind": self.learner.kind}

    @property
    def reading(self) -> Reading:
        """How rows are to be read."""
        return self.learner.traits(self.options).reading

    @cached_property
    def weighs(self) -> bool:
        """Whether rows or classes have weights."""
        return self.case.weighted or getattr(self.options, "class_weight", None) is not None

    @property
    def needs_warmup(self) -> bool:
        """Whether the learner cannot begin without a warm-up."""
        return bool(self.learner.traits(self.options).warmup)

    @property
    def columns(self) -> dict[str, Any]:
        """The columns of the small tables that the case takes, as keys of the ``source`` section of a config."""
        case = self.case
        features = columns(dense=case.dense, sparse=case.sparse, missing=case.missing)
        weights = {"weight": "weight"} if case.weighted else {}
        return {"id": "id", "features": features, "label": label(case.classes), **weights}

    # -- a change log of its own ----------------------------------------------------------------------------------

    def config(self, folder: Path, updates: int = 120, **sections: dict[str, Any]) -> dict[str, Any]:
        """A config that replays a change log, written to ``folder``; ``sections`` are laid over it."""
        path = written(folder / "changes.arrow", table_of(change_log(updates, self.case.warmup)))
        plan = self.case.plan
        limits = [8 * plan.local_work_limit, *([] if plan.row_cache_bytes is None else [plan.row_cache_bytes])]
        base: dict[str, dict[str, Any]] = {
            "source": {"kind": "arrow", "path": str(path), "op": "op", **self.columns},
            "stream": {"model": "changelog", "warmup": self.case.warmup, "on_error": "skip"},
            "learner": self.section,
            "cluster": {
                "backend": "in_process",
                "batch_size": 16,
                "shards": 2,
                "memory_limit": None if limits == [8 * LOCAL_WORK_LIMIT] else min(limits),
            },
            "checkpoint": {"every_updates": 30, "every_seconds": None},
            "output": {"report": False, "predictions": True, "metrics_every": 25},
        }
        return {name: {**section, **sections.get(name, {})} for name, section in base.items()}

    def stream(self, folder: Path, updates: int = 120) -> Stream:
        """The change log of :meth:`config` as updates."""
        config = self.config(folder, updates)
        return Changelog.model_validate(config["stream"]).make(self.source(config))

    def source(self, config: dict[str, Any]) -> Source:
        """The rows of the change log."""
        return open_source(ArrowFiles.model_validate(config["source"]), reading=self.reading)

    def features(self, source: Source) -> Features:
        """The features of the rows, in the groups of the options."""
        return replace(source.features, groups=self.options.feature_groups)

    def session(self, stream: Stream, shards: int = 2) -> InProcessSession:
        """A session in this process; shards have stores of their own."""
        return InProcessSession(self.learner, self.options, self.features(stream.source), shards, self.case.plan)


def change_log(updates: int, warmup: int, seed: int = 0) -> list[dict[str, Any]]:
    """Inserts for the warm-up, then any operations; some of them are refused."""
    return random_changes(random.Random(f"change log {seed}"), updates, warmup)


#: Every case of every learner.
CASES = [Trial(learner, case) for _, learner in sorted(learners().items()) for case in learner.cases()]


def is_common(trial: Trial) -> bool:
    """Whether each test run takes a case: of those with weights, the first of its learner."""
    weighs = [one for one in CASES if one.learner is trial.learner and one.weighs]
    return not trial.weighs or trial.name == weighs[0].name


def _is_of_turn(name: str, cases: Sequence[Trial], trial: Trial) -> bool:
    """Return True if every test run takes a case in the net of a name: of the net's ``cases`` one of each learner."""
    common = [one for one in cases if one.learner is trial.learner and is_common(one)]
    return trial.name == common[zlib.crc32(f"{name}, {trial.learner.kind}".encode()) % len(common)].name


def place_of(trial: Trial) -> int:
    """Return the number of the learner of a case among all learners, by kind: for diagonals."""
    return sorted({one.learner.kind for one in CASES}).index(trial.learner.kind)


def first_cases() -> list[Trial]:
    """One case of each learner: the first."""
    return [Trial(learner, learner.cases()[0]) for _, learner in sorted(learners().items())]


def a_third(name: str) -> list[Trial]:
    """The first case of each learner and a third of the others: for nets of which a case takes many seconds.

    Other nets take other thirds.
    """
    first = [trial.name for trial in first_cases()]
    others = [trial.name for trial in CASES if trial.name not in first]
    taken = {*first, *others[zlib.crc32(name.encode()) % 3 :: 3]}
    return [trial for trial in CASES if trial.name in taken]


# -- nets ---------------------------------------------------------------------------------------------------------

#: Of each net, the cases that every test run takes, and those that nightly runs take.
NETS: dict[str, tuple[set[str], set[str]]] = {}

#: Tests of each net in each module until now: the learners of each begin elsewhere.
_TESTS = Counter[tuple[str, str]]()


def net(name: str, arguments: str, values: Iterable[tuple[Trial, Any]], often: Callable[..., bool]) -> Any:
    """Parametrise a test by cases and something else; what is not run often is run nightly.

    Parameters
    ----------
    name : str
        Of the net, a few words: its row in ``tests/README.md``.
    arguments : str
        Names of the test's arguments: that of the trial, and that of the other values, which are text.
    values : iterable of (Trial, str)
    often : callable
        Of a trial and a value, whether every test run takes them.
    """
    daily, nightly = NETS.setdefault(name, (set(), set()))
    params = []
    for trial, value in values:
        chosen = often(trial, value)
        (daily if chosen else nightly).add(trial.name)
        params.append(
            pytest.param(trial, value, id=f"{trial.name}, {value}", marks=[] if chosen else pytest.mark.nightly)
        )
    return pytest.mark.parametrize(arguments, params)


def every_case(
    name: str,
    often: Callable[[Trial], bool] | None = None,
    among: Iterable[Trial] | None = None,
    turn: int = 3,
) -> Any:
    """Parametrise a test by ``trial``; see :func:`net`. A net whose test takes minutes is ``among`` some cases.

    A daily run takes one of every ``turn`` learners, each test others, with a common case: each net another. With 1 it
    takes all of them: where the test is the contract of a learner itself, which the nets around it rely on.
    """
    daily, nightly = NETS.setdefault(name, (set(), set()))
    params = []
    cases = CASES if among is None else list(among)
    chosen = list(filter(often or partial(_is_of_turn, name, cases), cases))
    test = name, str(sys._getframe(1).f_globals["__name__"])  # not by the order in which modules are imported
    kinds, first = sorted({trial.learner.kind for trial in chosen}), zlib.crc32(name.encode()) + _TESTS[test]
    mine = kinds[first % turn :: turn] or kinds[first % len(kinds) :][:1] if kinds else []
    _TESTS[test] += 1
    for trial in cases:
        taken = trial in chosen and trial.learner.kind in mine
        (daily if taken else nightly).add(trial.name)
        params.append(pytest.param(trial, id=trial.name, marks=[] if taken else pytest.mark.nightly))
    return pytest.mark.parametrize("trial", params)


def one_of_each(trial: Trial) -> bool:
    """Whether a case is the first of its learner: for nets that are too slow to take all of them in every test run."""
    return trial in first_cases()


def never(trial: Trial) -> bool:
    """For nets, or parts of one, that only nightly runs take."""
    return False


def noted(name: str, often: Iterable[Trial], nightly: Iterable[Trial] = ()) -> None:
    """Note a net that draws its cases itself."""
    daily, rest = NETS.setdefault(name, (set(), set()))
    daily.update(trial.name for trial in often)
    rest.update(trial.name for trial in nightly)


def open_state(location: str | Path | RunFolder) -> tuple[SavedModel, RunFolder]:
    """Return a state and its folder; ModelFileError if it is missing, damaged, or has no training rows."""
    folder = location if isinstance(location, RunFolder) else find_state(location).folder
    saved = open_model(folder.root, filesystem=folder.filesystem)
    if not saved.is_state:
        raise ModelFileError(message("runs.model_only"), file=folder.location)
    return saved, folder
