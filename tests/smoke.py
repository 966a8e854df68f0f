"""Every public estimator and one run, from end to end, with nothing but raydt and its extras: no test library.

``python tests/smoke.py FOLDER``, with the repository on ``PYTHONPATH``; ``tests/integration/test_names.py`` runs it
with other versions of Python.
"""

from __future__ import annotations

import inspect
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import raydt
from pipelines.cli import main as command
from raydt.errors import InputError
from raydt.estimators.base import Estimator
from raydt.export import FORMATS
from raydt.learners import learners

N = 200


def estimators() -> list[type[Estimator]]:
    """All public estimators that learn by themselves."""
    public = [getattr(raydt, name) for name in raydt.__all__ if not name.startswith("River")]
    return [found for found in public if inspect.isclass(found) and issubclass(found, Estimator)]


def rows(estimator: Any) -> tuple[pa.Table, np.ndarray[Any, Any]]:
    """A frame that the estimator takes, and labels."""
    draw = np.random.default_rng(0)
    ones = draw.integers(0, 2, (N, 4))
    y = (ones[:, 0] + ones[:, 1] > 1).astype(np.int64)
    traits = learners()[estimator.kind].traits(estimator()._options())
    if traits.reading.needs_sparse:
        lists = pa.array([np.flatnonzero(row).tolist() for row in ones])
        return pa.table({"i": lists}).replace_schema_metadata({"n_features": "4"}), y
    frame = pa.table({"a": ones[:, 0] + draw.random(N), "b": ones[:, 1], "c": pa.array(["x", "yz"]).take(ones[:, 2])})
    return frame, y * 1.5 if traits.reading.regression else y


def try_estimator(estimator: Any, folder: Path) -> None:
    """Fit, save, load, forget, audit and export."""
    X, y = rows(estimator)
    model = estimator().fit(X, y)
    for with_examples in (False, True):
        place = folder / f"{estimator.__name__} {with_examples}"
        model.save(place, with_examples=with_examples)
        loaded = raydt.load_model(place)
        assert type(loaded) is estimator
        assert (loaded.predict(X) == model.predict(X)).all()
    assert loaded.digest() == model.digest()
    receipt = loaded.forget(loaded.row_ids_[:10])
    assert receipt.active == N - 10
    loaded.partial_fit(X.slice(0, 10), y[:10])
    assert loaded.audit().conformance == "holds"
    for to in FORMATS:
        try:
            loaded.export(to, folder / f"{estimator.__name__}.{to}")
        except InputError as error:
            if "needs" in error.problem:  # a library that is not installed
                raise
            sys.stdout.write(f"{estimator.__name__} to {to}: {error}\n")
    assert len(loaded.predict(X)) == N


def try_commands(folder: Path, *, backend: str) -> None:
    """Replay, audit, verify, update and purge."""
    run = str(folder / backend)
    config = {
        "source": {"kind": "synthetic", "generator": "sea", "n": 300},
        "stream": {"model": "sliding_window", "window": 100},
        "learner": {"kind": "forest", "n_estimators": 3},
        "cluster": {"backend": backend, "shards": 1},
        "output": {"predictions": True},
    }
    file = folder / f"{backend}.yaml"
    file.write_text(json.dumps(config), encoding="utf-8")
    (folder / "gone.csv").write_text("id\n299\n", encoding="utf-8")
    for arguments in (
        ["replay", str(file), "--out", run],
        ["audit", run],
        ["verify", run],
        ["update", run, "--delete", str(folder / "gone.csv"), "--out", f"{run}-state"],
        ["audit", f"{run}-state"],
        ["purge", run],
        ["report", run],
    ):
        try:
            command(arguments)
        except SystemExit as ended:
            if ended.code:
                raise


def main(folder: Path) -> None:
    """Try everything."""
    for estimator in estimators():
        try_estimator(estimator, folder)
    for backend in ("in_process", "ray"):
        try_commands(folder, backend=backend)
    sys.stdout.write("all is well\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
