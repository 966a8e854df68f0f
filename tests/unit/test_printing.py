"""What is shown: documents of YAML and JSON, progress, and sweeps."""

from __future__ import annotations

import ast
import copy
import functools
import logging
import pickle
import re
import sys
from decimal import Decimal
from pathlib import Path
from string import Formatter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pipelines
from pipelines import display as progress
from pipelines.cli import TerminalFormatter
from pipelines.config import load_config
from pipelines.display import Bar, Lines, Reporter, reporter, terminal
from pipelines.report.charts import ACCURACY
from pipelines.report.compare import table_of_runs
from pipelines.sweeping.grid import SHOWN, Settings, against_baselines, best, pooled, read_grid, settings_of, table_of
from raydt.errors import ConfigError, InputError
from raydt.messages import Message, Sentence, escaped, message, message_of, quoted, sentences, shortened
from raydt.presentation.blocks import Best, Items, Row, Table, Text, pairs
from raydt.presentation.charts import Chart
from tests.refusals import refused
from tests.unit.fabricated_run import fabricated_page, failed, rows_of

# -- printing --------------------------------------------------------------------------------------------------------
# Names from outside cannot forge a line of a message, nor show another name than theirs.

FORGING = "new\nerror: all is lost\r\x1b[2K\u202etxt.\u2028\ud800"
ESCAPED = r"new\nerror: all is lost\r\x1b[2K\u202etxt.\u2028\ud800"


def test_control_and_format_characters_are_escaped_and_no_others():
    assert escaped(FORGING) == ESCAPED
    assert escaped("a\tb\nc", keep="\n") == "a\\tb\nc"
    kept = "naïve Größe\u00a0東京 مرحبا 🌳 \\n"
    assert escaped(kept) == kept


def test_a_name_cannot_forge_a_line_of_an_error(raydt, tmp_path, job):
    raydt("replay", job, "--out", tmp_path / "run")
    name = "new\nerror: all is lost\u202e.csv"
    (tmp_path / name).write_text("a\n1\n")
    code, out, err = raydt("predict", tmp_path / "run", tmp_path / name, "--out", tmp_path / "p.parquet")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"error: {tmp_path}/new\\nerror: all is lost\\u202e.csv, column 'x0': ")
    code, out, err = raydt("validate", job, "--set", "source.kind=csv", "--set", f"source.path='{name}'")
    assert code == 2
    assert all(line.startswith(f"error: {job}: " if n == 0 else f"{job}: ") for n, line in enumerate(err.splitlines()))
    code, out, err = raydt("predict", tmp_path / "run", "--oops\nerror: x")
    assert (code, "\nerror: x" in err) == (2, False)


LONG = "x" * 1_000_000


@pytest.mark.turns(3)
@pytest.mark.parametrize(
    ("override", "said"),
    [
        (".".join(["a"] * 5000) + "=1", message("configs.long_key", parts=5000)),
        ("learner." + ".".join(["a"] * 600) + "=1", message("configs.long_key", parts=601)),
        ("source.n=" + "[" * 5000, message("configs.deep_value", most=100)),
        (LONG, message("configs.override")),
        (f"{LONG}=1", "unknown key. Valid keys are source"),
        (f"learner.{LONG}=1", "unknown key. Valid keys are class_weight"),
        (f"learner.kind={LONG}", "best_split, "),
        (f"learner.epsilon={LONG}", "learner.epsilon = 'xxx"),
        (f"learner.epsilon={{{LONG}", "not valid YAML"),
        (f"source.kind.x={LONG}", message("configs.no_section", part="'kind'")),
    ],
)
def test_an_override_that_fills_pages_is_one_short_error(raydt, job, override, said):
    code, out, err = raydt("validate", job, "--set", override)
    assert (code, out, err.count("\n"), "Traceback" in err) == (2, "", 1, False)
    assert len(err) < 500
    assert said in err
    code, _, err = raydt("sweep", job, "--grid", override)
    assert (code, err.count("\n"), len(err) < 600) == (2, 1, True)


