"""What a start imports, compiles and needs of the machine."""

from __future__ import annotations

import ast
import errno
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from fractions import Fraction
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import psutil
import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from llvmlite.binding import get_host_cpu_features
from numba import njit

import raydt
from pipelines.display import doctor_lines, reporter
from pipelines.doctor import compile_all, examine, listeners, probe, serves_metrics
from raydt.arrays.blocks import arrow_column, is_clean, numpy_column
from raydt.arrays.kernel import inner_kernel, kernel
from raydt.arrays.kernel_cache import LEVEL, compile_once, kernel_sources, runs_shipped, stamp
from raydt.errors import STORAGE_REMEDIES, ConfigError
from raydt.examples.updates import Features
from raydt.folders.folder import Folder
from raydt.learners import learners
from raydt.learners.fudyadt.build import Listing, new_scratch, sort_columns
from raydt.learners.fudyadt.histograms import SHORT, fill_codes
from raydt.learners.fudyadt.split_search import BLOCK, scan, split_score
from raydt.messages import message
from raydt.parallel import PREPARATION, work_seconds
from raydt.sessions.session import ONE_MODEL, _cases, _concerning
from raydt.trees.records import floor_product
from tests.refusals import refused
from tests.volume import examples

# -- startup ---------------------------------------------------------------------------------------------------------
# Commands import what they need: a command that runs no kernel, and one that starts no Ray, start without them.

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
    assert compile_some("a", "raydt.learners.fudyadt.shard") == 1
    assert compile_some("a", "raydt.learners.fudyadt.shard") == 1
    assert compile_some("b", "raydt.learners.fudyadt.shard") == 2
    assert compile_some("a", "raydt.learners.gbdt.shard") == 3  # kernels of another method
    assert compile_some("c", "one_rule") == compile_some("c", "one_rule") - 1  # kernels that no hash knows
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "other"))
    assert compile_some("a", "raydt.learners.fudyadt.shard") == 6


