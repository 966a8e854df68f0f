"""The contract of a learner, and how learners are found."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from importlib.metadata import PathDistribution
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import raydt
from raydt.errors import ConfigError
from raydt.examples.updates import DELETE, BatchResult, Features, UpdateBatch
from raydt.learners import description_of, learners, traits_of
from raydt.learners.base import Case, Learner, WorkPlan
from raydt.learners.batch_coordinator import BatchCoordinator
from raydt.learners.description import Presentation, RunRecords
from raydt.presentation.blocks import Heading, Table, Text, Tree
from raydt.presentation.charts import ABSENT, Chart
from raydt.presentation.trees import Names
from raydt.sessions.receipt import Method, apply_with_receipt
from raydt.sessions.session import InProcessSession, small_stream
from tests.refusals import refused

# -- learner contract ------------------------------------------------------------------------------------------------
# A learner describes itself completely: nobody else knows its name, and everybody can show what it offers.

ROOT = Path(raydt.__file__).parents[1]
PRODUCT = [
    path
    for package in ("raydt", "actors", "pipelines")
    for path in sorted((ROOT / package).rglob("*"))
    if path.suffix in {".py", ".html", ".css", ".js"}
]
CASES = [
    pytest.param(learner, case, id=f"{kind}: {case.name}")
    for kind, learner in learners().items()
    for case in learner.cases()
]


def names_of(learner: Learner) -> re.Pattern[str]:
    """Kind and folder as words, however they are written, and names that begin as the learner's classes do.

    A name after an underscore, such as a private ``_best_split``, is the field's term and no learner's.
    """
    module = type(learner).__module__
    folder = (sys.modules[module].__package__ or module).rpartition(".")[2]
    words = {word.replace("_", "_?") for word in (learner.kind, folder)}
    classes = {type(learner).__name__, learner.Options.__name__.removesuffix("Options")}
    return re.compile(
        rf"(?<![A-Za-z0-9_])(?i:{'|'.join(sorted(words))})(?![a-z0-9])|(?<![a-z0-9])({'|'.join(sorted(classes))})"
    )


def is_its_own(learner: Learner, path: Path) -> bool:
    """Whether a file is part of the learner: its folder, or the module of one of its estimators."""
    inside = path.relative_to(ROOT / "raydt") if path.is_relative_to(ROOT / "raydt") else Path()
    estimator = inside.parts[:1] == ("estimators",) and re.fullmatch(f"{learner.kind}(_[a-z]+)?", path.stem)
    return inside.parts[:2] == ("learners", learner.kind) or bool(estimator)


def mentions(learner: Learner, path: Path) -> list[str]:
    """Lines of a file that name the learner.

    Not those that name config files, list public names, or say what takes the place of retired options.
    """
    if is_its_own(learner, path) or path == ROOT / "raydt" / "__init__.py":
        return []
    text, names = path.read_text(encoding="utf-8"), names_of(learner)
    former: set[int] = set()
    if path.name == "options.py":
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "retired":
                former |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for number, line in enumerate(text.splitlines(), start=1)
        if number not in former and names.search(re.sub(r"configs/\w+\.yaml", "", line))
    ]


@pytest.mark.parametrize("learner", learners().values(), ids=lambda learner: learner.kind)
def test_nobody_else_knows_a_learners_name(learner: Learner) -> None:
    assert [line for path in PRODUCT for line in mentions(learner, path)] == []


def test_names_are_found_where_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above can fail: each spelling of a name is one, in any file but the learner's."""
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    learner = learners()["best_split"]
    named = ['kind = "best_split"', "from x.best_split.y import z", "BestSplitOptions()", "raydt.BestSplit"]
    other = ["the best split", "best_splits(columns)", "raydt replay configs/best_split.yaml"]
    for place, found in (("pipelines/a.py", 4), ("raydt/learners/b.py", 4), ("raydt/learners/best_split/c.py", 0)):
        file = tmp_path / place
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("\n".join([*named, *other]))
        assert len(mentions(learner, file)) == found
    assert is_its_own(learner, tmp_path / "raydt/estimators/best_split.py")
    assert not is_its_own(learner, tmp_path / "raydt/estimators/base.py")


