"""Names that other projects use, examples, other Pythons, and golden digests."""

from __future__ import annotations

import inspect
import json
import os
import re
import resource
import shlex
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

import pipelines
from pipelines.cli import cli, main
from raydt.learners.base import WorkPlan
from raydt.messages import message
from tests.golden.streams import FILE, STREAMS, digest_of

# -- names -----------------------------------------------------------------------------------------------------------
# Packages of a user's own that are called ``pipelines`` and ``actors``: raydt finds its own, or says what is wrong.

ROOT = Path(__file__).parents[2]
SCRIPT = "from raydt_command import main; main()"
JOB = """\
source: {kind: synthetic, generator: sea, n: 300}
stream: {model: sliding_window, window: 100}
learner: {kind: fudyadt, max_depth: 4}
output: {report: false}
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with packages of these names."""
    project = tmp_path / "project"
    for name in ("pipelines", "actors"):
        (project / name).mkdir(parents=True)
        (project / name / "__init__.py").write_text("raise ValueError('the project was imported')")
    return project


def run(*command: object, cwd: Path, path: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a program with an import path of its own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "RAY_"))}
    return subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**kept, "PYTHONPATH": path, **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )


@pytest.mark.turns(1)
@pytest.mark.parametrize(
    ("inside", "missing"),
    [
        pytest.param(inside, missing, id=f"{way}-{missing}", marks=[] if (i + inside) % 2 else pytest.mark.nightly)
        for inside, way in enumerate(("on the path", "in the working directory"))
        for i, missing in enumerate(("", "pipelines", "actors"))
    ],
)
def test_the_script_finds_its_own(project: Path, tmp_path: Path, inside: bool, missing: str) -> None:
    if missing:
        (project / missing).rename(tmp_path / "away")
    done = run(sys.executable, "-c", SCRIPT, "doctor", cwd=project if inside else tmp_path, path=f"{project}:{ROOT}")
    assert (done.returncode, done.stderr) == (0, "")


