"""Threads of Arrow that read ahead in a Python file: none reads on behind a scan that is broken off."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from raydt.errors import InputError
from raydt.sources.divided import open_source
from raydt.sources.files.content import ContentHash
from raydt.sources.options import CsvFiles

ROWS = 700_000  #: In blocks of 1 MiB.


def limited(folder: Path) -> object:
    """Count labels up to a limit."""
    (folder / "t.csv").write_text("x,y\n" + "1.25,a\n2.5,b\n" * (ROWS // 2))
    return open_source(CsvFiles(path="t.csv", positive="a", limit=10), folder)


def refused(folder: Path) -> InputError:
    """Count labels up to a row of another length that is not UTF-8; return the error, which holds its frames."""
    rows = b"1.25,a\n2.5,b\n"
    (folder / "t.csv").write_bytes(b"x,y\n" + rows * (ROWS // 8) + b"1.25,gr\xfcn,b\n" + rows * (ROWS // 2))
    with pytest.raises(InputError) as found:
        open_source(CsvFiles(path="t.csv", positive="a"), folder)
    return found.value


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # Arrow's, of the bad row
@pytest.mark.parametrize("scan", [limited, refused])
def test_a_scan_that_is_broken_off_reads_no_further(
    scan: Callable[[Path], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed, inside, reads = ContentHash.feed, list[int](), list[int]()

    def slow(content: ContentHash, data: bytes, at: int) -> None:
        inside.append(at)
        time.sleep(0.05)
        reads.append(at)
        feed(content, data, at)
        inside.pop()

    monkeypatch.setattr(ContentHash, "feed", slow)
    kept = scan(tmp_path)  # noqa: F841 - an error keeps the frames in which a reader may live
    assert not inside
    assert reads
    there = len(reads)
    time.sleep(0.2)
    assert len(reads) == there


PROGRAM = """
import sys
from pathlib import Path
from raydt.errors import InputError
from tests.unit.test_sources_read_ahead import CsvFiles, open_source
try:
    kept = open_source(CsvFiles(path="t.csv", positive="a", **eval(sys.argv[2])), Path(sys.argv[1]))
except InputError as error:
    kept = error
"""


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("scan", [limited, refused])
def test_a_process_that_ends_behind_a_scan_does_not_abort(scan: Callable[[Path], object], tmp_path: Path) -> None:
    scan(tmp_path)
    options = repr({"limit": 10} if scan is limited else {})
    for _ in range(8):
        ended = subprocess.run([sys.executable, "-c", PROGRAM, tmp_path, options], capture_output=True, check=False)
        assert ended.returncode == 0, ended.stderr.decode()
