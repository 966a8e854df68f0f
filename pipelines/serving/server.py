"""HTTP/1.1 over asyncio, as much of it as an answer to a request in JSON needs.

A request line, headers, and a body of a Content-Length; connections stay open; requests that follow each other without
waiting are answered in order. No chunks, no upgrades, no TLS: a proxy has those. Invariant: nothing of a request is
acted on before all of it is there and within the limits; what cannot be read ends the connection.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import os
import secrets
import signal
import sys
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import NamedTuple, cast

from pipelines.operation import in_threads_of_its_run
from pipelines.receipts import quoting_as_its_run
from pipelines.serving.application import MOST_BYTES, Application, Response, SnapshotReader, problem
from raydt.errors import ConfigError
from raydt.messages import message

#: Bytes of request line and headers, connections at a time, and seconds that a request or a pause may take.
MOST_HEAD, MOST_CONNECTIONS, PATIENCE_SECONDS = 16 << 10, 1024, 60.0

_END = b"\r\n\r\n"


class _Head(NamedTuple):
    method: str
    path: str
    length: int | None
    authorization: bytes | None
    keeps: bool  #: The connection stays open.
    continues: bool  #: The client waits for leave to send the body.


class _MalformedError(Exception):
    """A head that is no HTTP/1.1 as it is understood here."""


def _head(text: bytes) -> _Head:
    """Read request line and headers."""
    first, *lines = text.split(b"\r\n")
    parts = first.split(b" ")
    if len(parts) != 3 or parts[2] not in (b"HTTP/1.1", b"HTTP/1.0") or not parts[0].isalpha():
        raise _MalformedError
    headers: dict[bytes, bytes] = {}
    for line in lines:
        name, colon, value = line.partition(b":")
        name = name.lower()
        once = (b"content-length", b"authorization", b"transfer-encoding")
        if not colon or not name or name != name.strip() or (name in once and name in headers):
            raise _MalformedError
        headers[name] = value.strip()
    length = headers.get(b"content-length")
    if b"transfer-encoding" in headers or (length is not None and not (length.isdigit() and len(length) < 16)):
        raise _MalformedError
    wish = headers.get(b"connection", b"").lower()
    keeps = wish != b"close" and (parts[2] == b"HTTP/1.1" or wish == b"keep-alive")
    path = parts[1].partition(b"?")[0].decode("ascii", "replace")
    continues = headers.get(b"expect", b"").lower() == b"100-continue"
    size = None if length is None else int(length)
    return _Head(parts[0].decode(), path, size, headers.get(b"authorization"), keeps, continues)


class Connection(asyncio.Protocol):
    """One connection; ``others`` are all that are open."""

    def __init__(self, application: Application, others: set[Connection]) -> None:
        self._application, self._others = application, others
        self._received, self._head = bytearray(), cast("_Head | None", None)
        self._transport: asyncio.Transport | None = None
        self._since = 0.0
        self._paused = self._closes = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take note of a new connection, or turn it away."""
        self._transport, self._since = cast(asyncio.Transport, transport), _now()
        if len(self._others) >= MOST_CONNECTIONS:
            self._refuse(problem(HTTPStatus.SERVICE_UNAVAILABLE, message("serving.full")))
            self.end()  # at once: nobody would close it later
            return
        self._others.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._others.discard(self)
        self._closes = True

    def pause_writing(self) -> None:
        """Read no more requests until the client has taken its answers."""
        assert self._transport is not None
        self._paused = True
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        """Go on."""
        assert self._transport is not None
        self._paused = False
        if not self._closes:
            self._transport.resume_reading()
            self._work()

    def data_received(self, data: bytes) -> None:
        """Take bytes in, and answer the requests that are complete; after the last answer, drop them."""
        if self._closes:
            return
        if not self._received and self._head is None:
            self._since = _now()  # a request begins
        self._received += data
        self._work()

    def close_if_late(self, now: float) -> None:
        """Close a connection on which nothing was completed for too long."""
        if now - self._since > PATIENCE_SECONDS and self._transport is not None:
            self._transport.abort()

    def end(self) -> None:
        """Close after what was answered has been sent."""
        self._closes = True
        if self._transport is not None:
            self._transport.close()

    def _work(self) -> None:
        while not self._paused and not self._closes:
            if self._head is None and not self._begin():
                return
            head = self._head
            assert head is not None
            if len(self._received) < (head.length or 0):
                return
            body = bytes(self._received[: head.length or 0])
            del self._received[: head.length or 0]
            self._head, self._since = None, _now()
            self._send(self._application.respond(head.method, head.path, head.authorization, body), head.keeps)

    def _begin(self) -> bool:
        """Read the head of a request; return False if it is not there, or is refused."""
        end = self._received.find(_END, 0, MOST_HEAD)
        if end < 0:
            if len(self._received) >= MOST_HEAD:
                self._refuse(
                    problem(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, message("serving.large_head", most=MOST_HEAD))
                )
            return False
        try:
            head = _head(bytes(self._received[:end]))
        except _MalformedError:
            self._refuse(problem(HTTPStatus.BAD_REQUEST, message("serving.head")))
            return False
        del self._received[: end + len(_END)]
        refusal = self._application.refusal(head.method, head.path, head.authorization)
        if refusal is None and head.method == "POST" and head.length is None:
            refusal = problem(HTTPStatus.LENGTH_REQUIRED, message("serving.length"))
        if (head.length or 0) > MOST_BYTES:
            refusal = refusal or problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, message("serving.large", most=MOST_BYTES))
        if refusal is not None and (head.length or head.method == "POST"):
            self._refuse(refusal)  # the body is not read, so that the next request cannot be found
            return False
        if head.continues and head.length and len(self._received) < head.length and self._transport is not None:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        self._head = head
        return True

    def _refuse(self, response: Response) -> None:
        self._application.answered[response.status] += 1
        self._send(response, keeps=False)

    def _send(self, response: Response, keeps: bool) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        status, body, kind = response
        more = "" if keeps else "Connection: close\r\n"
        if status == HTTPStatus.UNAUTHORIZED:
            more += "WWW-Authenticate: Bearer\r\n"
        head = f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
        transport.write(f"{head}{more}\r\n".encode() + body)
        if not keeps:  # the client closes: to close while it sends would be a reset, which drops the answer
            self._closes = True
            self._received.clear()
            try:
                transport.write_eof()
            except OSError:  # the client has reset the connection meanwhile
                transport.abort()


