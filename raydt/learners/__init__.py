"""The learners, found by name: each sub-package of this folder that defines ``LEARNER`` is one.

Adding a method means adding a folder; nothing here needs to be edited. No method imports another: modules and
sub-packages without a ``LEARNER`` are what methods share.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from raydt.learners.base import Learner


@cache
def learners() -> dict[str, Learner]:
    """All learners by their ``kind``."""
    found: dict[str, Learner] = {}
    for module in pkgutil.iter_modules(__path__):
        if module.ispkg:
            package = importlib.import_module(f"{__name__}.{module.name}")
            if hasattr(package, "LEARNER"):
                found[package.LEARNER.kind] = package.LEARNER
    return found