def test_other_values_that_fill_pages_are_cut_and_paths_are_not(raydt, tmp_path):
    code, _, err = raydt("validate", LONG)
    assert (code, len(err) < 1200) == (2, True)
    assert err.endswith(f"xxx: {message('configs.unreadable', reason='File name too long')}\n")
    path = tmp_path / "/".join(["folder"] * 100) / "job.yaml"
    said = message("configs.unreadable", reason="No such file or directory")
    assert raydt("validate", path)[2] == f"error: {path}: {said}\n"
    assert shortened("abcdefghij", 10) == "abcdefghij"
    assert shortened("abcdefghijk", 10) == "abcd...ijk"


def test_errors_of_several_lines_keep_them():
    with pytest.raises(ConfigError) as caught:
        load_config({"source": {"kind": "csv", "path": "x", "n\n": 1}, "learner": {"kind": "fudyadt", "m": 2}})
    assert len(caught.value.lines) == 2
    assert str(caught.value) == "\n".join(caught.value.lines)
    again = pickle.loads(pickle.dumps(caught.value))  # as Ray carries it
    assert again.lines == caught.value.lines
    one = InputError("is bad", file=FORGING)
    assert one.lines == [str(one)] == [f"{FORGING}: is bad"]


def test_a_record_is_one_line_but_for_its_traceback():
    formatter = TerminalFormatter("%(levelname)s %(message)s")
    record = logging.makeLogRecord({"levelname": "WARNING", "msg": "%s is gone", "args": (FORGING,)})
    assert formatter.format(record) == f"WARNING {ESCAPED} is gone"
    try:
        raise ValueError(FORGING)
    except ValueError:
        record.exc_info = sys.exc_info()
    text = formatter.format(record)
    assert text.startswith(f"WARNING {ESCAPED} is gone\nTraceback ")
    assert "\u202e" not in text


def test_progress_and_tables_are_escaped(capsys):
    Lines().stage(FORGING)
    assert capsys.readouterr().err == ESCAPED + "\n"
    assert terminal(pairs([("run", FORGING), ("none", "")])) == f"run  {ESCAPED}"
    table = Table([Row(("1", FORGING))], "last", columns=("setting", "remark"), words=(2,))
    assert terminal(table).splitlines() == ["setting  remark", f"      1  {ESCAPED}", "last"]


def test_blocks_stand_apart_and_items_follow_their_text():
    assert terminal(Text(""), pairs([("a", "1")]), Text("Copies in:"), Items(["x", FORGING])) == (
        f"a  1\n\nCopies in:\n- x\n- {ESCAPED}"
    )


# -- progress --------------------------------------------------------------------------------------------------------
# Progress: dense lines at first and sparse ones later, a bar on terminals only.


class Clock:
    def __init__(self):
        self.now = 0.0

    def monotonic(self):
        return self.now


def test_only_shards_on_ray_are_asked():
    ran = {"where": "one process does all the work", "rounds": 111}
    assert progress.where({**ran, "backend": "in_process"}) == ran["where"]
    assert progress.where({**ran, "backend": "ray"}) != ran["where"]
    assert progress.where({**ran, "backend": "ray", "rounds": 0}) == ran["where"]


def test_lines_become_sparser(monkeypatch, capsys):
    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    lines = Lines(interval=10)
    lines.start(100)
    written = []
    for second in range(60):
        clock.now = float(second)
        lines.update(second + 1, 5, "3 leaves", ("accuracy", 0.5))
        if capsys.readouterr().err:
            written.append(second)
    assert written == [1, 3, 7, 15, 25, 35, 45, 55]


@pytest.mark.parametrize(
    ("start", "accuracy", "line"),
    [
        ({"total": 4000}, 0.8256, "1,000 of 4,000 (25%) updates, 500/s, 77 live, 12 leaves, accuracy 0.826"),
        ({"total": 4000, "done": 900}, 0.5, "1,000 of 4,000 (25%) updates, 50/s, 77 live, 12 leaves, accuracy 0.500"),
        ({"total": None}, float("nan"), "1,000 updates, 500/s, 77 live, 12 leaves"),
    ],
    ids=["a line", "the speed is of this process", "an accuracy that is not known yet"],
)
def test_a_line_says_what_matters(monkeypatch, capsys, start, accuracy, line):
    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    lines = Lines()
    lines.start(**start)
    clock.now = 2.0
    lines.update(1000, 77, "12 leaves", ("accuracy", accuracy))
    assert capsys.readouterr() == ("", line + "\n")


