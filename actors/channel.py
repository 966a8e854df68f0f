"""A TCP channel among the shards of one session: what they swap on a pass goes from process to process.

A round of Ray calls takes some milliseconds, and a boosted tree takes several meetings. A shard is connected to those
with which it has to speak when all meet, some 2 log2 S of S (``raydt.exchange.meetings``). Invariant: a port is open on
one address of the node only, and only until each of these has connected. Both sides prove that they have the secret of
the session, which is never sent, before they exchange anything else. While a shard calls others it hears all who call,
and a call that came to nothing is made again: a flood of strangers can only delay. A connection that ends, or carries
what is no frame, is a lost process: nothing is sent again.
"""

from __future__ import annotations

import contextlib
import errno
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
from raydt.exchange.links import CHALLENGE, Frame, FrameReader, Links, packed, proof
from raydt.messages import message

#: The address of a node for its own processes.
LOOPBACK = "127.0.0.1"
#: Seconds in which all shards must have connected, and in which a visitor must have proved itself.
CONNECT_SECONDS, PROOF_SECONDS = 10.0, 2.0
#: Seconds in which the system of a called shard must have taken the call, which it does not while too many wait there,
#: and after which a call that came to nothing is made again.
DIAL_SECONDS, AGAIN_SECONDS = 0.5, 0.05
#: Connections that may be about to prove themselves; of more, those who came first are closed, first of all those who
#: named no shard that is awaited.
MOST_VISITORS = 256
#: Connections that the system holds until they are accepted (at most net.core.somaxconn), and accepted at a time.
_BACKLOG, _AT_ONCE = 4096, 1024
#: What ends a call for good: nobody listens there, or there is no way.
_NOBODY = (errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EADDRNOTAVAIL)
#: Pieces that one call sends at most (IOV_MAX is 1024).
_PIECES = 64
#: What a connecting shard sends first: epoch, its number, its challenge.
_HELLO = struct.Struct(f"<QQ{CHALLENGE}s")
_PROOF = 32
#: What the called shard sends last: until then the caller does not know that it is admitted.
_WELCOME = b"\1"

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
            self._listener: socket.socket | None = socket.create_server((host, 0), family=family, backlog=_BACKLOG)
        except OSError as error:
            raise ConfigError(message("exchange.no_port", shard=index, host=host, reason=_reason(error))) from error
        self.address: Address = self._listener.getsockname()[:2]
        self._peers: dict[int, _Peer] = {}
        self._numbers: dict[int, int] = {}  # of the sockets, and the shards there
        self._awaited: set[int] = set()
        self._links: Links

    def connect(self, addresses: Sequence[Address], secret: bytes) -> None:
        """Connect to the neighbours and close the port; ProcessLostError names a shard that cannot be reached."""
        assert self._listener is not None
        until, self._links = time.monotonic() + CONNECT_SECONDS, Links(self.index, len(addresses), self.epoch)
        self._awaited = {peer for peer in self._links.peers if peer > self.index}
        self.waits = True
        with self._listener as listener:
            self._meet(listener, addresses, secret, until)
        self._listener, self.waits = None, False
        self._numbers = {peer.socket.fileno(): index for index, peer in self._peers.items()}

    def swap(self, parts: Sequence[Any]) -> list[Any]:
        """Meet with a part for each shard, and return those for this one; ProcessLostError names a lost shard."""
        polled, received = select.poll(), None
        for peer in self._peers.values():
            polled.register(peer.socket, select.POLLIN)
        self._post(self._links.begin(parts), polled)
        while (received := received or self._links.complete()) is None or self._unsent():
            self.waits = True  # until something has arrived, or there is room to send
            found = polled.poll()
            self.waits = False
            for number, event in found:
                if event & select.POLLOUT:
                    self._send(self._numbers[number], polled)
                if event & ~select.POLLOUT:
                    self._receive(self._numbers[number], polled)
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

    def _post(self, frames: Sequence[tuple[int, Frame]], polled: select.poll) -> None:
        for index, frame in frames:
            self._peers[index].outgoing.extend(packed(frame))
            self._send(index, polled)

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

    def _receive(self, index: int, polled: select.poll) -> None:
        """Take what has come from a shard, up to the end of a frame, and send what waits for that."""
        peer, frame = self._peers[index], None
        try:
            while frame is None:
                count = peer.socket.recv_into(peer.reader.space)
                if not count:
                    raise ConnectionError("it was closed")
                frame = peer.reader.take(count)
            self._links.receive(index, frame)
            frames = self._links.proceed()
        except BlockingIOError:
            return
        except (OSError, ExchangeError) as error:
            raise self._cut(index, error) from error
        self._post(frames, polled)

    def _cut(self, index: int, error: Exception) -> ProcessLostError:
        """Whatever ends the connection to a shard means that the shard is lost."""
        return _lost("exchange.cut", index, shard=self.index, reason=_reason(error))

    # ---------------------------------------------------------------- how connections are made

    def _meet(self, listener: socket.socket, addresses: Sequence[Address], secret: bytes, until: float) -> None:
        """Call neighbours before this one, and hear who calls, at the same time; ProcessLostError names one missing."""
        neighbours = set(self._links.peers)
        calls: dict[int, float] = dict.fromkeys(neighbours - self._awaited, 0.0)  # shards to be called, and when
        talks: dict[int, _Talk] = {}  # by the number of the socket, the first ones first
        failed: dict[int, OSError] = {}
        with selectors.DefaultSelector() as selector, contextlib.ExitStack() as unproved:
            unproved.callback(_close, talks)
            listener.setblocking(False)
            selector.register(listener, selectors.EVENT_READ)

            def begin(talk: _Talk, event: int) -> None:
                talks[talk.socket.fileno()] = talk
                selector.register(talk.socket, event)

            def dismiss(talk: _Talk, error: OSError | None = None) -> socket.socket:
                selector.unregister(talk.socket)
                if error is not None:
                    self._call_again(talk, error, addresses, calls, failed)
                return talks.pop(talk.socket.fileno()).socket

            while len(self._peers) < len(neighbours):
                now = time.monotonic()
                if now >= until:
                    lost = min(neighbours - self._peers.keys())
                    raise self._unreachable(lost, addresses[lost], failed.get(lost) or TimeoutError("timed out"))
                for index in [index for index, at in calls.items() if at <= now]:
                    del calls[index]
                    connection = self._dialled(index, addresses[index])
                    begin(_Talk(connection, partial(self._greet, secret, until), now, index), selectors.EVENT_WRITE)
                for talk in [talk for talk in talks.values() if talk.until <= now]:
                    dismiss(talk, TimeoutError("timed out")).close()
                visitors = [talk for talk in talks.values() if talk.index is None]
                for talk in sorted(visitors, key=lambda talk: talk.heard)[: max(0, len(visitors) - MOST_VISITORS)]:
                    dismiss(talk).close()
                next_time = min([until, *calls.values(), *(talk.until for talk in talks.values())])
                for key, _ in selector.select(max(0.0, next_time - now)):
                    if key.fileobj is listener:
                        for connection in _accepted(listener):
                            begin(_Talk(connection, partial(self._handshake, secret), now), selectors.EVENT_READ)
                        continue
                    talk = talks[key.fd]
                    try:
                        talk.go_on()
                        selector.modify(talk.socket, selectors.EVENT_READ)
                    except StopIteration as ended:
                        self._peers[ended.value] = _Peer(dismiss(talk))
                        self._awaited.discard(ended.value)
                    except OSError as error:
                        dismiss(talk, error).close()

    def _dialled(self, index: int, address: Address) -> socket.socket:
        """Return a socket that is being connected to a shard."""
        connection = socket.socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET)
        connection.setblocking(False)
        number = connection.connect_ex(address)
        if number not in (0, errno.EINPROGRESS):
            connection.close()
            raise self._unreachable(index, address, OSError(number, os.strerror(number)))
        return connection

    def _call_again(
        self,
        talk: _Talk,
        error: OSError,
        addresses: Sequence[Address],
        calls: dict[int, float],
        failed: dict[int, OSError],
    ) -> None:
        """Note that a call came to nothing, and when to make it again; ProcessLostError if that is of no use."""
        index = talk.index
        if index is None:
            return
        if error.errno in _NOBODY or isinstance(error, _AnotherError):
            raise self._unreachable(index, addresses[index], error)
        if not isinstance(error, TimeoutError):
            failed[index] = error
        calls[index] = time.monotonic() + AGAIN_SECONDS

    def _greet(self, secret: bytes, until: float, talk: _Talk) -> Generator[int, bytes, int]:
        """Prove who is there to a shard that is called, yielding how many bytes to read; OSError if it is another."""
        assert talk.index is not None
        talk.until = until  # the call is taken, and whoever calls again is the last once more
        mine = secrets.token_bytes(CHALLENGE)
        talk.socket.sendall(_HELLO.pack(self.epoch, self.index, mine))
        answer = yield CHALLENGE + _PROOF
        theirs, shown = answer[:CHALLENGE], answer[CHALLENGE:]
        if not hmac.compare_digest(shown, proof(secret, self.epoch, talk.index, self.index, theirs + mine)):
            raise _AnotherError("what answers is not this shard")
        talk.socket.sendall(proof(secret, self.epoch, self.index, talk.index, mine + theirs))
        yield len(_WELCOME)
        return talk.index

    def _handshake(self, secret: bytes, talk: _Talk) -> Generator[int, bytes, int]:
        """Find out which shard has connected, yielding how many bytes to read; OSError if it is none awaited."""
        mine = secrets.token_bytes(CHALLENGE)
        epoch, index, theirs = _HELLO.unpack((yield _HELLO.size))
        if epoch != self.epoch or index not in self._awaited:
            raise ConnectionError("nobody waits for it")
        talk.heard = True
        talk.socket.sendall(mine + proof(secret, self.epoch, self.index, index, mine + theirs))
        shown = yield _PROOF
        expected = proof(secret, self.epoch, index, self.index, theirs + mine)
        if not hmac.compare_digest(shown, expected) or index not in self._awaited:
            raise ConnectionError("it is another one")
        talk.socket.sendall(_WELCOME)
        return int(index)

    def _unreachable(self, index: int, address: Address, error: OSError) -> ProcessLostError:
        where = f"{address[0]}:{address[1]}"
        return _lost("exchange.unreachable", index, shard=self.index, address=where, reason=_reason(error))


