"""Write small runs of each learner with the program on ``PYTHONPATH``: the runs of its format.

::

    git worktree add ../before 2e3b84d
    PYTHONPATH=../before python tests/former/runs.py 1

A run of the present format is made in the same way, whenever ``FORMAT_VERSION`` is raised; from format 3 on by two
shards, which own the rows of a GBDT. ``receipts-1.jsonl`` is a chain that 60156d2 wrote: deletions, insertions and
purges, signed and not, under the key ``bytes(range(32))``.

``streams.tar.xz`` of a format has its runs over files: learners, streams and types of ids in pairs. Each is there as
it ended, and as it was when it had written its first checkpoint (``-cut``)::

    PYTHONPATH=../before python tests/former/runs.py 1 streams
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SEA, SPARSE = {"generator": "sea"}, {"generator": "sparse", "irrelevant": 12, "drift": 3, "noise": 0.2}
NUMBERS = {"kind": "csv", "path": "numbers.csv", "label": "y"}
#: By the name of the file; before a hyphen, the learner.
LEARNERS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "best_split": (SPARSE, {}),
    "confidence_tree": (SEA, {"rule": "hoeffding", "delta": 0.2}),
    "forest": (SEA, {"n_estimators": 3, "max_depth": 3}),
    "fudyadt": (SEA, {"epsilon": 0.2, "max_depth": 3}),
    "gbdt": (SEA, {"max_iter": 3, "max_leaf_nodes": 4}),
    "forest-numbers": (NUMBERS, {"criterion": "squared_error", "n_estimators": 3, "max_depth": 3}),
    "fudyadt-numbers": (NUMBERS, {"criterion": "squared_error", "max_depth": 3}),
    "sparse_tree": (SPARSE, {"finder": "updgini", "alpha": 0.0, "beta": 0.01, "finder_alpha": 0.2, "max_depth": 3}),
}


def job(kind: str) -> dict[str, Any]:
    """The config of a run."""
    source, options = LEARNERS[kind]
    return {
        "source": source if source is NUMBERS else {"kind": "synthetic", "n": 150, "seed": 7, **source},
        "stream": {"model": "sliding_window", "window": 40, "warmup": 20},
        "learner": {"kind": kind.partition("-")[0], "feature_groups": 2, **options},
        "cluster": {"backend": "in_process", "shards": 2, "memory_limit": 0, "batch_size": 40},
        "checkpoint": {"every_updates": 70, "every_seconds": None, "keep": 2},
        "output": {"report": False, "predictions": True},
    }


#: The folder in which runs over files are written, which their configs name.
PLACE = Path("/tmp/raydt-former")
IDS = ("row", "integer", "text")
#: ``missing`` is a window over rows some of which lack values, which builds of formats 1 and 2 passed over.
STREAMS: dict[str, dict[str, Any]] = {
    "incremental": {},
    "sliding_window": {"window": 24},
    "time_window": {"duration": 24},
    "random_updates": {"insert_probability": 0.7},
    "deletion_log": {},
    "changelog": {},
    "batches": {"steps": [40, 20, 50]},
    "missing": {"model": "sliding_window", "window": 24, "on_error": "skip"},
}


def over_files() -> dict[str, tuple[str, str, str]]:
    """Return learner, ids and stream of each run over files, by its name: each pair of values is in one at least."""
    learners = [learner for learner in LEARNERS if "-" not in learner]
    found = {}
    for i, learner in enumerate(learners):
        for k, stream in enumerate(STREAMS):
            ids = IDS[1 + (i + k) % 2] if stream == "changelog" else IDS[(i + k) % 3]
            found[f"{learner}-{ids}-{stream}"] = learner, ids, stream
    return found


def job_over_files(learner: str, ids: str, stream: str) -> dict[str, Any]:
    """Return the config of a run over files."""
    sparse = LEARNERS[learner][0] is SPARSE
    file = {"changelog": f"{ids}-changes.parquet", "missing": f"{ids}-missing.parquet"}.get(stream, f"{ids}.parquet")
    source = {"kind": "parquet", "path": file, "label": "y", "features": ["ones"] if sparse else ["a", "b", "c"]}
    source |= {"id": None if ids == "row" else "id", "n_features": 16 if sparse else None}
    source |= {"ts": "ts" if stream == "time_window" else None, "op": "op" if stream == "changelog" else None}
    log = {"deletion_log": f"{ids}-gone.csv"} if stream == "deletion_log" else {}
    return {
        "source": {key: value for key, value in source.items() if value is not None},
        "stream": {"model": stream, "warmup": 10, **log, **STREAMS[stream]},
        "learner": {"kind": learner, "feature_groups": 2, **LEARNERS[learner][1]},
        "cluster": {"backend": "in_process", "shards": 2, "batch_size": 10},
        "checkpoint": {"every_updates": 30, "every_seconds": None, "keep": 1},
        "output": {"report": False, "predictions": True},
    }


def write_files() -> None:
    """Write the files that the runs read."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    for ids in IDS:
        rows = [
            {"a": float(i * 37 % 11), "b": i * 5 % 7 + 0.5, "c": ["red", "green", "blue"][i * 7 % 3], "ts": i}
            | {"ones": sorted({i % 5, 5 + i * 3 % 7}), "y": ["no", "yes"][(i * 37 % 11 > 5) ^ (i % 9 == 0)]}
            | ({} if ids == "row" else {"id": f"n{i:02d}" if ids == "text" else i})
            for i in range(64)
        ]
        missing = [row | ({"a": None} if i % 7 == 3 else {}) | ({"c": None} if i % 11 == 5 else {}) for i, row in
                   enumerate(rows)]  # fmt: skip
        changes = []
        for i, row in enumerate(rows):
            changes.append(row | {"op": "insert"})
            changes += [row | {"op": "delete", "id": rows[i - 2].get("id")}] if i % 3 == 2 and i > 12 else []
        for name, table in {"": rows, "-missing": missing, "-changes": changes}.items():
            whole = pa.Table.from_pylist(table).replace_schema_metadata({"n_features": "16"})
            pq.write_table(whole, PLACE / f"{ids}{name}.parquet", compression="zstd")
        gone = "".join(f"{rows[i].get('id', i)},{i + 20}\n" for i in range(0, 40, 2))
        (PLACE / f"{ids}-gone.csv").write_text(f"id,after\n{gone}", encoding="utf-8")


