"""Serving a model, or models by key, over HTTP."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from prometheus_client import parser

import pipelines
from actors.telemetry import metrics_served
from pipelines.prediction import predict_file
from pipelines.receipts import said
from pipelines.run_folder import RunFolder
from pipelines.serving import application as loading
from pipelines.serving.application import (
    MOST_BYTES,
    TOKEN,
    Application,
    Loader,
    SnapshotPlace,
    SnapshotReader,
    is_loopback,
    serve,
    server_of,
)
from raydt.errors import ConfigError, InputError, ModelFileError, ProcessLostError, RaydtError
from raydt.messages import message
from tests.cases import CASES, first_cases
from tests.refusals import refused
from tests.storage_faults import checkpoints_waited_for

# -- serving ---------------------------------------------------------------------------------------------------------
# ``raydt serve``: bodies it refuses, HTTP, the token, and snapshots that come, are damaged and go.

ROW = {"a": 1.0, "b": 0.5, "c": 1.5, "d": "p"}
BODY = json.dumps(ROW).encode()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the first case of FuDyADT, with all its checkpoints."""
    folder = tmp_path_factory.mktemp("served")
    trial = next(trial for trial in first_cases() if trial.learner.kind == "fudyadt")
    with checkpoints_waited_for():
        return Path(pipelines.replay(trial.config(folder, checkpoint={"keep": 9}), folder / "run").path)


@pytest.fixture(scope="module")
def application(run: Path) -> Application:
    reader = SnapshotReader(run)
    assert reader.look()
    return Application(reader)


def error_of(application: Application, body: bytes) -> dict[str, Any]:
    response = application.respond("POST", "/predict", None, body)
    assert response.status == HTTPStatus.BAD_REQUEST, response
    found: dict[str, Any] = json.loads(response.body)["error"]
    return found


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b'{"a": NaN}', "NaN is no JSON"),
        (b'{"a": -Infinity}', "-Infinity is no JSON"),
        (b"[" * 100_000, "too deeply within"),
        (b'{"a":' * 100_000, "too deeply within"),
        (b'{"a": ' + b"9" * 5000 + b"}", "not JSON"),
        (b'{"d": "\\ud800"}', "half of a pair"),
        (b'{"\\uDFFF": 1}', "half of a pair"),
        (b"[1]", "not a JSON object"),
        (b'{"rows": {}}', "not a list of objects"),
        (b'{"columns": {"a": [1], "b": []}}', "lists of one length"),
        (b'{"columns": {}}', "lists of one length"),
    ],
)
def test_what_is_no_request_is_refused(application: Application, body: bytes, said: str) -> None:
    assert said in error_of(application, body)["problem"]


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("a", "many", "'many' is not a number"),
        ("a", [1], "a list or an object"),
        ("a", 2**53 + 1, "2**53"),
        ("d", 7, "7 is not text"),
        ("d", {}, "a list or an object"),
        ("e", 1, "no such column"),
    ],
)
def test_a_bad_value_names_its_row_and_column(application: Application, column: str, value: Any, said: str) -> None:
    found = error_of(application, json.dumps({"rows": [ROW, {**ROW, column: value}, ROW]}).encode())
    assert (found["row"], found["column"]) == (1, column)
    assert said in found["problem"]
    assert found["remedy"]


def test_an_infinite_number_is_refused(application: Application) -> None:
    assert error_of(application, b'{"a": 1e999, "b": 1, "c": 1, "d": "p"}')["column"] == "a"


def test_new_categories_are_named_and_forgotten(application: Application) -> None:
    """Else a stranger could fill the memory, and one request could change the answer to another."""
    current: Any = application.reader.current
    before = len(current._reader._encoder.categories["d"])
    for name in ("new", "newer"):
        body = json.dumps({"rows": [ROW, {**ROW, "d": name}]}).encode()
        found = json.loads(application.respond("POST", "/predict", None, body).body)
        assert found["unseen"] == [{"row": 1, "column": "d"}]
    assert len(current._reader._encoder.categories["d"]) == before


def test_no_rows_have_no_predictions(application: Application) -> None:
    found = json.loads(application.respond("POST", "/predict", None, b'{"rows": []}').body)
    assert (found["predictions"], found["probabilities"]) == ([], [])


