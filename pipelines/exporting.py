"""Exports of saved models, and the explanation of one row: the commands ``export`` and ``predict --explain``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from pipelines.outputs import Input, new_file, require_apart, writing_alone
from pipelines.redaction import quoting_as_its_run
from pipelines.saved_runs import load_model
from pipelines.threads_of_run import in_threads_of_its_run
from pipelines.updating.model_data import find_rows, open_rows
from raydt.errors import InputError
from raydt.export import FormatName, Interface, build, suffix_of, write
from raydt.export.paths import sentences
from raydt.learners import traits_of
from raydt.messages import message
from raydt.sessions.saved_model import SavedModel
from raydt.sources.base import Rows
from raydt.trees.shapley import explain
from raydt.trees.tree_sum import TreeSum, tree_sum_of


@in_threads_of_its_run
@quoting_as_its_run
def export_model(
    model: str | Path, to: FormatName, out: str | Path, *, key: str | None = None, overwrite: bool = False
) -> dict[str, Any]:
    """Write the model of a run, a model or a state in the format of another library; ``out``.json describes it.

    Of models by key that of ``key``. ConfigError if ``out`` may not be written; InputError for a damaged model, an
    absent library, or what a format cannot say.
    """
    saved = load_model(model, key)
    trees, interface = trees_of(saved), interface_of(saved)
    target = new_file(out, to, [suffix_of(to)], overwrite=overwrite, beside=[".json"])
    require_apart("--out", str(out), [Input("MODEL", str(model))])
    new = [] if overwrite else [target, target.with_name(target.name + ".json")]
    with writing_alone(target, "the model", new=new):
        beside = write(build(trees, interface, to), trees, interface, to, target)
    return {
        "out": str(target),
        "interface": str(beside),
        "format": to,
        "trees": trees.trees,
        "nodes": len(trees.feature),
        "outputs": interface.describe(trees)["outputs"],
    }


def trees_of(saved: SavedModel) -> TreeSum:
    """Return the trees of a model or state; InputError if it is no sum of trees, or has seen no class."""
    if not saved.classes and not traits_of(saved.options).reading.regression:
        raise InputError(message("predictions.no_class"))
    return tree_sum_of(saved.predictor(), len(saved.classes))


def interface_of(saved: SavedModel) -> Interface:
    """Return columns and classes of a model."""
    by_value = traits_of(saved.options).reading.by_value
    return Interface.of(saved.features, saved.categories, saved.classes, by_value)


@in_threads_of_its_run
@quoting_as_its_run
def explain_row(
    model: str | Path, data: str | Path, row: int, tree: int = 0, kind: str | None = None, key: str | None = None
) -> dict[str, Any]:
    """Explain the prediction of one row of a file, by its number from 0, and put its path in one ``tree`` into words.

    Of models by key that of ``key``.
    ``values`` are the features that move an output, the largest first, each ``[name, [value of each output]]``.
    """
    saved = load_model(model, key)
    trees, interface = trees_of(saved), interface_of(saved)
    rows, at = _row(saved, str(data), row, kind)
    X = rows.X[at : at + 1]
    sparse = None if rows.sparse is None else rows.sparse[np.array([at])]
    found = explain(trees, X, sparse)
    values, base = found.values[0], found.base
    largest = np.abs(values).max(axis=1)
    order = np.argsort(-largest, kind="stable")
    return {
        "row": row,
        "tree": tree,
        "trees": trees.trees,
        "path": sentences(trees, X, sparse, tree, interface)[0],
        "meaning": interface.describe(trees)["meaning"],
        "outputs": interface.describe(trees)["outputs"],
        "base": base.tolist(),
        "output": trees.scores(X, sparse)[0].tolist(),
        "values": [[interface.name(j), values[j].tolist()] for j in order.tolist() if largest[j] > 0],
    }


def _row(saved: SavedModel, data: str, row: int, kind: str | None) -> tuple[Rows, int]:
    """Return the rows that hold one row of a file, and its place among them."""
    files, options = find_rows(saved, data, kind, wanted={})
    for chunk in open_rows(saved, files, options).rows():
        if chunk.start <= row < chunk.start + len(chunk):
            at = row - chunk.start
            if at in chunk.bad:
                raise chunk.bad[at].without_skipping()
            return chunk, at
    raise InputError(message("predictions.no_row"), file=data, row=row)
