"""OneR as a learner of raydt: predict by the one feature whose values make the fewest errors.

R. C. Holte, "Very simple classification rules perform well on most commonly used datasets", Machine Learning 11, 1993.
Every value of a feature predicts its majority class; the rule is the feature with the fewest errors on the live
examples (ties: the smaller feature, and the smaller class). Numbers count as categories: take features of few values.

Invariant: after each update the rule is that of the live examples, so deleting an example leaves no trace of it.
Each shard counts the classes by value of its own features; every step of a batch is one round.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Literal

import numpy as np

from raydt.audits.recorded_tree import AuditReport, compare_rows
from raydt.batches.rows_on_shards import RowBlock, RowsOnShards, ShardWithRows
from raydt.examples.digest import digest
from raydt.examples.store import ExampleStore
from raydt.examples.updates import Reading
from raydt.exchange.messages import Ask
from raydt.learners.base import Case, Learner, LearnerOptions, Promise, Traits
from raydt.learners.batch_coordinator import ADD, LOOK, SequentialCoordinator, steps_of
from raydt.trees.state_schema import HELD, Array, Schema, counter, finite, require, row_arrays

#: The arrays of a model: the feature (-1: none), its values, the class of each, and live examples by class.
MODEL = (
    Array("feature", np.int64, (1,), -1, "features"),
    finite("value", "values"),
    Array("label", np.int32, ("values",), 0, "labels"),
    Array("counts", np.int64, ("classes",), 0),
)


class OneRuleOptions(LearnerOptions):
    """Options of OneR: none of its own."""

    kind: Literal["one_rule"] = "one_rule"

    def promise(self) -> Promise:
        """OneR is exact."""
        return Promise(True, "no feature makes fewer errors on the live examples")


def rule_of(feature: int, counts: dict[float, Counter[int]]) -> tuple[int, int, list[float], list[int]]:
    """Errors, feature, values in order, and the majority class of each value."""
    values = sorted(value for value, classes in counts.items() if classes.total())
    best = [min(counts[value].items(), key=lambda item: (-item[1], item[0])) for value in values]
    errors = sum(counts[value].total() for value in values) - sum(n for _, n in best)
    return errors, feature, values, [label for label, _ in best]


class Predictor:
    """Predictions of a model: the class of the value that a row has, else the majority of all examples."""

    def __init__(self, features: Any, model: dict[str, Any]) -> None:
        self.model = model

    def predict(self, X: Any, sparse: Any = None) -> Any:
        """Class codes, shape (n,)."""
        model = self.model
        labels = np.full(len(X), model["counts"].argmax() if len(model["counts"]) else 0, dtype=np.int32)
        if model["feature"][0] >= 0 and len(model["value"]):
            column = X[:, model["feature"][0]]
            at = np.minimum(np.searchsorted(model["value"], column), len(model["value"]) - 1)
            known = model["value"][at] == column
            labels[known] = model["label"][at[known]]
        return labels

    def predict_proba(self, X: Any, n_classes: int, sparse: Any = None) -> Any:
        """1 for the class predicted, shape (n, n_classes)."""
        return np.eye(n_classes)[self.predict(X)]


class Shard(ShardWithRows):
    """Counts the classes by value of each of its features."""

    def __init__(self, options: OneRuleOptions, features: Any, groups: Any) -> None:
        super().__init__(features, groups)
        self.label = np.empty(0, dtype=np.int32)  # by slot
        self.counts: dict[int, dict[float, Counter[int]]] = {int(j): {} for j in self.columns}

    def _on_step(self, slot: int, label: int, sign: int) -> Any:
        """Count a row in (+1) or out (-1); the best rule of this shard's features."""
        self.label = np.append(self.label, np.zeros(max(0, slot + 1 - len(self.label)), dtype=np.int32))
        self.label[slot] = label
        row = self._held.gather(np.array([slot]))["X"][0]  # safe on a shard without features, which may know no slots
        for feature, value in zip(self.counts, row.tolist(), strict=True):
            self.counts[feature].setdefault(value, Counter())[label] += sign
            self.counts[feature][value] += Counter()  # forgets classes without examples
        return min((rule_of(*item) for item in self.counts.items()), default=None)

    def state(self, slots: Any) -> Any:
        """The label of each row, with every group; the counts follow from the rows."""
        return {group: {"label": self.label[slots]} for group in self.groups.tolist()}

    def restore(self, state: Any) -> None:
        """Count the rows of a saved state again."""
        self._held.restore(state)
        self.counts = {feature: {} for feature in self.counts}
        for slot, label in enumerate(state[self.groups[0]]["label"].tolist() if len(self.groups) else ()):
            self._on_step(slot, label, 1)


