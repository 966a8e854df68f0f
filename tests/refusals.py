"""What is refused, and with which message."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from raydt.messages import message_of
from raydt.redaction import text


@contextmanager
def refused(
    id: str, error: type[BaseException] = ValueError, **parameters: Any
) -> Iterator[pytest.ExceptionInfo[BaseException]]:
    """Require that the block raises ``error`` with the message ``id``, which has these parameters among its own."""
    with pytest.raises(error) as caught:
        yield caught
    said = message_of(caught.value)
    assert said is not None, f"no message of the catalogue: {caught.value}"
    assert said.id == id, f"{said.id}: {said}"
    shown = {name: text(one) if isinstance(one, str) else one for name, one in said.parameters.items()}
    assert {name: shown.get(name) for name in parameters} == parameters


def refusal(adapter: TypeAdapter[Any], options: Any) -> str:
    """Validate options that are to be refused; return each problem as ``path.of.the.key: problem``.

    The problem is the message if raydt's own code refuses, and pydantic's name of it otherwise.
    """
    with pytest.raises(ValidationError) as caught:
        adapter.validate_python(options)
    problems = caught.value.errors()
    return "; ".join(
        f"{'.'.join(map(str, problem['loc']))}: "
        + (problem["msg"].removeprefix("Value error, ") if problem["type"] == "value_error" else problem["type"])
        for problem in problems
    )
