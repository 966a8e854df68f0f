"""Errors that pydantic found in a config, as messages by which the reader can correct them.

One for each problem: the dotted key, the value, what is wrong, and the nearest valid name where a key or a choice is
unknown. What is valid is read from the JSON Schema, so that nothing here knows a source, a stream or a
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
from raydt.messages import Message, message, message_of

Schema = Mapping[str, Any]


def describe(error: ValidationError, schema: Schema) -> list[Message]:
    """Return one message for each problem; ``schema`` is the JSON Schema of the model that refused the config."""
    found: dict[str, list[Message]] = {}
    meanings: dict[str, str] = {}
    # Unknown sections first: a misspelt one is also missed under its right name.
    problems = sorted(
        error.errors(include_url=False), key=lambda p: not (p["type"] == "extra_forbidden" and len(p["loc"]) == 1)
    )
    for problem in problems:
        place = _walk(schema, problem["loc"])
        key, what = _in_words(problem, place)
        if problem["type"] == "literal_error" and key in found:
            what = Message(", ".join(_literals(problem)))  # the other branches of the union have spoken before
        found.setdefault(key, []).append(what)  # the branches of a union complain one by one about one key
        meaning = place.node.get("description") or place.described
        if problem["type"] in _SENTENCES and meaning and not isinstance(problem["input"], Mapping):
            meanings[key] = f" ({meaning})"
    joined = [(key, _joined(whats, meanings.get(key, ""))) for key, whats in found.items()]
    # What is wrong between two sections has no key of its own.
    return [what.at(key) if key else what for key, what in joined]


def _joined(whats: Sequence[Message], meaning: str) -> Message:
    """Return the first of the problems of one key, with the words of all and the meaning of the key."""
    if len(whats) == 1 and not meaning:
        return whats[0]
    problem = ", or ".join(dict.fromkeys(what.problem for what in whats)) + meaning
    remedy = next((what.remedy for what in whats if what.remedy), "")
    return Message(problem, remedy, whats[0].id, whats[0].parameters)


def refused_nulls(error: ValidationError, schema: Schema, nulls: Mapping[str, bool]) -> list[str]:
    """Return the keys among ``nulls`` whose null was refused, but those misspelt: new and known to nothing."""
    found = dict[str, None]()
    for problem in error.errors(include_url=False):
        place = _walk(schema, problem["loc"])
        key = ".".join(place.path)
        if key in nulls and problem["input"] is None:
            unknown = problem["type"] == "extra_forbidden" and not nulls[key] and not place.users()
            found |= {} if unknown else {key: None}
    return list(found)


def _in_words(problem: ErrorDetails, place: _Place) -> tuple[str, Message]:
    """Return the key, with its value where the value is wrong, and what is wrong."""
    key, value, context = shortened(".".join(place.path)), problem["input"], problem.get("ctx", {})
    kind, with_value = problem["type"], f"{key} = {short(value)}"
    if kind == "extra_forbidden":
        return with_value, place.unknown_key()
    if kind == "missing":
        return key, message("configs.missing_key", example=place.example(key))
    if kind == "union_tag_not_found":
        name, choices = place.choices()
        return f"{key}.{name}", message("configs.missing_choice", choices=", ".join(choices))
    if kind == "union_tag_invalid":
        name, choices = place.choices()
        tag = str(context["tag"])
        return f"{key}.{name} = {short(tag)}", _one_of(tag, choices)
    if kind == "literal_error":
        return with_value, _one_of(str(value), _literals(problem))
    if kind in _SENTENCES:
        what = message(f"configs.{_SENTENCES[kind]}", **context)
    else:
        what = message_of(context.get("error", ValueError())) or Message(
            problem["msg"].removeprefix("Value error, ").removeprefix(f"{key}: ")
        )
    return key if isinstance(value, Mapping) else with_value, what


def _literals(problem: ErrorDetails) -> list[str]:
    names = problem.get("ctx", {})["expected"].replace(" or ", ", ").split(", ")
    return [name.strip("'") for name in names]


#: Names of the sentences of pydantic's types of problems.
_SENTENCES = {
    "model_attributes_type": "mapping",
    "model_type": "mapping",
    "dict_type": "mapping",
    "greater_than_equal": "least",
    "greater_than": "more",
    "less_than_equal": "most",
    "less_than": "less",
    "int_type": "integer",
    "int_parsing": "integer",
    "int_from_float": "integer",
    "float_type": "number",
    "float_parsing": "number",
    "finite_number": "finite",
    "string_type": "text",
    "bool_type": "boolean",
    "list_type": "list",
    "too_short": "empty_list",
    "string_too_short": "short_text",
    "string_too_long": "long_text",
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

    def unknown_key(self) -> Message:
        """Return the problem of a key that is not known, with its remedy."""
        name, users = self.path[-1], self.users()
        if users:
            return message("configs.foreign_key", users=", ".join(users))
        valid = list(self.holder.get("properties", {}))
        close = _closest(name, valid)
        elsewhere = [f"{section}.{name}" for section in _sections_with(self.schema, name)]
        if close or (elsewhere and len(self.path) == 1):
            return message("configs.misspelt_key", close=repr(close) if close else " or ".join(elsewhere))
        return message("configs.unknown_key", keys=", ".join(valid))


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


def _one_of(name: str, valid: Sequence[str]) -> Message:
    choices, close = ", ".join(valid), _closest(name, valid)
    if close:
        return message("configs.misspelt_choice", choices=choices, close=close)
    return message("configs.choice", choices=choices)


def _closest(name: str, valid: Sequence[str]) -> str:
    return next(iter(difflib.get_close_matches(name, valid, n=1)), "")


def short(value: Any) -> str:
    """A value as Python writes it, cut to what fits into a line."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
