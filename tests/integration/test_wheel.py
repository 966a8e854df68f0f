"""A wheel built from the sources works from any directory, without the sources beside it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import raydt
from raydt.streams.deletion_log import warmup

pytestmark = pytest.mark.nightly

ROOT = Path(__file__).parents[2]
CONFIG = """\
source: {kind: synthetic, generator: sea, n: 300}
stream: {model: sliding_window, window: 100}
learner: {kind: fudyadt, epsilon: 0.5, max_depth: 4}
cluster: {backend: in_process}
"""


def run(*command, **options):
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, **options)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Folder the wheel is installed to. Built from a copy, since a build leaves files in its source tree."""
    folder = tmp_path_factory.mktemp("wheel")
    clone = folder / "clone"
    for package in ("raydt", "actors", "pipelines"):
        shutil.copytree(ROOT / package, clone / package, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("pyproject.toml", "README.md", "LICENSE", "raydt_command.py"):
        shutil.copy(ROOT / file, clone / file)
    pip = sys.executable, "-m", "pip", "--disable-pip-version-check"
    run(*pip, "wheel", "--no-deps", "--wheel-dir", str(folder), str(clone))
    [wheel] = folder.glob("raydt-*.whl")
    run(*pip, "install", "--no-deps", "--target", str(folder / "site"), str(wheel))
    return folder / "site"


@pytest.fixture
def user(site, tmp_path):
    """Run Python in a directory of the user's own with what the wheel has installed."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    variables |= {"PYTHONPATH": str(site)}
    return lambda *arguments: run(sys.executable, *arguments, cwd=tmp_path, env=variables)


def test_what_is_installed(site, user):
    folders = user("-c", "import raydt, actors, pipelines as p; print(raydt.__file__, actors.__file__, p.__file__)")
    assert [Path(path).parents[1] for path in folders.split()] == [site] * 3
    assert user("-m", "pipelines.cli", "--version").split()[-1] == raydt.__version__
    assert (site / "bin" / "raydt").is_file()
    assert {path.name for path in site.glob("*/py.typed")} == {"py.typed"}
    assert {path.name for path in site.iterdir()} - {"__pycache__"} == {
        "actors", "bin", "pipelines", "raydt", "raydt_command.py", f"raydt-{raydt.__version__}.dist-info"
    }  # fmt: skip


def test_what_the_sources_have_compiled_is_not_compiled_again(user):
    warmup()
    looked_up = "; print(*(sum(found.values()) for found in draw.stats[1:]))"
    program = "from raydt.streams.deletion_log import _draw as draw, warmup; warmup()"
    assert user("-c", program + looked_up).split() == ["1", "0"]  # hits, misses


def test_a_replay_with_its_report(site, user, tmp_path):
    (tmp_path / "config.yaml").write_text(CONFIG)
    user("-m", "pipelines.cli", "replay", "config.yaml", "--out", "run")
    report = (tmp_path / "run" / "report.html").read_text()
    assert (site / "pipelines" / "report" / "page.css").read_text().strip() in report
    assert (tmp_path / "run" / "summary.json").is_file()


def test_the_data_files_are_those_of_the_sources(site):
    def files(root):
        return {
            path.relative_to(root): path.read_bytes()
            for package in ("raydt", "actors", "pipelines")
            for path in (root / package).rglob("*")
            if path.is_file() and "__pycache__" not in path.parts
        }

    assert files(site) == files(ROOT)