def test_a_failure_is_one_answer_and_its_log_has_no_values(run: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        snapshot = None

        def answer(self, table: Any) -> Any:
            raise RuntimeError("secret")

    reader = SnapshotReader(run)
    reader.current = Broken()  # type: ignore[assignment]
    response = Application(reader).respond("POST", "/predict", None, BODY)
    assert response.status == HTTPStatus.INTERNAL_SERVER_ERROR
    assert "secret" not in caplog.text + response.body.decode()


@pytest.mark.parametrize(
    "body",
    [
        b'{"rows": [' + b"{}," * 1_500_000 + b"{}]}",
        b'{"rows": [' + b",".join(b'{"%d":1}' % number for number in range(3000)) + b"]}",
        b'{"columns": {"a": [' + b"1," * 1_500_000 + b"1]}}",
    ],
    ids=["empty rows", "a column for each row", "a long column"],
)
def test_a_short_body_cannot_mean_much(application: Application, body: bytes) -> None:
    assert len(body) < MOST_BYTES
    assert application.respond("POST", "/predict", None, body).status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE


# -- tokens and addresses ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", [None, b"", b"Bearer", b"Bearer wrong", b"0123456789abcdef", b"Bearer \xff"])
def test_a_wrong_token_is_refused(application: Application, given: bytes | None) -> None:
    guarded = Application(application.reader, "0123456789abcdef")
    for path in ("/predict", "/health", "/metrics", "/nothing"):
        assert guarded.respond("POST", path, given, BODY).status == HTTPStatus.UNAUTHORIZED
    assert guarded.respond("POST", "/predict", b"Bearer 0123456789abcdef", BODY).status == HTTPStatus.OK


def test_probes_need_no_token_and_tell_a_model_from_none(application: Application, growing: Path) -> None:
    for reader, ready in (
        (application.reader, HTTPStatus.OK),
        (SnapshotReader(growing), HTTPStatus.SERVICE_UNAVAILABLE),
    ):
        guarded = Application(reader, "0123456789abcdef")
        assert guarded.respond("GET", "/livez", None, b"").status == HTTPStatus.OK
        assert guarded.respond("GET", "/readyz", None, b"").status == ready


# -- metrics -------------------------------------------------------------------------------------------------------


def test_prometheus_reads_the_metrics_of_a_server(application: Application) -> None:
    fresh = Application(application.reader)
    for body in (BODY, BODY, b"{"):
        fresh.respond("POST", "/predict", None, body)
    found = {
        one.name: one
        for one in parser.text_string_to_metric_families(fresh.respond("GET", "/metrics", None, b"").body.decode())
    }
    assert all(one.documentation and one.name.startswith("raydt_serving_") for one in found.values())
    requests = {one.labels["status"]: one.value for one in found["raydt_serving_requests"].samples}
    assert requests == {"200": 2, "400": 1}
    times = found["raydt_serving_prediction_seconds"]
    buckets = [one.value for one in times.samples if one.name.endswith("_bucket")]
    assert times.type == "histogram"
    assert buckets == sorted(buckets)
    assert buckets[-1] == 2
    assert [one.value for one in times.samples if one.name.endswith("_count")] == [2]


def test_a_run_in_this_process_serves_its_metrics() -> None:
    with socket.socket() as free:
        free.bind(("", 0))
        port = free.getsockname()[1]
    with metrics_served(port, 'a "run"') as meter:
        meter.begin({}, 100)  # counted before
        meter.batch({"active": 7, "rebuilds": 2}, 150, 0)
        meter.lag(3, 1.5)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            text = answer.read().decode()
        with refused("cluster.taken_port", ConfigError, port=port), metrics_served(port, "other"):
            pass
    samples = [one for family in parser.text_string_to_metric_families(text) for one in family.samples]
    assert {one.labels["run"] for one in samples} == {'a "run"'}
    found = {one.name: one.value for one in samples}
    assert (found["raydt_updates_total"], found["raydt_rebuilds_total"], found["raydt_restarts_total"]) == (50, 2, 0)
    assert (found["raydt_live_examples"], found["raydt_lag"], found["raydt_lag_seconds"]) == (7, 3, 1.5)
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics")


def test_which_addresses_need_no_token() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "127.8.0.1", "::1", "localhost")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "10.0.0.1", "localhost.example.org", "")))


