"""Predictions of a saved model for files of rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import TypeAdapter

from pipelines.saving import load_model
from raydt.errors import InputError
from raydt.saved_model import SavedModel
from raydt.sources.base import Source
from raydt.sources.options import SourceOptions, open_source

#: Kinds of file by the end of the name.
KINDS = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
    ".csv": "csv",
}


def predict_file(model: str | Path, data: str | Path, out: str | Path, kind: str | None = None) -> dict[str, Any]:
    """Predict every row of a file.

    Parameters
    ----------
    model : path or URI
        A run folder, its ``model``, or a state.
    data : path or URI
        Parquet, Arrow IPC or CSV with the model's feature columns; other columns are passed over.
    out : path
        Parquet file to write: ``prediction``, and ``p_<class>`` for each class, a row for each row of ``data``.
    kind : {"parquet", "arrow", "csv"}, optional
        By default from the end of the name.

    Returns
    -------
    dict
        ``rows``, ``out`` and ``classes``.

    Raises
    ------
    InputError
        A damaged model, a missing column or a value that cannot be used, with its row. Nothing has been written.
    """
    saved = load_model(model)
    source = _open(saved, str(data), kind)
    target = Path(out).resolve()
    if target.is_dir():
        raise InputError("--out is a folder", file=str(target), remedy="Give the name of a new Parquet file")
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_name(f".{target.name}.unfinished")
    rows = 0
    try:
        with pq.ParquetWriter(unfinished, _schema(saved)) as writer:
            for table in _predicted(saved, source):
                writer.write_table(table)
                rows += table.num_rows
        unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)
    return {"rows": rows, "out": str(target), "classes": [str(label) for label in saved.classes]}


def _open(saved: SavedModel, data: str, kind: str | None) -> Source:
    kind = kind or KINDS.get(Path(data).suffix.lower())
    if kind is None:
        raise InputError("the kind of file is unclear", file=data, remedy="Add --kind parquet, arrow or csv")
    features = saved.features
    categorical = [name for name, is_category in zip(features.names, features.categorical, strict=True) if is_category]
    options = TypeAdapter[Any](SourceOptions).validate_python(
        {"kind": kind, "path": data, "label": None, "features": list(features.names), "categorical": categorical}
    )
    source = open_source(options)
    if source.features.categorical != features.categorical:
        odd = next(
            name
            for name, is_category in zip(features.names, source.features.categorical, strict=True)
            if is_category and name not in categorical
        )
        raise InputError("holds text, but the model knows it as numeric", file=data, column=odd)
    # Values the model has not seen get codes beyond its own, which equal no threshold: they are "none of these".
    source.restore({**source.state(), "categories": saved.categories})
    return source


def _predicted(saved: SavedModel, source: Source) -> Iterator[pa.Table]:
    predictor = saved.predictor()
    labels = pa.array(saved.classes) if saved.classes else pa.array([], pa.null())
    for rows in source.rows():
        if rows.bad:
            raise rows.bad[min(rows.bad)]
        codes = predictor.predict(rows.X)
        shares = predictor.predict_proba(rows.X, len(saved.classes))
        columns = [labels.take(pa.array(codes)), *(pa.array(shares[:, k]) for k in range(shares.shape[1]))]
        yield pa.Table.from_arrays(columns, schema=_schema(saved))


def _schema(saved: SavedModel) -> pa.Schema:
    kind = pa.array(saved.classes).type
    return pa.schema([("prediction", kind), *((f"p_{label}", pa.float64()) for label in saved.classes)])