@pytest.mark.parametrize("kind", [Bar, Lines, Reporter])
def test_stdout_stays_clean_and_an_unknown_length_is_fine(kind, capsys):
    shown = kind()
    shown.stage("x")
    shown.start(None)
    shown.update(10, 5, "3 leaves", ("accuracy", float("nan")))
    shown.stop()
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(("terminal", "kind"), [(True, Bar), (False, Lines)])
def test_the_bar_is_for_terminals(monkeypatch, terminal, kind):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal, raising=False)
    assert isinstance(reporter(), kind)


# -- sweep grid ------------------------------------------------------------------------------------------------------
# Grids: exact ranges, YAML values, products, and what is refused.


def values(entry):
    (axis,) = read_grid([entry])
    return list(axis.values)


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ("learner.epsilon=0:0.5:0.1", [0.0, 0.1, 0.2, 0.3, 0.4, 0.5]),
        ("learner.epsilon=0:0.55:0.1", [0.0, 0.1, 0.2, 0.3, 0.4, 0.5]),
        ("learner.epsilon=0.3:0.1:-0.1", [0.3, 0.2, 0.1]),
        ("learner.epsilon=1e-2:3e-2:1e-2", [0.01, 0.02, 0.03]),
        ("stream.window = 100:300:100", [100, 200, 300]),
        ("stream.window=5:5:1", [5]),
        ("learner.max_depth=5,10,null", [5, 10, None]),
        ("learner.epsilon=auto, 0.1", ["auto", 0.1]),
        ("learner.epsilon=1e-7", [1e-7]),
        ("stream.model='incremental',\"sliding_window\"", ["incremental", "sliding_window"]),
        ("stream.steps=[1, 2],[3]", [[1, 2], [3]]),
        ("stream.deletion_log=s3://bucket/a.parquet,b.csv", ["s3://bucket/a.parquet", "b.csv"]),
    ],
)
def test_values(entry, expected):
    found = values(entry)
    assert found == expected
    assert list(map(type, found)) == list(map(type, expected))


@given(
    start=st.integers(-500, 500),
    count=st.integers(0, 50),
    step=st.integers(-50, 50).filter(bool),
    digits=st.integers(0, 6),
    beyond=st.integers(0, 99),
)
def test_a_range_is_what_integers_of_the_last_digit_give(start, count, step, digits, beyond):
    def text(number):
        return str(Decimal(number).scaleb(-digits))

    stop = start + step * count + (abs(step) - 1) * beyond // 100 * (1 if step > 0 else -1)
    found = values(f"learner.epsilon={text(start)}:{text(stop)}:{text(step)}")
    assert found == [float(text(start + step * i)) for i in range(count + 1)]


def test_settings_are_the_product_in_order():
    axes = read_grid(["learner.epsilon=0.1,0.2", "stream.window=1:3:1"])
    found = [tuple(setting.values()) for setting in settings_of(axes)]
    assert found == [(0.1, 1), (0.1, 2), (0.1, 3), (0.2, 1), (0.2, 2), (0.2, 3)]


def test_a_mapping_of_values_or_texts_is_the_same():
    texts = read_grid(["learner.epsilon=0.1,0.2", "learner.max_depth=5,null"])
    assert read_grid({"learner.epsilon": (0.1, 0.2), "learner.max_depth": "5,null"}) == texts