class Coordinator(SequentialCoordinator):
    """Ids, labels and the rule; the rows are with the shards."""

    Predictor = Predictor

    def __init__(self, options: OneRuleOptions, features: Any, shards: int, plan: Any) -> None:
        super().__init__()
        self.features, self._rows, self._store = features, RowsOnShards(features, shards), ExampleStore(0, 0)
        self.rule: Any = (0, -1, [], [])
        self.by_class: Counter[int] = Counter()  # not from the store, which holds the rest of the batch already

    def _prepare(self, batch: Any) -> Any:
        self.store.reserve(len(batch))
        yield from ()

    def _take(self, batch: Any, part: slice, admitted: Any, result: Any) -> Any:
        added = np.flatnonzero(admitted.new[part] >= 0) + part.start
        yield from self._rows.put(admitted.new[added], RowBlock.of(batch.X[admitted.row[added]]))
        rules: list[int] = []
        for step, position in zip(*steps_of(batch, part, admitted), strict=True):
            if step["kind"] in (ADD, LOOK) and batch.start + position >= batch.warmup:
                result.predictions[position] = self.predictor().predict(batch.X[step["row"]][None])[0]
            if step["kind"] == LOOK:
                continue
            sign, label = (1 if step["kind"] == ADD else -1), int(self.store.y[step["slot"]])
            self.by_class[label] += sign
            replies = yield Ask("step", {"slot": int(step["slot"]), "label": label, "sign": sign})
            before, self.rule = self.rule, min((reply for reply in replies if reply is not None), default=self.rule)
            result.path[position] += 1
            if before[1] != self.rule[1]:
                rules.append(batch.start + int(position))
        return {"seq": np.array(rules, dtype=np.int64)}

    def model(self) -> Any:
        """The rule."""
        _, feature, values, labels = self.rule
        counts = [self.by_class[label] for label in range(max(+self.by_class, default=-1) + 1)]
        found = {"feature": [feature], "value": values, "label": labels, "counts": counts}
        return {of.name: np.array(found[of.name], dtype=of.dtype) for of in MODEL}

    def digest(self) -> str:
        """Digest of the rule and of the sorted ids with their labels."""
        slots = self.store.slots()
        rows = self.rows(slots[np.argsort(self.store.id[slots])])
        return digest([*self.model().items(), *rows.items()])

    def statistics(self) -> dict[str, int]:
        """The rule as a tree of one split."""
        leaves = max(1, len(self.rule[2]))
        shape = {"nodes": leaves + (leaves > 1), "leaves": leaves, "depth": int(leaves > 1)}
        return {"active": self.store.live, **shape, "rebuilds": 0, "rebuilt_rows": 0}

    def state(self, slots: Any) -> Any:
        """The rule, and the number of updates."""
        return {"seq": np.array([self._seq]), **self.model()}

    def restore(self, state: Any) -> None:
        """Continue from a saved state."""
        self.store.fill(state["id"], state["y"], state["born"])
        self._seq, feature = int(state["seq"][0]), int(state["feature"][0])
        self.rule = (0, feature, state["value"].tolist(), state["label"].tolist())
        self.by_class = Counter(state["y"].tolist())


class OneRule(Learner):
    """OneR."""

    kind, Options, Coordinator, Shard, Predictor = "one_rule", OneRuleOptions, Coordinator, Shard, Predictor

    def traits(self, options: OneRuleOptions) -> Traits:
        """Numbers and categories, any number of classes."""
        return Traits(Reading(), rebuilds=False, stays=("nothing: the rule is that of the live examples",))

    def schema(self, options: OneRuleOptions, features: Any, model: Any, *, state: bool) -> Schema:
        """The rule; in a state the examples, and their labels where the shards keep them."""
        rows = (counter("seq"), *row_arrays(False, "labels")) if state else ()
        return Schema((*MODEL, *rows), (HELD, Array("label", np.int32, ("rows",))))

    def check_relations(self, options: OneRuleOptions, features: Any, model: Any, groups: Any, n: Any) -> None:
        """Require a rule in order, and labels that shards and coordinator agree on."""
        require((np.diff(model["value"]) > 0).all(), "value", "states.order")
        require(n["classes"] <= n["labels"], "counts", "states.columns", columns=n["classes"])
        for group in (groups or {}).values():
            if not np.array_equal(group["label"], model["y"]):
                raise ValueError("array 'label' is not what the coordinator has")

    def audit(self, options: OneRuleOptions, features: Any, state: Any, history: Any, groups: Any) -> AuditReport:
        """Compare the live examples with the history, and find the best rule again."""
        last = np.iinfo(np.int64).max
        live, failures = history.deleted == last, list(compare_rows(state, history))
        X, y = history.X[live], history.y[live]
        rules = []
        for feature in range(X.shape[1]):
            counts: dict[float, Counter[int]] = {}
            for value, label in zip(X[:, feature].tolist(), y.tolist(), strict=True):
                counts.setdefault(value, Counter())[label] += 1
            rules.append(rule_of(feature, counts))
        _, *best = min(rules, default=(0, -1, [], []))
        expected = {"feature": [best[0]], "value": best[1], "label": best[2], "counts": np.bincount(y)}
        if len(y) or state["feature"][0] >= 0:
            failures += [
                f"{name} is not that of the rule" for name in expected if state[name].tolist() != list(expected[name])
            ]
        verdict: Any = ("holds", "proven") if not failures else ("violated", "violated")
        return AuditReport(*verdict, options.promise().reason, {"examples": len(y)}, failures=failures)

    def cases(self) -> tuple[Case, ...]:
        """Two classes, and three after a warm-up."""
        return Case("two classes"), Case("three classes", classes=3, warmup=6)


LEARNER = OneRule()
