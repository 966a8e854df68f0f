"""Folders of tables with a log of their own (Delta, Iceberg, Hudi, Paimon): no way to name their files reads them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest

from pipelines.cli import main
from raydt.errors import InputError
from raydt.sources.files.datafile import find_files, refuse_tables, refuse_tables_above
from raydt.sources.files.jsonl import find_kind
from raydt.streams.deletion_log import LoggedDeletions, LogKeys
from tests.refusals import refused

#: A file of the log of each format, and where its data lies.
FORMATS = {
    "a Delta table": ("_delta_log/00000000000000000000.json", "country=DE"),
    "an Iceberg table": ("metadata/v3.gz.metadata.json", "data/country=DE"),
    "a Hudi table": (".hoodie/hoodie.properties", "2024/05"),
    "a Paimon table": ("manifest/manifest-list-5f-0", "bucket-0"),
}
#: Ways to name its files, from the folder that the table ``t`` lies in; PART is the folder of the data.
WAYS = [
    *("t", "t/", ".", "**", "*/**", "t/**", "t/PART", "t/PART/", "t/PART/x.parquet", "t/PART/*.parquet"),
    *("t/**/*.parquet", "*/PART/*", "t/PART/x.*", "./t/PART/../PART", "linked", "links", "links/*", "links/x.parquet"),
    *("links/**", "URI/t", "URI/t/PART/x.parquet"),
]


def table(folder: Path, form: str) -> str:
    log, part = FORMATS[form]
    (folder / "t" / log).parent.mkdir(parents=True)
    (folder / "t" / log).touch()
    (folder / "t" / part).mkdir(parents=True)
    rows = pa.table({"id": [1, 2, 3], "x": [1.0, 2.0, 3.0], "y": ["a", "b", "a"]})
    pq.write_table(rows, folder / "t" / part / "x.parquet")
    (folder / "linked").symlink_to(folder / "t" / part)
    (folder / "links").mkdir()
    (folder / "links" / "x.parquet").symlink_to(folder / "t" / part / "x.parquet")
    return part


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("form", FORMATS)
def test_no_path_reads_the_files(form: str, way: str, tmp_path: Path) -> None:
    path = way.replace("PART", table(tmp_path, form)).replace("URI", tmp_path.as_uri())
    found = {"file": str(tmp_path / "t"), "form": form}
    with refused("files.table", InputError, **found):
        find_kind(path, tmp_path)
    with refused("files.table", InputError, **found):
        find_files([path], tmp_path, (".parquet",))
    with refused("files.table", InputError, **found):
        LoggedDeletions(path, tmp_path, LogKeys("integer"))


@pytest.mark.parametrize("form", FORMATS)
def test_elsewhere_than_on_disk(form: str, tmp_path: Path) -> None:
    """Without links, and with one listing; a subtree of the disk stands for any other file system."""
    table(tmp_path, form)
    elsewhere = pafs.SubTreeFileSystem(str(tmp_path), pafs.LocalFileSystem())
    listed = elsewhere.get_file_info(pafs.FileSelector("", recursive=True))
    with refused("files.table", InputError, file="t", form=form):
        refuse_tables(elsewhere, listed)
    with refused("files.table", InputError, file="t", form=form):
        refuse_tables_above(elsewhere, [f"t/{FORMATS[form][1]}"])


@pytest.mark.parametrize("other", ["_delta_log/", "metadata/readme.json", "manifest/manifest-2024.json", "metadata"])
def test_other_folders_are_read(other: str, tmp_path: Path) -> None:
    if other.endswith("/"):
        (tmp_path / other).mkdir()
    else:
        (tmp_path / other).parent.mkdir(exist_ok=True)
        (tmp_path / other).touch()
    pq.write_table(pa.table({"id": [1]}), tmp_path / "x.parquet")
    for path in (".", "*.parquet", "x.parquet", "**"):
        (place,) = find_files(path, tmp_path, (".parquet",))
        assert place.path == str(tmp_path / "x.parquet")


def test_commands_refuse_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    part = table(tmp_path, "a Delta table")
    clean = tmp_path / "clean.csv"
    clean.write_text("id,x,y\n" + "".join(f"{i},{i}.5,{'ab'[i % 2]}\n" for i in range(60)), encoding="utf-8")
    config = tmp_path / "config.yaml"
    config.write_text(
        "source: {kind: csv, path: clean.csv, id: id}\nstream: {model: incremental}\ncluster: {backend: in_process}\n"
        "learner: {kind: fudyadt}\noutput: {report: false}\n",
        encoding="utf-8",
    )
    run = str(tmp_path / "run")
    with pytest.raises(SystemExit) as ended:
        main(["replay", str(config), "--out", run])
    assert ended.value.code == 0
    file = str(tmp_path / "t" / part)
    for words in (
        ["validate", str(config), "--set", f"source.path={file}", "--set", "source.kind=parquet"],
        ["replay", str(config), "--set", "stream.model=deletion_log", "--set", f"stream.deletion_log={file}"],
        ["update", run, "--insert", file, "--dry-run"],
        ["update", run, "--delete", file, "--dry-run"],
        ["predict", run, file, "--out", str(tmp_path / "out.parquet")],
        ["predict", run, file, "--explain", "0"],
        ["purge", run, "--ids", file, "--dry-run"],
    ):
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert ended.value.code == 2, words
        assert "a Delta table" in capsys.readouterr().err, words
