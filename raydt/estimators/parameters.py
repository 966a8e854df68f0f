"""Parameters of estimators, by scikit-learn's conventions: arguments of ``__init__``, kept as they were given.

What a parameter means is written once, in the description of the learner's option.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
import sys
import textwrap
from abc import ABC, abstractmethod
from collections.abc import Callable
from numbers import Integral
from typing import Any, ClassVar, Literal, TypeVar, get_args, get_origin

from pydantic import ValidationError

from raydt.errors import ConfigError
from raydt.estimators.arguments import parameter_error
from raydt.learners import learners
from raydt.messages import message
from raydt.parallel.threads import call, threads_of

Self = TypeVar("Self", bound="Parametrised")
C = TypeVar("C", bound=type[Any])

#: Parameters that are no options of a learner.
CATEGORICAL = (
    "categorical columns, by names and positions, or by a truth value for each column; text columns of frames always "
    "are categorical. A split separates one category from the rest"
)
N_FEATURES = (
    "number of sparse features, where rows are lists of indices, by themselves or in a frame; None: that of the frame "
    "(n_features in the metadata of its schema, or its largest index + 1), and any index up to 2**31 - 2 without one. "
    "A sparse matrix has its own"
)
N_JOBS = (
    "threads of each call; None and -1: all CPUs that this process may use; 1: only the calling one. No model depends "
    "on it or has it. The default differs from scikit-learn's, where None is 1"
)


def in_threads(method: Callable[..., Any]) -> Callable[..., Any]:
    """Have a method of an estimator use as many threads as its ``n_jobs`` says."""

    @functools.wraps(method)
    def limited_call(self: Parametrised, /, *arguments: Any, **named: Any) -> Any:
        return call(self._threads(), method, self, *arguments, **named)

    return limited_call


def documented(cls: C) -> C:
    """Put the section of the parameters into the docstring of an estimator, before its notes."""
    head, notes, rest = (cls.__doc__ or "").partition("    Notes\n    -----\n")
    if not notes:  # python -OO
        return cls
    names = vars(sys.modules[cls.__module__])

    def choices(match: re.Match[str]) -> str:
        """Spell out the name of a ``Literal``."""
        hint = names.get(match[0])
        return f"{{{', '.join(map(repr, get_args(hint)))}}}" if get_origin(hint) is Literal else match[0]

    options = learners()[getattr(cls, "estimator", cls).kind].Options.model_fields
    lines = ["Parameters", "----------"]
    for field in dataclasses.fields(cls):
        if field.name in options:
            meaning = re.sub(r"\bnull\b", "None", options[field.name].description or "")
        else:
            meaning = cls.described[field.name]
        meaning = meaning.replace("warm-up", "first call")
        kind = re.sub(r"Literal\[(.*?)\]", r"{\1}", re.sub(r"\w+", choices, str(field.type))).replace(" | ", " or ")
        lines.append(f"{field.name} : {kind}, default {field.default!r}")
        lines.append(textwrap.indent(textwrap.fill(f"{meaning[0].upper()}{meaning[1:]}.", 108), "    "))
    section = textwrap.indent("\n".join(lines), "    ")
    cls.__doc__ = f"{head}{section}\n\n{notes}{rest}"
    return cls


class Parametrised(ABC):
    """Base of what has its arguments of ``__init__`` as parameters, and public methods that use so many threads."""

    def __init_subclass__(cls, **named: Any) -> None:
        """Have the public methods and properties of a subclass use ``n_jobs`` threads."""
        super().__init_subclass__(**named)
        for name, member in list(vars(cls).items()):
            if not name.startswith("_") and inspect.isfunction(member):
                setattr(cls, name, in_threads(member))
            elif not name.startswith("_") and isinstance(member, property) and member.fget is not None:
                setattr(cls, name, member.getter(in_threads(member.fget)))

    @classmethod
    def _parameter_names(cls) -> list[str]:
        return sorted(name for name in inspect.signature(cls.__init__).parameters if name != "self")

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters by name."""
        return {name: getattr(self, name) for name in self._parameter_names()}

    def set_params(self: Self, **params: Any) -> Self:
        """Set parameters: ``n_jobs`` for the calls from now on, all others for the next ``fit``."""
        for name, value in params.items():
            if name not in self._parameter_names():
                valid = self._parameter_names()
                raise ValueError(message("estimators.invalid_parameter", name=name, estimator=str(self), valid=valid))
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        defaults = inspect.signature(type(self).__init__).parameters
        changed = ", ".join(
            f"{name}={value!r}"
            for name, value in self.get_params(deep=False).items()
            if value is not defaults[name].default
        )
        return f"{type(self).__name__}({changed})"

    @abstractmethod
    def _threads(self) -> int | None:
        """Return the most threads that a call may use; None: as many as the calls around it."""


class Parameters(Parametrised):
    """Base of the estimators, dataclasses whose fields are parameters, written once; each names its learner."""

    kind: ClassVar[str]
    #: What the parameters are for that are no options of the learner.
    described: ClassVar[dict[str, str]] = {
        "categorical_features": CATEGORICAL,
        "n_features": N_FEATURES,
        "n_jobs": N_JOBS,
    }
    #: Options of the learner that are no parameters.
    _fixed: ClassVar[dict[str, Any]] = {}
    n_jobs: int | None

    def _options(self) -> Any:
        options = learners()[self.kind].Options
        given = {name: value for name, value in self.get_params().items() if name in options.model_fields}
        try:
            return options(kind=self.kind, **self._fixed, **given)
        except ValidationError as error:
            raise parameter_error(error, given) from error

    def _threads(self) -> int | None:
        n_jobs = self.n_jobs
        if n_jobs is None:
            return None
        if isinstance(n_jobs, bool) or not isinstance(n_jobs, Integral) or n_jobs == 0:
            raise ConfigError(message("estimators.n_jobs", given=n_jobs))
        return threads_of(int(n_jobs))
