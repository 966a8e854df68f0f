"""``train``: which rows are held out, what a config may say, and what is printed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import pipelines
from pipelines.cli import cli
from pipelines.training import training_config
from raydt.errors import ConfigError, InputError
from raydt.sources.base import Rows
from raydt.streams.windows import ALL_ROWS, Training, held_out
from tests.refusals import refused
from tests.small_tables import examples

SHARE = st.floats(0.0, 0.99)


def rows(ids: Any) -> Rows:
    n, text = len(ids), isinstance(ids[0], str)
    names = np.array([*ids, None], dtype=np.object_)[:-1] if text else None
    numbers = np.full(n, -1) if text else np.array(ids, dtype=np.int64)
    return Rows(np.arange(n), np.empty((n, 0)), np.zeros(n), numbers, names=names)


IDS = st.lists(st.integers(-(2**62), 2**62), min_size=1, unique=True) | st.lists(st.text(max_size=5), min_size=1)


@given(IDS, SHARE, SHARE, st.randoms())
def test_an_id_alone_decides_what_is_held_out(ids, share, other, draw) -> None:
    found = dict(zip(ids, held_out(rows(ids), share).tolist(), strict=True))
    shuffled = draw.sample(ids, len(ids))
    assert dict(zip(shuffled, held_out(rows(shuffled), share).tolist(), strict=True)) == found
    more, less = (held_out(rows(ids), one) for one in (max(share, other), min(share, other)))
    assert not (less & ~more).any()
    assert not held_out(rows(ids), 0.0).any()


@pytest.mark.parametrize("ids", [list(range(20_000)), [f"k{i}" for i in range(20_000)]], ids=["integers", "text"])
def test_the_share_is_met(ids: list[Any]) -> None:
    assert held_out(rows(ids), 0.2).mean() == pytest.approx(0.2, abs=0.01)


def config(folder: Path, **sections: Any) -> dict[str, Any]:
    columns = {name: [row[name] for row in examples(80)] for name in "abcdy"}
    table = pa.table({"id": range(80), **columns, **sections.pop("columns", {})})
    pacsv.write_csv(table, folder / "rows.csv")
    return {
        "source": {"kind": "csv", "path": str(folder / "rows.csv"), "id": "id"},
        "learner": {"kind": "fudyadt"},
        "cluster": {"backend": "in_process"},
        **sections,
    }


def test_the_config_of_a_training(tmp_path: Path) -> None:
    base = config(tmp_path)
    trained = training_config(base)
    assert (trained.stream, trained.stream.warmup) == (Training(), ALL_ROWS)
    assert pipelines.load_config(trained.resolved()).model_hash() == trained.model_hash()
    window = {**base, "stream": {"model": "sliding_window", "window": 10, "on_error": "skip"}}
    assert training_config(window).stream == Training(on_error="skip")
    chosen = {**base, "stream": {"model": "training", "holdout": 0.3}}
    assert training_config(chosen).stream == Training(holdout=0.3)
    assert training_config(chosen, holdout=0.1).stream == Training(holdout=0.1)
    confidence = {**base, "learner": {"kind": "confidence_tree"}}  # which needs a warm-up
    assert training_config(confidence).stream == Training()
    for stream in ({"model": "changelog"}, {"model": "deletion_log", "deletion_log": "log.csv"}):
        with refused("configs.deleting_stream", ConfigError, model=stream["model"]):
            training_config({**base, "stream": stream})
    with pytest.raises(ConfigError, match=r"stream\.holdout = 1\.0"):
        training_config(base, holdout=1.0)


def test_a_bad_row_is_named_and_leaves_no_run(tmp_path: Path) -> None:
    labels = ["u", "v"] * 40
    labels[60] = ""
    bad = config(tmp_path, columns={"y": labels})
    with refused("rows.no_label", InputError, row=60, column="y"):
        pipelines.train(bad, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    run = pipelines.train(bad, tmp_path / "run", overrides=["stream.on_error=skip"])
    holdout = run.summary["holdout"]
    assert (run.summary["active"], run.summary["skipped"]) == (79, 1)
    assert holdout["rows"] + holdout["trained_on"] == 79


@pytest.mark.parametrize("share", [0.0, 1e-9])
def test_without_a_hold_out_there_is_no_score(tmp_path: Path, share: float) -> None:
    run = pipelines.train(config(tmp_path), tmp_path / "run", holdout=share)
    assert (run.metrics, run.summary["baselines"], run.summary["holdout"]["rows"]) == ({}, {}, 0)


def test_what_is_printed_is_what_training_means(tmp_path: Path) -> None:
    (tmp_path / "my.yaml").write_text(json.dumps(config(tmp_path)))
    for share in ("0.2", "0"):
        out = str(tmp_path / f"run{share}")
        told = CliRunner().invoke(cli, ["train", str(tmp_path / "my.yaml"), "--out", out, "--holdout", share])
        assert told.exit_code == 0, told.output
        names = [line.split("  ")[0] for line in told.output.splitlines()]
        assert {"trained", "digest", "report", "next"} <= set(names)
        assert not {"updates", "live", "speed"} & set(names)
        assert " - " not in told.output
        page = Path(out, "report.html").read_text()
        assert 'id="quality"' in page
        assert 'id="stream"' not in page
        assert "No-change" not in page
    checked = CliRunner().invoke(cli, ["validate", str(tmp_path / "my.yaml"), "--train", "--json"])
    result = json.loads(checked.output)
    assert (result["ok"], result["stream"], result["warnings"]) == (True, "training", [])
