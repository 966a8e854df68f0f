"""Packages in a notebook: their public names, an import wherever it was started, and the display of models."""

from __future__ import annotations

import inspect
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import pipelines
import raydt
from raydt import ExactForestClassifier, FullyDynamicTreeClassifier, KeyedClassifier


@pytest.mark.parametrize("package", [raydt, pipelines], ids=lambda package: package.__name__)
def test_dir_lists_the_public_names(package: object) -> None:
    names = dir(package)
    assert set(package.__all__) <= set(names)  # type: ignore[attr-defined]
    assert names == sorted(set(names))


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
