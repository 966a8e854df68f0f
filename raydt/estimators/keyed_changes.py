"""One call that changes the models of several keys: all of them, or none.

Invariant: a change is prepared for every key, which refuses what is wrong with it, before the first model changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

from raydt.arrays.types import Ints
from raydt.errors import ConfigError, InputError, ModelFileError, UpdateError
from raydt.estimators.atomic import Change, DeferredInterrupt
from raydt.keyed.groups import Key
from raydt.messages import Message
from raydt.redaction import quoted

#: A change of one key's model, prepared: it cannot be refused any more.
Apply = Callable[[], Any]
Places = Mapping[Key, Ints]


def change_together(
    models: Mapping[Key, Any],
    changes: Mapping[Key, Callable[[], Apply]],
    become: Callable[[bool | None], None],
    rows: Places,
) -> dict[Key, Any]:
    """Prepare the changes of some models, then apply them all; return what each returns.

    ``become(None)`` is called once all have changed. If the call is refused or broken off, the models are as before
    and ``become`` is called with whether a change had reached one: this is refused from then on, but for its examples.
    ``rows`` are the rows of each key, for errors.
    """
    interrupt, complete, settled = DeferredInterrupt(), False, False
    begun: list[tuple[Any, Change]] = []

    def take_back() -> None:
        nonlocal settled
        for model, change in begun:
            change.take_back(model)
        become(any(change.touched for _, change in begun))
        settled = True

    with ExitStack() as locks:
        try:
            ready = {}
            for key, prepare in changes.items():
                model = models[key]
                locks.enter_context(model._lock)
                model._require_whole()
                change = Change(model, interrupt)
                begun.append((model, change))
                model._change = change
                ready[key] = prepared(prepare, key, rows)
            interrupt.begin()
            results = {key: apply() for key, apply in ready.items()}
            become(None)
            for model, _ in begun:
                model._change = None
            complete = True
            for model, _ in begun:
                model._settle()
            return results
        except BaseException:
            if not complete:
                take_back()
            raise
        finally:
            if not complete and not settled:
                take_back()  # a second Ctrl-C came before the first had been answered
            interrupt.end()


def prepared(step: Callable[[], Any], key: Key, rows: Places) -> Any:
    """Return what a step of one key returns; an error names the key, and the row of the call."""
    try:
        return step()
    except (InputError, ConfigError, ValueError, TypeError) as error:
        named = at_key(error, key, rows.get(key))
        if named is error:
            raise
        raise named from error


def at_key(error: Exception, key: Key, rows: Ints | None = None) -> Exception:
    """Return an error of one key's model with the key, and the row of the call in place of that among ``rows``."""
    if isinstance(error, InputError) and not isinstance(error, ModelFileError):
        row = error.row if error.row is None or rows is None else int(rows[error.row])
        kind = UpdateError if isinstance(error, UpdateError) else InputError
        return kind(**{**error.parts, "problem": _with_key(error.parts["problem"], key), "row": row})
    if isinstance(error, ConfigError) or type(error) in (ValueError, TypeError):
        return type(error)(_with_key(error.args[0] if error.args else "", key))
    return error


def _with_key(problem: str, key: Key) -> str:
    place = f"key {quoted(key)}"
    return problem.at(place) if isinstance(problem, Message) else f"{place}: {problem}"
