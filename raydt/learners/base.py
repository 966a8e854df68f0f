"""Interface of every learner for drivers, pipelines and estimators; nothing here knows a particular method."""

from __future__ import annotations

import functools
import importlib
import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple, get_args

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from raydt.arrays.blocks import Lazy, SparseRows, as_slice
from raydt.arrays.elementary import Arrays, Floats, Ints
from raydt.audits.bins import AuditParts, MalformedModelError
from raydt.audits.recorded_tree import AuditReport, rows_inserted
from raydt.errors import ConfigError
from raydt.examples.digest import DIGEST_2
from raydt.examples.row_owners import are_in
from raydt.examples.store import ExampleStore
from raydt.examples.updates import (
    CARRIES_ROW,
    CLASSES,
    QUERY,
    UNIT,
    Features,
    History,
    Reading,
    UpdateBatch,
    Weights,
    sum_of,
)
from raydt.exchange.messages import OWNED, STORED, Buckets, ShardWorker
from raydt.folders.segments import chosen, with_live
from raydt.learners import description
from raydt.learners.batch_coordinator import BatchCoordinator
from raydt.messages import Message, message, quoted
from raydt.trees.counted_tree import TreeRules
from raydt.trees.state_schema import HELD_OR_MISSING, Array, Schema, check_arrays, check_group, check_held, require

# Base of the sections of a config: a retired key is refused with what to use instead.


class Settings(BaseModel):
    """Keys of one section of a config."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    #: Keys of earlier versions: the values that mean what is done today, and what to use instead.
    retired: ClassVar[Mapping[str, tuple[tuple[Any, ...], str]]] = {}

    @model_validator(mode="before")
    @classmethod
    def _without_retired(cls, given: Any) -> Any:
        """Refuse retired keys; one that is set to what is done today is left out, as in states and runs."""
        if not isinstance(given, Mapping):
            return given
        for name in cls.retired.keys() & given.keys():
            today, instead = cls.retired[name]
            if given[name] not in today:
                raise ValueError(message("settings.retired", name=name, instead=instead))
        return {name: value for name, value in given.items() if name not in cls.retired}


class LearnerOptions(Settings):
    """Options all learners share; each learner's own options extend this model."""

    kind: str
    feature_groups: int = Field(
        16, ge=1, description="number of fixed groups the features are divided into; a shard owns whole groups (G)"
    )

    @field_validator("*", mode="before")
    @classmethod
    def _no_truth_value_for_a_number(cls, value: Any, info: ValidationInfo) -> Any:
        """Pydantic would take ``true`` as 1."""
        annotation = cls.model_fields[str(info.field_name)].annotation
        if isinstance(value, bool) and bool not in (annotation, *get_args(annotation)):
            raise ValueError(message("learners.truth_value"))
        return value