@pytest.mark.parametrize(
    ("grid", "said", "parameters"),
    [
        ([], "no_grid", {}),
        ("learner.epsilon=0:1:1", "text", {}),
        (["learner.epsilon"], "form", {"entry": "learner.epsilon"}),
        (["=1"], "form", {"entry": "=1"}),
        (["learner.=1"], "form", {}),
        (["learner=1"], "key", {}),
        (["source.path=a,b"], "key", {}),
        (["cluster.shards=1:4:1"], "key", {}),
        (["learner.epsilon="], "no_value", {}),
        ({"learner.epsilon": []}, "no_value", {}),
        (["learner.epsilon=0:2"], "range", {}),
        (["learner.epsilon=0:2:x"], "range", {}),
        (["learner.epsilon=0:1:0.1:2"], "range", {}),
        (["learner.epsilon=0:2:0"], "no_step", {}),
        (["learner.epsilon=0:2:-0.1"], "step_sign", {"step": "-0.1", "first": "0", "way": "up", "last": "2"}),
        (["learner.epsilon=2:0:0.1"], "step_sign", {"step": "0.1", "first": "2", "way": "down", "last": "0"}),
        (["learner.epsilon=0:1:1e-9"], "many_values", {"most": 10_000}),
        (["learner.epsilon=0:1e99:1e-99"], "many_values", {}),
        (["learner.epsilon=0.1,0.10"], "repeated_value", {}),
        (["learner.epsilon=1,1.0"], "repeated_value", {}),
        (["learner.epsilon=[1"], "yaml", {"entry": "learner.epsilon=[1"}),
        (["learner.epsilon=1,2", "learner.epsilon=3"], "repeated_key", {"key": "learner.epsilon"}),
        (["learner.epsilon=0:99:1", "stream.window=1:101:1"], "many_settings", {"settings": 10_100}),
        (["or"], "form", {}),
    ],
)
def test_refused(grid, said, parameters):
    with refused(f"sweeps.{said}", ConfigError, **parameters):
        read_grid(grid)


def test_trials_may_differ():
    axes = read_grid(["source.permutation=0:2:1", "source.seed=1,2"])
    assert [axis.values for axis in axes] == [(0, 1, 2), (1, 2)]


# -- sweep keys ------------------------------------------------------------------------------------------------------
# A sweep over keys: each setting is what a run of models by key says of it.

GRID = {"learner.epsilon": [0.1, 0.4], "stream.window": [20, 30]}


def config(folder: Path, **stream: Any) -> dict[str, Any]:
    rng, n = np.random.default_rng(5), 160
    columns = {f"x{j}": rng.normal(size=n) for j in range(3)}
    place = rng.integers(0, 4, size=n)
    town = np.array(["a", "b", "c", "d"])[rng.integers(0, 4, size=n)]
    label = np.where(columns["x0"] + 0.3 * rng.normal(size=n) > (place % 2) - 0.5, "yes", "no")
    time = np.arange(n) // 4 * 60
    rows = pa.table({**columns, "town": town, "place": place, "time": pa.array(time, pa.timestamp("s")), "y": label})
    pq.write_table(rows, folder / "rows.parquet")
    return {
        "source": {"kind": "parquet", "path": str(folder / "rows.parquet"), "label": "y", "key": "place", "ts": "time"},
        "stream": stream or {"model": "sliding_window", "window": 20},
        "learner": {"kind": "fudyadt"},
        "cluster": {"backend": "in_process"},
        "output": {"report": False},
    }


@pytest.mark.parametrize(
    ("stream", "axes"),
    [({}, GRID), ({"model": "time_window", "duration": "20m"}, {"learner.epsilon": [0.1, 0.4]})],
    ids=["rows", "time"],
)
def test_a_setting_is_what_a_run_of_it_is(tmp_path: Path, stream: dict[str, Any], axes: dict[str, Any]) -> None:
    base = config(tmp_path, **stream)
    found = pipelines.sweep(base, axes, tmp_path / "sweep")
    rows = found.table.to_pylist()
    assert len(rows) == int(np.prod([len(values) for values in axes.values()]))
    assert found.status == "completed"
    for row in rows:
        changes = [f"{name}={row[name]}" for name in axes]
        run = pipelines.replay(base, tmp_path / f"run-{row['setting']}", overrides=changes)
        assert row["error"] is None
        assert row["digest"] == run.digest
        for name in ("accuracy", "no_change", "majority"):
            assert row[name] == {**run.summary["metrics"], **run.summary["baselines"]}[name]
        for name in ("updates", "inserts", "deletes", "predictions", "active", "nodes", "leaves", "depth", "rebuilds"):
            assert row[name] == run.summary[name], name
    assert found.best["accuracy"]["value"] == max(row["accuracy"] for row in rows)
    assert (tmp_path / "sweep" / "sweep.html").is_file()


