"""The report of runs as the job leaves them, not of made-up folders."""

from __future__ import annotations

import html
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines import replay
from raydt.folders.arrays import load_folder


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A replay of 1,500 rows whose label follows from a number and a colour."""
    folder = tmp_path_factory.mktemp("report")
    rng = np.random.default_rng(3)
    x, colour = rng.normal(size=1500), rng.choice(["red", "<b>green", "blue"], 1500)
    label = np.where((x > 0) ^ (colour == "red"), "yes", "no")
    pq.write_table(pa.table({"x": x, "colour": colour, "label": label}), folder / "data.parquet")
    config = {
        "source": {"kind": "parquet", "path": str(folder / "data.parquet"), "label": "label"},
        "stream": {"model": "sliding_window", "window": 300},
        "learner": {"kind": "fudyadt", "epsilon": 0.2, "max_depth": 4},
        "cluster": {"backend": "in_process"},
        "output": {"report": True, "metrics_every": 100},
    }
    return Path(replay(config, folder / "run").path)


def cards(page: str) -> list[str]:
    return [html.unescape(detail) for detail in re.findall(r'class="card[^"]*" title="([^"]*)"', page)]


def test_categories_have_their_names(run: Path) -> None:
    page = (run / "report.html").read_text(encoding="utf-8")
    assert any(card.startswith("colour = red. ") for card in cards(page))
    assert "= code" not in page


def test_every_node_has_a_card_with_its_counters(run: Path) -> None:
    model = load_folder(run / "model", "model")[1]["arrays"]
    shown = cards((run / "report.html").read_text(encoding="utf-8"))
    assert len(shown) == len(model["feature"])
    for s, c in zip(model["s"].tolist(), model["c"].tolist(), strict=True):
        left = s // 5 - c  # epsilon is a little above 1/5, so that the floor is that of s / 5
        words = f"{left:,} of {s // 5:,} left" if s >= 5 else "no budget"
        assert any(f" from {s:,}, {c:,} update" in card and card.endswith(words) for card in shown), (s, c)
