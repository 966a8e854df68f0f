"""The learners, found by name: each sub-package of this folder that defines ``LEARNER`` is one.

Adding a method means adding a folder; nothing here needs to be edited.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from raydt.learners.base import Learner


@cache
def learners() -> dict[str, Learner]:
    """All learners by their ``kind``."""
    found = {}
    for module in pkgutil.iter_modules(__path__):
        if module.ispkg:
            learner: Learner = importlib.import_module(f"{__name__}.{module.name}").LEARNER
            found[learner.kind] = learner
    return found