def test_the_coordinator_declares_what_callers_use() -> None:
    """So that mypy checks its callers, and nothing about it is hidden by an ignored type."""
    declared = {name for name in dir(BatchCoordinator) if not name.startswith("_")}
    used: set[str] = set()
    for path in PRODUCT:
        if path.suffix != ".py" or "learners" in path.parts:
            continue
        text = path.read_text()
        assert not re.search(r"\b(coordinator|session_|learner|options)\b[^\n]*# type: ignore", text), path
        if "actors" in path.parts or any(is_its_own(learner, path) for learner in learners().values()):
            continue  # there it is the name of an actor's handle; an estimator may know its own learner's
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Attribute):
                holder = node.value
                name = holder.attr if isinstance(holder, ast.Attribute) else getattr(holder, "id", None)
                used |= {node.attr} if name == "coordinator" else set()
    assert used <= declared
    assert {"store", "find_equal", "process", "locate"} <= used


def applied(learner: Learner, case: Case) -> tuple[Any, Features, UpdateBatch, InProcessSession, BatchResult]:
    """Options, features and batch of a case, and the session that has applied it, with the result."""
    options = learner.Options(feature_groups=4, **case.options)
    features, batch = small_stream(case)
    session = InProcessSession(learner, options, features, 1, case.plan)
    return options, features, batch, session, session.apply(batch)


@pytest.mark.parametrize(("learner", "case"), CASES)
def test_every_learner_presents_its_cases(learner: Learner, case: Case) -> None:
    options, features, batch, session, result = applied(learner, case)
    description, statistics = description_of(options), session.statistics()
    outcome = description.outcome(statistics, str)
    assert json.loads(json.dumps(outcome)) == outcome
    assert description.size(statistics)
    named = ("nodes", "leaves", "depth", "rebuilds", "rebuilt_rows", "active")
    summary = {name: statistics[name] for name in named} | {"updates": len(batch), "inserts": len(batch)} | outcome
    assert all(isinstance(word, str) and word for line in description.lines(summary) for word in line)
    values = description.values(summary | statistics)
    assert values.keys() == {column.name for column in description.columns}
    assert all(isinstance(values[column.name], column.kind | None) for column in description.columns)
    assert {curve.column for curve in description.curves} <= statistics.keys()
    metrics = {name: np.array([0, value]) for name, value in statistics.items()}
    metrics |= {"seq": np.array([1, len(batch)]), "seconds": np.array([0.1, 0.2]), "inserts": metrics["active"]}
    names = Names(features.describe(), [f"class {k}" for k in range(case.classes)])
    model = description.drawable(session.model())
    run = RunRecords(summary, options.model_dump(), metrics, result.log or {}, model, names)
    shown = description.present(run)
    require_plain(shown)
    require_plain(description.present(RunRecords()))  # of a run that left nothing
    assert shown.model.blocks
    assert shown.work.blocks
    require_receipt(options, case, batch, session)


def require_receipt(options: Any, case: Case, batch: UpdateBatch, session: InProcessSession) -> None:
    """The deletion of three examples has a receipt: JSON values, columns of one length, and words.

    A model has receipts only where it is in one process.
    """
    traits, (state, groups) = traits_of(options), session.state()
    session = InProcessSession(learners()[options.kind], options, session.coordinator.features)
    session.restore(state, groups)
    alive = np.sort(state["id"])[:3]
    nothing = batch.X[:0], batch.y[:0]
    sparse = None if batch.sparse is None else batch.sparse[np.empty(0, np.int64)]
    ops, rows = np.full(len(alive), DELETE, np.int8), np.full(len(alive), -1)
    call = UpdateBatch(batch.stop, ops, alive, *nothing, batch.n_classes, rows, sparse=sparse)
    labels = [] if traits.reading.regression else [f"class {k}" for k in range(max(case.classes, 2))]
    receipt = apply_with_receipt(
        session, call, labels, Method.of(options), copies=("a file",), digest_before=session.digest()
    )
    told = json.loads(json.dumps(receipt.as_dict()))
    assert {len(column) for column in told["deletions"].values()} == {len(alive)}
    assert set(traits.stays) <= set(told["copies"])
    assert set(traits.counts) <= told.keys()
    assert set(receipt.words.titles) <= set(receipt.deletions)
    assert receipt.words.short in repr(receipt)
    assert all(isinstance(word, str) and ABSENT not in word for line in receipt.words.lines for word in line)


