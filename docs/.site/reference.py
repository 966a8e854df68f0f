"""Reference pages that are made from the code: the command line, and every key of a config.

A page of ``docs/reference`` holds the marker ``<!-- made: NAME -->`` where its generated part belongs. The keys are in
the repository, too: ``python docs/.site/reference.py`` writes them into their page.
"""

from __future__ import annotations

import html
import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pipelines.cli import cli
from pipelines.config import json_schema

if TYPE_CHECKING:
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

KEYS = Path(__file__).parents[1] / "reference" / "keys.md"
#: What the keys in their page stand between.
BEGIN, END = "<!-- keys: python docs/.site/reference.py -->\n", "<!-- end of keys -->\n"

MARKER = re.compile(r"<!-- made: (\w+) -->")
#: Cross-references of docstrings, as the site shows them.
ROLE = re.compile(r":(?:class|meth|func|mod|attr|data|exc):<code>~?([\w.]+)</code>")
WIDTH = 84


def on_page_markdown(markdown: str, page: Page, config: Any, files: Files) -> str:
    """Put the generated parts where their markers are."""
    return MARKER.sub(lambda match: "\n".join(MADE[match.group(1)]()), markdown)


def on_page_content(content: str, page: Page, config: Any, files: Files) -> str:
    """Show the cross-references of docstrings as links, where the page has what they name, else as code."""

    def shown(match: re.Match[str]) -> str:
        name = match.group(1)
        code = f"<code>{name.rpartition('.')[2]}</code>"
        return f'<a href="#{name}">{code}</a>' if f'id="{name}"' in content else code

    return ROLE.sub(shown, content)


def commands() -> Iterator[str]:
    """The help of every command."""
    with click.Context(cli, info_name="raydt", terminal_width=WIDTH, max_content_width=WIDTH) as whole:
        yield from _help("raydt", cli, whole)
        for name in cli.list_commands(whole):
            command = cli.commands[name]
            with click.Context(command, whole, name, terminal_width=WIDTH, max_content_width=WIDTH) as context:
                yield from _help(name, command, context)


def _help(name: str, command: click.Command, context: click.Context) -> Iterator[str]:
    yield f"## {name}\n\n```text\n{command.get_help(context).rstrip()}\n```\n"


#: What a key without a description of its own means.
MEANINGS = {
    "op_values": "words of each operation: [change logs](change-logs.md#change-logs)",
    "delimiter": "one character between two values",
}
#: A key that at least as many kinds have alike stands once for all of them.
SHARED = 3
Row = tuple[str, str, str]


def keys() -> Iterator[str]:
    """Tables of keys for each section of a config: those that kinds share, then those of each kind."""
    schema = json_schema()
    for section, value in schema["properties"].items():
        yield f"## {section}\n\n{_sentence(value.get('description', ''))}\n"
        rows = {name: list(_rows(model)) for name, model in _models(value, schema["$defs"], "")}
        kinds_of: dict[Row, list[str]] = {}
        for name, own in rows.items():
            for row in own:
                kinds_of.setdefault(row, []).append(name)
        shared: dict[tuple[str, ...], list[Row]] = {}
        for row, kinds in kinds_of.items():
            if len(kinds) >= SHARED:
                shared.setdefault(tuple(kinds), []).append(row)
        for kinds, common in sorted(shared.items(), key=lambda item: -len(item[0])):
            yield from _table(f"{section}: {'every kind' if len(kinds) == len(rows) else _together(kinds)}", common)
        for name, own in rows.items():
            rest = [row for row in own if len(kinds_of[row]) < SHARED]
            if rest:
                yield from _table(f"{section}: {name}" if name else "", rest)


#: Kinds of sources that the page calls by one word.
TOGETHER = {
    "files": {"arrow", "csv", "jsonl", "libsvm", "parquet"},
    "live": {"delta", "kafka"},
    "synthetic": {"synthetic, hyperplane", "synthetic, randcbt", "synthetic, sea", "synthetic, sparse"},
}


def _together(kinds: tuple[str, ...]) -> str:
    """Return the kinds that have a key, those of a group by its word."""
    words = [word for word, members in TOGETHER.items() if members <= set(kinds)]
    rest = set(kinds).difference(*(TOGETHER[word] for word in words))
    return "; ".join([*words, *sorted(rest)])


def _rows(model: dict[str, Any]) -> Iterator[Row]:
    """Key, default and meaning of each key of a model that has more than one value."""
    for key, of in model["properties"].items():
        if "const" not in of and of.get("type") != "null":
            default = "*required*" if key in model.get("required", ()) else f"`{_yaml(of.get('default'))}`"
            yield f"`{key}`", "" if key == "op_values" else default, _cell(of) or MEANINGS.get(key, "")


def _table(heading: str, rows: list[Row]) -> Iterator[str]:
    if heading:
        yield f"### {heading}\n"
    yield "| Key | Default | Meaning |\n|---|---|---|"
    yield from (f"| {key} | {default} | {meaning} |" for key, default, meaning in rows)
    yield ""


def _models(value: dict[str, Any], models: dict[str, Any], name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The models that a section can be, with the value of the key that chooses among them."""
    if "discriminator" in value:
        for key, of in value["discriminator"]["mapping"].items():
            yield from _models({"$ref": of} if isinstance(of, str) else of, models, f"{name}, {key}".strip(", "))
    elif "$ref" in value:
        yield name, models[value["$ref"].rpartition("/")[2]]
    elif "anyOf" in value:
        for choice in value["anyOf"]:
            yield from _models(choice, models, name)


def _cell(of: dict[str, Any]) -> str:
    """The meaning of a key and, if it is one of few, its values."""
    values = [v for choice in (of, *of.get("anyOf", ())) for v in choice.get("enum", ())]
    meaning = html.escape(of.get("description", ""), quote=False).replace("|", "\\|")
    unsaid = [value for value in values if str(value) not in meaning]
    return f"{meaning}; one of {', '.join(f'`{_yaml(value)}`' for value in values)}" if unsaid else meaning


def _yaml(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}." if text else ""


MADE: dict[str, Callable[[], Iterator[str]]] = {"commands": commands}


def with_keys(page: str) -> str:
    """Return the page of keys with the keys of now."""
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}\n" + "\n".join(keys()) + END + rest.partition(END)[2]


if __name__ == "__main__":
    if sys.argv[1:] == ["--check"]:
        sys.exit(with_keys(KEYS.read_text(encoding="utf-8")) != KEYS.read_text(encoding="utf-8"))
    KEYS.write_text(with_keys(KEYS.read_text(encoding="utf-8")), encoding="utf-8")