def test_a_short_token_is_refused(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN, "short")
    with refused("serving.short_token", ConfigError, least=16):
        serve(run)


# -- HTTP ----------------------------------------------------------------------------------------------------------


async def _exchange(application: Application, sent: list[bytes], answers: int) -> bytes:
    """What a server sends on one connection until there are so many answers, or it closes the connection."""
    server, listening = server_of(application), socket.create_server(("127.0.0.1", 0))
    serving = asyncio.create_task(server.serve([listening]))
    reader, writer = await asyncio.open_connection(*listening.getsockname())
    received = b""
    try:
        for part in sent:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(0.01)
        while len(_statuses(received)) < answers and (part := await asyncio.wait_for(reader.read(1 << 16), 30)):
            received += part
        return received
    finally:
        writer.close()
        server.should_exit = True
        await serving


def _statuses(received: bytes) -> list[int]:
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3}) ", received)]


def exchange(application: Application, *sent: bytes, answers: int = 1) -> list[int]:
    """The statuses of the answers to some bytes."""
    return _statuses(asyncio.run(_exchange(application, list(sent), answers)))


def post(body: bytes, *headers: str) -> bytes:
    lines = ["POST /predict HTTP/1.1", "Host: here", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def get(path: str, method: str = "GET", *headers: str) -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: here", *headers, "", ""]).encode()


def test_a_connection_answers_one_request_after_the_other(application: Application) -> None:
    sent = post(BODY) + get("/health"), post(b"{"), get("/metrics?x=1")
    assert exchange(application, *sent, answers=4) == [200, 200, 400, 200]


def test_a_request_may_come_byte_by_byte_or_in_chunks(application: Application) -> None:
    request = post(BODY)
    assert exchange(application, request[:9], request[9:70], request[70:-3], request[-3:]) == [200]
    chunks = b"%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY)
    assert exchange(application, get("/predict", "POST", "Transfer-Encoding: chunked") + chunks) == [200]


def test_a_client_may_wait_for_leave(application: Application) -> None:
    request = post(BODY, "Expect: 100-continue")
    assert exchange(application, request[: -len(BODY)], BODY, answers=2) == [100, 200]


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (get("/nothing"), 404),
        (get("/predict"), 405),
        (get("/health", "PUT"), 405),
        (get("/predict", "POST"), 400),
        (get("/predict", "POST", f"Content-Length: {MOST_BYTES + 1}"), 413),
        (get("/predict", "POST", "Content-Length: 1", "Content-Length: 2") + b"{}", 400),
        (get("/predict", "POST", "Content-Length: -1"), 400),
        (b"\x16\x03\x01\x02\r\n\r\n", 400),
    ],
)
def test_a_bad_request_has_one_answer(application: Application, request_: bytes, status: int) -> None:
    assert exchange(application, request_) == [status]


def test_a_refused_method_has_the_one_that_is_allowed(application: Application) -> None:
    """RFC 9110, section 15.5.6."""
    answer = asyncio.run(_exchange(application, [get("/predict")], 1))
    assert b"allow: POST\r\n" in answer
    assert b"allow: GET\r\n" in asyncio.run(_exchange(application, [get("/health", "PUT")], 1))


@pytest.mark.parametrize("body", [b"", BODY[:-1], BODY])
def test_a_client_that_goes_away_is_neither_answered_nor_counted(application: Application, body: bytes) -> None:
    """Also if what came is a whole table: more was announced."""
    parts = iter([{"type": "http.request", "body": body, "more_body": True}, {"type": "http.disconnect"}])

    async def receive() -> Any:
        return next(parts)

    before = application.rows, application.answered.total()
    asyncio.run(application.answer({"method": "POST", "path": "/predict", "headers": []}, receive))
    assert (application.rows, application.answered.total()) == before


def test_requests_of_http_only(application: Application) -> None:
    with pytest.raises(NotImplementedError, match="websocket"):
        asyncio.run(application({"type": "websocket", "path": "/predict"}, None, None))


def test_the_module_is_found_as_the_page_on_serving_writes_it() -> None:
    from raydt.jobs import serving

    assert serving.application.Application is Application
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = serving.nothing


