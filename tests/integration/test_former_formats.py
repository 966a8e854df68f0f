"""Runs of every format: each command reads them, or says in one sentence which version does; a purge works on all."""

from __future__ import annotations

import json
import re
import shutil
import tarfile
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pipelines
from pipelines.cli import main
from pipelines.saved_runs import find_state, open_members, open_stream
from pipelines.serving.application import Snapshots
from raydt.errors import InputError
from raydt.estimators import load_model
from raydt.examples.updates import NEWEST_RULES
from raydt.folders.arrays import FORMAT_VERSION, newest
from raydt.folders.checkpoint import read_checkpoint
from raydt.folders.folder import Folder
from raydt.learners import learners
from raydt.learners.base import WorkPlan
from raydt.sessions.saved_model import understood
from raydt.sessions.session import InProcessSession
from tests.former.runs import HERE, LEARNERS, PLACE, over_files

#: Runs of numeric labels are of format 1 only: no command reads their rows, which were a file.
RUNS = [
    (number, kind) for number in range(1, FORMAT_VERSION + 1) for kind in LEARNERS if number == 1 or "-" not in kind
]


def oldest(kind: str, what: str) -> int:
    learner = learners()[kind.partition("-")[0]]
    return learner.oldest(what, LEARNERS[kind][1])


#: What each command gets after the run, and the kind of folder that it needs; None: nothing that has a format.
COMMANDS = [
    ("report", None, []),
    ("purge", None, []),
    ("predict", "model", ["rows.csv", "--out", "out.parquet"]),
    ("predict", "model", ["rows.csv", "--explain", "0"]),
    ("export", "model", ["--to", "treelite", "--out", "model.tl"]),
    ("audit", "state", []),
    ("verify", "state", []),
    ("update", "state", ["--delete", "gone.csv", "--dry-run"]),
]


def run_of(number: int, kind: str, folder: Path) -> Path:
    shutil.unpack_archive(HERE / f"format-{number}" / f"{kind}.zip", folder / "run")
    return folder / "run"


def ended(arguments: list[str]) -> int:
    with pytest.raises(SystemExit) as end:
        main(arguments)
    return int(end.value.code or 0)


def manifests(run: Path) -> list[Path]:
    return [*run.glob("model/manifest.json"), *run.glob("checkpoints/*/manifest.json")]


def unpacked(number: int, name: str, folder: Path) -> Path:
    """Return a folder with a run over files and its data, which its config names."""
    with tarfile.open(HERE / f"format-{number}" / "streams.tar.xz") as archive:
        archive.extractall(
            folder,
            [m for m in archive if m.name.split("/")[0] == name or (m.isfile() and "/" not in m.name)],
            filter="data",
        )
    config = folder / name / "config.yaml"
    config.write_text(config.read_text(encoding="utf-8").replace(str(PLACE), str(folder)), encoding="utf-8")
    return folder / name


def summary_of(run: Path) -> dict[str, Any]:
    return dict(json.loads((run / "summary.json").read_text(encoding="utf-8")))


def test_there_is_a_run_of_each_learner_and_format() -> None:
    shipped = {kind for kind, learner in learners().items() if type(learner).__module__.startswith("raydt.")}
    assert shipped == {kind.partition("-")[0] for kind in LEARNERS}
    for number, kind in RUNS:
        assert (HERE / f"format-{number}" / f"{kind}.zip").is_file(), "make it as tests/former/runs.py says"