def test_a_step_that_fails_is_not_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    with pytest.raises(ZeroDivisionError):
        compile_once("a", "raydt.streams", lambda: 1 // 0)
    ran: list[int] = []
    compile_once("a", "raydt.streams", lambda: ran.append(1))
    assert ran


# -- compiled kernels ------------------------------------------------------------------------------------------------


def doubled(x: npt.NDArray[np.float64], i: int) -> float:
    return 2 * x[i]


def sum_doubled(x: npt.NDArray[np.float64]) -> float:
    total = 0.0
    for i in range(len(x)):
        total += inner_doubled(x, i)
    return total


inner_doubled = inner_kernel(doubled)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[Path]]:
    """An empty cache; returns its files of compiled kernels."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    return lambda: sorted(tmp_path.rglob("*.nbc"))


def compiled(*arrays: npt.NDArray[np.generic]) -> tuple[list[float], int]:
    """Sums by a kernel that a new process would have, and how many signatures it has compiled for them."""
    outer, before = kernel(sum_doubled), PREPARATION.compiled
    return [outer(x) for x in arrays], PREPARATION.compiled - before


def test_a_kernel_is_compiled_once_for_each_types_of_its_arguments(cache: Callable[[], list[Path]]) -> None:
    floats, integers = np.arange(5.0), np.arange(5)
    assert compiled(floats) == ([20.0], 1)
    assert compiled(integers) == ([20.0], 1)
    assert compiled(floats, integers, floats[::2]) == ([20.0, 20.0, 12.0], 1)
    assert compiled(floats, integers, floats[::2]) == ([20.0, 20.0, 12.0], 0)
    assert len(cache()) == 3  # no index, and nothing of the inner kernel


@pytest.mark.parametrize("damage", ["cut", "changed", "empty", "other", "gone"])
def test_a_damaged_file_of_a_kernel_is_compiled_again(damage: str, cache: Callable[[], list[Path]]) -> None:
    floats = np.arange(5.0)
    compiled(floats, floats[::2])
    for file in cache():
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 1
        damaged = {"cut": data[:-7], "changed": data, "empty": b"", "other": b"x" * 100}
        file.unlink() if damage == "gone" else file.write_bytes(damaged[damage])
    assert compiled(floats, floats[::2]) == ([20.0, 12.0], 2)
    assert compiled(floats, floats[::2]) == ([20.0, 12.0], 0)


def test_a_kernel_from_the_cache_is_compiled_into_others(cache: Callable[[], list[Path]]) -> None:
    floats = np.arange(5.0)
    compiled(floats)
    inside, before = kernel(sum_doubled), PREPARATION.compiled
    outer = njit(_nrt=False)(lambda x: inside(x) + 1)
    assert outer(floats) == 21.0
    assert PREPARATION.compiled == before


def test_where_nothing_can_be_written_kernels_are_compiled_in_each_process(
    cache: Callable[[], list[Path]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("raydt.arrays.compiler._Files.save", full)
    assert compiled(np.arange(5.0)) == compiled(np.arange(5.0)) == ([20.0], 1)
    assert not cache()


def test_work_takes_no_time_while_kernels_compile_or_load(cache: Callable[[], list[Path]]) -> None:
    heard: list[float] = []
    PREPARATION.heard, before = lambda: heard.append(work_seconds()), PREPARATION.heard
    try:
        for _ in ("compiled", "loaded"):
            began, seconds, total = time.perf_counter(), PREPARATION.seconds, work_seconds()
            compiled(np.arange(5.0))
            passed, spent = time.perf_counter() - began, PREPARATION.seconds - seconds
            assert 0 < spent < passed
            assert work_seconds() - total < passed
    finally:
        PREPARATION.heard = before
    assert heard
    assert heard[-1] - heard[0] < 1e-3


def test_an_interrupted_compilation_ends(cache: Callable[[], list[Path]]) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    PREPARATION.heard, before = interrupt, PREPARATION.heard
    try:
        with pytest.raises(KeyboardInterrupt):
            compiled(np.arange(5.0))
    finally:
        PREPARATION.heard = before
    assert PREPARATION.seconds == PREPARATION.seconds  # no function is under way
    assert compiled(np.arange(5.0)) == ([20.0], 1)


def test_terminals_hear_that_kernels_are_compiled(
    cache: Callable[[], list[Path]], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipelines.display._Compiling._EVERY", 0.0)
    before = PREPARATION.heard
    try:
        reporter()
        compiled(np.arange(5.0), np.arange(5), np.arange(5.0)[::2])
    finally:
        PREPARATION.heard = before
    first, *more = capsys.readouterr().err.splitlines()
    assert first == message("runs.compiling")
    assert more
    assert all(line.startswith("compiling: ") for line in more)


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Kernels as a wheel brings them, compiled for a level of processors by another process: :func:`clean`'s."""
    folder = tmp_path_factory.mktemp("kernels")
    program = (
        "import numpy as np; from raydt.arrays.kernel_cache import compile_once\n"
        "from raydt.arrays.blocks import is_clean\n"
        "compile_once('clean', 'raydt.sessions.session', lambda: is_clean(np.zeros(3, dtype=np.int64)))"
    )
    environment = {"NUMBA_CACHE_DIR": str(folder), "NUMBA_CPU_NAME": LEVEL, "NUMBA_CPU_FEATURES": ""}
    subprocess.run([sys.executable, "-c", program], env=os.environ | environment, check=True)
    return folder


def clean() -> tuple[list[bool], int, bool]:
    """What a kernel says of two arrays, how many a new process would compile for that, and whether also in advance."""
    before, asked = PREPARATION.compiled, []
    fresh = kernel(cast(Any, is_clean).__wrapped__)
    answers = [bool(fresh(np.array(values).view(np.int64))) for values in ([1.0, 2.0], [1.0, -0.0])]
    compile_once("clean", "raydt.sessions.session", lambda: asked.append(True))
    return answers, PREPARATION.compiled - before, bool(asked)