@dataclass(frozen=True, slots=True)
class Traits:
    """Properties of a learner with given options that its callers need."""

    reading: Reading = CLASSES  #: inputs and targets
    warmup: str = ""  #: why the rows of ``stream.warmup`` are needed, as a predicate of the kind; empty if they are not
    collects_updates: bool = False  #: updates wait for a batch of the learner's own; ``finish`` applies the rest
    rebuilds: bool = True  #: parts of the model are rebuilt
    #: The option below which the weight of a node leaves it unsplit, and its value, in rows of weight 1; 0: none.
    least_weight: tuple[str, int] = ("", 0)
    #: When several shards are faster than one process: never (they only add memory), for large jobs, or for each batch.
    divided: Literal["never", "large", "always"] = "never"
    divides_weights: bool = True  #: also if rows have weights; otherwise the coordinator alone works with these
    counts: tuple[str, ...] = ()  #: further statistics of the coordinator: counters that only grow
    levels: tuple[str, ...] = ()  #: further statistics of the coordinator: values that may fall
    #: What stays in a model of examples that are deleted, for receipts.
    stays: tuple[str, ...] = (message("learners.stays"),)
    unused: tuple[str, ...] = ()  #: keys without effect, given the values of the others
    scouts: bool = False  #: updates cost so little that several models beside another one choose what it should know
    retrained: bool = False  #: after any updates, the model equals the one trained from scratch on the live examples
    parts: int = 0  #: parts beside feature groups into which work falls, and of which each shard gets some; 0: none
    reports_within: bool = False  #: results have statistics within a batch, which need not end where they are wanted
    #: What a shard reads of the rows of the warm-up itself, where the source can be read so: the columns it owns, or
    #: whole rows; empty: rows are sent.
    reads: Literal["", "columns", "rows"] = ""
    #: Separate shards own whole rows, with their ids, and the coordinator has none of these.
    owns_rows: bool = False
    shard_threads: bool = False  #: a shard divides its work among threads itself, over one copy of the rows
    #: Formats of its digests, the present one first; a stored digest may be in the one after it.
    digests: tuple[str, ...] = (DIGEST_2,)
    erases: bool = False  #: rows of deleted examples are overwritten in their batch, not when slots are used again

    @property
    def figures(self) -> tuple[str, ...]:
        """Names of the statistics of its own."""
        return (*self.counts, *self.levels)


class WeightSum(NamedTuple):
    """Number of rows of a model, and the sum of their weights in units."""

    rows: int = 0
    units: int = 0

    @classmethod
    def of_live(cls, store: ExampleStore) -> WeightSum:
        """Return the sum over the live examples of a store."""
        return cls(store.live, sum_of(store.weights(store.slots()), store.live))

    def plus(self, rows: int, weights: Weights | None) -> WeightSum:
        """Return the sum with more rows; ``weights`` None: all are 1."""
        return WeightSum(self.rows + rows, self.units + sum_of(weights, rows))

    def with_batch(self, batch: UpdateBatch) -> WeightSum:
        """Return the sum with the rows that a batch inserts."""
        inserted = batch.op[CARRIES_ROW[batch.op]] != QUERY
        return self.plus(int(inserted.sum()), None if batch.weight is None else batch.weight[inserted])

    def too_little(self, traits: Traits) -> Message | None:
        """Return a warning if the rows are enough to be split, but their weights are not, as those that sum to 1."""
        option, least = traits.least_weight
        if self.rows < least or not 0 < self.units < least * UNIT:
            return None
        total = self.units / UNIT
        said = {"rows": self.rows, "total": total, "option": option, "least": least, "factor": self.rows / total}
        return message("learners.little_weight", **said)


def too_little_of_keys(sums: Iterable[tuple[Any, WeightSum]], traits: Traits) -> Message | None:
    """Return one warning for models by key: of the first key with too little weight, and how many more there are."""
    found = [(key, said) for key, one in sums if (said := one.too_little(traits)) is not None]
    if not found:
        return None
    key, said = found[0]
    return said.at(f"key {quoted(key)}" + (f" and {len(found) - 1:,} more" if len(found) > 1 else ""))


#: Cells of a model, and of a rebuild, from which on shards are faster than one process.
LOCAL_WORK_LIMIT = 20_000_000


