"""The learners, found by name: each sub-package of this folder that defines ``LEARNER`` is one.

Adding a method means adding a folder; nothing here needs to be edited. No method imports another: what several share
is a module of this folder.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache
from typing import Any

from raydt.learners.base import Learner, Renamed


@cache
def learners() -> dict[str, Learner]:
    """All learners by their ``kind``."""
    found = {}
    for module in pkgutil.iter_modules(__path__):
        if module.ispkg:
            learner: Learner = importlib.import_module(f"{__name__}.{module.name}").LEARNER
            found[learner.kind] = learner
    return found


def renamed(options: Any) -> Renamed | None:
    """Options of a learner in today's spelling, if a learner knows them as those of an earlier version; else None."""
    if not isinstance(options, Mapping):
        return None
    answers = (learner.renamed(options) for learner in learners().values())
    return next((answer for answer in answers if answer is not None), None)


def in_present_spelling(options: Any) -> Any:
    """The same options in today's spelling; what no learner knows from an earlier version is returned as it is."""
    answer = renamed(options)
    return options if answer is None else answer.options
