"""A machine that is short of memory or of open files is named, and never the file that was being read."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import random
import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from small_job import JOB

from pipelines import replay, resume
from pipelines.operation import dump_yaml
from raydt import load_model
from raydt.errors import ResourceError
from raydt.folders.folder import Folder
from raydt.sources.files.csv import CsvDataFile
from raydt.sources.files.datafile import ArrowDataFile, DataFile, ParquetDataFile, reading
from raydt.sources.files.libsvm import LibsvmDataFile
from tests.refusals import refused

pytestmark = pytest.mark.usefixtures("steady_checkpoints")

OF_MEMORY: list[BaseException] = [
    MemoryError(),
    pa.ArrowMemoryError("malloc of size 4096 failed"),
    OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)),
]
SHORTAGES = [*OF_MEMORY, *(OSError(number, os.strerror(number)) for number in (errno.EMFILE, errno.ENFILE))]
#: What blames a file.
BLAME = ("complete", "damaged", "Restore", "does not hold", "different types")


def of(error: BaseException) -> str:
    return "out of memory" if error in OF_MEMORY else "many open files"


def named(error: BaseException) -> str:
    return f"{type(error).__name__} {error}"


def assert_not_blamed(text: str, error: BaseException) -> None:
    assert of(error) in text
    assert not [word for word in BLAME if word in text], text


def test_open_files_are_counted_by_the_system(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [1.0]}), tmp_path / "rows.parquet")
    before, held = resource.getrlimit(resource.RLIMIT_NOFILE), [os.open(tmp_path, os.O_RDONLY)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (held[0] + 8, before[1]))
    try:
        with contextlib.suppress(OSError):
            while True:
                held.append(os.open(tmp_path, os.O_RDONLY))
        with refused("machine.process_files", ResourceError), reading("rows.parquet"):
            pq.ParquetFile(tmp_path / "rows.parquet")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        for descriptor in held:
            os.close(descriptor)


@pytest.fixture
def rows(tmp_path: Path) -> dict[str, str]:
    """The same rows in a file of each kind."""
    n = 3000
    table = pa.table({"x": [float(i * 37 % 101) for i in range(n)], "y": [i * 37 % 101 > 50 for i in range(n)]})
    pq.write_table(table, tmp_path / "rows.parquet", row_group_size=500)
    with pa.ipc.new_file(tmp_path / "rows.arrow", table.schema) as writer:
        writer.write_table(table, 500)
    lines = [f"{x},{int(y)}" for x, y in zip(*table.to_pydict().values(), strict=True)]
    (tmp_path / "rows.csv").write_text("\n".join(["x,y", *lines]), encoding="utf-8")
    lines = [f"{int(y)} 1:1 {2 + i % 50}:1" for i, y in enumerate(table["y"].to_pylist())]
    (tmp_path / "rows.libsvm").write_text("\n".join(lines), encoding="utf-8")
    return {kind: str(tmp_path / f"rows.{kind}") for kind in ("parquet", "arrow", "csv", "libsvm")}


KINDS: dict[str, type[DataFile]] = {
    "parquet": ParquetDataFile,
    "arrow": ArrowDataFile,
    "csv": CsvDataFile,
    "libsvm": LibsvmDataFile,
}


class Short:
    """Batches of a file, or an error in place of the batch ``at``, counted from 1, of all that are read."""

    def __init__(self, work: Callable[..., Iterator[Any]], error: BaseException | None = None, at: int = 0) -> None:
        self.work, self.error, self.at, self.count = work, error, at, 0

    def batches(self, file: DataFile, *arguments: Any) -> Iterator[Any]:
        for batch in self.work(file, *arguments):
            self.count += 1
            if self.error is not None and self.count == self.at:
                raise self.error
            yield batch


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("error", SHORTAGES, ids=named)
def test_a_run_that_lacks_something_resumes(
    kind: str, error: BaseException, rows: dict[str, str], tmp_path: Path, monkeypatch, raydt
) -> None:
    label = {} if kind == "libsvm" else {"label": "y"}
    learner = {"kind": "sparse_tree"} if kind == "libsvm" else {"kind": "fudyadt", "max_depth": 3}
    job = {**JOB, "source": {"kind": kind, "path": rows[kind], **label}, "learner": learner}
    work = KINDS[kind]._batches
    all_read = Short(work)
    with monkeypatch.context() as patch:
        patch.setattr(KINDS[kind], "_batches", lambda *arguments: all_read.batches(*arguments))
        right = replay(job, tmp_path / "right").summary["model_digest"]
    (tmp_path / "job.yaml").write_text(dump_yaml(job), encoding="utf-8")
    run = tmp_path / "run"
    with monkeypatch.context() as patch:
        short = Short(work, error, random.Random(f"{kind} {error}").randrange(all_read.count) + 1)
        patch.setattr(KINDS[kind], "_batches", lambda *arguments: short.batches(*arguments))
        code, out, err = raydt("replay", tmp_path / "job.yaml", "--out", run)
    assert (code, out) == (1, "")
    assert_not_blamed(err, error)
    assert "Traceback" not in err
    if run.exists():  # it has begun
        assert f"raydt resume {run}" in err
        assert json.loads((run / "summary.json").read_text(encoding="utf-8"))["exit_reason"] != "bad_input"
        assert resume(run).summary["model_digest"] == right


@pytest.mark.parametrize("error", SHORTAGES, ids=named)
def test_a_state_is_not_blamed(error: BaseException, tmp_path: Path, monkeypatch, raydt) -> None:
    run = tmp_path / "run"
    replay(JOB, run)
    pq.write_table(pa.table({f"x{i}": [1.0] for i in range(3)}), tmp_path / "new.parquet")
    work, draw = Folder._open_to_read, random.Random(str(error))

    def at(number: int) -> Callable[..., Any]:
        left = iter(range(number))

        def fail(folder: Folder, path: str) -> Any:
            if next(left, None) is None:
                raise error
            return work(folder, path)

        return fail

    for command in (["predict", run, tmp_path / "new.parquet", "--out", tmp_path / "p.parquet"], ["audit", run]):
        with monkeypatch.context() as patch:
            patch.setattr(Folder, "_open_to_read", at(draw.randrange(2, 5) if command[0] == "audit" else 1))
            code, out, err = raydt(*command)
        assert (code, out) == (1, ""), err
        assert_not_blamed(err, error)
    with monkeypatch.context() as patch:
        patch.setattr(Folder, "_open_to_read", at(0))
        with pytest.raises(ResourceError) as raised:
            load_model(run)
    assert_not_blamed(str(raised.value), error)
    load_model(run)