def test_a_stream_that_no_key_can_have_is_refused(tmp_path: Path) -> None:
    base = config(tmp_path, model="batches", steps=[20, 10])
    with pytest.raises(ConfigError) as caught:
        pipelines.sweep(base, {"learner.epsilon": [0.1, 0.4]}, tmp_path / "sweep")
    assert message("keyed.stream", model="batches") in str(caught.value)


def test_a_setting_that_fails_says_why_and_after_how_many_updates(tmp_path: Path) -> None:
    rows = [{"op": "insert", "id": i, "k": "uv"[i % 2], "a": i % 7, "y": "pq"[i % 3 == 0]} for i in range(300)]
    unknown = {"op": "delete", "id": 9999, "k": "u", "a": None, "y": None}
    pq.write_table(pa.Table.from_pylist([*rows, unknown]), tmp_path / "log.parquet")
    source = {"kind": "parquet", "path": str(tmp_path / "log.parquet"), "label": "y", "id": "id", "op": "op"}
    base = config(tmp_path, model="changelog") | {"source": {**source, "key": "k"}}
    base["cluster"]["batch_size"] = 10  # a block of rows has 16 of these
    table = pipelines.sweep(base, {"learner.epsilon": [0.1, 0.4]}, tmp_path / "sweep").table
    for row in table.to_pylist():
        assert row["updates"] == 160
        assert "9999" in row["error"]
        assert "checkpoint" not in row["error"]


@pytest.mark.nightly
def test_processes_of_ray_find_the_same(tmp_path: Path) -> None:
    base, axes = config(tmp_path), {"learner.epsilon": [0.1, 0.4]}
    here = pipelines.sweep(base, axes, tmp_path / "here").table
    there = pipelines.sweep(base | {"cluster": {"backend": "ray"}}, axes, tmp_path / "there").table
    times = ["seconds", "cpu_seconds", "us_per_update"]
    assert here.drop_columns(times) == there.drop_columns(times)


# -- sweep views -----------------------------------------------------------------------------------------------------
# Table, comparison and words of a sweep: what is best, and what failed.


def test_the_table_is_in_the_order_of_the_grid_whatever_came_first():
    axes, rows = rows_of(["learner.epsilon=0.1,0.2,0.3"], [0.5, 0.6, 0.7])
    rows[1] = failed(1, {"learner.epsilon": 0.2})
    table = table_of(axes, rows[::-1])
    assert table["setting"].to_pylist() == [0, 1, 2]
    assert table["accuracy"].to_pylist() == [0.5, None, 0.7]
    assert table["error"].to_pylist() == [None, "a <b>bad</b> update\nmore", None]
    assert table_of(axes, []).schema == table.schema


@pytest.mark.parametrize(
    ("values", "kind", "column"),
    [
        ("1,2", pa.int64(), [1, 2]),
        ("1,2.5", pa.float64(), [1.0, 2.5]),
        ("5,null", pa.int64(), [5, None]),
        ("auto,0.1", pa.string(), ["auto", "0.1"]),
        ("true,false", pa.bool_(), [True, False]),
        ("[1],[2]", pa.string(), ["[1]", "[2]"]),
    ],
)
def test_types_of_keys(values, kind, column):
    axes, rows = rows_of([f"stream.x={values}"], [0.5, 0.6])
    table = table_of(axes, rows)
    assert (table.schema.field("stream.x").type, table["stream.x"].to_pylist()) == (kind, column)


def test_the_best_is_the_first_of_equals_and_never_a_failure():
    _, rows = rows_of(["learner.epsilon=1:4:1"], [0.6, 0.8, 0.8, 0.1])
    rows.append(failed(4, {"learner.epsilon": 5}))
    assert best(rows)["accuracy"]["setting"] == 1
    assert best(rows)["us_per_update"]["setting"] == 0
    assert best([rows[-1]]) == {}


@pytest.mark.parametrize(
    ("accuracies", "words"),
    [
        ([0.8, 0.9], "Every"),
        ([0.8, 0.6], "1 of 2 .* 70.00%"),
        ([0.7, 0.6], "0 of 2 .* 70.00%"),
    ],
)
def test_the_baselines_have_their_say(accuracies, words):
    assert re.search(words, against_baselines(rows_of(["learner.epsilon=1,2"], accuracies)[1]))


