"""Runs and models of raydt in MLflow: models as ``pyfunc``, a run's metrics, and its summary and receipts as artifacts.

Invariant: no row of an example goes to MLflow, whose store no purge reaches: neither states nor predictions, no
quarantine, no log, and no key of receipts.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pipelines.display import Reporter
from pipelines.run_folder import MODEL, RECEIPTS, RunFolder, read_table
from pipelines.running.ending import read_summary
from pipelines.saved_runs import folder_of_model, load_members
from raydt.errors import InputError
from raydt.estimators import load_model as load_estimator
from raydt.estimators.base import Estimator
from raydt.folders.arrays import read_manifest
from raydt.installation import __version__
from raydt.messages import message
from raydt.sessions.saved_model import BY_KEY
from raydt.sources.live.base import library


class Scores(Reporter):
    """Progress of a run that calls a function with each row of its metrics: the updates so far, and the scores.

    The first call is at the first row by which a prediction was scored. An error of the function ends the run, as a
    failed one.
    """

    def __init__(self, told: Callable[[int, Mapping[str, float]], object]) -> None:
        self._told = told

    def scored(self, updates: int, scores: Mapping[str, float]) -> None:
        """Call the function, unless nothing was scored so far."""
        if not any(map(math.isnan, scores.values())):
            self._told(updates, scores)


def log_scores(updates: int, scores: Mapping[str, float]) -> None:
    """Log scores of a run under way in the active run of MLflow: for :class:`Scores`."""
    library("mlflow", "mlflow").log_metrics({name: float(value) for name, value in scores.items()}, step=updates)


def log_run(run: str | Path, *, name: str = MODEL) -> Any:
    """Log a finished run in the active run of MLflow, and return what MLflow says of its model.

    It logs the learner's options as parameters, all numbers of the tables of metrics at their updates, the digest of
    the model as a tag, ``summary.json`` and, if the run has one, the chain of receipts as artifacts, and the model
    (:func:`log_model`). Of a run in chapters it logs the newest that has ended, and metrics of all.

    InputError if the folder holds no finished run.
    """
    mlflow, whole, folder = library("mlflow", "mlflow"), RunFolder(run), RunFolder.existing(run)
    summary = read_summary(folder)
    options = read_manifest(folder.inside(MODEL)).meta["learner"]
    mlflow.log_params({f"learner.{option}": value for option, value in options.items() if value is not None})
    mlflow.set_tags({"raydt.model_digest": summary["model_digest"], "raydt.config_hash": summary["config_hash"]})
    for chapter in whole.chapters() or [folder]:
        for row in (row for part in read_table(chapter, "metrics") for row in part.to_pylist()):
            seq = row.pop("seq")
            if row.get("key") is None:  # of models by key the rows over all keys
                known = {title: float(value) for title, value in row.items() if _is_number(value)}
                mlflow.log_metrics(known, step=seq)
    with tempfile.TemporaryDirectory(prefix="raydt-") as scratch:
        for place, file in ((folder, "summary.json"), (whole, RECEIPTS)):
            if place.has(file):
                (Path(scratch) / file).write_bytes(place.read(file))
        mlflow.log_artifacts(scratch)
    return log_model(run, name)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


# The flavour: a folder of arrays, read without pickle.


def save_model(model: Estimator | str | Path, path: str | Path, *, receipts: str | Path | None = None) -> None:
    """Write a model as an MLflow model, which ``mlflow.pyfunc.load_model`` reads and MLflow serves.

    Parameters
    ----------
    model : estimator, or path of a run, model or state
        Of a state only the model is written, never its rows.
    path : path
        New folder.
    receipts : path, optional
        A chain of receipts that goes with the model: it names nobody.
    """
    with _made(model, receipts) as given:
        library("mlflow.pyfunc", "mlflow").save_model(path=str(path), **given)


def log_model(model: Estimator | str | Path, name: str = MODEL, *, receipts: str | Path | None = None) -> Any:
    """Log a model in the active run of MLflow; as of :func:`save_model`. Returns MLflow's ``ModelInfo``."""
    with _made(model, receipts) as given:
        return library("mlflow.pyfunc", "mlflow").log_model(name=name, **given)


