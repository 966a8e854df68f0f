"""The sparse fully dynamic tree, slow and obvious: what the fast one has to equal bit for bit.

It is ``tests.oracles.fudyadt`` with other tests: after every update each node of the path asks its finders (one for
each feature group, ``BucketTwin``) whether its split, or its being a leaf, is still good enough. BUILD looks at every
split. All features are columns of ``x``: first the dense ones, then the sparse ones, which are 0.0 or 1.0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from tests.oracles.fudyadt import UNDECIDED, Example, FudyadtTwin, Node, Split
from tests.oracles.sparse_splits import CRITERION, SCORES, BucketTwin, Counts


@dataclass
class WatchedNode(Node):
    """A node with its rows by class, in units where rows have weights, and a finder for each feature group.

    It has none at the largest depth.
    """

    n: int = 0
    c1: int = 0
    finders: list[BucketTwin] = field(default_factory=list)


class SparseTreeTwin(FudyadtTwin):
    """The tree and its examples.

    ``dense`` has one entry per dense feature, True for a category; ``group_of`` gives the feature group of each of the
    ``sparse`` features.
    """

    def __init__(
        self,
        dense: Sequence[bool],
        sparse: int,
        group_of: Callable[[int], int],
        *,
        finder: str,
        finder_alpha: float,
        alpha: float,
        beta: float,
        epsilon: float = 0.0,
        max_depth: int | None = None,
        min_samples_split: int = 2,
    ) -> None:
        super().__init__(
            [*dense, *[False] * sparse],
            epsilon=epsilon,
            alpha=alpha,
            max_depth=max_depth,
            min_samples_split=min_samples_split,
        )
        self.dense, self.alpha, self.beta = len(dense), alpha, beta
        self.finder, self.finder_alpha = finder, finder_alpha
        self.fixed_unit = 1  # what rows count: 1, or 2**16 where they have weights
        self.scores = SCORES[CRITERION[finder]]
        self.group_of = [group_of(j) for j in range(sparse)]
        self.groups = sorted(set(self.group_of))
        self.n_classes = 2
        self.root = self.build([], 0, -1)

    def score(self, counts: Counts) -> float:
        return self.scores(counts, self.fixed_unit)

    def mass(self, e: Example) -> int:
        """What an example counts."""
        return int(e.w * self.fixed_unit)

    def impurity(self, v: WatchedNode) -> float:
        return self.score(Counts(v.n - v.c1, v.c1, 0, 0))

    def ones(self, x: Sequence[float], group: int) -> list[int]:
        """The sparse features of one group that are 1."""
        return [j for j, g in enumerate(self.group_of) if g == group and x[self.dense + j] == 1.0]

    # ------------------------------------------------------------------ an update

    def update(self, example: Example, insert: bool, time: int) -> None:
        path = self.path(example.x)
        if not example.w:
            return
        if insert:
            self.decide(path, example.x)
            path[-1].examples.append(example)
        else:
            path[-1].examples.remove(example)
        by = self.mass(example) if insert else -self.mass(example)
        for v in path:
            assert isinstance(v, WatchedNode)
            v.c += example.w
            v.n, v.c1 = v.n + by, v.c1 + by * example.y
            for group, finder in zip(self.groups, v.finders, strict=False):
                finder.count(self.ones(example.x, group), example.y, by)
        for v in path:
            if self.must_be_rebuilt(v):
                self.rebuild(path, self.cascade(path, path.index(v)), time)
                return

    def must_be_rebuilt(self, v: Node) -> bool:
        assert isinstance(v, WatchedNode)
        if self.dense and (v.c > self.epsilon * v.s or self.passes_size(v)):
            return True
        too_small = v.n < self.min_samples_split * self.fixed_unit or v.c1 in (0, v.n)
        candidates = [finder.best() for finder in v.finders]
        scores = [candidate.score for candidate in candidates if candidate.feature >= 0]
        if v.is_leaf:
            if too_small or not v.finders or self.impurity(v) < self.alpha:
                return False
            mine = self.impurity(v)
        else:
            if too_small:
                return True
            mine = self.split_score(v)
        return any(mine > score + self.beta for score in scores)

    def split_score(self, v: WatchedNode) -> float:
        assert isinstance(v.right, WatchedNode)
        n1, c11 = v.right.n, v.right.c1
        return self.score(Counts(v.n - n1 - v.c1 + c11, v.c1 - c11, n1 - c11, c11))

    # ------------------------------------------------------------------ BUILD

    def build(self, examples: list[Example], depth: int, time: int) -> Node:
        n, c1 = sum(map(self.mass, examples)), sum(self.mass(e) * e.y for e in examples)
        node = WatchedNode(s=self.size(examples), built=time, n=n, c1=c1)
        if depth != self.max_depth:
            node.finders = [self.finder_of(examples, group) for group in self.groups]
        split = None
        large = node.n >= self.min_samples_split * self.fixed_unit and 0 < node.c1 < node.n
        if large and depth != self.max_depth and self.impurity(node) > self.alpha / 2:
            split = self.best_of(node, examples)
        if split is None:
            node.examples = examples
            return node
        node.feature, node.threshold, node.missing = split
        sides: list[list[Example]] = [[], []]
        for e in examples:
            sides[self.goes_left(node, e.x)].append(e)
        node.left, node.right = (self.build(sides[left], depth + 1, time) for left in (True, False))
        return node

    def finder_of(self, examples: list[Example], group: int) -> BucketTwin:
        """A finder whose features are each in the bucket where they are now."""
        finder = BucketTwin(self.finder, self.finder_alpha, self.fixed_unit)
        finder.n, finder.c1 = sum(map(self.mass, examples)), sum(self.mass(e) * e.y for e in examples)
        for e in examples:
            for j in self.ones(e.x, group):
                n1, c11 = finder.ones.get(j, (0, 0))
                finder.ones[j] = (n1 + self.mass(e), c11 + self.mass(e) * e.y)
        finder.bucket = {j: finder.rule.place(finder.counts(j)) for j in finder.ones}
        return finder

    def best_of(self, node: WatchedNode, examples: list[Example]) -> Split | None:
        """The split of the smallest (score, feature, side, threshold), unless it does not tell the classes apart."""
        best = None
        for split in self.splits(examples):
            right = [e for e in examples if not self.is_left(split, e.x)]
            n1, c11 = sum(map(self.mass, right)), sum(self.mass(e) * e.y for e in right)
            s = self.score(Counts(node.n - n1 - node.c1 + c11, node.c1 - c11, n1 - c11, c11))
            if best is None or s < best[0]:
                best = s, split, c11 * node.n == n1 * node.c1
        return None if best is None or best[2] else best[1]

    def splits(self, examples: list[Example]) -> Iterator[Split]:
        """By feature, then threshold; of sparse features those that are 1 somewhere, though it be everywhere."""
        for j in range(self.dense):
            yield from self.candidates_of(j, examples)
        for j in range(self.dense, len(self.categorical)):
            if any(e.x[j] == 1.0 for e in examples):
                yield j, 0.5, UNDECIDED