def test_the_module_finds_its_own_beside_it(project: Path, tmp_path: Path) -> None:
    """``python -m`` searches the working directory first, and in the clone that is raydt's."""
    done = run(sys.executable, "-m", "pipelines.cli", "doctor", cwd=ROOT, path=str(project))
    assert (done.returncode, done.stderr) == (0, "")
    (project / "pipelines").rename(tmp_path / "away")
    done = run(sys.executable, "-m", "pipelines.cli", "doctor", cwd=project, path=f"{project}:{ROOT}")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_process_that_has_imported_another_is_told(project: Path, tmp_path: Path) -> None:
    (project / "actors" / "__init__.py").write_text("")
    (project / "pipelines").rename(tmp_path / "away")
    done = run(sys.executable, "-c", "import actors, pipelines", cwd=tmp_path, path=f"{project}:{ROOT}")
    said = message("machine.other_package", name="actors", origin=f"{project}/actors/__init__.py")
    assert done.returncode == 1
    assert said in done.stderr.splitlines()[-1]
    # Estimators need neither of the two packages.
    estimators = "import actors; from raydt import FullyDynamicTreeClassifier as T; T().fit([[0.0], [1.0]], [0, 1])"
    assert run(sys.executable, "-c", estimators, cwd=tmp_path, path=f"{project}:{ROOT}").returncode == 0


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Commands of an environment in which the wheel is installed."""
    folder = tmp_path_factory.mktemp("names")
    clone = folder / "clone"
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, check=True)
    for name in listed.stdout.decode().splitlines():
        if name.startswith(("raydt", "actors/", "pipelines/")) or name in ("pyproject.toml", "README.md", "LICENSE"):
            (clone / name).parent.mkdir(parents=True, exist_ok=True)
            (clone / name).write_bytes((ROOT / name).read_bytes())
    venv.create(folder / "venv", with_pip=False)
    site = folder / "venv" / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    # What the tests have installed; its own raydt is an editable one, which a folder on the path does not bring.
    (site / "dependencies.pth").write_text(str(Path(pytest.__file__).parents[1]) + "\n")
    pip = [sys.executable, "-m", "pip", "--python", folder / "venv", "--disable-pip-version-check", "install"]
    done = subprocess.run([*pip, "--no-deps", clone], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "venv" / "bin"


@pytest.mark.nightly
@pytest.mark.ray
@pytest.mark.parametrize("command", [["replay"], ["sweep", "--grid", "learner.max_depth=2,3"]], ids=lambda c: c[0])
@pytest.mark.parametrize("inside", [False, True], ids=["on the path", "in the working directory"])
def test_workers_of_an_installed_raydt_find_its_own(
    installed: Path, project: Path, tmp_path: Path, inside: bool, command: list[str]
) -> None:
    (tmp_path / "job.yaml").write_text(JOB)
    where = project if inside else tmp_path
    assert run(installed / "python", "-c", "import raydt", cwd=tmp_path, path="").returncode == 0
    done = run(
        installed / "raydt", *command, tmp_path / "job.yaml", "--out", tmp_path / "run", cwd=where, path=str(project)
    )
    assert done.returncode == 0, done.stdout + done.stderr


# -- examples --------------------------------------------------------------------------------------------------------
# Every program of ``examples`` ends well, within a minute of processor time.

EXAMPLES = Path(__file__).parents[2] / "examples"
#: Those that start a Ray.
WITH_RAY = {"two_shards.py"}


def program(name: str) -> object:
    return pytest.param(name, marks=[pytest.mark.nightly, pytest.mark.ray] if name in WITH_RAY else [])


@pytest.mark.turns(2)
@pytest.mark.parametrize("name", [program(path.name) for path in sorted(EXAMPLES.glob("*.py"))])
def test_an_example_ends_well(name: str, tmp_path: Path) -> None:
    began = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout
    assert not list(tmp_path.iterdir())
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert used.ru_utime + used.ru_stime - began.ru_utime - began.ru_stime < 60


# -- pythons ---------------------------------------------------------------------------------------------------------
# The oldest Python that raydt says it takes, with the oldest libraries, and the newest one, with the newest.

PYPROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
EXTRAS = ("sign", "treelite", "onnx", "lightgbm", "sklearn")


def required(name: str) -> list[str]:
    """The requirements in one list of ``pyproject.toml`` (Python 3.10 has no reader of TOML)."""
    found = re.search(rf"^{name} = \[(.*?)\]$", PYPROJECT, re.MULTILINE | re.DOTALL)
    assert found is not None
    return re.findall(r'"([^"]+)"', found[1])


def lowest(requirement: str) -> str:
    """The smallest version that a requirement allows."""
    return re.sub(r">=([\d.]+).*", r"==\1", requirement)


def pythons() -> Iterator[tuple[tuple[int, int], str]]:
    """The Pythons of this machine: those on the path, and those of pyenv."""
    folders = [*os.get_exec_path(), *map(str, Path("~/.pyenv/versions").expanduser().glob("*/bin"))]
    for folder in folders:
        for minor in range(10, 30):
            file = shutil.which(f"python3.{minor}", path=folder)
            works = file and subprocess.run([file, "-c", ""], capture_output=True, check=False).returncode == 0
            if file and works:
                yield (3, minor), file


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("end", ["oldest", "newest"])
def test_every_estimator_and_a_run(end: str, tmp_path: Path) -> None:
    minimum = re.search(r'requires-python = ">=3\.(\d+)"', PYPROJECT)
    assert minimum is not None
    found = dict(pythons())
    version = (3, int(minimum[1])) if end == "oldest" else max(found, default=sys.version_info[:2])
    if version not in found:
        pytest.skip(f"there is no Python {version[0]}.{version[1]} on the path or in ~/.pyenv")
    requirements = [one for name in ("dependencies", *EXTRAS) for one in required(name)]
    if end == "oldest":
        requirements = [lowest(one) for one in requirements]
    subprocess.run([found[version], "-m", "venv", tmp_path / "venv"], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    command = [python, "-m", "pip", "install", "-q", *requirements]
    installed = subprocess.run(command, capture_output=True, text=True, check=False)
    if "Could not find a version" in installed.stderr:
        pytest.skip(f"Python {version[0]}.{version[1]}: {installed.stderr.strip().splitlines()[-1]}")
    assert installed.returncode == 0, installed.stderr
    (tmp_path / "work").mkdir()
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "NUMBA_CACHE_DIR": str(tmp_path / "kernels")}
    command = [python, "-W", "error::DeprecationWarning:raydt", ROOT / "tests" / "smoke.py", tmp_path / "work"]
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-6000:]
    assert ended.stdout.endswith("all is well\n")


# -- golden ----------------------------------------------------------------------------------------------------------
# Digests of generated streams are the committed ones, on this machine and on every other.

GOLDEN = json.loads(FILE.read_text())


def test_every_stream_has_a_digest() -> None:
    assert GOLDEN.keys() == STREAMS.keys()


@pytest.mark.parametrize("name", STREAMS)
def test_digest_is_the_committed_one(name: str) -> None:
    assert digest_of(name) == GOLDEN[name]


@pytest.mark.turns(3)
@pytest.mark.parametrize("name", STREAMS)
def test_shards_that_do_all_the_work_give_the_same(name: str) -> None:
    assert digest_of(name, 3, 777, WorkPlan(local_work_limit=2000, row_cache_bytes=0)) == GOLDEN[name]


@pytest.mark.turns(1)
@pytest.mark.parametrize(
    ("shards", "size", "limit"),
    [(1, 1, 2**40), pytest.param(2, 64, 0, marks=pytest.mark.nightly), (4, 10**6, 2**40), (3, 7, 500)],
)
def test_rows_that_come_and_go_give_the_same_in_any_batches(shards: int, size: int, limit: int) -> None:
    name = "sea permuted, batches, random removal"
    assert digest_of(name, shards, size, WorkPlan(local_work_limit=limit)) == GOLDEN[name]


# -- help --------------------------------------------------------------------------------------------------------------
# The examples that commands print run as printed, one after another in a folder that was empty.


DEMO = Path(pipelines.__file__).with_name("demo.yaml")
#: What an example begins with that is not run here, and why.
NOT_RUN = {
    "raydt demo": "Ray is started by the tests of the demo; here it runs in process",
    "raydt follow": "needs a table that changes, and has no end",
    "raydt serve": "has no end",
    "curl": "asks a server",
    "raydt predict": "needs rows of the reader's",
    "raydt value": "needs labelled rows of the reader's",
    "raydt export": "needs the library of the other format",
    "raydt update runs/first --changes": "needs a change log of the reader's",
    "raydt update states ": "needs changes of the reader's",
    "raydt audit runs/first --shards": "starts Ray",
    "raydt verify receipts": "needs receipts with a key of the reader's",
    "raydt verify runs states": "needs persons among the rows of the reader's",
    "raydt verify runs/live": "needs a run that follows",
    "raydt doctor": "starts Ray, needs a bucket, or compiles all kernels",
}


def examples(name: str | None = None) -> Iterator[str]:
    """The commands that the help of a command, or the first page of help, shows."""
    text = inspect.getdoc((cli if name is None else cli.commands[name]).callback) or ""
    for line in text.splitlines():
        shown = re.search(r"(?:^|  )((?:raydt|curl|\(echo) .+)$", line)
        if shown is not None:
            yield shown.group(1)


def is_run(command: str) -> bool:
    return not any(command.startswith(start) for start in NOT_RUN)


def test_each_command_shows_an_example() -> None:
    found = {name: list(examples(name)) for name in cli.commands}
    assert not [name for name, shown in found.items() if not shown]
    assert all(any(one.startswith(start) for shown in found.values() for one in shown) for start in NOT_RUN)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a reader after the demo and the example of ``replay``, whose runs the others take."""
    place = tmp_path_factory.mktemp("reader")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        pipelines.replay(DEMO, "runs/demo", overrides=["cluster.backend=in_process"])
        for command in examples("replay"):
            run_command(command)
    return place


def run_command(command: str) -> None:
    """Run a line of the help."""
    if command.startswith("("):
        subprocess.run(command, shell=True, check=True)
        return
    with pytest.raises(SystemExit) as ended:
        main(shlex.split(command)[1:])
    assert ended.value.code in (0, None), command


@pytest.mark.timeout(900)  # kernels may have to be compiled
@pytest.mark.parametrize("name", [one for one in cli.commands if one != "replay" and any(map(is_run, examples(one)))])
def test_the_examples_run_as_printed(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    for command in filter(is_run, examples(name)):
        run_command(command)


def test_the_first_steps_are_examples() -> None:
    shown = {one.replace("runs/first", "runs/demo") for name in cli.commands for one in examples(name)}
    assert set(examples()) <= shown
