"""An address that is no cluster's is refused within seconds, whatever listens there and however it was named."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
import ray

from actors import cluster
from actors.cluster import Cluster, connect, starts_ray
from raydt.errors import ConfigError
from tests.refusals import refused

#: What servers of other kinds say once something was sent to them; None: they say nothing, and close nothing.
ANSWERS: dict[str, bytes | None] = {
    "web server": b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n",
    "redis": b"-ERR unknown command\r\n",
    "ssh": b"SSH-2.0-OpenSSH_9.6\r\n",
    "server with TLS": bytes.fromhex("15030100020246"),
    "server that closes": b"",
    "server that begins and closes": b"\0\0\x06",
    "server that says nothing": None,
    "server that begins and says nothing more": b"\0\0",
}


@contextlib.contextmanager
def listening(answer: bytes | None, closes: bool = True) -> Iterator[str]:
    """A server that gives every client this answer; its address."""
    with socket.create_server(("127.0.0.1", 0)) as server, contextlib.ExitStack() as clients:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    client = clients.enter_context(server.accept()[0])
                    if answer is not None:
                        client.recv(4096)
                        client.sendall(answer)
                        if closes:
                            client.close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


def by_argument(address: str, patch: pytest.MonkeyPatch) -> str:
    return address


def by_variable(address: str, patch: pytest.MonkeyPatch) -> None:
    patch.setenv("RAY_ADDRESS", address)


def auto_by_variable(address: str, patch: pytest.MonkeyPatch) -> str:
    patch.setenv("RAY_ADDRESS", address)
    return "auto"


def auto_on_record(address: str, patch: pytest.MonkeyPatch) -> str:
    """As ``ray start`` has left it, also if its processes have ended since."""
    patch.setattr("ray._private.services.find_gcs_addresses", set)
    patch.setattr("ray._private.services.find_bootstrap_address", lambda folder: address)
    return "auto"


WAYS = [by_argument, by_variable, auto_by_variable, auto_on_record]


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No Ray is named or connected, and servers have to answer at once."""
    for name in [name for name in os.environ if name.startswith("RAY_")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(cluster, "ANSWER_SECONDS", 0.3)


@pytest.fixture
def joined(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Addresses at which Ray would have tried to join, which it does for minutes."""
    addresses: list[str] = []

    def init(address: str, **options: object) -> None:
        addresses.append(address)
        raise ConnectionError("Ray has tried for minutes")

    monkeypatch.setattr(ray, "init", init)
    return addresses


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", ANSWERS)
def test_no_head(kind: str, way: Callable[..., str | None], monkeypatch, joined: list[str]) -> None:
    with listening(ANSWERS[kind], closes="nothing more" not in kind) as address:
        named = way(address, monkeypatch)
        began = time.monotonic()
        with refused("cluster.no_head", ConfigError, address=address):
            connect(named)
        assert time.monotonic() - began < 5
        assert not joined
        assert not starts_ray(named)


def test_random_answers(joined: list[str]) -> None:
    draw = random.Random(7)
    for _ in range(50):
        answer = draw.randbytes(draw.randrange(20))
        if answer[3:4] != b"\x04":
            with listening(answer) as address, refused("cluster.no_head", ConfigError, address=address):
                connect(address)
    assert not joined


@pytest.mark.parametrize("way", WAYS)
def test_nobody_listens(way: Callable[..., str | None], monkeypatch, joined: list[str]) -> None:
    with listening(None) as address:
        pass
    with refused("cluster.no_cluster", ConfigError, address=address):
        connect(way(address, monkeypatch))
    assert not joined


@pytest.mark.parametrize("way", WAYS)
def test_a_server_of_the_protocol_is_asked_by_ray(way: Callable[..., str | None], monkeypatch, joined) -> None:
    """It may be another service of a cluster, such as Ray Client's: Ray finds out within seconds."""
    server = grpc.server(ThreadPoolExecutor(1))
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    named = way(address, monkeypatch)
    with refused("cluster.not_joined", ConfigError):
        connect(named)
    assert joined == [address if named in (None, address) or "RAY_ADDRESS" in os.environ else "auto"]
    ray_there = Cluster(started=False, connected=False)
    ray_there._listeners = [address]
    assert ray_there.answers()
    server.stop(None).wait()
    assert not ray_there.answers()


def test_a_cluster_with_tls_is_asked_by_ray(monkeypatch, joined: list[str]) -> None:
    monkeypatch.setenv("RAY_USE_TLS", "1")
    with listening(ANSWERS["server with TLS"]) as address, refused("cluster.not_joined", ConfigError):
        connect(address)
    assert joined == [address]


def test_no_cluster_on_record(monkeypatch, joined: list[str]) -> None:
    monkeypatch.setattr("ray._private.services.find_gcs_addresses", set)
    monkeypatch.setattr("ray._private.services.find_bootstrap_address", lambda folder: None)
    with refused("cluster.not_joined", ConfigError, address="auto") as caught:
        connect("auto")
    assert "Could not find any running Ray" in str(caught.value)
    assert not joined
