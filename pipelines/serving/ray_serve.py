"""A Ray Serve application of the newest snapshot of a run: ``serve.run(application("runs/first"))``.

Each replica has snapshots loaded by a process beside it and swaps one reference, so that no replica stops answering
while a model is loaded, as it would in ``reconfigure``. Needs the extra ``serve``.
"""

from __future__ import annotations

import json
from http import HTTPStatus
from pathlib import Path
from typing import Any

from pipelines.serving.application import MOST_BYTES, Application, problem
from pipelines.serving.reader import LOOK_SECONDS, SnapshotReader
from raydt.messages import message


class Replica:
    """Answers HTTP requests, and calls of :meth:`predict` by handle, with the newest snapshot of a place."""

    def __init__(self, place: str, every: float = LOOK_SECONDS) -> None:
        self._reader = SnapshotReader(place, every)
        self._reader.look()
        self._reader.start()
        self._application = Application(self._reader)

    async def __call__(self, request: Any) -> Any:
        """Answer a request of Starlette's, as ``raydt serve`` does; a token is the proxy's business."""
        from starlette.responses import Response

        scope, body = request.scope, bytearray()
        async for part in request.stream():
            body += part
            if len(body) > MOST_BYTES:
                found = problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, message("serving.large", most=MOST_BYTES))
                return Response(found.body, found.status, media_type=found.kind)
        path = scope["path"].removeprefix(scope.get("root_path", "")) or "/"
        found = self._application.respond(request.method, path, None, bytes(body))
        return Response(found.body, found.status, media_type=found.kind)

    def predict(self, body: dict[str, Any]) -> dict[str, Any]:
        """Answer what ``POST /predict`` takes; of a refusal, ``error`` says why."""
        answer: dict[str, Any] = json.loads(
            self._application.respond("POST", "/predict", None, json.dumps(body).encode()).body
        )
        return answer

    def close(self) -> None:
        """Look for snapshots no more."""
        self._reader.close()


def application(place: str | Path, every: float = LOOK_SECONDS, **options: Any) -> Any:
    """Return an application for ``ray.serve.run``; ``options`` are those of ``serve.deployment`` (``num_replicas``).

    All replicas must reach ``place``: a shared folder or an object store.
    """
    from ray import serve

    return serve.deployment(**options)(Replica).bind(str(place), every)