def test_a_body_is_read_up_to_a_limit(application: Application) -> None:
    """Also one whose length was not said before."""
    assert exchange(application, post(b" " * (MOST_BYTES + 9))) == [413]
    chunk = b"%x\r\n%s\r\n" % (1 << 20, b" " * (1 << 20))
    assert exchange(application, get("/predict", "POST", "Transfer-Encoding: chunked"), *[chunk] * 9) == [413]


def test_a_token_is_asked_for_before_the_body(application: Application) -> None:
    guarded = Application(application.reader, "0123456789abcdef")
    request = post(BODY)
    assert exchange(guarded, request[: -len(BODY)]) == [401]
    assert exchange(guarded, post(BODY, "Authorization: Bearer 0123456789abcdef")) == [200]


def test_too_many_connections_are_turned_away(application: Application, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "MOST_CONNECTIONS", 1)
    assert exchange(application, post(BODY)) == [503]


# -- snapshots -----------------------------------------------------------------------------------------------------


def states(run: Path) -> list[Path]:
    return sorted((run / "checkpoints").glob("[0-9]*"), key=lambda path: int(path.name))


@pytest.fixture
def growing(run: Path, tmp_path: Path) -> Path:
    """A run that goes on: config and rows, and no checkpoint yet."""
    copy = tmp_path / "run"
    shutil.copytree(run, copy, ignore=lambda folder, names: [n for n in names if n == "model" or n.isdecimal()])
    return copy


def comes(run: Path, state: Path) -> None:
    """Have a checkpoint of another run come, its manifest last."""
    target = run / "checkpoints" / state.name
    shutil.copytree(state, target, ignore=shutil.ignore_patterns("manifest.json"), dirs_exist_ok=True)
    shutil.copy(state / "manifest.json", target / ".manifest.json.unfinished")
    (target / ".manifest.json.unfinished").rename(target / "manifest.json")


def update_of(reader: SnapshotReader) -> int | None:
    return None if reader.current is None else reader.current.snapshot.update


def test_the_newest_snapshot_is_served_once_there_is_one(run: Path, growing: Path) -> None:
    reader = SnapshotReader(growing)
    assert not reader.look()
    response = Application(reader).respond("POST", "/predict", None, BODY)
    assert response.status == HTTPStatus.SERVICE_UNAVAILABLE
    for state in states(run):
        comes(growing, state)
        assert reader.look()
        assert update_of(reader) == int(state.name)
        assert not reader.look()
    shutil.copytree(run / "model", growing / "model")
    assert reader.look(), "the model of the end is as new, and is read without rows"
    assert reader.current is not None
    assert reader.current.snapshot.place.endswith("model")


def test_a_damaged_snapshot_keeps_the_model_and_is_said_once(
    run: Path, growing: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first, second, third = states(run)[:3]
    comes(growing, first)
    reader = SnapshotReader(growing)
    assert reader.look()
    comes(growing, second)
    for file in (growing / "checkpoints" / second.name).glob("coordinator.*.npz"):
        file.write_bytes(file.read_bytes()[:-1] + b"?")
    with caplog.at_level(logging.WARNING):
        assert not reader.look()
        assert not reader.look()
    assert update_of(reader) == int(first.name)
    assert len(caplog.records) == 1
    comes(growing, third)
    assert reader.look()
    for path in (growing / "checkpoints").glob("[0-9]*"):
        shutil.rmtree(path)
    assert not reader.look()
    assert update_of(reader) == int(third.name), "what was removed stays in memory"


def test_a_half_removed_snapshot_keeps_the_model(run: Path, growing: Path) -> None:
    first, second = states(run)[:2]
    comes(growing, first)
    reader = SnapshotReader(growing)
    assert reader.look()
    comes(growing, second)
    for file in (growing / "checkpoints" / second.name).glob("*.npz"):
        file.unlink()
    assert not reader.look()
    assert update_of(reader) == int(first.name)


def test_a_place_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError):
        SnapshotReader(tmp_path)