@contextmanager
def _made(model: Estimator | str | Path, receipts: str | Path | None) -> Iterator[dict[str, Any]]:
    """Make the arguments of MLflow, with the folder of the data, which is there for as long as the context."""
    with tempfile.TemporaryDirectory(prefix="raydt-") as scratch:
        data = Path(scratch) / "data"
        data.mkdir()
        if isinstance(model, str | Path):
            place = folder_of_model(model)
            if read_manifest(place).kind == "model":
                for name in place.names():
                    (data / MODEL).mkdir(exist_ok=True)
                    (data / MODEL / name).write_bytes(place.read(name))
            else:
                load_estimator(place.location).save(data / MODEL)
            run = RunFolder.near(place.location)
            if run is not None and run.has("summary.json"):
                (data / "summary.json").write_bytes(run.read("summary.json"))
        else:
            model.save(data / MODEL)
        if receipts is not None:
            (data / RECEIPTS).write_bytes(Path(receipts).read_bytes())
        meta = read_manifest(RunFolder(data / MODEL)).meta
        yield {
            "loader_module": __name__,
            "data_path": str(data),
            "signature": _signature(data / MODEL),
            "pip_requirements": [f"raydt[mlflow]=={__version__}"],
            "metadata": {"learner": meta["learner"]["kind"], "raydt": __version__},
        }


def _signature(place: Path) -> Any:
    """Return the columns that a model takes, and gives."""
    library("mlflow", "mlflow")
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, Schema

    members = load_members(place)
    saved = members.outline()
    if saved.features.sparse:
        raise InputError(message("models.sparse_pyfunc"), file=str(place))
    numbers = not saved.classes and not members.meta["classes"]
    given = [
        ColSpec(_type(saved.categories[name]) if name in saved.categories else "double", name, required=False)
        for name in saved.features.names
    ]
    if BY_KEY in members.meta:
        given.append(ColSpec("long" if members.kind == "integer" else "string", members.meta[BY_KEY] or "key"))
    shares = [ColSpec("double", f"p_{label}") for label in saved.classes]
    label = "double" if numbers else _type(saved.classes)
    return ModelSignature(inputs=Schema(given), outputs=Schema([ColSpec(label, "prediction"), *shares]))


def _type(values: Any) -> str:
    kinds = {type(value) for value in values if value is not None}
    return {bool: "boolean", int: "long", float: "double"}.get(kinds.pop(), "string") if len(kinds) == 1 else "string"


class PyfuncModel:
    """A model of raydt as ``mlflow.pyfunc`` calls it: a frame of rows, with a column of keys if there are keys."""

    def __init__(self, estimator: Any, key: str | None) -> None:
        self.estimator, self._key = estimator, key

    def predict(self, data: Any, params: Mapping[str, Any] | None = None) -> Any:
        """Return ``prediction`` and, of classes, ``p_<class>``, for each row of a frame."""
        X, keys = data, {}
        if not hasattr(self.estimator, "feature_names_in_"):  # trained on an array: columns in their order
            X = (data if self._key is None else data.drop(columns=self._key)).to_numpy()
            keys = {} if self._key is None else {"keys": data[self._key]}
        found = {"prediction": self.estimator.predict(X, **keys)}
        if hasattr(self.estimator, "predict_proba"):
            shares = self.estimator.predict_proba(X, **keys)
            found |= {f"p_{label}": shares[:, at] for at, label in enumerate(self.estimator.classes_)}
        return library("pandas", "mlflow").DataFrame(found, index=getattr(data, "index", None))


def _load_pyfunc(path: str) -> PyfuncModel:
    """Load a model for ``mlflow.pyfunc.load_model``."""
    meta = read_manifest(RunFolder(Path(path) / MODEL)).meta
    return PyfuncModel(load_estimator(Path(path) / MODEL), (meta[BY_KEY] or "key") if BY_KEY in meta else None)
