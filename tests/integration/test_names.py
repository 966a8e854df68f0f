"""Packages of a user's own that are called ``pipelines`` and ``actors``: raydt finds its own, or says what is wrong."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from raydt.messages import message

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