@pytest.mark.parametrize("swaps", [6, pytest.param(100, marks=pytest.mark.nightly)])
def test_no_answer_mixes_two_models(run: Path, growing: Path, swaps: int) -> None:
    """Threads ask while snapshots come; each answer is that of the digest it names."""
    bodies = [json.dumps({**ROW, "a": a / 2, "d": d}).encode() for a in range(4) for d in "pqr"]
    known: dict[str, list[Any]] = {}
    for state in states(run):
        reader = SnapshotReader(state)
        reader.look()
        answers = [json.loads(Application(reader).respond("POST", "/predict", None, body).body) for body in bodies]
        known[answers[0]["digest"]] = [(answer["prediction"], answer["probabilities"]) for answer in answers]
    comes(growing, states(run)[0])
    reader = SnapshotReader(growing, every=0.001)
    reader.look()
    application, wrong, stop = Application(reader), list[Any](), threading.Event()

    def ask() -> None:
        while not stop.is_set():
            for place, body in enumerate(bodies):
                answer = json.loads(application.respond("POST", "/predict", None, body).body)
                if known[answer["digest"]][place] != (answer["prediction"], answer["probabilities"]):
                    wrong.append(answer)

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for swap in range(1, swaps + 1):
        state = states(run)[swap % len(states(run))]
        for other in (growing / "checkpoints").glob("[0-9]*"):
            (other / "manifest.json").unlink(missing_ok=True)
        comes(growing, state)
        before = reader.swaps
        assert reader.look(), reader.failures
        assert reader.swaps == before + 1
    stop.set()
    for thread in threads:
        thread.join()
    assert not wrong
    assert set(application.answered) == {200}


