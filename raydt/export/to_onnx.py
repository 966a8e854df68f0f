"""ONNX: ``TreeEnsemble`` of ai.onnx.ml 5 in float64 finds the leaves; a table has their outputs, which are added up.

A ``TreeEnsemble`` may add up in any order. Here each tree has a target of its own, which receives the number of the
leaf, and ``CumSum`` adds the outputs of the leaves from the first tree to the last.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from raydt.export import Interface
from raydt.installation import __version__
from raydt.trees.shapley import TreeSum

LIBRARIES, SUFFIX = ("onnx",), ".onnx"
#: Codes of the comparisons of ``TreeEnsemble``.
_AT_MOST, _EQUAL, _MEMBER = 0, 4, 6
#: Versions of the operators, and of the file.
_OPSET, _ML_OPSET, _IR = 19, 5, 10


def build(trees: TreeSum, interface: Interface) -> Any:
    """Build an ``onnx.ModelProto``: from ``X``, float64 (n, columns), to ``scores`` and, of classes, ``shares``."""
    from onnx import TensorProto, checker, helper, numpy_helper

    names = {
        "table": trees.value[trees.feature < 0],
        "axis": np.array(1, dtype=np.int64),
        "last": np.array(trees.trees - 1, dtype=np.int64),
    }
    steps = [
        helper.make_node("TreeEnsemble", ["X"], ["leaf_numbers"], domain="ai.onnx.ml", **_ensemble(trees)),
        helper.make_node("Cast", ["leaf_numbers"], ["leaves"], to=TensorProto.INT64),
        helper.make_node("Gather", ["table", "leaves"], ["outputs"], axis=0),
        helper.make_node("CumSum", ["outputs", "axis"], ["sums"]),
        helper.make_node("Gather", ["sums", "last"], ["total" if trees.mean else "scores"], axis=1),
    ]
    if trees.mean:
        names["count"] = np.array(float(trees.trees))
        steps.append(helper.make_node("Div", ["total", "count"], ["scores"]))
    given = ["scores"]
    if trees.link != "identity":
        steps.append(helper.make_node("Sigmoid" if trees.link == "logistic" else "Softmax", ["scores"], ["shares"]))
        given.append("shares")
    double, width = TensorProto.DOUBLE, trees.dense + trees.sparse
    graph = helper.make_graph(
        steps,
        "raydt",
        [helper.make_tensor_value_info("X", double, [None, width])],
        [helper.make_tensor_value_info(name, double, [None, trees.outputs]) for name in given],
        [numpy_helper.from_array(array, name) for name, array in names.items()],
    )
    versions = [helper.make_opsetid("", _OPSET), helper.make_opsetid("ai.onnx.ml", _ML_OPSET)]
    model = helper.make_model(graph, opset_imports=versions, producer_name="raydt", producer_version=__version__)
    model.ir_version = _IR
    checker.check_model(model)
    return model


def _ensemble(trees: TreeSum) -> dict[str, Any]:
    """Return attributes of the operator: inner nodes and leaves are numbered apart, the latter in order."""
    from onnx import numpy_helper

    leaf = trees.feature < 0
    number = np.where(leaf, np.cumsum(leaf), np.cumsum(~leaf)) - 1
    inner = np.flatnonzero(~leaf)
    sizes = np.diff(trees.first_member)[inner]
    modes = np.select([sizes == 1, sizes > 1], [_EQUAL, _MEMBER], _AT_MOST)
    splits = trees.threshold[inner].copy()
    splits[sizes == 1] = trees.members[trees.first_member[inner[sizes == 1]]]
    sets = [np.append(trees.members_of(node), np.nan) for node in inner[sizes > 1].tolist()]
    left, right, feature = trees.left[inner], trees.right[inner], trees.feature[inner]
    missing = (feature >= trees.dense) | trees.missing_left[inner]
    roots = trees.starts[:-1]
    lonely = np.flatnonzero(leaf[roots])  # a tree of one leaf gets a node with that leaf on both sides
    extra = roots[lonely]
    root_numbers = number[roots].copy()
    root_numbers[lonely] = len(inner) + np.arange(len(lonely))
    none = np.zeros(len(lonely), dtype=np.int64)
    tree = np.repeat(np.arange(trees.trees), np.diff(trees.starts))
    columns = {
        "nodes_featureids": (feature, none),
        "nodes_truenodeids": (number[left], number[extra]),
        "nodes_falsenodeids": (number[right], number[extra]),
        "nodes_trueleafs": (leaf[left], none + 1),
        "nodes_falseleafs": (leaf[right], none + 1),
        "nodes_missing_value_tracks_true": (missing, none),
    }
    attributes: dict[str, Any] = {name: np.concatenate(parts).astype(int).tolist() for name, parts in columns.items()}
    tensors = {
        "nodes_modes": np.concatenate([modes, none]).astype(np.uint8),
        "nodes_splits": np.concatenate([splits, np.zeros(len(lonely))]),
        "leaf_weights": np.arange(int(leaf.sum()), dtype=np.float64),
    }
    if sets:
        tensors["membership_values"] = np.concatenate(sets)
    attributes |= {name: numpy_helper.from_array(array, name) for name, array in tensors.items()}
    return attributes | {
        "tree_roots": root_numbers.tolist(),
        "leaf_targetids": tree[leaf].tolist(),
        "n_targets": trees.trees,
        "aggregate_function": 1,
        "post_transform": 0,
    }


def write(model: Any, path: Path) -> dict[str, Any]:
    """Write the file that ``onnx.load`` reads."""
    path.write_bytes(model.SerializeToString())
    return {}
