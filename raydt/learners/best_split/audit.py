"""The two verdicts on a sparse best split, from a state and the raw examples.

*Conformance*: the split's counts are those of the rows at its search, the counters of every feature those of the rows
now, every feature lies within the limits of its bucket, and the search found what the buckets say. *Feasibility*: the
split is within (1 + alpha) of the optimum over all features, by brute force.

Nothing of the fast path is imported: scores, buckets and keys are computed here again, from their definitions
(``docs/explanation/guarantees.md``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from raydt.arrays.blocks import SparseRows
from raydt.arrays.elementary import AnyArray, Floats, Ints
from raydt.audits.bins import BucketLimits, compare_groups, counted_weights, score_of_counts
from raydt.audits.recorded_tree import AuditReport, compare_rows, live_by_id
from raydt.examples.updates import UNIT, CountedOnes, Features, History
from raydt.messages import Message, message

if TYPE_CHECKING:
    from raydt.learners.best_split.options import BestSplitOptions

Arrays = Mapping[str, AnyArray]

#: The finders by their number in a state; -1 before the end of a warm-up of ``auto``.
NAMES = ("updgini", "updent", "scan")
UNDECIDED = -1
#: Scores come from exact integers with errors far below this.
ROUNDING = 1e-9
#: Ones for a feature from which ``auto`` keeps a structure.
STRUCTURE_FROM = 50


class _CountedFeatures(NamedTuple):
    """Recounted rows: n, those of class 1, and of every feature that is 1 somewhere its n1 and c11; or their masses."""

    n: int
    c1: int
    feature: Ints
    n1: Ints
    c11: Ints
    unit: int

    @classmethod
    def of(cls, sparse: SparseRows, y: AnyArray, mass: Ints, unit: int) -> _CountedFeatures:
        ones = CountedOnes.of(sparse, np.zeros(len(y), np.int64), y, mass)
        return cls(int(mass.sum()), int(mass[y == 1].sum()), ones.feature, ones.n1, ones.c11, unit)

    def scores(self, entropy: bool) -> Floats:
        """Of every feature, the impurity of both sides by their share of the rows."""
        return score_of_counts(entropy, self.n, self.c1, self.n1, self.c11, self.unit)


def audit(
    options: BestSplitOptions, features: Features, state: Arrays, history: History, groups: Mapping[int, Arrays]
) -> AuditReport:
    """Prove or refute that a split is what the method promises. O(ones log) time.

    Of an incomplete history only a split searched after the last update is checked.
    """
    assert history.sparse is not None
    broken = compare_rows(state, history)
    seq, searched = int(state["seq"][0]), int(state["searched"][0])
    waits = seq < int(state["warmup"][0])
    live, unit = live_by_id(history), UNIT if "unit" in state else 1
    weight, failures = counted_weights(options, state, history, resolved=not waits)
    broken += failures
    mass = np.ones(len(history.y), np.int64) if weight is None else weight

    def counted_of(rows: Ints) -> _CountedFeatures:
        assert history.sparse is not None
        return _CountedFeatures.of(history.sparse[rows], history.y[rows], mass[rows], unit)

    now = counted_of(live)
    finder = int(state["finder"][0])
    if history.complete:
        broken += _chosen(options, state, history)
    name = NAMES[finder] if finder != UNDECIDED else "scan"
    taken = counted_of(live[:0]) if waits else now
    broken += _counters(options, features, name, taken, groups)

    checked = {"examples": len(history.y), "live": len(live), "features": len(now.feature), "splits": 0}
    if not (history.complete or searched == seq):
        reason = message("audits.earlier_search")
        return AuditReport("violated" if broken else "holds", "not_promised", reason, checked, {}, broken)
    then = np.flatnonzero((history.inserted < searched) & (history.deleted >= searched))
    counted = counted_of(then)
    found = None
    if searched == seq and not waits and not broken and name != "scan":
        found = _best_by_buckets(options, name, counted, groups)
    broken += _split(state, counted, found)
    checked["splits"] = 1
    worst, proven = _compare(options, name, state, counted)
    reason = message("audits.no_feature")
    if seen := len(counted.feature):
        bound = 1.0 if name == "scan" else 1.0 + options.alpha
        shown = {"score": worst["score"], "ratio": worst["ratio"], "features": seen}
        reason = message("audits.optimum", bound=bound, **shown)
    failures = broken + ([] if proven else [reason])
    feasibility: Literal["proven", "violated"] = "proven" if proven else "violated"
    return AuditReport("violated" if broken else "holds", feasibility, reason, checked, worst, failures)


def _chosen(options: BestSplitOptions, state: Arrays, history: History) -> list[Message]:
    """Report a finder that is not that of the options, or of the warm-up."""
    expected = UNDECIDED
    if options.finder != "auto":
        expected = NAMES.index(options.finder)
    elif state["seq"][0] >= state["warmup"][0]:
        assert history.sparse is not None
        first = history.sparse[np.flatnonzero(history.inserted < int(state["warmup"][0]))]
        ones, seen = len(first.indices), len(np.unique(first.indices))
        structure = ones > 0 and seen * len(first) >= STRUCTURE_FROM * ones
        expected = NAMES.index(("updent" if options.entropy else "updgini") if structure else "scan")
    found = int(state["finder"][0])
    return [] if found == expected else [message("audits.value", name="finder", found=found, expected=expected)]


def _counters(
    options: BestSplitOptions, features: Features, name: str, counted: _CountedFeatures, groups: Mapping[int, Arrays]
) -> list[Message]:
    """Counters and buckets of all groups against the rows."""
    buckets = BucketLimits.of(name, options.alpha, counted.unit) if name != "scan" else None
    ones = CountedOnes(np.zeros_like(counted.feature), counted.feature, counted.n1, counted.c11)
    counts = np.array([[counted.n - counted.c1, counted.c1]])
    return compare_groups(features, groups, ones, ("feature", "n1", "c11"), counts, buckets)


def _best_by_buckets(
    options: BestSplitOptions, name: str, counted: _CountedFeatures, groups: Mapping[int, Arrays]
) -> int:
    """The feature that the buckets name: of all groups and buckets the least by score, of those with least keys."""
    if not len(counted.feature):
        return -1
    buckets, scores = BucketLimits.of(name, options.alpha, counted.unit), counted.scores(options.entropy)
    candidates: list[tuple[float, int]] = []
    for group in groups.values():
        at, bucket = np.searchsorted(counted.feature, group["feature"]), group["bucket"].astype(np.int64)
        part = counted._replace(feature=counted.feature[at], n1=counted.n1[at], c11=counted.c11[at])
        order = np.lexsort((part.feature, buckets.keys(part.n1, part.c11, bucket), bucket))
        first = order[np.unique(bucket[order], return_index=True)[1]]
        candidates += zip(scores[at[first]].tolist(), part.feature[first].tolist(), strict=True)
    return min(candidates)[1]


def _split(state: Arrays, counted: _CountedFeatures, found: int | None) -> list[Message]:
    """The split of the state against the rows at its search."""
    feature, *counts = state["split"].tolist()
    at = np.flatnonzero(counted.feature == feature)
    of_feature = [int(counted.n1[at[0]]), int(counted.c11[at[0]])] if len(at) else [0, 0]
    expected, broken = [counted.n, counted.c1, *of_feature], []
    if counts != expected:
        broken.append(message("audits.value", name="counts of the split", found=counts, expected=expected))
    if (feature == -1) != (len(counted.feature) == 0):
        seen = counted.feature.tolist()[:1] or [-1]
        broken.append(
            message("audits.value", name="feature of the split", found=feature, expected=f"{seen[0]} or another")
        )
    if found is not None and found != feature:
        name = "feature of the split by the buckets"
        broken.append(message("audits.value", name=name, found=feature, expected=found))
    return broken


def _compare(
    options: BestSplitOptions, name: str, state: Arrays, counted: _CountedFeatures
) -> tuple[dict[str, float], bool]:
    """Score of the split and the least there is, and whether the one is near enough to the other."""
    if not len(counted.feature):
        return {"score": 0.0, "optimum": 0.0, "ratio": 1.0}, True
    scores = counted.scores(options.entropy)
    optimum = float(scores.min())
    at = np.flatnonzero(counted.feature == state["split"][0])
    score = float(scores[at[0]]) if len(at) else math.inf
    allowed = optimum if name == "scan" else (1.0 + options.alpha) * optimum
    # Where one side is pure up to rounding, an optimum of 0 is met exactly: both are sums of zeros.
    ratio = score / optimum if optimum > 0 else (1.0 if score <= ROUNDING else math.inf)
    return {"score": score, "optimum": optimum, "ratio": ratio}, score <= allowed * (1 + ROUNDING) + ROUNDING / 1e3
