"""Imports run one way: pipelines -> actors -> raydt, and within each through its rooms in one order."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

import pipelines
import raydt
from raydt import ExactForestClassifier, FullyDynamicTreeClassifier, KeyedClassifier, jobs

ROOT = Path(__file__).parents[2]
FORBIDDEN = {
    "raydt": {"ray", "actors", "pipelines", "tests"},
    "actors": {"pipelines", "tests"},
    "pipelines": {"tests"},
}
NEVER = {"pickle", "cloudpickle", "joblib", "dill", "marshal", "shelve"}

#: Rooms of a package, lowest first: a room imports from those before it only; those of one line are apart.
ROOMS = {
    "raydt": (
        ("messages",),
        ("errors", "installation"),
        ("parallel",),
        ("arrays",),
        ("exchange",),
        ("examples",),
        ("folders", "finders", "evaluation", "presentation"),
        ("batches",),
        ("trees",),
        ("audits",),
        ("learners",),
        ("encoding",),
        ("sources",),
        ("export", "streams"),
        ("sessions",),
        ("keyed",),
        ("estimators",),
        ("attribution",),
        ("jobs",),
    ),
}


def imports(path: Path) -> Iterator[str]:
    """Modules that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            modules = {f"{node.module}.{alias.name}" for alias in node.names}
            yield from (name if name in MODULES else node.module for name in modules)


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


PATHS = [path for package in FORBIDDEN for path in sorted((ROOT / package).rglob("*.py"))]
MODULES = {module_of(path) for path in PATHS}


@cache
def files() -> dict[Path, set[str]]:
    """Modules that each file imports; parsed when a test asks, not in every process that collects."""
    return {path: set(imports(path)) for path in PATHS}


def test_packages_import_one_way_and_nothing_pickles() -> None:
    for path, modules in files().items():
        roots = {name.split(".")[0] for name in modules}
        assert not roots & FORBIDDEN[path.relative_to(ROOT).parts[0]], f"{path} reaches upward"
        assert not roots & NEVER, f"{path} uses pickle"
        assert "ray.data" not in modules
        assert "allow_pickle=True" not in path.read_text()


@pytest.mark.parametrize("package", ROOMS)
def test_rooms_import_in_one_order(package: str) -> None:
    height = {room: floor for floor, rooms in enumerate(ROOMS[package]) for room in rooms}
    prefix = package.replace("/", ".") + "."
    seen = set()
    for path, modules in files().items():
        home = module_of(path).removeprefix(prefix).split(".")[0]
        if not module_of(path).startswith(prefix):
            continue
        seen.add(home)
        for name in modules:
            room = name.removeprefix(prefix).split(".")[0]
            if name.startswith(prefix) and room in height and room != home:
                assert height[room] < height[home], f"{path} imports {name}, which is no lower room"
    assert seen == height.keys(), "every room has its floor"


def test_no_method_imports_another() -> None:
    learners = ROOT / "raydt" / "learners"
    methods = [path.parent.name for path in learners.glob("*/__init__.py")]
    for method in methods:
        others = tuple(f"raydt.learners.{other}" for other in methods if other != method)
        for path in (learners / method).rglob("*.py"):
            wrong = [name for name in files()[path] if name.startswith(others)]
            assert not wrong, f"{path} imports {wrong}"


def test_the_reading_order_of_a_method_names_its_modules() -> None:
    """The first page that a newcomer reads: what it names is a module of the method, a shared one, or an option."""
    for page in sorted((ROOT / "raydt" / "learners").glob("*/__init__.py")):
        options = (page.parent / "options.py").read_text()
        shared = {name.split(".")[-1] for name in MODULES if not name.startswith("raydt.learners.")}
        known = shared | {path.stem for path in (*page.parent.glob("*.py"), *page.parents[1].glob("*.py"))} | MODULES
        named = re.findall(r"``([\w.]+)``", ast.get_docstring(ast.parse(page.read_text())) or "")
        assert [name for name in named if name not in known and f"    {name}:" not in options] == [], page
        assert named, page


def test_no_audit_imports_what_it_checks() -> None:
    fast = ("raydt.batches", "raydt.finders", "raydt.trees")
    waiting = [name for name in MODULES if name.startswith("raydt.audits.") or name.endswith(".audit")]
    found = dict.fromkeys([*waiting, "raydt.learners.gbdt.derivatives"])  # in fixed point: a definition, not a search
    by_module = {module_of(path): modules for path, modules in files().items()}
    while waiting:
        module = waiting.pop()
        assert not [name for name in by_module[module] if name.startswith(fast)], module
        method = module.rpartition(".")[0]
        own = {name for name in by_module[module] if name.startswith(f"{method}.") and not name.endswith(".options")}
        waiting += own - found.keys()
        found |= dict.fromkeys(own)
    assert len(found) > 12


def test_no_files_import_in_a_circle() -> None:
    try:
        TopologicalSorter({module_of(path): files()[path] & MODULES - {module_of(path)} for path in files()}).prepare()
    except CycleError as error:
        pytest.fail(f"a circle of imports: {' -> '.join(error.args[1])}")


# -- notebooks ---------------------------------------------------------------------------------------------------------
# Packages in a notebook: their public names, an import wherever it was started, and the display of models.


@pytest.mark.parametrize("package", [raydt, pipelines], ids=lambda package: package.__name__)
def test_dir_lists_the_public_names(package: object) -> None:
    names = dir(package)
    assert set(package.__all__) <= set(names)  # type: ignore[attr-defined]
    assert names == sorted(set(names))


def test_jobs_are_those_of_pipelines() -> None:
    assert dir(jobs) == sorted(pipelines.__all__)
    assert jobs.replay is pipelines.replay
    assert jobs.tracking is import_module("pipelines.tracking")
    with pytest.raises(AttributeError, match="has no attribute 'no_such'"):
        _ = jobs.no_such


def test_a_folder_called_raydt_hides_nothing(tmp_path: Path) -> None:
    """As the folder of a clone does in the folder above it."""
    if find_spec(f"__editable___raydt_{raydt.__version__.replace('.', '_')}_finder"):
        pytest.skip("installed by an earlier build: pip install -e . again")
    (tmp_path / "raydt").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", "import raydt, pipelines; print(raydt.load_model.__name__, pipelines.Config.__name__)"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.stdout.split() == ["load_model", "Config"], done.stderr


@pytest.mark.parametrize(
    "model", [FullyDynamicTreeClassifier(beta=0.3), KeyedClassifier(ExactForestClassifier(max_depth=3))]
)
def test_models_show_in_a_notebook(model: object, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = model._repr_html_()  # type: ignore[attr-defined]
    assert type(model).__name__ in shown
    assert "<div" in shown
    monkeypatch.setitem(sys.modules, "sklearn.utils", None)
    assert model._repr_html_().startswith("<pre>")  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", sorted(set(raydt.__all__) - {"__version__", "load_model", "KeyedRegressor"}))
def test_the_docstring_of_an_estimator_says_the_default_of_each_parameter(name: str) -> None:
    model = getattr(raydt, name)
    lines = [
        line.strip() for line in inspect.getdoc(model).split("Parameters\n")[1].split("Attributes\n")[0].splitlines()
    ]
    for parameter in inspect.signature(model).parameters.values():
        said = next(line for line in lines if line.startswith(f"{parameter.name} : "))
        if parameter.default is not parameter.empty:
            assert said.endswith(f"default {parameter.default!r}"), said