def write_over_files(number: str) -> None:
    """Write the runs of a format over files."""
    from pipelines.cli import main as raydt
    from raydt.exchange import messages as faults

    shutil.rmtree(PLACE, ignore_errors=True)
    PLACE.mkdir()
    write_files()
    for name, what in over_files().items():
        run, cut, config = PLACE / name, PLACE / f"{name}-cut", PLACE / "job.yaml"

        def keep(point: str, run: Path = run, cut: Path = cut) -> None:
            if point == "checkpoint.after_manifest" and not cut.exists():
                shutil.copytree(run, cut)

        faults._handler = keep
        config.write_text(json.dumps(job_over_files(*what)), encoding="utf-8")
        try:
            raydt(["replay", str(config), "--out", str(run)])
        except SystemExit as ended:
            if ended.code:
                raise
        config.unlink()
        for folder in (run, cut):
            for file in (".lock", "log.jsonl"):
                (folder / file).unlink(missing_ok=True)
    with tarfile.open(HERE / f"format-{number}" / "streams.tar.xz", "w:xz", preset=9) as archive:
        for file in sorted(PLACE.rglob("*")):
            archive.add(file, str(file.relative_to(PLACE)), recursive=False, filter=_anonymous)


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = ""
    return member


def main(number: str, streams: bool = False) -> None:
    """Write the runs of a format."""
    if streams:
        return write_over_files(number)
    (HERE / f"format-{number}").mkdir(exist_ok=True)
    for kind in (kind for kind in LEARNERS if number == "1" or "-" not in kind):
        with tempfile.TemporaryDirectory() as folder:
            config, run = Path(folder, "job.yaml"), Path(folder, "run")
            config.write_text(json.dumps(job(kind)), encoding="utf-8")
            rows = "".join(f"{i * 37 % 150},{i * 11 % 7},{1.7e9 + i * 37 % 150}\n" for i in range(150))
            Path(folder, "numbers.csv").write_text(f"a,b,y\n{rows}", encoding="utf-8")
            subprocess.run([sys.executable, "-m", "pipelines.cli", "replay", config, "--out", run], check=True)
            for file in (".lock", "log.jsonl"):  # they name the machine, and folders of it
                (run / file).unlink(missing_ok=True)
            shutil.make_archive(str(HERE / f"format-{number}" / kind), "zip", run)


if __name__ == "__main__":
    main(sys.argv[1], "streams" in sys.argv[2:])
