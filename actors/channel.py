"""A TCP channel among the shards of one session: what they swap on a pass goes from process to process.

A round of Ray calls takes some milliseconds, and a boosted tree takes several meetings. Invariant: a port is open on
one address of the node only, and only until every shard has connected. Both sides prove that they have the secret of
the session, which is never sent, before they exchange anything else. A connection that ends, or carries what is no
frame, is a lost process: nothing is sent again.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import secrets
import select
import selectors
import socket
import struct
import time
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial
from typing import Any

from raydt.errors import ConfigError, ExchangeError, ProcessLostError
from raydt.exchange.links import CHALLENGE, Content, FrameReader, Links, packed, proof
from raydt.messages import message

#: The address of a node for its own processes.
LOOPBACK = "127.0.0.1"
#: Seconds in which all shards must have connected, and in which one connection must have proved itself.
CONNECT_SECONDS, PROOF_SECONDS = 10.0, 2.0
#: Connections that may be about to prove themselves; of more, those who came first are closed.
MOST_VISITORS = 256
#: Pieces that one call sends at most (IOV_MAX is 1024).
_PIECES = 64
#: What a connecting shard sends first: epoch, its number, its challenge.
_HELLO = struct.Struct(f"<QQ{CHALLENGE}s")
_PROOF = 32

Address = tuple[str, int]


class Channel:
    """The connections of one shard; ``host`` is the address of its node at which the others reach it.

    ConfigError if the node has no such address.
    """

    def __init__(self, index: int, epoch: int, host: str) -> None:
        self.index, self.epoch = index, epoch
        self.sent = 0  #: Bytes sent so far.
        self.waits = False  #: Whether it waits for other shards just now; for any thread to read.
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            self._listener: socket.socket | None = socket.create_server((host, 0), family=family)
        except OSError as error:
            raise ConfigError(message("exchange.no_port", shard=index, host=host, reason=_reason(error))) from error
        self.address: Address = self._listener.getsockname()[:2]
        self._peers: dict[int, _Peer] = {}
        self._numbers: dict[int, int] = {}  # of the sockets, and the shards there
        self._awaited: set[int] = set()
        self._links: Links

    def connect(self, addresses: Sequence[Address], secret: bytes) -> None:
        """Connect to all shards and close the port; ProcessLostError names a shard that cannot be reached."""
        assert self._listener is not None
        until = time.monotonic() + CONNECT_SECONDS
        self._awaited = set(range(self.index + 1, len(addresses)))
        self.waits = True
        with self._listener as listener:
            for index in range(self.index):
                self._peers[index] = _Peer(self._call(index, addresses[index], secret, until))
            try:
                self._admit(listener, secret, until)
            except OSError as error:
                index = min(self._awaited)
                raise self._unreachable(index, addresses[index], error) from error
        self._listener, self._links, self.waits = None, Links(self.index, len(addresses), self.epoch), False
        self._numbers = {peer.socket.fileno(): index for index, peer in self._peers.items()}

    def swap(self, parts: Sequence[Content]) -> list[Any]:
        """Send each shard its part, and return what each has for this one; ProcessLostError names a lost shard."""
        pieces, former = list[memoryview](), None
        for index, frame in self._links.begin(parts):
            if frame.content is not former:  # neighbours may get the same
                pieces, former = packed(frame), frame.content
            self._peers[index].outgoing.extend(pieces)
        polled, received = select.poll(), None
        for index in self._peers:
            self._send(index, polled)
        while (received := received or self._links.complete()) is None or self._unsent():
            self.waits = True  # until something has arrived, or there is room to send
            found = polled.poll()
            self.waits = False
            for number, event in found:
                if event & select.POLLOUT:
                    self._send(self._numbers[number], polled)
                if event & ~select.POLLOUT:
                    self._receive(self._numbers[number])
        return received

    def close(self) -> None:
        """End all connections."""
        for peer in self._peers.values():
            peer.socket.close()
        if self._listener is not None:
            self._listener.close()
        self._peers, self._listener = {}, None

    # ---------------------------------------------------------------- what is under way

    def _unsent(self) -> bool:
        return any(peer.outgoing for peer in self._peers.values())

    def _send(self, index: int, polled: select.poll) -> None:
        """Send a shard as much as there is room for, and have the rest polled for."""
        peer = self._peers[index]
        try:
            while peer.outgoing:
                count = peer.socket.sendmsg([piece for piece, _ in zip(peer.outgoing, range(_PIECES), strict=False)])
                self.sent += count
                while count and count >= len(peer.outgoing[0]):
                    count -= len(peer.outgoing.popleft())
                if count:
                    peer.outgoing[0] = peer.outgoing[0][count:]
        except BlockingIOError:
            pass
        except OSError as error:
            raise self._cut(index, error) from error
        polled.register(peer.socket, select.POLLIN | (select.POLLOUT if peer.outgoing else 0))

    def _receive(self, index: int) -> None:
        """Take what has come from a shard, up to the end of a frame: nothing after the last one matters."""
        peer, frame = self._peers[index], None
        try:
            while frame is None:
                count = peer.socket.recv_into(peer.reader.space)
                if not count:
                    raise ConnectionError("it was closed")
                frame = peer.reader.take(count)
            self._links.receive(index, frame)
        except BlockingIOError:
            pass
        except (OSError, ExchangeError) as error:
            raise self._cut(index, error) from error

    def _cut(self, index: int, error: Exception) -> ProcessLostError:
        """Whatever ends the connection to a shard means that the shard is lost."""
        return _lost("exchange.cut", index, shard=self.index, reason=_reason(error))

    # ---------------------------------------------------------------- how connections are made

    def _call(self, index: int, address: Address, secret: bytes, until: float) -> socket.socket:
        """Connect to a shard, and prove who is there, both ways; ProcessLostError if it is not that shard."""
        mine, opened = secrets.token_bytes(CHALLENGE), contextlib.ExitStack()
        try:
            with opened:
                connection = opened.enter_context(socket.create_connection(address, timeout=_left(until)))
                connection.sendall(_HELLO.pack(self.epoch, self.index, mine))
                theirs, shown = _read(connection, CHALLENGE, until), _read(connection, _PROOF, until)
                if not hmac.compare_digest(shown, proof(secret, self.epoch, index, self.index, theirs + mine)):
                    raise ConnectionError("what answers is not this shard")
                connection.sendall(proof(secret, self.epoch, self.index, index, mine + theirs))
                opened.pop_all()  # it stays open
        except OSError as error:
            raise self._unreachable(index, address, error) from error
        return connection

    def _admit(self, listener: socket.socket, secret: bytes, until: float) -> None:
        """Let the awaited shards in, which prove themselves at the same time; OSError if one is late."""
        visitors: dict[int, _Visitor] = {}  # by the number of the socket, those who came first before the others
        with selectors.DefaultSelector() as selector, contextlib.ExitStack() as strangers:
            strangers.callback(_close, visitors)
            listener.setblocking(False)
            selector.register(listener, selectors.EVENT_READ)

            def dismiss(visitor: _Visitor) -> socket.socket:
                selector.unregister(visitor.socket)
                return visitors.pop(visitor.socket.fileno()).socket

            while self._awaited:
                left, first = _left(until), next(iter(visitors.values()), None)
                if first is not None:
                    left = min(left, first.until - time.monotonic())
                    if left <= 0 or len(visitors) > MOST_VISITORS:
                        dismiss(first).close()
                        continue
                for key, _ in selector.select(left):
                    if key.fileobj is listener:
                        with contextlib.suppress(BlockingIOError, ConnectionAbortedError):
                            visitor = _Visitor(listener.accept()[0], partial(self._handshake, secret))
                            visitors[visitor.socket.fileno()] = visitor
                            selector.register(visitor.socket, selectors.EVENT_READ)
                        continue
                    visitor = visitors[key.fd]
                    try:
                        visitor.receive()
                    except StopIteration as ended:
                        self._peers[ended.value] = _Peer(dismiss(visitor))
                        self._awaited.remove(ended.value)
                    except OSError:
                        dismiss(visitor).close()

    def _handshake(self, secret: bytes, connection: socket.socket) -> Generator[int, bytes, int]:
        """Find out which shard has connected, yielding how many bytes to send; OSError if it is none awaited."""
        mine = secrets.token_bytes(CHALLENGE)
        epoch, index, theirs = _HELLO.unpack((yield _HELLO.size))
        if epoch != self.epoch or index not in self._awaited:
            raise ConnectionError("nobody waits for it")
        connection.sendall(mine + proof(secret, self.epoch, self.index, index, mine + theirs))
        shown = yield _PROOF
        expected = proof(secret, self.epoch, index, self.index, theirs + mine)
        if not hmac.compare_digest(shown, expected) or index not in self._awaited:
            raise ConnectionError("it is another one")
        return int(index)

    def _unreachable(self, index: int, address: Address, error: OSError) -> ProcessLostError:
        where = f"{address[0]}:{address[1]}"
        return _lost("exchange.unreachable", index, shard=self.index, address=where, reason=_reason(error))


class _Visitor:
    """A connection that has not proved itself yet, and what has come on it."""

    def __init__(
        self, connection: socket.socket, handshake: Callable[[socket.socket], Generator[int, bytes, int]]
    ) -> None:
        connection.setblocking(False)
        self.socket, self.until = connection, time.monotonic() + PROOF_SECONDS
        self._steps, self._found = handshake(connection), b""
        self._wanted = next(self._steps)

    def receive(self) -> None:
        """Take what has come; StopIteration has the number of a shard that has proved itself, OSError refuses."""
        more = self.socket.recv(self._wanted - len(self._found))
        if not more:
            raise ConnectionError("it was closed")
        self._found += more
        if len(self._found) == self._wanted:
            found, self._found = self._found, b""
            self._wanted = self._steps.send(found)


def _close(visitors: Mapping[int, _Visitor]) -> None:
    """Close the connections of all who have not proved themselves."""
    for visitor in visitors.values():
        visitor.socket.close()


class _Peer:
    """A connection, what is to be sent on it, and what has come of a frame."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setblocking(False)
        self.socket, self.outgoing, self.reader = connection, deque[memoryview](), FrameReader()


def _read(connection: socket.socket, length: int, until: float) -> bytes:
    """Read so many bytes before a moment, however they come."""
    found = b""
    while len(found) < length:
        connection.settimeout(_left(until))
        more = connection.recv(length - len(found))
        if not more:
            raise ConnectionError("it was closed")
        found += more
    return found


def _left(until: float) -> float:
    """Return the seconds up to a moment; TimeoutError if it is over."""
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError("timed out")
    return left


def _reason(error: Exception) -> str:
    number = error.errno if isinstance(error, OSError) else None
    return os.strerror(number) if number else (str(error) or type(error).__name__).rstrip(".")


def _lost(id: str, index: int, **parameters: Any) -> ProcessLostError:
    said = message(id, peer=index, **parameters)
    return ProcessLostError(said.alone(), said.remedy, actor="shard", shard=index)
