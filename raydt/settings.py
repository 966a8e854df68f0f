"""Base of the sections of a config: a retired key is refused with what to use instead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, model_validator

from raydt.messages import message


class Settings(BaseModel):
    """Keys of one section of a config."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    #: Keys of earlier versions: the values that mean what is done today, and what to use instead.
    retired: ClassVar[Mapping[str, tuple[tuple[Any, ...], str]]] = {}

    @model_validator(mode="before")
    @classmethod
    def _without_retired(cls, given: Any) -> Any:
        """Refuse retired keys; one that is set to what is done today is left out, as in states and runs."""
        if not isinstance(given, Mapping):
            return given
        for name in cls.retired.keys() & given.keys():
            today, instead = cls.retired[name]
            if given[name] not in today:
                raise ValueError(message("settings.retired", name=name, instead=instead))
        return {name: value for name, value in given.items() if name not in cls.retired}