def test_kernels_that_a_wheel_brings_are_not_compiled(
    shipped: Path, cache: Callable[[], list[Path]], monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled_here = clean()
    assert compiled_here[1:] == (1, True)
    for file in cache():
        file.unlink()
    shutil.rmtree(os.environ["NUMBA_CACHE_DIR"])
    bring(monkeypatch, shipped)
    if "avx2" not in {name for name, has in get_host_cpu_features().items() if has}:
        pytest.skip("a processor below the level")
    assert clean() == (compiled_here[0], 0, False)
    assert not cache()


@pytest.mark.parametrize("why", ["an older processor", "another version", "damaged"])
def test_kernels_that_cannot_be_used_are_compiled(
    why: str, shipped: Path, cache: Callable[[], list[Path]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    brought = tmp_path / "brought"
    shutil.copytree(shipped, brought)
    bring(monkeypatch, brought)
    if why == "an older processor":
        monkeypatch.setattr("llvmlite.binding.get_host_cpu_features", lambda: {"sse4.2": True, "avx2": False})
    elif why == "another version":
        for folder in brought.iterdir():
            folder.rename(brought / "0123456789abcdef")
    else:
        for file in brought.rglob("*.nbc"):
            file.write_bytes(file.read_bytes()[:-1])
    answers, compiled_here, in_advance = clean()
    assert (answers, compiled_here) == ([True, False], 1)
    assert in_advance == (why != "damaged")


def bring(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Have this package bring kernels."""
    monkeypatch.setattr("raydt.arrays.kernel_cache.SHIPPED", folder)
    monkeypatch.setattr("raydt.arrays.compiler.SHIPPED", folder)
    runs_shipped.cache_clear()
    monkeypatch.setattr("raydt.arrays.kernel_cache.runs_shipped", runs_shipped.__wrapped__)
    monkeypatch.setattr("raydt.arrays.compiler.runs_shipped", runs_shipped.__wrapped__)


def test_rows_without_weights_or_sparse_features_need_no_kernels_for_those() -> None:
    plain, wide = Features(("a",), (False,)), Features(("a",), (False,), sparse=3)
    for learner in learners().values():
        options, cases = learner.Options.model_validate({"kind": learner.kind}), _cases(learner)
        for features, weighted in ((plain, False), (plain, True), (wide, False)):
            numbers = {number for number, _ in _concerning(learner, options, ONE_MODEL, features, weighted)}
            found = [cases[number] for number in numbers]
            assert found
            assert weighted or not any(case.weighted for case in found)
            assert len({case.sparse for case in found}) == 1
            assert all(case.classes for case in found)


# -- doctor ----------------------------------------------------------------------------------------------------------
# The doctor's facts, against what the operating system says.

STEPS = ("_make", "_open_to_write", "_rename", "_list", "_open_to_read", "_delete_file")


def contents(folder):
    return sorted(str(path) for path in folder.rglob("*"))


def test_facts_are_those_of_this_machine():
    facts = examine()
    assert facts["cpus"] == len(os.sched_getaffinity(0))
    assert facts["memory_bytes"] == psutil.virtual_memory().total
    assert facts["numba_cache_dir"] == os.environ["NUMBA_CACHE_DIR"]
    assert "listeners" not in facts


def test_it_lists_where_copies_may_be(tmp_path, monkeypatch):
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    place = message("verdicts.copy_sessions", folder=f"{tmp_path}/ray", sessions=2)
    assert place not in examine()["copies"]
    for name in ("session_2026-01-01_a", "session_2026-01-02_b"):
        (tmp_path / "ray" / name).mkdir(parents=True)
    facts = examine()
    assert place in facts["copies"]
    assert f"copies of rows may be in  {place}" in doctor_lines(facts)
    swap = any("swap" in place for place in facts["copies"])
    assert swap == (psutil.swap_memory().total > 0)


def test_the_authentication_mode_is_what_ray_would_read(monkeypatch):
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    assert examine()["ray_auth_mode"] == "disabled"
    monkeypatch.delenv("RAY_AUTH_MODE")
    assert "token" in examine()["ray_auth_mode"]


@pytest.mark.parametrize(("address", "loopback"), [("127.0.0.1", True), ("::ffff:127.0.0.1", True), ("0.0.0.0", False)])
def test_listeners_are_found_and_judged(address, loopback):
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as server:
        server.bind((address, 0))
        server.listen()
        found = {entry["port"]: entry for entry in listeners(psutil.Process())}
        assert found[server.getsockname()[1]]["loopback"] is loopback


def test_a_process_that_is_gone_has_no_listeners():
    child = subprocess.Popen([sys.executable, "-c", ""])
    gone = psutil.Process(child.pid)
    child.wait()
    assert listeners(gone) == []


@pytest.mark.parametrize("status", [200, 401])
def test_metrics_that_ask_for_no_token_are_told(status):
    class Endpoint(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(status if self.path == "/metrics" else 404)
            self.end_headers()

        def log_message(self, *_):
            pass

    with HTTPServer(("0.0.0.0", 0), Endpoint) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        assert serves_metrics("0.0.0.0", server.server_port) is (status == 200)
        thread.join()


def test_what_speaks_another_protocol_serves_no_metrics():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()

        def answer():
            connection, _ = server.accept()
            connection.recv(1000)
            connection.sendall(bytes(9))
            connection.close()

        thread = threading.Thread(target=answer)
        thread.start()
        assert not serves_metrics(*server.getsockname())
        thread.join()
    assert not serves_metrics("127.0.0.1", 1)


def test_listeners_with_metrics_are_named():
    entry = {"address": "0.0.0.0", "port": 44217, "process": "python", "loopback": False}
    lines = doctor_lines({"listeners": [{**entry, "metrics": True}, {**entry, "metrics": False}]}).splitlines()
    assert [line.endswith("0.0.0.0:44217 python  (reachable)  (/metrics without a token)") for line in lines] == [1, 0]


def test_compilation_times_every_learner():
    assert {"fudyadt", "streams"} <= compile_all().keys()


@pytest.mark.parametrize("uri", [False, True])
def test_a_probe_times_every_step_and_leaves_nothing_behind(tmp_path, uri):
    place = tmp_path / "new" / "deeper"
    found = probe(place.as_uri() if uri else str(place))
    assert found["location"] == str(place)
    assert list(found["seconds"]) == ["write", "replace", "list", "read", "rename", "delete"]
    assert all(seconds >= 0 for seconds in found["seconds"].values())
    assert found["free_bytes"] > found["bytes"] > 0
    assert contents(tmp_path) == []


def test_a_probe_leaves_what_was_there_alone(tmp_path):
    (tmp_path / "4096").mkdir()
    (tmp_path / "4096" / "manifest.json").write_text("{}")
    before = contents(tmp_path)
    probe(str(tmp_path))
    assert contents(tmp_path) == before


def test_a_folder_on_another_filesystem_can_be_probed():
    found = probe("mock:///bucket/checkpoints")
    assert found["location"] == "mock:///bucket/checkpoints"
    assert found["free_bytes"] is None


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize(
    "number", [errno.ENOSPC, errno.EACCES, errno.EROFS, errno.EIO], ids=errno.errorcode.__getitem__
)
def test_a_step_that_fails_is_named_with_a_remedy(tmp_path, monkeypatch, step, number):
    remedy = STORAGE_REMEDIES.get(number, message("verdicts.other_folder"))
    place, real, failed = tmp_path / "new", getattr(Folder, step), []

    def fail_once(self, *arguments):
        if failed:
            return real(self, *arguments)
        failed.append(step)
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Folder, step, fail_once)
    said = {"folder": str(place), "reason": os.strerror(number), "remedy": remedy}
    with refused("verdicts.probe_step", ConfigError, **said) as caught:
        probe(str(place))
    assert caught.value.exit_code == 2
    assert contents(tmp_path) == []


@pytest.mark.parametrize(
    ("method", "lie", "said"),
    [
        ("read", lambda *_: b"other", "probe_read"),
        ("names", lambda *_: [], "probe_list"),
        ("has", lambda *_: True, "probe_still"),
    ],
)
def test_storage_that_does_not_show_what_was_written_is_refused(tmp_path, monkeypatch, method, lie, said):
    monkeypatch.setattr(Folder, method, lie)
    with refused(f"verdicts.{said}", ConfigError):
        probe(str(tmp_path / "new"))
    assert contents(tmp_path) == []


@pytest.mark.parametrize(
    ("location", "said"),
    [
        ("", "probe_no_name"),
        ("s3://", "probe_no_name"),
        ("nfs3://host/x", "probe_uri"),
        (__file__, "probe_file"),
        (f"{__file__}/below", "probe_step"),
    ],
)
def test_what_is_no_folder_is_refused(location, said):
    with refused(f"verdicts.{said}", ConfigError, folder=location):
        probe(location)


def test_the_command_says_it_in_a_line(raydt, tmp_path):
    code, out, _ = raydt("doctor", "--probe", tmp_path / "new")
    line = next(line for line in out.splitlines() if line.startswith("probe "))
    assert f"{tmp_path / 'new'} can hold checkpoints: 1.05 MB: write " in line
    assert code == 0
    code, out, err = raydt("doctor", "--probe", __file__)
    assert (code, out) == (2, "")
    assert err.startswith(f"error: --probe {__file__}: is a file.")


# -- platforms -------------------------------------------------------------------------------------------------------
# What is used of Linux only has another way: a model is trained, changed, saved and loaded without it.

PROGRAM = """
import os, sys, warnings
warnings.simplefilter("ignore")  # of filelock: only a soft lock is there
for name in ("fcntl", "resource"):
    sys.modules[name] = None
del os.sched_getaffinity
import numpy as np
from click.testing import CliRunner
import pipelines.cli, raydt
X = np.arange(60.0).reshape(20, 3)
tree = raydt.FullyDynamicTreeClassifier().fit(X, X[:, 0] > 30, ids=np.arange(20))
assert tree.forget([3]).active == 19
tree.save(sys.argv[1])
assert raydt.load_model(sys.argv[1]).predict(X[:2]).tolist() == [False, False]
assert CliRunner().invoke(pipelines.cli.cli, ["--help"]).exit_code == 0
"""


def test_without_what_only_posix_or_linux_has(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM, tmp_path / "model"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# -- kernel cache ----------------------------------------------------------------------------------------------------
# Compiled kernels are kept by what they are compiled from: other edits recompile nothing, these always do.

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
from raydt.sessions.session import ONE_MODEL, _cases, _concerning, is_clean
from raydt.trees.records import floor_product
@kernel
def product(rate, size):
    return floor_product(rate, size) + {added}
"""


@pytest.mark.nightly
def test_a_kernel_of_another_package_is_recompiled_with_ours(tmp_path: Path) -> None:
    """It may call any of ours, and Numba's own cache knows its file only."""

    def run(added: int, edit: str = "") -> tuple[str, set[str]]:
        (tmp_path / "other.py").write_text(KERNEL.format(added=added))
        program = (
            f"import raydt.arrays.kernel_cache as k; s = k._sources(); s['arrays/blocks.py'] += {edit!r}\n"
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


# -- kernel statistics -----------------------------------------------------------------------------------------------
# Presort, scans and exact comparisons against plain Python, for values that float codes find hard.


def sorted_column(values: npt.NDArray[np.float64], labels: npt.NDArray[np.int32], bits: int) -> npt.NDArray[np.int64]:
    n = len(values)
    X, rows, scratch = values.reshape(-1, 1) + 0.0, np.arange(n, dtype=np.int32), new_scratch(n, 1, 2)
    fill_codes(X, rows, 0, n, scratch.E)
    sort_columns(Listing(X, np.zeros(1, dtype=np.bool_), rows, rows, labels), scratch, bits, 0, 1)
    return scratch.E[:1]


def columns(rng: np.random.Generator, n: int) -> dict[str, npt.NDArray[np.float64]]:
    return {
        "uniform": rng.random(n),
        "float32": rng.random(n).astype(np.float32).astype(np.float64),
        "constant": np.full(n, 3.25),
        "two values": rng.integers(0, 2, n).astype(np.float64),
        "signs and sizes": rng.normal(size=n) * 10.0 ** rng.integers(-300, 300, n),
        "neighbouring floats": 1.0 + rng.integers(0, 5, n) * np.finfo(float).eps,
        "outlier": np.concatenate([1.0 + rng.integers(0, 3, n - 1) * np.finfo(float).eps, [1e300]]),
        "descending": -np.arange(n, dtype=np.float64),
        "crowded": np.concatenate([1.0 + rng.integers(0, 2**16, n - 1) * 2.0**-40, [2.0]]),
        "denormal": rng.integers(-3, 4, n) * 5e-324,
    }


@pytest.mark.parametrize("n", [1, 2, SHORT, SHORT + 1, 500, 5000])
def test_presort_ranks_by_all_bits(n: int) -> None:
    rng = np.random.default_rng(n)
    labels = rng.integers(0, 3, n).astype(np.int32)
    for name, values in columns(rng, n).items():
        E = sorted_column(values, labels, 2)[0]
        rows, rank = (E & 0xFFFFFFFF) >> 2, E >> 32
        assert sorted(rows.tolist()) == list(range(n)), name
        assert (labels[rows] == (E & 3)).all(), name
        expected = np.unique(values + 0.0, return_inverse=True)[1]
        assert (np.diff(expected[rows]) >= 0).all(), name
        assert ((np.diff(expected[rows]) > 0) == (np.diff(rank) > 0)).all(), name
        assert (np.diff(rank) >= 0).all(), name


def best_by_hand(
    values: npt.NDArray[np.float64], labels: npt.NDArray[np.int32], classes: int, categorical: bool
) -> float:
    counts = np.bincount(labels, minlength=classes)[None, :]
    best = -1.0
    distinct = np.unique(values)
    for value in distinct if categorical else distinct[:-1]:
        left = values == value if categorical else values <= value
        if left.all():
            continue
        score = split_score(np.bincount(labels[left], minlength=classes), counts, 0, int(left.sum()), len(values))
        best = max(best, score)
    return best


@examples(60)
@given(st.integers(2, 5 * BLOCK), st.integers(2, 4), st.booleans(), st.integers(1, 40), st.integers(0, 2**32 - 1))
def test_scan_finds_the_best_split(n: int, classes: int, categorical: bool, distinct: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = rng.integers(0, distinct, n).astype(np.float64)
    labels = ((values * classes / distinct + rng.normal(size=n)) % classes).astype(np.int32) % classes
    bits = max(1, (classes - 1).bit_length())
    E = sorted_column(values, labels, bits)
    counts = np.bincount(labels, minlength=classes)[None, :]
    assume(counts.max() < n)  # a pure node is never scanned
    left, spare = np.empty(classes, dtype=np.int64), np.empty(n, dtype=np.int64)
    score, at = scan(E[0], categorical, counts, 0, left, bits, -1.0, spare)
    assert score == best_by_hand(values, labels, classes, categorical)
    assert (at >= 0) == (len(np.unique(values)) > 1)


@given(st.floats(0, 4, allow_subnormal=False), st.integers(0, 2**52))
def test_floor_product_is_exact(rate: float, size: int) -> None:
    exact = Fraction(rate) * size
    assume(rate >= 1e-200)
    assume(exact < 2**52)
    assert floor_product(rate, size) == exact.numerator // exact.denominator


@given(st.integers(1, 10**6), st.integers(1, 10**6))
def test_floor_product_just_below_and_at_an_integer(whole: int, size: int) -> None:
    rate = whole / size
    for near in (rate, np.nextafter(rate, 0), np.nextafter(rate, 10)):
        exact = Fraction(float(near)) * size
        assert floor_product(float(near), size) == exact.numerator // exact.denominator