def wait_for(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_another_process_loads_what_a_server_swaps_in(
    run: Path, growing: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model that it hands over answers as one that is loaded here, also after a kill, and beside namesakes."""
    (tmp_path / "namesake" / "pipelines").mkdir(parents=True)
    (tmp_path / "namesake" / "pipelines" / "__init__.py").write_text("raise SystemExit")
    monkeypatch.syspath_prepend(tmp_path / "namesake")
    reader = SnapshotReader(growing, every=0.01)
    reader.start()
    try:
        for state in states(run)[:3]:
            comes(growing, state)
            wait_for(lambda update=int(state.name): update_of(reader) == update)  # type: ignore[misc]
            here = SnapshotReader(state)
            here.look()
            both = [json.loads(Application(one).respond("POST", "/predict", None, BODY).body) for one in (reader, here)]
            assert both[0] | {"age_seconds": 0} == both[1] | {"age_seconds": 0}
            assert reader.failures == 0
            assert reader._loader is not None
            assert reader._loader._process is not None
            reader._loader._process.kill()
    finally:
        reader.close()
    assert reader._loader._process is None


def test_another_process_says_what_is_damaged(
    run: Path, growing: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    state = states(run)[0]
    comes(growing, state)
    for file in (growing / "checkpoints" / state.name).glob("coordinator.*.npz"):
        file.write_bytes(file.read_bytes()[:-1] + b"?")
    reader = SnapshotReader(growing, every=0.01)
    reader.start()
    wait_for(lambda: reader.failures > 0)
    assert reader._loader is not None
    with pytest.raises(RaydtError, match="SHA-256"):
        reader._loader.load(SnapshotPlace(RunFolder(growing / "checkpoints" / state.name), ("", 0, 0)))
    reader.close()
    assert "coordinator." in caplog.text
    with refused("serving.loader_ended", ProcessLostError):
        reader._loader.load(SnapshotPlace(RunFolder(state), ("", 0, 0)))


def test_a_snapshot_behind_a_uri_with_a_query_is_the_same_in_another_process() -> None:
    """As an object store is named that is not Amazon's; its location is no URI."""
    state = RunFolder("mock:///bucket/run?endpoint_override=here").inside("checkpoints").inside("7")
    there = RunFolder.at(json.loads(json.dumps(state.address)))
    assert (there.root, there.location) == (state.root, state.location) == ("bucket/run/checkpoints/7", state.location)


def test_a_server_that_is_closed_while_its_process_begins_ends_it(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loader = Loader(quote=True)
    begin = loader.begin
    monkeypatch.setattr(loader, "begin", lambda: (loader.interrupt(), begin()))
    with refused("serving.loader_ended", ProcessLostError) as caught:
        loader.load(SnapshotPlace(RunFolder(run / "model"), ("", 0, 0)))
    assert loader._process is None
    assert said(caught.value, quote=False) == message("serving.loader_ended")


def test_an_answer_that_broke_off_is_no_part_of_the_next(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loader, found, contents = Loader(quote=True), SnapshotPlace(RunFolder(run / "model"), ("", 0, 0)), loading._contents

    def short(pipe: Any) -> Iterator[dict[str, Any]]:
        yield next(contents(pipe))
        raise MemoryError

    try:
        monkeypatch.setattr(loading, "_contents", short)
        with pytest.raises(MemoryError):
            loader.load(found)
        monkeypatch.setattr(loading, "_contents", contents)
        assert loader.load(found).snapshot == loading.load(found).snapshot
    finally:
        loader.close()


# -- the command ---------------------------------------------------------------------------------------------------


def lines_of(process: subprocess.Popen[str]) -> Iterator[str]:
    assert process.stderr is not None
    yield from process.stderr


def test_the_command_ends_in_order_at_sigterm(run: Path) -> None:
    command = [sys.executable, "-m", "pipelines.cli", "serve", str(run), "--port", "0", "--host", "0.0.0.0", "--json"]
    environment = {name: value for name, value in os.environ.items() if name != TOKEN}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, env=environment, text=True, **pipes) as process:  # type: ignore[call-overload]
        try:
            lines = lines_of(process)
            token = next(lines).split("token: ")[1].strip()
            port = int(next(lines).rsplit(":", 1)[1])

            async def ask() -> bytes:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(post(BODY, f"Authorization: Bearer {token}", "Connection: close"))
                try:
                    return await asyncio.wait_for(reader.read(), 30)
                finally:
                    writer.close()

            answer = asyncio.run(ask())
            process.send_signal(signal.SIGTERM)
            out, err = process.communicate(timeout=30)
        finally:
            process.kill()
        assert answer.startswith(b"HTTP/1.1 200"), answer
        assert process.returncode == 0, err
        assert json.loads(out)["requests"] == 1


def test_a_taken_port_and_a_host_that_is_none_are_refused(run: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, refused("serving.address", ConfigError):
        serve(run, port=taken.getsockname()[1])
    with refused("serving.address", ConfigError, host="no.such.host.invalid"):
        serve(run, "no.such.host.invalid", 0)


def test_a_signal_as_soon_as_it_listens_ends_the_server(run: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    done = serve(run, port=0, say=lambda line: signal.raise_signal(signal.SIGTERM))
    assert done == {"requests": 0, "rows": 0, "swaps": 1}
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_case_with_tokens_or_lists_takes_lists(tmp_path: Path) -> None:
    """Lists of another kind are refused."""
    trial = next(trial for trial in CASES if trial.case.sparse and trial.learner.kind == "sparse_tree")
    run = pipelines.replay(trial.config(tmp_path), tmp_path / "run")
    reader = SnapshotReader(run.path)
    reader.look()
    row: dict[str, Any] = {"ones": [1, 2]} | ({"a": 1.0, "d": "p"} if trial.case.dense else {})
    for wrong in (7, ["x"], [1.5], [[1]], [2**70], {}, [True]):
        assert error_of(Application(reader), json.dumps({**row, "ones": wrong}).encode())["column"] == "ones"
    for wrong in (None, [99], [-1], [1, 1], [None]):
        assert error_of(Application(reader), json.dumps({**row, "ones": wrong}).encode())["column"] == "ones"


def test_an_error_of_a_key_names_the_row_of_the_request() -> None:
    """Rows of several keys are predicted apart."""
    from pipelines.serving.served import RequestTable, _of_rows

    class One:
        def predicted(self, table: RequestTable) -> Any:
            raise InputError("bad", row=1, column="a")

    with pytest.raises(InputError) as caught:
        _of_rows(One(), RequestTable({"a": [1, 2, 3]}, 3, single=False), [0, 2], "key")  # type: ignore[arg-type]
    assert caught.value.row == 2


# -- Ray Serve -----------------------------------------------------------------------------------------------------


def test_a_replica_answers_requests_and_calls(run: Path) -> None:
    """Without Ray: what its proxy would hand to a replica."""
    starlette = pytest.importorskip("starlette.requests")
    from pipelines.serving.application import Replica

    replica = Replica(str(run), every=0.01)

    def request(method: str, path: str, *parts: bytes) -> Any:
        left = [{"type": "http.request", "body": part, "more_body": True} for part in parts]
        left.append({"type": "http.request", "body": b"", "more_body": False})

        async def receive() -> Any:
            return left.pop(0)

        scope = {"type": "http", "method": method, "path": f"/model{path}", "root_path": "/model", "headers": []}
        return starlette.Request(scope, receive)

    answer = asyncio.run(replica(request("POST", "/predict", BODY[:9], BODY[9:])))
    assert json.loads(answer.body)["prediction"] == replica.predict(ROW)["prediction"]
    assert asyncio.run(replica(request("GET", "/health"))).status_code == 200
    assert asyncio.run(replica(request("POST", "/predict", b" " * MOST_BYTES, b"  "))).status_code == 413
    assert "column" in replica.predict({**ROW, "a": "x"})["error"]
    replica.close()


@pytest.mark.nightly
@pytest.mark.ray
def test_a_deployment_of_ray_serve(run: Path) -> None:
    """In a process of its own, which ends its Ray."""
    pytest.importorskip("ray.serve")
    pytest.importorskip("starlette")
    program = f"""
import ray
from ray import serve
from pipelines.serving.application import application
ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
serve.start(http_options={{"host": "127.0.0.1", "port": 0}})
handle = serve.run(application({str(run)!r}, ray_actor_options={{"num_cpus": 0.5}}))
print(handle.predict.remote({ROW!r}).result(timeout_s=60)["prediction"])
serve.shutdown()
ray.shutdown()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=280, check=False)
    reader = SnapshotReader(run)
    reader.look()
    expected = json.loads(Application(reader).respond("POST", "/predict", None, BODY).body)["prediction"]
    assert done.stdout.split()[:1] == [expected], done.stderr[-2000:]  # Ray may say more when it ends


def test_categories_of_digits_stay_text(tmp_path: Path) -> None:
    """Such as postcodes: as text they are those of the model, for the server as for files."""
    codes = [f"{place % 5}" for place in range(400)]
    labels = ["ab"[code in "13"] for code in codes]
    path, data, out = tmp_path / "rows.parquet", tmp_path / "new.parquet", tmp_path / "out.parquet"
    pq.write_table(pa.table({"postcode": codes, "x": [0.5] * 400, "y": labels}), path)
    config = {
        "source": {"kind": "parquet", "path": str(path), "label": "y"},
        "stream": {"model": "incremental"},
        "learner": {"kind": "fudyadt"},
        "cluster": {"backend": "in_process"},
        "output": {"report": False},
    }
    run = pipelines.replay(config, tmp_path / "run")
    rows = [{"postcode": code, "x": 0.5} for code in "01234"]
    expected = ["a", "b", "a", "b", "a"]
    for table in (pa.Table.from_pylist(rows), pa.table({"postcode": [*range(5)], "x": [0.5] * 5})):
        pq.write_table(table, data)
        found = predict_file(run.path, data, out, overwrite=True)
        assert (found["unseen"], pq.read_table(out)["prediction"].to_pylist()) == (0, expected)
    reader = SnapshotReader(run.path)
    reader.look()
    for given in (rows, [{**row, "postcode": int(row["postcode"])} for row in rows]):
        body = json.dumps({"rows": given}).encode()
        assert json.loads(Application(reader).respond("POST", "/predict", None, body).body)["predictions"] == expected


# -- serving keys ----------------------------------------------------------------------------------------------------
# Served models by key: how a request names its key, and what names none.


def served(folder: Path, keys: pa.Array) -> Application:
    """Answer by the models of keys, each of which has two rows of its own label."""
    table = pa.table({"a": [0.0, 1.0] * len(keys), "y": [str(n // 2) for n in range(2 * len(keys))]})
    doubled = pa.array([key for key in keys.to_pylist() for _ in range(2)], keys.type)
    pq.write_table(table.append_column("key", doubled), folder / "rows.parquet")
    run = pipelines.replay(
        {
            "source": {"kind": "parquet", "path": str(folder / "rows.parquet"), "label": "y", "key": "key"},
            "learner": {"kind": "fudyadt"},
            "cluster": {"backend": "in_process"},
            "output": {"report": False},
        },
        folder / "run",
    )
    reader = SnapshotReader(run.path)
    assert reader.look()
    return Application(reader)


@pytest.fixture(scope="module")
def integers(tmp_path_factory: pytest.TempPathFactory) -> Application:
    return served(tmp_path_factory.mktemp("integers"), pa.array([7, -5], pa.int64()))


def asked(application: Application, key: Any) -> dict[str, Any]:
    response = application.respond("POST", "/predict", None, json.dumps({"a": 1, "key": key}).encode())
    assert response.status == HTTPStatus.OK, response
    found: dict[str, Any] = json.loads(response.body)
    return found


@pytest.mark.parametrize(("key", "label"), [(7, "0"), ("7", "0"), (-5, "1"), ("-5", "1")])
def test_a_key_may_be_written_as_text(integers: Application, key: Any, label: str) -> None:
    assert asked(integers, key)["prediction"] == label


@pytest.mark.parametrize(
    "key", ["\u00b2", "--5", "-", "", "9" * 5000, "\u0663", "\x00", "7.0", 8, 2**70], ids=lambda key: repr(key)[:9]
)
def test_what_looks_like_a_key_has_no_model(integers: Application, key: Any) -> None:
    found = asked(integers, key)
    assert (found["prediction"], found["probabilities"], found["without_model"]) == (None, None, [0])


def test_keys_that_look_alike_have_models_of_their_own(tmp_path: Path) -> None:
    keys = ["7", "07", " 7", "\u00b2", "--5", "9" * 5000, "\x00", "", "x" * 5000]
    application = served(tmp_path, pa.array(keys))
    assert [asked(application, key)["prediction"] for key in keys] == [str(n) for n in range(len(keys))]
    assert asked(application, 7)["prediction"] is None, "keys of the source are text"


@pytest.mark.parametrize("keys", [pa.array([7, -5], pa.int64()), pa.array(["7", "-5"])], ids=["integers", "text"])
def test_predict_and_serve_mean_the_same_key(tmp_path: Path, keys: pa.Array) -> None:
    """A text names the integer that it writes, where there is no such text; an integer names no text but in CSV."""
    application = served(tmp_path, keys)
    numbers = pa.types.is_integer(keys.type)
    for form, column in (("text", pa.array(["7", "8"])), ("integer", pa.array([7, 8], pa.int64()))):
        known = "0" if numbers or form == "text" else None
        pq.write_table(pa.table({"a": [1.0, 1.0], "key": column}), tmp_path / "data.parquet")
        told = predict_file(tmp_path / "run", tmp_path / "data.parquet", tmp_path / f"{form}.parquet")
        predicted = pq.read_table(tmp_path / f"{form}.parquet")["prediction"].to_pylist()
        assert predicted == [asked(application, key)["prediction"] for key in column.to_pylist()] == [known, None]
        assert told["without_model"] == predicted.count(None)
    (tmp_path / "data.csv").write_text("a,key\n1,7\n1,8\n")
    predict_file(tmp_path / "run", tmp_path / "data.csv", tmp_path / "csv.parquet")
    assert pq.read_table(tmp_path / "csv.parquet")["prediction"].to_pylist() == ["0", None]
    (tmp_path / "new.csv").write_text("a,y,key\n1,1,7\n")
    changed = pipelines.update(tmp_path / "run", insert=tmp_path / "new.csv", dry_run=True)
    assert list(changed.by_key) == [keys.to_pylist()[0]], "a row of CSV is one of the key that there is"


@pytest.mark.parametrize(("key", "said"), [(None, "no key"), ([7, 8], "list or an object"), ({"is": 7}, "list or an")])
def test_rows_without_a_key_are_told_apart_from_many_rows_as_one(integers: Application, key: Any, said: str) -> None:
    """Who forgets {"columns": ...} sends one row of lists."""
    response = integers.respond("POST", "/predict", None, json.dumps({"a": 1, "key": key}).encode())
    assert response.status == HTTPStatus.BAD_REQUEST
    assert said in response.body.decode()
