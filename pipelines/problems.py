"""Errors that pydantic found in a config, worded so that the reader can correct them.

One line for each problem: the dotted key, the value, what is wrong, and the nearest valid name where a key or a
choice is unknown. What is valid is read from the JSON Schema, so that nothing here knows a source, a stream or a
learner.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from pipelines.printing import shortened

Schema = Mapping[str, Any]


def describe(error: ValidationError, schema: Schema) -> list[str]:
    """One line for each problem.

    Parameters
    ----------
    error : ValidationError
        From validating a config.
    schema : mapping
        JSON Schema of the model that refused it.
    """
    found: dict[str, list[str]] = {}
    meanings: dict[str, str] = {}
    # Unknown sections first: a misspelt one is also missed under its right name.
    problems = sorted(
        error.errors(include_url=False), key=lambda p: not (p["type"] == "extra_forbidden" and len(p["loc"]) == 1)
    )
    for problem in problems:
        place = _walk(schema, problem["loc"])
        key, what = _in_words(problem, place)
        if problem["type"] == "literal_error" and key in found:
            what = ", ".join(_literals(problem))  # after another branch of a union these are what else is possible
        found.setdefault(key, []).append(what)  # the branches of a union complain one by one about one key
        meaning = place.node.get("description") or place.described
        if problem["type"] in _WORDS and meaning and not isinstance(problem["input"], Mapping):
            meanings[key] = f" ({meaning})"
    # What is wrong between two sections has no key of its own.
    return [
        f"{key}: " * bool(key) + ", or ".join(dict.fromkeys(whats)) + meanings.get(key, "")
        for key, whats in found.items()
    ]


def refused_nulls(error: ValidationError, schema: Schema, nulls: Mapping[str, bool]) -> list[str]:
    """The keys among ``nulls`` whose null was refused.

    Parameters
    ----------
    error, schema
        As of :func:`describe`.
    nulls : mapping
        Dotted keys that were set to null, and whether they had a value before. One that had none and that nothing knows
        is misspelt, and not among the answers.
    """
    found = dict[str, None]()
    for problem in error.errors(include_url=False):
        place = _walk(schema, problem["loc"])
        key = ".".join(place.path)
        if key in nulls and problem["input"] is None:
            unknown = problem["type"] == "extra_forbidden" and not nulls[key] and not place.users()
            found |= {} if unknown else {key: None}
    return list(found)


def _in_words(problem: ErrorDetails, place: _Place) -> tuple[str, str]:
    """The key, with its value where that is what is wrong, and what is wrong."""
    key, value, context = shortened(".".join(place.path)), problem["input"], problem.get("ctx", {})
    kind, with_value = problem["type"], f"{key} = {short(value)}"
    if kind == "extra_forbidden":
        return with_value, f"unknown key. {place.known_keys()}"
    if kind == "missing":
        return key, f"missing. Add {place.example(key)}"
    if kind == "union_tag_not_found":
        name, choices = place.choices()
        return f"{key}.{name}", f"missing. Choose one of {', '.join(choices)}"
    if kind == "union_tag_invalid":
        name, choices = place.choices()
        tag = str(context["tag"])
        return f"{key}.{name} = {short(tag)}", _one_of(tag, choices)
    if kind == "literal_error":
        return with_value, _one_of(str(value), _literals(problem))
    if kind in _WORDS:
        what = _WORDS[kind].format(**context)
    else:
        what = problem["msg"].removeprefix("Value error, ").removeprefix(f"{key}: ")
    return key if isinstance(value, Mapping) else with_value, what


def _literals(problem: ErrorDetails) -> list[str]:
    names = problem.get("ctx", {})["expected"].replace(" or ", ", ").split(", ")
    return [name.strip("'") for name in names]


#: What pydantic's types of problems ask for.
_WORDS = {
    "model_attributes_type": "must be a mapping of keys",
    "model_type": "must be a mapping of keys",
    "dict_type": "must be a mapping of keys",
    "greater_than_equal": "must be at least {ge}",
    "greater_than": "must be greater than {gt}",
    "less_than_equal": "must be at most {le}",
    "less_than": "must be less than {lt}",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "finite_number": "must be a finite number",
    "string_type": "must be text",
    "bool_type": "must be true or false",
    "list_type": "must be a list, such as [a, b]",
    "too_short": "must not be empty",
    "string_too_short": "must have at least {min_length} character",
    "string_too_long": "must have at most {max_length} character",
}


@dataclass
class _Place:
    """Where a problem lies: its key, the schema there, the object that holds the key, and the unions on the way."""

    schema: Schema
    node: Schema
    path: list[str] = field(default_factory=list)
    holder: Schema = field(default_factory=dict)
    unions: list[Schema] = field(default_factory=list)

    @property
    def described(self) -> str:
        """Description of the key here, from its field."""
        described: str = self.holder.get("properties", {}).get(self.path[-1], {}).get("description", "")
        return described

    def example(self, key: str) -> str:
        """Remedy for a key that is missing."""
        if "discriminator" in self.node:
            name, choices = self.choices()
            rest = ", ..." if len(choices) > 1 else ""
            return f"{key}: {{{name}: {' | '.join(choices)}{rest}}}"
        return f"{key}: {self.described}" if self.described else "this key"

    def choices(self) -> tuple[str, list[str]]:
        """Name and values of the key that decides the union here."""
        union = self.node["discriminator"]
        return union["propertyName"], sorted(union["mapping"])

    def users(self) -> list[str]:
        """The other choices of the union here that have this key."""
        return sorted({user for union in self.unions[:1] for user in _users(self.schema, union, self.path[-1])})

    def known_keys(self) -> str:
        """Remedy for a key that is not known."""
        name, users = self.path[-1], self.users()
        if users:
            return f"It is used only with {', '.join(users)}"
        valid = list(self.holder.get("properties", {}))
        close = _closest(name, valid)
        if close:
            return f"Did you mean {close!r}?"
        elsewhere = (
            [f"{section}.{name}" for section in _sections_with(self.schema, name)] if len(self.path) == 1 else []
        )
        return f"Did you mean {' or '.join(elsewhere)}?" if elsewhere else f"Valid keys are {', '.join(valid)}"


def _walk(schema: Schema, loc: Sequence[int | str]) -> _Place:
    """Follow a location of pydantic's, in which the tags of unions and the names of branches stand between the keys."""
    place = _Place(schema, schema)
    for part in loc:
        node = _resolve(schema, place.node)
        if "discriminator" in node:
            if part in node["discriminator"]["mapping"]:
                place.unions.append(node)
                place.node = _resolve(schema, node["discriminator"]["mapping"][part])
        elif isinstance(part, int):
            place.path.append(str(part))
            place.node = node.get("items", {})
        elif "properties" in node:
            if part in node["properties"]:
                place.unions = []
            place.path.append(part)
            place.holder, place.node = node, node["properties"].get(part, {})
    place.node = _resolve(schema, place.node)
    return place


