"""YAML as people mean it: the core schema of YAML 1.2, read safely, with duplicate keys refused.

PyYAML follows YAML 1.1, where ``1e-7`` is text, ``no`` is false, ``010`` is eight and ``1:30`` is ninety. Here
numbers are numbers, only ``true`` and ``false`` are booleans, and dates stay text. There are anchors, but no merge
keys: they are not part of YAML 1.2.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import yaml

from raydt.errors import ConfigError
from raydt.messages import message

#: Characters of the longest integer that is converted.
LONGEST_INTEGER = 100

#: Values of a document, those that aliases repeat counted each time, and how deep they may be nested.
MOST_VALUES, DEEPEST = 200_000, 100

_PREFIX = "tag:yaml.org,2002:"


class _Loader(yaml.SafeLoader):
    """SafeLoader with the implicit types of the YAML 1.2 core schema, and without explicit ones."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - PyYAML's own class attribute, replaced

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """A node of the document, without a tag."""
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        tag = getattr(event, "tag", None)
        if tag not in (None, "!"):
            said = message("configs.tag", tag=str(tag).replace(_PREFIX, "!!"))
            raise ConfigError(said.at(f"line {event.start_mark.line + 1}"))
        node: yaml.Node | None = super().compose_node(parent, index)
        return node


class _Dumper(yaml.SafeDumper):
    """SafeDumper that quotes text which YAML 1.1 or 1.2 would take for something else."""

    def represent_str(self, data: str) -> yaml.ScalarNode:
        """Text; with U+0085, which PyYAML writes as it is but reads as a line break, in double quotes, escaped."""
        style = '"' if "\x85" in data else None
        return self.represent_scalar(_PREFIX + "str", data, style=style)


def _integer(text: str) -> int:
    value = int(text, {"0o": 8, "0x": 16}.get(text[:2], 10)) if len(text) <= LONGEST_INTEGER else 2**63
    if not -(2**63) <= value < 2**63:
        raise ConfigError(message("configs.wide_integer", value=f"{text[:30]}..."))
    return value


#: Value of a text, by tag; other tags are those of text.
_VALUES: dict[str, Callable[[str], Any]] = {}
for _tag, _pattern, _first, _value in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""], lambda text: None),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF"), lambda text: text.lower() == "true"),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", list("-+0123456789"), _integer),
    (
        "float",
        r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        list("-+0123456789."),
        lambda text: float(text.lower().replace(".inf", "inf").replace(".nan", "nan")),
    ),
):
    _VALUES[_PREFIX + _tag] = _value
    for _class in (_Loader, _Dumper):
        _class.add_implicit_resolver(_PREFIX + _tag, re.compile(rf"^(?:{_pattern})$"), _first)
_Dumper.add_representer(str, _Dumper.represent_str)


class _Document:
    """Values of the nodes of one document."""

    def __init__(self) -> None:
        self._values = 0
        self._open: list[yaml.Node] = []  # the nodes around the one that is read

    def value(self, node: yaml.Node) -> Any:
        """The value of a node; every alias has a value of its own."""
        line = f"line {node.start_mark.line + 1}"
        self._values += 1
        if self._values > MOST_VALUES:
            raise ConfigError(message("configs.many_values", most=MOST_VALUES))
        if any(node is around for around in self._open):
            raise ConfigError(message("configs.endless_value").at(line))
        if len(self._open) > DEEPEST:
            raise ConfigError(message("configs.deep_value", most=DEEPEST).at(line))
        if isinstance(node, yaml.ScalarNode):
            try:
                return _VALUES.get(node.tag, str)(node.value)
            except ConfigError as error:
                raise ConfigError(error.args[0].at(line)) from error
        self._open.append(node)
        try:
            if isinstance(node, yaml.SequenceNode):
                return [self.value(part) for part in node.value]
            return self._mapping(node)
        finally:
            self._open.pop()

    def _mapping(self, node: yaml.Node) -> dict[str, Any]:
        """A mapping whose keys are distinct text."""
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key, line = self.value(key_node), f"line {key_node.start_mark.line + 1}"
            if not isinstance(key, str):
                raise ConfigError(message("configs.key_kind", key=key).at(line))
            if key in result:
                raise ConfigError(message("configs.repeated_key", key=key).at(line))
            result[key] = self.value(value_node)
        return result


def load_yaml(text: str) -> Any:
    """Return the value of one YAML document; an alias stands for a copy.

    ConfigError, with its line, for text that is not YAML, a tag, a duplicate key, a key that is not text, an integer
    beyond 64 bits, or more values than any config needs.
    """
    try:
        node = _Loader(text.removeprefix("\ufeff")).get_single_node()
        return None if node is None else _Document().value(node)
    except yaml.MarkedYAMLError as error:
        problem, mark = str(error.problem), error.problem_mark
        name = next((name for part, name in _INVALID.items() if part in problem), "not_yaml")
        said = message(f"configs.{name}", problem=problem)
        raise ConfigError(said.at(f"line {mark.line + 1}") if mark else said) from error
    except yaml.reader.ReaderError as error:
        said = message("configs.character", code=error.character)
        raise ConfigError(said.at(f"line {text.count(chr(10), 0, error.position) + 1}")) from error
    except RecursionError as error:
        raise ConfigError(message("configs.deep_value", most=DEEPEST)) from error


#: Parts of PyYAML's messages, and the sentences that take their place.
_INVALID = {
    "'\\t'": "tab",
    "another document": "second_document",
    "mapping values are not allowed": "missing_colon",
    "block end": "indentation",
}


def dump_yaml(value: Any) -> str:
    """``value`` as YAML text that :func:`load_yaml` reads back to the same value, keys in their order."""
    return str(yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120))
