"""A model as one of treelite, ONNX, LightGBM or scikit-learn, from its neutral description alone.

One module for each format: ``build(trees, interface)`` makes an object of the format's library from a
:class:`~raydt.trees.shapley.TreeSum` whose origin is 0, ``write(model, path)`` puts it into a file and returns what its
reader has to be told, ``LIBRARIES`` are what it needs, by the names that pip knows, and ``SUFFIX`` is the ending of its
files. Outputs before the link are equal in every bit to those of the learner. What a format cannot say is refused.

Not here: what each learner's model means as trees (``tree_sum`` of its predictor).
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, get_args

import numpy as np

from raydt.arrays.blocks import LARGEST_WIDTH, SparseRows
from raydt.arrays.elementary import Floats
from raydt.encoding.columns import number_of
from raydt.errors import InputError
from raydt.examples.updates import Features
from raydt.messages import message
from raydt.trees.shapley import LARGEST, TreeSum

# The way of a row through a tree, in words: a sentence for each node, such as ``age <= 30.5 (value 27)``.

# What the numbers that go into an exported model, and come out of it, stand for.

FormatName = Literal["treelite", "onnx", "lightgbm", "sklearn"]

_OUTPUTS = {
    "identity": "shares of the classes",
    "logistic": "log-odds of the class; its share is 1 / (1 + exp(-output))",
    "softmax": "scores of the classes; their softmax are the shares",
}


@dataclass(frozen=True, slots=True)
class Interface:
    """Columns and classes of a model."""

    features: Features
    #: Of each categorical column, the number that stands for each value; every other value is -1.
    categories: Mapping[str, Mapping[Any, int]]
    classes: Sequence[Any]  #: Labels by class code; empty where labels are numbers.
    tokens: Sequence[str] = ()  #: Token of each sparse feature by index, if the sparse features are tokens.

    @classmethod
    def of(
        cls, features: Features, categories: Mapping[str, Sequence[Any]], classes: Sequence[Any], by_value: bool
    ) -> Interface:
        """Make an interface from the values of categorical columns and the sparse tokens, in the order of codes."""
        if features.sparse == LARGEST_WIDTH:
            raise InputError(message("export.unknown_width"))
        names = features.categorical_names
        numbers = {
            name: {value: number_of(value) if by_value else code for code, value in enumerate(categories.get(name, ()))}
            for name in names
        }
        return cls(
            features, numbers, list(classes), categories.get(features.sparse_column, ()) if features.sparse else ()
        )

    def name(self, feature: int) -> str:
        """Return the name of a feature by its number: of a sparse one its token, if it has one."""
        return self.features.name(feature, self.tokens)

    def labels(self, trees: TreeSum) -> list[Any]:
        """Return the label of each output; none where labels are numbers. ``InputError`` if a class has no label."""
        if trees.codes.max(initial=-1) >= len(self.classes):
            raise InputError(message("export.one_class"))
        return [self.classes[code] for code in trees.codes.tolist()]

    def describe(self, trees: TreeSum) -> dict[str, Any]:
        """Return JSON values: ``columns`` in the order of the input, ``outputs`` in the order of the output."""
        columns: list[dict[str, Any]] = []
        for described in self.features.describe():
            numbers = self.categories.get(described["name"])
            values = {} if numbers is None else {"values": [[value, number] for value, number in numbers.items()]}
            tokens = {"tokens": list(self.tokens)} if described["kind"] == "sparse" and self.tokens else {}
            columns.append(described | values | tokens)
        labels = self.labels(trees)
        meaning = _OUTPUTS[trees.link] if labels else "the predicted number"
        return {"columns": columns, "outputs": labels or ["prediction"], "meaning": meaning}


#: Members of a set that a sentence names.
_NAMED = 3


def sentences(trees: TreeSum, X: Floats, sparse: SparseRows | None, tree: int, interface: Interface) -> list[list[str]]:
    """Return the sentences of each row, on its way through one tree, given by its number."""
    if not 0 <= tree < trees.trees:
        raise InputError(message("export.no_tree", tree=tree, trees=trees.trees))
    features, labels = interface.features, [str(label) for label in interface.classes]
    categories = {
        features.names.index(name): {float(number): str(value) for value, number in numbers.items()}
        for name, numbers in interface.categories.items()
    }
    ones = sparse or SparseRows.empty(trees.sparse, len(X))
    found = []
    for row in range(len(X)):
        node, words = int(trees.starts[tree]), []
        while trees.feature[node] >= 0:
            j = int(trees.feature[node])
            if j >= trees.dense:
                is_one = (j - trees.dense) in ones.indices[ones.indptr[row] : ones.indptr[row + 1]]
                left, said = not is_one, f"{interface.name(j)} is {int(is_one)}"
            else:
                left, said = _tested(trees, node, float(X[row, j]), categories.get(j))
                said = f"{features.names[j]} {said}"
            words.append(said)
            node = int(trees.left[node] if left else trees.right[node])
        found.append([*words, _leaf(trees, node, labels)])
    return found


def _tested(trees: TreeSum, node: int, x: float, names: Mapping[float, str] | None) -> tuple[bool, str]:
    """Return whether a value passes the test of a node, and the test in words."""
    members = trees.members_of(node).tolist()
    if members:
        known = [_category(value, names) for value in members[:_NAMED]]
        known += [f"{len(members) - _NAMED} others"] * (len(members) > _NAMED)
        wanted = known[0] if len(members) == 1 else f"one of {', '.join(known)}"
        verb = "is" if x in members else "is not"
        return x in members, f"{verb} {wanted} (value {_category(x, names)})"
    threshold = float(trees.threshold[node])
    if threshold == LARGEST:
        return not np.isnan(x), "is missing" if np.isnan(x) else f"is not missing (value {_number(x)})"
    sign = "<=" if x <= threshold else ">"
    if np.isnan(x):
        left = bool(trees.missing_left[node])
        return left, f"is missing, and goes with {'<=' if left else '>'} {_number(threshold)}"
    return x <= threshold, f"{sign} {_number(threshold)} (value {_number(x)})"


def _category(value: float, names: Mapping[float, str] | None) -> str:
    return (names or {}).get(value, "unknown" if value < 0 or names else _number(value))


def _number(x: float) -> str:
    """Return the shortest text of this number, which can be compared with a threshold in every digit."""
    return str(int(x)) if x.is_integer() and abs(x) < 2**53 else repr(x)


def _leaf(trees: TreeSum, node: int, labels: Sequence[str]) -> str:
    count = "" if trees.cover is None else f" of {round(trees.cover[node] / trees.unit):,} examples"
    values = trees.value[node].tolist()
    if not len(trees.codes) or trees.link != "identity":
        words = ", ".join(f"{value:+.6g}" for value in values)
        return f"leaf{count}: {words}" + (" to the score" if trees.trees > 1 else "")
    shares = sorted(zip(trees.codes.tolist(), values, strict=True))
    words = ", ".join(f"{labels[code] if code < len(labels) else code} {share:.3g}" for code, share in shares)
    return f"leaf{count}: {words}"


__all__ = ["FORMATS", "FormatName", "Interface", "build", "suffix_of", "write"]

#: Names of the formats.
FORMATS: tuple[str, ...] = get_args(FormatName)


def _module(to: str) -> ModuleType:
    if to not in FORMATS:
        raise InputError(message("export.no_format", format=to, formats=", ".join(FORMATS)))
    return importlib.import_module(f"raydt.export.to_{to}")


def suffix_of(to: FormatName) -> str:
    """Return the ending of files of a format."""
    return str(_module(to).SUFFIX)


def build(trees: TreeSum, interface: Interface, to: FormatName) -> Any:
    """Build an object of a library; InputError if it is not installed, or cannot say what the model is."""
    module = _module(to)
    interface.labels(trees)
    try:
        return module.build(trees.with_origin_as_tree(), interface)
    except ImportError as error:
        raise _missing(to, module, error) from error


def write(model: Any, trees: TreeSum, interface: Interface, to: FormatName, path: str | Path) -> Path:
    """Write what :func:`build` has made to ``path``, and its columns and outputs to the file returned."""
    module, target = _module(to), Path(path)
    beside = target.with_name(target.name + ".json")
    unfinished = [file.with_name(f".{file.name}.unfinished") for file in (target, beside)]
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        told = module.write(model, unfinished[0])
        text = json.dumps({"format": to, **interface.describe(trees), **told}, indent=2, ensure_ascii=False)
        unfinished[1].write_text(text + "\n", encoding="utf-8")
        for file, whole in zip((target, beside), unfinished, strict=True):
            whole.replace(file)
    except ImportError as error:
        raise _missing(to, module, error) from error
    except OSError as error:
        said = message("export.not_written", reason=error.strerror or str(error))
        raise InputError(said, file=str(target)) from error
    finally:
        for file in unfinished:
            with suppress(OSError):  # it was never written, or has its name by now
                file.unlink()
    return beside


def _missing(to: str, module: ModuleType, error: ImportError) -> InputError:
    needed = " and ".join(module.LIBRARIES)
    return InputError(message("export.no_library", format=to, libraries=needed, reason=str(error)))
