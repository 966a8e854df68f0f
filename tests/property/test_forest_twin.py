"""After any updates the forest is its slow twin, which is built from nothing on the live examples: digests are equal.

Sequences are random, adversarial (near-ties that alternate), adaptive to the model, they delete and insert again, and
permute insertions, delete whole classes; shards, threads, batches, a warm-up, the order in which classes appear, where
the trees are seen, restores, weights, and eager or lazy rebuilding are drawn, too. The twin knows labels, the forest
their codes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raydt import ExactForestClassifier
from raydt.examples.updates import DELETE, INSERT, QUERY, UNIT, UPDATE, Features, UpdateBatch, unless_equal
from raydt.learners import learners
from raydt.learners.base import WorkPlan
from raydt.learners.forest import nodes
from raydt.sessions.session import InProcessSession
from tests import volume
from tests.crews import NUMBERS, crew
from tests.oracles.forest import Forest, Rules
from tests.volume import examples

pytestmark = pytest.mark.timeout(3000)

LEARNER = learners()["forest"]
#: Sequences of updates that each drawn example takes: 10,000 in nightly runs, 250 in every run.
SEQUENCES = 10 if volume.nightly else 1
#: Operation, id, features, label and weight in units.
Update = tuple[int, int, tuple[float, ...], float, int]
#: Weights that are drawn.
WEIGHTS = (UNIT, UNIT, 3 * UNIT, UNIT // 2, 12345, 1, 0, 2**24)


def in_threads(method: Callable[..., Any]) -> Callable[..., Any]:
    """Call a method of :class:`Run` with its number of threads, of which each has work."""

    @functools.wraps(method)
    def called(self: Run, *arguments: Any, **named: Any) -> Any:
        with crew(self.threads):
            return method(self, *arguments, **named)

    return called


class Run:
    """A session with a forest, and its twin."""

    def __init__(self, draws: np.random.Generator, numeric: bool, missing: bool) -> None:
        self.draws, self.missing = draws, missing
        self.weights = [UNIT] if draws.random() < 0.5 else draws.choice(WEIGHTS, 3).tolist()
        d = int(draws.integers(1, 5))
        categorical = tuple(bool(c) for c in draws.random(d) < 0.4)
        T = int(draws.integers(1, 6))
        self.rules = Rules(
            categorical,
            T,
            float(draws.choice([0.1, 0.3, 0.5, 1.0])),
            int(draws.integers(1, d + 1)),
            int(draws.integers(1, 4)),
            int(draws.choice([0, 1, 3, 20, 90])),
            int(draws.integers(2, 6)),
            int(draws.integers(-3, 3)),
            numeric,
        )
        r = self.rules
        self.options = LEARNER.Options(
            n_estimators=T,
            sample_share=r.q,
            max_features=r.P,
            thresholds=r.S,
            max_depth=r.max_depth,
            min_samples_split=r.min_samples_split,
            random_state=r.seed,
            criterion="squared_error" if numeric else "gini",
            rebuild=str(draws.choice(["eager", "lazy"])),
        )
        self.features = Features(tuple(f"x{j}" for j in range(d)), categorical, int(draws.integers(1, 4)))
        self.classes = int(draws.choice([4, 4, 11, 40]))
        self.offset = float(draws.choice([0.0, 0.0, 1.7e9]))
        self.threads = int(draws.choice(NUMBERS))
        self.shards, self.shared = int(draws.integers(1, 4)), bool(draws.random() < 0.5)
        self.begin()

    def begin(self) -> None:
        """An empty forest, whose classes have no codes yet, and a twin; a warm-up is drawn."""
        self.twin, self.seq = Forest(self.rules), 0
        self.codes: dict[int, int] = {}
        self.warmup = int(self.draws.integers(0, 25)) if self.draws.random() < 0.4 else 0
        self.session = self.fresh()

    @in_threads
    def fresh(self) -> InProcessSession:
        """A session without examples."""
        plan = WorkPlan(shared_store=self.shared)
        session = InProcessSession(LEARNER, self.options, self.features, self.shards, plan)
        session.coordinator.keeps_open = bool(self.draws.random() < 0.5)  # type: ignore[attr-defined]
        return session

    @in_threads
    def restart(self) -> None:
        """Go on with another session, from the state of this one."""
        state = self.session.state()
        self.shards = int(self.draws.integers(1, 4))
        self.session = self.fresh()
        self.session.restore(*state)

    def row(self) -> tuple[float, ...]:
        """Features with few distinct values, or many, or missing ones, or large ones, also of categories."""
        x = []
        for category in self.rules.categorical:
            kind = self.draws.random()
            value = float(self.draws.integers(0, 4))
            if self.missing and kind < 0.15:
                value = -1.0 if category else np.nan
            elif not category and kind > 0.8:
                value = float(self.draws.normal() * 10.0 ** self.draws.integers(-3, 200))
            elif category and kind > 0.9:
                value *= 10.0 ** int(self.draws.choice([17, 19, 300]))
            x.append(value + 0.0)
        return tuple(x)

    def label(self) -> float:
        """Of few classes, or a number."""
        if self.rules.numeric:
            labels = [0.0, -1.5, 1.25, 1e-3, 7.0, -1000.0, 1e-139, 0.1, 0.3, 1e7, 1.7e9]
            return float(self.draws.choice(labels[: int(self.draws.integers(5, 12))]) + self.offset)
        return float(self.draws.integers(0, int(self.draws.integers(1, self.classes + 1))))

    @in_threads
    def apply(self, updates: list[Update], check: bool = True) -> None:
        """Apply updates in batches; predictions are the twin's before each of them, if they are checked."""
        begin = 0
        while begin < len(updates):
            part = updates[begin : begin + int(self.draws.integers(1, 12))]
            expected: list[float | None] = []
            for op, key, x, y, weight in part:
                if op in (DELETE, UPDATE):
                    del self.twin.examples[key]
                warming = self.seq + len(expected) < self.warmup
                asked = check and op in (INSERT, QUERY, UPDATE) and not warming
                none = -1 if warming and not self.rules.numeric else None
                expected.append(self.predicted(x, part) if asked else none)
                if op in (INSERT, UPDATE):
                    self.twin.examples[key] = x, y, Fraction(weight, UNIT)
            result = self.session.apply(self.batch(part))
            assert not result.refused
            found = [None if e is None else p for e, p in zip(expected, result.predictions.tolist(), strict=True)]
            assert found == expected
            begin += len(part)

    def predicted(self, x: tuple[float, ...], part: list[Update]) -> float:
        """The twin's prediction as the forest gives it, once it knows the classes of some updates."""
        vote = self.twin.vote(x)
        if self.rules.numeric:
            assert vote is not None
            return vote
        self.know(part)
        return 0 if vote is None else self.codes[int(vote)]

    def know(self, part: list[Update]) -> None:
        """Give the classes of updates that carry a row their codes, in order of appearance."""
        for op, _, _, label, _ in part:
            if op != DELETE and not self.rules.numeric:
                self.codes.setdefault(int(label), len(self.codes))

    def batch(self, part: list[Update]) -> UpdateBatch:
        """Updates as a learner takes them."""
        self.know(part)
        op = np.array([update[0] for update in part], dtype=np.int8)
        rows = [update for update in part if update[0] != DELETE]
        dtype = np.float64 if self.rules.numeric else np.int32
        X = np.array([row[2] for row in rows], dtype=np.float64).reshape(len(rows), len(self.features))
        labels = [row[3] if self.rules.numeric else self.codes[int(row[3])] for row in rows]
        ids, y = np.array([update[1] for update in part]), np.array(labels, dtype=dtype)
        order = np.array([self.codes[label] for label in sorted(self.codes)], dtype=np.int64)
        start, self.seq, origin = self.seq, self.seq + len(part), np.full(len(part), -1)
        weight = unless_equal(np.array([row[4] for row in rows], dtype=np.uint32))
        return UpdateBatch(start, op, ids, X, y, len(order), origin, self.warmup, class_order=order, weight=weight)

    def weight(self) -> int:
        """Of few weights."""
        return int(self.draws.choice(self.weights))

    def insertions(self, rows: dict[int, tuple[tuple[float, ...], float, Fraction]], keys: list[int]) -> list[Update]:
        """Insertions of some rows by id."""
        return [(INSERT, key, rows[key][0], rows[key][1], int(UNIT * rows[key][2])) for key in keys]

    def digest(self) -> str:
        """Digest of the forest, which ends a warm-up."""
        if self.seq < self.warmup:
            self.session.finish()
            self.warmup = self.seq
        return self.session.digest()

    def ask(self) -> None:
        """The prediction of a row is the twin's, and leaves open what the row does not pass."""
        row = self.row()
        if self.seq >= self.warmup:
            self.session.driver.run(self.session.coordinator.gather())
            assert self.session.coordinator.predict(np.array([row]))[0] == self.predicted(row, [])

    def same(self) -> None:
        """The digest is the twin's, and so are predictions before it."""
        for _ in range(int(self.draws.integers(0, 3))):
            self.ask()
        assert self.digest() == self.twin.digest()
        if self.draws.random() < 0.2:
            assert self.session.digest(former=True) == self.twin.digest(former=True)

    @property
    def live(self) -> list[int]:
        """Ids of the live examples."""
        return list(self.twin.examples)

    def draw(self, ids: list[int]) -> int:
        """One of some ids."""
        return ids[int(self.draws.integers(len(ids)))]


