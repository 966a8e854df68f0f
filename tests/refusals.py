"""What the models of options refuse."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError


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
