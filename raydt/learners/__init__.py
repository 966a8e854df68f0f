"""The learners, found by name: sub-packages of this folder that define ``LEARNER``, and entry points of other packages.

Adding a method means adding a folder, named by its kind; nothing here needs to be edited. No method imports another:
what several share is a module of this folder. A package of its own names its learner in the entry-point group
``raydt.learners``, one entry ``kind = "module:LEARNER"``. Every process that has the package finds it there: workers of
Ray and child processes need nothing else.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from raydt.errors import ConfigError
from raydt.examples.updates import Reading
from raydt.learners.base import Learner, LearnerOptions, Traits
from raydt.learners.description import Description
from raydt.messages import Message, message

#: The entry points that name learners of other packages.
GROUP = "raydt.learners"


class _Learners(Mapping[str, Learner]):
    """Learners by their kind, each imported when it is asked for: a job needs one of them."""

    def __init__(self, loaders: Mapping[str, Callable[[], Learner]]) -> None:
        self._loaders = {kind: cache(load) for kind, load in loaders.items()}

    def __getitem__(self, kind: str) -> Learner:
        return self._loaders[kind]()

    def __iter__(self) -> Iterator[str]:
        return iter(self._loaders)

    def __len__(self) -> int:
        return len(self._loaders)

    def __contains__(self, kind: object) -> bool:
        return isinstance(kind, str) and kind in self._loaders


@cache
def learners() -> Mapping[str, Learner]:
    """Return all learners by their ``kind``; each is loaded when it is asked for.

    ConfigError if an entry point repeats a kind or, on loading, is broken, names no learner or one of another kind.
    """
    found: dict[str, Callable[[], Learner]] = {
        module.name: partial(_own, module.name) for module in pkgutil.iter_modules(__path__) if module.ispkg
    }
    entries = {(entry.name, entry.value): entry for entry in entry_points(group=GROUP)}
    for _, entry in sorted(entries.items()):
        if entry.name in found:
            raise ConfigError(message("learners.repeated_entry", name=entry.name, value=entry.value))
        found[entry.name] = partial(_of_package, entry)
    return _Learners(found)


def _own(kind: str) -> Learner:
    learner: Learner = importlib.import_module(f"{__name__}.{kind}").LEARNER
    return learner


def _of_package(entry: EntryPoint) -> Learner:
    """Return the learner that another package names."""
    try:
        learner = entry.load()
    except Exception as error:
        raise ConfigError(message("learners.broken_entry", name=entry.name, value=entry.value, error=error)) from error
    if not isinstance(learner, Learner) or learner.kind != entry.name:
        raise ConfigError(message("learners.other_entry", name=entry.name, value=entry.value))
    return learner


def traits_of(options: LearnerOptions) -> Traits:
    """Traits of the learner whose options these are."""
    return learners()[options.kind].traits(options)


def description_of(options: LearnerOptions) -> Description:
    """Return the description of the learner with these options."""
    return learners()[options.kind].describe(options.model_dump())


def described(kind: Any, options: Mapping[str, Any] | None = None) -> Description:
    """Return the description of a learner by a summary and a manifest; of an unknown one that of any tree."""
    learner = learners().get(kind) if isinstance(kind, str) else None
    return learner.describe(options or {}) if learner else Description()


def instead(own: str, takes: Callable[[Reading], bool]) -> str:
    """Ways to accept given rows, for a remedy: options of the same learner, or other learners with their defaults."""
    kinds = [kind for kind, learner in learners().items() if takes(learner.traits(learner.Options()).reading)]
    others = " or ".join([", ".join(kinds[:-1]), kinds[-1]] if len(kinds) > 1 else kinds)
    return " or ".join(part for part in (own, f"learner.kind: {others}" if others else "") if part)


def for_weights(numbers: bool = False) -> str:
    """Say which learners take weights, for a remedy; with ``numbers`` those that do where labels are numbers."""
    return for_numbers(lambda reading: reading.weights) if numbers else instead("", lambda other: other.weights)


def no_weights(what: str, kind: str, numbers: bool = False) -> Message:
    """Say that a learner takes no weights, which were given as ``what``, and which learners do."""
    return message("learners.no_weights", what=what, kind=kind, takers=for_weights(numbers))


def for_numbers(takes: Callable[[Reading], bool] = lambda _: True) -> str:
    """Return the learners and options that take numeric labels, and what ``takes`` asks for, as a remedy."""
    found = []
    for kind, learner in learners().items():
        option = learner.traits(learner.Options()).reading.with_numbers
        name, _, value = option.partition(": ")
        if option and takes(learner.traits(learner.Options(**{name: value})).reading):
            found.append(f"{kind} with {option}")
    return " or ".join(found)
