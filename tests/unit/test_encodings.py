"""Text is UTF-8 whatever the locale: no file or pipe is opened as text without an encoding, and commands work."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from raydt.messages import message

ROOT = Path(__file__).parents[2]
FOLDERS = ("raydt", "actors", "pipelines", "examples", "benchmarks", "docs/.site")
TEXT_STREAMS = ("fdopen", "TextIOWrapper", "NamedTemporaryFile", "FileHandler")


def without_encoding(tree: ast.AST) -> Iterator[int]:
    """Lines of the calls that read or write text in the encoding of the locale."""
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call):
            continue
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        named = {word.arg: word.value for word in call.keywords}
        if "encoding" in named or None in named:
            continue
        mode = named.get("mode", call.args[_mode_at(call)] if len(call.args) > _mode_at(call) else ast.Constant("r"))
        is_text = isinstance(mode, ast.Constant) and isinstance(mode.value, str) and "b" not in mode.value
        bare_open = isinstance(call.func, ast.Name) and name == "open"
        path_open = name == "open" and isinstance(mode, ast.Constant) and mode.value in ("r", "w", "a", "x", "r+", "w+")
        path_open = path_open and len(call.args) == 1  # more are a method of another class, a zip archive's say
        a_pipe = any(getattr(named.get(word), "value", False) for word in ("text", "universal_newlines"))
        if (
            (name == "read_text" and not call.args)
            or (name == "write_text" and len(call.args) == 1)
            or (is_text and (bare_open or path_open or name in TEXT_STREAMS))
            or a_pipe
        ):
            yield call.lineno


def _mode_at(call: ast.Call) -> int:
    return 0 if isinstance(call.func, ast.Attribute) and call.func.attr in ("open", "NamedTemporaryFile") else 1


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("p.read_text()", True),
        ("p.read_text(errors='replace')", True),
        ("p.read_text(encoding='utf-8')", False),
        ("p.write_text('x')", True),
        ("folder.write_text('name', 'x')", False),
        ("open(p)", True),
        ("open(p, 'wb')", False),
        ("p.open('w')", True),
        ("p.open('rb')", False),
        ("archive.open('name', 'w')", False),
        ("subprocess.run(a, text=True)", True),
        ("subprocess.run(a, text=True, encoding='utf-8')", False),
        ("os.fdopen(3, 'w')", True),
    ],
)
def test_the_rule_itself(text: str, found: bool) -> None:
    assert bool(list(without_encoding(ast.parse(text)))) is found


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_text_names_its_encoding(folder: str) -> None:
    found = [
        f"{file.relative_to(ROOT)}:{line}"
        for file in sorted((ROOT / folder).rglob("*.py"))
        for line in without_encoding(ast.parse(file.read_bytes()))
    ]
    assert not found, "add encoding='utf-8'"


#: Runs commands in one process, since starting it is what takes time; the code of each, and what it printed.
COMMANDS = """
import json, sys, traceback
from pipelines.cli import main
for words in json.loads(sys.argv[1]):
    try:
        main(words)
    except SystemExit as ended:
        print("\\nended", ended.code, flush=True)
    except BaseException:
        traceback.print_exc(file=sys.stdout)
"""


@pytest.mark.nightly
def test_commands_in_a_locale_of_ascii(tmp_path: Path) -> None:
    """Columns, classes, categories and ids are in many scripts, and files of the package are UTF-8."""
    header = "schlüssel,größe,色,判定\n"
    classes = ["не\u2028т", "jä"]
    rows = [f"k\u00e9{i},{i}.5,{'röt' if i % 3 else '蓝'},{classes[i % 2]}\n" for i in range(120)]
    (tmp_path / "d.csv").write_text(header + "".join(rows), encoding="utf-8")
    (tmp_path / "bad.csv").write_text(header + "".join(rows) + "ä,ö,蓝,jä\n", encoding="utf-8")
    (tmp_path / "gone.csv").write_text("id\nk\u00e93\n", encoding="utf-8")
    (tmp_path / "unknown.csv").write_text("id\nk\u00e9ö\n", encoding="utf-8")
    (tmp_path / "key").write_text("ab" * 32, encoding="utf-8")
    config = {
        "source": {"kind": "csv", "path": "d.csv", "id": "schlüssel", "label": "判定"},
        "stream": {"model": "incremental"},
        "cluster": {"backend": "in_process"},
        "learner": {"kind": "fudyadt"},
        "output": {"predictions": True},
    }
    (tmp_path / "c.json").write_text(json.dumps(config, ensure_ascii=False), encoding="utf-8")
    chain = ["--receipts", "chain", "--receipt-key", "key"]
    commands = [
        (0, ["validate", "c.json"]),
        (0, ["-v", "replay", "c.json", "--out", "run"]),
        (2, ["replay", "c.json", "--set", "source.path=bad.csv", "--out", "bad"]),
        (0, ["replay", "c.json", "--set", "source.path=bad.csv", "--set", "stream.on_error=skip", "--out", "skip"]),
        (0, ["audit", "run", "--json"]),
        (0, ["report", "run"]),
        (0, ["report", "run", "skip", "--out", "both.html"]),
        (0, ["predict", "run", "d.csv", "--out", "p.parquet", "--id", "schlüssel"]),
        (2, ["predict", "run", "bad.csv", "--out", "q.parquet"]),
        (0, ["validate", "c.json", "--set", "source.label=判定"]),
        (0, ["predict", "run", "d.csv", "--explain", "3"]),
        (0, ["update", "run", "--delete", "gone.csv", "--out", "state", *chain]),
        (2, ["update", "run", "--delete", "unknown.csv", "--out", "state2"]),
        (0, ["verify", "chain", "state", "--receipt-key", "key"]),
        (0, ["purge", "run"]),
        (0, ["doctor"]),
        (2, ["validate", "nö.yaml"]),
        (2, ["audit", "läuf"]),
        (2, ["replay", "c.json", "--out", "läuf"]),
    ]
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0"}
    environment.pop("PYTHONIOENCODING", None)
    called = [sys.executable, "-c", COMMANDS, json.dumps([words for _, words in commands])]
    done = subprocess.run(called, cwd=tmp_path, env=environment, capture_output=True, check=False)
    printed, told = done.stdout.decode(), done.stderr.decode()
    assert "Traceback" not in printed + told, printed + told
    codes = [int(line.split()[1]) for line in printed.splitlines() if line.startswith("ended ")]
    assert codes == [code for code, _ in commands], printed + told
    assert "не" in (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert message("commands.locale_name", name="", encoding="ascii").remedy in told


def test_a_name_that_is_not_utf8(tmp_path: Path) -> None:
    """Bytes of an argument that are not UTF-8, in any locale, are one error."""
    for words in (
        ["audit", b"l\xe4uf"],
        ["validate", b"l\xe4uf.yaml"],
        ["validate", "configs/fudyadt.yaml", "--set", b"source.path=l\xe4uf"],
        ["predict", b"l\xe4uf", b"\xe4.csv", "--out", "p.parquet"],
    ):
        done = subprocess.run(
            [sys.executable, "-m", "pipelines.cli", *words], cwd=ROOT, capture_output=True, check=False
        )
        assert done.returncode == 2, done.stderr
        assert b"Traceback" not in done.stderr
        assert b"l\\udce4uf" in done.stderr