def _now() -> float:
    return asyncio.get_running_loop().time()


class Server:
    """Listens at an address; OSError if it cannot."""

    def __init__(self, application: Application, host: str, port: int) -> None:
        self._application, self._host, self._port = application, host, port
        self._open: set[Connection] = set()
        self._server: asyncio.Server | None = None

    async def start(self) -> int:
        """Listen, and return the port."""
        loop = asyncio.get_running_loop()
        made = lambda: Connection(self._application, self._open)  # noqa: E731
        self._server = await loop.create_server(made, self._host, self._port)
        self._sweep()
        return int(self._server.sockets[0].getsockname()[1])

    def _sweep(self) -> None:
        """Close what has been idle for too long, every few seconds."""
        loop = asyncio.get_running_loop()
        for connection in list(self._open):
            connection.close_if_late(loop.time())
        self._sweeping = loop.call_later(PATIENCE_SECONDS / 10, self._sweep)

    async def close(self) -> None:
        """Listen no more, send what was answered, and close all connections."""
        assert self._server is not None
        self._sweeping.cancel()
        self._server.close()
        for connection in list(self._open):
            connection.end()
        for _ in range(20):
            if not self._open:
                break
            await asyncio.sleep(0.05)
        for connection in list(self._open):
            connection.close_if_late(float("inf"))


# ``raydt serve``: answers requests until SIGTERM or SIGINT, which end it in order.

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
    """Return True if only processes of this machine reach an address."""
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