def require_plain(shown: Presentation) -> None:
    """Every block is one of the known kinds, and tables are as wide as their headers."""
    for fact in shown.figures:
        assert fact.value
        assert fact.name
    for block in (*shown.model.blocks, *shown.guarantee, *shown.work.blocks):
        assert isinstance(block, Text | Heading | Table | Chart | Tree)
        if isinstance(block, Table):
            assert block.title or not block.rows
            assert {len(row.cells) for row in block.rows} <= {len(block.columns)}
        if isinstance(block, Chart):
            assert block.panels
            assert len(block.at) == len(block.names)


@pytest.mark.parametrize(("learner", "case"), CASES)
def test_traits_say_what_a_case_needs(learner: Learner, case: Case) -> None:
    options = learner.Options(**case.options)
    reading, traits = traits_of(options).reading, traits_of(options)
    assert reading.dense or not case.dense
    assert reading.sparse or not case.sparse
    assert case.sparse or not reading.needs_sparse
    assert reading.missing or not case.missing
    assert reading.regression == (case.classes == 0)
    most = reading.most_classes(sparse=case.sparse)
    assert most is None or case.classes <= most
    assert case.warmup or not traits.warmup
    assert traits.figures == (*traits.counts, *traits.levels)
    dense, ones = (("a", "b"), (False, False)) if case.dense else ((), ()), (4, "ones") if case.sparse else ()
    features = Features(*dense, 2, *ones)
    coordinator = learner.coordinator(options, features, 2, WorkPlan(shared_store=False))
    assert traits.owns_rows == coordinator.rows_are_owned
    assert set(traits.unused) <= set(learner.Options.model_fields)


# -- learners --------------------------------------------------------------------------------------------------------
# Learners are found by folder and by entry point, in every process that has their package.

PLUGIN = """\
from raydt.learners import learners
from raydt.learners.fudyadt import FuDyADT
from raydt.learners.fudyadt.options import FuDyADTOptions
from typing import Literal


class Options(FuDyADTOptions):
    kind: Literal["plugin"] = "plugin"


class Plugin(FuDyADT):
    kind = "plugin"
    Options = Options


LEARNER = Plugin()
"""
CONFIG = """\
source: {kind: synthetic, generator: sea, n: 300}
stream: {model: incremental}
learner: {kind: plugin, max_depth: 3}
cluster: {backend: in_process}
output: {report: false}
"""


def install(folder: Path, entry: str, module: str = PLUGIN) -> Path:
    """A package of one module beside its metadata, as an installer leaves them."""
    info = folder / "plugin-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[raydt.learners]\n{entry}\n")
    (folder / "plugin_learner.py").write_text(module)
    assert PathDistribution(info).entry_points
    return folder


def test_a_learner_of_another_package_is_found_in_a_child_process(tmp_path: Path) -> None:
    place = install(tmp_path, "plugin = plugin_learner:LEARNER")
    (tmp_path / "job.yaml").write_text(CONFIG)
    path = os.pathsep.join([str(place), str(Path(__file__).parents[2])])
    command = [
        sys.executable,
        "-m",
        "pipelines.cli",
        "replay",
        str(tmp_path / "job.yaml"),
        "--out",
        str(tmp_path / "run"),
    ]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    code = "from tests.cases import CASES; print(sorted({t.learner.kind for t in CASES}))"
    cases = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path}, check=True, capture_output=True, text=True
    )
    assert "'plugin'" in cases.stdout


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ("plugin = plugin_learner:MISSING", "learners.broken_entry"),
        ("other = plugin_learner:LEARNER", "learners.other_entry"),
        ("fudyadt = plugin_learner:TWIN", "learners.repeated_entry"),
        ("plugin = plugin_learner:PLAIN", "learners.other_entry"),
    ],
)
def test_what_is_no_learner_is_one_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entry: str, problem: str
) -> None:
    module = f"{PLUGIN}\nPLAIN = object()\nTWIN = FuDyADT()\n"
    monkeypatch.syspath_prepend(install(tmp_path, entry, module))
    monkeypatch.delitem(sys.modules, "plugin_learner", raising=False)
    name, value = entry.split(" = ")
    with refused(problem, ConfigError, name=name, value=value):
        dict(learners.__wrapped__())


def test_a_learner_that_is_found_by_its_folder() -> None:
    assert {"fudyadt", "gbdt"} <= learners().keys()
    assert all(learner.kind == kind for kind, learner in learners().items())
