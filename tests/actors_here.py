"""Actors in this process: a call of a method gives a future where Ray gives a reference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from typing import Any

from actors.liveness import Peer


class AtOnce(Executor):
    """Does what is asked in the thread that asks."""

    def submit(self, call: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        """Return a future that is done."""
        done: Future[Any] = Future()
        try:
            done.set_result(call(*arguments, **named))
        except Exception as error:
            done.set_exception(error)
        return done


class Handle:
    """An actor, whose calls are made by ``thread``: at once, or one after the other in a thread of its own."""

    def __init__(self, actor: Any, thread: Executor | None = None) -> None:
        self._actor, self._thread = actor, thread or AtOnce()

    def __getattr__(self, name: str) -> Any:
        method, submit = getattr(self._actor, name), self._thread.submit

        class Method:
            @staticmethod
            def options(**_: Any) -> Any:
                return Method

            @staticmethod
            def remote(*arguments: Any) -> Future[Any]:
                return submit(method, *arguments)

        return Method


class Waiting:
    """As :class:`actors.liveness.Watch`, but for who is lost."""

    def collect(self, replies: Sequence[Future[Any]], peers: Sequence[Peer]) -> list[Any]:
        """Return the values, or raise the first error."""
        return [reply.result(60) for reply in replies]
