"""What is refused, and with which message."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from raydt.audits.recorded_tree import AuditReport
from raydt.messages import Message, message_of, text


@contextmanager
def refused(
    id: str, error: type[BaseException] = ValueError, /, **parameters: Any
) -> Iterator[pytest.ExceptionInfo[BaseException]]:
    """Require that the block raises ``error`` with the message ``id`` and these parameters, or attributes (``row``)."""
    with pytest.raises(error) as caught:
        yield caught
    said = message_of(caught.value)
    assert said is not None, f"no message of the catalogue: {caught.value}"
    assert said.id == id, f"{said.id}: {said}"
    shown = {name: text(one) if isinstance(one, str) else one for name, one in said.parameters.items()}
    found = {name: shown[name] if name in shown else getattr(caught.value, name, None) for name in parameters}
    assert found == parameters, f"{said.id}: {found}"


@contextmanager
def warned(id: str, **parameters: Any) -> Iterator[None]:
    """Require that the block warns with the message ``id`` and these parameters, and of nothing else."""
    with pytest.warns(UserWarning) as caught:  # noqa: PT030 - which one is asked below
        yield
    found = [warning.message.args[0] for warning in caught if isinstance(warning.message, Warning)]
    assert [getattr(said, "id", said) for said in found] == [id]
    assert {name: found[0].parameters[name] for name in parameters} == parameters


def findings(report: AuditReport) -> set[str]:
    """Return the ids of the failures of an audit, each with the array or name that is wrong, if it names one."""
    found = set()
    for failure in report.failures:
        said = failure if isinstance(failure, Message) else Message(failure)
        named = [str(said.parameters[name]) for name in ("array", "name") if name in said.parameters]
        found.add(":".join((said.id, *named)))
    return found


def refusal(adapter: TypeAdapter[Any], options: Any) -> str:
    """Validate options that are to be refused; return each problem as ``path.of.the.key: problem``.

    The problem is the id of the message if raydt's own code refuses, and pydantic's name of it otherwise.
    """
    with pytest.raises(ValidationError) as caught:
        adapter.validate_python(options)
    return "; ".join(f"{'.'.join(map(str, problem['loc']))}: {_problem(problem)}" for problem in caught.value.errors())


def _problem(problem: Any) -> str:
    if problem["type"] != "value_error":
        return str(problem["type"])
    said = message_of(problem["ctx"]["error"])
    return problem["msg"].removeprefix("Value error, ") if said is None else said.id
