"""Commands import what they need: a command that runs no kernel, and one that starts no Ray, start without them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from raydt.arrays.blocks import arrow_column, numpy_column
from raydt.arrays.kernel import compile_once

CONFIG = Path(__file__).parents[2] / "configs" / "fudyadt.yaml"
TINY = ("source.n=200", "cluster.backend=in_process")


def imported_by(*arguments: str) -> set[str]:
    """Names of the packages and modules that a command has imported when it ends."""
    program = (
        "import sys; from pipelines.cli import main\n"
        "try:\n    main(sys.argv[1:])\n"
        "except SystemExit as ended:\n    assert not ended.code, ended.code\n"
        "print('imported', *sys.modules)"
    )
    command = [sys.executable, "-c", program, *arguments]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return set(printed.splitlines()[-1].split()[1:])


def test_validate_imports_no_kernels_no_ray_and_no_pandas() -> None:
    found = imported_by("validate", str(CONFIG))
    assert "pyarrow" in found
    assert not found & {"numba", "llvmlite", "ray", "pandas", "jinja2", "rich", "raydt.learners.gbdt"}


def test_a_replay_in_process_with_its_report_imports_no_ray_no_pandas_and_no_other_learner(tmp_path: Path) -> None:
    settings = [part for value in TINY for part in ("--set", value)]
    found = imported_by("replay", str(CONFIG), "--out", str(tmp_path / "run"), *settings)
    assert "numba" in found
    assert not found & {"ray", "pandas", "pyarrow.dataset", "rich", "raydt.learners.gbdt"}


def test_warm_kernels_are_loaded_without_what_compiles_them(tmp_path: Path) -> None:
    """Numba would import its implementations of every function first: a third of the time of a short command."""
    settings = [part for value in TINY for part in ("--set", value)]
    program = (
        "import sys; from pipelines.cli import main\n"
        "try:\n    main(sys.argv[1:])\n"
        "except SystemExit as ended:\n    assert not ended.code, ended.code\n"
        "from raydt.learners.fudyadt.build import build\n"
        "print('loaded', sum(build.stats.cache_hits.values()), sum(build.stats.cache_misses.values()))\n"
        "print('implementations', 'numba.np.linalg' in sys.modules)"
    )
    for run in ("cold", "warm"):
        command = [sys.executable, "-c", program, "replay", str(CONFIG), "--out", str(tmp_path / run), *settings]
        printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert printed[-2:] == ["loaded 1 0", "implementations False"]


@pytest.mark.parametrize("kind", [None, pa.float64()])
@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64, np.float32, np.float64])
def test_columns_are_those_of_pyarrow(dtype: type[np.generic], kind: pa.DataType | None) -> None:
    values = np.arange(-10, 20).astype(dtype)[::2]
    mask = values % 3 == 0
    for missing in (None, mask, np.zeros_like(mask)):
        column = arrow_column(values, kind, missing)
        column.validate(full=True)
        assert column.equals(pa.array(values, kind, mask=missing))
        chunks = pa.chunked_array([column[3:], column[:0], column], column.type)
        for each in (chunks, chunks[5:7], chunks[:0]):
            np.testing.assert_array_equal(numpy_column(each), each.to_numpy(), strict=True)


def test_columns_of_text_and_of_what_has_no_short_way() -> None:
    for values, kind in ((["a", "é", None], pa.string()), ([], pa.string()), ([1, None], pa.int64())):
        assert arrow_column(values, kind).equals(pa.array(values, kind))
    assert arrow_column(np.array([True, False])).equals(pa.array([True, False]))
    assert arrow_column(pa.array([1]), pa.float64()).equals(pa.array([1.0]))


def test_kernels_are_compiled_in_advance_once_for_a_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []

    def compile_some(name: str, module: str) -> int:
        compile_once(name, module, lambda: ran.append(name))
        return len(ran)

    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
    assert compile_some("a", "raydt.learners.fudyadt.learner") == 1
    assert compile_some("a", "raydt.learners.fudyadt.learner") == 1
    assert compile_some("b", "raydt.learners.fudyadt.learner") == 2
    assert compile_some("a", "raydt.learners.gbdt.learner") == 3  # kernels of another method
    assert compile_some("c", "one_rule") == compile_some("c", "one_rule") - 1  # kernels that no hash knows
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "other"))
    assert compile_some("a", "raydt.learners.fudyadt.learner") == 6


def test_a_step_that_fails_is_not_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    with pytest.raises(ZeroDivisionError):
        compile_once("a", "raydt.streams", lambda: 1 // 0)
    ran: list[int] = []
    compile_once("a", "raydt.streams", lambda: ran.append(1))
    assert ran
