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


#: Methods to which meta-estimators of scikit-learn route metadata.
_ROUTED = ("fit", "partial_fit", "predict", "predict_proba", "score")


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


class RequestSetter:
    """``set_fit_request`` and its like: which metadata a meta-estimator of scikit-learn passes to a method.

    A class without the method, or whose method takes no metadata, has no such attribute.
    """

    def __init__(self, method: str) -> None:
        self._method = method

    def __get__(self, instance: Any, owner: type[Any]) -> Callable[..., Any]:
        names = owner._metadata_of(self._method)
        if not names:
            raise AttributeError(f"{owner.__name__!r} has no attribute 'set_{self._method}_request'")

        def set_request(estimator: Any = instance, /, **requests: Any) -> Any:
            from sklearn import get_config
            from sklearn.utils.metadata_routing import UNCHANGED

            if not get_config().get("enable_metadata_routing"):
                raise RuntimeError(message("estimators.no_routing"))
            if unknown := sorted(requests.keys() - names):
                raise TypeError(message("estimators.no_metadata", method=self._method, names=unknown, valid=names))
            routing = estimator.get_metadata_routing()
            for name, alias in requests.items():
                if alias is not UNCHANGED:
                    getattr(routing, self._method).add_request(param=name, alias=alias)
            estimator._metadata_request = routing
            return estimator

        set_request.__name__ = f"set_{self._method}_request"
        return set_request


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

    set_fit_request = RequestSetter("fit")
    set_partial_fit_request = RequestSetter("partial_fit")
    set_predict_request = RequestSetter("predict")
    set_predict_proba_request = RequestSetter("predict_proba")
    set_score_request = RequestSetter("score")

    def get_metadata_routing(self) -> Any:
        """Return scikit-learn's ``MetadataRequest``: the metadata that each method takes, and what is requested."""
        from sklearn.utils.metadata_routing import MetadataRequest, get_routing_for_object

        if hasattr(self, "_metadata_request"):
            return get_routing_for_object(self._metadata_request)
        routing = MetadataRequest(owner=type(self).__name__)
        for method in _ROUTED:
            for name in self._metadata_of(method):
                getattr(routing, method).add_request(param=name, alias=None)
        return routing

    @classmethod
    def _metadata_of(cls, method: str) -> list[str]:
        """Return the arguments of a method that are no features or targets, for instance ``sample_weight``."""
        function = getattr(cls, method, None)
        names = () if function is None else inspect.signature(function).parameters
        return [name for name in names if name not in ("self", "X", "y")]

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
