"""Docstrings of estimators as they are at run time, when the options have described their parameters."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import griffe


class Described(griffe.Extension):
    """Take the docstring of each class of estimators from the class itself."""

    def on_class(self, *, cls: griffe.Class, **_: Any) -> None:
        """Replace what the source says."""
        if cls.docstring is not None and cls.path.startswith("raydt.estimators."):
            found = getattr(importlib.import_module(cls.module.path), cls.name, None)
            cls.docstring.value = inspect.getdoc(found) or cls.docstring.value
