"""Runs the code blocks of a page, top to bottom, in one folder.

A block is, by its first line,

- ``python``: executed; later blocks see its names;
- ``bash``: its commands are run, ``raydt`` within this process;
- of any language with ``title="NAME"``: written to the file of that name;
- ``yaml`` without a title: a config, or sections of one, which the config's model accepts;
- without a language: what the block before it must have printed, where ``...`` stands for anything.

An HTML comment before a block says what else is to be done with it: ``<!-- not run: reason -->`` leaves it out,
``<!-- nightly: reason -->`` runs it, its commands in processes of their own, in nightly runs only, and
``<!-- needs: module -->`` runs it where the module can be imported. A block of which none of this is so is an error.
"""

from __future__ import annotations

import contextlib
import doctest
import importlib.util
import io
import os
import re
import shlex
import subprocess
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml
from markdown_it import MarkdownIt

from pipelines.cli import main
from pipelines.config import load_config
from raydt.errors import RaydtError
from tests import volume

COMMENT = re.compile(r"<!-- (not run|nightly|needs): (.+) -->")
TITLE = re.compile(r'title="([^"]+)"')
FLAGS = doctest.ELLIPSIS


@dataclass(frozen=True, slots=True)
class Block:
    """One block of code: its language, file name, text, line in the page, and word and reason of the comment before."""

    language: str
    title: str
    text: str
    line: int
    comment: str
    reason: str = ""


def blocks(page: Path) -> Iterator[Block]:
    """The blocks of code of a page."""
    comment = reason = ""
    for token in MarkdownIt().parse(page.read_text()):
        if token.type == "html_block" and (found := COMMENT.search(token.content)):
            comment, reason = found.groups()
        elif token.type == "fence":
            title = TITLE.search(token.info)
            language = token.info.split(" ")[0]
            line = (token.map or [0])[0] + 1
            yield Block(language, title.group(1) if title else "", token.content, line, comment, reason)
            comment = reason = ""


def run(page: Path) -> int:
    """Run the blocks of a page in the current folder.

    Returns
    -------
    int
        How many were executed.
    """
    names: dict[str, object] = {"__name__": "__main__"}
    printed: str | None = None  # by the last block that was executed; None if it was left out
    executed, before = 0, False
    for block in blocks(page):
        place = f"{page.name}, line {block.line}"
        if _left_out(block):
            printed = None
        elif block.title:
            Path(block.title).write_text(block.text)
        elif not block.language:
            assert before, f"{place}: nothing before the block prints what it shows, and nothing says why it is not run"
            if printed is not None:
                right = doctest.OutputChecker().check_output(block.text, printed, FLAGS)
                assert right, f"{place} shows\n{block.text}\nbut what was printed is\n{printed}"
        else:
            printed = _executed(block, names, place)
            executed += 1
        before = before or block.language in ("bash", "python")
    return executed


def _left_out(block: Block) -> bool:
    """Return True if a block is not run here and now, by the comment before it."""
    return (
        block.comment == "not run"
        or (block.comment == "nightly" and not volume.nightly)
        or (block.comment == "needs" and importlib.util.find_spec(block.reason) is None)
    )


def _validate(text: str, place: str) -> None:
    """Refuse sections of a config that its model does not accept; the sections that it lacks are a default's."""
    given = yaml.safe_load(text)
    assert isinstance(given, dict), f"{place}: no config"
    rest = {"source": {"kind": "synthetic", "generator": "sea"}, "learner": {"kind": "fudyadt"}}
    try:
        load_config({**rest, **given})
    except RaydtError as error:
        raise AssertionError(f"{place}: {error}") from error


def _executed(block: Block, names: dict[str, object], place: str) -> str:
    """What a block prints."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output), warnings.catch_warnings():
        if block.comment == "needs":  # a library that may warn of others that it uses
            warnings.simplefilter("ignore")
        if block.language == "python":
            exec(compile("\n" * block.line + block.text, place, "exec"), names)
        elif block.language == "yaml":
            _validate(block.text, place)
        elif block.language == "bash":
            for command in re.sub(r"\\\n\s*", " ", block.text).splitlines():
                print(_command(command, place, block.comment == "nightly"), end="")
        else:
            raise AssertionError(f"{place}: nothing says what to do with a block of {block.language!r}")
    return output.getvalue()


def _command(command: str, place: str, apart: bool) -> str:
    """What a command prints."""
    words = shlex.split(command, comments=True)
    if words[:1] == ["raydt"] and not apart and not {"|", ">", "&&"} & set(words):
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            try:
                main(words[1:])
            except SystemExit as ended:
                code = ended.code
        assert not code, f"{place}: exit code {code} of {command}"
        return output.getvalue()
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "-c", command], env=os.environ | {"PATH": path}, capture_output=True, text=True, check=False
    )
    assert not done.returncode, f"{place}: exit code {done.returncode} of {command}\n{done.stdout}{done.stderr}"
    return done.stdout
