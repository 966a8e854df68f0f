"""The parent: hands mutations to child processes, watches them, and sees in which mutation one has died."""

from __future__ import annotations

import json
import os
import queue
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipelines import replay
from raydt.learners import learners
from raydt.sessions.session import compile_kernels
from tests.corpus.cases import config_of
from tests.fuzz.mutations import BY_KEY, LEARNERS
from tests.fuzz.targets import Target, all_targets
from tests.keyed_runs import config, files

ROOT = Path(__file__).parents[2]

#: Seconds that one mutation may take, and that a child may take to start.
PATIENCE, START_PATIENCE = 20.0, 120.0


@dataclass(frozen=True)
class Finding:
    """A mutation that was neither read nor refused."""

    number: int
    target: str
    said: str


@dataclass
class Tally:
    """What came of all mutations."""

    verdicts: Counter[tuple[str, str]] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)
    slowest: float = 0.0

    def add(self, other: Tally) -> None:
        """Count those of another child too."""
        self.verdicts += other.verdicts
        self.findings += other.findings
        self.slowest = max(self.slowest, other.slowest)

    def summary(self) -> str:
        """A line for each target."""
        targets = sorted({target for target, _ in self.verdicts})
        lines = [
            f"{target:<32}{self.verdicts[target, 'reads']:>7} read{self.verdicts[target, 'refused']:>7} refused"
            f"{self.verdicts[target, 'finding']:>5} findings"
            for target in targets
        ]
        return "\n".join([*lines, f"{sum(self.verdicts.values())} mutations, slowest {self.slowest:.2f} s"])


def run(mutations: int, seed: int, processes: int = 2, only: int | None = None) -> Tally:
    """Try ``mutations`` mutations of ``seed``, or the one of number ``only``."""
    tally = Tally()
    with tempfile.TemporaryDirectory(prefix="raydt-fuzz-") as scratch:
        spans = [(only, only + 1, 1)] if only is not None else [(i, mutations, processes) for i in range(processes)]
        models = make_models(Path(scratch), range(only, only + 1) if only is not None else range(mutations))
        with ThreadPoolExecutor(len(spans)) as pool:
            for part in pool.map(lambda span: _share(seed, *span, Path(scratch), models), spans):
                tally.add(part)
    tally.findings.sort(key=lambda finding: finding.number)
    return tally


def make_models(scratch: Path, numbers: range) -> Path:
    """A folder with a ``model`` and a ``state`` of the good rows, and one with both for each case that is mutated."""
    models = scratch / "models"
    targets = all_targets(models)
    tried = [targets[number % len(targets)] for number in numbers[: len(targets)]]
    names = {one.folder.relative_to(models).parts[0] for one in tried if not isinstance(one, Target)}
    cases, keyed = ({name: every[name] for name in every if name in names} for every in (LEARNERS, BY_KEY))
    for kind in {trial.learner.kind for trial in (*cases.values(), *keyed.values())}:
        compile_kernels(learners()[kind])  # here, so that no child takes long for that
    _make(config_of("clean.csv", {}, {}), scratch / "run", models)
    for name, trial in cases.items():
        rows = scratch / f"rows {name}"
        rows.mkdir()
        _make(trial.config(rows, updates=60), scratch / f"run {name}", models / name)
    for name, trial in keyed.items():
        rows = scratch / f"rows {name}"
        rows.mkdir()
        whole, own = files(trial, rows)
        for file in own.values():
            file.unlink()
        _make(config(trial, whole, key="key"), scratch / f"run {name}", models / name)
    return models


def _make(config: dict[str, Any], run: Path, models: Path) -> None:
    out = Path(replay(config, run).path)
    models.mkdir(parents=True)
    shutil.copytree(out, models / "run")
    (out / "model").rename(models / "model")
    last = max(
        (path for path in (out / "checkpoints").iterdir() if path.name.isdigit()), key=lambda path: int(path.name)
    )
    last.rename(models / "state")
    (out / "checkpoints" / "rows").rename(models / "rows")


def _share(seed: int, begin: int, end: int, step: int, scratch: Path, models: Path) -> Tally:
    """One child's mutations; a child that dies is replaced by one that goes on behind the mutation it died in."""
    tally = Tally()
    while begin < end:
        with tempfile.TemporaryDirectory(dir=scratch) as folder, tempfile.TemporaryFile() as errors:
            numbers = [str(number) for number in (seed, begin, end, step)]
            command = [sys.executable, "-m", "tests.fuzz.child", *numbers, folder, str(models)]
            environment = {**os.environ, "PYTHONPATH": str(ROOT), "ARROW_DEFAULT_MEMORY_POOL": "system"}
            with (
                subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=errors, env=environment) as child,
                ThreadPoolExecutor(1) as listener,
            ):
                lines: queue.Queue[bytes] = queue.Queue()
                listener.submit(_listen, child, lines)
                try:
                    begin = _watch(child, lines, begin, step, tally, errors)
                finally:
                    child.kill()  # which ends the listener too
    return tally


def _listen(child: subprocess.Popen[bytes], lines: queue.Queue[bytes]) -> None:
    """Hand on what a child says, and an empty line when it ends."""
    assert child.stdout is not None
    for line in child.stdout:
        lines.put(line)
    lines.put(b"")


def _watch(
    child: subprocess.Popen[bytes], lines: queue.Queue[bytes], begin: int, step: int, tally: Tally, errors: Any
) -> int:
    """Take in what a child says until it ends; returns the number of the next mutation to try."""
    at, target, patience = begin, "start", START_PATIENCE
    while True:
        try:
            line = lines.get(timeout=patience)
        except queue.Empty:
            said = f"no answer within {patience:g} s"
            break
        if not line:
            code = child.wait()
            if code == 0:
                return sys.maxsize
            errors.seek(0)
            said = f"the process ended with {code}\n{errors.read()[-4000:].decode(errors='replace')}"
            break
        facts, patience = json.loads(line), PATIENCE
        if "verdict" not in facts:
            at, target = facts["number"], facts["target"]
            continue
        tally.verdicts[target, facts["verdict"]] += 1
        tally.slowest = max(tally.slowest, facts["seconds"])
        if facts["verdict"] == "finding":
            tally.findings.append(Finding(at, target, facts["said"]))
    tally.verdicts[target, "finding"] += 1
    tally.findings.append(Finding(at, target, said))
    return sys.maxsize if target == "start" else at + step
