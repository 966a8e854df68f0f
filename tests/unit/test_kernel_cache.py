"""Compiled kernels are kept by what they are compiled from: other edits recompile nothing, these always do."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import raydt
from raydt.arrays.kernel import kernel_sources, stamp

PACKAGE = Path(raydt.__file__).parent
METHODS = ("", *sorted(path.name for path in (PACKAGE / "learners").iterdir() if (path / "__init__.py").exists()))
SOURCES = {path.relative_to(PACKAGE).as_posix(): path.read_text() for path in sorted(PACKAGE.rglob("*.py"))}
WITH_KERNELS = [path for path, text in kernel_sources(PACKAGE).items() if text == SOURCES[path]]
WITHOUT = [path for path in SOURCES if path not in WITH_KERNELS]


@pytest.fixture
def edited(tmp_path: Path) -> Callable[[str, str], set[str]]:
    """Methods whose kernels a change of one file recompiles; the empty one stands for the shared kernels."""
    for path, text in SOURCES.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)

    def stamps() -> dict[str, str]:
        sources = kernel_sources(tmp_path)
        return {method: stamp(sources, method) for method in METHODS}

    before = stamps()

    def edit(path: str, text: str) -> set[str]:
        (tmp_path / path).write_text(text)
        after = stamps()
        (tmp_path / path).write_text(SOURCES[path])
        return {method for method in METHODS if before[method] != after[method]}

    return edit


def test_an_edit_of_a_file_without_kernels_recompiles_nothing(edited: Callable[[str, str], set[str]]) -> None:
    assert len(WITHOUT) > 100
    for path in WITHOUT[::7]:
        assert edited(path, SOURCES[path] + '\n\ndef added() -> str:\n    """Nothing."""\n    return "x"\n') == set()


def test_an_edit_of_a_kernel_recompiles_its_method_or_if_it_is_shared_all(
    edited: Callable[[str, str], set[str]],
) -> None:
    for path in WITH_KERNELS[::5]:
        parts = path.split("/")
        own = {parts[1]} if parts[0] == "learners" and len(parts) > 2 else set(METHODS)
        assert edited(path, SOURCES[path] + "\n# a comment\n") == own


def test_constants_and_records_that_kernels_use_recompile(edited: Callable[[str, str], set[str]]) -> None:
    codes = SOURCES["examples/updates.py"]
    assert edited("examples/updates.py", codes.replace("UPDATE = 0, 1, 2, 3, 4", "UPDATE = 0, 1, 2, 4, 3")) == set(
        METHODS
    )
    rows = SOURCES["batches/rows_on_shards.py"]
    swapped = rows.replace("    indptr: Ints\n    indices: Int32s\n\n    @classmethod", "")
    assert swapped != rows
    assert edited("batches/rows_on_shards.py", swapped) == set(METHODS)


def test_the_order_of_fields_recompiles_shared_kernels_too(edited: Callable[[str, str], set[str]]) -> None:
    """Shared kernels receive the records of methods, and Numba tells records apart by the types of their fields."""
    path = "learners/confidence_tree/tree.py"
    swapped = re.sub(r"(    counts: [^\n]*\n)(    own: [^\n]*\n)", r"\2\1", SOURCES[path], count=1)
    assert swapped != SOURCES[path]
    assert edited(path, swapped) == set(METHODS)


def names_in_kernels(tree: ast.Module) -> set[str]:
    """Names that the kernels of a module read."""
    kernels = [
        node
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
        and any(isinstance(d, ast.Name) and d.id.endswith("kernel") for d in node.decorator_list)
    ]
    return {n.id for kernel in kernels for part in kernel.body for n in ast.walk(part) if isinstance(n, ast.Name)}


@pytest.mark.parametrize("path", WITH_KERNELS)
def test_a_kernel_takes_only_kernels_constants_and_records_from_elsewhere(path: str) -> None:
    """The rule that the hash relies on: a constant is in capitals, a function is a kernel, of a record it has all."""
    tree = ast.parse(SOURCES[path])
    used = names_in_kernels(tree)
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("raydt."):
            home = node.module.removeprefix("raydt.").replace(".", "/") + ".py"
            for alias in node.names:
                name = alias.asname or alias.name
                homes = {home, f"{home.removesuffix('.py')}/{alias.name}.py"}  # of a name, or of a module
                record = f"class {name}(NamedTuple):" in SOURCES.get(home, "")
                known = record or name.isupper() or homes & {*WITH_KERNELS}
                assert name not in used or known, f"{path} takes {name} from {home}"


KERNEL = """
from raydt.arrays.kernel import kernel
from raydt.trees.records import floor_product
@kernel
def product(rate, size):
    return floor_product(rate, size) + {added}
"""


def test_a_kernel_of_another_package_is_recompiled_with_ours(tmp_path: Path) -> None:
    """It may call any of ours, and Numba's own cache knows its file only."""

    def run(added: int, edit: str = "") -> tuple[str, set[str]]:
        (tmp_path / "other.py").write_text(KERNEL.format(added=added))
        program = (
            f"import raydt.arrays.kernel as k; s = k._sources(); s['arrays/blocks.py'] += {edit!r}\n"
            "import other; print(other.product(0.5, 9), sum(other.product.stats.cache_hits.values()))"
        )
        environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": str(tmp_path)}
        environment["PYTHONDONTWRITEBYTECODE"] = "1"  # an edit in the same second is of the same age
        command = [sys.executable, "-c", program]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
        return done.stdout.strip(), {path.name for path in tmp_path.glob("*/*") if path.parent.name == "cache"}

    assert run(0)[0] == "4 0"
    assert run(0)[0] == "4 1"
    assert run(1)[0] == "5 0"
    printed, folders = run(1, "# an edit of ours")
    assert printed == "5 0"
    assert len(folders) == 3 + 2  # two of our own kernel
    assert {path.name for path in tmp_path.iterdir()} - {"__pycache__"} == {"cache", "other.py"}
    assert not [*tmp_path.glob("__pycache__/*.nbi")]
