"""What the server answers to a request, whatever carries it: HTTP here, a handle of Ray Serve elsewhere.

Invariant: an answer to rows is made by the model that was current when the request came, and by no other.
"""

from __future__ import annotations

import hmac
import json
import logging
import time
from collections import Counter
from http import HTTPStatus
from typing import Any, NamedTuple

from pipelines.redaction import said
from pipelines.serving.reader import SnapshotReader
from pipelines.serving.rows import parsed
from raydt.errors import InputError, ModelFileError
from raydt.messages import Message, message

log = logging.getLogger(__name__)

#: Bytes of a body.
MOST_BYTES = 8 << 20

_ALLOWED = {"/predict": "POST", "/": "GET", "/health": "GET", "/metrics": "GET"}


class Response(NamedTuple):
    """Status, type and body of an answer."""

    status: HTTPStatus
    body: bytes
    kind: str = "application/json"


class Application:
    """Answers requests by the current model of a reader; with a ``token``, only those that have it."""

    def __init__(self, reader: SnapshotReader, token: str | None = None) -> None:
        self.reader, self._token = reader, None if token is None else f"Bearer {token}".encode()
        self.answered: Counter[int] = Counter()  #: Requests by status.
        self.rows, self.seconds = 0, 0.0  #: ``rows``, ``seconds``: That were predicted, and what that took.

    def respond(self, method: str, path: str, authorization: bytes | None, body: bytes) -> Response:
        """Answer one request."""
        try:
            response = self.refusal(method, path, authorization) or self._answer(path, body)
        except ModelFileError as error:  # a key of the snapshot that cannot be read: no fault of the request
            log.error(message("serving.failed", error=said(error, quote=False)))
            response = problem(HTTPStatus.INTERNAL_SERVER_ERROR, message("serving.failed", error=type(error).__name__))
        except InputError as error:
            large = error.message is not None and error.message.id == "serving.many"
            response = refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE if large else HTTPStatus.BAD_REQUEST, error)
        except Exception as error:  # one request fails, and the log says with what, but not with which values
            log.error(message("serving.failed", error=type(error).__name__))
            response = problem(HTTPStatus.INTERNAL_SERVER_ERROR, message("serving.failed", error=type(error).__name__))
        self.answered[response.status] += 1
        return response

    def refusal(self, method: str, path: str, authorization: bytes | None) -> Response | None:
        """Return why a request is refused before its body is read; None if it is not."""
        if self._token is not None and not hmac.compare_digest(authorization or b"", self._token):
            return problem(HTTPStatus.UNAUTHORIZED, message("serving.token"))
        if path not in _ALLOWED:
            return problem(HTTPStatus.NOT_FOUND, message("serving.path", path=path[:60]))
        if method != _ALLOWED[path]:
            return problem(HTTPStatus.METHOD_NOT_ALLOWED, message("serving.method", method=method[:60], path=path))
        return None

    def _answer(self, path: str, body: bytes) -> Response:
        served = self.reader.current
        if path == "/metrics":
            return Response(HTTPStatus.OK, self.metrics().encode(), "text/plain; version=0.0.4; charset=utf-8")
        if served is None:
            return problem(HTTPStatus.SERVICE_UNAVAILABLE, message("serving.waits"))
        if path != "/predict":
            return _json(HTTPStatus.OK, {"status": "ok", **served.snapshot.described(), **served.description()})
        began = time.perf_counter()
        table = parsed(body)
        response = _json(HTTPStatus.OK, served.answer(table))
        self.rows += table.rows
        self.seconds += time.perf_counter() - began
        return response

    def metrics(self) -> str:
        """Return the counts in the text form of Prometheus."""
        served = self.reader.current
        lines = ["# TYPE raydt_serving_requests_total counter"]
        lines += [f'raydt_serving_requests_total{{status="{int(code)}"}} {n}' for code, n in self.answered.items()]
        counted = {
            "rows_total": self.rows,
            "seconds_total": round(self.seconds, 6),
            "swaps_total": self.reader.swaps,
            "snapshots_refused_total": self.reader.failures,
        }
        shown = {} if served is None else {"age_seconds": served.snapshot.described()["age_seconds"]}
        if served is not None and served.snapshot.update is not None:
            shown["update"] = served.snapshot.update
        for name, value in (*counted.items(), *shown.items()):
            kind = "counter" if name in counted else "gauge"
            lines += [f"# TYPE raydt_serving_{name} {kind}", f"raydt_serving_{name} {value}"]
        return "\n".join(lines) + "\n"


def _json(status: HTTPStatus, value: Any) -> Response:
    return Response(status, json.dumps(value, separators=(",", ":"), allow_nan=False).encode())


def problem(status: HTTPStatus, what: Message) -> Response:
    """Return the answer to a request that cannot be answered."""
    return _json(status, {"error": {"problem": what.problem, "remedy": what.remedy or None}})


def refused(status: HTTPStatus, error: InputError) -> Response:
    """Return the answer to rows that cannot be predicted; it quotes a value to the one who has sent it."""
    place = {"row": error.row, "column": error.column}
    remedy = error.remedy or message("serving.remedy")
    return _json(status, {"error": {"problem": error.problem, "remedy": remedy, **place}})