def _resolve(schema: Schema, node: Any) -> Schema:
    """Follow a reference to its definition, also out of an ``anyOf`` with null."""
    if isinstance(node, str):
        node = {"$ref": node}
    if "anyOf" in node:
        node = next((part for part in node["anyOf"] if "$ref" in part), node)
    while "$ref" in node:
        node = schema["$defs"][str(node["$ref"]).rsplit("/", 1)[-1]]
    resolved: Schema = node
    return resolved


def _users(schema: Schema, union: Schema, name: str) -> Iterator[str]:
    """The choices of a union, and of unions in it, that have a key ``name``."""
    for tag, choice in union["discriminator"]["mapping"].items():
        node = _resolve(schema, choice)
        if "discriminator" in node:
            yield from _users(schema, node, name)
        elif name in node.get("properties", {}):
            yield f"{union['discriminator']['propertyName']}: {tag}"


def _sections_with(schema: Schema, name: str) -> Iterator[str]:
    """The sections that have a key ``name``, or may have."""
    for section, value in schema["properties"].items():
        node = _resolve(schema, value)
        if name in node.get("properties", {}) or ("discriminator" in node and any(_users(schema, node, name))):
            yield section


def _one_of(name: str, valid: Sequence[str]) -> str:
    close = _closest(name, valid)
    hint = f". Did you mean {close!r}?" if close else ""
    return f"not one of {', '.join(valid)}{hint}"


def _closest(name: str, valid: Sequence[str]) -> str:
    return next(iter(difflib.get_close_matches(name, valid, n=1)), "")


def short(value: Any) -> str:
    """A value as Python writes it, cut to what fits into a line."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