@dataclass(frozen=True, slots=True)
class WorkPlan:
    """Operation settings of a coordinator: they decide where work is done, never the result."""

    #: The coordinator's process does work on fewer cells (rows x features) itself. On Ray it does all work of a model
    #: with fewer live cells, and without the shards (:class:`~raydt.sessions.session.SmallModel`); 0 leaves all
    #: work to them.
    local_work_limit: int = LOCAL_WORK_LIMIT
    #: Budget of the features that the coordinator's process keeps; 0 keeps none, None has no limit.
    row_cache_bytes: int | None = None
    shared_store: bool = True  #: the only shard lives in the coordinator's process and uses the coordinator's store
    faster: bool = True  #: shards have more processors than the coordinator; otherwise they are there for memory alone

    @classmethod
    def within(cls, memory_limit: int | None, *, faster: bool = True) -> WorkPlan:
        """Return the plan of a coordinator that may hold ``memory_limit`` bytes of features; None: any number."""
        most = LOCAL_WORK_LIMIT if memory_limit is None else min(LOCAL_WORK_LIMIT, memory_limit // 8)
        return cls(most, memory_limit, faster=faster)


#: The plan of a process that shares its work with nobody.
NOTHING_DIVIDED = WorkPlan(local_work_limit=2**62)


@dataclass(frozen=True, slots=True)
class Promise:
    """Guarantee of a method with given options, known before anything runs."""

    promised: bool
    reason: str  #: why, or why not, with the numbers


@dataclass(frozen=True, slots=True)
class Case:
    """Options and the shape of a small stream that exercise a learner. Warm-up and every safety net run all cases."""

    name: str  #: a few words, unique among the learner's cases
    options: Mapping[str, Any] = field(default_factory=dict)  #: the ``learner`` section of a config, without ``kind``
    dense: bool = True  #: rows have numeric and categorical features
    sparse: bool = False  #: rows have a column of indices
    classes: int = 2  #: number of classes; 0 where labels are numbers
    missing: bool = False  #: numbers and categories may be missing
    weighted: bool = False  #: rows have weights
    warmup: int = 0  #: leading rows that build the model at once
    #: With these options, and hundreds of rows at once, kernels are compiled once more: others than for few rows.
    many: Mapping[str, Any] = field(default_factory=dict)
    #: Where the work is done; the default leaves all of it to shards with stores of their own.
    plan: WorkPlan = WorkPlan(local_work_limit=0, shared_store=False)


#: Why no check and no audit finds a change in an array that only counts work.
COUNTS_WORK = "counts work that was done, which the result does not depend on"


class Learner(ABC):
    """One method, complete: traits, options, its two halves, its audit, how it presents itself, and its cases.

    A learner names the classes of its parts, and overrides a method below only where it differs. Nothing outside its
    folder and its estimator knows its name.
    """

    kind: ClassVar[str]
    Options: ClassVar[type[Any]]
    #: The coordinating half, a ``BatchCoordinator``: ``Coordinator(options, features, shards, plan)``.
    Coordinator: ClassVar[type[Any]]
    #: The half that owns feature groups, a ``ShardWorker``: ``Shard(options, features, groups)``.
    Shard: ClassVar[type[Any]]
    #: Predictions of a saved model: ``Predictor(features, model)``; see :meth:`predictor`.
    Predictor: ClassVar[type[Any]]
    #: How the learner presents itself: ``Description(options)``.
    Description: ClassVar[type[Any]] = description.Description
    #: Whether rows of its audit may be divided by buckets (:meth:`audit_parts`).
    audit_divides: ClassVar[bool] = False
    #: Arrays of a state in which some number may change without a check or an audit that finds it, and why that is so.
    unproven: ClassVar[Mapping[str, str]] = {
        "seq": "queries and refused updates are counted, which leave nothing behind",
        "weighed": "another time with the same rows gives the same weights of classes",
    }

    #: Arrays that states have only from a format on, and its number.
    since: ClassVar[Mapping[str, int]] = {}

    def oldest(self, what: str, options: Mapping[str, Any]) -> int:
        """Return the oldest format of which this learner reads a ``model`` or a ``state`` with these options."""
        return 1

    def completed(self, options: Any, state: Arrays) -> Arrays:
        """Return a state of an earlier format with the arrays of :attr:`since`."""
        return state

    @abstractmethod
    def traits(self, options: Any) -> Traits:
        """Return the properties of the learner with these options that its callers need."""

    def describe(self, options: Mapping[str, Any]) -> description.Description:
        """Return the description for these options, which may be of another version, or some be missing."""
        described: description.Description = self.Description(options)
        return described

    def coordinator(self, options: Any, features: Features, shards: int, plan: WorkPlan) -> BatchCoordinator:
        """Make the coordinator for ``shards`` shards."""
        coordinator: BatchCoordinator = self.Coordinator(options, features, shards, plan)
        return coordinator

    def shard(self, options: Any, features: Features, groups: Ints, store: Any = None) -> ShardWorker:
        """Make the worker that owns ``groups``; ``store`` is the coordinator's, if they share one.

        The default keeps the features of its rows itself.
        """
        shard: ShardWorker = self.Shard(options, features, groups)
        return shard

    @abstractmethod
    def schema(self, options: Any, features: Features, model: Arrays, *, state: bool) -> Schema:
        """Return the declared arrays of a model or, if so asked, of a state: files are checked by it.

        Parameters
        ----------
        options
        features : Features
        model : dict of str to ndarray
            Arrays of the model or of the coordinator's state, which tell which of the optional ones are there.
        state : bool
        """

    @abstractmethod
    def check_relations(
        self, options: Any, features: Features, model: Arrays, groups: Mapping[int, Arrays] | None, n: Mapping[str, int]
    ) -> None:
        """Require what kernels rely on beyond the schema; ``n`` has all lengths by name.

        Raises
        ------
        KeyError, ValueError
            Naming the array that cannot be.
        """

    def check_buckets(
        self, options: Any, model: Arrays, buckets: Mapping[Buckets, Arrays], n: Mapping[str, int]
    ) -> None:
        """Require what shards have written of the rows in their buckets, by default nothing; as `check_relations`."""
        require(not buckets, "buckets", "states.unknown", what="component")

    def check(
        self,
        options: Any,
        features: Features,
        classes: int,
        model: Arrays,
        groups: Mapping[int, Arrays] | None,
        buckets: Mapping[Buckets, Arrays] | None = None,
    ) -> None:
        """Require that arrays from a file can be a model or, with ``groups``, a state.

        Arrays by row that shards have written are in ``model``, or in ``buckets``. Kernels take indices on trust: all
        that they follow must be within bounds, and must end.

        Raises
        ------
        KeyError, ValueError
            Naming the array that cannot be.
        """
        lengths = _lengths(features, classes)
        schema = self.schema(options, features, model, state=groups is not None)
        check_arrays(model, schema.arrays, lengths)
        if groups is not None:
            check_held(groups, features, schema.group, lengths["rows"])
        self.check_relations(options, features, model, groups, lengths)
        self.check_buckets(options, model, buckets or {}, lengths)

    def check_owned(
        self, options: Any, features: Features, classes: int, model: Arrays, whose: int | Buckets | None, part: Arrays
    ) -> None:
        """As :meth:`check` a part of a state without rows in ``model``, because their owners have written them.

        That is a feature group, which has all rows that are stored, also those deleted since, or what an owner has of
        its rows. None: ``model`` alone.
        """
        lengths, rows = _lengths(features, classes), {name: part[name] for name in part if name != STORED}
        state = model if isinstance(whose, int) else {**model, **rows}
        declared = self.schema(options, features, state, state=True)
        if isinstance(whose, int):
            return check_group(whose, part, features, declared.group, len(part["X"]))
        if isinstance(whose, Buckets):
            require(are_in(rows["id"], whose).all(), "id", "states.unknown", what="component")
        else:
            counts = model[OWNED]
            require(counts.dtype == np.int64 and counts.shape == (3,), OWNED, "states.number", what="rows")
        arrays = [of for of in declared.arrays if whose is not None or "rows" not in of.shape]
        check_arrays(state, arrays, lengths)
        self.check_relations(options, features, state, {}, lengths)

    def predictor(self, options: Any, features: Features, model: Arrays) -> Any:
        """Make an object with ``predict(X)`` and ``predict_proba(X, n_classes)`` from a predict-only model.

        Both also get the rows' sparse features, as the keyword ``sparse``, where ``features`` has some. A regression
        has no ``predict_proba``. A model that is a tree, or a sum of trees, is exported and explained by
        ``tree_sum(n_classes)`` (:class:`raydt.trees.shapley.HasTreeSum`).
        """
        return self.Predictor(features, model)

    def model_within(self, options: Any, features: Features, state: Arrays) -> Arrays | None:
        """Return the arrays of a model that predicts as a coordinator's ``state`` does, without the rows.

        None if the model has to be restored from the rows. The default takes the arrays that the schema of a model
        declares, which a reader of a run then serves within milliseconds.
        """
        declared = self.schema(options, features, state, state=False).arrays
        return {of.name: state[of.name] for of in declared} if all(of.name in state for of in declared) else None

    def promise(self, options: Any) -> Promise:
        """Return whether the guarantee of the method holds with these options; an audit proves that it does."""
        promise: Promise = options.promise()
        return promise

    def outlook(self, options: Any, warmup: int) -> str:
        """Say in one sentence what to expect of a run after a warm-up of so many rows; empty if nothing is known.

        Numbers of things, never times: the same on every machine.
        """
        return ""

    def audit(
        self, options: Any, features: Features, state: Arrays, history: History, groups: Mapping[int, Arrays]
    ) -> AuditReport:
        """Prove or refute what the method promises of a coordinator's :meth:`~BatchCoordinator.state`.

        ``groups`` are the states of the feature groups, for learners whose shards keep what the coordinator does not.
        The default calls the function ``audit`` of the module ``audit`` in the learner's folder, with the same
        arguments; the module is imported only then.
        """
        return self._reported("audit", options, features, state, history, groups)

    def audited_rows(self, options: Any, features: Features, state: Arrays, history: History) -> Any:
        """Return the ``AuditedRows`` of the same module: a part of an audit that is divided by buckets of rows.

        ``state`` and ``history`` have the rows of some buckets alone.
        """
        return self._audits.AuditedRows(options, features, state, history)

    def audit_parts(self, options: Any, features: Features, model: Arrays, parts: AuditParts) -> AuditReport:
        """As :meth:`audit`, of rows that are in ``parts``; ``model`` is a state, whose arrays by row are not used."""
        return self._reported("audit_parts", options, features, model, parts)

    def _reported(self, function: str, *arguments: Any) -> AuditReport:
        """Return the report of a function of the module ``audit``, also on nodes that are no trees."""
        try:
            report: AuditReport = getattr(self._audits, function)(*arguments)
        except MalformedModelError as error:
            report = AuditReport.malformed("model", str(error))
        return report

    @property
    def _audits(self) -> Any:
        return importlib.import_module(".audit", sys.modules[type(self).__module__].__package__)

    @abstractmethod
    def cases(self) -> Sequence[Case]:
        """Options and small streams that exercise the method: together they compile every kernel.

        A job compiles in advance the kernels of the cases that :meth:`concerns` its options.
        """

    def concerns(self, case: Case, options: Any) -> bool:
        """Return True if a job with these options needs the kernels of a case: those of classes, or of numbers."""
        return (case.classes == 0) == self.traits(options).reading.regression


def _lengths(features: Features, classes: int) -> dict[str, int]:
    """Return the lengths that are known before any array is."""
    return {"features": len(features), "dense": len(features.names), "sparse": features.sparse, "labels": classes}


# Fully dynamic trees: their options, and how small epsilon has to be for the guarantee.
#
# A node is rebuilt before more than ``epsilon * s`` updates have passed through it, s its size when it was built.
# ``docs/explanation/guarantees.md`` proves that the tree is then feasible for (alpha, beta) after every update, for any
# number of classes, if epsilon lies below :func:`epsilon_bound`, which is computed in exact rational arithmetic.

#: What a bound for numeric labels leaves for rounding: of alpha to units of the labels, and of gains.
FOR_ROUNDING = Fraction(1, 2**30)


@functools.lru_cache(64)
def epsilon_bound(alpha: float, beta: float, min_samples_split: int, criterion: str = "gini") -> Fraction:
    """Return the exclusive upper bound of the epsilons for which the guarantee is proven.

    It is min(1 / (k + 1), alpha / (4 + alpha), beta / (6 + beta)) of the exact values of the floats, k + 1 being
    ``min_samples_split``; with numeric labels min(1 / (k + 1), alpha / 2 - 2**-30, beta / (1 + beta) - 2**-30). 0 where
    nothing is promised: alpha or beta is 0 or, with numeric labels, too small.
    """
    a, b = Fraction(alpha), Fraction(beta)
    if criterion == "squared_error":
        bound = min(Fraction(1, min_samples_split), min(a / 2, b / (1 + b)) - FOR_ROUNDING)
        return max(bound, Fraction(0))
    return min(Fraction(1, min_samples_split), a / (4 + a), b / (6 + b))


@functools.lru_cache(64)
def auto_epsilon(alpha: float, beta: float, min_samples_split: int, criterion: str = "gini") -> float:
    """Return the largest float64 below :func:`epsilon_bound`; ConfigError if the bound is 0.

    For example ``auto_epsilon(0.1, 0.2, 2)`` is 0.024390243902439025.
    """
    bound = epsilon_bound(alpha, beta, min_samples_split, criterion)
    if bound <= 0:
        raise ConfigError(message("learners.no_epsilon", alpha=alpha, beta=beta))
    nearest = float(bound)
    return nearest if Fraction(nearest) < bound else math.nextafter(nearest, 0.0)


#: Beyond it a node is never rebuilt on any machine, and epsilon * s leaves the integers.
LARGEST_EPSILON = 1e6


class FullyDynamicOptions(LearnerOptions):
    """Options that decide when a node is a leaf, how far a split may be from the best, and when it is rebuilt."""

    epsilon: float | Literal["auto"] = Field(
        "auto",
        description="a subtree is rebuilt after this share of its size in updates; larger is faster and less exact; "
        "auto: the largest value the theorem allows (epsilon)",
    )
    alpha: float = Field(0.1, ge=0, le=1, description="impurity below which a node may be a leaf (alpha)")
    beta: float = Field(
        0.2, ge=0, le=1, description="largest amount by which a split's gain may fall short of the best (beta)"
    )
    max_depth: int | None = Field(
        None, ge=0, description="largest depth of a node; the root has depth 0; null sets no limit (h)"
    )
    min_samples_split: int = Field(2, ge=2, description="a node with fewer examples is a leaf (k + 1)")

    def require_epsilon(self) -> None:
        """ValueError unless epsilon is ``auto`` or a number within its limits."""
        if not isinstance(self.epsilon, str) and not 0 <= self.epsilon <= LARGEST_EPSILON:
            raise ValueError(message("learners.epsilon", most=LARGEST_EPSILON))

    @property
    def bounded_by(self) -> tuple[float, float, int, str]:
        """Arguments of :func:`epsilon_bound`."""
        return self.alpha, self.beta, self.min_samples_split, "gini"

    def resolved_epsilon(self) -> float:
        """Return epsilon as a number; ConfigError if it is ``auto`` and the theorem allows none."""
        return auto_epsilon(*self.bounded_by) if isinstance(self.epsilon, str) else self.epsilon

    def excuse(self) -> Message | None:
        """Return why nothing is promised for these options; None if something is."""
        epsilon, bound = self.resolved_epsilon(), epsilon_bound(*self.bounded_by)
        if bound == 0:
            return message("learners.no_epsilon", alpha=self.alpha, beta=self.beta).alone()
        if Fraction(epsilon) >= bound:
            return message("learners.large_epsilon", epsilon=epsilon, bound=float(bound))
        return None

    @property
    def depth_limit(self) -> int:
        """The largest depth of a node, as kernels take it."""
        return self.max_depth if self.max_depth is not None else 2**31 - 1

    def rules(self, scheduled: bool = True) -> TreeRules:
        """The options as the kernels take them; epsilon is that of nodes that are rebuilt by schedule."""
        epsilon = self.resolved_epsilon() if scheduled else 0.0
        return TreeRules(epsilon, self.alpha / 2, self.min_samples_split, self.depth_limit)

    def weighed_rules(self, scheduled: bool = True) -> TreeRules:
        """The options as the kernels take them where rows have weights."""
        return self.weighed(self.rules(scheduled))

    def weighed(self, rules: TreeRules) -> TreeRules:
        """Return rules as the kernels take them where rows have weights."""
        least = self.min_samples_split
        by_size = Fraction(rules.epsilon) * least < 1
        return rules._replace(unit=UNIT, min_samples_split=least * UNIT, by_size=by_size)


# An audit of a saved state against the raw examples: its arrays, the rows it stores, and the learner's verdicts.
#
# A learner's audit recomputes everything from the history and so never reads the rows that a state stores. ``update``
# and ``resume`` rebuild from exactly these rows, whatever the learner; they are compared here.


def audit(
    learner: Learner,
    options: Any,
    features: Features,
    classes: int | None,
    state: Arrays,
    history: History,
    groups: Mapping[int, Arrays],
) -> AuditReport:
    """Prove or refute what a learner promises of a state, and that it stores the rows of the source.

    Of an incomplete history, made of the stored rows, these are not compared. ``classes`` is 0 for numeric targets,
    and None if :meth:`Learner.check` has found the arrays sound.
    """
    check = None if classes is None else partial(learner.check, options, features, classes)
    differing, problem = _stored(features, state, history, groups, check)
    if problem is not None:
        return _with(differing, AuditReport.malformed("state", problem))
    return _with(differing, learner.audit(options, features, state, history, groups))


class AuditedPart:
    """The rows in some buckets, of a state and of the source, as a part of :func:`audit_divided`."""

    def __init__(
        self,
        learner: Learner,
        options: Any,
        features: Features,
        classes: int,
        state: Arrays,
        history: History,
        groups: Mapping[int, Arrays],
    ) -> None:
        check = partial(learner.check, options, features, classes)
        self._stored = _stored(features, state, history, groups, check)
        self._rows = None if self._stored[1] else learner.audited_rows(options, features, state, history)

    def stored(self) -> tuple[list[Message], str | None]:
        """Return failures of stored rows, and what cannot be in the arrays."""
        return self._stored

    def __getattr__(self, method: str) -> Any:
        """Return a method of the learner's own part."""
        if method.startswith("_"):
            raise AttributeError(method)
        return getattr(self._rows, method)


def rows_within(
    learner: Learner, options: Any, features: Features, state: Arrays, groups: Mapping[int, Arrays], own: Buckets
) -> tuple[Arrays, Mapping[int, Arrays]]:
    """Return a state that has all rows, and its feature groups, with the rows in some buckets alone."""
    mine = are_in(state["id"], own)
    declared = learner.schema(options, features, state, state=True).arrays
    by_row = {of.name: state[of.name] for of in declared if of.shape[:1] == ("rows",)}
    return {**state, **chosen(by_row, mine)}, Lazy(groups, lambda group: with_live(groups[group], mine))


def audit_divided(learner: Learner, options: Any, features: Features, model: Arrays, parts: AuditParts) -> AuditReport:
    """As :func:`audit`, of rows that are divided by buckets among ``parts``, each an :class:`AuditedPart`."""
    stored = parts.ask("stored")
    differing = [failure for failures, _ in stored for failure in failures]
    for _, problem in stored:
        if problem is not None:
            return _with(differing, AuditReport.malformed("state", problem))
    return _with(differing, learner.audit_parts(options, features, model, parts))


def _stored(
    features: Features,
    state: Arrays,
    history: History,
    groups: Mapping[int, Arrays],
    check: Callable[[Arrays, Mapping[int, Arrays]], None] | None,
) -> tuple[list[Message], str | None]:
    """Return failures of stored rows, and what cannot be in the arrays."""
    differing: list[Message] = []
    try:
        if history.complete:
            differing = compare_stored_rows(features, state, history, groups)
        if check is not None:
            check(state, groups)
    except (KeyError, ValueError) as error:
        problem = message("states.missing", array=error.args[0]) if isinstance(error, KeyError) else str(error)
        return differing, problem
    return differing, None


def _with(differing: list[Message], report: AuditReport) -> AuditReport:
    """Return a report with failures of stored rows."""
    if differing:
        report.conformance = "violated"
        report.failures = [*differing, *report.failures]
    return report


def compare_stored_rows(
    features: Features, state: Arrays, history: History, groups: Mapping[int, Arrays]
) -> list[Message]:
    """Compare stored ids, labels and features with the examples inserted; return a failure for each array."""
    born, ids, y = state["born"], state["id"], state["y"]
    dtypes = {"born": np.int64, "id": np.int64, "y": history.y.dtype}
    check_arrays(state, [Array(name, dtype, ("rows",)) for name, dtype in dtypes.items()], {})
    check_held(groups, features, (HELD_OR_MISSING,), len(born))
    place = rows_inserted(history, born)
    known = place >= 0
    failures = []
    if not known.all():
        first = int(np.flatnonzero(~known)[0])
        strangers = int((~known).sum())
        failures.append(message("audits.unknown_rows", rows=strangers, id=ids[first]))
    rows, at = as_slice(np.flatnonzero(known)), as_slice(place[known])
    for what, stored, source in (("id", ids, history.id), ("label", y, history.y)):
        wrong = np.flatnonzero(stored[rows] != source[at])
        if len(wrong):
            i = int(wrong[0])
            failures.append(_differing(len(wrong), what, ids[rows][i], stored[rows][i], source[at][i]))
    for number, group in sorted(groups.items()):
        columns = features.group_columns(number)
        failures += _dense(features, columns, ids[rows], group["X"][rows], history.X[:, as_slice(columns)][at])
        if history.sparse is not None:
            own = np.array([number])
            stored_ones = SparseRows.of_arrays(group, features.sparse)[rows]
            failures += _sparse(features, ids[rows], stored_ones, history.sparse[at].of_groups(own, features.groups))
    return failures


def _dense(features: Features, columns: Ints, ids: Ints, stored: Floats, source: Floats) -> list[Message]:
    """The columns of one feature group, bit for bit, so that NaN equals NaN."""
    bits = [np.ascontiguousarray(X).view(np.uint64) for X in (stored, source)]
    wrong = np.argwhere(bits[0] != bits[1])
    if not len(wrong):
        return []
    i, j = wrong[0]
    return [_differing(len(wrong), repr(features.name(int(columns[j]))), ids[i], stored[i, j], source[i, j])]


def _sparse(features: Features, ids: Ints, stored: SparseRows, source: SparseRows) -> list[Message]:
    """The sparse features of one feature group that are 1."""
    ours, theirs = (
        np.repeat(np.arange(len(ones)), ones.lengths) * features.sparse + ones.indices for ones in (stored, source)
    )
    wrong = np.setxor1d(ours, theirs, assume_unique=True)
    if not len(wrong):
        return []
    row, index = divmod(int(wrong[0]), features.sparse)
    held = int(index in stored.row(row))
    return [_differing(len(wrong), repr(features.name(len(features.names) + index)), ids[row], held, 1 - held)]


def _differing(count: int, what: str, example: Any, stored: Any, source: Any) -> Message:
    return message("audits.stored_value", values=count, what=what, id=example, found=stored, expected=source)
