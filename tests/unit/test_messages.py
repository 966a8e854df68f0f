"""The catalogue of messages: what the product says has a sentence, and every sentence is said."""

from __future__ import annotations

import ast
import copy
import functools
import pickle
import re
from pathlib import Path
from string import Formatter

import pytest

from raydt.errors import ConfigError, InputError
from raydt.messages import Message, Sentence, message, message_of, sentences
from raydt.redaction import quoted

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
