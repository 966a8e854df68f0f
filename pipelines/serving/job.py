"""``raydt serve``: answers requests until SIGTERM or SIGINT, which end it in order."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import os
import secrets
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from pipelines.redaction import quoting_as_its_run
from pipelines.serving.application import Application
from pipelines.serving.http import Server
from pipelines.serving.reader import SnapshotReader
from pipelines.threads_of_run import in_threads_of_its_run
from raydt.errors import ConfigError
from raydt.messages import message

#: Environment variable of the token, and the least length of one.
TOKEN, LEAST_TOKEN = "RAYDT_SERVE_TOKEN", 16


#: Seconds after which a thread that loads a snapshot hands the interpreter to the one that answers; Python's 5 ms would
#: be 40 times as long as an answer takes.
_SWITCH_SECONDS = 1e-4


@in_threads_of_its_run
@quoting_as_its_run
def serve(
    place: str | Path,
    host: str = "127.0.0.1",
    port: int = 8765,
    *,
    every: float = 1.0,
    say: Callable[[str], None] = lambda text: None,
) -> dict[str, int]:
    """Answer requests with the newest model of a run, a model or a state, until SIGTERM or SIGINT.

    Looks for a newer snapshot ``every`` so many seconds. ``say`` gets one line when the server listens, and before it
    the token, if one was made: requests need a token if ``host`` is not a loopback address, or :data:`TOKEN` is set.
    Returns ``requests``, ``rows`` and ``swaps``. ConfigError for an address or token that cannot be used;
    ModelFileError if there is no run, model or state.
    """
    token = os.environ.get(TOKEN) or None
    if token is not None and len(token) < LEAST_TOKEN:
        raise ConfigError(message("serving.short_token", variable=TOKEN, least=LEAST_TOKEN))
    if token is None and not is_loopback(host):
        token = secrets.token_urlsafe(32)
        say(message("serving.made_token", token=token))
    reader = SnapshotReader(place, every)
    reader.look()
    application = Application(reader, token)

    def listening(port: int) -> None:
        shown = f"[{host}]" if ":" in host else host
        say(message("serving.serving", place=str(place), host=shown, port=port))

    logging.getLogger("pipelines.serving").setLevel(logging.INFO)  # shown with --verbose
    switching = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_SECONDS)
    try:
        asyncio.run(_until_a_signal(application, host, port, listening))
    finally:
        sys.setswitchinterval(switching)
        reader.close()
    return {"requests": application.answered.total(), "rows": application.rows, "swaps": reader.swaps}


def is_loopback(host: str) -> bool:
    """Whether only processes of this machine reach an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


async def _until_a_signal(application: Application, host: str, port: int, listening: Callable[[int], None]) -> None:
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    server = Server(application, host, port)
    try:
        bound = await server.start()
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError(message("serving.address", host=host, port=port, reason=reason)) from error
    application.reader.start()
    listening(bound)
    await ended.wait()
    await server.close()
