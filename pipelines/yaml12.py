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


class _Loader(yaml.SafeLoader):
    """SafeLoader with the implicit types of the YAML 1.2 core schema."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - PyYAML's own class attribute, replaced

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
    return int(text, base)


def _float(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> float:
    text = str(loader.construct_scalar(node)).lower()
    return float(text.replace(".inf", "inf").replace(".nan", "nan"))


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict[Any, Any]:
    return loader.construct_mapping(node, deep=True)


class _Dumper(yaml.SafeDumper):
    """SafeDumper that quotes text which YAML 1.1 or 1.2 would take for something else."""


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
_Loader.add_constructor("tag:yaml.org,2002:int", _integer)
_Loader.add_constructor("tag:yaml.org,2002:float", _float)
_Loader.add_constructor("tag:yaml.org,2002:map", _mapping)


def load_yaml(text: str) -> Any:
    """The value of one YAML document.

    Raises
    ------
    ConfigError
        Text that is not YAML, a duplicate key, or a key that is not text, with its line.
    """
    try:
        return yaml.load(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise ConfigError(f"{line}not valid YAML: {error.problem}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"not valid YAML: {error}") from error


def dump_yaml(value: Any) -> str:
    """``value`` as YAML text that :func:`load_yaml` reads back to the same value, keys in their order."""
    return str(yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120))
