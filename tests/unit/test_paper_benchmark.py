"""The commands behind ``docs/explanation/results/fudyadt.md``.

Measurements that last, scores, equal-time tuning, charts, generated parts.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.metrics import accuracy_score, f1_score

pytestmark = pytest.mark.nightly

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _path(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))


@pytest.fixture
def small(tmp_path):
    """A data set of 300 rows whose class changes now and then, and its folder."""
    from paper.datasets import DataSet, Folder

    rng = np.random.default_rng(5)
    y = np.repeat(rng.integers(0, 2, 60), 5)
    columns = {"a": y + rng.normal(0, 0.7, 300), "b": rng.normal(size=300), "y": np.where(y, "yes", "no")}
    pq.write_table(pa.table(columns), tmp_path / "small.parquet")
    return DataSet("Small", "small", "yes", 300, "Electricity", True), Folder(tmp_path)


def test_a_measurement_lasts_and_what_is_missing_is_named(small, tmp_path):
    from paper.bench import Bench, MissingError

    data, folder = small
    first = Bench(tmp_path / "out", folder)
    measured = first.ours(data, 0.1, 5, "sliding_window", 100)
    assert (measured.scored, measured.updates) == (200, 500)
    again = Bench(tmp_path / "out")
    assert again.ours(data, 0.1, 5, "sliding_window", 100) == measured
    with pytest.raises(MissingError, match=r"epsilon=0\.2"):
        again.ours(data, 0.2, 5, "sliding_window", 100)


def test_measurements_note_the_sources_and_those_of_earlier_versions_are_read(small, tmp_path):
    from paper.bench import Bench

    from actors.identity import identity

    sources = identity().sources[:16]

    data, folder = small
    old = Bench(tmp_path, folder).ours(data, 0.1, 5)
    file = tmp_path / "measurements.csv"
    lines = file.read_text().splitlines()
    assert lines[0].endswith(",machine,sources")
    assert old.sources == sources
    assert f"raydt's sources: {sources}." in Bench(tmp_path).conditions()
    file.write_text("".join(f"{line.rsplit(',', 1)[0]}\n" for line in lines))
    assert Bench(tmp_path).ours(data, 0.1, 5) == replace(old, sources=None)
    assert Bench(tmp_path).conditions()[1] == "raydt's sources: not noted."
    Bench(tmp_path, folder).ours(data, 0.2, 5)
    both = Bench(tmp_path)
    assert both.ours(data, 0.1, 5).sources is None
    assert both.ours(data, 0.2, 5).sources == sources
    said = f"several versions of raydt's sources: not noted (1 measurements), {sources} (1 measurements)."
    assert both.conditions()[1].endswith(said)


@pytest.mark.parametrize("window", [0, 100])
def test_trivial_predictors_and_their_scores(small, tmp_path, window):
    from paper.bench import Bench

    data, folder = small
    y = folder.labels(data)
    no_change = [0, *y[:-1]]
    majority = [int(2 * sum(y[:i]) > i) for i in range(len(y))]
    bench = Bench(tmp_path / "out", folder)
    for name, predicted in (("no-change", no_change), ("majority", majority)):
        m = bench.trivial(data, name, window)
        truth, said = y[window:], predicted[window:]
        assert m.accuracy == pytest.approx(accuracy_score(truth, said))
        assert m.f1 == pytest.approx(f1_score(truth, said))
        assert m.f1_rest == pytest.approx(f1_score(truth, said, pos_label=0))


def test_random_updates_insert_every_row(small):
    from paper.contestants import ours

    data, folder = small
    outcome = ours(folder, data, "random_updates", 100, 0.5, 10)
    assert len(outcome.predictions) == data.rows
    assert np.flatnonzero(outcome.predictions == -1).tolist() == list(range(100))
    assert outcome.updates > data.rows + 100


@pytest.mark.parametrize(("rows", "target"), [(10**6, 3.0), (10**6, 40.0), (10**6, 900.0), (300, 180.0)])
def test_equal_time_finds_the_smallest_epsilon_that_is_fast_enough(small, rows, target):
    from paper.equal_time import CLOSE, tune

    def ours(data, epsilon, depth):
        return SimpleNamespace(us=1 + 2 / max(epsilon, 1 / rows) ** 0.8)

    epsilon, found = tune(SimpleNamespace(ours=ours), replace(small[0], rows=rows), target, 10)
    assert epsilon > 0
    assert CLOSE * target <= found.us <= target


@pytest.mark.parametrize(("us", "expected"), [(1.0, 0.0), (1000.0, 2.0)])
def test_equal_time_at_its_ends(small, us, expected):
    from paper.equal_time import tune

    bench = SimpleNamespace(ours=lambda data, epsilon, depth: SimpleNamespace(us=us))
    assert tune(bench, small[0], 100.0, 10)[0] == expected


def test_a_chart_names_every_line_and_is_the_same_each_time():
    pytest.importorskip("matplotlib", reason="the benchmarks' own dependency: pip install -e '.[bench]'")
    from paper.chart import Panel, Style, svg

    styles = {"ours": Style("#123456"), "level": Style("#777777", ":"), "unused": Style("#000000")}
    lines = {"ours": [(0.0, 0.02), (1.0, 35.0), (2.0, 700.0)]}
    for log in (False, True):
        grid = [[Panel("a < b", lines, {"level": 50.0, "far": 1e6}, log)]]
        text = svg(grid, styles)
        words = {"".join(e.itertext()).strip() for e in ET.fromstring(text).iter() if e.tag.endswith("text")}
        assert {"a < b", "ours", "level", "epsilon"} <= words
        assert not {"unused", "far"} & words
        assert text == svg(grid, styles)


def test_the_document_has_a_place_for_every_section_and_shows_every_figure():
    from paper.command import DOCUMENT, SECTIONS
    from paper.markdown import Section
    from paper.markdown import replace as put

    document = DOCUMENT.read_text()
    for name in [*SECTIONS, "machine"]:
        changed = put(document, Section(name, "new"))
        assert put(changed, Section(name, "new")) == changed != document
    pictures = list(DOCUMENT.with_suffix("").glob("*.svg"))
    assert len(pictures) == 5
    for picture in pictures:
        assert f"fudyadt/{picture.name}" in document
        assert picture.stat().st_size < 60_000
    with pytest.raises(ValueError, match="no markers"):
        put(document, Section("table 6", ""))