def test_a_terminal_shows_fewer_columns_and_the_best_of_many() -> None:
    axes, rows = rows_of(["learner.epsilon=1:40:1"], [0.5 + k / 100 for k in range(40)])
    rows[3] = failed(3, {"learner.epsilon": 4})
    runs = Settings(axes, rows, {0: {}}, {})
    results, failures = runs.tables()
    on_page = table_of_runs(runs.runs, runs.labels, ACCURACY)
    assert set(results.columns) < set(on_page.columns)
    assert [row.cells[:3] for row in results.rows[:2]] == [("40", "500,000", "89.00%"), ("39", "500,000", "88.00%")]
    assert (len(results.rows), len(on_page.rows)) == (SHOWN, 40)
    assert [row.cells for row in failures.rows] == [("learner.epsilon 4", "3", "a <b>bad</b> update")]


def test_options_and_scores_are_in_one_table_of_the_comparison() -> None:
    axes, rows = rows_of(["learner.epsilon=1:4:1", "stream.window=5,6"], [0.5 + k / 100 for k in range(8)])
    curve = {"updates": [5, 9], "predictions": [5, 9], "leaves": [1, None], "accuracy": [0.5, 0.6], "f1": [0.1, 0.2]}
    article = Settings(axes, rows, {0: {}}, dict.fromkeys(range(8), curve)).article(
        {"name": "n", "verdict": ""}, [("settings", "8")], "raydt replay x", "a: b"
    )
    blocks = article.sections[0].blocks
    (table,) = (block for block in blocks if isinstance(block, Table) and "learner.epsilon" in block.columns)
    assert table.columns[:2] == ["learner.epsilon", "stream.window"]
    accuracy = table.columns.index("Accuracy")
    assert [tuple(row.cells[:2]) for row in table.rows] == [(str(e), str(w)) for e in range(1, 5) for w in (5, 6)]
    assert [isinstance(row.cells[accuracy], Best) for row in table.rows] == [False] * 7 + [True]
    charts = {block.key: block for block in blocks if isinstance(block, Chart)}
    assert charts["compared-scores"].panels[0].marks[0].values[0] == "50.00%"
    assert [mark.name for mark in charts["compared-accuracy"].panels[0].marks] == [
        f"learner.epsilon {e}, stream.window {w}" for e in range(1, 5) for w in (5, 6)
    ]


def test_what_data_say_is_text_on_the_page():
    axes, rows = rows_of(["stream.x='<i>&','b'"], [0.5, 0.6])
    page = fabricated_page(axes, [rows[0], failed(1, {"stream.x": "b"})], "<u>")
    assert not [text for text in ("<i>&", "<u>", "<b>bad") if text in page]
    assert "&lt;i&gt;&amp;" in page
    assert "a &lt;b&gt;bad" in page
    assert "raydt replay --set &lt;u&gt;" in page


def test_trials_of_a_setting_are_one_row_with_their_mean():
    axes, rows = rows_of(["source.seed=1,2", "learner.epsilon=1,2"], [0.5, 0.7, 0.55, 0.9])
    rows[2]["nodes"] = 8
    kept, found = pooled(axes, rows[::-1])
    assert [axis.key for axis in kept] == ["learner.epsilon"]
    assert [(row["setting"], row["learner.epsilon"], row["nodes"], row["promised"]) for row in found] == [
        (0, 1, 6.5, True),
        (1, 2, 5, False),
    ]
    assert [row["accuracy"] for row in found] == pytest.approx([0.525, 0.8])
    assert all("source.seed" not in row and row["digest"] is None for row in found)
    rows[3] = failed(3, rows[3] | {})
    assert pooled(axes, rows)[1][1]["error"]
    assert best(pooled(axes, rows)[1])["accuracy"]["setting"] == 0


def test_trials_alone_are_compared_as_they_are():
    axes, rows = rows_of(["source.permutation=1,2"], [0.5, 0.7])
    assert pooled(axes, rows) == (axes, rows)


# -- messages ----------------------------------------------------------------------------------------------------------
# The catalogue of messages: what the product says has a sentence, and every sentence is said.


