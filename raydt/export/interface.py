"""What the numbers that go into an exported model, and come out of it, stand for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from raydt.arrays.sparse import LARGEST_WIDTH
from raydt.encoding.columns import number_of
from raydt.errors import InputError
from raydt.examples.features import Features
from raydt.messages import message
from raydt.trees.tree_sum import TreeSum

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