@pytest.mark.turns(3)
@pytest.mark.parametrize(
    ("number", "kind"),
    [
        pytest.param(*run, marks=[] if (list(LEARNERS).index(run[1]) + run[0]) % 2 else pytest.mark.nightly)
        for run in RUNS
    ],
)
def test_every_command_reads_it_or_says_which_version_does(
    number: int, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    learner = learners()[kind.partition("-")[0]]
    source = learner.traits(learner.Options()).reading
    header = [feature["name"] for feature in json.loads((run_of(number, kind, tmp_path) / "summary.json").read_text(
        encoding="utf-8"))["features"]]  # fmt: skip
    rows = f"{','.join(header)}\n{','.join(['1'] * len(header))}\n"
    Path("rows.csv").write_text(rows, encoding="utf-8")
    Path("gone.csv").write_text("id\n149\n", encoding="utf-8")
    for command, needs, rest in COMMANDS:
        shutil.rmtree("run")
        code = ended([command, str(run_of(number, kind, tmp_path)), *rest])
        said = capsys.readouterr().err
        if needs and number < oldest(kind, needs):
            assert code == 2
            assert re.search(rf"is a sound {needs} of format {number}, written by raydt 0\.\d", said)
            learner = kind.partition("-")[0]
            assert f"reads such a {needs} of {learner} from format {oldest(kind, needs)} on. Use the raydt" in said
        elif code:
            assert code == 2
            expected = "depends on|naive Bayes|an earlier version|no such column|sparse|it holds|the file has|lists"
            assert re.search(expected, said), said
            assert source.needs_sparse or command in ("verify", "export") or "--explain" in rest, said


@pytest.mark.turns(5)
@pytest.mark.parametrize(("number", "kind"), RUNS)
def test_a_purge_erases_what_is_not_live_and_keeps_the_format(
    number: int, kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = run_of(number, kind, tmp_path)
    assert ended(["purge", str(run)]) == 0
    assert "0 removed" not in capsys.readouterr().out
    (checkpoint,) = run.glob("checkpoints/2*")
    stored = read_checkpoint(Folder(checkpoint))
    assert not list((run / "checkpoints").glob("rows/*"))
    assert len(stored.components["coordinator"]["id"]) == 40, "rows that are not live are left"
    predicted = [one for part in run.glob("predictions/*") for one in pq.read_table(part).column("id").to_pylist()]
    assert bool(predicted) == ("-" not in kind), "predictions that are numbers are removed"
    assert {one for one in predicted if one is not None} <= {*range(110, 150)}
    kept = number if number < oldest(kind, "state") else FORMAT_VERSION
    for manifest in manifests(run):
        assert json.loads(manifest.read_text(encoding="utf-8"))["format_version"] == kept
    assert ended(["purge", str(run)]) == 0
    assert "nothing to do" in capsys.readouterr().out
    if number >= oldest(kind, "state"):
        assert ended(["audit", str(run)]) == 0


@pytest.mark.turns(6)
@pytest.mark.parametrize(("number", "kind"), [run for run in RUNS if run[0] > 1])
@pytest.mark.parametrize("shards", [1, 3])
def test_a_session_goes_on_from_its_first_checkpoint(number: int, kind: str, shards: int, tmp_path: Path) -> None:
    """And ends with the digest with which the run has ended, also where shards own rows that were whole before."""
    run = run_of(number, kind, tmp_path)
    before = json.loads((run / "summary.json").read_text(encoding="utf-8"))
    first = Folder(min(run.glob("checkpoints/[0-9]*"), key=lambda folder: int(folder.name)))
    found = read_checkpoint(first, apart=True)
    saved = understood(found.meta, found.components, first.location)
    config = pipelines.load_config(run / "config.yaml")
    _, stream = open_stream(config)
    stream.restore(found.components["stream"])
    plan = WorkPlan(local_work_limit=0, row_cache_bytes=0, shared_store=False) if shards > 1 else WorkPlan()
    session = InProcessSession(learners()[kind], config.learner, saved.features, shards, plan)
    session.restore(saved.arrays, saved.groups, saved.buckets)
    for _ in session.process(stream.batches(40)):
        pass
    session.finish()
    stated = before["model_digest"]
    if (
        kind == "forest" and number < 3
    ):  # whose digest was made in another way: that of the last state, made in this one
        last = read_checkpoint(newest(Folder(run / "checkpoints")))
        ended_in = understood(last.meta, last.components, str(run))
        again = InProcessSession(learners()[kind], config.learner, ended_in.features, 1)
        again.restore(ended_in.arrays, ended_in.groups)
        stated = again.digest(former=True)
    assert session.digest(former=True) == stated


@pytest.mark.parametrize("number", range(2, FORMAT_VERSION + 1))
def test_a_former_default_is_kept_and_another_is_refused_by_its_name(
    number: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What was left out of a config is written down in the run, which goes on by it (see the test above)."""
    run = run_of(number, "confidence_tree", tmp_path)
    config, last = run / "config.yaml", max(run.glob("checkpoints/[0-9]*"), key=lambda folder: int(folder.name))
    former, now = pipelines.load_config(config).learner, learners()["confidence_tree"].Options()
    assert "leaf_prediction" not in LEARNERS["confidence_tree"][1]
    assert (former.leaf_prediction, now.leaf_prediction) == ("adaptive", "adaptive_inherited")
    config.write_text(re.sub(r"\n  leaf_prediction: .*", "", config.read_text(encoding="utf-8")), encoding="utf-8")
    (run / "summary.json").unlink()
    before = {file: file.read_bytes() for file in run.rglob("*") if file.is_file()}
    assert ended(["resume", str(run)]) == 2
    _, refused = capsys.readouterr().err.split("error: ")
    place, changed, remedy = refused.splitlines()
    assert place == f"{last}: cannot resume with a different model config:"
    assert changed == '  learner.leaf_prediction = "adaptive_inherited" here, "adaptive" in the run'
    assert remedy.startswith("Only cluster, checkpoint")
    assert {file: file.read_bytes() for file in before} == before


@pytest.mark.parametrize("kind", [kind for number, kind in RUNS if number == FORMAT_VERSION])
def test_a_later_format_is_named_before_anything_else_is_read(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run = run_of(FORMAT_VERSION, kind, tmp_path)
    for manifest in manifests(run):
        text = manifest.read_text(encoding="utf-8").replace(
            f'"format_version": {FORMAT_VERSION}', f'"format_version": {FORMAT_VERSION + 1}'
        )
        manifest.write_text(text.replace('"raydt_version": "', '"raydt_version": "9'), encoding="utf-8")
    config = run / "config.yaml"
    config.write_text(config.read_text(encoding="utf-8").replace("learner:", "learner:\n  later: 1"), encoding="utf-8")
    for command, needs, rest in COMMANDS:
        code, said = ended([command, str(run), *rest]), capsys.readouterr().err
        if command == "report":
            assert code == 0
            continue
        assert code == 2, (command, needs)
        assert f"is of format {FORMAT_VERSION + 1}, written by raydt 9" in said, (command, said)
        assert f"reads formats up to {FORMAT_VERSION}. Use the raydt that wrote it, or a later one" in said


def test_a_run_reads_rows_by_the_rules_with_which_it_began(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Rows with missing values were bad then: the run skipped them, and audits do."""
    run = unpacked(1, "fudyadt-integer-missing", tmp_path)
    assert summary_of(run)["skipped"]
    for command in ("audit", "purge", "audit"):  # the last audit is of a state of the present format
        assert ended([command, str(run)]) == 0, (command, capsys.readouterr().err)
    config = run / "config.yaml"
    text = config.read_text(encoding="utf-8")
    for rules, code in ((1, 0), (NEWEST_RULES, 2)):
        config.write_text(text.replace("\nstream:", f"\n  rules: {rules}\nstream:"), encoding="utf-8")
        assert ended(["audit", str(run)]) == code, "another record than that of the states is refused"


READ_THEN = [("rows", "csv", False), ("changes", "jsonl", True)]


@pytest.mark.parametrize(
    ("what", "kind", "by_key"),
    [
        pytest.param(*case, marks=[] if case in READ_THEN else pytest.mark.nightly)
        for case in product(("rows", "changes"), ("csv", "jsonl"), (False, True))
    ],
)
def test_updates_are_audited_by_the_rules_by_which_they_were_read(
    what: str, kind: str, by_key: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An integer that float64 would round was rounded then, and is bad now."""
    rows = pa.table(
        {"id": range(40), "a": [0.5, 1.0] * 20, "shop": [7] * 20 + [8] * 20, "y": ["u", "v", "v", "u"] * 10}
    )
    pq.write_table(rows, tmp_path / "rows.parquet")
    source = {"kind": "parquet", "path": str(tmp_path / "rows.parquet"), "id": "id", "label": "y", "features": ["a"]}
    config = {"source": source | ({"key": "shop"} if by_key else {}), "learner": {"kind": "fudyadt"}}
    config |= {"cluster": {"backend": "in_process"}, "output": {"report": False}}
    run = pipelines.replay(config, tmp_path / "run")
    new: dict[str, list[Any]] = {"id": [40, 41], "a": [2.5, 2**53 + 1], "shop": [7, 8], "y": ["u", "v"]}
    new |= {"op": ["i", "i"]} if what == "changes" else {}
    given = tmp_path / f"new.{kind}"
    lines = [dict(zip(new, values, strict=True)) for values in zip(*new.values(), strict=True)]
    if kind == "jsonl":
        given.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    else:
        text = [",".join(map(str, line.values())) for line in ({name: name for name in new}, *lines)]
        given.write_text("\n".join(text) + "\n", encoding="utf-8")

    def update(out: Path) -> str:
        if what == "rows":
            pipelines.update(run.path, insert=given, out=out)
        else:
            pipelines.apply_changes(run.path, given, op="op", out=out)
        return str(out)

    with pytest.raises(InputError):
        update(tmp_path / "refused")
    with monkeypatch.context() as then:
        then.setattr("pipelines.updating.changes.NEWEST_RULES", 3)
        state = update(tmp_path / "state")
    again = pipelines.resume(run.path, state=state)
    assert ended(["audit", str(again.path)]) == 0


BY_DAY = {1: ("fudyadt-text-time_window", "confidence_tree-text-sliding_window"), 2: ("forest-text-incremental",)}
OVER_FILES = [
    pytest.param(number, name, marks=[] if name in BY_DAY.get(number, ()) else pytest.mark.nightly)
    for number in range(1, FORMAT_VERSION + 1)
    for name in over_files()
]


@pytest.mark.turns(5)
@pytest.mark.parametrize(("number", "name"), OVER_FILES)
def test_every_command_reads_a_run_over_files_or_refuses_it_by_its_format(
    number: int, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of all ids, exactly those of live examples can be deleted, and exactly those are left by a purge."""
    monkeypatch.chdir(tmp_path)
    kind, ids, _ = over_files()[name]
    run, cut = unpacked(number, name, tmp_path), unpacked(number, f"{name}-cut", tmp_path)
    before, readable = summary_of(run), number >= oldest(kind, "state")
    gone = Path("gone.csv")
    gone.write_text("id\n" + "".join(f"n{i:02d}\n" if ids == "text" else f"{i}\n" for i in range(64)), encoding="utf-8")
    commands = [
        ("audit", [str(run)]),
        ("resume", [str(cut)]),
        ("update", [str(run), "--delete", str(gone), "--missing", "skip", "--out", "state"]),
    ]
    for command, rest in commands:
        code, said = ended([command, *rest]), capsys.readouterr().err
        assert code == (0 if readable else 2), (command, said)
        assert readable or f"is a sound state of format {number}, written by raydt 0." in said
    if readable:
        step = json.loads(Path("state/manifest.json").read_text(encoding="utf-8"))["meta"]["lineage"][-1]
        assert step["deletes"] == before["active"]
        after = summary_of(cut)
        counts = ("updates", "inserts", "deletes", "skipped", "active")
        assert {key: after[key] for key in counts} == {key: before[key] for key in counts}
        assert ended(["audit", str(cut)]) == 0
        if kind != "forest" or number == FORMAT_VERSION:  # whose digest was made in another way
            assert open_members(find_state(cut).folder).has_digest(before["model_digest"])
        assert load_model(run) is not None
        assert load_model(tmp_path / "state") is not None
        assert Snapshots(run).find() is not None
    for command in ("report", "purge"):
        assert ended([command, str(run)]) == 0, capsys.readouterr().err
    assert ("raydt resume" in capsys.readouterr().out) == readable  # deleted in the state made above
    if ids == "text":
        (stream,) = run.glob("checkpoints/*/stream*.json")
        left = set(re.findall(r'"(n\d\d)"', stream.read_text(encoding="utf-8")))
        assert len(left) == before["active"]
    if readable:
        assert ended(["audit", str(run)]) == 0
