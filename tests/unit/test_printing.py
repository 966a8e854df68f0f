"""Names from outside cannot forge a line of a message, nor show another name than theirs."""

from __future__ import annotations

import logging
import pickle
import sys

import pytest

from pipelines.config import TerminalFormatter, escaped, load_config, shortened
from pipelines.display import Lines, terminal
from raydt.errors import ConfigError, InputError
from raydt.messages import message
from raydt.presentation.blocks import Items, Row, Table, Text, pairs

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
