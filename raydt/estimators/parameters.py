"""Parameters of estimators, by scikit-learn's conventions: arguments of ``__init__``, kept as they were given."""

from __future__ import annotations

import inspect
from typing import Any, ClassVar, TypeVar

from pydantic import ValidationError

from raydt.estimators.arguments import parameter_error
from raydt.learners import learners
from raydt.messages import message

Self = TypeVar("Self", bound="Parameters")


class Parameters:
    """Base of the estimators; a subclass names its learner, and has the options of it among its parameters.

    A subclass is a dataclass, whose fields are its parameters: their names, types and defaults are written once.
    """

    kind: ClassVar[str]
    #: Parameters of ``__init__`` that are not options of the learner.
    _own: ClassVar[tuple[str, ...]] = ("categorical_features",)
    #: Options of the learner that are no parameters.
    _fixed: ClassVar[dict[str, Any]] = {}

    @classmethod
    def _parameter_names(cls) -> list[str]:
        return sorted(name for name in inspect.signature(cls.__init__).parameters if name != "self")

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters by name."""
        return {name: getattr(self, name) for name in self._parameter_names()}

    def set_params(self: Self, **params: Any) -> Self:
        """Set parameters; takes effect at the next ``fit``."""
        for name, value in params.items():
            if name not in self._parameter_names():
                valid = self._parameter_names()
                raise ValueError(message("estimators.invalid_parameter", name=name, estimator=str(self), valid=valid))
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        defaults = inspect.signature(type(self).__init__).parameters
        changed = ", ".join(
            f"{name}={value!r}" for name, value in self.get_params().items() if value is not defaults[name].default
        )
        return f"{type(self).__name__}({changed})"

    def _options(self) -> Any:
        """Return the options of the learner among the parameters."""
        given = {name: value for name, value in self.get_params().items() if name not in self._own}
        try:
            return learners()[self.kind].Options(kind=self.kind, **self._fixed, **given)
        except ValidationError as error:
            raise parameter_error(error, given) from error