ROOT = Path(__file__).parents[2]
TOPICS = sorted(path.stem for path in (ROOT / "raydt" / "messages").glob("*.txt") if path.stem != "in_memory")
ID = re.compile(r"[a-z_]+\.[a-z_]+")
#: Functions that make a message of an id, and the parameters that they add themselves.
MAKERS: dict[str, set[str]] = {"message": set(), "require": {"array"}, "found": {"where"}, "_holds": {"where"}}


def fields(sentence: Sentence) -> set[str]:
    """Names of the parameters of a sentence."""
    parts = (sentence,) if isinstance(sentence, str) else sentence
    return {name.split(".")[0].split("[")[0] for part in parts for _, name, _, _ in Formatter().parse(part) if name}


@functools.cache
def trees() -> dict[Path, ast.Module]:
    """Every file of the product, parsed when a test asks."""
    packages = ("raydt", "actors", "pipelines")
    return {
        path: ast.parse(path.read_text()) for package in packages for path in sorted((ROOT / package).rglob("*.py"))
    }


@functools.cache
def calls() -> list[tuple[str, str, set[str] | None]]:
    """Place, id and names of the parameters of every message that is made; None where a mapping gives them."""
    found = []
    for path, tree in trees().items():
        for node in ast.walk(tree):
            maker = getattr(node.func, "id", getattr(node.func, "attr", "")) if isinstance(node, ast.Call) else ""
            if isinstance(node, ast.Call) and maker in MAKERS:
                names = [keyword.arg for keyword in node.keywords]
                known = None if None in names else {*filter(None, names), *MAKERS[maker]}
                constants = [str(id.value) for id in node.args if isinstance(id, ast.Constant)]
                assert maker != "require" or not any(" " in text for text in constants), f"{path}:{node.lineno}: no id"
                found += [(f"{path}:{node.lineno}", id, known) for id in constants if ID.fullmatch(id)]
    return found


def test_every_message_has_its_sentence_and_the_parameters_of_it() -> None:
    assert len(calls()) > 10
    for place, id, names in calls():
        topic, name = id.split(".")
        assert topic in TOPICS, f"{place}: no topic {topic}"
        assert name in sentences(topic), f"{place}: no sentence {id}"
        assert names is None or names == fields(sentences(topic)[name]), f"{place}: parameters of {id}"


@functools.cache
def texts() -> set[str]:
    """Every text in the sources, but for the catalogue."""
    return {
        node.value
        for path, tree in trees().items()
        if path.parent.name != "messages"
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


@pytest.mark.parametrize("topic", TOPICS)
def test_every_sentence_is_said_and_ends_without_a_full_stop(topic: str) -> None:
    for name, sentence in sentences(topic).items():
        assert {name, f"{topic}.{name}"} & texts(), f"nothing says {topic}.{name}"
        for part in (sentence,) if isinstance(sentence, str) else sentence:
            assert part.strip(" .") == part, f"{topic}.{name}"


def test_a_sentence_stands_once() -> None:
    """Whatever the names of its parameters are: a better word is one edit."""
    places: dict[str, list[str]] = {}
    for topic in TOPICS:
        for name, sentence in sentences(topic).items():
            places.setdefault(re.sub(r"\{[^}]*\}", "{}", repr(sentence)), []).append(f"{topic}.{name}")
    assert [ids for ids in places.values() if len(ids) > 1] == []


def test_a_message_is_text_with_parts() -> None:
    said = message("streams.no_id_column", what="deletion log", columns=quoted("who"))
    assert said == f"{said.problem}. {said.remedy}"
    assert said.id == "streams.no_id_column"
    for other in (copy.deepcopy(said), pickle.loads(pickle.dumps(said))):
        assert other == said
        assert (other.id, other.parameters) == (said.id, said.parameters)
    error = InputError(said, file="a.csv", column="id")
    assert error.message is not None
    assert error.message.id == said.id
    assert "'who'" in str(error)
    error.redact()
    assert "who" not in str(error)
    assert "who" not in str(error.message)
    assert error.message.id == said.id


def test_the_message_of_an_error() -> None:
    said = message("streams.no_duration")
    for error in (ValueError(said), ConfigError(said), InputError(said, file="a")):
        found = message_of(error)
        assert found is not None
        assert found.id == said.id
    assert message_of(ValueError("other words")) is None
    assert isinstance(Message("x").at("y"), Message)
