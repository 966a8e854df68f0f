"""Common part of all fitted estimators: scikit-learn's conventions, with or without it, digest, audit, saving."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np

from raydt.arrays.blocks import LARGEST_WIDTH, SparseRows
from raydt.arrays.elementary import AnyArray, Bools, Floats, Int32s, Ints
from raydt.audits.recorded_tree import AuditReport
from raydt.batches.rows_on_shards import without_rows
from raydt.errors import InputError, ModelFileError, UpdateError
from raydt.estimators.arguments import NO_TYPES, ExampleNames, Parameters, Types, ids_of_rows, keys_of, types_of
from raydt.estimators.atomic import AtomicCalls, Values
from raydt.estimators.frames import FrameEncoder, ListEncoder
from raydt.examples.store import ExampleStore, Subjects
from raydt.examples.updates import (
    DUPLICATE_ID,
    REFUSALS,
    UNKNOWN_ID,
    Features,
    Targets,
    Weights,
    history_of_live,
    refuse_numbered,
    running_ids,
)
from raydt.export import FormatName, Interface, build, sentences, write
from raydt.folders.arrays import Kind, save_folder
from raydt.folders.folder import Folder, locked
from raydt.learners import learners
from raydt.learners.base import NOTHING_DIVIDED, Learner, Traits, WeightSum
from raydt.learners.batch_coordinator import KnownPredictions
from raydt.messages import message
from raydt.sessions.receipt import Method
from raydt.sessions.saved_model import SavedModel, model_meta, state_components
from raydt.sessions.session import InProcessSession
from raydt.trees.shapley import Explanation, TreeSum, explain, tree_sum_of

Self = TypeVar("Self", bound="Fitted")

#: Rows of which histograms and hashes are made again within milliseconds.
_FEW_ROWS = 4096


class Fitted(Parameters, AtomicCalls):
    """Base of :class:`raydt.estimators.base.Estimator`: a session with a live model, or a model that was loaded."""

    categorical_features: Sequence[str | int] | None
    session_: InProcessSession
    #: Ids of the rows of the last ``fit`` or ``partial_fit``, int64, or objects where they are not integers; of a model
    #: loaded with its examples, all live ids, oldest first.
    row_ids_: AnyArray
    n_features_in_: int
    feature_names_in_: AnyArray  #: Only for data frames: names, dtype object.
    _fitted_options: Any
    _method: Method  #: The learner with these options, for receipts.
    _traits: Traits  #: Of the learner with the options of the model.
    _encoder: FrameEncoder
    #: Whether all classes were named before the first examples came.
    _declared: bool
    #: Updates so far, and the next running id.
    _seq: int
    _next_id: int
    #: Ids that are not integers, by the numbers of their examples; None where ids are integers.
    _names: ExampleNames | None
    #: Subjects of the examples; None where they have none.
    _subjects: Subjects | None
    #: Types of the ids and subjects, from the first examples on.
    _types: Types
    #: The rows inserted since the first call; of a loaded state, the live ones and those inserted since.
    _weighed: WeightSum
    #: Of a loaded state, ranges of running ids of rows of data frames whose index has a name, which an earlier version
    #: did not use: first, and after last.
    _numbered: list[list[int]]
    #: Of the state that was loaded, if one was: the columns that its labels and ids came from.
    _columns: dict[str, Any]
    #: Arrays of a model that was loaded without examples.
    _loaded: dict[str, AnyArray]
    _interrupted = "estimators.interrupted"

    def digest(self) -> str:
        """Digest of the live model: equal for equal streams, whatever their cut into calls."""
        with self._lock:
            self._require_fitted()
            self._require_examples()
            return self._digest()

    def audit(self) -> AuditReport:
        """Prove the guarantee on the live model from the example store.

        What needs the past (counters, the sets on which splits were chosen) is not checked: an estimator keeps
        live examples only.
        """
        with self._lock:
            self._require_fitted()
            self._require_examples()
            state, groups = self.session_.state()
        history = history_of_live(state, groups, self._features())
        groups = {number: without_rows(part) for number, part in groups.items()}  # the history has them
        return self._learner.audit(self._fitted_options, self._features(), state, history, groups)

    def save(self, path: Any, with_examples: bool = False) -> None:
        """Write a folder that :func:`raydt.load_model` reads: to predict, or, with the examples, to continue learning.

        Raises
        ------
        InputError
            The examples are to be saved, but an id or a subject is neither an integer nor text.
        ConfigError
            Another process writes in the folder.
        """
        with self._lock:
            kind, meta, components = self._sound()._saved(with_examples)
            with locked(Folder(path)):
                save_folder(path, kind, meta, components)

    def _saved(self, with_examples: bool) -> tuple[Kind, dict[str, Any], dict[str, Any]]:
        """Return kind, meta and components of the folder to write."""
        self._require_fitted()
        categories = {name: dictionary.values for name, dictionary in self._encoder.dictionaries.items()}
        meta = model_meta(self._fitted_options, self._features(), self._classes, categories)
        meta |= {"named": self._encoder.named, "declared": self._declared}
        if self._encoder.previous:
            meta["previous_labels"] = [*self._encoder.previous.values()]
        if not with_examples:
            return "model", meta, {"arrays": self._model()}
        self._require_examples()
        columns, stream = self._saved_keys()
        if stream:
            stream["source"] = {"categories": categories, "labels": {"classes": self._classes}}
        meta |= {name: value for name, value in (("columns", columns), ("numbered", self._numbered)) if value}
        meta |= {"config_hash": None, "source_fingerprint": None, "offset": self._seq, "next_id": self._next_id}
        components: dict[str, Any] = state_components(*self.session_.state())
        return "state", meta, components | ({"stream": stream} if stream else {})

    def _saved_keys(self) -> tuple[dict[str, str | None], dict[str, Any]]:
        """Return the columns that a state names, and its text ids and subjects as components of a stream."""
        columns, stream, store = dict(self._columns), dict[str, Any](), self._store()
        live = store.slots()
        if self._names is not None:
            codes = np.sort(store.id[live])
            ids = self._names.names_of(codes).tolist()
            self._saved_type("id", ids)
            columns |= {"id": columns.get("id") or "id", "id_kind": "text"}
            stream |= {"ids": ids, "id_codes": codes, "id_died": np.full(len(ids), -1, dtype=np.int64)}
            stream |= {"id_next": self._next_id, "id_rows": self._seq}
        if self._subjects is not None:
            self._subjects.keep(store.id[live], store.born[live])
            kind = self._saved_type("subject", self._subjects.known)
            columns |= {"subject": columns.get("subject") or "subject", "subject_kind": kind}
            stream |= self._subjects.state()
        return columns, stream

    def _saved_type(self, what: str, values: Sequence[Any]) -> str:
        """Return ``text`` or ``integer``, the type of ids or subjects; InputError for others, which have no file."""
        found: str = self._types.get(what, ("text",))[0]
        if found not in ("text", "integer"):
            name = type(values[0]).__name__ if values else found
            raise InputError(message("estimators.unsaved_ids", what=what, type=name))
        return found

    @classmethod
    def from_saved(cls: type[Self], saved: SavedModel) -> Self:
        """Estimator restored from a state, or from a model that only predicts; written by ``save`` or by a run."""
        parameters = {name: value for name, value in saved.meta["learner"].items() if name in cls._parameter_names()}
        self = cls(**parameters)
        self._take_options(saved.options.model_copy(update=cls._fixed))
        categorical = saved.features.categorical_names
        self.categorical_features = categorical or None
        self._encoder = self._new_encoder(categorical)
        self._encoder.take(saved.features, saved.meta.get("named", True), saved.categories, saved.previous)
        self._declared = saved.meta.get("declared", True)
        self._take_classes(saved.classes)
        self._set_fitted()
        if not saved.is_state:
            self._loaded = saved.arrays
            return self
        self._open_session()
        self.session_.restore(saved.arrays, saved.groups)
        self._names, self._subjects, self._types = None, None, NO_TYPES
        self.row_ids_ = saved.arrays["id"][np.argsort(saved.arrays["born"], kind="stable")]
        self._take_keys(saved, self.row_ids_)
        self._columns, self._numbered = saved.meta.get("columns", {}), saved.meta.get("numbered", [])
        self._seq = int(saved.meta["offset"])
        self._next_id = saved.next_id
        self._weighed = WeightSum.of_live(self._store())
        return self

    # ------------------------------------------------------------ inside

    def _digest(self) -> str:
        if "digest" not in self._known:
            self._known["digest"] = self.session_.digest()
        return str(self._known["digest"])

    def _take_keys(self, saved: SavedModel, live: Ints) -> None:
        """Take text ids and subjects of a state, whose ``live`` examples have these numbers, oldest first."""
        stream = saved.components.get("stream", {})
        try:
            if "id_codes" in stream:
                ids = dict(zip(stream["id_codes"].tolist(), stream["ids"], strict=True))
                self._names = ExampleNames()
                self._names.add(live, [ids[number] for number in live.tolist()])
                self.row_ids_ = self._names.names_of(live)
            if "subject_codes" in stream:
                self._subjects = Subjects()
                self._subjects.restore(stream)
                self._subjects.keep(saved.arrays["id"], saved.arrays["born"])
            self._types = {"id": ("integer",) if self._names is None else ("text",)}
            if self._subjects is not None:
                declared = saved.meta.get("columns", {}).get("subject_kind")
                self._types |= {"subject": types_of(self._subjects.known) or ((declared,) if declared else ())}
        except (KeyError, ValueError) as error:
            raise ModelFileError(message("models.unfit", kind="state", reason=str(error))) from error

    @abstractmethod
    def _sound(self: Self) -> Self:
        """This estimator or, if a call was broken off, one as it was before."""

    def _live_session(self) -> InProcessSession | None:
        session: InProcessSession | None = self.__dict__.get("session_")
        return session

    def _growing(self) -> Iterable[Values]:
        dictionaries = self._encoder.dictionaries.values() if "_encoder" in self.__dict__ else ()
        keys = (self.__dict__.get("_names"), self.__dict__.get("_subjects"))
        return [*dictionaries, *(one for one in keys if one is not None)]

    @property
    def _learner(self) -> Learner:
        """The learner of the fitted options; before there are any, of the estimator."""
        options = getattr(self, "_fitted_options", None)
        return learners()[self.kind if options is None else options.kind]

    def _take_options(self, options: Any) -> None:
        self._fitted_options, self._method = options, Method.of(options)
        self._traits = self._method.traits

    def _new_encoder(self, categorical: Sequence[str | int] | None) -> FrameEncoder:
        reading = self._traits.reading
        encoder = ListEncoder if reading.needs_sparse else FrameEncoder
        return encoder(categorical, self._fitted_options.feature_groups, reading)

    def _set_fitted(self) -> None:
        features = self._features()
        self._known: dict[str, Any] = {}  # predictor and digest of the model as it is, once they were needed
        self.n_features_in_ = len(features)
        self.__dict__.pop("feature_names_in_", None)
        if self._encoder.named:
            sparse = (features.sparse_column,) if features.sparse else ()
            self.feature_names_in_ = np.array(features.names + sparse, dtype=object)

    def _open_session(self) -> None:
        plan = NOTHING_DIVIDED
        self.session_ = InProcessSession(self._learner, self._fitted_options, self._features(), 1, plan)

    def _rest(self) -> None:
        """Use less memory until the next call, if it is soon made again: a model of one key may wait for long."""
        if "session_" in self.__dict__ and self._store().live <= _FEW_ROWS:
            self.session_.rest()

    def _trim(self) -> None:
        """Use as little memory as can be until the next call, which may not come for long."""
        if "session_" in self.__dict__:
            with self._lock:  # somebody may predict
                self._known.pop("predictor", None)
                self.session_.trim()

    def _store(self) -> ExampleStore:
        return self.session_.coordinator.store

    def _features(self) -> Features:
        assert self._encoder.features is not None
        return self._encoder.features

    def _model(self) -> dict[str, AnyArray]:
        loaded: dict[str, AnyArray] | None = getattr(self, "_loaded", None)
        return self.session_.model() if loaded is None else loaded

    def _predictor(self) -> Any:
        with self._lock:
            self._require_whole()
            if "predictor" not in self._known:
                self._known["predictor"] = self._predictor_of(self._model())
            return self._known["predictor"]

    def _predictor_of(self, model: dict[str, AnyArray]) -> Any:
        return self._learner.predictor(self._fitted_options, self._features(), model)

    def _known_predictions(self, rows: Floats) -> KnownPredictions:
        """Return predictions of encoded rows with and without examples; of the last rows they are kept."""
        with self._lock:
            self._require_whole()
            bits = rows.shape, rows.tobytes()
            if self._known.get("rows", (None,))[0] != bits:  # whoever gave the rows may have written to them
                self._known["rows"] = bits, self.session_.known_predictions(rows.copy(), len(self._classes))
            known: KnownPredictions = self._known["rows"][1]
            return known

    def _require_fitted(self) -> None:
        self._require_whole()
        if self.__sklearn_is_fitted__():
            return
        said = message("estimators.not_fitted", estimator=type(self).__name__)
        try:
            from sklearn.exceptions import NotFittedError
        except ImportError:
            raise ValueError(said) from None
        raise NotFittedError(said)

    def _require_examples(self) -> None:
        if hasattr(self, "_loaded"):
            raise ModelFileError(message("estimators.no_rows"))

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "session_") or hasattr(self, "_loaded")

    def _rows(self, X: Any, *, known: bool = False) -> tuple[Floats, dict[str, SparseRows]]:
        """Rows to predict, and their sparse features as a keyword of predictors, if there are some."""
        self._require_fitted()
        # Blocks that leave examples out ask for the same rows again, of which to encode them would be a third.
        kept, bits = self._known.get("encoded"), None
        if kept is not None and not known and isinstance(X, np.ndarray) and X.dtype == np.float64:
            bits = X.shape, X.tobytes()
            for given, rows in kept:
                if given == bits:
                    return rows, {}
        rows, sparse = self._encoder.encode(X, type(self).__name__, known=known)
        if kept is not None and bits is not None and sparse is None:
            kept[:] = [(bits, rows.copy())]
        return rows, {} if sparse is None else {"sparse": sparse}

    # ------------------------------------------------------------ what y is

    @property
    @abstractmethod
    def _classes(self) -> list[Any]:
        """Labels in the order of their codes, as plain values; empty where they are numbers."""

    @abstractmethod
    def _take_classes(self, classes: list[Any]) -> None:
        """Go on with the classes of a saved model."""


# Examples by the ids and subjects that their users know, of an estimator with a live model.
#
# Invariant: what a request names is found before anything is changed, or refused, all of it in one error.


class DeletionRequest(NamedTuple):
    """A request to delete: live examples, the subjects that it names, and what it names that is not there."""

    key: Ints
    slots: Int32s
    subjects: tuple[Hashable, ...] = ()
    missing: tuple[Hashable, ...] = ()


class ExampleMetadata(NamedTuple):
    """Ids, weights and subjects of new examples, as a user gives them beside X and y."""

    ids: Any
    subjects: Any
    weights: Any


class NewExamples(NamedTuple):
    """Examples to insert; where ids are not integers, ``names`` is the table to note ``ids`` in."""

    key: Ints
    rows: Floats
    sparse: SparseRows | None
    targets: Targets
    ids: list[Hashable] | None
    names: ExampleNames | None
    subjects: list[Hashable] | None
    weight: Weights | None  #: In units; None if all are 1.


def require_names(ids: Any, subjects: Any, missing: str) -> None:
    """Refuse a request to delete that names nothing, or does not say what is to be done about what is missing."""
    if missing not in ("error", "skip"):
        raise InputError(message("estimators.missing_choice", given=missing))
    if ids is None and subjects is None:
        raise InputError(message("estimators.nothing_named"))


def require_running(types: Types) -> None:
    """Refuse rows without ids, which get running integers, where ids are something else."""
    known = types.get("id", ("integer",))
    if "integer" not in known:
        raise InputError(message("estimators.ids_always", known=" or ".join(known)))


def refuse_unknown(unknown: Sequence[tuple[str, Hashable]], ids: Sequence[Hashable]) -> None:
    """Refuse a request among whose ``ids`` and subjects some have no live example: ``("id", 7)``."""
    if len(unknown) == 1 and unknown[0][0] == "id":
        problem, remedy = REFUSALS[UNKNOWN_ID]
        said = message("estimators.refused", subject=f"id {unknown[0][1]}", problem=problem, remedy=remedy)
        raise UpdateError(said, row=ids.index(unknown[0][1]))
    raise UpdateError(message("estimators.unknown", names=", ".join(f"{what} {one}" for what, one in unknown)))


class NamedExamples(Fitted, ABC):
    """Base of :class:`raydt.estimators.base.Estimator`."""

    @property
    def live_ids_(self) -> AnyArray:
        """Ids of the live examples, oldest first: int64, or objects where they are not integers."""
        with self._lock:
            self._require_fitted()
            self._require_examples()
            return self._shown(self._store().id[self._store().in_order_of_birth()])

    def __contains__(self, id: Any) -> bool:
        """Return True if an example with this id is live."""
        with self._lock:
            self._require_fitted()
            self._require_examples()
            return bool((self._find(keys_of([id], "id", self._types))[1] >= 0).all())

    # ------------------------------------------------------------ inside

    def _asked(self, ids: Any, subjects: Any, missing: str) -> DeletionRequest:
        """Find what a request names, ids first, each example once; or an error that names all that is not there."""
        self._require_fitted()
        self._require_examples()
        require_names(ids, subjects, missing)
        given = [] if ids is None else keys_of(ids, "id", self._types)
        named = list(dict.fromkeys(given))
        key, slots = self._find(named)
        refuse_numbered(self._numbered, key)
        live = slots >= 0
        unknown = [("id", one) for one, lives in zip(named, live.tolist(), strict=True) if not lives]
        key, slots = key[live], slots[live]
        whose: list[Hashable] = []
        if subjects is not None:
            asked = list(dict.fromkeys(keys_of(subjects, "subject", self._types)))
            more, whose = self._rows_of_subjects(asked)
            found = set(whose)
            unknown += [("subject", one) for one in asked if one not in found]
            key = np.concatenate([key, more[~np.isin(more, key)]])
            slots = self._store().find(key)
        if unknown and missing == "error":
            refuse_unknown(unknown, given)
        return DeletionRequest(key, slots, tuple(dict.fromkeys(whose)), tuple(one for _, one in unknown))

    def _find(self, ids: Sequence[Hashable]) -> tuple[Ints, Int32s]:
        """Return number and slot of the live example of each id; where there is none, the slot is -1."""
        if self._names is not None:
            key, known = self._names.numbers_of(ids)
        elif set(map(type, ids)) <= {int}:
            key = np.array(ids, dtype=np.int64)
            return key, self._store().find(key)
        else:
            known = np.array([isinstance(one, int) for one in ids], dtype=np.bool_)
            key = np.array([one if isinstance(one, int) else 0 for one in ids], dtype=np.int64)
        return key, np.where(known, self._store().find(key), -1).astype(np.int32)

    def _rows_of_subjects(self, subjects: Sequence[Hashable]) -> tuple[Ints, list[Hashable]]:
        """Return the numbers of the live examples of some subjects, oldest first, and whose each is."""
        if self._subjects is None:
            raise InputError(message("estimators.no_subjects"))
        key, born, whose = self._subjects.rows_of(subjects)
        slots = self._store().find(key)
        live = (slots >= 0) & (self._store().born[slots] == born) if len(key) else slots >= 0
        return key[live], whose[live].tolist()

    def _shown(self, key: Ints) -> AnyArray:
        """Return the ids of examples as the user knows them."""
        return key if self._names is None else self._names.names_of(key)

    def _settle(self) -> None:
        """Drop names and subjects of the examples that the call has deleted."""
        key, start = self.__dict__.pop("_gone", (np.empty(0, dtype=np.int64), 0))
        if self._names is not None:
            self._names.drop(key)
        if self._subjects is not None:
            self._subjects.end(key, np.full(len(key), start))

    def _named(self, ids: Any, n: int, gone: Ints) -> tuple[Ints, list[Hashable] | None, ExampleNames | None]:
        """Return numbers for ``n`` examples to insert; where ids are not integers, the ids and their table, too.

        An error if an id is live, and not among the numbers ``gone``, or is repeated.
        """
        running = running_ids(self._next_id, n)
        if ids is None:
            require_running(self._types)
            self._refuse((self._store().find(running) >= 0) & ~np.isin(running, gone), running, DUPLICATE_ID)
            return running, None, None
        shown = ids_of_rows(ids, n, self._types)
        self._refuse_repeated(shown)
        key, slots = self._find(shown)
        self._refuse((slots >= 0) & ~np.isin(key, gone), shown, DUPLICATE_ID)
        if types_of(shown) == ("integer",):
            return key, None, None
        return running, shown, ExampleNames() if self._names is None else self._names

    def _refuse(self, bad: Bools, key: Sequence[Any] | AnyArray, reason: int) -> None:
        if bad.any():
            row = int(np.flatnonzero(bad)[0])
            problem, remedy = REFUSALS[reason]
            said = message("estimators.refused", subject=f"id {key[row]}", problem=problem, remedy=remedy)
            raise UpdateError(said, row=row)

    def _refuse_repeated(self, ids: Sequence[Hashable]) -> None:
        seen: set[Hashable] = set()
        for one in ids if len(set(ids)) < len(ids) else ():
            if one in seen:
                raise UpdateError(message("estimators.repeated_id", id=one))
            seen.add(one)


# What estimators of trees say about their model: importances, what moved each prediction, and exports.


def require_counted(features: Features) -> None:
    """Refuse an answer with an entry for each feature where nobody has said how many sparse ones there are."""
    if features.sparse == LARGEST_WIDTH:
        raise InputError(message("export.unknown_width"))


class SumOfTrees(Fitted):
    """An estimator whose model is one decision tree, or a sum of trees."""

    _several: ClassVar[bool] = False  #: It is a sum of trees.

    @property
    def feature_importances_(self) -> Floats:
        """Share of each feature in the impurity that all splits take away, shape (d,); all 0 without a split.

        Impurity is the Gini index, or the variance where labels are numbers, times the live examples of a node; of
        boosting, the loss. It is computed from the counts and sums of the live examples, so that deleted examples take
        no part.
        """
        self._require_fitted()
        require_counted(self._features())
        shares: Floats = self._described().importances()
        return shares

    def explain(self, X: Any) -> Explanation:
        """Shapley values: how much each feature of a row moves its prediction from the mean of the trees.

        Parameters
        ----------
        X : as of ``predict``
            n rows.

        Returns
        -------
        Explanation
            ``values``, shape (n, d, classes), and ``base``, shape (classes,): ``values.sum(axis=1) + base`` is
            ``predict_proba(X)``. Of a regressor shape (n, d) and a number, which add up to ``predict(X)``. Of boosting
            they add up to the scores: of two classes shape (n, d) and a number, the log-odds of the second class; of
            more, a score for each class seen, whose softmax are the shares.

        Raises
        ------
        InputError
            Leaves predict by naive Bayes, which splits do not explain.

        Notes
        -----
        Path-dependent: features that are not known are averaged with the live examples of the trees' nodes. O(nodes x
        distinct features of a path x classes) a row; n x d x classes numbers, also of sparse features.
        """
        rows, sparse = self._rows(X)
        require_counted(self._features())
        trees = self.tree_sum()
        found = explain(trees, rows, **sparse)
        if not len(trees.codes) or trees.link == "logistic":
            return Explanation(found.values[:, :, 0], float(found.base[0]))
        columns = np.argsort(trees.codes)
        return Explanation(found.values[:, :, columns], found.base[columns])

    def apply(self, X: Any) -> Ints:
        """Number of the leaf that each row reaches, among the nodes of its tree in preorder; the root is 0.

        Parameters
        ----------
        X : as of ``predict``

        Returns
        -------
        ndarray
            Shape (n,) of one tree, (n, trees) of several. As rows are inserted and deleted, numbers of leaves change.
        """
        rows, sparse = self._rows(X)
        trees = self.tree_sum()
        leaves = trees.apply(rows, **sparse) - trees.starts[:-1]
        return leaves if self._several else leaves[:, 0]

    def explain_path(self, X: Any, tree: int = 0) -> list[list[str]]:
        """The way of each row through one tree, in words: a sentence for each node it passes, then its leaf.

        Parameters
        ----------
        X : as of ``predict``
        tree : int, default 0
            Number of the tree.

        Returns
        -------
        list of list of str
            Such as ``["age <= 30.5 (value 27)", "leaf of 12 examples: no .75, yes .25"]``.
        """
        rows, sparse = self._rows(X)
        return sentences(self.tree_sum(), rows, sparse.get("sparse"), tree, self.interface())

    def export(self, to: FormatName, path: Any = None) -> Any:
        """The model as an object of another library, whose outputs before the link are equal in every bit.

        Parameters
        ----------
        to : {"treelite", "onnx", "lightgbm", "sklearn"}
        path : path, optional
            File to write it to; ``path`` + ``.json`` then says what columns and outputs are.

        Returns
        -------
        treelite.Model, onnx.ModelProto, lightgbm.Booster or sklearn.pipeline.Pipeline

        Raises
        ------
        InputError
            The library is not installed, the format cannot say what the model is, or the file cannot be written.
        """
        trees, interface = self.tree_sum(), self.interface()
        model = build(trees, interface, to)
        if path is not None:
            write(model, trees, interface, to, path)
        return model

    def interface(self) -> Interface:
        """Return the meaning of the columns and outputs of an exported model."""
        values = {name: dictionary.values for name, dictionary in self._encoder.dictionaries.items()}
        classes = getattr(self, "classes_", np.empty(0)).tolist()
        return Interface.of(self._features(), values, classes, self._traits.reading.by_value)

    def _described(self) -> Any:
        """The predictor with all that its model says of its trees."""
        return self._predictor()

    def tree_sum(self) -> TreeSum:
        """The model as arrays of trees: what explanations and exports are made from."""
        self._require_fitted()
        return tree_sum_of(self._described(), len(getattr(self, "classes_", ())))