def randomly(run: Run, n: int) -> None:
    """Any updates."""
    updates: list[Update] = []
    live = set(run.live)
    for _ in range(n):
        op = int(run.draws.choice([INSERT, INSERT, INSERT, DELETE, DELETE, UPDATE, QUERY]))
        if not live and op != QUERY:
            op = INSERT
        key = int(run.draws.integers(-(2**62), 2**62)) if op in (INSERT, QUERY) else run.draw(sorted(live))
        live |= {key} if op == INSERT else set()
        live -= {key} if op == DELETE else set()
        updates.append((op, key, run.row(), run.label(), run.weight()))
    run.apply(updates, check=bool(run.draws.random() < 0.3))


def near_ties(run: Run, n: int) -> None:
    """Rows come and go by turns whose features tell the label equally well, so that the best split alternates."""
    d = len(run.rules.categorical)
    keys: list[int] = []
    for i in range(n):
        x = tuple(float((i >> (j % 3)) & 1) for j in range(d))
        keys.append(10_000 + i)
        run.apply([(INSERT, keys[-1], x, float(i & 1), run.weight())], check=False)
    for _ in range(n // 2):
        key = run.draw(keys)
        again = run.insertions(run.twin.examples, [key])
        run.apply([(DELETE, key, (), 0.0, 0)], check=False)
        if run.draws.random() < 0.3:
            run.same()
        run.apply(again, check=False)


def adaptively(run: Run, n: int) -> None:
    """Delete what hurts: an extreme of a feature that a tree splits on, or a row next to a threshold."""
    randomly(run, n)
    for _ in range(n // 2):
        roots = [nodes[0] for nodes in run.twin.trees() if nodes[0].feature >= 0]
        if not roots or not run.live:
            return
        root = roots[int(run.draws.integers(len(roots)))]
        values = {key: run.twin.examples[key][0][root.feature] for key in run.live}
        near = {key: abs(value - root.threshold) for key, value in values.items() if value == value}
        if not near:  # a category that all live examples lack
            return
        wanted = (min, max)[int(run.draws.integers(2))]
        run.apply([(DELETE, wanted(near, key=lambda key: near[key]), (), 0.0, 0)], check=False)


def there_and_back(run: Run, n: int) -> None:
    """Delete some examples and insert them again, in another order: the same forest."""
    randomly(run, n)
    before = run.digest()
    gone = [key for key in run.live if run.draws.random() < 0.5]
    rows = {key: run.twin.examples[key] for key in gone}
    run.apply([(DELETE, key, (), 0.0, 0) for key in run.draws.permutation(gone).tolist()], check=False)
    run.same()
    run.apply(run.insertions(rows, run.draws.permutation(gone).tolist()), check=False)
    assert run.digest() == before


def permuted(run: Run, n: int) -> None:
    """Insert what is live in another order into an empty forest: the same digest."""
    randomly(run, n)
    before, rows = run.digest(), dict(run.twin.examples)
    run.begin()
    run.apply(run.insertions(rows, run.draws.permutation(list(rows)).tolist()), check=False)
    assert run.digest() == before


def whole_classes(run: Run, n: int) -> None:
    """Delete every example of a class, and what was asked about it: as if it had never been."""
    randomly(run, n)
    labels = sorted({y for _, y, _ in run.twin.examples.values()})
    for label in labels[: int(run.draws.integers(0, len(labels) + 1))]:
        gone = [key for key, (_, y, _) in run.twin.examples.items() if y == label]
        run.apply([(DELETE, key, (), 0.0, 0) for key in gone], check=False)
        run.same()
    rows = dict(run.twin.examples)
    before = run.digest()
    run.begin()
    run.apply(run.insertions(rows, list(rows)), check=False)
    assert run.digest() == before


def copied(run: Run, n: int) -> None:
    """Rows whose features all say the same, but for one now and then: splits part rows alike until another comes."""
    d, many = len(run.rules.categorical), int(run.draws.integers(2, 4))

    def insertion() -> Update:
        group = float(run.draws.integers(0, many))
        x = [group] * d
        if run.draws.random() < 0.4:
            x[int(run.draws.integers(0, d))] = float(run.draws.integers(0, many))
        y = run.label() if run.rules.numeric or run.draws.random() < 0.3 else group
        return INSERT, int(run.draws.integers(0, 2**40)), tuple(x), y, run.weight()

    for _ in range(2 * n):
        run.apply([insertion()], check=False)
        if run.draws.random() < 0.4:
            run.apply([(DELETE, run.draw(run.live), (), 0.0, 0)], check=False)


def asked(run: Run, n: int) -> None:
    """Updates and questions by turns: each row opens what it passes of the trees that are due."""
    for _ in range(3):
        randomly(run, 3 * n)
        for _ in range(4):
            run.ask()


WAYS: tuple[Any, ...] = (randomly, near_ties, adaptively, there_and_back, permuted, whole_classes, copied, asked)


@examples(1000, deadline=None)
@given(st.integers(0, 2**32 - 1), st.booleans(), st.booleans())
def test_every_digest_is_that_of_a_forest_from_nothing(seed: int, numeric: bool, missing: bool) -> None:
    for sequence in range(SEQUENCES):
        draws = np.random.default_rng([seed, sequence])
        with pytest.MonkeyPatch.context() as patch:
            if draws.random() < 0.3:  # most builds then read rows where they are, as large ones do
                patch.setattr(nodes, "NEAR_CELLS", 8)
            run = Run(draws, numeric, missing)
            ways = WAYS if volume.nightly else WAYS[:-1]  # the last one takes ten times as long as another
            ways[(seed + sequence) % len(ways)](run, int(draws.integers(1, 30 if volume.nightly else 16)))
            run.same()
            if draws.random() < 0.3:
                run.restart()
                randomly(run, 5)
                run.same()
        assert run.session.coordinator.statistics()["active"] == len(run.twin.examples)


def many_rows(classes: int) -> None:
    """More rows than a byte counts, of classes in one word, in two, or in too many."""
    draws = np.random.default_rng(classes)
    X = draws.normal(size=(700, 3)).round(2)
    X[draws.random(X.shape) < 0.05] = np.nan
    X = np.column_stack([X, draws.integers(0, 6, 700)])
    y = draws.integers(0, classes, 700)
    y[X[:, 0] > 0] //= 2
    forest = ExactForestClassifier(n_estimators=2, sample_share=1.0, max_depth=6, categorical_features=[3])
    forest.fit(X[:600], y[:600])
    for i in range(20):
        forest.forget([i], digests=False)
        forest.partial_fit(X[600 + i : 601 + i], y[600 + i : 601 + i], ids=[600 + i])
    assert forest.audit().checked["trees_rebuilt"] == 2
    assert forest.audit().ok


def sent_elsewhere() -> None:
    """The first split becomes another that parts the old rows alike, and sends the new one to the other child."""
    X = [[0, 0, 7, i % 2] for i in range(400)] + [[1, 1, 5, i % 2] for i in range(200)] + [[1, 1, 5, 2]]
    y = [0] * 400 + [1] * 200 + [2]
    forest = ExactForestClassifier(n_estimators=1, sample_share=1.0, max_features="all", rebuild="eager")
    forest.fit(np.array(X, dtype=float), y)
    # Feature 0 is constant on the right; the row differs in it from those on the right only.
    forest.partial_fit([[0.0, 1.0, 7.0, 0.0]], [2], ids=[601])
    assert forest.audit().ok


#: Cases that drawn sequences seldom meet.
KNOWN = (
    functools.partial(many_rows, 3),
    functools.partial(many_rows, 11),
    functools.partial(many_rows, 30),
    sent_elsewhere,
)


@pytest.mark.parametrize("case", KNOWN)
def test_a_known_case_is_what_is_built_from_nothing(case: Callable[[], None]) -> None:
    case()


@pytest.mark.nightly
@pytest.mark.parametrize("classes", [2, 5])
def test_a_wide_forest_is_the_one_built_from_nothing(classes: int) -> None:
    """More features than bits of a word, more cells than a build copies, rows in slots that were free before."""
    draws = np.random.default_rng(classes)
    X = draws.integers(0, 3, (1000, 130)) * (draws.random(130) < 0.7)
    X = X + (draws.random((1000, 130)) < 0.002)
    y = (X[:, :5].sum(axis=1) + draws.integers(0, 2, 1000)) % classes
    forest = ExactForestClassifier(n_estimators=4, sample_share=0.5, max_features=70, min_samples_split=2)
    forest.fit(X[:600], y[:600])
    forest.forget(draws.permutation(600)[:300], digests=False)
    forest.partial_fit(X[600:], y[600:], ids=np.arange(600, 1000))
    report = forest.audit()
    assert report.ok
    assert report.checked["trees_rebuilt"] == 4
