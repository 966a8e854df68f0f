"""YAML as people mean it: the core schema of YAML 1.2, read safely, with duplicate keys refused.

PyYAML follows YAML 1.1, where ``1e-7`` is text, ``no`` is false, ``010`` is eight and ``1:30`` is ninety. Here
numbers are numbers, only ``true`` and ``false`` are booleans, and dates stay text. There are anchors, but no merge
keys: they are not part of YAML 1.2.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

from raydt.errors import ConfigError

#: Characters of the longest integer that is converted.
LONGEST_INTEGER = 100

#: Values of a document, those that aliases repeat counted each time, and how deep they may be nested.
MOST_VALUES, DEEPEST = 200_000, 100


class _Loader(yaml.SafeLoader):
    """SafeLoader with the implicit types of the YAML 1.2 core schema, and without explicit ones."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - PyYAML's own class attribute, replaced

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """A node of the document, without a tag."""
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        tag = getattr(event, "tag", None)
        if tag not in (None, "!"):
            name = str(tag).replace("tag:yaml.org,2002:", "!!")
            raise ConfigError(f"line {event.start_mark.line + 1}: tags such as {name} are not allowed. Leave it out")
        node: yaml.Node | None = super().compose_node(parent, index)
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """A mapping whose keys are distinct text."""
        result: dict[Any, Any] = {}
        for key_node, value_node in node.value:
            key = self.construct_object(key_node, deep=True)
            line = key_node.start_mark.line + 1
            if not isinstance(key, str):
                raise ConfigError(f"line {line}: the key {key!r} is not text. Write it in quotes")
            if key in result:
                raise ConfigError(f"line {line}: the key {key!r} appears twice. Keep one of them")
            result[key] = self.construct_object(value_node, deep=deep)
        return result


def _integer(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> int:
    text = str(loader.construct_scalar(node))
    base = 8 if text.startswith("0o") else 16 if text.startswith("0x") else 10
    value = int(text, base) if len(text) <= LONGEST_INTEGER else None
    if value is None or not -(2**63) <= value < 2**63:
        line = node.start_mark.line + 1
        raise ConfigError(f"line {line}: the integer {text[:30]}... does not fit into 64 bits. Write a smaller one")
    return value


def _float(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> float:
    text = str(loader.construct_scalar(node)).lower()
    return float(text.replace(".inf", "inf").replace(".nan", "nan"))


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict[Any, Any]:
    return loader.construct_mapping(node, deep=True)


class _Dumper(yaml.SafeDumper):
    """SafeDumper that quotes text which YAML 1.1 or 1.2 would take for something else."""

    def represent_str(self, data: str) -> yaml.ScalarNode:
        """Text; with U+0085, which PyYAML writes as it is but reads as a line break, in double quotes, escaped."""
        style = '"' if "\x85" in data else None
        return self.represent_scalar("tag:yaml.org,2002:str", data, style=style)


for _tag, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", list("-+0123456789")),
    (
        "float",
        r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        list("-+0123456789."),
    ),
):
    for _class in (_Loader, _Dumper):
        _class.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(rf"^(?:{_pattern})$"), _first)
_Dumper.add_representer(str, _Dumper.represent_str)
_Loader.add_constructor("tag:yaml.org,2002:int", _integer)
_Loader.add_constructor("tag:yaml.org,2002:float", _float)
_Loader.add_constructor("tag:yaml.org,2002:map", _mapping)


def load_yaml(text: str) -> Any:
    """The value of one YAML document; what an alias stands for is copied to its place.

    Raises
    ------
    ConfigError
        Text that is not YAML, a tag, a duplicate key, a key that is not text, an integer beyond 64 bits, or more values
        than any config needs, with its line.
    """
    try:
        loader = _Loader(text.removeprefix("\ufeff"))
        node = loader.get_single_node()
        if node is None:
            return None
        _require_modest(node, {}, 0)
        return _unshared(loader.construct_document(node))
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise ConfigError(f"{line}not valid YAML: {_in_words(error)}") from error
    except yaml.reader.ReaderError as error:
        line = f"line {text.count(chr(10), 0, error.position) + 1}: "
        raise ConfigError(f"{line}the character U+{error.character:04X} is not allowed in YAML. Remove it") from error
    except RecursionError as error:
        raise ConfigError(f"values are nested deeper than {DEEPEST} levels. Flatten them") from error


def _require_modest(node: yaml.Node, sizes: dict[int, int], depth: int) -> int:
    """Number of values under a node with all aliases replaced; refuses what would fill the memory.

    O(nodes written): ``sizes`` remembers each node that was counted, 0 while it is being counted.
    """
    line = node.start_mark.line + 1
    if depth > DEEPEST:
        raise ConfigError(f"line {line}: values are nested deeper than {DEEPEST} levels. Flatten them")
    size = sizes.get(id(node))
    if size == 0:
        raise ConfigError(f"line {line}: this value contains itself by an alias. Write out what is meant")
    if size is None:
        sizes[id(node)] = 0
        children: list[yaml.Node] = []
        if isinstance(node, yaml.SequenceNode):
            children = node.value
        elif isinstance(node, yaml.MappingNode):
            children = [part for pair in node.value for part in pair]
        size = 1 + sum(_require_modest(child, sizes, depth + 1) for child in children)
        if size > MOST_VALUES:
            raise ConfigError(f"line {line}: these are more than {MOST_VALUES:,} values. Use fewer aliases")
        sizes[id(node)] = size
    return size


def _unshared(value: Any) -> Any:
    """The value with a copy at each place of an alias, so that a change of one leaves the others."""
    if isinstance(value, dict):
        return {key: _unshared(part) for key, part in value.items()}
    return [_unshared(part) for part in value] if isinstance(value, list) else value


def _in_words(error: yaml.MarkedYAMLError) -> str:
    """What PyYAML has found, with the remedy where it is a common slip."""
    problem = str(error.problem)
    if "'\\t'" in problem:
        return "a tab where only spaces are allowed. Indent with spaces"
    if "another document" in problem:
        return "it holds a second document. Keep one"
    if "mapping values are not allowed" in problem:
        return f"{problem}. Is a colon missing above, or is the indentation wrong?"
    if "block end" in problem:
        return f"{problem}. Is the indentation right?"
    return problem


def dump_yaml(value: Any) -> str:
    """``value`` as YAML text that :func:`load_yaml` reads back to the same value, keys in their order."""
    return str(yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120))
