"""Treelite: nodes with the comparisons ``<=`` and ``==`` and sets, leaves with a vector, all in float64."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from raydt.errors import InputError
from raydt.export import Interface
from raydt.messages import message
from raydt.trees.shapley import TreeSum

LIBRARIES, SUFFIX = ("treelite",), ".tl"
#: A set of categories has entries below it: treelite stores them as uint32.
_LARGEST_CATEGORY = 2**32


def build(trees: TreeSum, interface: Interface) -> Any:
    """Build a ``treelite.Model``; ``treelite.gtil.predict(model, X, pred_margin=True)`` gives the outputs."""
    from treelite.model_builder import Metadata, ModelBuilder, PostProcessorFunc, TreeAnnotation

    several = trees.outputs > 1
    task = "kMultiClf" if several else "kBinaryClf" if trees.link == "logistic" else "kRegressor"
    after = {"identity": "identity_multiclass" if several else "identity", "logistic": "sigmoid", "softmax": "softmax"}
    builder: Any = ModelBuilder(
        threshold_type="float64",
        leaf_output_type="float64",
        metadata=Metadata(
            num_feature=trees.dense + trees.sparse,
            task_type=task,
            average_tree_output=trees.mean,
            num_target=1,
            num_class=[trees.outputs],
            leaf_vector_shape=(1, trees.outputs),
        ),
        tree_annotation=TreeAnnotation(
            num_tree=trees.trees, target_id=[0] * trees.trees, class_id=[-1 if several else 0] * trees.trees
        ),
        postprocessor=PostProcessorFunc(name=after[trees.link]),
        base_scores=[0.0] * trees.outputs,
    )
    examples = trees.examples
    for begin, stop in zip(trees.starts[:-1].tolist(), trees.starts[1:].tolist(), strict=True):
        builder.start_tree()
        for node in range(begin, stop):
            builder.start_node(node - begin)
            _node(builder, trees, node, begin)
            if examples is not None and trees.cover is not None:
                builder.data_count(int(examples[node]))
                builder.sum_hess(float(trees.cover[node]) / trees.unit)
            builder.end_node()
        builder.end_tree()
    return builder.commit()


def _node(builder: Any, trees: TreeSum, node: int, begin: int) -> None:
    j = int(trees.feature[node])
    if j < 0:
        value = trees.value[node].tolist()
        builder.leaf(value if len(value) > 1 else value[0])
        return
    members = trees.members_of(node)
    sides = {"left_child_key": int(trees.left[node]) - begin, "right_child_key": int(trees.right[node]) - begin}
    if len(members) > 1 and np.all((members >= 0) & (members < _LARGEST_CATEGORY)):
        builder.categorical_test(
            j, default_left=False, category_list=members.astype(int).tolist(), category_list_right_child=False, **sides
        )
        return
    if len(members) > 1:
        raise InputError(message("export.treelite_category"))
    test = ("==", float(members[0])) if len(members) else ("<=", float(trees.threshold[node]))
    # Of a sparse matrix treelite takes what is not there as missing, and that is a 0.
    builder.numerical_test(
        j, test[1], default_left=bool(j >= trees.dense or trees.missing_left[node]), opname=test[0], **sides
    )


def write(model: Any, path: Path) -> dict[str, Any]:
    """Write the file that ``treelite.Model.deserialize`` reads."""
    path.write_bytes(model.serialize_bytes())
    return {}
