"""A swap between two processes over loopback: each sends the other an array and waits for the other's.

The contestants are what could carry the sums of shards: plain sockets as in ``actors/channel.py``, the connections of
``multiprocessing``, ZeroMQ (if pyzmq is installed), Arrow Flight, calls of Ray actors to each other, and a compiled
graph of Ray (shared memory). Wall time, medians.

Run: python benchmarks/channels.py [--rounds 300]
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
from kit import progress, show
from measure import machine

SIZES = (8, 10_000, 300_000, 6_500_000)
SECRET = b"of a benchmark that has nobody to fear"

Array = npt.NDArray[np.int64]
Swap = Callable[[Array], Array]


@contextmanager
def sockets(index: int, pipe: Any) -> Iterator[Swap]:
    """The channel of shards."""
    from actors.channel import Channel

    with closing(Channel(index, 1, "127.0.0.1")) as channel:
        pipe.send(channel.address)
        theirs = pipe.recv()
        addresses = [channel.address, theirs] if index == 0 else [theirs, channel.address]
        channel.connect(addresses, SECRET)
        yield lambda array: channel.swap([array, array])[1 - index]


@contextmanager
def connections(index: int, pipe: Any) -> Iterator[Swap]:
    """Connections of ``multiprocessing``; the first process sends first, or large arrays would wait for ever."""
    from multiprocessing.connection import Client, Listener

    if index == 0:
        with Listener(("127.0.0.1", 0), authkey=SECRET) as listener:
            pipe.send(listener.address)
            connection = listener.accept()
    else:
        connection = Client(pipe.recv(), authkey=SECRET)

    def swap(array: Array) -> Array:
        if index == 0:
            connection.send_bytes(array.view(np.uint8).data)
        received = np.frombuffer(connection.recv_bytes(), dtype=np.int64)
        if index == 1:
            connection.send_bytes(array.view(np.uint8).data)
        return received

    with closing(connection):
        yield swap


@contextmanager
def zeromq(index: int, pipe: Any) -> Iterator[Swap]:
    """A pair of ZeroMQ sockets."""
    import zmq

    with zmq.Context() as context, context.socket(zmq.PAIR) as pair:
        if index == 0:
            pipe.send(pair.bind_to_random_port("tcp://127.0.0.1"))
        else:
            pair.connect(f"tcp://127.0.0.1:{pipe.recv()}")

        def swap(array: Array) -> Array:
            pair.send(array, copy=False)
            return np.frombuffer(pair.recv(copy=False), dtype=np.int64)

        yield swap


@contextmanager
def flight(index: int, pipe: Any) -> Iterator[Swap]:
    """Arrow Flight: one stream of batches each way; a server can only answer."""
    import pyarrow as pa
    from pyarrow import flight as of

    schema = pa.schema([("a", pa.int64())])

    def batch(array: Array) -> Any:
        return pa.record_batch([pa.array(array)], schema=schema)

    if index == 1:
        client = of.connect(f"grpc://127.0.0.1:{pipe.recv()}")
        writer, reader = client.do_exchange(of.FlightDescriptor.for_path("swap"))
        writer.begin(schema)

        def swap(array: Array) -> Array:
            writer.write_batch(batch(array))
            return reader.read_chunk().data.column(0).to_numpy()

        yield swap
        writer.done_writing()
        client.close()
        return

    class Server(of.FlightServerBase):  # type: ignore[misc]
        def do_exchange(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
            writer.begin(schema)
            for chunk in reader:
                writer.write_batch(chunk.data)

    server = Server("grpc://127.0.0.1:0")
    threading.Thread(target=server.serve, daemon=True).start()
    pipe.send(server.port)
    yield lambda array: array  # threads of the server answer
    server.shutdown()


PROCESSES = {"plain sockets": sockets, "multiprocessing": connections, "ZeroMQ": zeromq, "Arrow Flight": flight}


def process(index: int, name: str, pipe: Any, rounds: int, results: Any) -> None:
    """One of the two processes."""
    medians = []
    with PROCESSES[name](index, pipe) as swap:
        for size in SIZES:
            array, seconds = np.arange(size // 8, dtype=np.int64), []
            for _ in range(rounds if size < 1_000_000 else rounds // 10):
                began = time.perf_counter()
                received = swap(array)
                seconds.append(time.perf_counter() - began)
                assert received[-1] == array[-1]
            medians.append(statistics.median(seconds))
        pipe.send("done")
        pipe.recv()
    if index == 1:
        results.put(medians)


def between_processes(name: str, rounds: int) -> list[float]:
    """Median seconds by size."""
    spawn = multiprocessing.get_context("spawn")  # gRPC does not survive a fork
    ends, results = spawn.Pipe(), spawn.Queue()
    both = [spawn.Process(target=process, args=(i, name, ends[i], rounds, results)) for i in range(2)]
    for one in both:
        one.start()
    medians: list[float] = results.get(timeout=120)
    for one in both:
        one.join()
    return medians


def of_ray(rounds: int) -> dict[str, list[float]]:
    """Medians of Ray: a call of one actor to another, which returns the array; a round of calls to both; a graph."""
    import ray
    from ray.dag import InputNode

    from actors.cluster import bundles, connect

    cluster = connect("local", bundles(2))

    class Actor:
        def echo(self, array: Array) -> Array:
            return array

        def ask(self, other: Any, array: Array, rounds: int) -> list[float]:
            return timed(lambda: ray.get(other.echo.remote(array)), rounds)

    def timed(call: Callable[[], Any], rounds: int) -> list[float]:
        seconds = []
        for _ in range(rounds):
            began = time.perf_counter()
            call()
            seconds.append(time.perf_counter() - began)
        return seconds

    first, second = (ray.remote(num_cpus=1)(Actor).remote() for _ in range(2))
    found: dict[str, list[float]] = {
        "a Ray actor calls another": [],
        "a round of Ray calls": [],
        "Ray compiled graph": [],
    }
    with InputNode() as given:
        graph = second.echo.bind(first.echo.bind(given))
    for size in SIZES:
        array, few = np.arange(size // 8, dtype=np.int64), rounds if size < 1_000_000 else rounds // 10
        found["a Ray actor calls another"].append(statistics.median(ray.get(first.ask.remote(second, array, few))))
        both = timed(lambda array=array: ray.get([one.echo.remote(array) for one in (first, second)]), few)  # type: ignore[misc]
        found["a round of Ray calls"].append(statistics.median(both))
    compiled = graph.experimental_compile(_buffer_size_bytes=2 * max(SIZES))
    for size in SIZES:
        array, few = np.arange(size // 8, dtype=np.int64), rounds if size < 1_000_000 else rounds // 10
        found["Ray compiled graph"].append(
            statistics.median(timed(lambda array=array: ray.get(compiled.execute(array)), few))  # type: ignore[misc]
        )
    compiled.teardown(kill_actors=True)
    cluster.close()
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=300)
    asked = parser.parse_args()
    print(machine("ray"), f"load {os.getloadavg()[0]:.1f}", flush=True)
    found = {}
    for name in PROCESSES:
        try:
            found[name] = between_processes(name, asked.rounds)
        except Exception as error:
            progress(name, repr(error))
            continue
        progress(name, *(f"{1e3 * one:.3f}" for one in found[name]))
    found |= of_ray(asked.rounds)
    rows = [[name, *(f"{1e3 * one:.3f}" for one in medians)] for name, medians in found.items()]
    show("A swap, ms", ["channel", *(f"{size:,} bytes" for size in SIZES)], rows)


if __name__ == "__main__":
    main()
