"""The two verdicts on an in-place online GBDT, from a state and the raw examples.

*Conformance*: bins are those of the rows of the last training; every example the model holds lies in the leaf it routes
to, in every tree; all sums equal those recomputed from the ledger, bit for bit; leaf values are their formula; every
split leaves something on both sides and ranks within the tolerance; no tree has too many leaves. *Feasibility*, where
the kind of ``derivatives`` promises it: every stored derivative is one that a score within the tolerance of the present
one gives. How far the splits are from the best ones is measured.

The rows may be divided among parts (``audited_rows``): what is true of all is the sum of what each part finds.

Nothing of the fast path is imported but the derivatives in fixed point (``recompute``). Not here: a replay of the
updates; what was added for a row at its time, which the ledger alone knows, is checked in the first iteration, where
it is the same at any time.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from raydt.arrays.types import Arrays, Bools, Ints
from raydt.audits.audit_report import AuditReport, noted
from raydt.audits.derived_bins import derived_together
from raydt.audits.parts import Parts, PartsHere
from raydt.audits.recorded_bins import FeatureBins, MalformedModelError, recorded_bins
from raydt.audits.weights import compare_factors, of_all
from raydt.examples.features import Features
from raydt.examples.history import History
from raydt.examples.weights import UNIT
from raydt.learners.gbdt.audited_rows import AuditedRows, RowCounts, TreeOfRows, WrongRows
from raydt.learners.gbdt.audited_trees import AuditedTrees
from raydt.learners.gbdt.recompute import RecomputedTree, added
from raydt.messages import Message, message
from raydt.presentation.words import counted

if TYPE_CHECKING:
    from raydt.learners.gbdt.options import GBDTOptions

#: Leaves of rows in a part, and sums of candidates of all parts, that are kept at once; values that are sorted at once.
_TOGETHER, _SORTED = 1 << 22, 1 << 24


def audit(options: GBDTOptions, features: Features, state: Arrays, history: History, groups: Any = None) -> AuditReport:
    """Prove or refute that a state is what the method makes of its examples.

    If the history is not complete, the bins are taken as recorded. O(trees * depth * features * rows) time.

    Returns
    -------
    AuditReport
        ``checked``: examples of the history, rows the model holds, trees, nodes and splits. ``worst``: ``rank``, the
        largest rank of a split among the candidates of its node; ``lack``, the largest share of the best gain that a
        split lacks; ``stale``, the largest difference between what the ledger has and what it would have now, in
        probability or in units of the target.
    """
    return audit_parts(options, features, state, PartsHere([AuditedRows(options, features, state, history)]))


def audit_parts(options: GBDTOptions, features: Features, model: Arrays, parts: Parts) -> AuditReport:
    """Return what :func:`audit` does, of rows that are divided among ``parts``, each an :class:`AuditedRows`.

    ``model`` is the state; its arrays by row are not used. The report is the same whatever the parts, but for the
    failures of rows, of which each part has its own.
    """
    broken: list[Message] = []
    counts = parts.ask("counts")
    try:
        found = _examine(options, features, model, parts, counts, broken)
    except MalformedModelError as error:
        broken.append(message("audits.malformed", what="model", problem=str(error)))
        return AuditReport("violated", "violated", broken[-1], failures=broken)
    worst = {name: found.pop(name) for name in ("rank", "lack", "stale")}
    too_stale, promise = int(found.pop("too_stale")), options.promise()
    reason = noted(promise.reason, message("audits.measured_rank", rank=worst["rank"], lack=worst["lack"]))
    verdict: Literal["proven", "violated", "not_promised"] = "proven" if promise.promised else "not_promised"
    if promise.promised and too_stale:
        verdict = "violated"
        reason = message("audits.stale", derivatives=too_stale)
    if not counts[0].complete:
        reason = noted(reason, message("audits.live_only", what="the bins"))
    return AuditReport(
        conformance="violated" if broken else "holds",
        feasibility=verdict,
        reason=reason,
        checked={name: int(count) for name, count in found.items()},
        worst=worst,
        failures=broken,
    )


def _examine(
    options: GBDTOptions,
    features: Features,
    model: Arrays,
    parts: Parts,
    counts: list[RowCounts],
    broken: list[Message],
) -> dict[str, float]:
    """Numbers of things checked, and measures; each failure is appended to ``broken``."""
    found = dict.fromkeys(
        ("examples", "live", "held", "trees", "nodes", "splits", "rank", "lack", "stale", "too_stale"), 0.0
    )
    for count in counts:
        broken += count.failures
    found |= {name: sum(getattr(count, name) for count in counts) for name in ("examples", "live", "held")}
    if model["classes"][0] < 0:
        if "tree_nodes" in model or found["held"]:
            broken.append(message("audits.early", what="trees, or rows in trees,"))
        return found
    found |= {"trees": len(model["tree_nodes"]), "nodes": len(model["node_feature"])}
    found["splits"] = int((model["node_feature"] >= 0).sum())
    bins, with_cut = recorded_bins(model, features)
    sums = [one for one in parts.ask("class_sums") if one is not None]
    factors, failures = compare_factors(options, model, sum(sums[1:], sums[0]) if sums else None)
    broken += failures
    if counts[0].complete:
        together = max(1, _SORTED // max(1, *(count.examples for count in counts)))
        broken += _compare_bins(options, features, parts, bins, with_cut, together)
        broken += _compare_scale(options, model, parts)
    trees = AuditedTrees(options, model, bins, with_cut)
    if len(trees) % trees.width or not all(parts.ask("begin", bins, with_cut, factors)):
        raise MalformedModelError(message("states.ledger", trees=len(trees), width=trees.width))
    candidates = max((len(tree) for tree in trees.tree), default=1) * max(1, trees.candidates.total)
    each = max(1, trees.width * max(max(count.held for count in counts), len(counts) * candidates))
    together, iterations = max(1, _TOGETHER // each), len(trees) // trees.width
    for first in range(0, iterations, together):
        some = range(first, min(first + together, iterations))
        answers = parts.ask("trees", some)
        found["stale"] = max(found["stale"], *(answer.stale for answer in answers))
        found["too_stale"] += sum(answer.too_stale for answer in answers)
        for t, of_rows in enumerate(zip(*(answer.trees for answer in answers), strict=True), first * trees.width):
            tree, failures = _compare_tree(trees, t, of_rows)
            broken += failures
            ranked = tree.better[trees.tree[t].feature >= 0]
            found["rank"] = max(found["rank"], float(ranked.max(initial=-1) + 1))
            found["lack"] = max(found["lack"], largest_lack(tree))
    return found


def largest_lack(tree: RecomputedTree) -> float:
    """Return the largest share of the best gain of its node that a split lacks, where a split gains anything."""
    beaten = np.flatnonzero((tree.better > 0) & (tree.best > 0))
    lack = (tree.best[beaten] - tree.gain[beaten]) / tree.best[beaten]
    return float(lack.max(initial=0.0))


def _compare_scale(options: GBDTOptions, state: Arrays, parts: Parts) -> list[Message]:
    """Compare origin and exponent with the targets of the last training."""
    origin, exponent = 0.0, 0
    if options.regression:
        targets = of_all(parts.ask("targets"))
        origin, largest = targets.mean, 0.0
        if targets.least == targets.greatest:
            origin = targets.least
            largest = abs(origin)
        elif targets.least < targets.greatest:
            largest = max(abs(targets.least - origin), abs(targets.greatest - origin))
        if largest > 0:
            fraction, exponent = math.frexp(largest)
            exponent -= fraction == 0.5
    recorded = float(state["origin"][0]), int(state["exponent"][0])
    if recorded != (origin, exponent):
        expected = origin, exponent
        return [message("audits.value", name="origin and exponent of the scores", found=recorded, expected=expected)]
    return []


def _compare_bins(
    options: GBDTOptions, features: Features, parts: Parts, bins: list[FeatureBins], with_cut: Ints, together: int
) -> list[Message]:
    """Compare the bins with those of the rows of the last training, of so many columns together."""
    differing: list[int] = []
    for first in range(0, len(bins), together):
        some = range(first, min(first + together, len(bins)))
        parts.ask("sort", some)
        kinds = {j: features.categorical[j] for j in some}
        derived = derived_together(kinds, options.max_bins, options.binning, partial(parts.ask, "answers"))
        differing += [j for j in some if not bins[j].equals(derived[j])]
    if features.sparse:
        indices, ones, rows = zip(*parts.ask("ones"), strict=True)
        found, place = np.unique(np.concatenate(indices), return_inverse=True)
        often = np.bincount(place, np.concatenate(ones), len(found))
        differing += (len(bins) + np.setxor1d(with_cut, found[often < sum(rows)])).tolist()
    return [message("audits.bins", feature=f"feature {j}", source="last training") for j in differing]


def _compare_tree(trees: AuditedTrees, t: int, parts: tuple[TreeOfRows, ...]) -> tuple[RecomputedTree, list[Message]]:
    """Score the splits of one tree, and return everything that is wrong with it."""
    recorded, nodes, options, state = trees.tree[t], trees.nodes(t), trees.options, trees.state
    tree = trees.gains.scored(recorded, trees.candidates.of(t // trees.width), added([part.sums for part in parts]))
    G, H, value = (state[name][nodes] for name in ("node_G", "node_H", "node_value"))
    if options.regression:  # whole weights, and what is left of them
        H = UNIT * H + (state["node_H_rest"][nodes].astype(np.int64) if "node_H_rest" in state else 0)
    inner, where = recorded.feature >= 0, dict[str, str]()
    for name in parts[0].wrong:
        rows = WrongRows(sum(part.wrong[name].rows for part in parts), min(part.wrong[name].id for part in parts))
        if rows.rows:
            where[name] = f"{counted(rows.rows, 'time')}, least id {rows.id}"
    wrong = {
        "node_G or node_H": (tree.G != G) | (tree.H != H),
        "node_value": value != np.where(inner, 0.0, trees.leaf_values(tree.G, tree.H)),
        "one-sided split": inner & (tree.better < 0),
        f"split (ranks below {trees.tolerance})": inner & (tree.better + 1 > trees.tolerance),
        "node_tried_h of a split": inner & (state["node_tried_h"][nodes] >= 0),
    }
    where |= {name: _times(here) for name, here in wrong.items() if here.any()}
    failures = [message("audits.tree", tree=t, array=name, where=said) for name, said in where.items()]
    if recorded.leaves > options.max_leaf_nodes:
        failures.append(message("audits.tree_leaves", tree=t, leaves=recorded.leaves, limit=options.max_leaf_nodes))
    return tree, failures


def _times(wrong: Bools) -> str:
    return f"{counted(int(wrong.sum()), 'time')}, first at {int(np.flatnonzero(wrong)[0])}"