class _AnotherError(ConnectionError):
    """An answer from a process that does not have the secret."""


class _Talk:
    """A connection before both sides have proved themselves: a call (of shard ``index``) or a visitor's."""

    def __init__(
        self,
        connection: socket.socket,
        steps: Callable[[_Talk], Generator[int, bytes, int]],
        now: float,
        index: int | None = None,
    ) -> None:
        connection.setblocking(False)
        self.socket, self.until, self.index = (
            connection,
            now + (PROOF_SECONDS if index is None else DIAL_SECONDS),
            index,
        )
        self.heard = False  #: Whether a visitor has named a shard that is awaited.
        self._steps, self._found, self._wanted = steps(self), b"", 0
        if index is None:
            self._wanted = next(self._steps)

    def go_on(self) -> None:
        """Take what has come; StopIteration has the number of the shard that is there, OSError ends the connection."""
        if not self._wanted:  # a call has been taken, or not
            if number := self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                raise OSError(number, os.strerror(number))
            self._wanted = next(self._steps)
            return
        try:
            more = self.socket.recv(self._wanted - len(self._found))
        except BlockingIOError:
            return
        if not more:
            raise ConnectionError("it was closed")
        self._found += more
        if len(self._found) == self._wanted:
            found, self._found = self._found, b""
            self._wanted = self._steps.send(found)


def _accepted(listener: socket.socket) -> list[socket.socket]:
    """Return connections that wait to be accepted, so many at a time that those that are open have their turn."""
    found: list[socket.socket] = []
    with contextlib.suppress(BlockingIOError, ConnectionAbortedError):
        while len(found) < _AT_ONCE:
            found.append(listener.accept()[0])
    return found


def _close(talks: Mapping[int, _Talk]) -> None:
    """Close the connections of all who have not proved themselves."""
    for talk in talks.values():
        talk.socket.close()


class _Peer:
    """A connection, what is to be sent on it, and what has come of a frame."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setblocking(False)
        self.socket, self.outgoing, self.reader = connection, deque[memoryview](), FrameReader()


def _reason(error: Exception) -> str:
    number = error.errno if isinstance(error, OSError) else None
    return os.strerror(number) if number else (str(error) or type(error).__name__).rstrip(".")


def _lost(id: str, index: int, **parameters: Any) -> ProcessLostError:
    said = message(id, peer=index, **parameters)
    return ProcessLostError(said.alone(), said.remedy, actor="shard", shard=index)
